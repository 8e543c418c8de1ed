//! Going on from a saved state.

use std::path::{Path, PathBuf};

use accelerate_formats::{Value, Weights};
use accelerate_torch::profiler::ProfileRange;
use serde::{Deserialize, Serialize};

use super::agreement::together;
use super::deepspeed;
use super::distributed;
use super::distributed_optimizer::load_optimizer;
use super::files;
use super::gradients;
use super::load::{LoadOptions, load_weights};
use super::load_shards::load_shards;
use super::manifest::SkippedCheckpoint;
use super::random_state;
use super::sharing::Sharing;
use super::state_hooks::{LoadingModel, LoadingState};
use super::torch_state;
use super::training_state::TrainingState;
use crate::collectives::gather_object;
use crate::parallel::slices_of_state;
use crate::{Error, Result};

/// What was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadedState {
    /// The folder.
    pub path: PathBuf,
    /// How many ranks saved it; none if it does not say.
    pub num_processes: Option<usize>,
    /// Newer checkpoints that were passed over, on rank 0.
    pub skipped: Vec<SkippedCheckpoint>,
    /// What could not be restored on this rank. Each was logged as a warning.
    pub warnings: Vec<String>,
}

/// What a rank that makes folders found, for the ranks that share them.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Found {
    path: PathBuf,
    /// The number in its name.
    number: Option<u64>,
    /// The number in its manifest.
    iteration: Option<u64>,
    num_processes: Option<usize>,
}

