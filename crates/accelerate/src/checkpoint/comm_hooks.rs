//! What communication hooks remember from step to step, on each rank: what PowerSGD lost of the
//! gradients, its thin matrices, its count of steps and its generator.

use std::path::Path;

use accelerate_formats::Value;

use super::files;
use super::planned_file::{Content, PlannedFile};
use super::torch_state::{self, TorchState};
use super::training_state::TrainingState;
use crate::collectives::gather_object;
use crate::parallel::{DataParallel, PowerSgdMemory};
use crate::{Error, Result};

impl TrainingState<'_> {
    /// Adds this rank's part, where a hook remembers anything.
    pub(super) fn plan_comm_hooks(&self, planned: &mut Vec<PlannedFile>) -> Result<()> {
        let models = self.registry.data_parallel();
        if !models.iter().any(|model| model.remembers()) {
            return Ok(());
        }
        let mut torch = TorchState::default();
        let mut all = Vec::new();
        for model in models {
            all.push(match model.remembered()? {
                Some(state) => torch.flat(&state)?,
                None => Value::None,
            });
        }
        planned.push(PlannedFile::new(
            files::comm_hooks(self.state.process_index()),
            Content::Torch(torch, all.into()),
        ));
        Ok(())
    }

    /// Lets all hooks go on from what was saved, where every rank can, and begin anew elsewhere.
    /// `orders` are those in which gradients came. Answers what could not be restored.
    ///
    /// # Collective
    /// Every rank calls this, when the buckets are arranged.
    ///
    /// # Errors
    /// In a strict project, [`Error::StateMismatch`] for what could not be restored, on all ranks.
    pub(super) fn load_comm_hooks(
        &self,
        folder: &Path,
        saved_by: Option<usize>,
        orders: &[Vec<usize>],
    ) -> Result<Vec<String>> {
        let models = self.registry.data_parallel();
        if !models.iter().any(|model| model.remembers()) {
            return Ok(Vec::new());
        }
        let saved = self.saved_hooks(folder, saved_by);
        let mut read = Vec::new();
        for (place, model) in models.iter().enumerate() {
            let order = orders.get(place).map(Vec::as_slice).unwrap_or_default();
            read.push(read_one(model, saved.as_ref(), place, order));
        }
        let own: Vec<bool> = read.iter().map(|read| read.is_ok()).collect();
        // A rank by itself must not send plain gradients where others send compressed ones.
        let all = gather_object(self.state, vec![own])?;
        let name = files::comm_hooks(self.state.process_index());
        let mut problems = Vec::new();
        for (place, (model, read)) in models.iter().zip(read).enumerate() {
            let fits = |rank: &Vec<bool>| rank.get(place) == Some(&true);
            match (read, all.iter().position(|rank| !fits(rank))) {
                (Ok(memory), None) => model.remember(memory),
                (read, rank) => {
                    model.remember(None);
                    let other = format!("rank {} could not restore its part", rank.unwrap_or(0));
                    let problem = read.err().unwrap_or(other);
                    problems.push(format!("`{name}`: {problem}; compression begins anew"));
                }
            }
        }
        if problems.is_empty() || !self.project.configuration.strict {
            return Ok(problems);
        }
        Err(Error::StateMismatch {
            target: "communication hook",
            problems,
        })
    }

    /// The saved values of all models, or why there are none for this rank.
    fn saved_hooks(&self, folder: &Path, saved_by: Option<usize>) -> Result<Value, String> {
        let ranks = self.state.num_processes();
        if let Some(saved_by) = saved_by.filter(|&saved_by| saved_by != ranks) {
            return Err(format!("{saved_by} ranks saved, and {ranks} go on"));
        }
        let path = folder.join(files::comm_hooks(self.state.process_index()));
        if !path.exists() {
            return Err("it is not there: no hook remembered anything".to_owned());
        }
        torch_state::read(&path).map_err(|error| error.with_causes())
    }
}

/// What one model's hook goes on from; none where it remembers nothing.
fn read_one(
    model: &DataParallel,
    saved: Result<&Value, &String>,
    place: usize,
    order: &[usize],
) -> Result<Option<PowerSgdMemory>, String> {
    if !model.remembers() {
        return Ok(None);
    }
    let saved = saved.map_err(Clone::clone)?.as_slice();
    let saved = saved.and_then(|saved| saved.get(place)).cloned();
    let state = torch_state::flat(saved.unwrap_or(Value::None), "PowerSGD");
    state
        .and_then(|state| model.read_remembered(&state, order))
        .map_err(|error| error.with_causes())
}
