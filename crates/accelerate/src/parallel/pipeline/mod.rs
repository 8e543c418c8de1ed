//! Inference with a model cut into stages, one on each rank.
//!
//! Data flows through the files in this order:
//!
//! | file | room for |
//! | --- | --- |
//! | `steps` | what a model says about itself: the steps it runs in, and what goes from one to the next |
//! | `sequential` | modules that are a row of steps already |
//! | `options` | where a model is cut, and into how many parts a batch |
//! | `split` | which steps each rank gets |
//! | `stage` | a model of which only one stage has memory, and its weights from a file |
//! | `chunks` | a batch in parts and the outputs in one |
//! | `wire` | parts of a batch on their way from rank to rank |
//! | `failure` | who failed first, when a connection breaks |
//! | `model` | the schedule |

mod chunks;
mod failure;
mod model;
mod options;
mod sequential;
mod split;
mod stage;
mod steps;
mod wire;

pub use model::PipelinedModel;
pub use options::{PipelineOptions, SplitPoints};
pub use steps::{PipelineStep, Pipelined};

#[cfg(test)]
mod tests;
