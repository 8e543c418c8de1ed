use tch::Tensor;

use super::flat::scalar;
use super::state_dict::{StateDict, StateReader, StateValue};
use crate::Result;

/// What Adafactor keeps for one parameter.
pub(super) struct FactoredMoments {
    step: u64,
    average: Option<Tensor>,
    squares: Squares,
}

/// The average of squared gradients.
enum Squares {
    /// Of vectors, element by element.
    Whole(Tensor),
    /// Of matrices, and of stacks of matrices: by rows and by columns.
    Factored { rows: Tensor, columns: Tensor },
}

impl Squares {
    fn new(gradient: &Tensor) -> Result<Self> {
        let shape = gradient.size();
        let [outer @ .., height, width] = shape.as_slice() else {
            return Ok(Self::Whole(gradient.f_zeros_like()?));
        };
        let options = (gradient.f_kind()?, gradient.device());
        Ok(Self::Factored {
            rows: Tensor::f_zeros([outer, &[*height]].concat(), options)?,
            columns: Tensor::f_zeros([outer, &[*width]].concat(), options)?,
        })
    }

    fn named(&self) -> Vec<(&'static str, &Tensor)> {
        match self {
            Self::Whole(squares) => vec![("exp_avg_sq", squares)],
            Self::Factored { rows, columns } => {
                vec![("exp_avg_sq_row", rows), ("exp_avg_sq_col", columns)]
            }
        }
    }
}

impl FactoredMoments {
    pub(super) fn new(gradient: &Tensor, averaged: bool) -> Result<Self> {
        Ok(Self {
            step: 0,
            average: match averaged {
                true => Some(gradient.f_zeros_like()?),
                false => None,
            },
            squares: Squares::new(gradient)?,
        })
    }

    pub(super) fn count_step(&mut self) {
        self.step += 1;
    }

    pub(super) fn steps(&self) -> f64 {
        self.step as f64
    }

    /// Moves the averages of squares on, and divides the gradient by their root.
    pub(super) fn normalised(&mut self, gradient: &Tensor, kept: f64, eps: f64) -> Result<Tensor> {
        let squares = gradient.f_square()?.f_add_scalar_(eps)?;
        let mut update = match &mut self.squares {
            Squares::Whole(average) => {
                move_on(average, &squares, kept)?;
                average.f_rsqrt()?
            }
            Squares::Factored { rows, columns } => {
                move_on(rows, &squares.f_mean_dim(-1, false, None)?, kept)?;
                move_on(columns, &squares.f_mean_dim(-2, false, None)?, kept)?;
                let mean = rows.f_mean_dim(-1, true, None)?;
                let by_row = rows.f_div(&mean)?.f_rsqrt_()?.f_unsqueeze(-1)?;
                by_row.f_mul(&columns.f_unsqueeze(-2)?.f_rsqrt()?)?
            }
        };
        Ok(update.f_mul_(gradient)?)
    }

    /// The average of updates, with this one in it.
    pub(super) fn averaged(&mut self, update: Tensor, beta1: f64) -> Result<Tensor> {
        let Some(average) = &mut self.average else {
            return Ok(update);
        };
        move_on(average, &update, beta1)?;
        Ok(average.shallow_clone())
    }

    pub(super) fn write(&self, state: &mut StateDict, prefix: &str) {
        let step = StateValue::Int(i64::try_from(self.step).unwrap_or(i64::MAX));
        state.push(format!("{prefix}step"), step);
        let average = self.average.iter().map(|average| ("exp_avg", average));
        for (name, tensor) in average.chain(self.squares.named()) {
            let value = StateValue::Tensor(tensor.shallow_clone());
            state.push(format!("{prefix}{name}"), value);
        }
    }

    pub(super) fn read(
        reader: &mut StateReader<'_>,
        prefix: &str,
        parameter: &Tensor,
        averaged: bool,
    ) -> Result<Option<Self>> {
        let own = Self::new(parameter, averaged)?;
        let step = reader.count(&format!("{prefix}step"));
        let mut tensor = |name: &str, like| reader.tensor(&format!("{prefix}{name}"), like);
        let average = match &own.average {
            Some(average) => tensor("exp_avg", average)?,
            None => None,
        };
        let squares = match &own.squares {
            Squares::Whole(squares) => tensor("exp_avg_sq", squares)?.map(Squares::Whole),
            Squares::Factored { rows, columns } => {
                let rows = tensor("exp_avg_sq_row", rows)?;
                let columns = tensor("exp_avg_sq_col", columns)?;
                rows.zip(columns)
                    .map(|(rows, columns)| Squares::Factored { rows, columns })
            }
        };
        Ok(step.zip(squares).map(|(step, squares)| Self {
            step,
            average,
            squares,
        }))
    }
}

/// `average * kept + new * (1 - kept)`, in place.
fn move_on(average: &mut Tensor, new: &Tensor, kept: f64) -> Result<()> {
    let _ = average.f_mul_scalar_(kept)?;
    let share = scalar(1.0 - kept, average)?;
    let _ = average.f_addcmul_(new, &share)?;
    Ok(())
}
