//! A rank's vectors out of shards that are cut otherwise.

use std::collections::HashMap;

use accelerate_formats::zero::{ZeroPartition, ZeroRun, zero_share};
use tch::{Device, Kind, Tensor};

use super::engine::Engine;
use crate::Result;
use crate::parallel::visit_whole_state;

/// What one rank writes, in CPU memory.
pub(crate) struct Gathered {
    /// Of each group the weights in float32.
    pub(super) weights: Vec<Tensor>,
    /// Of each group what the optimizer keeps besides, by its kind.
    pub(super) states: Vec<Vec<(String, Tensor)>>,
    pub(super) partitions: Vec<ZeroPartition>,
    /// Whole parameters by the identity of their tensors, where a rank writes them: those that are
    /// trained in the type in which they are computed with.
    pub(super) whole: HashMap<usize, Tensor>,
    /// This rank's part of each parameter that is not trained, where stage 3 cuts these too.
    pub(super) fragments: HashMap<usize, Tensor>,
}

impl Engine {
    /// Gathers what this rank writes. Memory is needed for the rank's part and one storage besides;
    /// where stages 1 and 2 have the main rank write the model, for the model.
    ///
    /// # Collective
    /// Every rank calls this.
    pub(crate) fn gather(&self, writes_model: bool) -> Result<Gathered> {
        let partitions = self.partitions();
        let places = Places::of(self, &partitions);
        let empty = |kind: Kind, partition: &ZeroPartition| {
            let length = [partition.length as i64];
            Tensor::f_zeros(length, (kind, Device::Cpu))
        };
        let (mut weights, mut states) = (Vec::new(), Vec::new());
        for (partition, kinds) in partitions.iter().zip(&self.states.kinds) {
            weights.push(empty(Kind::Float, partition)?);
            let mut of_group = Vec::new();
            for (kind, of) in kinds {
                of_group.push((kind.clone(), empty(*of, partition)?));
            }
            states.push(of_group);
        }
        let is_stage_3 = self.stage() == 3;
        let (mut whole, mut fragments) = (HashMap::new(), HashMap::new());
        self.sharded.visit_whole(|identity, value| {
            let place = places.by_identity.get(&identity);
            if let Some((group, run)) = place
                && let (Some(vector), Some(run)) = (weights.get(*group), run)
            {
                copy(run, &value, vector)?;
            }
            if is_stage_3 && place.is_none() {
                fragments.insert(identity, self.fragment(&value)?);
            }
            if writes_model && !is_stage_3 {
                let kind = match place {
                    Some(_) => self.sharded.compute_kind(value.f_kind()?),
                    None => value.f_kind()?,
                };
                let value = value.f_to_device(Device::Cpu)?.f_to_kind(kind)?;
                whole.insert(identity, value);
            }
            Ok(())
        })?;
        let optimizer = self.optimizer.borrow();
        let model = std::slice::from_ref(&self.sharded);
        visit_whole_state(
            model,
            &*optimizer,
            &self.states.whole,
            |number, kind, value| {
                let Some((group, Some(run))) = places.by_number.get(number) else {
                    return Ok(());
                };
                let mut own = states.get(*group).into_iter().flatten();
                match own.find(|(name, _)| name == kind) {
                    Some((_, vector)) => copy(run, &value, vector),
                    None => Ok(()),
                }
            },
        )?;
        Ok(Gathered {
            weights,
            states,
            partitions,
            whole,
            fragments,
        })
    }

    /// This rank's part of a parameter that is not trained, with padding.
    fn fragment(&self, value: &Tensor) -> Result<Tensor> {
        let share = zero_share(value.numel(), self.ranks());
        let start = (self.rank() * share).min(value.numel());
        let end = (start + share).min(value.numel());
        let part = Tensor::f_zeros([share as i64], (value.f_kind()?, Device::Cpu))?;
        let run = ZeroRun {
            parameter: 0,
            range: start..end,
            begin: 0,
        };
        copy(&run, value, &part)?;
        Ok(part)
    }
}

/// In which group a parameter is, and this rank's run of it.
type Place = (usize, Option<ZeroRun>);

struct Places {
    by_identity: HashMap<usize, Place>,
    /// By the parameter's number in the optimizer.
    by_number: Vec<Place>,
}

impl Places {
    fn of(engine: &Engine, partitions: &[ZeroPartition]) -> Self {
        let (mut by_identity, mut by_number) = (HashMap::new(), Vec::new());
        for (group, (parameters, partition)) in engine.groups.iter().zip(partitions).enumerate() {
            let mut runs: Vec<Option<ZeroRun>> = vec![None; parameters.len()];
            for run in &partition.runs {
                if let Some(place) = runs.get_mut(run.parameter) {
                    *place = Some(run.clone());
                }
            }
            for (parameter, run) in parameters.iter().zip(runs) {
                by_identity.insert(parameter.identity, (group, run.clone()));
                by_number.push((group, run));
            }
        }
        Self {
            by_identity,
            by_number,
        }
    }
}

/// Copies a run of a whole value into its place in a vector.
fn copy(run: &ZeroRun, value: &Tensor, vector: &Tensor) -> Result<()> {
    let (start, count) = (run.range.start as i64, run.range.len() as i64);
    let own = value.f_reshape([-1])?.f_narrow(0, start, count)?;
    let mut place = vector.f_narrow(0, run.begin as i64, count)?;
    tch::no_grad(|| place.f_copy_(&own))?;
    Ok(())
}
