use tch::Tensor;

use super::progress::{Progress, Weighing};
use crate::optim::cohort::Cohort;
use crate::optim::engine::{Engine, Field, Numbers, UpdateRule};
use crate::optim::flat;
use crate::optim::group::non_negative;
use crate::optim::moments::{Kinds, Lists};
use crate::{Error, Result};

/// In which direction one schedule-free optimizer steps; [`Averaged`] does the rest.
pub(super) trait Direction: Clone {
    /// The optimizer's name.
    const NAME: &'static str;
    /// What is kept for each parameter; `z` comes first.
    const NAMES: &'static [&'static str];

    /// Refuses settings that cannot be.
    fn check(&self) -> Result<()>;

    /// Learning rate and weight decay of groups that have none of their own.
    fn defaults(&self) -> (f64, f64);

    /// The settings of [`weighing`](Self::weighing), and those of the direction.
    fn fields(&mut self) -> Vec<(&'static str, Field<'_>)>;

    /// How the rate begins, and how much each point counts.
    fn weighing(&self) -> Weighing;

    /// How close to the average gradients are taken: between 0 and 1.
    fn interpolation(&self) -> f64;

    /// What step number `step` goes against, without weight decay.
    fn direction(&self, gradient: Tensor, lists: &Lists, step: u64) -> Result<Tensor>;
}

/// The rule of a schedule-free optimizer.
#[derive(Debug, Clone)]
pub(super) struct Averaged<D> {
    direction: D,
    train_mode: bool,
    groups: Vec<Progress>,
}

impl<D: Direction> Averaged<D> {
    pub(super) fn new(direction: D) -> Self {
        Self {
            direction,
            train_mode: false,
            groups: Vec::new(),
        }
    }

    fn ensure(&mut self, group: usize) {
        let groups = self.groups.len().max(group + 1);
        self.groups.resize(groups, Progress::default());
    }
}

impl<D: Direction> UpdateRule for Averaged<D> {
    const NAME: &'static str = D::NAME;
    // Gradients are taken at a place that depends on it, so that no schedule may move it.
    const MOMENTUM: Option<&'static str> = None;

    fn check(&self) -> Result<()> {
        self.direction.check()?;
        let weighing = self.direction.weighing();
        non_negative("weight_lr_power", weighing.weight_lr_power)?;
        non_negative("r", weighing.r)?;
        let beta = self.direction.interpolation();
        if beta > 0.0 && beta < 1.0 {
            return Ok(());
        }
        Err(Error::Argument {
            operation: D::NAME,
            expected: "a momentum or first beta above 0 and below 1".to_owned(),
            found: beta.to_string(),
        })
    }

    fn defaults(&self) -> (f64, f64) {
        self.direction.defaults()
    }

    fn fields(&mut self) -> Vec<(&'static str, Field<'_>)> {
        self.direction.fields()
    }

    fn fields_of(&mut self, group: usize) -> Vec<(&'static str, Field<'_>)> {
        self.ensure(group);
        let mut fields = self.direction.fields();
        fields.push(("train_mode", Field::Bool(&mut self.train_mode)));
        let stand = &mut self.groups[group];
        fields.push(("k", Field::Count(&mut stand.k)));
        fields.push(("weight_sum", Field::Float(&mut stand.weight_sum)));
        fields.push(("lr_max", Field::Float(&mut stand.lr_max)));
        fields.push(("scheduled_lr", Field::Float(&mut stand.scheduled_lr)));
        fields
    }

    fn kinds(&self) -> Kinds {
        Kinds {
            names: D::NAMES,
            copies: 1,
            fill: 0.0,
            flat: true,
        }
    }

    fn begin_step(&mut self, group: usize, lr: f64) -> Result<()> {
        if !self.train_mode {
            return Err(Error::Argument {
                operation: D::NAME,
                expected: "`train` before a step, as after each `eval`".to_owned(),
                found: "a step in evaluation mode".to_owned(),
            });
        }
        self.ensure(group);
        self.groups[group].advance(lr, self.direction.weighing());
        Ok(())
    }

    fn update(&self, cohort: &Cohort<Lists>, numbers: Numbers) -> Result<()> {
        let Progress {
            k,
            scheduled_lr: lr,
            share,
            ..
        } = self.groups[numbers.group];
        let from = flat::parameters(cohort)?;
        let gradient = flat::gradients(cohort)?;
        let mut direction = self.direction.direction(gradient, &cohort.lists, k)?;
        if numbers.weight_decay != 0.0 {
            direction = flat::add_scaled(&direction, &from, numbers.weight_decay)?;
        }
        // Where `y` comes to when `x` and `z` have moved, without computing `x`.
        let beta = self.direction.interpolation();
        let mut z = cohort.lists.flat(0);
        let y = from.f_lerp(&z, share)?;
        let y = flat::add_scaled(&y, &direction, lr * (beta * (1.0 - share) - 1.0))?;
        let back = flat::scalar(-lr, &z)?;
        let _ = z.f_addcmul_(&direction, &back)?;
        flat::set_parameters(cohort, &y)
    }
}

impl<D: Direction> Engine<Averaged<D>> {
    /// Puts `y` into the parameters to train, or `x` to evaluate.
    pub(super) fn set_train_mode(&mut self, train: bool) -> Result<()> {
        if self.rule.train_mode == train {
            return Ok(());
        }
        let beta = self.rule.direction.interpolation();
        let towards_z = match train {
            true => 1.0 - beta,
            false => 1.0 - 1.0 / beta,
        };
        tch::no_grad(|| -> Result<()> {
            for (parameter, moments) in self.updated() {
                let _ = parameter
                    .shallow_clone()
                    .f_lerp_(moments.tensor(0), towards_z)?;
            }
            Ok(())
        })?;
        self.rule.train_mode = train;
        Ok(())
    }
}

/// Makes an optimizer of a struct with an `engine` that has both modes.
macro_rules! schedule_free_optimizer {
    ($optimizer:ident) => {
        crate::optim::engine::optimizer_with_engine!($optimizer, {
            fn train(&mut self) -> crate::Result<()> {
                self.engine.set_train_mode(true)
            }

            fn eval(&mut self) -> crate::Result<()> {
                self.engine.set_train_mode(false)
            }
        });
    };
}

pub(super) use schedule_free_optimizer;
