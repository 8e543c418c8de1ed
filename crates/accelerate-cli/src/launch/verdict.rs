//! How a job ended, told to a person.

use accelerate_plan::{LEFT_EARLY, launch::Program};
use signal_hook::consts::{SIGABRT, SIGBUS, SIGILL, SIGKILL, SIGSEGV};

use super::{
    ended::{Ended, Outcome, RankEnd},
    signals,
    tree::Exit,
};
use crate::report;

/// Tells on stderr why a job did not end well; with `every_rank`, how the other ranks ended too.
pub(crate) fn tell(ended: &Ended, program: &Program, every_rank: bool) {
    let text = describe(ended, program, every_rank);
    if !text.is_empty() {
        report::say(&text);
    }
}

/// Tells on stderr that an attempt has failed, and that restart `number` of `of` follows.
pub(crate) fn tell_restart(ended: &Ended, program: &Program, number: usize, of: usize) {
    let text = describe_restart(ended, program, number, of);
    report::say(&text);
}

fn describe_restart(ended: &Ended, program: &Program, number: usize, of: usize) -> String {
    let name = &program.name;
    let (place, cause) = match &ended.outcome {
        Outcome::Failed { index, exit } => (place(ended, *index), cause(*exit)),
        Outcome::PeerFailed { description } => {
            (" on another machine".to_owned(), description.clone())
        }
        _ => (String::new(), "unknown".to_owned()),
    };
    format!("note: `{name}` failed{place}; restart {number} of {of}\n  caused by: {cause}\n")
}

fn describe(ended: &Ended, program: &Program, every_rank: bool) -> String {
    let name = &program.name;
    let is_before_start = ended.ranks.is_empty();
    let mut text = match &ended.outcome {
        Outcome::Success => String::new(),
        Outcome::Left => format!(
            "note: `{name}` was asked to end: it saved where it stands and left with exit code \
             {LEFT_EARLY}; started again it goes on from there\n"
        ),
        Outcome::Interrupted { signal } if is_before_start => format!(
            "error: stopped by {} while waiting for the other machines\n",
            signals::name(*signal)
        ),
        Outcome::TimedOut { limit } if is_before_start => format!(
            "error: stopped after {} s while waiting for the other machines\n",
            limit.as_secs_f64()
        ),
        Outcome::Interrupted { signal } => {
            format!("error: `{name}` was ended by {}\n", signals::name(*signal))
        }
        Outcome::TimedOut { limit } => {
            format!(
                "error: `{name}` did not end within {} s\n",
                limit.as_secs_f64()
            )
        }
        Outcome::PeerFailed { description } => {
            let restarts = restarts(ended);
            format!(
                "error: `{name}` failed on another machine{restarts}\n  caused by: {description}\n"
            )
        }
        Outcome::Failed { index, exit } => describe_failure(ended, name, *index, *exit),
    };
    if every_rank && !matches!(ended.outcome, Outcome::Success | Outcome::Left) {
        text += &other_ranks(ended);
    }
    if let Some(hint) = hint(ended) {
        text += &format!("\nhint: {hint}\n");
    }
    if ended.survivors > 0 {
        text += &format!(
            "error: processes that could not be killed: {}\n",
            ended.survivors
        );
    }
    text
}

fn describe_failure(ended: &Ended, name: &str, index: usize, exit: Exit) -> String {
    let mut text = format!(
        "error: `{name}` failed{}{}\n  caused by: {}\n",
        place(ended, index),
        restarts(ended),
        match left_without(ended) {
            Some(left) => format!(
                "rank {left} had saved and left with exit code {LEFT_EARLY}, and this rank did not \
                 follow: {exit}"
            ),
            None => cause(exit),
        }
    );
    let Some(rank) = ended.ranks.get(index) else {
        return text;
    };
    if let Some(reported) = &rank.reported {
        text += &format!("  caused by: {}\n", reported.headline());
    }
    text += &last_words(rank);
    if let Some(log) = &rank.stderr_log {
        text += &format!("  its whole stderr is in `{}`\n", log.display());
    }
    text
}

/// The rank that saved and left, if the one that failed was ended because it did not follow.
fn left_without(ended: &Ended) -> Option<usize> {
    let Outcome::Failed { index, .. } = ended.outcome else {
        return None;
    };
    let failed = ended.ranks.get(index)?;
    if failed.end.is_some_and(|end| !end.by_launcher) {
        return None;
    }
    let has_left = |rank: &&RankEnd| {
        let end = rank.end;
        end.is_some_and(|end| end.exit == Exit::Code(LEFT_EARLY))
    };
    ended.ranks.iter().find(has_left).map(|rank| rank.rank)
}

