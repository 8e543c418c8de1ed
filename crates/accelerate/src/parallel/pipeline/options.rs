//! Where a model is cut, and into how many parts a batch.

use std::num::NonZeroUsize;

/// Where a model is cut into stages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SplitPoints {
    /// Where the largest stage is as small as it can be, by the bytes of parameters and buffers.
    #[default]
    Auto,
    /// Before each of these steps or modules, by dotted name, one fewer than there are processes.
    Before(Vec<String>),
}

/// How a model runs as a pipeline. The default cuts it where its bytes are balanced, and a batch into
/// as many parts as there are processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipelineOptions {
    /// Where the model is cut.
    pub split_points: SplitPoints,
    /// Classes of modules that are never cut inside, such as `LlamaDecoderLayer`.
    pub no_split_module_classes: Vec<String>,
    /// Into how many parts a batch is cut; as many as processes where absent. With one part, one
    /// rank works at a time. More parts keep all ranks busy for more of the time, as long as a part
    /// is enough work.
    pub num_chunks: Option<NonZeroUsize>,
    /// Whether every rank gets the output; only the last one does otherwise.
    pub gather_output: bool,
}

impl PipelineOptions {
    /// The same, cut before these steps or modules.
    #[must_use]
    pub fn split_before(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        self.split_points = SplitPoints::Before(names);
        self
    }

    /// The same, never cut inside a module of this class.
    #[must_use]
    pub fn no_split(mut self, class: impl Into<String>) -> Self {
        self.no_split_module_classes.push(class.into());
        self
    }

    /// The same with another number of parts of a batch.
    #[must_use]
    pub fn num_chunks(mut self, num_chunks: NonZeroUsize) -> Self {
        self.num_chunks = Some(num_chunks);
        self
    }

    /// The same, with the output on every rank or only the last.
    #[must_use]
    pub fn gather_output(mut self, gather_output: bool) -> Self {
        self.gather_output = gather_output;
        self
    }
}
