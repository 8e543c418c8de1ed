//! The one explanation of a collective that did not complete: who is missing, and what
//! every rank did last.

use std::fmt;

use super::call::CallRecord;
use crate::state::{Attendance, naming};

/// What is known of another rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankTrace {
    /// Which rank.
    pub rank: usize,
    /// What became of its process.
    pub attendance: Attendance,
    /// Its last calls, oldest first; empty where nothing is known.
    pub calls: Vec<CallRecord>,
    /// Whether the last of them failed there too.
    pub failed: bool,
}

impl RankTrace {
    /// Whether it came to a call, or, without a number, may still come.
    fn came_to(&self, number: Option<u64>) -> bool {
        match number {
            Some(number) => self.calls.last().is_some_and(|c| c.number >= number),
            None => !self.is_gone(),
        }
    }

    /// Whether its process can do no more.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(
            self.attendance,
            Attendance::Ended | Attendance::Left | Attendance::Silent
        )
    }
}

/// A collective that did not complete, and where the other ranks are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IncompleteReport {
    /// What did not complete.
    pub operation: String,
    /// The call on this rank; none for one made on the process group itself, which nobody counts.
    pub call: Option<CallRecord>,
    /// This process.
    pub rank: usize,
    /// All processes.
    pub world: usize,
    /// The ranks that have not come to it, as far as can be seen.
    pub missing: Vec<usize>,
    /// What is known of other ranks; without those of whom nothing is, where the store
    /// does not answer.
    pub others: Vec<RankTrace>,
    /// The first call of this rank for which others were at another place of the
    /// program; known in debug mode.
    pub apart: Option<CallRecord>,
    /// Whether ranks note what they do.
    pub debug: bool,
}

impl IncompleteReport {
    /// Those of `others` that have not come to call `number`.
    pub(super) fn missing(others: &[RankTrace], number: Option<u64>) -> Vec<usize> {
        let absent = others.iter().filter(|other| !other.came_to(number));
        absent.map(|other| other.rank).collect()
    }

