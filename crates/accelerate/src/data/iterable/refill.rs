use super::Samples;
use crate::{Error, Result};

/// Samples from the start of a stream, again and again: what a last step is filled up with.
///
/// The stream is opened when the first sample is asked for.
pub(super) struct Refill<'a, T> {
    open: Box<dyn Fn() -> Samples<'a, T> + 'a>,
    samples: Option<Samples<'a, T>>,
}

impl<'a, T> Refill<'a, T> {
    pub(super) fn new(open: impl Fn() -> Samples<'a, T> + 'a) -> Self {
        Self {
            open: Box::new(open),
            samples: None,
        }
    }
}

impl<T> Iterator for Refill<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(sample) = self.samples.as_mut().and_then(Iterator::next) {
            return Some(sample);
        }
        let mut again = (self.open)();
        let sample = again.next();
        self.samples = Some(again);
        // Nothing, where there were samples before, would make the last step short on one rank.
        Some(sample.unwrap_or_else(|| {
            Err(Error::Argument {
                operation: "IterableDataset::epoch",
                expected: "the same samples when it is called again, to fill up the last step"
                    .to_owned(),
                found: "none; use `drop_last` for a stream that can be read only once".to_owned(),
            })
        }))
    }
}
