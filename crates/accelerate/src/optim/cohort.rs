use accelerate_torch::autograd;
use tch::{Device, Kind, Tensor};

use crate::{Error, Result};

/// Parameters of one group with gradients, which one kernel call updates
/// together because they have one device and one kind.
pub(super) struct Cohort<L> {
    pub(super) parameters: Vec<Tensor>,
    pub(super) gradients: Vec<Tensor>,
    /// The optimizer's own lists, in the order of `parameters`.
    pub(super) lists: L,
    members: Vec<usize>,
}

/// The cohorts of one parameter group.
///
/// The lists are made once and used again as long as the same parameters have
/// gradients; only the gradients are looked up at each step.
pub(super) struct Cohorts<L> {
    cohorts: Vec<Cohort<L>>,
    present: Vec<bool>,
}

impl<L> Cohort<L> {
    /// Parameters with their gradients and lists, which are made for one call.
    pub(super) fn new(parameters: Vec<Tensor>, gradients: Vec<Tensor>, lists: L) -> Self {
        Self {
            parameters,
            gradients,
            lists,
            members: Vec::new(),
        }
    }
}

impl<L> Cohorts<L> {
    pub(super) fn new() -> Self {
        Self {
            cohorts: Vec::new(),
            present: Vec::new(),
        }
    }

    /// Looks the gradients up, and makes new lists if other parameters have one now.
    ///
    /// Parameters with different `apart` are never in one cohort; `build` makes
    /// the lists for the parameters with the given places in the group.
    pub(super) fn refresh(
        &mut self,
        parameters: &[Tensor],
        apart: impl Fn(usize) -> u64,
        mut build: impl FnMut(&[usize]) -> Result<L>,
    ) -> Result<&mut [Cohort<L>]> {
        let mut gradients = parameters
            .iter()
            .map(autograd::grad)
            .collect::<Result<Vec<_>, _>>()?;
        check_lengths(parameters, &gradients)?;
        let same = self.present.len() == gradients.len()
            && self
                .present
                .iter()
                .zip(&gradients)
                .all(|(&had, now)| had == now.is_some());
        if !same {
            self.cohorts.clear();
            self.present.clear();
            for members in split(parameters, &gradients, apart)? {
                self.cohorts.push(Cohort {
                    parameters: members
                        .iter()
                        .map(|&i| parameters[i].shallow_clone())
                        .collect(),
                    gradients: Vec::with_capacity(members.len()),
                    lists: build(&members)?,
                    members,
                });
            }
            self.present = gradients.iter().map(Option::is_some).collect();
        }
        for cohort in &mut self.cohorts {
            cohort.gradients.clear();
            cohort
                .gradients
                .extend(cohort.members.iter().filter_map(|&i| gradients[i].take()));
        }
        Ok(&mut self.cohorts)
    }

    /// Lets go of the gradients, so that clearing them frees their memory.
    pub(super) fn release(&mut self) {
        for cohort in &mut self.cohorts {
            cohort.gradients.clear();
        }
    }

    /// Forgets the lists if one of them is out of date.
    pub(super) fn reset_if(&mut self, outdated: impl Fn(&L) -> bool) {
        if self.cohorts.iter().any(|cohort| outdated(&cohort.lists)) {
            self.reset();
        }
    }

    /// Forgets the lists, after state was replaced.
    pub(super) fn reset(&mut self) {
        self.cohorts.clear();
        self.present.clear();
    }
}

/// Kernels go over parameters and gradients by one length.
pub(super) fn check_lengths(parameters: &[Tensor], gradients: &[Option<Tensor>]) -> Result<()> {
    for (parameter, gradient) in parameters.iter().zip(gradients) {
        let Some(gradient) = gradient else { continue };
        if gradient.numel() != parameter.numel() {
            return Err(Error::Argument {
                operation: "optimizer step",
                expected: format!("a gradient of shape {:?}", parameter.size()),
                found: format!(
                    "one of shape {:?}; of a model in shards, gradients come from \
                     `Accelerator::backward` and are complete where they are synchronised",
                    gradient.size()
                ),
            });
        }
    }
    Ok(())
}

/// The places of parameters with gradients, one list per device, kind and `apart`.
fn split(
    parameters: &[Tensor],
    gradients: &[Option<Tensor>],
    apart: impl Fn(usize) -> u64,
) -> Result<Vec<Vec<usize>>> {
    let mut lists: Vec<((Device, Kind, u64), Vec<usize>)> = Vec::new();
    for (index, parameter) in parameters.iter().enumerate() {
        if gradients[index].is_none() {
            continue;
        }
        let key = (parameter.device(), parameter.f_kind()?, apart(index));
        match lists.iter_mut().find(|(existing, _)| *existing == key) {
            Some((_, members)) => members.push(index),
            None => lists.push((key, vec![index])),
        }
    }
    Ok(lists.into_iter().map(|(_, members)| members).collect())
}