impl TrainingState<'_> {
    /// Loads from one folder, all ranks together.
    pub(crate) fn load(&self, input_dir: Option<&Path>) -> Result<LoadedState> {
        let _range = ProfileRange::while_recording(|| "load checkpoint".to_owned())?;
        self.saves.wait();
        let (found, skipped) = self.find(input_dir)?;
        let loaded = self.load_from(&found);
        let mut warnings = together(self.state, loaded)?;
        let orders = self.arrange_buckets(&found.path, found.num_processes)?;
        let hooks = self.load_comm_hooks(&found.path, found.num_processes, &orders)?;
        warnings.extend(hooks);
        for warning in &warnings {
            tracing::warn!(
                path = %found.path.display(),
                rank = self.state.process_index(),
                "{warning}"
            );
        }
        if let Some(number) = found.number.or(found.iteration) {
            self.project.set_iteration(number + 1);
        }
        Ok(LoadedState {
            path: found.path,
            num_processes: found.num_processes,
            skipped,
            warnings,
        })
    }

    /// Loads the newest whole checkpoint of the project, all ranks together, if there is any.
    pub(crate) fn load_if_any(&self) -> Result<Option<LoadedState>> {
        self.saves.wait();
        let sharing = Sharing::of(self.state, self.project.configuration.save_on_each_node)?;
        let looked = sharing.is_main().then(|| self.project.has_none());
        let nothing = together(self.state, looked.transpose())?.unwrap_or(true);
        let nothing = gather_object(self.state, vec![nothing])?;
        if nothing.iter().all(|&nothing| nothing) {
            return Ok(None);
        }
        self.load(None).map(Some)
    }

    /// The ranks that make folders look, and all ranks take what they found.
    ///
    /// Where each machine has a folder of its own, it is the newest that is whole on all of them.
    fn find(&self, input_dir: Option<&Path>) -> Result<(Found, Vec<SkippedCheckpoint>)> {
        let on_each_node = self.project.configuration.save_on_each_node;
        let sharing = Sharing::of(self.state, on_each_node)?;
        let mut skipped = Vec::new();
        let mut at_most = None;
        loop {
            let looked = sharing
                .is_main()
                .then(|| self.project.source(input_dir, at_most))
                .transpose();
            let mut found = None;
            if let Some(checkpoint) = together(self.state, looked)? {
                for passed_over in &checkpoint.skipped {
                    tracing::warn!("passed over {passed_over}");
                }
                skipped.extend(checkpoint.skipped);
                let manifest = checkpoint.manifest;
                found = Some(Found {
                    path: checkpoint.path,
                    number: checkpoint.number,
                    iteration: manifest.as_ref().map(|manifest| manifest.iteration),
                    num_processes: manifest.map(|manifest| manifest.num_processes),
                });
            }
            let all = gather_object(self.state, vec![found])?;
            let numbers: Vec<Option<u64>> = sharing
                .of_mains(all.clone())
                .map(|found| found.and_then(|found| found.number))
                .collect();
            match numbers.iter().min() {
                Some(&least) if numbers.iter().any(|&number| number != least) => at_most = least,
                _ => {
                    let own = sharing.of_own(all).flatten().next();
                    let found = own.ok_or(Error::OtherRankFailed { rank: 0 })?;
                    return Ok((found, skipped));
                }
            }
        }
    }

    fn load_from(&self, found: &Found) -> Result<Vec<String>> {
        let folder = &found.path;
        let models = self.registry.models.alive();
        for sharded in self.registry.sharded() {
            sharded.rest()?;
        }
        let mut loading = LoadingState {
            input_dir: folder,
            models: models
                .iter()
                .enumerate()
                .map(|(index, model)| LoadingModel {
                    index,
                    module: &**model,
                })
                .collect(),
        };
        self.hooks.loading(&mut loading)?;
        self.check_counts(folder, &loading.models)?;
        for model in loading.models {
            let sharded = models
                .get(model.index)
                .and_then(|one| one.gradients().sharded());
            if let Some(place) = distributed::model_folder(folder, model.index) {
                let sharded = sharded.map(|sharded| &**sharded);
                distributed::load_model(&place, model.module, sharded)?;
                continue;
            }
            if let Some(place) = deepspeed::folder_in(folder, model.index) {
                let sharded = sharded.map(|sharded| &**sharded);
                deepspeed::load_model(&place, model.module, sharded)?;
                continue;
            }
            let weights = Weights::open(files::model_in(folder, model.index))?;
            let options = LoadOptions::strict();
            let _report = match sharded {
                Some(sharded) => load_shards(model.module, sharded, &weights, &options)?,
                None => load_weights(model.module, &weights, &options)?,
            };
        }
        for (index, optimizer) in self.registry.optimizers.alive().into_iter().enumerate() {
            let mut optimizer = optimizer.borrow_mut();
            if let Some(place) = distributed::optimizer_folder(folder, index) {
                load_optimizer(&place, &mut *optimizer, &models)?;
                continue;
            }
            if let Some(place) = deepspeed::folder_in(folder, index) {
                deepspeed::load_optimizer(&place, &mut *optimizer, &models)?;
                continue;
            }
            let value = torch_state::read(&folder.join(files::optimizer(index)))?;
            let state = torch_state::optimizer(value, optimizer.name())?;
            let sharded = self.registry.sharded();
            let state = slices_of_state(&sharded, &*optimizer, &state)?;
            optimizer.load_state_dict(&state)?;
        }
        for (index, scheduler) in self.registry.schedulers.alive().into_iter().enumerate() {
            let value = torch_state::read(&folder.join(files::scheduler(index)))?;
            let state = torch_state::flat(value, "schedule")?;
            scheduler.borrow_mut().load_state_dict(&state)?;
        }
        if self.restores_loaders {
            self.load_positions(found)?;
        }
        if let Some(scaler) = self.scaler {
            let value = torch_state::read(&folder.join(files::SCALER))?;
            scaler.load_state_dict(&torch_state::flat(value, "gradient scaler")?)?;
        }
        for (index, object) in self.registry.custom().into_iter().enumerate() {
            let value = torch_state::read(&folder.join(files::custom(index)))?;
            object.borrow_mut().load_state_dict(&value)?;
        }
        let mut warnings = self.load_random_states(found)?;
        warnings.extend(self.load_gradients(found)?);
        Ok(warnings)
    }

    /// Gradients of an accumulation that was not at its end belong to the ranks that had them. Those
    /// that are there go in any case: they belong to what was given up.
    fn load_gradients(&self, found: &Found) -> Result<Option<String>> {
        let name = files::gradients(self.state.process_index());
        let path = found.path.join(&name);
        let same_ranks = found.num_processes == Some(self.state.num_processes());
        let of_anyone = found.path.join(files::gradients(0));
        if !path.exists() && (same_ranks || !of_anyone.exists()) {
            gradients::clear(&self.registry.models.alive())?;
            return Ok(None);
        }
        if !same_ranks {
            let problem = "saved in the middle of an accumulation by another number of ranks: \
                           its gradients are left out";
            self.gradient_state.restart();
            gradients::clear(&self.registry.models.alive())?;
            return Ok(Some(problem.to_owned()));
        }
        gradients::load(&path, &self.registry.models.alive())?;
        Ok(None)
    }

    /// Everything prepared has its file, and every file something prepared.
    fn check_counts(&self, folder: &Path, models: &[LoadingModel<'_>]) -> Result<()> {
        let mut problems = Vec::new();
        let mut compare = |what: &str, prepared: usize, file: &dyn Fn(usize) -> PathBuf| {
            let saved = (0..).take_while(|&index| file(index).exists()).count();
            if saved != prepared {
                problems.push(format!("{saved} {what} saved, {prepared} prepared"));
            }
        };
        let registry = self.registry;
        let prepared = registry.models.alive().len();
        if models.len() == prepared {
            compare("models", prepared, &|i| model_in(folder, i));
        }
        compare("optimizers", registry.optimizers.alive().len(), &|i| {
            distributed::optimizer_folder(folder, i)
                .or_else(|| deepspeed::folder_in(folder, i))
                .unwrap_or_else(|| folder.join(files::optimizer(i)))
        });
        compare("schedules", registry.schedulers.alive().len(), &|i| {
            folder.join(files::scheduler(i))
        });
        let (saved, registered) = (files::count_custom(folder), registry.custom().len());
        if saved != registered {
            problems.push(format!(
                "{saved} custom objects saved, {registered} registered for checkpointing"
            ));
        }
        for model in models.iter().filter(|_| models.len() < prepared) {
            let name = files::model(model.index);
            if !model_in(folder, model.index).exists() {
                problems.push(format!("no `{name}`, and no hook takes the model out"));
            }
        }
        if self.scaler.is_some() && !folder.join(files::SCALER).exists() {
            problems.push(format!("no `{}`: it was saved without fp16", files::SCALER));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(Error::StateMismatch {
            target: "program",
            problems,
        })
    }

    fn load_positions(&self, found: &Found) -> Result<()> {
        let same_ranks = found.num_processes == Some(self.state.num_processes());
        let rank = if same_ranks {
            self.state.process_index()
        } else {
            0
        };
        for (index, loader) in self.registry.loaders.alive().into_iter().enumerate() {
            let name = files::loader(index, rank);
            let value = torch_state::read(&found.path.join(&name))?;
            let position = torch_state::to_json(&value)
                .and_then(|position| serde_json::from_value(position).ok());
            let position = position.ok_or_else(|| Error::StateMismatch {
                target: "loader",
                problems: vec![format!(
                    "`{name}`: expected a position that this library saved, found {}",
                    value.kind()
                )],
            })?;
            loader.load_state_dict(&position)?;
        }
        Ok(())
    }

    /// Restores this rank's generators; what fails is a warning, or an error in a strict project.
    fn load_random_states(&self, found: &Found) -> Result<Vec<String>> {
        let name = files::random_states(self.state.process_index());
        let path = found.path.join(&name);
        let strict = self.project.configuration.strict;
        if !path.exists() {
            let saved = found.num_processes.unwrap_or(0);
            let problem =
                format!("no `{name}`: {saved} ranks saved, so this one keeps its generators");
            return if strict {
                Err(mismatch(problem))
            } else {
                Ok(vec![problem])
            };
        }
        match random_state::load(&path) {
            Ok((accumulation, problems)) => {
                self.restore_accumulation(accumulation.as_ref());
                match problems.first() {
                    Some(first) if strict => Err(mismatch(format!("`{name}`: {first}"))),
                    _ => Ok(problems
                        .into_iter()
                        .map(|problem| format!("`{name}`: {problem}"))
                        .collect()),
                }
            }
            Err(error) if strict => Err(error),
            Err(error) => Ok(vec![format!("`{name}`: {}", error.with_causes())]),
        }
    }

    fn restore_accumulation(&self, saved: Option<&Value>) {
        self.gradient_state.restart();
        let models = self.registry.models.alive();
        for entry in saved.and_then(Value::as_slice).unwrap_or(&[]) {
            let places = entry.get("models").and_then(Value::as_slice).unwrap_or(&[]);
            let set: Option<Vec<_>> = places
                .iter()
                .map(|place| Some(models.get(place.as_usize()?)?.gradients().id()))
                .collect();
            let count = entry.get("count").and_then(Value::as_int);
            if let (Some(set), Some(Ok(count))) = (set, count.map(u64::try_from)) {
                self.gradient_state.counters().restore(set, count);
            }
        }
    }
}

/// The weights of a model, in whichever form they are there.
fn model_in(folder: &Path, index: usize) -> PathBuf {
    distributed::model_folder(folder, index)
        .or_else(|| deepspeed::folder_in(folder, index))
        .unwrap_or_else(|| files::model_in(folder, index))
}

fn mismatch(problem: String) -> Error {
    Error::StateMismatch {
        target: "random state",
        problems: vec![problem],
    }
}
