//! Naming ranks by what became of their processes.

use std::fmt;

use accelerate_torch::{ProcessGroup, Store};

use super::PartialState;
use super::presence::{self, Answer, Attendance};
use crate::collectives::{Call, Site, explain};
use crate::{Error, Result};

/// The ranks that did not come to the end of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RollCall {
    /// Their processes have ended.
    pub ended: Vec<usize>,
    /// Their processes do not answer: stopped, or their machines cannot be reached.
    pub silent: Vec<usize>,
    /// Their processes live and did not finish.
    pub at_work: Vec<usize>,
}

impl RollCall {
    pub(super) fn of(answers: &[Answer]) -> Self {
        let those = |wanted: Attendance| {
            let found = answers.iter().filter(|found| found.attendance == wanted);
            found.map(|found| found.rank).collect()
        };
        Self {
            ended: those(Attendance::Ended),
            silent: those(Attendance::Silent),
            at_work: those(Attendance::Here),
        }
    }

    /// Whether there is nobody to name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.silent.is_empty() && self.at_work.is_empty()
    }
}

impl fmt::Display for RollCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("every rank is still there");
        }
        f.write_str(&naming(&[
            (self.ended.clone(), "has ended", "have ended"),
            (self.silent.clone(), "does not answer", "do not answer"),
            (
                self.at_work.clone(),
                "is still at work",
                "are still at work",
            ),
        ]))
    }
}

/// Groups of ranks, each with what one of them, or several, did: `rank 1 has ended`.
pub(crate) fn naming(groups: &[(Vec<usize>, &str, &str)]) -> String {
    let named = groups.iter().filter_map(|(ranks, one, several)| {
        let names: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        match ranks.len() {
            0 => None,
            1 => Some(format!("rank {} {one}", names[0])),
            _ => Some(format!("ranks {} {several}", names.join(", "))),
        }
    });
    named.collect::<Vec<_>>().join(", ")
}

impl PartialState {
    /// Names the ranks that an operation on the process group waited for in vain.
    ///
    /// An error that says no more than that a connection broke or time was over becomes
    /// [`Error::CollectiveIncomplete`], if some rank has ended, has left or does not answer.
    /// Every other error is given back as it is. The operations of this library explain
    /// themselves.
    #[must_use]
    pub fn explain(&self, error: Error) -> Error {
        match error {
            Error::Torch(error) => explain(self, None, error),
            other => other,
        }
    }

    /// Counts a collective that is compared with nobody's, and explains its failure.
    pub(crate) fn counted<T>(
        &self,
        operation: &'static str,
        site: Site,
        run: impl FnOnce(Call) -> Result<T>,
    ) -> Result<T> {
        let call = self.calls().enter(operation, site);
        let done = run(call).map_err(|error| match error {
            Error::Torch(error) => explain(self, Some(call), error),
            other => other,
        });
        self.calls().leave(call);
        done
    }

    /// What is known of the process of `rank`, asked over a connection of the caller's. This
    /// process itself is here.
    pub(crate) fn attendance(
        &self,
        store: &Store,
        rank: usize,
    ) -> accelerate_torch::Result<Attendance> {
        let (own, world) = (self.process_index(), self.num_processes());
        let answers = presence::ask_all(store, self.store_host(), own, world, presence::CALLS)?;
        let its = answers.iter().find(|answer| answer.rank == rank);
        Ok(its.map_or(Attendance::Here, |answer| answer.attendance))
    }

    /// Asks every other rank once.
    pub(crate) fn ask_others(&self, group: &ProcessGroup) -> accelerate_torch::Result<Vec<Answer>> {
        let (own, world) = (self.process_index(), self.num_processes());
        presence::ask_all(
            group.store(),
            self.store_host(),
            own,
            world,
            presence::CALLS,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_named_by_what_became_of_them() {
        let answers = [
            (0, Attendance::Here),
            (1, Attendance::Ended),
            (2, Attendance::Left),
            (3, Attendance::Ended),
            (4, Attendance::Silent),
            (5, Attendance::Unknown),
        ];
        let answers = answers.map(|(rank, attendance)| Answer::without_news(rank, attendance));
        assert_eq!(
            RollCall::of(&answers).to_string(),
            "ranks 1, 3 have ended, rank 4 does not answer, rank 0 is still at work"
        );
        assert_eq!(RollCall::default().to_string(), "every rank is still there");
    }
}
