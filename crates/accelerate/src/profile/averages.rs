use std::time::Duration;

use indexmap::IndexMap;

use super::events::{FunctionEvent, FunctionEvents};
use super::{EventPlace, Table};

/// What has to be the same for events to be summed, besides their name and where they ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GroupBy {
    /// Nothing more.
    #[default]
    Name,
    /// The shapes of their inputs, which have to be recorded.
    InputShape,
}

/// The sums over events of one kind.
///
/// # Source
/// `torch.autograd.profiler_util.FunctionEventAvg`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionEventAvg {
    /// The name they share.
    pub key: String,
    /// Where they ran.
    pub place: EventPlace,
    /// Whether a user named them.
    pub is_user_annotation: bool,
    /// Whether they end on other threads than they begin on.
    pub is_async: bool,
    /// How many they are.
    pub count: u64,
    /// Their time on the CPU, with all inside of them.
    pub cpu_time_total: Duration,
    /// Their time on the CPU, without what is inside of them.
    pub self_cpu_time_total: Duration,
    /// The time on devices of the kernels that they and all inside of them started.
    pub device_time_total: Duration,
    /// The time on devices of the kernels that they started themselves.
    pub self_device_time_total: Duration,
    /// Bytes of CPU memory taken, less those given back, with all inside of them.
    pub cpu_memory_usage: i64,
    /// The same without what is inside of them.
    pub self_cpu_memory_usage: i64,
    /// Bytes on devices, with all inside of them.
    pub device_memory_usage: i64,
    /// The same without what is inside of them.
    pub self_device_memory_usage: i64,
    /// Floating-point operations.
    pub flops: u64,
    /// The shapes of their inputs, where they were grouped by them.
    pub input_shapes: Option<String>,
}

impl FunctionEventAvg {
    fn new(key: &Key<'_>, is_async: bool) -> Self {
        Self {
            key: key.name.to_owned(),
            place: key.place,
            is_user_annotation: key.is_user_annotation,
            is_async,
            count: 0,
            cpu_time_total: Duration::ZERO,
            self_cpu_time_total: Duration::ZERO,
            device_time_total: Duration::ZERO,
            self_device_time_total: Duration::ZERO,
            cpu_memory_usage: 0,
            self_cpu_memory_usage: 0,
            device_memory_usage: 0,
            self_device_memory_usage: 0,
            flops: 0,
            input_shapes: key.input_shapes.map(str::to_owned),
        }
    }

    /// The mean time on the CPU.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        mean(self.cpu_time_total, self.count)
    }

    /// The mean time on devices.
    #[must_use]
    pub fn device_time(&self) -> Duration {
        mean(self.device_time_total, self.count)
    }

    fn add(&mut self, event: &FunctionEvent, own: &Own, device_time: Duration) {
        self.count += 1;
        self.flops += event.flops;
        if event.place != EventPlace::Cpu {
            if !event.is_async {
                self.device_time_total += event.duration;
                self.self_device_time_total += event.duration;
            }
            return;
        }
        self.cpu_time_total += event.duration;
        self.cpu_memory_usage += event.cpu_memory_usage;
        self.device_memory_usage += event.device_memory_usage;
        if !event.is_async {
            self.self_cpu_time_total += own.time;
            self.self_cpu_memory_usage += own.cpu_memory;
            self.self_device_memory_usage += own.device_memory;
            self.device_time_total += device_time;
            self.self_device_time_total += own.device_time;
        }
    }
}

fn mean(total: Duration, count: u64) -> Duration {
    let count = u128::from(count.max(1));
    let nanoseconds = (total.as_nanos() + count / 2) / count;
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// What makes events of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key<'e> {
    name: &'e str,
    place: EventPlace,
    is_user_annotation: bool,
    input_shapes: Option<&'e str>,
}

impl<'e> Key<'e> {
    fn of(event: &'e FunctionEvent, group_by: GroupBy) -> Self {
        Self {
            name: &event.name,
            // Devices of one type are one place.
            place: match event.place {
                EventPlace::Cuda(_) => EventPlace::Cuda(0),
                place => place,
            },
            is_user_annotation: event.is_user_annotation,
            input_shapes: match group_by {
                GroupBy::Name => None,
                GroupBy::InputShape => Some(&event.input_shapes),
            },
        }
    }
}

/// What an event has without what is inside of it.
struct Own {
    time: Duration,
    cpu_memory: i64,
    device_memory: i64,
    device_time: Duration,
}

impl Own {
    fn of(event: &FunctionEvent, events: &[FunctionEvent]) -> Self {
        let mut own = Self {
            time: event.duration,
            cpu_memory: event.cpu_memory_usage,
            device_memory: event.device_memory_usage,
            device_time: event.kernels.iter().map(|kernel| kernel.duration).sum(),
        };
        for child in event
            .cpu_children
            .iter()
            .filter_map(|child| events.get(*child))
        {
            own.time = own.time.saturating_sub(child.duration);
            own.cpu_memory -= child.cpu_memory_usage;
            own.device_memory -= child.device_memory_usage;
        }
        own
    }
}

/// The time on devices of each event with all inside of it. Events stand behind those they lie in.
fn device_times(events: &[FunctionEvent]) -> Vec<Duration> {
    let mut times: Vec<Duration> = events
        .iter()
        .map(|event| event.kernels.iter().map(|kernel| kernel.duration).sum())
        .collect();
    for (place, event) in events.iter().enumerate().rev() {
        let time = times.get(place).copied().unwrap_or_default();
        if let Some(outer) = event.cpu_parent.and_then(|parent| times.get_mut(parent)) {
            *outer += time;
        }
    }
    times
}

/// Sums over events, one for each kind, in the order in which the kinds came.
///
/// # Source
/// `torch.profiler.profile.key_averages`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventAverages {
    pub(super) averages: Vec<FunctionEventAvg>,
    pub(super) has_memory: bool,
    pub(super) has_flops: bool,
}

impl EventAverages {
    pub(super) fn of(all: &FunctionEvents, group_by: GroupBy) -> Self {
        let events = &all.events;
        let mut groups: IndexMap<Key<'_>, FunctionEventAvg> = IndexMap::new();
        for (event, device_time) in events.iter().zip(device_times(events)) {
            let key = Key::of(event, group_by);
            groups
                .entry(key)
                .or_insert_with(|| FunctionEventAvg::new(&key, event.is_async))
                .add(event, &Own::of(event, events), device_time);
        }
        Self {
            averages: groups.into_values().collect(),
            has_memory: all.has_memory,
            has_flops: all.has_flops,
        }
    }

    /// The sums.
    #[must_use]
    pub fn as_slice(&self) -> &[FunctionEventAvg] {
        &self.averages
    }

    /// The sums over events of this name that ran on the CPU.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&FunctionEventAvg> {
        self.averages
            .iter()
            .find(|average| average.key == key && average.place == EventPlace::Cpu)
    }

    /// The time that the CPU took, all in all.
    #[must_use]
    pub fn self_cpu_time_total(&self) -> Duration {
        self.averages
            .iter()
            .map(|average| average.self_cpu_time_total)
            .sum()
    }

    /// The time that devices took, all in all, without named ranges.
    #[must_use]
    pub fn self_device_time_total(&self) -> Duration {
        self.averages
            .iter()
            .filter(|average| average.place != EventPlace::Cpu && !average.is_user_annotation)
            .map(|average| average.self_device_time_total)
            .sum()
    }

    /// The table that PyTorch's profiler prints.
    #[must_use]
    pub fn table(&self) -> Table<'_> {
        Table::new(self)
    }
}
