//! A command as one could type it.

use std::ffi::{OsStr, OsString};

/// Words with anything unusual in them are quoted as POSIX shells read it.
pub(super) fn command(name: &str, arguments: &[OsString]) -> String {
    let words = arguments.iter().map(|argument| word(argument));
    [name.to_owned()]
        .into_iter()
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

fn word(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=,:@%+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_quotes_gets_them() {
        let arguments = ["launch", "--cpu", "/a b/it's", ""].map(OsString::from);
        assert_eq!(
            command("accelerate", &arguments),
            r"accelerate launch --cpu '/a b/it'\''s' ''"
        );
    }
}
