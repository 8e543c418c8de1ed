//! Which output streams of which ranks get log files: the value of `--tee`.
//!
//! As for `torchrun`, `0`, `1`, `2` and `3` stand for none, stdout, stderr and both; `0:3,1:1` names
//! ranks of this machine one by one, and those left out get no file.
//!
//! Two things differ from `torchrun`. Ranks may have more than one digit. And `--log_dir` alone
//! writes both files of every rank, where `torchrun` makes empty folders; the output is shown all
//! the same.

use std::{collections::BTreeMap, str::FromStr};

/// A selection for all ranks of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Streams {
    /// The same for all ranks.
    All(Selected),
    /// By local rank.
    Ranks(BTreeMap<usize, Selected>),
}

/// A selection for one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

/// A text that is no selection.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` selects no streams: expected `0` (none), `1` (stdout), `2` (stderr), `3` (both), or \
     a list of `RANK:VALUE` such as `0:3,1:1`"
)]
pub(crate) struct StreamsError {
    text: String,
}

impl Selected {
    /// Both streams.
    pub(crate) const BOTH: Self = Self {
        stdout: true,
        stderr: true,
    };

    fn parse(text: &str) -> Option<Self> {
        let (stdout, stderr) = match text {
            "0" => (false, false),
            "1" => (true, false),
            "2" => (false, true),
            "3" => (true, true),
            _ => return None,
        };
        Some(Self { stdout, stderr })
    }
}

impl Streams {
    /// The selection for one rank.
    pub(crate) fn of(&self, local_rank: usize) -> Selected {
        match self {
            Self::All(selected) => *selected,
            Self::Ranks(ranks) => ranks.get(&local_rank).copied().unwrap_or_default(),
        }
    }

    /// The highest local rank that is named.
    pub(crate) fn highest_rank(&self) -> Option<usize> {
        match self {
            Self::All(_) => None,
            Self::Ranks(ranks) => ranks.last_key_value().map(|(rank, _)| *rank),
        }
    }
}

impl FromStr for Streams {
    type Err = StreamsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pair = |pair: &str| {
            let (rank, value) = pair.split_once(':')?;
            // `parse` would take a sign.
            let is_number = rank.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then_some((rank.parse().ok()?, Selected::parse(value)?))
        };
        let list = || text.split(',').map(pair).collect::<Option<_>>();
        Selected::parse(text)
            .map(Self::All)
            .or_else(|| list().map(Self::Ranks))
            .ok_or_else(|| StreamsError {
                text: text.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_digit_is_for_all_ranks() {
        let streams: Streams = "1".parse().unwrap();
        let stdout_only = Selected {
            stdout: true,
            stderr: false,
        };
        assert_eq!([streams.of(0), streams.of(70)], [stdout_only; 2]);
        assert_eq!("3".parse(), Ok(Streams::All(Selected::BOTH)));
        assert_eq!("0".parse::<Streams>().unwrap().of(0), Selected::default());
    }

    #[test]
    fn ranks_are_named_one_by_one() {
        let streams: Streams = "0:3,11:2".parse().unwrap();
        assert_eq!(streams.of(0), Selected::BOTH);
        assert_eq!(streams.of(1), Selected::default());
        assert!(streams.of(11).stderr && !streams.of(11).stdout);
        assert_eq!(streams.highest_rank(), Some(11));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "4", "-1", "12", "0:4", "0:", ":1", "0:1,", "0:1;1:1", "a:1", "+0:1", "0-1:3",
        ] {
            let error = text.parse::<Streams>().unwrap_err();
            assert!(error.to_string().contains("expected `0`"), "{text}");
        }
    }
}
