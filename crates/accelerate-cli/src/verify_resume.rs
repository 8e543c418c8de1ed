//! `accelerate verify-resume`: whether a program that was stopped and started again goes on as the
//! one that never stopped.
//!
//! The program is launched three times: without interruption; again, to leave behind a step in the
//! middle of its second epoch; and once more, in new processes, to go on from what it saved. The
//! library writes down what each rank does at each step ([`accelerate_formats::step_records`]), and
//! [`compare`] tells what differs first.

mod compare;
mod error;
mod global;
mod runs;
mod story;

use std::{ffi::OsString, num::NonZeroUsize, path::PathBuf, process::ExitCode};

use clap::Args;

pub(crate) use error::VerifyResumeError;

use self::{
    compare::{Difference, Tolerance},
    runs::{Run, Stage, Workplace},
};
use crate::report;

/// What was typed after `accelerate verify-resume`.
#[derive(Debug, Args)]
#[command(
    override_usage = "accelerate verify-resume [OPTIONS] [LAUNCH OPTIONS] -- PROGRAM [ARGUMENTS]",
    after_help = "Options of this command come before those of `accelerate launch`. In the program's \
                  arguments `{project_dir}` stands for the folder in which a run keeps its \
                  checkpoints: at first it is empty, and the resumed run finds what the interrupted \
                  one left. Exit codes: 0 all is the same, 1 something differs or a run failed, 2 a \
                  wrong command line."
)]
pub(crate) struct VerifyResumeArgs {
    /// Step of the optimizer behind which the program is stopped [default: the middle of the second
    /// epoch]
    #[arg(long = "stop_at_step", value_name = "STEP")]
    stop_at_step: Option<NonZeroUsize>,

    /// Processes of the resumed run, if other than those of the first: then the order of the data
    /// and the losses are compared
    #[arg(long = "resume_num_processes", value_name = "N")]
    resume_num_processes: Option<NonZeroUsize>,

    /// How far losses may be apart on another number of processes, relative to their size; `none`
    /// does not compare them, for dropout and batch normalisation differ there
    #[arg(long = "loss_tolerance", value_name = "SHARE", default_value = "1e-4")]
    loss_tolerance: Tolerance,

    /// Keep records, checkpoints and output of the runs in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,

    /// Options for `accelerate launch`, then `--`, then the program and its arguments
    #[arg(allow_hyphen_values = true, num_args = 0.., value_name = "LAUNCH OPTIONS")]
    launch: Vec<OsString>,

    /// The program and its arguments, where there are no launch options
    #[arg(last = true, hide = true)]
    command: Vec<OsString>,
}

impl VerifyResumeArgs {
    /// The options of the launch, and the program with its arguments.
    fn words(&self) -> Result<(&[OsString], &[OsString]), VerifyResumeError> {
        let (options, command) = match self.launch.iter().position(|word| word == "--") {
            Some(at) => (
                self.launch.get(..at).unwrap_or_default(),
                self.launch.get(at + 1..).unwrap_or_default(),
            ),
            None => (&*self.launch, &*self.command),
        };
        match command {
            [] => Err(VerifyResumeError::NoProgram),
            _ => Ok((options, command)),
        }
    }
}

/// Runs the program three times and tells whether it goes on as it was.
pub(crate) fn run(args: &VerifyResumeArgs) -> Result<ExitCode, VerifyResumeError> {
    let (options, command) = args.words()?;
    let workplace = Workplace::new(options, command, args.keep.as_deref())?;
    let whole = workplace.run(Stage::Uninterrupted, None, None)?;
    story::tell(&format!(
        "uninterrupted: {} steps on {}\n",
        whole.steps(),
        story::processes(whole.ranks.len())
    ));
    let stop = stop_step(args.stop_at_step, &whole)?;
    let interrupted = workplace.run(Stage::Interrupted, Some(stop), None)?;
    story::tell(&format!(
        "interrupted: left behind step {} of {}, in epoch {}\n",
        interrupted.steps(),
        whole.steps(),
        whole.epoch_of(interrupted.steps()) + 1
    ));
    let same = compare::same_processes(&whole, &interrupted, 0);
    if let Some(first) = same.first() {
        return Err(not_repeatable(first));
    }
    something_left(stop, &whole, &interrupted)?;
    let processes = args.resume_num_processes;
    let resumed = workplace.run(Stage::Resumed, None, processes)?;
    story::tell(&format!(
        "resumed: {} steps on {}\n",
        resumed.steps(),
        story::processes(resumed.ranks.len())
    ));
    let done = interrupted.steps();
    if whole.ranks.len() == resumed.ranks.len() {
        let found = compare::same_processes(&whole, &resumed, done);
        return Ok(verdict(&whole, &resumed, done, &found, story::BIT_FOR_BIT));
    }
    let losses = args.loss_tolerance;
    let compared = story::of_other_processes(losses);
    let found = compare::other_processes(&whole, &resumed, done, losses);
    Ok(verdict(&whole, &resumed, done, &found, &compared))
}

