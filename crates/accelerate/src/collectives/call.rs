//! What a process did last.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::codec;

/// How many calls are remembered.
const KEPT: usize = 5;

/// One collective that this process came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Counts from 1.
    pub(crate) number: u64,
    pub(super) operation: &'static str,
    pub(super) site: Site,
}

impl Call {
    pub(super) fn record(self, under_way: bool) -> CallRecord {
        CallRecord {
            number: self.number,
            operation: self.operation.to_owned(),
            site: self.site.to_string(),
            under_way,
        }
    }
}

/// Where a collective was called.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Site {
    /// A place in a program.
    Code(&'static Location<'static>),
    /// The class of the model that made it.
    Model(&'static str),
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(location) => location.fmt(f),
            Self::Model(class) => write!(f, "model `{class}`"),
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
    /// File, line and column of the call, or the model that made it.
    pub site: String,
    /// Whether it was not over when this was told.
    pub under_way: bool,
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
    /// With each, whether it is under way.
    recent: VecDeque<(Call, bool)>,
    /// The first call that ranks made from different places, which may be right.
    apart: Option<Call>,
}

impl CallLog {
    /// Counts a call that begins.
    pub(crate) fn enter(&self, operation: &'static str, site: Site) -> Call {
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
        inner.recent.push_back((call, true));
        call
    }

    /// How many calls have begun.
    pub(crate) fn count(&self) -> u64 {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.count
    }

    /// The call is over, one way or the other.
    pub(crate) fn leave(&self, call: Call) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut recent = inner.recent.iter_mut().rev();
        if let Some((_, under_way)) = recent.find(|(other, _)| other.number == call.number) {
            *under_way = false;
        }
    }

    /// The last calls, oldest first.
    pub(super) fn recent(&self) -> Vec<CallRecord> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let records = inner.recent.iter();
        records
            .map(|&(call, under_way)| call.record(under_way))
            .collect()
    }

    /// The last calls as bytes, for [`read_note`].
    pub(crate) fn note(&self) -> Vec<u8> {
        encode_note(&self.recent())
    }

    pub(super) fn note_apart(&self, call: Call) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.apart.get_or_insert(call);
    }

    pub(super) fn apart(&self) -> Option<CallRecord> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.apart.map(|call| call.record(false))
    }
}

/// The calls of a [note](CallLog::note), none where it cannot be read.
pub(crate) fn read_note(note: &[u8]) -> Vec<CallRecord> {
    decode_note(note).unwrap_or_default()
}

/// What one rank leaves for others, as bytes; what cannot be told is not known.
pub(crate) fn encode_note<T: Serialize>(note: &T) -> Vec<u8> {
    codec::encode("note", note).unwrap_or_default()
}

/// What another rank left, if it can be read.
pub(crate) fn decode_note<T: DeserializeOwned>(note: &[u8]) -> Option<T> {
    codec::decode("note", note).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_calls_are_remembered_with_their_numbers() {
        let log = CallLog::default();
        let here = Site::Code(Location::caller());
        for _ in 0..6 {
            log.leave(log.enter("gather", here));
        }
        log.enter("forward", Site::Model("Pair"));
        let last = log.enter("reduce", here);
        assert_eq!(last.number, 8);
        let recent = log.recent();
        let numbers: Vec<_> = recent.iter().map(|call| call.number).collect();
        assert_eq!(numbers, [4, 5, 6, 7, 8]);
        let under_way: Vec<_> = recent.iter().map(|call| call.under_way).collect();
        assert_eq!(under_way, [false, false, false, true, true]);
        assert_eq!(recent[3].to_string(), "call 7, `forward` at model `Pair`");
        let text = recent[4].to_string();
        assert!(text.starts_with("call 8, `reduce` at "), "{text}");
        assert!(text.contains("call.rs:"), "{text}");
        assert_eq!(read_note(&log.note()), recent);
        assert!(read_note(b"nonsense").is_empty());
    }
}
