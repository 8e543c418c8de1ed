//! Saving everything that training depends on, and going on from it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::Accelerator;
use crate::Result;
use crate::checkpoint::{Checkpointable, LoadedState, ProjectConfiguration, TrainingState};

impl Accelerator {
    /// Saves models, optimizers, schedules, the loss scale, random generators, the loaders'
    /// positions and registered objects into one folder, and answers where.
    ///
    /// With automatic naming the folder is `checkpoints/checkpoint_N` of the project and
    /// `output_dir` is not needed. The checkpoint is written beside its place and moved there when
    /// every rank has written its part and the disk has it: whatever is killed when, the folder
    /// is whole or absent, and an earlier one stays until then.
    ///
    /// ```
    /// # use accelerate::nn::{Factory, Linear};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let accelerator = accelerate::Accelerator::new()?;
    /// let model = accelerator.prepare(Linear::new(1, 1, &Factory::default())?)?;
    /// let saved = accelerator.save_state(Some(&folder.path().join("step_10")))?;
    /// assert!(saved.join("model.safetensors").exists());
    /// accelerator.load_state(Some(&saved))?;
    /// # drop(model);
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Collective
    /// Every rank calls this. In the middle of an accumulation the gradients are saved too.
    ///
    /// # Errors
    /// [`Error::NoCheckpointFolder`](crate::Error::NoCheckpointFolder),
    /// [`Error::CheckpointTarget`](crate::Error::CheckpointTarget) or
    /// [`Error::CheckpointBusy`](crate::Error::CheckpointBusy) for the folder; what writing reports;
    /// [`Error::OtherRankFailed`](crate::Error::OtherRankFailed) where it was another rank's.
    ///
    /// # Source
    /// `Accelerator.save_state`, with the same names of files.
    pub fn save_state(&self, output_dir: Option<&Path>) -> Result<PathBuf> {
        self.training_state().save(output_dir)
    }

    /// Goes on from a saved state: from `input_dir`, or else from the newest whole checkpoint of
    /// the project.
    ///
    /// Call it after everything is prepared, in the same order as when it was saved. With as
    /// many ranks the job goes on bit for bit, unless a hook compresses the gradients on their way.
    /// A job of another number of ranks can load it too: the data goes on
    /// in the same order, and generators that no rank saved stay as they are. Where the loaders
    /// stood is restored if the configuration has `use_stateful_dataloader`; else skip
    /// what was trained on with [`skip_first_batches`](Self::skip_first_batches).
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// [`Error::NoWholeCheckpoint`](crate::Error::NoWholeCheckpoint) or
    /// [`Error::CheckpointDamaged`](crate::Error::CheckpointDamaged) before anything has changed;
    /// those of models, optimizers and schedules where the state does not fit.
    ///
    /// # Source
    /// `Accelerator.load_state`. Differs: random state that cannot be restored is a warning with
    /// path and rank, and an error in a `strict` project.
    pub fn load_state(&self, input_dir: Option<&Path>) -> Result<LoadedState> {
        self.training_state().load(input_dir)
    }

    /// Makes `object` a part of every checkpoint from now on.
    ///
    /// Keep the other handle on it: `Rc::new(RefCell::new(..))`, cloned.
    ///
    /// # Source
    /// `Accelerator.register_for_checkpointing`.
    pub fn register_for_checkpointing<C: Checkpointable + 'static>(&self, object: Rc<RefCell<C>>) {
        self.shared.registry.add_custom(object);
    }

    /// Where the project keeps what it makes.
    #[must_use]
    pub fn project_configuration(&self) -> &ProjectConfiguration {
        &self.shared.project.configuration
    }

    /// The project's folder, where there is one.
    #[must_use]
    pub fn project_dir(&self) -> Option<&Path> {
        self.project_configuration().project_dir.as_deref()
    }

    /// The number of the next automatically named checkpoint.
    #[must_use]
    pub fn save_iteration(&self) -> u64 {
        self.shared.project.iteration()
    }

    pub(super) fn training_state(&self) -> TrainingState<'_> {
        let shared = &self.shared;
        TrainingState {
            state: &shared.state,
            project: &shared.project,
            registry: &shared.registry,
            loaders: self.prepared_loaders(),
            data_parallel: self.models(),
            scaler: self.scaler(),
            gradient_state: &shared.gradient_state,
            restores_loaders: self.use_stateful_dataloader(),
        }
    }
}
