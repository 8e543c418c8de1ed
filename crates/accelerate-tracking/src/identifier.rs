//! Names that no other run has.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// A number that nobody can foresee; not fit for secrets.
pub(crate) fn random() -> u64 {
    // The standard library keys its hash maps from the system's generator.
    RandomState::new().build_hasher().finish()
}

/// `length` digits and small letters.
pub(crate) fn alphanumeric(length: usize) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let letter = |_| {
        let index = usize::try_from(random() % 36).unwrap_or_default();
        char::from(LETTERS.get(index).copied().unwrap_or(b'a'))
    };
    (0..length).map(letter).collect()
}

/// 32 hexadecimal digits.
pub(crate) fn hexadecimal() -> String {
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_length_and_differ() {
        let (one, other) = (alphanumeric(8), alphanumeric(8));
        assert_ne!(one, other);
        assert!(one.len() == 8 && one.chars().all(|c| c.is_ascii_alphanumeric()));
        assert_eq!(hexadecimal().len(), 32);
        assert_ne!(hexadecimal(), hexadecimal());
    }
}
