use tch::{Kind, Tensor};

use super::state_dict::StateReader;
use crate::Result;

/// What is kept for one parameter.
pub(super) struct Moments {
    step: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Option<Tensor>,
}

/// The moments of a cohort, as the kernel takes them.
pub(super) struct Lists {
    pub(super) steps: Vec<Tensor>,
    pub(super) exp_avgs: Vec<Tensor>,
    pub(super) exp_avg_sqs: Vec<Tensor>,
    pub(super) max_exp_avg_sqs: Vec<Tensor>,
}

pub(super) fn none_for_each<T>(parameters: &[Tensor]) -> Vec<Option<T>> {
    parameters.iter().map(|_| None).collect()
}

impl Moments {
    fn zeros(parameter: &Tensor, amsgrad: bool) -> Result<Self> {
        Ok(Self {
            step: Tensor::f_zeros([0i64; 0], (Kind::Float, parameter.device()))?,
            exp_avg: parameter.f_zeros_like()?,
            exp_avg_sq: parameter.f_zeros_like()?,
            max_exp_avg_sq: if amsgrad {
                Some(parameter.f_zeros_like()?)
            } else {
                None
            },
        })
    }

    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let fixed = [
            ("step", &self.step),
            ("exp_avg", &self.exp_avg),
            ("exp_avg_sq", &self.exp_avg_sq),
        ];
        fixed.into_iter().chain(
            self.max_exp_avg_sq
                .as_ref()
                .map(|max| ("max_exp_avg_sq", max)),
        )
    }

    pub(super) fn read(
        reader: &mut StateReader<'_>,
        prefix: &str,
        parameter: &Tensor,
        amsgrad: bool,
    ) -> Result<Option<Self>> {
        let Self { step, .. } = Self::zeros(parameter, false)?;
        let step = reader.tensor(&format!("{prefix}step"), &step)?;
        let exp_avg = reader.tensor(&format!("{prefix}exp_avg"), parameter)?;
        let exp_avg_sq = reader.tensor(&format!("{prefix}exp_avg_sq"), parameter)?;
        let max_exp_avg_sq = match amsgrad {
            true => reader.tensor(&format!("{prefix}max_exp_avg_sq"), parameter)?,
            false => None,
        };
        let (Some(step), Some(exp_avg), Some(exp_avg_sq)) = (step, exp_avg, exp_avg_sq) else {
            return Ok(None);
        };
        Ok(Some(Self {
            step,
            exp_avg,
            exp_avg_sq,
            max_exp_avg_sq,
        }))
    }
}

impl Lists {
    pub(super) fn new(
        parameters: &[Tensor],
        moments: &mut [Option<Moments>],
        members: &[usize],
        amsgrad: bool,
    ) -> Result<Self> {
        let mut lists = Self {
            steps: Vec::with_capacity(members.len()),
            exp_avgs: Vec::with_capacity(members.len()),
            exp_avg_sqs: Vec::with_capacity(members.len()),
            max_exp_avg_sqs: Vec::new(),
        };
        for &index in members {
            let own = match moments[index].take() {
                Some(own) => own,
                None => Moments::zeros(&parameters[index], amsgrad)?,
            };
            lists.steps.push(own.step.shallow_clone());
            lists.exp_avgs.push(own.exp_avg.shallow_clone());
            lists.exp_avg_sqs.push(own.exp_avg_sq.shallow_clone());
            lists
                .max_exp_avg_sqs
                .extend(own.max_exp_avg_sq.as_ref().map(Tensor::shallow_clone));
            moments[index] = Some(own);
        }
        Ok(lists)
    }
}
