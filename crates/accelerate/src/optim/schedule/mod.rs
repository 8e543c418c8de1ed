//! Learning-rate schedules.

mod annealing;
mod by_name;
mod deepspeed;
mod in_turn;
mod lambda;
mod one_cycle;
mod plateau;
mod rule;
mod scheduler;
mod stepped;
mod warmup;

pub use annealing::{
    CosineAnnealingLR, CosineAnnealingRule, CosineAnnealingWarmRestarts, WarmRestartsRule,
};
pub use by_name::{SchedulerOptions, SchedulerType, get_scheduler};
pub use deepspeed::{
    LRRangeTest, LRRangeTestConfig, OneCycle, OneCycleConfig, OneCycleRule, WarmupConfig,
    WarmupCosineConfig, WarmupCosineLR, WarmupCosineRule, WarmupDecayLR, WarmupDecayRule,
    WarmupGrowth, WarmupLR, WarmupRule,
};
pub use in_turn::{ChainedScheduler, SequentialLR};
pub use lambda::{LambdaLR, LambdaRule, MultiplicativeLR, MultiplicativeRule};
pub use one_cycle::{AnnealStrategy, OneCycleLR, OneCycleLRConfig, OneCycleLRRule};
pub use plateau::{PlateauConfig, PlateauMode, ReduceLROnPlateau, ThresholdMode};
pub use rule::{Moment, RateRule, Schedule};
pub use scheduler::{RatesBefore, Scheduler};
pub use stepped::{
    ConstantLR, ConstantRule, ExponentialLR, ExponentialRule, LinearLR, LinearRule, MultiStepLR,
    MultiStepRule, PolynomialLR, PolynomialRule, StepLR, StepRule,
};
pub use warmup::{
    Shape, WsdConfig, constant_schedule, constant_schedule_with_warmup,
    cosine_schedule_with_warmup, cosine_with_hard_restarts_schedule_with_warmup,
    cosine_with_min_lr_schedule_with_warmup, cosine_with_min_lr_schedule_with_warmup_lr_rate,
    inverse_sqrt_schedule, linear_schedule_with_warmup, polynomial_decay_schedule_with_warmup,
    wsd_schedule,
};
