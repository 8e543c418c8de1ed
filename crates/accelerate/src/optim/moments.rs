use tch::{Kind, Tensor};

use super::state_dict::StateReader;
use crate::Result;

/// What an optimizer keeps for each parameter: tensors of the parameter's shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kinds {
    /// The tensors' names.
    pub(super) names: &'static [&'static str],
    /// How many of them, from the first on, begin as copies of the parameter.
    pub(super) copies: usize,
    /// What the others are filled with before the first step.
    pub(super) fill: f64,
    /// Whether all tensors of a name lie in one, so that one kernel call does for all.
    pub(super) flat: bool,
}

/// What is kept for one parameter.
pub(super) struct Moments {
    step: Tensor,
    tensors: Vec<Tensor>,
}

/// The moments of a cohort, as kernels take them.
pub(super) struct Lists {
    /// The number of the step, one for each parameter: a vector, of which `steps` are the elements.
    /// None where whoever made the lists counts.
    count: Option<Tensor>,
    pub(super) steps: Vec<Tensor>,
    tensors: Vec<Vec<Tensor>>,
    flats: Vec<Tensor>,
    /// Whether all parameters are laid out row by row, as the pieces of a flat tensor are.
    pub(super) contiguous: bool,
}

pub(super) fn none_for_each<T>(parameters: &[Tensor]) -> Vec<Option<T>> {
    parameters.iter().map(|_| None).collect()
}

impl Moments {
    fn new(parameter: &Tensor, kinds: Kinds) -> Result<Self> {
        let tensors = (0..kinds.names.len()).map(|kind| match kinds.fill {
            _ if kind < kinds.copies => copy_of(parameter),
            0.0 => Ok(parameter.f_zeros_like()?),
            fill => Ok(parameter.f_full_like(fill)?),
        });
        Ok(Self {
            step: first_step(parameter)?,
            tensors: tensors.collect::<Result<_, _>>()?,
        })
    }

    /// Those of a parameter that was never updated, in tensors that somebody made for it. What these
    /// hold is for [`begin`] to say.
    pub(super) fn in_tensors(parameter: &Tensor, tensors: Vec<Tensor>) -> Result<Self> {
        Ok(Self {
            step: first_step(parameter)?,
            tensors,
        })
    }

    /// The same with values in other tensors, which `keep` puts them into.
    pub(super) fn moved(self, keep: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>) -> Result<Self> {
        Ok(Self {
            tensors: keep(&self.tensors)?,
            step: self.step,
        })
    }

    /// The number of the step, as kernels take it.
    pub(super) fn step(&self) -> Tensor {
        self.step.shallow_clone()
    }

    /// Counts one more step.
    pub(super) fn count_step(&self) -> Result<()> {
        let _ = self.step.shallow_clone().f_add_scalar_(1.0)?;
        Ok(())
    }

    /// How many steps were made.
    pub(super) fn steps(&self) -> Result<u64> {
        Ok(self.step.f_double_value(&[])? as u64)
    }

    /// The tensor with the name at place `kind`.
    pub(super) fn tensor(&self, kind: usize) -> &Tensor {
        &self.tensors[kind]
    }

    pub(super) fn named(&self, kinds: Kinds) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let tensors = kinds.names.iter().copied().zip(&self.tensors);
        std::iter::once(("step", &self.step)).chain(tensors)
    }

    pub(super) fn read(
        reader: &mut StateReader<'_>,
        prefix: &str,
        parameter: &Tensor,
        kinds: Kinds,
    ) -> Result<Option<Self>> {
        let none = Self::new(
            parameter,
            Kinds {
                names: &[],
                ..kinds
            },
        )?
        .step;
        let step = reader.tensor(&format!("{prefix}step"), &none)?;
        let mut tensors = Vec::new();
        for name in kinds.names {
            tensors.extend(reader.tensor(&format!("{prefix}{name}"), parameter)?);
        }
        Ok(step
            .filter(|_| tensors.len() == kinds.names.len())
            .map(|step| Self { step, tensors }))
    }
}

