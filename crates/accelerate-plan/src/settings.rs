//! Every setting of a launch: what it is called, what it may be, and where its value came from.
//!
//! [`TABLE`] lists all settings; each is a typed constant such as [`NUM_PROCESSES`]. A setting can be
//! given by a flag, by an environment variable, by a line of a config file, or be found out from the
//! machine. Each of these is a [`Layer`]; [`Settings::resolve`] lays them over each other, in this
//! order, and remembers for every value where it came from.
//!
//! ```
//! use accelerate_plan::{
//!     config::Value,
//!     settings::{Layer, NUM_MACHINES, NUM_PROCESSES, Origin, Settings},
//! };
//!
//! let mut flags = Layer::default();
//! flags.give(&NUM_PROCESSES, &Value::from(2), Origin::Flag("--num_processes".to_owned()))?;
//! let settings = Settings::resolve([flags]);
//! assert_eq!(settings.get(&NUM_PROCESSES).map(|count| count.get()), Some(2));
//! assert_eq!(settings.origin(&NUM_PROCESSES).to_string(), "flag `--num_processes`");
//! assert_eq!(settings.origin(&NUM_MACHINES), &Origin::Default);
//! # Ok::<(), accelerate_plan::Error>(())
//! ```

mod choices;
mod file;
mod format;
mod key;
mod layer;
mod origin;
mod reference;
mod reshard;
mod resolved;
mod scalar;
mod table;

pub use choices::*;
pub use file::{ConfigFile, Notice, Record};
pub use format::OverrideLinearPrecision;
pub use key::{AnyKey, Flag, Key, KeyEntry, Section};
pub use layer::{Given, Layer};
pub use origin::{Origin, Sourced};
pub use reference::reference_page;
pub use reshard::ReshardAfterForward;
pub use resolved::Settings;
pub use scalar::Scalar;
pub use table::*;

#[cfg(test)]
mod tests;