/// Behind which step the program is to stop.
fn stop_step(asked: Option<NonZeroUsize>, whole: &Run) -> Result<usize, VerifyResumeError> {
    let steps = whole.steps();
    let stop = asked.map_or_else(|| whole.middle_of_second_epoch(), NonZeroUsize::get);
    if stop == 0 || stop >= steps {
        return Err(VerifyResumeError::NothingLeft { stop, steps });
    }
    Ok(stop)
}

/// Checks that the interrupted run left steps to be made.
fn something_left(stop: usize, whole: &Run, interrupted: &Run) -> Result<(), VerifyResumeError> {
    let (left, steps) = (interrupted.steps(), whole.steps());
    if left >= steps {
        return Err(VerifyResumeError::LeftTooLate { stop, steps });
    }
    Ok(())
}

fn not_repeatable(first: &Difference) -> VerifyResumeError {
    VerifyResumeError::NotRepeatable {
        step: first.step,
        what: first.to_string(),
    }
}

/// Tells how the comparison ended, in words and as an exit code.
fn verdict(
    whole: &Run,
    resumed: &Run,
    done: usize,
    differences: &[Difference],
    compared: &str,
) -> ExitCode {
    let (expected, found) = (whole.steps() - done, resumed.steps());
    if differences.is_empty() && expected == found {
        story::tell(&format!(
            "the same in {found} of {found} steps: {compared}\n"
        ));
        return ExitCode::SUCCESS;
    }
    story::tell(&story::differences(differences, found.min(expected)));
    if expected != found {
        let hint = match found == whole.steps() {
            true => "; it began afresh: does the program load its newest checkpoint?",
            false => "",
        };
        story::tell(&format!(
            "expected {expected} steps behind step {done}, found {found}{hint}\n"
        ));
    }
    report::say("the resumed run is not the uninterrupted one\n");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use accelerate_formats::step_records::StepRecord;

    use super::*;
    use crate::args::{Command, parse};

    fn words(typed: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
        let all = ["accelerate", "verify-resume"].iter().chain(typed);
        let Ok(Command::VerifyResume(args)) = parse(all.map(OsString::from).collect()) else {
            return None;
        };
        let (options, command) = args.words().ok()?;
        let text = |words: &[OsString]| {
            let words = words.iter();
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect()
        };
        Some((text(options), text(command)))
    }

    #[test]
    fn launch_options_end_where_the_program_begins() {
        let (options, command) = words(&[
            "--stop_at_step",
            "3",
            "--cpu",
            "--num_processes",
            "2",
            "--",
            "prog",
            "--",
            "-x",
        ])
        .unwrap();
        assert_eq!(options, ["--cpu", "--num_processes", "2"]);
        assert_eq!(command, ["prog", "--", "-x"]);
        let (options, command) = words(&["--stop-at-step=3", "--", "prog", "--cpu"]).unwrap();
        assert_eq!(
            (options.len(), command),
            (0, vec!["prog".into(), "--cpu".into()])
        );
        assert!(words(&["--cpu", "prog"]).is_none(), "`--` is needed");
        assert!(words(&["--stop_at_step", "0", "--", "prog"]).is_none());
        assert!(words(&["--loss_tolerance", "-1", "--", "prog"]).is_none());
    }

    #[test]
    fn a_run_that_leaves_behind_its_last_step_has_nothing_to_resume() {
        let run = |steps: usize| Run {
            ranks: vec![vec![StepRecord::default(); steps]],
        };
        assert!(something_left(3, &run(8), &run(4)).is_ok());
        for steps in [8, 9] {
            let error = something_left(3, &run(8), &run(steps)).unwrap_err();
            assert!(matches!(
                error,
                VerifyResumeError::LeftTooLate { stop: 3, steps: 8 }
            ));
        }
    }
}
