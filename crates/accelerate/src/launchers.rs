//! Several ranks out of one program: for notebooks, small programs and tests.
//!
//! The ranks are always fresh processes of the same program. Such a process starts from
//! the beginning, comes to the same call of the launcher, runs the function there, and
//! ends. So what stands before the call runs in every process, and what stands after it
//! runs in the launching one only. A process that was started for a later call of a
//! program passes by the earlier ones, which return `Ok` there:
//!
//! ```no_run
//! use accelerate::launchers::{LaunchOptions, notebook_launcher};
//! use accelerate::{Accelerator, Result};
//!
//! fn train() -> Result<()> {
//!     let accelerator = Accelerator::new()?;
//!     accelerator.print("training");
//!     accelerator.end_training()
//! }
//!
//! fn main() -> Result<()> {
//!     notebook_launcher(&LaunchOptions::new(2), train)?;
//!     println!("every rank is done");
//!     Ok(())
//! }
//! ```

mod child;
mod failure;
mod options;
mod start;

use std::error::Error as StdError;
use std::panic::Location;

use accelerate_torch::device;
use tch::Device;

pub use options::LaunchOptions;

use crate::Result;
use child::Role;

/// Runs `function` on several ranks, each a fresh process, and waits for all of them.
///
/// When one fails, the others are stopped; then all are started again, as often as
/// [`LaunchOptions::max_restarts`] allows. No configuration file is read.
///
/// # Errors
/// [`Error::LaunchFailed`](crate::Error::LaunchFailed) names the rank that failed first, how
/// it ended and what it last wrote; [`Error::CannotLaunch`](crate::Error::CannotLaunch) if this
/// process has an accelerator already, or was launched itself; options that contradict
/// each other; a port that is taken.
///
/// # Source
/// `accelerate.notebook_launcher`. Differs: one rank too is a process of its own; nothing is
/// forked, so no trial run is needed in debug mode; the precision reaches the ranks in
/// `ACCELERATE_MIXED_PRECISION`; without a port a free one is taken; only the static
/// meeting of machines, and no TPU.
#[track_caller]
pub fn notebook_launcher<E: Into<Box<dyn StdError>>>(
    options: &LaunchOptions,
    function: impl FnOnce() -> Result<(), E>,
) -> Result<()> {
    launch(Location::caller(), options, true, function)
}

/// Runs `function` on several ranks of this machine's CPU, to test it.
///
/// In a test, call it on the test's own thread: the ranks run that test only. What they
/// write is kept, and shown if one fails.
///
/// # Errors
/// As [`notebook_launcher`].
///
/// # Source
/// `accelerate.debug_launcher`. Differs: the ranks meet as those of any launch do, and have
/// different local ranks.
#[track_caller]
pub fn debug_launcher<E: Into<Box<dyn StdError>>>(
    num_processes: usize,
    function: impl FnOnce() -> Result<(), E>,
) -> Result<()> {
    launch(
        Location::caller(),
        &LaunchOptions::debug(num_processes),
        false,
        function,
    )
}

fn launch<E: Into<Box<dyn StdError>>>(
    place: &Location<'_>,
    options: &LaunchOptions,
    announce: bool,
    function: impl FnOnce() -> Result<(), E>,
) -> Result<()> {
    match child::role(place)? {
        Role::Rank => child::run(function),
        Role::OnTheWay => Ok(()),
        Role::Launcher { call } => {
            options.check()?;
            if announce {
                say_where(options);
            }
            start::with_restarts(options, &call)
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "the launcher of notebooks says what it starts"
)]
fn say_where(options: &LaunchOptions) {
    let kind = match options.uses_cpu() || device::count(Device::Cuda(0)) == 0 {
        true => "CPU",
        false => "GPU",
    };
    match options.num_processes() {
        1 => println!("Launching training on one {kind}."),
        several => println!("Launching training on {several} {kind}s."),
    }
}
