//! What people look at while a model trains: settings, numbers, pictures and tables.
//!
//! [`log_with`](crate::AcceleratorBuilder::log_with) chooses trackers,
//! [`init_trackers`](crate::Accelerator::init_trackers) opens a run,
//! [`log`](crate::Accelerator::log) takes values down and
//! [`end_training`](crate::Accelerator::end_training) closes it. Trackers run on the main process; on
//! other ranks the same calls do nothing. The formats and services are those of
//! [`accelerate_tracking`].

mod number;
mod trackers;

pub use accelerate_tracking::{
    ClearMl, Colour, Comet, DvcLive, Environment, Error as TrackingError, Image, Left, Local,
    LogWith, LoggerType, MlFlow, Result as TrackingResult, RunContext, Table, TensorBoard, Tracker,
    TrackerHandle, Value, Values, Wandb, deliver_left, run, settings,
};
pub use number::number;
pub(crate) use trackers::Trackers;
