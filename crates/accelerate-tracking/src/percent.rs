//! Texts as parts of addresses.

use std::fmt::Write as _;

/// A text in which everything but letters, digits and `-_.~` is written as `%XX`.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => {
                // Writing into a text does not fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

/// A path, whose slashes stay.
#[cfg(feature = "network")]
pub(crate) fn escaped_path(path: &str) -> String {
    let parts: Vec<String> = path.split('/').map(escaped).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_addresses_is_escaped() {
        assert_eq!(escaped("a b/ü"), "a%20b%2F%C3%BC");
        #[cfg(feature = "network")]
        assert_eq!(escaped_path("a b/c"), "a%20b/c");
    }
}
