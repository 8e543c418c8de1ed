//! How a job ended, and how that is told.

use std::process::ExitCode;

use accelerate_plan::launch::Program;
use signal_hook::consts::SIGKILL;

use super::{signals, tree::Exit};
use crate::report;

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    /// Number of ranks on this machine.
    pub(crate) ranks: usize,
    /// Processes that could not be ended.
    pub(crate) survivors: usize,
}

/// Why it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every rank returned 0.
    Success,
    /// This rank was the first to fail.
    Failed {
        rank: usize,
        exit: Exit,
        /// Last lines of its stderr, if they passed through the launcher.
        tail: Vec<String>,
    },
    /// The launcher was asked to end.
    Interrupted { signal: i32 },
}

/// The exit code of the launcher.
pub(crate) fn exit_code(ended: &Ended) -> ExitCode {
    ExitCode::from(match ended.outcome {
        Outcome::Success => 0,
        Outcome::Failed { exit, .. } => exit.code(),
        Outcome::Interrupted { signal } => Exit::Signal(signal).code(),
    })
}

/// Tells on stderr why a job did not end well.
pub(crate) fn tell(ended: &Ended, program: &Program) {
    let text = describe(ended, program);
    if !text.is_empty() {
        report::say(&text);
    }
}

fn describe(ended: &Ended, program: &Program) -> String {
    let name = &program.name;
    let mut text = match &ended.outcome {
        Outcome::Success => String::new(),
        Outcome::Interrupted { signal } => {
            format!("error: `{name}` was ended by {}\n", signals::name(*signal))
        }
        Outcome::Failed { rank, exit, tail } => {
            let mut text = match ended.ranks {
                1 => format!("error: `{name}` failed\n"),
                ranks => format!("error: `{name}` failed on rank {rank} of {ranks}\n"),
            };
            text += &format!("  caused by: {}\n", cause(*exit));
            if !tail.is_empty() {
                text += &format!("  last lines of rank {rank} on stderr:\n");
                tail.iter()
                    .for_each(|line| text += &format!("    {line}\n"));
            }
            if let Some(hint) = hint(*exit) {
                text += &format!("\nhint: {hint}\n");
            }
            text
        }
    };
    if ended.survivors > 0 {
        text += &format!("error: {} processes could not be killed\n", ended.survivors);
    }
    text
}

fn cause(exit: Exit) -> String {
    match exit {
        Exit::Code(101) => "exit code 101, which is a panic in a Rust program".to_owned(),
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => {
            format!(
                "killed by {} (exit code {})",
                signals::name(signal),
                exit.code()
            )
        }
    }
}

fn hint(exit: Exit) -> Option<&'static str> {
    match exit {
        Exit::Signal(SIGKILL) => Some(
            "if nobody killed it by hand, the system did because memory ran out: look into \
             `dmesg` or at the memory limit of the job, and try fewer processes or smaller batches",
        ),
        Exit::Code(_) | Exit::Signal(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(outcome: Outcome, ranks: usize) -> String {
        let program = Program {
            name: "train".to_owned(),
            executable: "/opt/bin/train".into(),
            arguments: Vec::new(),
        };
        describe(
            &Ended {
                outcome,
                ranks,
                survivors: 0,
            },
            &program,
        )
    }

    #[test]
    fn success_is_silent() {
        assert_eq!(told(Outcome::Success, 2), "");
    }

    #[test]
    fn a_failure_names_rank_code_and_last_lines() {
        let tail = vec!["first".to_owned(), "second".to_owned()];
        let outcome = Outcome::Failed {
            rank: 1,
            exit: Exit::Code(7),
            tail,
        };
        assert_eq!(
            told(outcome, 2),
            "error: `train` failed on rank 1 of 2\n  caused by: exit code 7\n  \
             last lines of rank 1 on stderr:\n    first\n    second\n"
        );
    }

    #[test]
    fn a_kill_has_the_name_of_its_signal_and_a_hint() {
        let outcome = Outcome::Failed {
            rank: 0,
            exit: Exit::Signal(9),
            tail: Vec::new(),
        };
        let text = told(outcome, 1);
        assert!(text.starts_with(
            "error: `train` failed\n  caused by: killed by SIGKILL (exit code 137)\n"
        ));
        assert!(
            text.contains("\nhint: ") && text.contains("memory"),
            "{text}"
        );
    }
}
