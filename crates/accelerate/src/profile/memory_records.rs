use accelerate_torch::profiler::{EventPlace, ProfileEvent};

/// Allocations and releases in the order of time, summed so that an interval costs two searches.
#[derive(Debug, Default)]
pub(super) struct MemoryRecords {
    starts: Vec<u64>,
    /// Bytes of all records before the one at this place: on the CPU, and on devices.
    sums: Vec<[i64; 2]>,
    /// How many intervals begin, less those that end, at each record.
    covered: Vec<i64>,
}

impl MemoryRecords {
    /// The records of this name among `events`.
    pub(super) fn of(events: &[ProfileEvent], name: &str) -> Self {
        let mut records: Vec<(u64, [i64; 2])> = events
            .iter()
            .filter(|event| event.name == name)
            .map(|event| (nanoseconds(event), bytes(event)))
            .collect();
        records.sort_by_key(|(start, _)| *start);
        let mut sum = [0; 2];
        let mut sums = vec![sum];
        for (_, [cpu, device]) in &records {
            sum = [sum[0] + cpu, sum[1] + device];
            sums.push(sum);
        }
        Self {
            covered: vec![0; records.len() + 1],
            starts: records.into_iter().map(|(start, _)| start).collect(),
            sums,
        }
    }

    /// The bytes of all records from `start` to `end`, which are then known to lie in an event.
    pub(super) fn take(&mut self, start: u64, end: u64) -> [i64; 2] {
        let first = self.starts.partition_point(|at| *at < start);
        let last = self.starts.partition_point(|at| *at <= end).max(first);
        if let Some(begin) = self.covered.get_mut(first) {
            *begin += 1;
        }
        if let Some(end) = self.covered.get_mut(last) {
            *end -= 1;
        }
        self.between(first, last)
    }

    /// What lies in no event: when, and how many bytes on the CPU and on devices.
    pub(super) fn outside(&self) -> Vec<(u64, [i64; 2])> {
        let mut depth = 0;
        let mut outside = Vec::new();
        for (place, start) in self.starts.iter().enumerate() {
            depth += self.covered.get(place).copied().unwrap_or_default();
            if depth == 0 {
                outside.push((*start, self.between(place, place + 1)));
            }
        }
        outside
    }

    fn between(&self, first: usize, last: usize) -> [i64; 2] {
        match (self.sums.get(first), self.sums.get(last)) {
            (Some(before), Some(after)) => [after[0] - before[0], after[1] - before[1]],
            _ => [0; 2],
        }
    }
}

pub(super) fn nanoseconds(event: &ProfileEvent) -> u64 {
    u64::try_from(event.start.as_nanos()).unwrap_or(u64::MAX)
}

fn bytes(event: &ProfileEvent) -> [i64; 2] {
    match event.place {
        EventPlace::Cpu => [event.bytes, 0],
        EventPlace::Cuda(_) | EventPlace::Other => [0, event.bytes],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(starts: &[(u64, i64)]) -> MemoryRecords {
        let mut records = MemoryRecords {
            sums: vec![[0; 2]],
            covered: vec![0; starts.len() + 1],
            ..MemoryRecords::default()
        };
        let mut sum = 0;
        for (start, bytes) in starts {
            sum += bytes;
            records.starts.push(*start);
            records.sums.push([sum, 0]);
        }
        records
    }

    #[test]
    fn an_interval_has_its_ends_and_what_is_between() {
        let mut all = records(&[(10, 1), (20, 2), (20, 4), (30, 8), (40, 16)]);
        assert_eq!(all.take(20, 30), [14, 0]);
        assert_eq!(all.take(25, 30), [8, 0]);
        assert_eq!(all.take(31, 39), [0, 0]);
        assert_eq!(all.outside(), [(10, [1, 0]), (40, [16, 0])]);
    }
}