/// Where it failed, if there was more than one place.
fn place(ended: &Ended, index: usize) -> String {
    let rank = ended.ranks.get(index).map(|rank| rank.rank);
    match (ended.world_size, rank) {
        (..=1, _) | (_, None) => String::new(),
        (world, Some(rank)) => format!(" on rank {rank} of {world}"),
    }
}

fn restarts(ended: &Ended) -> String {
    match ended.attempt {
        0 => String::new(),
        1 => ", after 1 restart".to_owned(),
        count => format!(", after {count} restarts"),
    }
}

/// The end of what a rank wrote, or the stack that it reported if nothing passed through us.
fn last_words(rank: &RankEnd) -> String {
    let stack = rank.reported.as_ref().and_then(|reported| reported.stack());
    let (headline, lines): (_, Vec<&str>) = match (&rank.last_lines[..], stack) {
        ([], None) => return String::new(),
        ([], Some(stack)) => ("stack that rank", stack.lines().collect()),
        (lines, _) => (
            "last lines of rank",
            lines.iter().map(String::as_str).collect(),
        ),
    };
    let verb = match headline {
        "last lines of rank" => "on stderr",
        _ => "reported",
    };
    let mut text = format!("  {headline} {} {verb}:\n", rank.rank);
    for line in lines {
        text += &format!("    {line}\n");
    }
    text
}

fn other_ranks(ended: &Ended) -> String {
    let first = match ended.outcome {
        Outcome::Failed { index, .. } => Some(index),
        _ => None,
    };
    let others = ended.ranks.iter().enumerate();
    let others = others.filter(|(index, _)| Some(*index) != first);
    let lines: String = others
        .map(|(_, rank)| format!("    rank {}: {}\n", rank.rank, rank.in_words()))
        .collect();
    match (lines.is_empty(), first) {
        (true, _) => String::new(),
        (false, Some(_)) => format!("  other ranks:\n{lines}"),
        (false, None) => format!("  ranks:\n{lines}"),
    }
}

fn cause(exit: Exit) -> String {
    match exit {
        Exit::Code(101) => "exit code 101, which is a panic in a Rust program".to_owned(),
        exit => exit.to_string(),
    }
}

fn hint(ended: &Ended) -> Option<String> {
    let text = match (&ended.outcome, ended.memory_kills) {
        (Outcome::TimedOut { .. }, _) if ended.ranks.is_empty() => {
            "`--timeout` sets how long a job may take, the wait for its machines included"
        }
        (Outcome::TimedOut { .. }, _) => {
            "the note above tells what each rank was doing; `--timeout` sets how long a job may \
             take"
        }
        (Outcome::Failed { .. }, _) if left_without(ended).is_some() => {
            "every rank has to leave at the same step: ask on all of them, after the same number of \
             steps; `--grace_period` sets how long the launcher waits for the others"
        }
        (
            Outcome::Failed {
                exit: Exit::Signal(SIGKILL),
                ..
            },
            kills @ 1..,
        ) => {
            let processes = if kills == 1 { "process" } else { "processes" };
            return Some(format!(
                "memory ran out: the system killed {kills} {processes} of this machine while the \
                 job ran; give the job more memory, or try fewer processes or smaller batches"
            ));
        }
        (Outcome::Failed { exit, .. }, _) => hint_for(*exit)?,
        (
            Outcome::Success
            | Outcome::Left
            | Outcome::Interrupted { .. }
            | Outcome::PeerFailed { .. },
            _,
        ) => {
            return None;
        }
    };
    Some(text.to_owned())
}

fn hint_for(exit: Exit) -> Option<&'static str> {
    Some(match exit {
        Exit::Signal(SIGKILL) => {
            "if nobody killed it by hand, the system did because memory ran out: look into \
             `dmesg` or at the memory limit of the job, and try fewer processes or smaller batches"
        }
        Exit::Signal(SIGSEGV) => {
            "native code used memory that is not its own, often a library that does not fit its \
             driver or its interpreter: `PYTHONFAULTHANDLER=1` shows where Python was, a debugger \
             shows the rest"
        }
        Exit::Signal(SIGBUS) => {
            "often the shared memory is full: look at `df -h /dev/shm`; a container gets more by \
             `--shm-size` or `--ipc=host`"
        }
        Exit::Signal(SIGILL) => {
            "the program or one of its libraries was built for another kind of processor"
        }
        Exit::Signal(SIGABRT) => "the program gave up by itself: its last lines say why",
        Exit::Code(127) => {
            "the shell's code for something that was not found: the program, its interpreter or a \
             shared library (`ldd PROGRAM` lists those)"
        }
        Exit::Code(126) => {
            "the shell's code for something that cannot be executed: look at its permissions and \
             at the kind of processor it was built for"
        }
        Exit::Code(_) | Exit::Signal(_) => return None,
    })
}

#[cfg(test)]
mod tests;
