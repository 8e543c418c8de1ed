//! The payloads of records: events with summaries in them.

use crate::error::Result;
use crate::media::Image;
use crate::protobuf::Message;

/// One value of a summary.
pub(super) type SummaryValue = Message;

/// The numbers of `TensorProto`'s data types.
const STRING: i64 = 7;

/// The event that begins a file.
pub(super) fn version(wall_time: f64) -> Vec<u8> {
    Message::new()
        .double(1, wall_time)
        .text(3, "brain.Event:2")
        .into_bytes()
}

/// An event with values. Without a step the field is absent, which readers take for 0.
pub(super) fn summary(wall_time: f64, step: Option<i64>, values: &[SummaryValue]) -> Vec<u8> {
    let summary = values
        .iter()
        .fold(Message::new(), |summary, value| summary.message(1, value));
    event(wall_time, step).message(5, &summary).into_bytes()
}

/// An event that makes readers forget what comes at this step and later.
pub(super) fn purge(wall_time: f64, step: i64) -> Vec<u8> {
    /// `SessionLog.START`
    const START: i64 = 1;
    let session = Message::new().int(1, START);
    event(wall_time, Some(step))
        .message(7, &session)
        .into_bytes()
}

fn event(wall_time: f64, step: Option<i64>) -> Message {
    let event = Message::new().double(1, wall_time);
    match step {
        Some(step) => event.int(2, step),
        None => event,
    }
}

/// A number.
pub(super) fn scalar(tag: &str, value: f64) -> SummaryValue {
    // The format holds no more.
    Message::new().text(1, tag).float(2, value as f32)
}

/// A text.
pub(super) fn text(tag: &str, text: &str) -> SummaryValue {
    let dimension = Message::new().int(1, 1);
    let shape = Message::new().message(2, &dimension);
    let tensor = Message::new()
        .int(1, STRING)
        .message(2, &shape)
        .text(8, text);
    Message::new()
        .text(1, &format!("{tag}/text_summary"))
        .message(8, &tensor)
        .message(9, &plugin("text", &[]))
}

/// A picture.
pub(super) fn image(tag: &str, image: &Image) -> Result<SummaryValue> {
    let packed = Message::new()
        .int(1, image.height().into())
        .int(2, image.width().into())
        .int(3, image.colour().channels().into())
        .bytes(4, &image.to_png()?);
    Ok(Message::new().text(1, tag).message(4, &packed))
}

/// What a plugin of TensorBoard is to know of a value.
pub(super) fn plugin(name: &str, content: &[u8]) -> Message {
    let mut data = Message::new().text(1, name);
    if !content.is_empty() {
        data = data.bytes(2, content);
    }
    Message::new().message(1, &data)
}

/// How often values fall into buckets that grow by a tenth; those that are not finite are left out.
pub(super) fn histogram(tag: &str, values: &[f64]) -> SummaryValue {
    let finite: Vec<f64> = values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .collect();
    let limits = bucket_limits();
    let mut counts = vec![0.0; limits.len()];
    for value in &finite {
        let at = limits.partition_point(|limit| limit < value);
        if let Some(count) = counts.get_mut(at.min(limits.len().saturating_sub(1))) {
            *count += 1.0;
        }
    }
    // Empty buckets at both ends are not written, but for one before the first.
    let first = counts.iter().position(|count| *count > 0.0).unwrap_or(0);
    let end = counts
        .iter()
        .rposition(|count| *count > 0.0)
        .map_or(1, |last| last + 1);
    let range = first.saturating_sub(1)..end;
    let histogram = Message::new()
        .double(1, finite.iter().copied().fold(f64::INFINITY, f64::min))
        .double(2, finite.iter().copied().fold(f64::NEG_INFINITY, f64::max))
        .double(3, finite.len() as f64)
        .double(4, finite.iter().sum())
        .double(5, finite.iter().map(|value| value * value).sum())
        .doubles(6, limits.get(range.clone()).unwrap_or_default())
        .doubles(7, counts.get(range).unwrap_or_default());
    Message::new().text(1, tag).message(5, &histogram)
}

/// The upper ends of the buckets: from 1e-12 to 1e20 by a tenth each, mirrored, and the rest.
fn bucket_limits() -> Vec<f64> {
    let mut positive = Vec::new();
    let mut limit = 1e-12;
    while limit < 1e20 {
        positive.push(limit);
        limit *= 1.1;
    }
    let negative = positive.iter().rev().map(|limit| -limit);
    let limits = negative.chain([0.0]).chain(positive.iter().copied());
    limits.chain([f64::MAX]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_ascend_and_hold_every_number() {
        let limits = bucket_limits();
        assert!(limits.is_sorted());
        assert_eq!(limits.last(), Some(&f64::MAX));
        // Nothing but finite values is counted, and nothing at all is no panic.
        let _ = histogram("h", &[f64::NAN, -1e30, 0.0, 1e30]);
        let _ = histogram("h", &[]);
    }

    #[test]
    fn a_text_says_which_plugin_shows_it() {
        let bytes = text("note", "hello").into_bytes();
        let found = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(found(b"note/text_summary") && found(b"\x0a\x04text") && found(b"\x42\x05hello"));
    }
}
