//! Settings as TensorBoard's page of hyper-parameters reads them.

use super::event::{SummaryValue, plugin};
use crate::error::{Error, Result};
use crate::protobuf::Message;
use crate::settings::flatten;
use crate::value::{Value, Values};

/// The numbers of data types there.
const STRING: i64 = 1;
const FLOAT64: i64 = 3;
/// `Status.SUCCESS`
const SUCCESS: i64 = 1;

/// The values of the three summaries that describe a run's settings: experiment, start, end.
///
/// # Errors
/// [`Error::Value`] never for flat settings; nested ones are flattened before.
pub(super) fn summaries(settings: &Values) -> Result<[SummaryValue; 3]> {
    let flat = flatten(settings, ".").values;
    let mut experiment = Message::new();
    let mut start = Message::new();
    for (name, value) in flat.iter() {
        // A bool is a number there, as the original has it.
        let (kind, value) = match value {
            Value::Null => continue,
            Value::Text(text) => (STRING, Message::new().text(3, text)),
            other => {
                let number = other.as_number().ok_or_else(|| Error::Value {
                    name: name.to_owned(),
                    expected: "a number, bool or text",
                    found: other.kind().to_owned(),
                })?;
                (FLOAT64, Message::new().double(2, number))
            }
        };
        let info = Message::new().text(1, name).int(4, kind);
        experiment = experiment.message(4, &info);
        let entry = Message::new().text(1, name).message(2, &value);
        start = start.message(1, &entry);
    }
    let end = Message::new().int(1, SUCCESS);
    Ok([
        summary("_hparams_/experiment", 2, &experiment),
        summary("_hparams_/session_start_info", 3, &start),
        summary("_hparams_/session_end_info", 4, &end),
    ])
}

fn summary(tag: &str, field: u32, content: &Message) -> SummaryValue {
    // The version, 0, is absent.
    let content = Message::new().message(field, content).into_bytes();
    Message::new()
        .text(1, tag)
        .message(9, &plugin("hparams", &content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bools_are_numbers_and_what_is_not_set_is_left_out() {
        let settings = Values::new()
            .with("b", true)
            .with("none", Value::Null)
            .with("s", "x");
        let [_, start, _] = summaries(&settings).unwrap();
        let bytes = start.into_bytes();
        let found = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        // { 1: "b", 2: { 2: 1.0 } }
        assert!(found(b"\x0a\x01b\x12\x09\x11\0\0\0\0\0\0\xf0\x3f"));
        // { 1: "s", 2: { 3: "x" } }
        assert!(found(b"\x0a\x01s\x12\x03\x1a\x01x"));
        assert!(!found(b"none"));
    }
}