impl Lists {
    pub(super) fn new(
        parameters: &[Tensor],
        moments: &mut [Option<Moments>],
        members: &[usize],
        kinds: Kinds,
    ) -> Result<Self> {
        for &index in members {
            if moments[index].is_none() {
                moments[index] = Some(Moments::new(&parameters[index], kinds)?);
            }
        }
        let own: Vec<&Moments> = members
            .iter()
            .filter_map(|&i| moments[i].as_ref())
            .collect();
        let steps: Vec<&Tensor> = own.iter().map(|own| &own.step).collect();
        let count = Tensor::f_stack(&steps, 0)?;
        let mut lists = Self {
            steps: count.f_unbind(0)?,
            count: Some(count),
            tensors: Vec::new(),
            flats: Vec::new(),
            contiguous: members.iter().all(|&i| parameters[i].is_contiguous()),
        };
        for kind in 0..kinds.names.len() {
            let tensors = own.iter().map(|own| own.tensors[kind].shallow_clone());
            lists.push(tensors.collect(), kinds.flat)?;
        }
        for (place, &index) in members.iter().enumerate() {
            let of = |list: &Vec<Tensor>| list[place].shallow_clone();
            moments[index] = Some(Moments {
                step: of(&lists.steps),
                tensors: lists.tensors.iter().map(of).collect(),
            });
        }
        Ok(lists)
    }

    /// Lists of parts of parameters, whose steps are counted elsewhere.
    pub(super) fn of_parts(
        steps: Vec<Tensor>,
        tensors: Vec<Vec<Tensor>>,
        flats: Vec<Tensor>,
    ) -> Self {
        Self {
            count: None,
            steps,
            tensors,
            flats,
            contiguous: true,
        }
    }

    fn push(&mut self, tensors: Vec<Tensor>, flat: bool) -> Result<()> {
        if flat {
            let whole = Tensor::f_flatten_dense_tensors(&tensors)?;
            self.tensors.push(split_like(&whole, &tensors)?);
            self.flats.push(whole);
        } else {
            self.tensors.push(tensors);
        }
        Ok(())
    }

    /// The tensors with the name at place `kind`, one for each parameter.
    pub(super) fn tensors(&self, kind: usize) -> &[Tensor] {
        self.tensors.get(kind).map_or(&[], Vec::as_slice)
    }

    /// All tensors with the name at place `kind` as one vector, if the kinds are flat.
    pub(super) fn flat(&self, kind: usize) -> Tensor {
        self.flats[kind].shallow_clone()
    }

    /// Counts one more step of every parameter.
    pub(super) fn count_step(&self) -> Result<()> {
        if let Some(count) = &self.count {
            let _ = count.shallow_clone().f_add_scalar_(1.0)?;
        }
        Ok(())
    }
}

/// The number of steps of a parameter that was never updated.
fn first_step(parameter: &Tensor) -> Result<Tensor> {
    Ok(Tensor::f_zeros(
        [0i64; 0],
        (Kind::Float, parameter.device()),
    )?)
}

/// Fills the tensors of a part of a parameter, one for each kind, with what they begin as.
pub(super) fn begin<'t>(
    parameter: &Tensor,
    tensors: impl Iterator<Item = &'t Tensor>,
    kinds: Kinds,
) -> Result<()> {
    for (kind, tensor) in tensors.enumerate() {
        let mut tensor = tensor.shallow_clone();
        match kind < kinds.copies {
            true => tensor.f_copy_(parameter)?,
            false => drop(tensor.f_fill_(kinds.fill)?),
        }
    }
    Ok(())
}

fn copy_of(parameter: &Tensor) -> Result<Tensor> {
    let mut copy = parameter.f_zeros_like()?;
    tch::no_grad(|| copy.f_copy_(parameter))?;
    Ok(copy)
}

/// The pieces of a flat tensor with the shapes of `like`, as views.
pub(super) fn split_like(flat: &Tensor, like: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(Tensor::f_unflatten_dense_tensors(flat, like)?)
}
