//! What configurations of many models have to keep to.

use std::fmt;

use crate::{Error, Result};

/// Checks of the configuration of one model; each ends with the first key that cannot be.
#[derive(Debug, Clone, Copy)]
pub struct ConfigChecks {
    model: &'static str,
}

impl ConfigChecks {
    /// For the model of this name.
    pub const fn of(model: &'static str) -> Self {
        Self { model }
    }

    /// The error for a key that the model cannot use.
    pub fn refused(
        self,
        key: &'static str,
        expected: impl Into<String>,
        found: &dyn fmt::Display,
    ) -> Error {
        Error::Config {
            model: self.model,
            key,
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    /// Every number is at least 1.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn at_least_one(self, sizes: impl IntoIterator<Item = (&'static str, i64)>) -> Result<()> {
        match sizes.into_iter().find(|(_, size)| *size < 1) {
            Some((key, size)) => Err(self.refused(key, "at least 1", &size)),
            None => Ok(()),
        }
    }

    /// Every number is within `0..=1`, as probabilities are.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn probabilities(
        self,
        numbers: impl IntoIterator<Item = (&'static str, f64)>,
    ) -> Result<()> {
        let range = 0.0..=1.0;
        match numbers
            .into_iter()
            .find(|(_, number)| !range.contains(number))
        {
            Some((key, number)) => Err(self.refused(key, "a probability within 0..=1", &number)),
            None => Ok(()),
        }
    }

    /// The number under the key `part` divides the one under `whole`. Both are at least 1.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn divides(self, part: (&'static str, i64), whole: (&'static str, i64)) -> Result<()> {
        if whole.1 % part.1 == 0 {
            return Ok(());
        }
        let expected = format!("a divisor of `{}` {}", whole.0, whole.1);
        Err(self.refused(part.0, expected, &part.1))
    }

    /// The token, where there is one, is one of `vocab_size`.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn token(self, key: &'static str, token: Option<i64>, vocab_size: i64) -> Result<()> {
        let range = 0..vocab_size;
        match token.filter(|token| !range.contains(token)) {
            Some(token) => Err(self.refused(key, format!("a token within {range:?}"), &token)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKS: ConfigChecks = ConfigChecks::of("GPT-5");

    fn message(checked: Result<()>) -> String {
        checked.unwrap_err().to_string()
    }

    #[test]
    fn the_first_key_that_cannot_be_is_told() {
        assert!(CHECKS.at_least_one([("a", 1), ("b", 7)]).is_ok());
        assert_eq!(
            message(CHECKS.at_least_one([("a", 1), ("b", 0), ("c", -1)])),
            "cannot build GPT-5 with `b`: expected at least 1, found 0"
        );
        assert!(CHECKS.probabilities([("p", 0.0), ("q", 1.0)]).is_ok());
        let not_a_number = CHECKS.probabilities([("p", f64::NAN)]);
        assert!(message(not_a_number).contains("`p`: expected a probability within 0..=1"));
        assert!(CHECKS.divides(("heads", 3), ("width", 12)).is_ok());
        let uneven = message(CHECKS.divides(("heads", 5), ("width", 12)));
        assert!(
            uneven.contains("`heads`: expected a divisor of `width` 12, found 5"),
            "{uneven}"
        );
    }

    #[test]
    fn a_token_is_one_of_the_vocabulary() {
        assert!(CHECKS.token("pad", None, 10).is_ok());
        assert!(CHECKS.token("pad", Some(9), 10).is_ok());
        for token in [-1, 10] {
            let refused = message(CHECKS.token("pad", Some(token), 10));
            assert!(refused.contains("a token within 0..10"), "{refused}");
        }
    }
}
