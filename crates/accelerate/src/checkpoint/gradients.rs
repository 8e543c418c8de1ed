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

/// The gradients of all models, by place and name.
pub(super) fn plan(name: String, models: &[Rc<ModelHandle>]) -> Result<PlannedFile> {
    let mut torch = TorchState::default();
    let mut all = Vec::new();
    for model in models {
        let mut own = Dict::new();
        for (name, parameter) in model.named_parameters() {
            if let Some(gradient) = autograd::grad(parameter.tensor())? {
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
