//! Arguments that differ from rank to rank.
//!
//! As for `torchrun`, `$local_rank` and `${local_rank}` in an argument of a job of several processes
//! stand for the local rank, and `$$` for one `$`. Everything else stays as it is. A single process
//! gets its arguments untouched.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

const NAME: &[u8] = b"local_rank";

/// The argument for one rank.
pub(crate) fn for_rank(argument: &OsStr, local_rank: usize) -> OsString {
    let mut text = Vec::new();
    let mut rest = argument.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'$') {
        let (before, from_dollar) = rest.split_at(at);
        text.extend_from_slice(before);
        rest = match Placeholder::at_start(&from_dollar[1..]) {
            Some((Placeholder::Dollar, rest)) => {
                text.push(b'$');
                rest
            }
            Some((Placeholder::LocalRank, rest)) => {
                text.extend_from_slice(local_rank.to_string().as_bytes());
                rest
            }
            None => {
                text.push(b'$');
                &from_dollar[1..]
            }
        };
    }
    text.extend_from_slice(rest);
    OsString::from_vec(text)
}

#[derive(Debug, Clone, Copy)]
enum Placeholder {
    Dollar,
    LocalRank,
}

impl Placeholder {
    /// What stands behind a `$`, and the bytes after it.
    fn at_start(text: &[u8]) -> Option<(Self, &[u8])> {
        if let Some(rest) = text.strip_prefix(b"$") {
            return Some((Self::Dollar, rest));
        }
        if let Some(braced) = text.strip_prefix(b"{") {
            let rest = braced.strip_prefix(NAME)?.strip_prefix(b"}")?;
            return Some((Self::LocalRank, rest));
        }
        let rest = text.strip_prefix(NAME)?;
        // A longer name is another name.
        let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        (!rest.first().is_some_and(goes_on)).then_some((Self::LocalRank, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_and_nothing_else() {
        for (argument, expected) in [
            ("--out=log-${local_rank}.txt", "--out=log-3.txt"),
            ("$local_rank", "3"),
            ("$local_rank/$local_rank", "3/3"),
            ("$$local_rank", "$local_rank"),
            ("cost: 5$$", "cost: 5$"),
            (
                "$local_ranks ${local_rank $HOME $",
                "$local_ranks ${local_rank $HOME $",
            ),
            ("$$$$", "$$"),
            ("", ""),
        ] {
            assert_eq!(for_rank(OsStr::new(argument), 3), expected, "{argument}");
        }
        let not_text = OsStr::from_bytes(b"\xff$local_rank");
        assert_eq!(for_rank(not_text, 3).as_bytes(), b"\xff3");
    }
}
