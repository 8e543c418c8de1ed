//! What a training tells about itself.
//!
//! A [`Tracker`] takes down settings, numbers, pictures and tables. The tracker [`Local`] needs no
//! service: it writes a folder that anything can read, this crate too: see [`run`]. Others write the files
//! that well-known tools read, or send to services: see [`LoggerType`]. What goes to a service is written
//! to disk first and sent by a thread; a service that is away costs the training nothing and loses
//! nothing.
#![forbid(unsafe_code)]

#[cfg(feature = "network")]
mod clearml;
mod clock;
#[cfg(feature = "network")]
mod comet;
#[cfg(feature = "network")]
mod delivery;
mod dvclive;
mod environment;
mod error;
mod file_name;
#[cfg(feature = "network")]
mod http;
mod identifier;
mod local;
mod machine;
mod media;
mod mlflow;
mod notice;
#[cfg(all(test, feature = "network"))]
mod parity;
mod percent;
mod protobuf;
mod registry;
pub mod run;
pub mod settings;
mod shared;
#[cfg(all(test, feature = "network"))]
mod stub;
mod tensorboard;
mod tracker;
mod value;
mod wandb;
mod yaml;
#[cfg(feature = "network")]
mod zip;

#[cfg(feature = "network")]
pub use clearml::ClearMl;
#[cfg(feature = "network")]
pub use comet::Comet;
#[cfg(feature = "network")]
pub use delivery::{Left, deliver_left};
pub use dvclive::DvcLive;
pub use environment::Environment;
pub use error::{Error, Result};
pub use local::Local;
pub use media::{Colour, Image, Table};
pub use mlflow::MlFlow;
pub use registry::{LogWith, LoggerType, select};
pub use shared::TrackerHandle;
pub use tensorboard::TensorBoard;
pub use tracker::{RunContext, Tracker};
pub use value::{Value, Values};
pub use wandb::Wandb;
