//! The words of DeepSpeed, and what they mean for a plan.
//!
//! Three stages. [`DeepSpeedSettings`] is what somebody said: fields of the plugin, each with where
//! it came from, and perhaps DeepSpeed's own config. [`DeepSpeedSettings::resolve`] lays them over
//! each other when the accelerator is made: that is a [`DeepSpeedConfig`], in which some values may
//! still be `auto`. [`DeepSpeedConfig::prepare`] fills these in from what is prepared together, and
//! gives a [`DeepSpeedJob`]: the plan, the sizes of batches, and who provides optimizer and schedule.

mod ambiguity;
mod autos;
mod batch;
mod compile;
mod config;
mod document;
mod fill;
mod optimizer;
mod params;
mod plugins;
mod prepare;
mod python;
mod read;
mod resolve;
mod roles;
mod scheduler;
mod schema;
mod settings;

pub use ambiguity::Ambiguity;
pub use batch::{BatchSizes, BatchTerm};
pub use config::DeepSpeedConfig;
pub use optimizer::{NamedOptimizer, OptimizerKind};
pub use plugins::DeepSpeedPlugins;
pub use prepare::DeepSpeedJob;
pub use roles::{OptimizerRole, RoleMistake, Roles, SchedulerRole};
pub use scheduler::{NamedScheduler, SchedulerKind, Warmup, WarmupGrowth};
pub use settings::{Auto, ConfigSource, DeepSpeedSettings};

#[cfg(test)]
mod tests;
