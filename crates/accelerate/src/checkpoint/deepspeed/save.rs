//! The files of a rank.

use std::collections::HashMap;
use std::path::Path;

use accelerate_formats::zero::{FrozenPart, ModelStates, OptimizerStates};
use accelerate_formats::{Dict, Value};
use accelerate_torch::storage;
use tch::{Device, Kind, Tensor};

use super::engine::{Engine, Named};
use super::gather::Gathered;
use super::{LATEST, tag};
use crate::Result;
use crate::checkpoint::folder::io;
use crate::checkpoint::planned_file::{Content, PlannedFile};
use crate::checkpoint::together;
use crate::checkpoint::torch_state::TorchState;
use crate::nn::{all_parameters, all_state};
use crate::optim::StateValue;
use crate::state::PartialState;

/// Gathers what this rank writes of all models and optimizers, and makes the folders for it.
///
/// # Collective
/// Every rank calls this.
pub(in crate::checkpoint) fn plan(
    engines: &[Engine],
    state: &PartialState,
    folder: &Path,
    files: &mut Vec<PlannedFile>,
) -> Result<()> {
    let is_main = state.is_main_process();
    let mut gathered = Vec::with_capacity(engines.len());
    for engine in engines {
        gathered.push(together(state, engine.gather(is_main))?);
    }
    // From here on each rank is for itself.
    for (index, (engine, own)) in engines.iter().zip(gathered).enumerate() {
        if !engine.sharded.has_first_copy() {
            continue;
        }
        let place = folder.join(tag(index));
        std::fs::create_dir_all(&place).map_err(|source| io("make the folder", &place, source))?;
        let within = |name: String| format!("{}/{name}", tag(index));
        let (stage, rank) = (engine.stage(), engine.rank());
        if is_main || stage == 3 {
            let (torch, value) = model_states(engine, &own)?;
            let name = within(ModelStates::file(stage, rank));
            files.push(PlannedFile::new(name, Content::Torch(torch, value)));
        }
        let (torch, value) = optimizer_states(engine, &own)?;
        let name = within(OptimizerStates::file(rank, engine.is_bf16()));
        files.push(PlannedFile::new(name, Content::Torch(torch, value)));
    }
    if is_main && let Some(last) = engines.len().checked_sub(1) {
        let tag = tag(last).into_bytes();
        files.push(PlannedFile::new(LATEST, Content::Bytes(tag)));
    }
    Ok(())
}

fn model_states(engine: &Engine, own: &Gathered) -> Result<(TorchState, Value)> {
    let mut torch = TorchState::default();
    let (module, buffers, values) = module(engine, own, &mut torch)?;
    let mut frozen = Vec::with_capacity(engine.frozen.len());
    for parameter in &engine.frozen {
        let identity = parameter.identity;
        let values = match own.fragments.get(&identity) {
            Some(fragment) => torch.tensor(fragment)?,
            None => values.get(&identity).cloned().unwrap_or(Value::None),
        };
        frozen.push(FrozenPart {
            name: parameter.name.clone(),
            shape: parameter.kept.shape.clone(),
            values,
        });
    }
    let groups = engine.groups.iter().map(|group| {
        let group = group.iter();
        let named = |one: &Named| (one.name.clone(), one.kept.shape.clone());
        group.map(named).collect()
    });
    let states = ModelStates {
        stage: engine.stage(),
        ranks: engine.ranks().get(),
        module,
        buffers,
        groups: groups.collect(),
        frozen,
        aliases: engine.aliases.clone(),
        steps: engine.states.count,
    };
    Ok((torch, states.into_value()))
}

/// The module's tensors by name, the names of its buffers, and each parameter by its identity.
fn module(
    engine: &Engine,
    own: &Gathered,
    torch: &mut TorchState,
) -> Result<(Dict, Vec<String>, HashMap<usize, Value>)> {
    let parameters = all_parameters(&*engine.model).into_iter();
    let kinds: HashMap<usize, Kind> = parameters
        .map(|(_, parameter)| Ok((parameter.identity(), parameter.tensor().f_kind()?)))
        .collect::<Result<_>>()?;
    let (mut module, mut buffers, mut values) = (Dict::new(), Vec::new(), HashMap::new());
    for (name, tensor) in all_state(&*engine.model) {
        let identity = storage::identity(tensor);
        let Some(kind) = kinds.get(&identity) else {
            module.push(name.as_str(), torch.tensor(tensor)?);
            buffers.push(name);
            continue;
        };
        let value = match values.get(&identity) {
            Some(value) => Value::clone(value),
            None => {
                let value = match own.whole.get(&identity) {
                    Some(whole) => torch.tensor(whole)?,
                    // What lies in other files has nothing here.
                    None => torch.tensor(&Tensor::f_zeros([0], (*kind, Device::Cpu))?)?,
                };
                values.insert(identity, value.clone());
                value
            }
        };
        module.push(name, value);
    }
    Ok((module, buffers, values))
}

fn optimizer_states(engine: &Engine, own: &Gathered) -> Result<(TorchState, Value)> {
    let mut torch = TorchState::default();
    let mut state = engine.states.settings.iter().fold(
        crate::optim::StateDict::new(),
        |mut state, (name, value)| {
            state.push(name, value.handle());
            state
        },
    );
    for (group, kinds) in own.states.iter().enumerate() {
        if let Some(Some(step)) = engine.states.steps.get(group) {
            let step = StateValue::Tensor(step.shallow_clone());
            state.push(format!("state.{group}.step"), step);
        }
        for (kind, vector) in kinds {
            let vector = StateValue::Tensor(vector.shallow_clone());
            state.push(format!("state.{group}.{kind}"), vector);
        }
    }
    let state = torch.optimizer(&state)?;
    let (mut weights, mut padding) = (Vec::new(), Vec::new());
    for (vector, partition) in own.weights.iter().zip(&own.partitions) {
        let saved = vector.f_narrow(0, 0, partition.saved as i64)?;
        weights.push(torch.tensor(&saved)?);
        padding.push(partition.length - partition.saved);
    }
    let states = OptimizerStates {
        stage: engine.stage(),
        ranks: engine.ranks().get(),
        state,
        weights,
        padding,
        clipping: engine.clipping(),
    };
    Ok((torch, states.into_value()))
}
