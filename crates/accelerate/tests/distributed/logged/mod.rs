//! What a test logs.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

/// Keeps what is logged.
#[derive(Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Vec<(tracing::Level, String)>>>);

impl Logged {
    /// Warnings and errors, in their order.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let warnings = all
            .iter()
            .filter(|(level, _)| *level <= tracing::Level::WARN);
        warnings.map(|(_, text)| text.clone()).collect()
    }
}

impl tracing::Subscriber for Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
                let _ = write!(self.0, "{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let level = *event.metadata().level();
        self.0.lock().unwrap().push((level, text.0));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
