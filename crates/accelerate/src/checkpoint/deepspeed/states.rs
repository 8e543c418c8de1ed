//! What an optimizer keeps, by group and parameter.

use std::collections::HashMap;

use tch::{Kind, Tensor};

use super::engine::{Named, Unfit};
use crate::optim::{Optimizer, StateDict, StateValue};

/// What counts steps and belongs to no number of a parameter.
const STEP: &str = "step";
/// How many parameters a group has.
const PARAMETERS: &str = "parameters";

/// The state of an optimizer that fits into flat vectors: of each parameter in a group the same kinds.
#[derive(Debug)]
pub(super) struct States {
    /// All of it.
    pub(super) whole: StateDict,
    /// What is not of single parameters, with one parameter in each group: its vector.
    pub(super) settings: StateDict,
    /// Of each group the kinds that have a number for each number of a parameter, with their type.
    pub(super) kinds: Vec<Vec<(String, Kind)>>,
    /// How many steps each group has made; none where it has no state.
    pub(super) steps: Vec<Option<Tensor>>,
    /// How many steps the optimizer has made.
    pub(super) count: u64,
}

impl States {
    /// # Errors
    /// [`Unfit::Because`] for a state that has no such form.
    pub(super) fn of(optimizer: &dyn Optimizer, groups: &[Vec<Named>]) -> Result<Self, Unfit> {
        let whole = optimizer.state_dict()?;
        let (mut settings, mut by_number) = (StateDict::new(), HashMap::<_, Vec<_>>::new());
        for (name, value) in whole.iter() {
            let Some((number, kind)) = of_parameter(name) else {
                settings.push(name, setting(name, value));
                continue;
            };
            let StateValue::Tensor(tensor) = value else {
                let reason = format!("`{}` keeps {value:?} as `{name}`", optimizer.name());
                return Err(Unfit::Because(reason));
            };
            by_number.entry(number).or_default().push((kind, tensor));
        }
        let (mut kinds, mut steps, mut number) = (Vec::new(), Vec::new(), 0usize);
        for group in groups {
            let mut of_group = None;
            for parameter in group {
                let own = by_number.remove(&number).unwrap_or_default();
                let own = Form::of(parameter, own)?;
                if *of_group.get_or_insert_with(|| own.clone()) != own {
                    let reason = format!(
                        "what `{}` keeps of `{}` is of another kind than for the others in its group",
                        optimizer.name(),
                        parameter.name
                    );
                    return Err(Unfit::Because(reason));
                }
                number += 1;
            }
            let form = of_group.unwrap_or_default();
            kinds.push(form.kinds);
            let step = form.step.map(|(kind, count)| {
                let step = f64::from_bits(count);
                Tensor::f_full([0i64; 0], step, (kind, tch::Device::Cpu))
            });
            steps.push(step.transpose()?);
        }
        let count = match whole.get("step_count") {
            Some(StateValue::Int(count)) => u64::try_from(*count).unwrap_or(0),
            _ => 0,
        };
        Ok(Self {
            whole,
            settings,
            kinds,
            steps,
            count,
        })
    }
}

/// What is kept of one parameter.
#[derive(Debug, Clone, PartialEq, Default)]
struct Form {
    kinds: Vec<(String, Kind)>,
    /// The type and the bits of the step.
    step: Option<(Kind, u64)>,
}

impl Form {
    fn of(parameter: &Named, own: Vec<(&str, &Tensor)>) -> Result<Self, Unfit> {
        let mut form = Self::default();
        let length = parameter.kept.range.len() as i64;
        for (kind, tensor) in own {
            let of = tensor.f_kind()?;
            if kind == STEP && tensor.numel() == 1 {
                form.step = Some((of, tensor.f_double_value(&[])?.to_bits()));
            } else if tensor.size() == [length] {
                form.kinds.push((kind.to_owned(), of));
            } else {
                let name = &parameter.name;
                let reason = format!("`{kind}` of `{name}` is not one number for each of its own");
                return Err(Unfit::Because(reason));
            }
        }
        Ok(form)
    }
}

/// `state.3.exp_avg` as 3 and `exp_avg`.
fn of_parameter(name: &str) -> Option<(usize, &str)> {
    let (number, kind) = name.strip_prefix("state.")?.split_once('.')?;
    Some((number.parse().ok()?, kind))
}

/// A setting, with one vector in the place of a group's parameters.
fn setting(name: &str, value: &StateValue) -> StateValue {
    let counts = name.starts_with("group.") && name.ends_with(&format!(".{PARAMETERS}"));
    match counts {
        true => StateValue::Int(1),
        false => value.handle(),
    }
}
