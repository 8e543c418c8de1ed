//! Everything that training depends on: what is saved, by which rank, and in which order.

use std::path::{Path, PathBuf};

use accelerate_formats::{Dict, Metadata, Value};

use super::files;
use super::folder::{PartialCheckpoint, partial_path};
use super::gradient_order::GRADIENT_ORDER;
use super::gradients;
use super::manifest::{Manifest, ManifestFile};
use super::project::Project;
use super::random_state;
use super::registry::Registry;
use super::save::save_weights;
use super::torch_state::{self, TorchState};
use crate::collectives::gather_object;
use crate::data::LoaderControl;
use crate::gradient_state::GradientState;
use crate::parallel::DataParallel;
use crate::precision::GradScaler;
use crate::state::PartialState;
use crate::{Error, Result};

/// Handles on all of it, for the time of saving or loading.
pub(crate) struct TrainingState<'a> {
    pub(crate) state: &'a PartialState,
    pub(crate) project: &'a Project,
    pub(crate) registry: &'a Registry,
    pub(crate) loaders: Vec<std::rc::Rc<dyn LoaderControl>>,
    /// What averages the gradients of the prepared models.
    pub(crate) data_parallel: Vec<std::rc::Rc<DataParallel>>,
    pub(crate) scaler: Option<&'a GradScaler>,
    pub(crate) gradient_state: &'a GradientState,
    /// Whether loading restores where the loaders stood.
    pub(crate) restores_loaders: bool,
}

impl TrainingState<'_> {
    /// Saves into one folder, all ranks together.
    pub(crate) fn save(&self, output_dir: Option<&Path>) -> Result<PathBuf> {
        let target = self.project.target(output_dir)?;
        let main = self.state.is_main_process();
        let begun = main.then(|| PartialCheckpoint::begin(&target)).transpose();
        let partial = self.together(begun)?;
        let folder = match &partial {
            Some(partial) => partial.path().to_owned(),
            None => partial_path(&absolute(&target)?),
        };
        // Where a rank fails, the partial folder goes with the handle on it.
        let own = self.together(self.write(&folder))?;
        let files = gather_object(self.state, own)?;
        let manifest = Manifest::new(self.state.num_processes(), self.project.iteration(), files);
        let committed = partial.map(|partial| self.project.saved(&partial.commit(&manifest)?));
        self.together(committed.transpose())?;
        self.project.set_iteration(self.project.iteration() + 1);
        absolute(&target)
    }

    /// Writes this rank's files, and describes them.
    fn write(&self, folder: &Path) -> Result<Vec<ManifestFile>> {
        let mut names = Vec::new();
        if self.state.is_main_process() {
            self.write_weights(folder, &mut names)?;
            self.write_states(folder, &mut names)?;
            self.write_custom(folder, &mut names)?;
            if self.write_gradient_order(folder)? {
                names.push(GRADIENT_ORDER.to_owned());
            }
        }
        self.write_positions(folder, &mut names)?;
        let random = files::random_states(self.state.process_index());
        random_state::save(&folder.join(&random), self.accumulation())?;
        names.push(random);
        if self.gradient_state.is_accumulating() {
            let gradients = files::gradients(self.state.process_index());
            gradients::save(&folder.join(&gradients), &self.registry.models())?;
            names.push(gradients);
        }
        names
            .iter()
            .map(|name| ManifestFile::of(folder, name))
            .collect()
    }

    fn write_weights(&self, folder: &Path, names: &mut Vec<String>) -> Result<()> {
        for (index, model) in self.registry.models().into_iter().enumerate() {
            let name = files::model(index);
            save_weights(&*model, folder.join(&name), &Metadata::default())?;
            names.push(name);
        }
        Ok(())
    }

    fn write_states(&self, folder: &Path, names: &mut Vec<String>) -> Result<()> {
        let mut write = |name: String, torch: &TorchState, value: &Value| -> Result<()> {
            torch.write(&folder.join(&name), value)?;
            names.push(name);
            Ok(())
        };
        for (index, optimizer) in self.registry.optimizers().into_iter().enumerate() {
            let mut torch = TorchState::default();
            let value = torch.optimizer(&optimizer.borrow().state_dict()?)?;
            write(files::optimizer(index), &torch, &value)?;
        }
        for (index, scheduler) in self.registry.schedulers().into_iter().enumerate() {
            let mut torch = TorchState::default();
            let value = torch.flat(&scheduler.borrow().state_dict())?;
            write(files::scheduler(index), &torch, &value)?;
        }
        if let Some(scaler) = self.scaler {
            let mut torch = TorchState::default();
            let value = torch.flat(&scaler.state_dict()?)?;
            write(files::SCALER.to_owned(), &torch, &value)?;
        }
        Ok(())
    }

    /// Each rank for itself: of some streams it reads a part of its own.
    fn write_positions(&self, folder: &Path, names: &mut Vec<String>) -> Result<()> {
        for (index, loader) in self.loaders.iter().enumerate() {
            let name = files::loader(index, self.state.process_index());
            let position = serde_json::to_value(loader.state_dict()?).map_err(Error::data)?;
            let value = torch_state::from_json(position);
            TorchState::default().write(&folder.join(&name), &value)?;
            names.push(name);
        }
        Ok(())
    }

    fn write_custom(&self, folder: &Path, names: &mut Vec<String>) -> Result<()> {
        for (index, object) in self.registry.custom().into_iter().enumerate() {
            let name = files::custom(index);
            let value = object.borrow().state_dict()?;
            TorchState::default().write(&folder.join(&name), &value)?;
            names.push(name);
        }
        Ok(())
    }

    /// How far each set of models has accumulated, by the models' places.
    fn accumulation(&self) -> Value {
        let models = self.registry.models();
        let place = |id| models.iter().position(|model| model.id() == id);
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

    /// An error of one rank is an error of all.
    pub(super) fn together<T>(&self, own: Result<T>) -> Result<T> {
        let fine = gather_object(self.state, vec![own.is_ok()])?;
        match (own, fine.iter().position(|fine| !fine)) {
            (Ok(_), Some(rank)) => Err(Error::OtherRankFailed { rank }),
            (own, _) => own,
        }
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| super::folder::io("find", path, source))
}
