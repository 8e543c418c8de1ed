use std::num::NonZeroU64;

/// When a profiler of a long job records: cycles of steps in which it waits, warms up and records.
///
/// # Source
/// `torch.profiler.schedule`; the keys of `ProfileKwargs.schedule_option`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Steps at the start that belong to no cycle.
    pub skip_first: u64,
    /// Steps at the start of each cycle in which nothing happens.
    pub wait: u64,
    /// Steps behind these in which the profiler warms up and keeps nothing.
    pub warmup: u64,
    /// Steps behind these that are recorded.
    pub active: NonZeroU64,
    /// How many cycles there are; `None` goes on until the profiler is finished.
    pub repeat: Option<NonZeroU64>,
}

impl Schedule {
    /// Records `active` steps again and again, without a pause.
    #[must_use]
    pub fn new(active: NonZeroU64) -> Self {
        Self {
            skip_first: 0,
            wait: 0,
            warmup: 0,
            active,
            repeat: None,
        }
    }

    /// What is done in the step of this number, from 0.
    #[must_use]
    pub fn action(&self, step: u64) -> ProfilerAction {
        let Some(step) = step.checked_sub(self.skip_first) else {
            return ProfilerAction::None;
        };
        let quiet = self.wait.saturating_add(self.warmup);
        let cycle = quiet.saturating_add(self.active.get());
        if self
            .repeat
            .is_some_and(|repeat| step / cycle >= repeat.get())
        {
            return ProfilerAction::None;
        }
        match step % cycle {
            place if place < self.wait => ProfilerAction::None,
            place if place < quiet => ProfilerAction::WarmUp,
            place if place + 1 == cycle => ProfilerAction::RecordAndSave,
            _ => ProfilerAction::Record,
        }
    }
}

/// What a profiler does in a step.
///
/// # Source
/// `torch.profiler.ProfilerAction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProfilerAction {
    /// Nothing.
    None,
    /// It warms up; nothing is kept.
    WarmUp,
    /// It records.
    Record,
    /// It records, and what it has is ready when the step is over.
    RecordAndSave,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: u64) -> NonZeroU64 {
        NonZeroU64::new(value).unwrap()
    }

    fn letters(schedule: Schedule, steps: u64) -> String {
        (0..steps)
            .map(|step| match schedule.action(step) {
                ProfilerAction::None => '.',
                ProfilerAction::WarmUp => 'w',
                ProfilerAction::Record => 'r',
                ProfilerAction::RecordAndSave => 's',
            })
            .collect()
    }

    #[test]
    fn cycles_wait_warm_up_and_record() {
        let documented = Schedule {
            skip_first: 10,
            wait: 5,
            warmup: 1,
            active: number(3),
            repeat: Some(number(2)),
        };
        assert_eq!(letters(documented, 32), "...............wrrs.....wrrs....");
        assert_eq!(
            letters(documented, 8),
            "........",
            "as documented with 8 steps"
        );
    }

    #[test]
    fn without_pauses_every_cycle_ends_in_a_trace() {
        assert_eq!(letters(Schedule::new(number(1)), 3), "sss");
        assert_eq!(letters(Schedule::new(number(2)), 5), "rsrsr");
    }
}
