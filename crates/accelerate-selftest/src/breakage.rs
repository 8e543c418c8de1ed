//! Breaking a stage on purpose, to see that it is noticed.

use std::str::FromStr;

use rustix::process::{self, Signal};

use crate::failure::Failure;
use crate::probe::Probe;

/// Where one rank breaks, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breakage {
    stage: String,
    /// The step before which it happens; the first one if there is none.
    step: Option<String>,
    rank: usize,
    manner: Manner,
}

/// What a rank does that breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It stops, like a machine that hangs.
    Stop,
    /// It notices a wrong value.
    Fail,
    /// An operation of it returns an error, and it leaves the stage.
    Err,
    /// It ends.
    Exit,
}

/// The code with which a rank exits that was told to.
const EXIT_CODE: i32 = 9;

impl Breakage {
    /// Breaks, if this is the place.
    ///
    /// # Errors
    /// If an error was asked for.
    pub(crate) fn strike(
        &self,
        stage: &str,
        step: &str,
        is_first: bool,
        probe: &mut Probe<'_>,
    ) -> Result<(), Failure> {
        let is_step = self.step.as_deref().map_or(is_first, |name| name == step);
        if self.stage != stage || !is_step || self.rank != probe.rank() {
            return Ok(());
        }
        match self.manner {
            Manner::Stop => {
                // A process may always signal itself.
                let _ = process::kill_process(process::getpid(), Signal::STOP);
            }
            Manner::Fail => probe.equal("--break_stage", "no breakage", "a wrong value on purpose"),
            Manner::Err => return Err(Failure::OnPurpose),
            Manner::Exit => signal_hook::low_level::exit(EXIT_CODE),
        }
        Ok(())
    }
}

impl FromStr for Breakage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected `STAGE[/STEP]:RANK:stop|fail|error|exit`, found `{text}`");
        let [place, rank, manner] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(wrong());
        };
        let (stage, step) = match place.split_once('/') {
            Some((stage, step)) => (stage, Some(step.to_owned())),
            None => (place, None),
        };
        Ok(Self {
            stage: stage.to_owned(),
            step,
            rank: rank.parse().map_err(|_| wrong())?,
            manner: match manner {
                "stop" => Manner::Stop,
                "fail" => Manner::Fail,
                "error" => Manner::Err,
                "exit" => Manner::Exit,
                _ => return Err(wrong()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_stage_or_a_step_of_it() {
        let at_barrier = Breakage {
            stage: "collectives".to_owned(),
            step: Some("barrier".to_owned()),
            rank: 1,
            manner: Manner::Stop,
        };
        assert_eq!("collectives/barrier:1:stop".parse(), Ok(at_barrier));
        let whole: Breakage = "loading:0:exit".parse().unwrap();
        assert_eq!((whole.step, whole.manner), (None, Manner::Exit));
        for wrong in ["", "loading:0", "loading:x:stop", "loading:0:burn"] {
            assert!(wrong.parse::<Breakage>().is_err(), "{wrong}");
        }
    }
}
