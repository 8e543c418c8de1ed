//! The random generators of one rank.

use std::path::Path;

use accelerate_formats::{Dict, Value};
use accelerate_torch::Generator;
use tch::{Device, Tensor};

use super::planned_file::{Content, PlannedFile};
use super::torch_state::{self, TorchState};
use crate::Result;
use crate::random::cuda_devices;

const CPU: &str = "torch_manual_seed";
const CUDA: &str = "torch_cuda_manual_seed";
/// The original's one count, and ours by model.
const STEP: &str = "step";
const ACCUMULATION: &str = "accumulation";

/// The generators' states with how far gradients were accumulated, in the original's form.
///
/// Python's own generators are not there: a program in Rust has none, and Python leaves its own
/// as they are where a file lacks them.
pub(super) fn plan(name: String, accumulation: Value) -> Result<PlannedFile> {
    let mut torch = TorchState::default();
    let mut dict = Dict::new()
        .with(STEP, step_of(&accumulation))
        .with(ACCUMULATION, accumulation);
    dict.push(CPU, torch.tensor(&Generator::default_cpu()?.state()?)?);
    let gpus = cuda_devices();
    if !gpus.is_empty() {
        let states = gpus.into_iter().map(|gpu| {
            let state = Generator::default_of(gpu)?.state()?;
            torch.tensor(&state)
        });
        let states = states.collect::<Result<Vec<Value>>>()?;
        dict.push(CUDA, states);
    }
    Ok(PlannedFile::new(name, Content::Torch(torch, dict.into())))
}

/// The largest count of batches since gradients were last complete.
fn step_of(accumulation: &Value) -> Value {
    let counts = accumulation.as_slice().unwrap_or(&[]).iter();
    let largest = counts
        .filter_map(|entry| entry.get("count")?.as_int())
        .max();
    Value::Int(largest.unwrap_or(0))
}

/// Restores what a file holds, and gives the counts of accumulation and what the file lacks.
pub(super) fn load(path: &Path) -> Result<(Option<Value>, Vec<String>)> {
    let value = torch_state::read(path)?;
    let mut problems = Vec::new();
    let mut restore = |name: &str, device: Device, state: Option<&Value>| -> Result<()> {
        let Some(Value::Tensor(state)) = state else {
            problems.push(format!("`{name}` is missing"));
            return Ok(());
        };
        let state: Tensor = torch_state::tensor(state)?;
        if let Err(error) = Generator::default_of(device)?.set_state(&state) {
            problems.push(format!("`{name}`: {error}"));
        }
        Ok(())
    };
    restore(CPU, Device::Cpu, value.get(CPU))?;
    let saved = value.get(CUDA).and_then(Value::as_slice).unwrap_or(&[]);
    for (index, gpu) in cuda_devices().into_iter().enumerate() {
        restore(&format!("{CUDA}[{index}]"), gpu, saved.get(index))?;
    }
    Ok((value.get(ACCUMULATION).cloned(), problems))
}
