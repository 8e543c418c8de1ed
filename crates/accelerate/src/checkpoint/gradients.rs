//! The gradients of one rank in the middle of an accumulation.

use std::path::Path;
use std::rc::Rc;

use accelerate_formats::{Dict, Value};
use accelerate_torch::autograd;

use super::planned_file::{Content, PlannedFile};
use super::torch_state::{self, TorchState};
use crate::nn::Module as _;
use crate::registry::ModelHandle;
use crate::{Error, Result};

/// Behind the name of a parameter: what a rank keeps of its gradient's sum over ranks, beside a whole
/// gradient of the rank that is still to be added to it.
const SHARD: &str = "#shard";

/// The gradients of all models, by place and name.
pub(super) fn plan(name: String, models: &[Rc<ModelHandle>]) -> Result<PlannedFile> {
    let mut torch = TorchState::default();
    let mut all = Vec::new();
    for model in models {
        let mut own = Dict::new();
        let sharded = model.gradients().sharded();
        for (name, parameter) in model.named_parameters() {
            let parameter = parameter.tensor();
            if let Some(hidden) = sharded.and_then(|sharded| sharded.hidden_gradient(parameter)) {
                own.push(format!("{name}{SHARD}"), torch.tensor(&hidden)?);
            }
            if let Some(gradient) = autograd::grad(parameter)? {
                own.push(name, torch.tensor(&gradient)?);
            }
        }
        all.push(Value::from(own));
    }
    Ok(PlannedFile::new(name, Content::Torch(torch, all.into())))
}

/// Gives the models the gradients of a file, and none where it has none.
pub(super) fn load(path: &Path, models: &[Rc<ModelHandle>]) -> Result<()> {
    let value = torch_state::read(path)?;
    clear(models)?;
    let saved = value.as_slice().unwrap_or(&[]);
    for (place, model) in models.iter().enumerate() {
        for (name, parameter) in model.named_parameters() {
            let parameter = parameter.tensor();
            let stored = saved.get(place).and_then(|own| own.get(&name)?.as_tensor());
            let Some(stored) = stored else { continue };
            let stored = torch_state::tensor(stored)?;
            if let Some(sharded) = model.gradients().sharded()
                && sharded.restore_gradient(&name, parameter, &stored)?
            {
                continue;
            }
            if stored.size() != parameter.size() {
                return Err(Error::StateMismatch {
                    target: "gradients",
                    problems: vec![format!(
                        "`{name}`: expected {:?}, found {:?}",
                        parameter.size(),
                        stored.size()
                    )],
                });
            }
            let mut gradient = parameter.f_zeros_like()?;
            tch::no_grad(|| gradient.f_copy_(&stored))?;
            autograd::set_grad(parameter, Some(&gradient))?;
        }
        if let Some(own) = saved.get(place) {
            load_hidden(model, own)?;
        }
    }
    Ok(())
}

/// Gives shards what they keep beside whole gradients, which are there already.
fn load_hidden(model: &ModelHandle, saved: &Value) -> Result<()> {
    let Some(sharded) = model.gradients().sharded() else {
        return Ok(());
    };
    for (name, parameter) in model.named_parameters() {
        let stored = saved.get(&format!("{name}{SHARD}"));
        if let Some(stored) = stored.and_then(Value::as_tensor) {
            let stored = torch_state::tensor(stored)?;
            sharded.restore_hidden_gradient(&name, parameter.tensor(), &stored)?;
        }
    }
    Ok(())
}

/// Takes all gradients from the models.
pub(super) fn clear(models: &[Rc<ModelHandle>]) -> Result<()> {
    for model in models {
        for (_, parameter) in model.named_parameters() {
            let parameter = parameter.tensor();
            if autograd::grad(parameter)?.is_some() {
                autograd::set_grad(parameter, None)?;
            }
        }
    }
    Ok(())
}
