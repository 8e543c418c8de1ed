//! A schedule of PyTorch by the config's name for it.

use std::num::NonZeroU64;

use accelerate_plan::config::{Value, inline_json, nearest};
use accelerate_plan::parallel::deepspeed::NamedScheduler;
use indexmap::IndexMap;

use super::refused::refused;
use crate::Result;
use crate::optim::{
    AnnealStrategy, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR,
    LinearLR, MultiStepLR, OneCycleLR, OneCycleLRConfig, Optimizer, PolynomialLR, Scheduler,
    StepLR,
};

/// What the config may name.
pub(super) const KNOWN: &str = "`StepLR`, `MultiStepLR`, `ConstantLR`, `LinearLR`, `ExponentialLR`, \
                                `PolynomialLR`, `CosineAnnealingLR`, `CosineAnnealingWarmRestarts`, \
                                `OneCycleLR`";

/// Makes the schedule of PyTorch that the config names, if this library has it.
///
/// # Errors
/// [`Error::Sharding`](crate::Error::Sharding) for a parameter that it does not have, lacks or cannot
/// be; [`Error::Argument`](crate::Error::Argument) for a number out of its range.
pub(super) fn build(
    named: &NamedScheduler,
    params: &IndexMap<String, Value>,
    optimizer: &dyn Optimizer,
) -> Result<Option<Box<dyn Scheduler>>> {
    let own = Params { named, params };
    let made: Box<dyn Scheduler> = match named.name.as_str() {
        "StepLR" => {
            own.only(&["step_size", "gamma"])?;
            let (step, gamma) = (
                own.steps("step_size", None)?,
                own.number("gamma", Some(0.1))?,
            );
            Box::new(StepLR::new(optimizer, step, gamma))
        }
        "MultiStepLR" => {
            own.only(&["milestones", "gamma"])?;
            let gamma = own.number("gamma", Some(0.1))?;
            Box::new(MultiStepLR::new(optimizer, own.milestones()?, gamma))
        }
        "ConstantLR" => {
            own.only(&["factor", "total_iters"])?;
            let factor = own.number("factor", Some(1.0 / 3.0))?;
            let steps = own.count("total_iters", Some(5))?;
            Box::new(ConstantLR::new(optimizer, factor, steps)?)
        }
        "LinearLR" => {
            own.only(&["start_factor", "end_factor", "total_iters"])?;
            let start = own.number("start_factor", Some(1.0 / 3.0))?;
            let end = own.number("end_factor", Some(1.0))?;
            let steps = own.count("total_iters", Some(5))?;
            Box::new(LinearLR::new(optimizer, start, end, steps)?)
        }
        "ExponentialLR" => {
            own.only(&["gamma"])?;
            Box::new(ExponentialLR::new(optimizer, own.number("gamma", None)?))
        }
        "PolynomialLR" => {
            own.only(&["total_iters", "power"])?;
            let steps = own.count("total_iters", Some(5))?;
            let power = own.number("power", Some(1.0))?;
            Box::new(PolynomialLR::new(optimizer, steps, power)?)
        }
        "CosineAnnealingLR" => {
            own.only(&["T_max", "eta_min"])?;
            let (steps, least) = (own.steps("T_max", None)?, own.number("eta_min", Some(0.0))?);
            Box::new(CosineAnnealingLR::new(optimizer, steps, least))
        }
        "CosineAnnealingWarmRestarts" => {
            own.only(&["T_0", "T_mult", "eta_min"])?;
            let factor = own.steps("T_mult", Some(NonZeroU64::MIN))?;
            let (steps, least) = (own.steps("T_0", None)?, own.number("eta_min", Some(0.0))?);
            let schedule = CosineAnnealingWarmRestarts::new(optimizer, steps, factor, least);
            Box::new(schedule)
        }
        "OneCycleLR" => Box::new(own.one_cycle(optimizer)?),
        _ => return Ok(None),
    };
    Ok(Some(made))
}

/// What the config says of a schedule.
struct Params<'c> {
    named: &'c NamedScheduler,
    params: &'c IndexMap<String, Value>,
}

