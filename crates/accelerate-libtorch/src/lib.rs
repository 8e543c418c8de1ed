//! Finds the libtorch that a build would use and checks it before anything is compiled.
//!
//! A libtorch of another version or ABI otherwise shows up minutes later, as pages of undefined
//! symbols. The search follows the rules of the `torch-sys` crate, so both always speak of the same
//! folder. Build scripts of crates with binaries, tests or examples need three lines:
//!
//! ```no_run
//! fn main() -> Result<(), accelerate_libtorch::Error> {
//!     let libtorch = accelerate_libtorch::Libtorch::locate()?.check()?;
//!     libtorch.emit_link_args();
//!     Ok(())
//! }
//! ```
//!
//! An error returned from `main` prints the whole report: what was found, what is needed, and the
//! command that helps.
#![forbid(unsafe_code)]

mod build_script;
mod check;
mod error;
mod loader;
mod locate;
mod python;
mod settings;
mod shared_object;
mod version;

pub use build_script::emit_rerun;
pub use error::{Error, Found, MissingLibrary};
pub use locate::{Libtorch, Origin};
pub use settings::{Settings, Target};
pub use shared_object::CxxAbi;
pub use version::{NEEDED_VERSION, Version};
