//! What a process did last.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// How many calls are remembered.
const KEPT: usize = 5;

/// One collective that this process came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Counts from 1.
    pub(super) number: u64,
    pub(super) operation: &'static str,
    pub(super) site: &'static Location<'static>,
}

impl Call {
    pub(super) fn record(&self) -> CallRecord {
        CallRecord {
            number: self.number,
            operation: self.operation.to_owned(),
            site: self.site.to_string(),
        }
    }
}

/// A collective that a rank came to, as other ranks see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Counts the collectives of the rank, from 1.
    pub number: u64,
    /// What was called.
    pub operation: String,
    /// File, line and column of the call.
    pub site: String,
}

impl fmt::Display for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "call {}, `{}` at {}",
            self.number, self.operation, self.site
        )
    }
}

/// The last collectives of this process. Costs a lock that nobody else wants.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: u64,
    recent: VecDeque<Call>,
    /// The first call that ranks made from different places, which may be right.
    apart: Option<Call>,
}

impl CallLog {
    pub(super) fn enter(&self, operation: &'static str, site: &'static Location<'static>) -> Call {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.count += 1;
        let call = Call {
            number: inner.count,
            operation,
            site,
        };
        if inner.recent.len() == KEPT {
            inner.recent.pop_front();
        }
        inner.recent.push_back(call);
        call
    }

    /// The last calls, oldest first.
    pub(super) fn recent(&self) -> Vec<CallRecord> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.recent.iter().map(Call::record).collect()
    }

    pub(super) fn note_apart(&self, call: Call) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.apart.get_or_insert(call);
    }

    pub(super) fn apart(&self) -> Option<CallRecord> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.apart.as_ref().map(Call::record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_calls_are_remembered_with_their_numbers() {
        let log = CallLog::default();
        for _ in 0..7 {
            log.enter("gather", Location::caller());
        }
        let last = log.enter("reduce", Location::caller());
        assert_eq!(last.number, 8);
        let recent = log.recent();
        let numbers: Vec<_> = recent.iter().map(|call| call.number).collect();
        assert_eq!(numbers, [4, 5, 6, 7, 8]);
        let text = recent[4].to_string();
        assert!(text.starts_with("call 8, `reduce` at "), "{text}");
        assert!(text.contains("call.rs:"), "{text}");
    }
}
