//! Leaving before the end when somebody asks for it, and coming back.

use super::Accelerator;
use crate::Result;
use crate::checkpoint::{LoadedState, together};

/// The exit code of a program that was asked to end, has saved where it stands, and can be started
/// again to go on: 75, which `sysexits.h` calls a temporary failure.
///
/// `accelerate launch` passes it on and does not take it for a failure.
pub const LEFT_EARLY: u8 = accelerate_plan::LEFT_EARLY;

impl Accelerator {
    /// Whether the job was asked to end and leaves here: true on every rank at the same place.
    ///
    /// The first call lets the program notice SIGTERM instead of dying of it;
    /// [`leave_on`](crate::AcceleratorBuilder::leave_on) names other signals. Ask after each step of
    /// the optimizer. The signal may come to one rank or to all, at different moments. Between two
    /// updates of accumulated gradients the answer is no; once it is yes it stays so. A second
    /// signal, a second or more after the first, ends the process at once.
    ///
    /// While no signal comes this sends nothing and costs two locks that nobody else wants. When one
    /// comes, ranks leave behind the next collective that none of them has come to, which is at
    /// the end of this step or the next.
    ///
    /// ```
    /// # let accelerator = accelerate::Accelerator::new()?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// for step in 0..10 {
    ///     // backward, step, zero_grad
    ///     # if step == 3 { accelerator.ask_to_leave(); }
    ///     if accelerator.should_leave()? {
    ///         accelerator.save_state(Some(&folder.path().join("interrupted")))?;
    ///         break;
    ///     }
    ///     assert!(step < 3);
    /// }
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Collective
    /// Every rank calls this, at the same places. A rank that ran out of data in
    /// [`join_uneven_inputs`](Self::join_uneven_inputs) calls it behind the join, as the others
    /// do that left their loop.
    ///
    /// # Errors
    /// [`Error::NoDeparture`](crate::Error::NoDeparture) if a rank that has ended, or does not
    /// answer, keeps the others from agreeing; [`Error::Signals`](crate::Error::Signals) if the
    /// system does not let signals be noticed.
    ///
    /// # Source
    /// None. It stands beside `set_trigger` and `check_trigger`.
    pub fn should_leave(&self) -> Result<bool> {
        let shared = &self.shared;
        shared.state.leave_on(&shared.leave_signals)?;
        if !self.sync_gradients() {
            return Ok(false);
        }
        if let Some(recording) = shared.gradient_state.progress().recording()
            && recording.leaves_here()
        {
            return Ok(true);
        }
        shared.state.leaves_here()
    }

    /// Asks all ranks to leave, as a signal would: at the end of the time that a job was given,
    /// for instance. One rank is enough.
    pub fn ask_to_leave(&self) {
        self.shared.state.ask_to_leave();
    }

    /// If the job was asked to end, saves its state into the project, takes leave of the other
    /// ranks and ends this process with exit code [`LEFT_EARLY`].
    ///
    /// Call it at the end of each step, where [`load_state`](Self::load_state) or
    /// [`resume`](Self::resume) is to go on. A project without automatically named checkpoints has no
    /// place for them: there it does nothing, and SIGTERM ends the program as ever.
    /// See [`should_leave`](Self::should_leave) for what is agreed on, and do by it by hand what else
    /// has to be done: no destructors run.
    ///
    /// # Collective
    /// Every rank calls this, at the same places.
    ///
    /// # Errors
    /// Those of [`should_leave`](Self::should_leave) and [`save_state`](Self::save_state). That an
    /// earlier save in the background failed is a warning here, and what fails behind this save is
    /// logged.
    pub fn leave_when_asked(&self) -> Result<()> {
        if !self.project_configuration().automatic_checkpoint_naming || !self.should_leave()? {
            return Ok(());
        }
        // Nobody is there to try again: an earlier failure does not keep this save from being made.
        if let Err(failure) = together(self.state(), self.shared.saves.report()) {
            tracing::warn!("{}", failure.with_causes());
        }
        let saved = self.save_state(None)?;
        tracing::info!(path = %saved.display(), "asked to end: saved, and left");
        // The state is saved, whatever comes of taking leave.
        if let Err(failure) = self.end_training() {
            tracing::error!("{}", failure.with_causes());
        }
        end_process()
    }

    /// Goes on from the newest whole checkpoint of the project if there is one, and begins afresh
    /// if there is none, or if the project has no automatically named checkpoints.
    ///
    /// Call it after everything is prepared. A loop over a prepared loader then goes on in the
    /// middle of the epoch, if the configuration has
    /// [`use_stateful_dataloader`](crate::DataLoaderConfiguration::use_stateful_dataloader), and
    /// [`iteration`](crate::data::PreparedLoader::iteration) says in which:
    ///
    /// ```text
    /// accelerator.resume()?;
    /// for epoch in batches.iteration()..epochs {
    ///     for batch in &batches {
    ///         // forward, backward, step
    ///         accelerator.leave_when_asked()?;
    ///     }
    /// }
    /// ```
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`load_state`](Self::load_state); checkpoints of which none is whole are an error, not a
    /// fresh start.
    pub fn resume(&self) -> Result<Option<LoadedState>> {
        if !self.project_configuration().automatic_checkpoint_naming {
            return Ok(None);
        }
        self.training_state().load_if_any()
    }
}

#[expect(
    clippy::exit,
    reason = "this is the call that ends the program, as its documentation says"
)]
fn end_process() -> ! {
    std::process::exit(i32::from(LEFT_EARLY))
}
