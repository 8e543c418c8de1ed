//! Everything that training depends on: what is saved, by which rank, and in which order.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use accelerate_formats::{Dict, Value};
use accelerate_torch::profiler::ProfileRange;

use super::agreement::{Agreement, together};
use super::background::BackgroundSaves;
use super::deepspeed;
use super::distributed;
use super::distributed_optimizer::save_optimizer;
use super::files;
use super::gradients;
use super::options::{SaveStateOptions, WhileSaving};
use super::placing::Placing;
use super::planned_file::{Content, PlannedFile, write_all};
use super::project::Project;
use super::random_state;
use super::state_dict::{StateDict, state_dict};
use super::state_hooks::{SavingModel, SavingState, StateHooks};
use super::torch_state::{self, TorchState};
use super::weight_set::WeightSet;
use crate::gradient_state::GradientState;
use crate::nn::require_state;
use crate::optim;
use crate::parallel::whole_state_of;
use crate::precision::GradScaler;
use crate::registry::{ModelHandle, Registry};
use crate::state::PartialState;
use crate::{Error, Result};

/// Handles on all of it, for the time of saving or loading.
pub(crate) struct TrainingState<'a> {
    pub(crate) state: &'a PartialState,
    pub(crate) project: &'a Project,
    pub(crate) registry: &'a Registry,
    pub(crate) hooks: &'a StateHooks,
    pub(crate) saves: &'a BackgroundSaves,
    pub(crate) scaler: Option<&'a GradScaler>,
    pub(crate) gradient_state: &'a GradientState,
    /// Whether loading restores where the loaders stood.
    pub(crate) restores_loaders: bool,
}

