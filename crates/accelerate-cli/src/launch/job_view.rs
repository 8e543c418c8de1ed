//! `launch --watch`: the view of the run on the terminal, beside the job.
//!
//! While it is shown, output and messages wait; whoever leaves it gets them, and the job goes on.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{SystemTime, UNIX_EPOCH},
};

use super::{handling::Handling, output::Console};
use crate::{
    report,
    watch::{self, Abilities, Beside, Interrupts, Source},
};

/// A run that says it began so many seconds before the job is still of the job: clocks differ.
const CLOCKS: f64 = 1.0;

/// The view, which ends with this.
#[derive(Debug)]
pub(super) struct JobView {
    is_over: Arc<AtomicBool>,
    console: Arc<Console>,
    thread: Option<JoinHandle<()>>,
}

impl JobView {
    /// Shows the view if that is asked for and the terminal can; from here on output waits.
    pub(super) fn start(handling: &Handling, console: &Arc<Console>) -> Option<Self> {
        let root = handling.watch.clone()?;
        let Some(abilities) = Abilities::of_process() else {
            if !handling.quiet {
                let why = "stdin and stdout have to be a terminal that can be drawn on; from \
                           another one, `accelerate watch` shows the run"
                    .to_owned();
                report::note("`--watch` shows nothing:", &[why]);
            }
            return None;
        };
        console.hold();
        if io::stderr().is_terminal() {
            report::hold();
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let beside = Job {
            is_over: Arc::clone(&is_over),
            console: Arc::clone(console),
        };
        let started = thread::Builder::new()
            .name("view".to_owned())
            .spawn(move || beside.show(root, abilities));
        if started.is_err() {
            release(console);
        }
        Some(Self {
            is_over,
            console: Arc::clone(console),
            thread: started.ok(),
        })
    }
}

impl Drop for JobView {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        release(&self.console);
    }
}

/// The job, as the view sees it.
struct Job {
    is_over: Arc<AtomicBool>,
    console: Arc<Console>,
}

impl Job {
    fn show(&self, root: PathBuf, abilities: Abilities) {
        // Also where the view panics; a second release does nothing.
        let _released = Released(&self.console);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let began = now.unwrap_or_default().as_secs_f64() - CLOCKS;
        let mut source = Source::awaiting(root, began);
        let shown = watch::show(&mut source, abilities, Interrupts::AreSignals, self);
        release(&self.console);
        if let Err(error) = shown {
            report::say(&format!(
                "warning: the view of `--watch` has ended; the job goes on\n  caused by: {error}\n"
            ));
        }
    }
}

/// Lets everything through when the view is gone.
struct Released<'a>(&'a Console);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        release(self.0);
    }
}

/// Lets everything through that waited.
fn release(console: &Console) {
    console.release();
    report::release();
}

impl Beside for Job {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn keys(&self) -> &'static str {
        "q leave (the job goes on)   Ctrl-C end the job"
    }

    fn output(&self, lines: usize) -> Option<Vec<String>> {
        let mut output = self.console.held_lines(lines);
        output.extend(report::last_held());
        Some(output)
    }
}
