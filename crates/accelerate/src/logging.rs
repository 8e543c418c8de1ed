//! Log messages that come once, not once per process.
//!
//! A [`Logger`] sends events to [`tracing`], so whatever subscriber a program has shows
//! them. It decides which ranks speak, and says who does:
//!
//! ```
//! use accelerate::Accelerator;
//! use accelerate::logging::get_logger;
//!
//! // Before it is made there is nobody to wait for, so nothing can be told in order.
//! let accelerator = Accelerator::new()?;
//! let logger = get_logger("training")?;
//! logger.info("once, from the main process");
//! logger.on_every_process().info("from each process");
//! logger.in_order().info("from each process, rank 0 first")?;
//! logger.warning_once("however often this line is reached");
//! # drop(accelerator);
//! # Ok::<(), accelerate::Error>(())
//! ```

mod logger;
mod ordered;

pub use logger::{Logger, get_logger, get_logger_with_level, level_from_environment};
pub use ordered::OrderedLogger;
