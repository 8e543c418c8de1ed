//! Optimizers, learning-rate schedules, and what they become when prepared.
//!
//! An [`Optimizer`] updates [`ParamGroups`] from their gradients. Its
//! [`LearningRates`] are a handle that a [`Scheduler`] shares with it.
//! [`AcceleratedOptimizer`] and [`AcceleratedScheduler`] step only when
//! gradients are complete. [`DummyOptim`] and [`DummyScheduler`] stand for what a DeepSpeed
//! config names.

mod adafactor;
mod adafactor_state;
mod adagrad;
mod adam;
mod adamw;
mod cohort;
mod dummy_optim;
mod dummy_scheduler;
mod engine;
mod flat;
mod group;
mod group_state;
mod lamb;
mod moments;
mod on_disk;
mod optimizer;
mod prepared_optimizer;
mod prepared_scheduler;
mod rates;
mod rmsprop;
pub mod schedule;
mod schedule_free;
mod sgd;
mod state_dict;

pub use crate::offload::DiskFolder;
pub use adafactor::{Adafactor, AdafactorConfig};
pub use adagrad::{Adagrad, AdagradConfig};
pub use adam::{Adam, AdamConfig};
pub use adamw::{AdamW, AdamWConfig};
pub use dummy_optim::{DummyOptim, DummyOptimConfig};
pub use dummy_scheduler::{DummyScheduler, DummySchedulerConfig, SchedulerCallable};
pub use group::{IntoParamGroups, ParamGroup, ParamGroups};
pub use lamb::{Lamb, LambConfig};
pub use optimizer::Optimizer;
pub use prepared_optimizer::AcceleratedOptimizer;
pub use prepared_scheduler::{AcceleratedScheduler, SchedulerStepping};
pub use rates::LearningRates;
pub use rmsprop::{RmsProp, RmsPropConfig};
pub use schedule::{
    AnnealStrategy, ChainedScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts,
    ExponentialLR, LRRangeTest, LRRangeTestConfig, LambdaLR, LinearLR, MultiStepLR,
    MultiplicativeLR, OneCycle, OneCycleConfig, OneCycleLR, OneCycleLRConfig, PlateauConfig,
    PlateauMode, PolynomialLR, RateRule, ReduceLROnPlateau, Schedule, Scheduler, SchedulerOptions,
    SchedulerType, SequentialLR, StepLR, ThresholdMode, WarmupConfig, WarmupCosineConfig,
    WarmupCosineLR, WarmupDecayLR, WarmupGrowth, WarmupLR, constant_schedule,
    constant_schedule_with_warmup, cosine_schedule_with_warmup,
    cosine_with_hard_restarts_schedule_with_warmup, get_scheduler, inverse_sqrt_schedule,
    linear_schedule_with_warmup, polynomial_decay_schedule_with_warmup,
};
pub use schedule_free::{
    AdamWScheduleFree, AdamWScheduleFreeConfig, SgdScheduleFree, SgdScheduleFreeConfig,
};
pub use sgd::{Sgd, SgdConfig};
pub use state_dict::{StateDict, StateValue};
