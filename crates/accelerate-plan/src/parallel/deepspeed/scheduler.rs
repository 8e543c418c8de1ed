//! The schedule that DeepSpeed's config names.

use indexmap::IndexMap;

use super::{
    document::{Document, dotted},
    params::Params,
};
use crate::{config::Value, parallel::PlanError, settings::Origin};

type Result<T> = std::result::Result<T, PlanError>;

const PARAMS: &str = "scheduler.params";

/// A schedule by name, with every value it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedScheduler {
    /// The name, as it stands in the config.
    pub name: String,
    /// What it is.
    pub kind: SchedulerKind,
    /// Where the name stands.
    pub origin: Origin,
}

/// How a rate grows while it warms up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WarmupGrowth {
    /// With the logarithm of the step.
    Log,
    /// With the step.
    Linear,
}

/// The warm-up of a schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Warmup {
    /// Rate at the start.
    pub min_lr: f64,
    /// Rate at the end; [`None`]: that of the optimizer.
    pub max_lr: Option<f64>,
    /// Its steps, at least 2.
    pub num_steps: u64,
    /// How the rate grows.
    pub growth: WarmupGrowth,
}

/// What a schedule is.
#[derive(Debug, Clone, PartialEq)]
pub enum SchedulerKind {
    /// Warms up and stays.
    Warmup(Warmup),
    /// Warms up and falls in a line to 0.
    WarmupDecay {
        /// The warm-up.
        warmup: Warmup,
        /// Steps in all.
        total_num_steps: u64,
    },
    /// Warms up and falls as half a cosine, as a part of the optimizer's rate.
    WarmupCosine {
        /// Part at the start.
        warmup_min_ratio: f64,
        /// Steps of the warm-up, at least 2.
        warmup_num_steps: u64,
        /// How the part grows.
        growth: WarmupGrowth,
        /// Part at the end.
        cos_min_ratio: f64,
        /// Steps in all.
        total_num_steps: u64,
    },
    /// Up, down, and then ever lower. The momentum goes the other way.
    OneCycle {
        /// Least rate of the cycle.
        min_lr: f64,
        /// Largest rate of the cycle.
        max_lr: f64,
        /// Steps on the way up.
        first_step_size: u64,
        /// Steps on the way down.
        second_step_size: u64,
        /// Steps after which the rate falls once behind the cycle; 0: it stays.
        decay_step_size: u64,
        /// How much it falls.
        decay_lr_rate: f64,
        /// Whether the momentum moves.
        cycle_momentum: bool,
        /// Least momentum.
        min_momentum: f64,
        /// Largest momentum.
        max_momentum: f64,
        /// How much the momentum changes behind the cycle.
        decay_mom_rate: f64,
    },
    /// Ever higher, to find a rate.
    LrRangeTest {
        /// Rate at the start.
        min_lr: f64,
        /// Steps of one interval.
        step_size: u64,
        /// Growth in one interval.
        step_rate: f64,
        /// Whether it grows at the end of intervals only.
        staircase: bool,
    },
    /// One of PyTorch's, with its parameters as they stand.
    Other {
        /// Parameters by name.
        params: IndexMap<String, Value>,
    },
}

impl NamedScheduler {
    /// The schedule that a config names; [`None`] if it names none.
    ///
    /// # Errors
    /// [`PlanError::Value`] for a parameter that the schedule does not have or lacks.
    pub(super) fn of(document: &Document) -> Result<Option<Self>> {
        if !document.has("scheduler") {
            return Ok(None);
        }
        let Some(name) = document.text("scheduler.type")? else {
            return Err(document.refuse("scheduler.type", "the name of a schedule"));
        };
        let begin = dotted(PARAMS, "last_batch_iteration");
        if document.number(&begin, -1.0)? != -1.0 {
            return Err(document.refuse(&begin, "-1: a schedule begins with its first step"));
        }
        Ok(Some(Self {
            kind: kind(document, &name)?,
            name,
            origin: document.origin("scheduler.type"),
        }))
    }
}

