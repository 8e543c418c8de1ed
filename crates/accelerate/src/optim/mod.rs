//! Optimizers, learning-rate schedules, and what they become when prepared.
//!
//! An [`Optimizer`] updates [`ParamGroups`] from their gradients. Its
//! [`LearningRates`] are a handle that a [`Scheduler`] shares with it.
//! [`AcceleratedOptimizer`] and [`AcceleratedScheduler`] step only when
//! gradients are complete.

mod adamw;
mod cohort;
mod group;
mod group_state;
mod lambda_lr;
mod moments;
mod optimizer;
mod prepared_optimizer;
mod prepared_scheduler;
mod rates;
mod scheduler;
mod sgd;
mod state_dict;

pub use adamw::{AdamW, AdamWConfig};
pub use group::{IntoParamGroups, ParamGroup, ParamGroups};
pub use lambda_lr::{LambdaLR, linear_schedule_with_warmup};
pub use optimizer::Optimizer;
pub use prepared_optimizer::AcceleratedOptimizer;
pub use prepared_scheduler::{AcceleratedScheduler, SchedulerStepping};
pub use rates::LearningRates;
pub use scheduler::Scheduler;
pub use sgd::{Sgd, SgdConfig};
pub use state_dict::{StateDict, StateValue};
