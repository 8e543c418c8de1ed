//! What a process is to a call of a launcher.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::io::{self, Read};
use std::panic::Location;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

use accelerate_plan::env::{Environment, LAUNCH_CALL};

use super::failure;
use crate::state::PartialState;
use crate::{Error, Result};

/// How often each place of the program has called a launcher.
static CALLS: LazyLock<Mutex<HashMap<String, usize>>> = LazyLock::new(Mutex::default);
/// Whether this process is a rank that runs its function.
static RUNS: AtomicBool = AtomicBool::new(false);

pub(super) enum Role {
    /// Starts the ranks of this call.
    Launcher {
        /// The call's name, by which they know it.
        call: String,
    },
    /// Was started for this call.
    Rank,
    /// Was started for a later call, and passes by this one, which is done already.
    OnTheWay,
}

/// What this process is to the call at `place`: told by the name of the call.
pub(super) fn role(place: &Location<'_>) -> Result<Role> {
    if RUNS.load(Ordering::Acquire) {
        return Err(Error::CannotLaunch {
            problem: "this process was itself launched",
            remedy: "do not launch inside of the function that is launched",
        });
    }
    let call = name(place);
    match Environment::from_process().get(&LAUNCH_CALL)? {
        Some(wanted) if wanted == call => Ok(Role::Rank),
        Some(_) => Ok(Role::OnTheWay),
        None if PartialState::current().is_some() => Err(Error::CannotLaunch {
            problem: "this process has an `Accelerator` already",
            remedy: "make it inside of the function that is launched",
        }),
        None => Ok(Role::Launcher { call }),
    }
}

/// The place of the call, and the how many-th call there it is.
fn name(place: &Location<'_>) -> String {
    let place = place.to_string();
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = calls.entry(place.clone()).or_default();
    *count += 1;
    format!("{place}#{count}")
}

/// Runs the function as a rank, and ends the process with its outcome.
#[expect(
    clippy::exit,
    reason = "nothing after the call is this process's to do"
)]
pub(super) fn run<E: Into<Box<dyn StdError>>>(function: impl FnOnce() -> Result<(), E>) -> ! {
    RUNS.store(true, Ordering::Release);
    end_with_the_launcher();
    match function() {
        Ok(()) => process::exit(0),
        Err(error) => {
            failure::write(&*error.into());
            process::exit(1)
        }
    }
}

/// Ends this process when the launcher ends: then its end of our standard input closes.
#[expect(
    clippy::exit,
    reason = "a rank without its launcher would be left alone"
)]
fn end_with_the_launcher() {
    thread::spawn(|| {
        let mut buffer = [0; 64];
        loop {
            match io::stdin().lock().read(&mut buffer) {
                Ok(0) => process::exit(1),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
}
