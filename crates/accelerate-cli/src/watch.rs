//! `accelerate watch`: a run in the terminal, while it goes on or afterwards.
//!
//! [`source`] says what is known of the run, [`session`] shows it on the whole terminal until a key
//! ends it, [`plain`] writes lines where there is no terminal for that. `launch --watch` shows the
//! same beside its job.

mod draw;
mod error;
mod plain;
mod session;
mod snapshot;
mod source;
mod terminal;
mod words;

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use accelerate_plan::env::{Environment, NO_COLOR, TERM, Variable};
use clap::Args;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    flag,
};

use self::error::{Result, WatchError};

pub(crate) use session::{Beside, show};
pub(crate) use source::Source;
pub(crate) use terminal::Interrupts;

/// What was typed after `accelerate watch`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct WatchArgs {
    /// Folder of a run, a folder with runs (the newest is shown), or the name of a run below `runs`;
    /// without it, the newest below `runs`, or else below this folder
    #[arg(value_name = "RUN")]
    run: Option<PathBuf>,

    /// Write plain lines, as where the output is no terminal
    #[arg(long)]
    plain: bool,
}

const AFTER_HELP: &str = "\
Keys: q, Esc or Ctrl-C leave the view; Left and Right show other curves; Up and Down other ranks.

A rank is called a straggler if it is busy for over a fifth longer than the middle rank: the others
wait for it. `NO_COLOR=1` leaves colours out. Where the output is no terminal, and with `TERM=dumb`,
plain lines are written until the run is over.";

/// What the terminal can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abilities {
    pub(crate) colour: bool,
    /// Whether its letters have dots so small that eight of them fit one place.
    pub(crate) braille: bool,
}

impl Abilities {
    /// Those of the terminal that stdin and stdout lead to; `None` if there is none that can be drawn
    /// on.
    pub(crate) fn of_process() -> Option<Self> {
        let env = Environment::from_process();
        let said =
            |variable: &Variable<String>| env.get(variable).ok().flatten().unwrap_or_default();
        let kind = said(&TERM);
        let can_draw = !matches!(kind.as_str(), "" | "dumb");
        let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        (can_draw && is_terminal).then(|| Self {
            colour: said(&NO_COLOR).is_empty(),
            // The console of Linux has few letters.
            braille: kind != "linux",
        })
    }
}

/// Shows the run that `args` name until it is left, or until it is over where lines are written.
///
/// # Errors
/// If there is no such run, or the terminal refuses.
pub(crate) fn run(args: &WatchArgs) -> Result<ExitCode> {
    let mut source = Source::find(args.run.as_deref())?;
    let refused = |source| WatchError::Terminal { source };
    match Abilities::of_process().filter(|_| !args.plain) {
        Some(abilities) => {
            let asked = Asked::new().map_err(refused)?;
            show(&mut source, abilities, Interrupts::AreKeys, &asked).map_err(refused)?;
            Ok(asked.exit_code())
        }
        None => match plain::follow(&mut source, &mut io::stdout().lock()) {
            // The reader has had enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(source) => Err(refused(source)),
            Ok(()) => Ok(ExitCode::SUCCESS),
        },
    }
}

/// Whether a signal has asked the view to end.
struct Asked(Arc<AtomicUsize>);

impl Asked {
    fn new() -> io::Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        for (number, value) in [(SIGHUP, 1), (SIGINT, 2), (SIGQUIT, 3), (SIGTERM, 15)] {
            flag::register_usize(number, Arc::clone(&signal), value)?;
        }
        Ok(Self(signal))
    }

    fn exit_code(&self) -> ExitCode {
        match u8::try_from(self.0.load(Ordering::Relaxed)) {
            Ok(0) => ExitCode::SUCCESS,
            Ok(signal) => ExitCode::from(128 + signal),
            Err(_) => ExitCode::FAILURE,
        }
    }
}

impl Beside for Asked {
    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn keys(&self) -> &'static str {
        "q leave"
    }
}