    /// The missing ranks, by what became of them.
    fn write_missing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (did_not_come, ended) = (Attendance::Here, Attendance::Ended);
        let groups = [
            (ended, "has ended", "have ended"),
            (Attendance::Left, "has left the job", "have left the job"),
            (Attendance::Silent, "does not answer", "do not answer"),
            (did_not_come, "did not come", "did not come"),
        ];
        let those = |wanted: Attendance| -> Vec<usize> {
            let of = |other: &&RankTrace| match other.attendance {
                Attendance::Here | Attendance::Unknown => wanted == did_not_come,
                attendance => attendance == wanted,
            };
            let missing = |other: &&RankTrace| self.missing.contains(&other.rank);
            let found = self.others.iter().filter(of).filter(missing);
            found.map(|other| other.rank).collect()
        };
        let named = groups.map(|(attendance, one, several)| (those(attendance), one, several));
        f.write_str(&naming(&named))
    }

    fn write_advice(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = |other: &&RankTrace| self.missing.contains(&other.rank);
        if self.missing.len() + 1 == self.world && self.call.is_some() {
            f.write_str(
                "; if this call stands where only some ranks come, such as under \
                 `is_main_process` or in `on_main_process`, move it out",
            )?;
        }
        let mut absent = self.others.iter().filter(missing);
        if absent.any(|other| matches!(other.attendance, Attendance::Ended | Attendance::Left)) {
            f.write_str(
                "; see why they ended, and let all ranks leave a loop at the same step \
                 (`check_trigger`)",
            )?;
        }
        if self.others.iter().any(|other| other.calls.is_empty()) && !self.debug {
            f.write_str("; set `ACCELERATE_DEBUG_MODE=true` to see where each rank was last")?;
        }
        Ok(())
    }

    fn write_traces(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for trace in &self.others {
            let became = match trace.attendance {
                Attendance::Ended => Some("has ended"),
                Attendance::Left => Some("has left the job"),
                Attendance::Silent => Some("does not answer"),
                Attendance::Here | Attendance::Unknown => None,
            };
            let last = trace.calls.last().map(|call| {
                let verb = match (trace.failed, trace.is_gone()) {
                    (true, _) => "failed in",
                    (false, false) if call.under_way => "is in",
                    _ => "was last in",
                };
                format!("{verb} {call}")
            });
            let parts: Vec<String> = became.map(str::to_owned).into_iter().chain(last).collect();
            if !parts.is_empty() {
                write!(f, "\n  - Process {}: {}", trace.rank, parts.join(", "))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for IncompleteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operation,
            rank,
            world,
            ..
        } = self;
        write!(
            f,
            "`{operation}` did not complete on rank {rank} of {world}"
        )?;
        if let Some(call) = &self.call {
            write!(f, " (call {}, at {})", call.number, call.site)?;
        }
        f.write_str(": ")?;
        match self.missing.as_slice() {
            [] if self.others.is_empty() => f.write_str(
                "the store of the ranks does not answer, so where they are is not known; \
                 most likely the process that serves it, rank 0 or the launcher, ended",
            )?,
            [] => f.write_str("every rank came to it; one of them failed or ended there")?,
            _ => self.write_missing(f)?,
        }
        self.write_advice(f)?;
        self.write_traces(f)?;
        if let Some(apart) = &self.apart {
            write!(
                f,
                "\nranks are at different places of the program since {apart}; \
                 if that is not meant, a call before it was not made by all"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64) -> CallRecord {
        CallRecord {
            number,
            operation: "gather".to_owned(),
            site: "src/main.rs:7:9".to_owned(),
            under_way: false,
        }
    }

    fn trace(rank: usize, last: Option<u64>, attendance: Attendance) -> RankTrace {
        RankTrace {
            rank,
            attendance,
            calls: last.map(call).into_iter().collect(),
            failed: false,
        }
    }

    fn report(others: Vec<RankTrace>, call: Option<CallRecord>) -> IncompleteReport {
        IncompleteReport {
            operation: "gather".to_owned(),
            rank: 0,
            world: 1 + others.len(),
            missing: IncompleteReport::missing(&others, call.as_ref().map(|call| call.number)),
            call,
            others,
            apart: None,
            debug: false,
        }
    }

    #[test]
    fn ranks_that_did_not_come_to_the_call_are_missing_with_what_became_of_them() {
        let mut others = vec![
            trace(1, Some(3), Attendance::Here),
            trace(2, Some(2), Attendance::Here),
            trace(3, None, Attendance::Ended),
            trace(4, None, Attendance::Silent),
            trace(5, Some(1), Attendance::Unknown),
        ];
        others[0].failed = true;
        let report = report(others, Some(call(3)));
        assert_eq!(report.missing, [2, 3, 4, 5]);
        let text = report.to_string();
        for part in [
            "`gather` did not complete on rank 0 of 6 (call 3, at src/main.rs:7:9): \
             rank 3 has ended, rank 4 does not answer, ranks 2, 5 did not come; see why",
            "set `ACCELERATE_DEBUG_MODE=true`",
            "\n  - Process 1: failed in call 3, `gather` at src/main.rs:7:9",
            "\n  - Process 2: was last in call 2",
            "\n  - Process 3: has ended\n",
        ] {
            assert!(text.contains(part), "`{part}` not in {text}");
        }
    }

    #[test]
    fn a_call_that_nobody_counts_misses_only_those_who_are_gone() {
        let others = vec![
            trace(1, Some(3), Attendance::Here),
            trace(2, Some(2), Attendance::Left),
        ];
        let report = report(others, None);
        assert_eq!(report.missing, [2]);
        let text = report.to_string();
        assert!(
            text.starts_with("`gather` did not complete on rank 0 of 3: rank 2 has left the job; "),
            "{text}"
        );
    }

    #[test]
    fn a_call_that_all_came_to_says_so() {
        let text = report(vec![trace(1, Some(3), Attendance::Here)], Some(call(3))).to_string();
        assert!(text.contains("every rank came to it"), "{text}");
        let alone = report(Vec::new(), Some(call(3))).to_string();
        assert!(
            alone.contains("the store of the ranks does not answer"),
            "{alone}"
        );
    }
}
