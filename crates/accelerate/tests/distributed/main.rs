//! Training on several processes: one program for all, because each is linked anew.
#![forbid(unsafe_code)]

mod accumulation;
mod comm_hooks;
mod ddp;
mod debug_mode;
mod facade;
mod join;
mod local_sgd;
mod logged;
mod mixed_ddp;
mod operations;
mod process_control;
mod profiler;
mod step_metrics;
mod sync_batch_norm;
