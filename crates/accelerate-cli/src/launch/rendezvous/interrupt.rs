//! A way to end every wait of this room at once.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Set by whoever handles signals; every blocking call looks at it many times a second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Ends all waits that know this interrupt, those to come too.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether waits are to end.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
