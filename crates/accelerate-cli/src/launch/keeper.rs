//! The keeper: a small process between the launcher and the program of one rank.
//!
//! It starts the program and ends the way the program ends: with its exit code or by its signal. If
//! it is asked to stop, or if the launcher is gone, however that happened, it ends everything below
//! it: first SIGTERM, after the grace period SIGKILL. Orphans below it become its children, so that
//! even a process that detached itself is found. It stays with them after the program has ended, so
//! that they cannot outlive the launcher.

use std::{
    collections::HashSet,
    io,
    num::NonZeroI32,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
    sync::mpsc,
    time::{Duration, Instant},
};

use accelerate_plan::env::ERROR_FILE;
use rustix::{
    process::{self, Pid, Resource, Rlimit, Signal},
    thread,
};

mod order;

pub(crate) use order::{Order, Terms};

use super::{
    error_file::OwnErrorFile,
    keeper_news::{self, News},
    placement,
    signals::{self, Notice},
    tree::{self, Exit, Reaped},
};
use crate::report;

/// Pause between two attempts to kill what is left.
pub(crate) const KILL_INTERVAL: Duration = Duration::from_millis(50);

/// Within this time a second order to stop is taken for the first one: a cluster manager signals
/// every process of a job, and the launcher passes on what it gets.
const ECHO: Duration = Duration::from_secs(1);

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
    let terms = &order.terms;
    follow_launcher(terms.launcher)?;

    let keeper = process::getpid();
    // It goes when this function returns.
    let errors = terms.errors.as_ref().and_then(OwnErrorFile::create);
    let program = start(order, errors.as_ref())?;
    let launcher_hears = terms.tell(News::Started { keeper, program });
    let mut ended = None;
    let mut end_was_told = false;
    let mut stop = Stop::NotAsked;
    loop {
        match receive(&notices, stop.deadline()) {
            Some(Notice::ChildEnded | Notice::Show) => {}
            Some(Notice::Stop { .. }) => stop.advance(terms.grace),
            None => stop.kill(),
        }
        loop {
            match tree::reap()? {
                Reaped::Child(pid, exit) if pid == program => {
                    ended = Some(exit);
                    errors.as_ref().map(OwnErrorFile::hand_over);
                }
                Reaped::Child(..) => {}
                Reaped::AllAlive => break,
                Reaped::NoneLeft => return Ok(ended.unwrap_or(Exit::Code(0))),
            }
        }
        // The program left something behind.
        if let (Some(exit), Stop::NotAsked, false) = (ended, &stop, end_was_told) {
            if !launcher_hears {
                // It passes to the launcher, which hears of this end by our own.
                return Ok(exit);
            }
            end_was_told = true;
            if !terms.tell(News::Ended { keeper, exit }) {
                // The launcher is just going.
                stop.advance(terms.grace);
            }
        }
    }
}

impl Terms {
    /// Tells the launcher something; returns whether that was possible.
    fn tell(&self, news: News) -> bool {
        let address = self.news.as_deref();
        address.is_some_and(|address| keeper_news::tell(address, news).is_ok())
    }
}

/// Asks the system to send SIGTERM when the launcher is gone.
fn follow_launcher(launcher: NonZeroI32) -> io::Result<()> {
    let launcher = Pid::from_raw(launcher.get());
    #[cfg(target_os = "linux")]
    process::set_parent_process_death_signal(Some(Signal::TERM))?;
    #[cfg(not(target_os = "linux"))]
    std::thread::spawn(move || {
        while process::getppid() == launcher {
            std::thread::sleep(Duration::from_millis(200));
        }
        let _ = process::kill_process(process::getpid(), Signal::TERM);
    });
    // It may be gone already.
    match process::getppid() == launcher {
        true => Ok(()),
        false => Err(io::Error::other("the launcher is gone")),
    }
}

fn start(order: &Order, errors: Option<&OwnErrorFile>) -> io::Result<Pid> {
    let terms = &order.terms;
    let (name, arguments) = order
        .command
        .split_first()
        .ok_or_else(|| io::Error::other("no program was named"))?;
    if !terms.cpus.is_empty()
        && let Err(error) = placement::apply(&terms.cpus)
    {
        let cpus = &terms.cpus;
        report::say(&format!(
            "warning: cannot bind a rank to CPUs {cpus}, it runs on any\n  caused by: {error}\n"
        ));
    }
    let mut command = Command::new(name);
    command
        .args(arguments)
        .process_group(terms.group.map_or(0, NonZeroI32::get));
    if let Some(errors) = errors {
        command.env(ERROR_FILE.name(), errors.path());
    }
    let child = command.spawn()?;
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
    Asked { since: Instant, kill_at: Instant },
    Killing { again_at: Instant },
}

impl Stop {
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::NotAsked => None,
            Self::Asked { kill_at: at, .. } | Self::Killing { again_at: at } => Some(*at),
        }
    }

    /// The first order asks politely, the second does not.
    fn advance(&mut self, grace: Duration) {
        match self {
            Self::NotAsked => {
                tree::signal_all(tree::below_us(&HashSet::new()), Signal::TERM);
                let since = Instant::now();
                *self = Self::Asked {
                    since,
                    kill_at: since + grace,
                };
            }
            Self::Asked { since, .. } if since.elapsed() < ECHO => {}
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