impl TrainingState<'_> {
    /// Saves into one folder, all ranks together.
    pub(crate) fn save(
        &self,
        output_dir: Option<&Path>,
        options: SaveStateOptions,
    ) -> Result<PathBuf> {
        let _range = ProfileRange::while_recording(|| "save checkpoint".to_owned())?;
        self.saves.make_room(self.state, WhileSaving::Wait)?;
        let placing = Placing::begin(self.state, self.project, output_dir)?;
        let folder = placing.folder();
        let planned = self.plan(&placing, options);
        let written = planned.and_then(|files| write_all(&files, &folder));
        let saved = placing.finish(written, &mut Agreement::Collectives(self.state))?;
        self.project.set_iteration(self.project.iteration() + 1);
        Ok(saved)
    }

    /// What this rank writes, after the hooks have had their say.
    pub(super) fn plan(
        &self,
        placing: &Placing,
        options: SaveStateOptions,
    ) -> Result<Vec<PlannedFile>> {
        let mut files = Vec::new();
        let (folder, main) = (placing.folder(), placing.is_main());
        let models = self.registry.models.alive();
        let optimizers = self.registry.optimizers.alive();
        let engines = match self.project.configuration.save_on_each_node {
            // Such folders have parts of all machines.
            true => None,
            false => deepspeed::engines(&models, &optimizers, self.state)?,
        };
        let mut whole = Vec::new();
        let weights = self.weights(&folder, main, engines.is_some())?;
        // What goes into folders of DeepSpeed's is not here.
        for (index, weights) in weights.into_iter().filter(|_| engines.is_none()) {
            match models.get(index).filter(|model| self.writes_shards(model)) {
                Some(model) => self.write_shards(&folder, index, model)?,
                None => whole.push((index, weights)),
            }
        }
        // What one rank does alone, and may fail at, comes behind what ranks do together.
        let optimizers = match &engines {
            Some(engines) => {
                deepspeed::plan(engines, self.state, &folder, &mut files)?;
                Vec::new()
            }
            None => self.optimizers(&folder, main)?,
        };
        if main {
            for (index, weights) in whole {
                files.push(model_file(index, weights, options)?);
            }
            self.plan_states(optimizers, &mut files)?;
            self.plan_custom(&mut files)?;
            self.plan_gradient_order(&mut files)?;
        }
        self.plan_positions(&mut files)?;
        files.push(random_state::plan(
            files::random_states(self.state.process_index()),
            self.accumulation(),
        )?);
        self.plan_comm_hooks(&mut files)?;
        if self.gradient_state.is_accumulating() {
            files.push(gradients::plan(
                files::gradients(self.state.process_index()),
                &self.registry.models.alive(),
            )?);
        }
        Ok(files)
    }

    /// Whether each rank writes what it keeps of a model, which takes a folder that all of them see.
    fn writes_shards(&self, model: &ModelHandle) -> bool {
        let sharded = model.gradients().sharded();
        let saves_shards = sharded.is_some_and(|sharded| sharded.saves_shards());
        saves_shards && !self.project.configuration.save_on_each_node
    }

    fn write_shards(&self, folder: &Path, index: usize, model: &ModelHandle) -> Result<()> {
        let Some(sharded) = model.gradients().sharded() else {
            return Ok(());
        };
        let folder = folder.join(distributed::model_name(index));
        distributed::save_model(&folder, model, sharded, self.state)
    }

    /// The weights of each model that the hooks leave to be saved, with its place. Those of a model
    /// in shards are whole on ranks that are `main`, and none on others or where each rank writes its
    /// own, as it does with `engines`.
    fn weights(&self, folder: &Path, main: bool, engines: bool) -> Result<Vec<(usize, StateDict)>> {
        let models: Vec<Rc<ModelHandle>> = self.registry.models.alive();
        let mut saving = SavingState {
            output_dir: folder,
            models: Vec::with_capacity(models.len()),
        };
        for (index, model) in models.iter().enumerate() {
            require_state(&**model, "save_state")?;
            saving.models.push(SavingModel {
                index,
                module: &**model,
                weights: match model.gradients().sharded() {
                    Some(_) if engines || self.writes_shards(model) => StateDict::new(),
                    Some(sharded) => {
                        // The next gather is of all ranks again.
                        together(self.state, sharded.whole_state(&**model, main))?
                    }
                    None => state_dict(&**model)?,
                },
            });
        }
        let said = self.hooks.saving(&mut saving);
        match self.registry.sharded().is_empty() {
            true => said?,
            // Ranks go on together: the state of optimizers is in shards too.
            false => together(self.state, said)?,
        }
        let left = saving.models.into_iter();
        Ok(left.map(|model| (model.index, model.weights)).collect())
    }

    /// The state of each optimizer with its place; of parameters in shards it is whole on ranks that
    /// are `main`. Where each rank writes what it keeps of models, it does so of optimizers.
    fn optimizers(&self, folder: &Path, main: bool) -> Result<Vec<(usize, optim::StateDict)>> {
        let (sharded, models) = (self.registry.sharded(), self.registry.models.alive());
        let writes_shards = models.iter().any(|model| self.writes_shards(model));
        let mut left = Vec::new();
        for (index, optimizer) in self.registry.optimizers.alive().into_iter().enumerate() {
            let optimizer = optimizer.borrow();
            if writes_shards {
                let folder = folder.join(distributed::optimizer_name(index));
                save_optimizer(&folder, &*optimizer, &models, self.state)?;
            } else {
                let own = whole_state_of(&sharded, &*optimizer, main);
                let own = match sharded.is_empty() {
                    true => own?,
                    false => together(self.state, own)?,
                };
                left.push((index, own));
            }
        }
        Ok(left)
    }

    fn plan_states(
        &self,
        optimizers: Vec<(usize, optim::StateDict)>,
        files: &mut Vec<PlannedFile>,
    ) -> Result<()> {
        let mut add = |name: String, torch: TorchState, value: Value| {
            files.push(PlannedFile::new(name, Content::Torch(torch, value)));
        };
        for (index, state) in optimizers {
            let mut torch = TorchState::default();
            let value = torch.optimizer(&state)?;
            add(files::optimizer(index), torch, value);
        }
        for (index, scheduler) in self.registry.schedulers.alive().into_iter().enumerate() {
            let mut torch = TorchState::default();
            let value = torch.flat(&scheduler.borrow().state_dict())?;
            add(files::scheduler(index), torch, value);
        }
        if let Some(scaler) = self.scaler {
            let mut torch = TorchState::default();
            let value = torch.flat(&scaler.state_dict()?)?;
            add(files::SCALER.to_owned(), torch, value);
        }
        Ok(())
    }

    /// Each rank for itself: of some streams it reads a part of its own.
    fn plan_positions(&self, files: &mut Vec<PlannedFile>) -> Result<()> {
        for (index, loader) in self.registry.loaders.alive().into_iter().enumerate() {
            let position = serde_json::to_value(loader.state_dict()?).map_err(Error::data)?;
            files.push(PlannedFile::of_value(
                files::loader(index, self.state.process_index()),
                torch_state::from_json(position),
            ));
        }
        Ok(())
    }

    fn plan_custom(&self, files: &mut Vec<PlannedFile>) -> Result<()> {
        for (index, object) in self.registry.custom().into_iter().enumerate() {
            let value = object.borrow().state_dict()?;
            files.push(PlannedFile::of_value(files::custom(index), value));
        }
        Ok(())
    }

    /// How far each set of models has accumulated, by the models' places.
    fn accumulation(&self) -> Value {
        let models = self.registry.models.alive();
        let place = |id| models.iter().position(|model| model.gradients().id() == id);
        let counts = self.gradient_state.counters().snapshot().into_iter();
        let counts = counts.filter_map(|(set, count)| {
            let places: Option<Vec<Value>> = set
                .into_iter()
                .map(|id| place(id).map(|place| Value::Int(place as i128)))
                .collect();
            let entry = Dict::new().with("models", places?).with("count", count);
            Some(Value::from(entry))
        });
        counts.collect::<Vec<_>>().into()
    }
}

fn model_file(index: usize, weights: StateDict, options: SaveStateOptions) -> Result<PlannedFile> {
    let weights = WeightSet::new(weights)?;
    Ok(match options.safe_serialization {
        true => PlannedFile::new(files::model(index), Content::Safetensors(weights)),
        false => PlannedFile::new(files::torch_model(index), Content::TorchWeights(weights)),
    })
}
