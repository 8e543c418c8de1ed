//! The variables by which services are set up, and secrets among them.

use std::collections::BTreeMap;
use std::fmt;

/// A snapshot of environment variables.
///
/// The names are those of the services. It shows no values when it is printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// The variables of this process, as they are now; those that are not text are left out.
    #[must_use]
    pub fn from_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
        }
    }

    /// The given variables and nothing else.
    pub fn from_pairs<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let pairs = pairs.into_iter();
        Self {
            variables: pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        }
    }

    /// The value of a variable that is set and not empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Whether a variable says yes.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        let value = self.get(name).unwrap_or_default().to_ascii_lowercase();
        matches!(value.as_str(), "1" | "true" | "yes" | "on")
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// A key or password. It never shows when it is printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the header of a request and nothing else.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` without the secret.
    pub(crate) fn hide_in(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        text.replace(&self.0, "[redacted]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_shown() {
        let environment = Environment::from_pairs([("KEY", "abc"), ("ON", "True"), ("EMPTY", "")]);
        assert_eq!(format!("{environment:?}"), r#"{"EMPTY", "KEY", "ON"}"#);
        assert_eq!(environment.get("KEY"), Some("abc"));
        assert_eq!(environment.get("EMPTY"), None);
        assert!(environment.is_on("ON") && !environment.is_on("KEY"));
        let secret = Secret::new("abc");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        assert_eq!(secret.hide_in("the key abc"), "the key [redacted]");
    }
}
