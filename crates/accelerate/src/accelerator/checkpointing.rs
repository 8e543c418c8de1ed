//! Saving everything that training depends on, and going on from it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use accelerate_plan::parallel::{Dialect, Sharded};

use super::Accelerator;
use crate::checkpoint::{
    BackgroundSave, Checkpointable, LoadedState, LoadingState, ProjectConfiguration,
    SaveModelOptions, SaveStateOptions, SavingState, StateDict, StateHookHandle, TrainingState,
    save_model, save_weights_of, state_dict, together,
};
use crate::nn::Module;
use crate::parallel::ShardedModel;
use crate::{Error, Result};

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
    /// [`Error::NoCheckpointFolder`],
    /// [`Error::CheckpointTarget`] or
    /// [`Error::CheckpointBusy`] for the folder; what writing reports;
    /// [`Error::OtherRankFailed`] where it was another rank's.
    ///
    /// # Source
    /// `Accelerator.save_state`, with the same names of files.
    pub fn save_state(&self, output_dir: Option<&Path>) -> Result<PathBuf> {
        self.save_state_with(output_dir, SaveStateOptions::default())
    }

    /// As [`save_state`](Self::save_state), with choices.
    ///
    /// # Errors
    /// As [`save_state`](Self::save_state).
    pub fn save_state_with(
        &self,
        output_dir: Option<&Path>,
        options: SaveStateOptions,
    ) -> Result<PathBuf> {
        self.training_state().save(output_dir, options)
    }

    /// As [`save_state`](Self::save_state), but training goes on while the files are written.
    ///
    /// Everything is copied into CPU memory before this returns, so what is trained on may change at
    /// once; the memory stays for the next save until [`free_memory`](Self::free_memory). A thread
    /// of each rank writes, and the checkpoint appears when all ranks' files are whole, without a
    /// further call and without a collective. The next save waits for it or is refused
    /// ([`WhileSaving`](crate::checkpoint::WhileSaving)); loading waits for it.
    ///
    /// ```
    /// # use accelerate::nn::{Factory, Linear};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let accelerator = accelerate::Accelerator::new()?;
    /// let model = accelerator.prepare(Linear::new(1, 1, &Factory::default())?)?;
    /// let target = folder.path().join("step_10");
    /// let save = accelerator.save_state_in_background(Some(&target), Default::default())?;
    /// // Train on.
    /// assert!(save.wait()?.join("model.safetensors").exists());
    /// # drop(model);
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`save_state`](Self::save_state) for what comes before writing;
    /// [`Error::BackgroundSave`] where an earlier save failed and
    /// nobody was told: then nothing new is saved, and the next call tries again;
    /// [`Error::SavePending`]. What fails later is reported by
    /// [`BackgroundSave::wait`], by the next save or by [`end_training`](Self::end_training).
    ///
    /// # Source
    /// None; `torch.distributed.checkpoint.async_save` is like it.
    pub fn save_state_in_background(
        &self,
        output_dir: Option<&Path>,
        options: SaveStateOptions,
    ) -> Result<BackgroundSave> {
        self.training_state()
            .save_in_background(output_dir, options)
    }

    /// Writes the weights of a model into a folder that other tools load, and names the files.
    ///
    /// The main process writes, or the first one of each machine where the project has
    /// `save_on_each_node`; the others wait, and get no names. For a prepared model give `&*model`.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// As [`save_model`] and [`get_state_dict`](Self::get_state_dict), and
    /// [`Error::OtherRankFailed`] where it was another rank's.
    ///
    /// # Source
    /// `Accelerator.save_model`.
    pub fn save_model(
        &self,
        model: &dyn Module,
        folder: impl AsRef<Path>,
        options: &SaveModelOptions,
    ) -> Result<Vec<PathBuf>> {
        let writes = match self.project_configuration().save_on_each_node {
            true => self.is_local_main_process(),
            false => self.is_main_process(),
        };
        let mut sharded = self.shared.registry.sharded().into_iter();
        let written = match sharded.find(|sharded| sharded.holds(model)) {
            Some(sharded) => {
                let weights = self.whole_weights(&sharded, model, writes)?;
                match writes {
                    true => save_weights_of(weights, folder.as_ref(), options),
                    false => Ok(Vec::new()),
                }
            }
            None if writes => save_model(model, folder, options),
            None => Ok(Vec::new()),
        };
        together(self.state(), written)
    }

    /// The weights of a model by name, whole. Those of a model in shards are on the main process; other
    /// ranks get none. For a prepared model give `&*model`.
    ///
    /// Where the plan is told in DeepSpeed's words, weights have the type in which the model computes:
    /// 16 bits, where that is mixed precision.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// What the backend reports; [`Error::Argument`] on all ranks for a model in stage 3 of ZeRO, where
    /// DeepSpeed's config does not allow to gather it (`stage3_gather_16bit_weights_on_model_save`).
    ///
    /// # Source
    /// `Accelerator.get_state_dict`.
    pub fn get_state_dict(&self, model: &dyn Module) -> Result<StateDict> {
        let mut sharded = self.shared.registry.sharded().into_iter();
        match sharded.find(|sharded| sharded.holds(model)) {
            Some(sharded) => self.whole_weights(&sharded, model, self.is_main_process()),
            None => state_dict(model),
        }
    }

    /// The weights of a model in shards: in DeepSpeed's words in the type in which it computes, and in
    /// stage 3 only where that is allowed.
    fn whole_weights(
        &self,
        sharded: &ShardedModel,
        model: &dyn Module,
        keeps: bool,
    ) -> Result<StateDict> {
        let plan = sharded.plan();
        if plan.dialect != Dialect::DeepSpeed {
            return sharded.whole_state(model, keeps);
        }
        if plan.sharded == Sharded::Parameters && !plan.state_dict.gathers_16bit_model {
            return Err(Error::Argument {
                operation: "save_model",
                expected:
                    "`stage3_gather_16bit_weights_on_model_save: true` in DeepSpeed's config, \
                           or `--zero3_save_16bit_model true`"
                        .to_owned(),
                found: "stage 3 without it; `save_state` has the weights in full precision, and \
                        `accelerate merge-weights` makes one file of them"
                    .to_owned(),
            });
        }
        let weights = sharded.whole_state(model, keeps)?;
        sharded.as_computed(weights)
    }

    /// Calls `hook` on every rank before each save, when the folder is there and nothing is written
    /// yet.
    ///
    /// # Source
    /// `Accelerator.register_save_state_pre_hook`. Differs: what the hook writes into the folder is
    /// a part of the checkpoint, and models keep their numbers when one is taken out.
    pub fn register_save_state_pre_hook(
        &self,
        hook: impl Fn(&mut SavingState<'_>) -> Result<()> + 'static,
    ) -> StateHookHandle {
        self.shared.state_hooks.before_save(hook)
    }

    /// Calls `hook` on every rank before each load, when a whole checkpoint is found and nothing is
    /// loaded yet.
    ///
    /// # Source
    /// `Accelerator.register_load_state_pre_hook`.
    pub fn register_load_state_pre_hook(
        &self,
        hook: impl Fn(&mut LoadingState<'_>) -> Result<()> + 'static,
    ) -> StateHookHandle {
        self.shared.state_hooks.before_load(hook)
    }

    /// Goes on from a saved state: from `input_dir`, or else from the newest whole checkpoint of
    /// the project.
    ///
    /// Call it after everything is prepared, in the same order as when it was saved. With as
    /// many ranks the job goes on bit for bit, unless a hook compresses the gradients on their way.
    /// A job of another number of ranks can load it too: the data goes on
    /// in the same order, and generators that no rank saved stay as they are. Where the loaders
    /// stood is restored if the configuration has `use_stateful_dataloader`; else skip
    /// what was trained on with [`skip_first_batches`](Self::skip_first_batches). Gradients become
    /// those that were saved in the middle of an accumulation, and none otherwise.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// [`Error::NoWholeCheckpoint`] or
    /// [`Error::CheckpointDamaged`] before anything has changed;
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
            hooks: &shared.state_hooks,
            saves: &shared.saves,
            scaler: self.scaler(),
            gradient_state: &shared.gradient_state,
            restores_loaders: self.use_stateful_dataloader(),
        }
    }
}
