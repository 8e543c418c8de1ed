//! The one error of a task: what failed, why, and what to do next.

use std::error::Error;
use std::fmt;

/// Something a task could not do.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
    hint: Option<String>,
}

impl Failure {
    /// A failure that needs no further cause.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            cause: None,
            hint: None,
        }
    }

    /// A failure because of another one.
    pub(crate) fn because(
        message: impl Into<String>,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            message: message.into(),
            cause: Some(cause.into()),
            hint: None,
        }
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The text for the terminal: the error, each cause, then the hints without repeats.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("error: {}\n", self.message);
        let mut hints: Vec<&str> = self.hint.as_deref().into_iter().collect();
        let mut cause = self.source();
        while let Some(error) = cause {
            for (index, line) in error.to_string().trim_end().lines().enumerate() {
                let start = if index == 0 {
                    "  caused by: "
                } else {
                    "             "
                };
                text += &format!("{start}{line}\n");
            }
            let hint = error
                .downcast_ref::<Self>()
                .and_then(|failure| failure.hint.as_deref());
            hints.extend(hint.filter(|hint| !hints.contains(hint)));
            cause = error.source();
        }
        for hint in hints {
            text += &format!("hint: {hint}\n");
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause
            .as_ref()
            .map(|cause| &**cause as &(dyn Error + 'static))
    }
}

impl From<accelerate_libtorch::Error> for Failure {
    fn from(error: accelerate_libtorch::Error) -> Self {
        Self::new(format!("{error}\n{}", error.findings()).trim_end()).hint(error.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_come_in_order_and_hints_once_at_the_end() {
        let inner = Failure::new("no space\nat all").hint("free some");
        let outer = Failure::because("cannot unpack", inner).hint("free some");
        let top = Failure::because("cannot set up", outer).hint("try again");
        let wanted = "error: cannot set up\n  caused by: cannot unpack\n  caused by: no space\n             at all\nhint: try again\nhint: free some\n";
        assert_eq!(top.render(), wanted);
    }
}