fn kind(document: &Document, name: &str) -> Result<SchedulerKind> {
    let params = Params::new(document, PARAMS);
    let key = |name: &str| dotted(PARAMS, name);
    let total = || match document.whole(&key("total_num_steps"), 0)? {
        0 => Err(document.refuse(
            &key("total_num_steps"),
            "the number of steps in all, at least 1",
        )),
        steps => Ok(steps),
    };
    Ok(match name {
        "WarmupLR" => {
            params.only(&WARMUP)?;
            SchedulerKind::Warmup(warmup(document, None)?)
        }
        "WarmupDecayLR" => {
            let known: Vec<_> = WARMUP.into_iter().chain(["total_num_steps"]).collect();
            params.only(&known)?;
            SchedulerKind::WarmupDecay {
                warmup: warmup(document, Some(1e-3))?,
                total_num_steps: total()?,
            }
        }
        "WarmupCosineLR" => {
            params.only(&[
                "total_num_steps",
                "warmup_min_ratio",
                "warmup_num_steps",
                "cos_min_ratio",
                "warmup_type",
                "last_batch_iteration",
            ])?;
            SchedulerKind::WarmupCosine {
                warmup_min_ratio: params.number("warmup_min_ratio", 0.0)?,
                warmup_num_steps: document.whole(&key("warmup_num_steps"), 1000)?.max(2),
                growth: growth(document)?,
                cos_min_ratio: params.number("cos_min_ratio", 1e-4)?,
                total_num_steps: total()?,
            }
        }
        "OneCycle" => one_cycle(document, &params)?,
        "LRRangeTest" => {
            params.only(&[
                "lr_range_test_min_lr",
                "lr_range_test_step_size",
                "lr_range_test_step_rate",
                "lr_range_test_staircase",
                "last_batch_iteration",
            ])?;
            SchedulerKind::LrRangeTest {
                min_lr: params.number("lr_range_test_min_lr", 1e-3)?,
                step_size: document.whole(&key("lr_range_test_step_size"), 2000)?,
                step_rate: params.number("lr_range_test_step_rate", 1.0)?,
                staircase: params.flag("lr_range_test_staircase", false)?,
            }
        }
        _ => SchedulerKind::Other {
            params: params.all(),
        },
    })
}

const WARMUP: [&str; 5] = [
    "warmup_min_lr",
    "warmup_max_lr",
    "warmup_num_steps",
    "warmup_type",
    "last_batch_iteration",
];

fn warmup(document: &Document, max_lr: Option<f64>) -> Result<Warmup> {
    let key = |name: &str| dotted(PARAMS, name);
    let given = document.read(&key("warmup_max_lr"), "a number", super::document::number)?;
    Ok(Warmup {
        min_lr: document.number(&key("warmup_min_lr"), 0.0)?,
        max_lr: given.or(max_lr),
        num_steps: document.whole(&key("warmup_num_steps"), 1000)?.max(2),
        growth: growth(document)?,
    })
}

fn growth(document: &Document) -> Result<WarmupGrowth> {
    let key = dotted(PARAMS, "warmup_type");
    match document.text(&key)?.as_deref() {
        None | Some("log") => Ok(WarmupGrowth::Log),
        Some("linear") => Ok(WarmupGrowth::Linear),
        Some(_) => Err(document.refuse(&key, "`log` or `linear`")),
    }
}

fn one_cycle(document: &Document, params: &Params<'_>) -> Result<SchedulerKind> {
    params.only(&[
        "cycle_min_lr",
        "cycle_max_lr",
        "decay_lr_rate",
        "cycle_first_step_size",
        "cycle_second_step_size",
        "cycle_first_stair_count",
        "cycle_second_stair_count",
        "decay_step_size",
        "cycle_momentum",
        "cycle_min_mom",
        "cycle_max_mom",
        "decay_mom_rate",
        "last_batch_iteration",
    ])?;
    let key = |name: &str| dotted(PARAMS, name);
    let needed = |name: &str| match document.has(&key(name)) {
        true => params.number(name, 0.0),
        false => Err(document.refuse(&key(name), "a rate, which `OneCycle` needs")),
    };
    let first = document.whole(&key("cycle_first_step_size"), 2000)?;
    Ok(SchedulerKind::OneCycle {
        min_lr: needed("cycle_min_lr")?,
        max_lr: needed("cycle_max_lr")?,
        first_step_size: first,
        second_step_size: document.whole(&key("cycle_second_step_size"), first)?,
        decay_step_size: document.whole(&key("decay_step_size"), 0)?,
        decay_lr_rate: params.number("decay_lr_rate", 0.0)?,
        cycle_momentum: params.flag("cycle_momentum", true)?,
        min_momentum: params.number("cycle_min_mom", 0.8)?,
        max_momentum: params.number("cycle_max_mom", 0.9)?,
        decay_mom_rate: params.number("decay_mom_rate", 0.0)?,
    })
}
