//! Optimizers and schedules against recorded ones, alone and prepared.
#![forbid(unsafe_code)]

mod kernels;
mod prepared;
mod rules;
mod schedule_free;
mod schedules;
