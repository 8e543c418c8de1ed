//! What to do about an error, kept apart from what went wrong.

/// An error that may know its remedy.
///
/// Whoever shows the error to a person prints the text of the error, then its causes, then the hint.
pub trait Hint {
    /// The next step for the person who sees this error, as one or more plain sentences without a
    /// final full stop, or `None` where the error text says it all.
    fn hint(&self) -> Option<String>;
}
