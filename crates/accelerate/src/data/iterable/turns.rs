//! How far a loop over a stream has come, part by part.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The parts of a stream that are read by themselves, whose batches come in turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::data) struct Turns {
    /// How many batches were handed out of each part.
    pub(in crate::data) parts: Vec<usize>,
    /// The part whose turn is next.
    pub(in crate::data) next: usize,
}

impl Turns {
    /// The start of an epoch over `parts` parts.
    pub(super) fn begin(parts: usize) -> Self {
        Self {
            parts: vec![0; parts.max(1)],
            next: 0,
        }
    }

    /// A batch of `part` was handed out.
    pub(super) fn handed_out(&mut self, part: usize) {
        if let Some(count) = self.parts.get_mut(part) {
            *count += 1;
            self.next = (part + 1) % self.parts.len();
        }
    }

    /// The parts in the order of their turns.
    pub(super) fn order(&self) -> VecDeque<usize> {
        let parts = self.parts.len();
        (0..parts).map(|turn| (self.next + turn) % parts).collect()
    }

    /// Whether such a thing can have been written by [`Turns`].
    pub(super) fn is_sound(&self) -> bool {
        self.next < self.parts.len()
    }
}

/// What the position of a stream says beyond the number of batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::data) struct StreamProgress {
    /// The number of ranks, where each reads a part of its own and the state is that rank's.
    pub(in crate::data) own_part_of: Option<usize>,
    /// The parts that this rank reads.
    pub(in crate::data) read: Turns,
    /// The same parts read again, by a rank that is through while others are not.
    pub(in crate::data) again: Option<Turns>,
}

impl StreamProgress {
    /// The same parts before the first batch.
    pub(in crate::data) fn at_start(&self) -> Self {
        Self {
            own_part_of: self.own_part_of,
            read: Turns::begin(self.read.parts.len()),
            again: None,
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.read.is_sound() && self.again.as_ref().is_none_or(Turns::is_sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_on_behind_the_part_that_came_last() {
        let mut turns = Turns::begin(3);
        assert_eq!(turns.order(), [0, 1, 2]);
        for part in [0, 1, 2, 0, 2] {
            turns.handed_out(part);
        }
        assert_eq!(turns.parts, [2, 1, 2]);
        assert_eq!(turns.order(), [0, 1, 2]);
        turns.handed_out(0);
        assert_eq!(turns.order(), [1, 2, 0]);
        assert!(
            turns.is_sound()
                && !Turns {
                    parts: vec![],
                    next: 0
                }
                .is_sound()
        );
        assert_eq!(Turns::begin(0).order(), [0]);
    }
}