impl Params<'_> {
    fn refuse(&self, name: &str, found: &str, expected: impl Into<String>) -> crate::Error {
        let key = format!("scheduler.params.{name}");
        refused(key, found, expected, &self.named.origin)
    }

    /// Refuses parameters with other names than these.
    fn only(&self, known: &[&str]) -> Result<()> {
        let mut names = self.params.keys();
        let Some(unknown) = names.find(|name| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let all = known.join("`, `");
        let expected = match nearest(unknown, known.iter().copied()) {
            Some(alike) => format!("`{alike}`, or another parameter of it: `{all}`"),
            None => format!("a parameter of it: `{all}`"),
        };
        let found = self.params.get(unknown).map(inline_json);
        Err(self.refuse(unknown, &found.unwrap_or_default(), expected))
    }

    /// A value, read as something; `otherwise` where there is none.
    fn read<T>(
        &self,
        name: &str,
        what: &str,
        otherwise: Option<T>,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<T> {
        let found = self.params.get(name).filter(|value| **value != Value::Null);
        let value = match found {
            Some(value) => read(value),
            None => otherwise,
        };
        let found = found.map_or_else(|| "absent".to_owned(), inline_json);
        value.ok_or_else(|| self.refuse(name, &found, format!("{what} for `{}`", self.named.name)))
    }

    fn number(&self, name: &str, otherwise: Option<f64>) -> Result<f64> {
        self.read(name, "a number", otherwise, number)
    }

    fn count(&self, name: &str, otherwise: Option<u64>) -> Result<u64> {
        self.read(name, "a whole number", otherwise, whole)
    }

    fn steps(&self, name: &str, otherwise: Option<NonZeroU64>) -> Result<NonZeroU64> {
        let steps = |value: &Value| whole(value).and_then(NonZeroU64::new);
        self.read(name, "a number of steps, at least 1,", otherwise, steps)
    }

    fn flag(&self, name: &str, otherwise: bool) -> Result<bool> {
        self.read(
            name,
            "`true` or `false`",
            Some(otherwise),
            |value| match value {
                Value::Bool(flag) => Some(*flag),
                _ => None,
            },
        )
    }

    fn milestones(&self) -> Result<Vec<u64>> {
        self.read("milestones", "a list of steps", None, |value| match value {
            Value::List(steps) => steps.iter().map(whole).collect(),
            _ => None,
        })
    }

    fn one_cycle(&self, optimizer: &dyn Optimizer) -> Result<OneCycleLR> {
        self.only(&[
            "max_lr",
            "total_steps",
            "pct_start",
            "anneal_strategy",
            "cycle_momentum",
            "base_momentum",
            "max_momentum",
            "div_factor",
            "final_div_factor",
            "three_phase",
        ])?;
        let plain = OneCycleLRConfig::new(self.steps("total_steps", None)?);
        let strategy = self.read(
            "anneal_strategy",
            "`cos` or `linear`",
            Some(plain.anneal_strategy),
            |value| match value {
                Value::Text(text) if text == "cos" => Some(AnnealStrategy::Cos),
                Value::Text(text) if text == "linear" => Some(AnnealStrategy::Linear),
                _ => None,
            },
        )?;
        let (least, largest) = plain.momentum.unwrap_or_default();
        let momentum = (
            self.number("base_momentum", Some(least))?,
            self.number("max_momentum", Some(largest))?,
        );
        let config = OneCycleLRConfig {
            pct_start: self.number("pct_start", Some(plain.pct_start))?,
            anneal_strategy: strategy,
            momentum: self.flag("cycle_momentum", true)?.then_some(momentum),
            div_factor: self.number("div_factor", Some(plain.div_factor))?,
            final_div_factor: self.number("final_div_factor", Some(plain.final_div_factor))?,
            three_phase: self.flag("three_phase", plain.three_phase)?,
            ..plain
        };
        OneCycleLR::new(optimizer, self.number("max_lr", None)?, config)
    }
}

/// A number, which may be a text.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Int(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Text(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// A whole number, which may be written as any other: `1e3`.
fn whole(value: &Value) -> Option<u64> {
    let number = number(value)?;
    (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}
