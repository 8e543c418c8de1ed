//! Tables against those that PyTorch makes of the same recording.

use std::time::Duration;

use accelerate_torch::profiler::ProfileEvent;
use serde::Deserialize;

use super::events::FunctionEvents;
use super::{EventPlace, GroupBy, TimeUnit};

#[derive(Deserialize)]
struct Recorded {
    events: Vec<RecordedEvent>,
    tables: Vec<RecordedTable>,
}

#[derive(Deserialize)]
struct RecordedEvent {
    name: String,
    start_ns: u64,
    duration_ns: u64,
    thread: u64,
    is_async: bool,
    is_cpu: bool,
    correlation: u64,
    linked_correlation: u64,
    shapes: Vec<Vec<i64>>,
    flops: u64,
    bytes: i64,
    user_range: bool,
    is_hidden: bool,
}

#[derive(Deserialize)]
struct RecordedTable {
    sort_by: Option<String>,
    row_limit: i64,
    #[serde(default)]
    group_by_input_shape: bool,
    header: Option<String>,
    time_unit: Option<String>,
    text: String,
}

impl RecordedEvent {
    fn event(&self) -> ProfileEvent {
        let shapes: Vec<_> = self.shapes.iter().map(|one| format!("{one:?}")).collect();
        ProfileEvent {
            name: self.name.clone(),
            start: Duration::from_nanos(self.start_ns),
            duration: Duration::from_nanos(self.duration_ns),
            thread: self.thread,
            place: if self.is_cpu {
                EventPlace::Cpu
            } else {
                EventPlace::Cuda(0)
            },
            correlation: self.correlation,
            linked_correlation: self.linked_correlation,
            flops: self.flops,
            bytes: self.bytes,
            shapes: shapes.join(", "),
            user_range: self.user_range,
            is_async: self.is_async,
            is_hidden: self.is_hidden,
        }
    }
}

fn recorded() -> Recorded {
    let text = include_str!("../../../../tests/golden/profile.json");
    serde_json::from_str(text).unwrap()
}

#[test]
fn tables_of_a_recording_are_those_of_pytorch() {
    let recorded = recorded();
    let events: Vec<_> = recorded.events.iter().map(RecordedEvent::event).collect();
    let events = FunctionEvents::new(&events, true, true);
    for wanted in &recorded.tables {
        let group_by = match wanted.group_by_input_shape {
            true => GroupBy::InputShape,
            false => GroupBy::Name,
        };
        let averages = events.key_averages(group_by);
        let mut table = averages
            .table()
            .row_limit(usize::try_from(wanted.row_limit).ok());
        if let Some(sort_by) = &wanted.sort_by {
            table = table.sort_by(sort_by).unwrap();
        }
        if let Some(header) = &wanted.header {
            table = table.header(header);
        }
        if wanted.time_unit.is_some() {
            table = table.time_unit(TimeUnit::Microseconds);
        }
        let found = table.to_string();
        assert_eq!(found.lines().count(), wanted.text.lines().count());
        for (found, wanted) in found.lines().zip(wanted.text.lines()) {
            assert_same_row(found, wanted);
        }
    }
}

/// Equal to the last blank, but for the last digit of a mean: PyTorch takes differences of rounded
/// times.
#[track_caller]
fn assert_same_row(found: &str, wanted: &str) {
    assert_eq!(found.len(), wanted.len(), "{found}\n{wanted}");
    for (cell, other) in found.split_whitespace().zip(wanted.split_whitespace()) {
        let time = |cell: &str| {
            cell.strip_suffix("us")
                .and_then(|us| us.parse::<f64>().ok())
        };
        let close = time(cell)
            .zip(time(other))
            .is_some_and(|(a, b)| (a - b).abs() < 0.0011);
        assert!(cell == other || close, "{found}\n{wanted}");
    }
}

#[test]
fn a_sort_key_that_does_not_exist_lists_those_that_do() {
    let averages = FunctionEvents::default().key_averages(GroupBy::Name);
    let error = averages
        .table()
        .sort_by("self_time")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("self_cpu_time_total") && error.contains("`self_time`"),
        "{error}"
    );
    assert!(averages.table().sort_by("self_cuda_time_total").is_ok());
}
