use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use accelerate_torch::Generator;

use super::random_sampler::fresh_generator;
use crate::Result;

/// Where a sampler's order is drawn from: a generator of its own, or libtorch's global one.
///
/// A process by itself draws from the global one, and several draw from their own, kept at one
/// state. A program that goes on with another number of ranks takes over what it went by before.
#[derive(Clone, Default)]
pub(super) struct OwnGenerator {
    generator: OnceCell<Arc<Generator>>,
    /// Whether the program gave it: then nothing else will do.
    given: bool,
    /// Whether the global one is drawn from although there is an own one.
    set_aside: Cell<bool>,
}

impl OwnGenerator {
    pub(super) fn given(generator: Arc<Generator>) -> Self {
        Self {
            generator: OnceCell::from(generator),
            given: true,
            set_aside: Cell::new(false),
        }
    }

    /// The own generator, if it is what is drawn from.
    pub(super) fn get(&self) -> Option<&Generator> {
        let own = self.generator.get().filter(|_| !self.set_aside.get());
        own.map(AsRef::as_ref)
    }

    /// Draws from the own generator, or from the global one.
    pub(super) fn draw<T>(
        &self,
        draw: impl FnOnce(&Generator) -> accelerate_torch::Result<T>,
    ) -> Result<T> {
        Ok(match self.get() {
            Some(own) => draw(own)?,
            None => draw(&Generator::default_cpu()?)?,
        })
    }

    /// Makes one, seeded from the global one, where there is none.
    pub(super) fn or_fresh(&self) -> Result<()> {
        if self.generator.get().is_none() {
            self.put(fresh_generator()?);
        }
        Ok(())
    }

    /// Whether [`choose`](Self::choose) has an effect.
    pub(super) fn may_change(&self) -> bool {
        !self.given
    }

    /// Draws from an own generator from now on, whose state is still to be set, or from the
    /// global one.
    pub(super) fn choose(&self, own: bool) -> Result<()> {
        if self.given {
            return Ok(());
        }
        if own && self.generator.get().is_none() {
            self.put(Generator::new(0)?);
        }
        self.set_aside.set(!own);
        Ok(())
    }

    fn put(&self, generator: Generator) {
        self.generator.get_or_init(|| Arc::new(generator));
    }
}
