//! The keeper: a small process between the launcher and the program of one rank.
//!
//! It starts the program and ends the way the program ends: with its exit code or by its signal. If
//! it is asked to stop, or if the launcher is gone, however that happened, it ends everything below
//! it: first SIGTERM, after the grace period SIGKILL. Orphans below it become its children, so that
//! even a process that detached itself is found.

use std::{
    collections::HashSet,
    ffi::OsString,
    io,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
    sync::mpsc,
    time::{Duration, Instant},
};

use rustix::{
    process::{self, Pid, Resource, Rlimit, Signal},
    thread,
};

use super::{
    signals::{self, Notice},
    tree::{self, Exit, Reaped},
};
use crate::report;

/// First argument of a keeper.
const MARK: &str = "__rank";

/// Pause between two attempts to kill what is left.
pub(crate) const KILL_INTERVAL: Duration = Duration::from_millis(50);

/// What a keeper has to do.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The process whose end is the keeper's order to stop.
    pub(crate) launcher: Pid,
    /// Time between SIGTERM and SIGKILL.
    pub(crate) grace: Duration,
    /// Process group for the program; `None` gives it one of its own.
    pub(crate) group: Option<Pid>,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
}

impl Order {
    /// Reads an order from the arguments of this process; `None` if it is no keeper.
    pub(crate) fn from_arguments(arguments: &[OsString]) -> Option<Self> {
        let [_, mark, launcher, grace, group, command @ ..] = arguments else {
            return None;
        };
        let number = |text: &OsString| text.to_str()?.parse::<i32>().ok();
        (mark == MARK).then_some(())?;
        Some(Self {
            launcher: Pid::from_raw(number(launcher)?)?,
            grace: Duration::from_millis(grace.to_str()?.parse().ok()?),
            group: Pid::from_raw(number(group)?),
            command: command.to_vec(),
        })
    }

    /// The command that starts a keeper with this order. The keeper gets a process group of its
    /// own, out of reach of keys on the terminal.
    pub(crate) fn command(&self) -> io::Result<Command> {
        // This very file, even if it was replaced since we started.
        let ourselves = match cfg!(target_os = "linux") {
            true => "/proc/self/exe".into(),
            false => std::env::current_exe()?,
        };
        let mut command = Command::new(ourselves);
        command
            .arg(MARK)
            .arg(self.launcher.as_raw_nonzero().to_string())
            .arg(self.grace.as_millis().to_string())
            .arg(
                self.group
                    .map_or(0, |group| group.as_raw_nonzero().get())
                    .to_string(),
            )
            .args(&self.command)
            .process_group(0);
        Ok(command)
    }
}

/// Runs as the keeper of one rank.
pub(crate) fn run(order: &Order) -> ExitCode {
    match keep(order) {
        Ok(exit) => end_like(exit),
        Err(error) => {
            let program = order.command.first().map(|name| name.display().to_string());
            let program = program.unwrap_or_default();
            report::say(&format!(
                "error: cannot run `{program}`\n  caused by: {error}\n"
            ));
            // What a shell returns for a program that is missing, or that cannot be executed.
            ExitCode::from(if error.kind() == io::ErrorKind::NotFound {
                127
            } else {
                126
            })
        }
    }
}

fn keep(order: &Order) -> io::Result<Exit> {
    let (sender, notices) = mpsc::channel();
    signals::listen(move |notice| sender.send(notice).is_ok())?;
    tree::adopt_orphans()?;
    follow_launcher(order.launcher)?;

    let program = start(order)?;
    let mut ended = None;
    let mut stop = Stop::NotAsked;
    loop {
        match receive(&notices, stop.deadline()) {
            Some(Notice::ChildEnded) => {}
            Some(Notice::Stop { .. }) => stop.advance(order.grace),
            None => stop.kill(),
        }
        loop {
            match tree::reap()? {
                Reaped::Child(pid, exit) if pid == program => ended = Some(exit),
                Reaped::Child(..) => {}
                Reaped::AllAlive => break,
                Reaped::NoneLeft => return Ok(ended.unwrap_or(Exit::Code(0))),
            }
        }
        // What the program left behind passes to the launcher, unless it is us who end it.
        if let (Some(exit), Stop::NotAsked) = (ended, &stop) {
            return Ok(exit);
        }
    }
}

/// Asks the system to send SIGTERM when the launcher is gone.
fn follow_launcher(launcher: Pid) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    process::set_parent_process_death_signal(Some(Signal::TERM))?;
    #[cfg(not(target_os = "linux"))]
    std::thread::spawn(move || {
        while process::getppid() == Some(launcher) {
            std::thread::sleep(Duration::from_millis(200));
        }
        let _ = process::kill_process(process::getpid(), Signal::TERM);
    });
    // It may be gone already.
    match process::getppid() == Some(launcher) {
        true => Ok(()),
        false => Err(io::Error::other("the launcher is gone")),
    }
}

fn start(order: &Order) -> io::Result<Pid> {
    let (name, arguments) = order
        .command
        .split_first()
        .ok_or_else(|| io::Error::other("no program was named"))?;
    let group = order.group.map_or(0, |group| group.as_raw_nonzero().get());
    let child = Command::new(name)
        .args(arguments)
        .process_group(group)
        .spawn()?;
    // A name of its own, for whoever looks at a list of processes.
    let _ = thread::set_name(c"rank-keeper");
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the system gave no process number"))
}

fn receive(notices: &mpsc::Receiver<Notice>, deadline: Option<Instant>) -> Option<Notice> {
    let Some(deadline) = deadline else {
        return notices.recv().ok();
    };
    notices
        .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        .ok()
}

/// How far the end of the tree has come.
enum Stop {
    NotAsked,
    Asked { kill_at: Instant },
    Killing { again_at: Instant },
}

impl Stop {
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::NotAsked => None,
            Self::Asked { kill_at: at } | Self::Killing { again_at: at } => Some(*at),
        }
    }

    /// The first order asks politely, the second does not.
    fn advance(&mut self, grace: Duration) {
        match self {
            Self::NotAsked => {
                tree::signal_all(tree::below_us(&HashSet::new()), Signal::TERM);
                *self = Self::Asked {
                    kill_at: Instant::now() + grace,
                };
            }
            Self::Asked { .. } | Self::Killing { .. } => self.kill(),
        }
    }

    fn kill(&mut self) {
        tree::signal_all(tree::below_us(&HashSet::new()), Signal::KILL);
        *self = Self::Killing {
            again_at: Instant::now() + KILL_INTERVAL,
        };
    }
}

/// Ends this process as the program ended, so that the launcher sees no difference.
fn end_like(exit: Exit) -> ExitCode {
    if let Exit::Signal(signal) = exit {
        // The program has written its core file; ours would only hide it.
        let none = Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = process::setrlimit(Resource::Core, none);
        // Does not return for signals that kill.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    ExitCode::from(exit.code())
}
