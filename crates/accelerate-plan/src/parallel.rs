//! What is sharded over which ranks, and how: one plan, whatever words asked for it.
//!
//! FSDP and DeepSpeed say the same things in different words. The settings of either compile into a
//! [`ParallelPlan`]; whoever executes plans needs to know neither.
//!
//! | part | type |
//! | --- | --- |
//! | the ranks as a grid | [`Mesh`] |
//! | what is held in shards | [`Sharded`], [`AfterForward`] |
//! | what is gathered together | [`WrapPolicy`], [`Ignored`] |
//! | when it is gathered | [`Prefetch`] |
//! | in which type | [`Precision`], [`Quantised`] |
//! | where it is kept | [`Offload`] |
//! | how gradients become one | [`Reduction`], [`Clipping`], [`Accumulation`] |
//! | where the first values come from | [`Loading`] |
//! | how it is saved | [`StateDict`] |

mod choices;
mod classes;
pub mod deepspeed;
mod display;
mod environment;
mod error;
mod facts;
pub mod fsdp;
mod gradients;
mod loading;
pub mod memory;
mod mesh;
mod offload;
mod origins;
mod plan;
mod precision;
mod prefetch;
mod sharded;
mod state_dict;
mod wrap;

pub use choices::{Dialect, FloatType, Recompute};
pub use deepspeed::{DeepSpeedConfig, DeepSpeedJob, DeepSpeedPlugins, DeepSpeedSettings};
pub use environment::{Preview, ShardingSettings};
pub use error::{MissingClass, Mismatch, PlanError, UnresolvedAuto};
pub use facts::{GivenOptimizer, GivenScheduler, JobFacts, PrepareFacts};
pub use fsdp::{FsdpSettings, PrecisionPolicy};
pub use gradients::{Accumulation, Average, Clipping, NoSync, Reduction};
pub use loading::{Construction, Loading, WeightSource};
pub use mesh::{Mesh, Place};
pub use offload::{DiskTraffic, Offload, Storage};
pub use origins::{Origins, Part};
pub use plan::ParallelPlan;
pub use precision::{Cast, InputCast, LossScaling, Precision, ScaleRule};
pub use prefetch::{Prefetch, PrefetchLimit};
pub use sharded::{AfterForward, Quantised, Sharded};
pub use state_dict::{Layout, StateDict};
pub use wrap::{Ignored, SizeRule, WrapPolicy};

pub use crate::settings::{BackwardPrefetch, StateDictType};
