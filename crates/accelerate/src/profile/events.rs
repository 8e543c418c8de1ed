use std::collections::HashMap;
use std::time::Duration;

use accelerate_torch::profiler::{EventPlace, ProfileEvent};

use super::averages::{EventAverages, GroupBy};
use super::memory_records::{MemoryRecords, nanoseconds};
use super::nesting;

const MEMORY: &str = "[memory]";
const OUT_OF_MEMORY: &str = "[OutOfMemory]";

/// What PyTorch leaves out of its lists, besides memory records.
const LEFT_OUT: [&str; 6] = [
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];

/// A kernel that an operation started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Where it ran.
    pub place: EventPlace,
    /// How long it took.
    pub duration: Duration,
}

/// One operation, kernel or named range, with what lies inside of it.
///
/// # Source
/// `torch.autograd.profiler_util.FunctionEvent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionEvent {
    /// Its name; steps of a schedule are all called `ProfilerStep*`.
    pub name: String,
    /// The thread that ran it.
    pub thread: u64,
    /// When it began, since the beginning of the recording.
    pub start: Duration,
    /// How long it took, with all inside of it.
    pub duration: Duration,
    /// Where it ran.
    pub place: EventPlace,
    /// Whether it ended on another thread: nothing is inside of it then.
    pub is_async: bool,
    /// Whether a user named it.
    pub is_user_annotation: bool,
    /// The shapes of its inputs, such as `[[2, 3], []]`; `[]` where none were recorded.
    pub input_shapes: String,
    /// Floating-point operations, where they were counted.
    pub flops: u64,
    /// Bytes of CPU memory taken, less those given back, with all inside of it.
    pub cpu_memory_usage: i64,
    /// The same on devices.
    pub device_memory_usage: i64,
    /// The kernels it started itself.
    pub kernels: Vec<Kernel>,
    /// The event it lies in, by its place in the list.
    pub cpu_parent: Option<usize>,
    /// The events directly inside of it, by their places in the list.
    pub cpu_children: Vec<usize>,
}

impl FunctionEvent {
    fn new(event: &ProfileEvent, begin: Duration, [cpu, device]: [i64; 2]) -> Self {
        let name = match event.name.starts_with("ProfilerStep#") {
            true => "ProfilerStep*".to_owned(),
            false => event.name.clone(),
        };
        Self {
            name,
            thread: event.thread,
            start: event.start.saturating_sub(begin),
            duration: event.duration,
            place: event.place,
            is_async: event.is_async,
            is_user_annotation: event.user_range,
            input_shapes: format!("[{}]", event.shapes),
            flops: event.flops,
            cpu_memory_usage: cpu,
            device_memory_usage: device,
            kernels: Vec::new(),
            cpu_parent: None,
            cpu_children: Vec::new(),
        }
    }

    /// What happened to memory while no operation ran.
    fn lone_record(name: &str, start: Duration, [cpu, device]: [i64; 2]) -> Self {
        Self {
            name: name.to_owned(),
            thread: 0,
            start,
            duration: Duration::ZERO,
            place: EventPlace::Cpu,
            is_async: false,
            is_user_annotation: false,
            input_shapes: "[]".to_owned(),
            flops: 0,
            cpu_memory_usage: cpu,
            device_memory_usage: device,
            kernels: Vec::new(),
            cpu_parent: None,
            cpu_children: Vec::new(),
        }
    }

    /// Whether other events can lie inside of it.
    pub(super) fn nests(&self) -> bool {
        self.place == EventPlace::Cpu && !self.is_async
    }

    pub(super) fn end(&self) -> Duration {
        self.start.saturating_add(self.duration)
    }
}

/// All events of a recording, in the order of time, nested.
///
/// # Source
/// `torch.profiler.profile.events`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FunctionEvents {
    pub(super) events: Vec<FunctionEvent>,
    /// Whether memory was recorded, which tables then show.
    pub(super) has_memory: bool,
    /// Whether operations were counted.
    pub(super) has_flops: bool,
}

impl FunctionEvents {
    /// Nests what libtorch recorded.
    pub(super) fn new(recorded: &[ProfileEvent], has_memory: bool, has_flops: bool) -> Self {
        let begin = recorded
            .iter()
            .map(|event| event.start)
            .min()
            .unwrap_or_default();
        let mut memory = MemoryRecords::of(recorded, MEMORY);
        let mut events = Vec::new();
        let mut linked = Links::default();
        for event in recorded.iter().filter(|event| is_shown(event)) {
            let usage = match event.place {
                EventPlace::Cpu => memory.take(nanoseconds(event), end_of(event)),
                EventPlace::Cuda(_) | EventPlace::Other => [0; 2],
            };
            linked.note(events.len(), event);
            events.push(FunctionEvent::new(event, begin, usage));
        }
        linked.attach(&mut events);
        // What ran out of memory is told in any case, so no event takes these records.
        let failed = MemoryRecords::of(recorded, OUT_OF_MEMORY);
        for (name, records) in [(MEMORY, &memory), (OUT_OF_MEMORY, &failed)] {
            events.extend(records.outside().into_iter().map(|(start, usage)| {
                let start = Duration::from_nanos(start).saturating_sub(begin);
                FunctionEvent::lone_record(name, start, usage)
            }));
        }
        events.sort_by_key(|event| (event.start, std::cmp::Reverse(event.end())));
        Self {
            events: nesting::nest(events),
            has_memory,
            has_flops,
        }
    }

    /// The events.
    #[must_use]
    pub fn as_slice(&self) -> &[FunctionEvent] {
        &self.events
    }

    /// Sums over events of the same name, and more as `group_by` says.
    ///
    /// # Source
    /// `EventList.key_averages`.
    #[must_use]
    pub fn key_averages(&self, group_by: GroupBy) -> EventAverages {
        EventAverages::of(self, group_by)
    }
}

fn is_shown(event: &ProfileEvent) -> bool {
    let name = event.name.as_str();
    !event.is_hidden && name != MEMORY && name != OUT_OF_MEMORY && !LEFT_OUT.contains(&name)
}

fn end_of(event: &ProfileEvent) -> u64 {
    let duration = u64::try_from(event.duration.as_nanos()).unwrap_or(u64::MAX);
    nanoseconds(event).saturating_add(duration)
}

/// Which kernels and calls of a device's driver belong to which operation.
#[derive(Debug, Default)]
struct Links {
    /// Operations by their correlation.
    operations: HashMap<u64, usize>,
    /// What is linked, with the correlation it is linked to.
    linked: Vec<(u64, usize)>,
}

impl Links {
    fn note(&mut self, place: usize, event: &ProfileEvent) {
        if event.linked_correlation > 0 {
            self.linked.push((event.linked_correlation, place));
        } else if event.place == EventPlace::Cpu && !event.is_async {
            self.operations.insert(event.correlation, place);
        }
    }

    fn attach(&self, events: &mut [FunctionEvent]) {
        for (correlation, place) in &self.linked {
            let Some(operation) = self.operations.get(correlation) else {
                continue;
            };
            let (Some(linked), Some(thread)) = (
                events.get(*place).cloned(),
                events.get(*operation).map(|event| event.thread),
            ) else {
                continue;
            };
            if linked.place == EventPlace::Cpu {
                // So that it is nested where it was called.
                if let Some(event) = events.get_mut(*place) {
                    event.thread = thread;
                }
            } else if let Some(event) = events.get_mut(*operation) {
                event.kernels.push(Kernel {
                    name: linked.name,
                    place: linked.place,
                    duration: linked.duration,
                });
            }
        }
    }
}
