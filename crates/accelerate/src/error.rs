use std::path::PathBuf;

/// What can go wrong while training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The boundary to libtorch reports a failure.
    #[error(transparent)]
    Torch(#[from] accelerate_torch::Error),
    /// The launcher's variables, or a configuration, cannot be right.
    #[error(transparent)]
    Plan(#[from] accelerate_plan::Error),
    /// A tensor operation failed.
    #[error("a tensor operation failed")]
    Tensor(#[from] tch::TchError),
    /// An argument that cannot be right.
    #[error("`{operation}` needs {expected}, found {found}")]
    Argument {
        /// What was called.
        operation: &'static str,
        /// What it accepts.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// A hook was added where it would never run.
    #[error(
        "a `{class}` is never called, so a hook on it would never run; add it to the modules inside"
    )]
    HookOnContainer {
        /// The class of the list or map of modules.
        class: &'static str,
    },
    /// A file of weights is absent or damaged, or could not be written.
    #[error(transparent)]
    Formats(#[from] accelerate_formats::Error),
    /// The names, shapes or types of a checkpoint are not those of the module.
    #[error(
        "the weights in `{}` do not fit `{class}`: {report}; check that the configuration belongs to these weights",
        path.display()
    )]
    WeightsDoNotFit {
        /// The file or folder of the weights.
        path: PathBuf,
        /// The class of the module.
        class: &'static str,
        /// Everything that does not fit.
        report: Box<crate::checkpoint::LoadReport>,
    },
    /// Ranks brought tensors of different shapes or kinds to one operation.
    #[error(
        "`{operation}` needs the same shapes and kinds on every rank, found {}",
        .shapes.iter().enumerate().map(|(rank, shapes)| format!("rank {rank}: {shapes}")).collect::<Vec<_>>().join("; ")
    )]
    ShapeMismatch {
        /// What was called.
        operation: &'static str,
        /// Kinds and shapes, by rank.
        shapes: Vec<String>,
    },
    /// A model without parameters to train was to be trained in parallel.
    #[error(
        "`{class}` has no parameter that requires a gradient, so there is nothing to train in parallel; \
         prepare it for evaluation, or unfreeze a part of it"
    )]
    NothingToTrain {
        /// The class of the model.
        class: &'static str,
    },
    /// A file could not be read or written.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was tried, such as `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A data set without samples.
    #[error(
        "a loader needs at least one sample, found an empty data set; check the path it was read from and the filters on it"
    )]
    EmptyDataset,
    /// Something outside of this library failed while data was read.
    #[error("reading data failed")]
    Data(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A sample could not be read.
    #[error("cannot read sample {index} of the data set")]
    Sample {
        /// The sample's index.
        index: usize,
        /// Why it failed.
        #[source]
        source: Box<Error>,
    },
    /// The data set panicked.
    #[error(
        "reading sample {index} of the data set panicked in a worker thread: {message}; read it with `num_workers(0)` to see where"
    )]
    SamplePanicked {
        /// The sample's index.
        index: usize,
        /// The panic's own message.
        message: String,
    },
    /// Samples could not be made a batch.
    #[error("cannot collate the samples {indices:?}")]
    Collate {
        /// The samples' indices.
        indices: Vec<usize>,
        /// Why it failed.
        #[source]
        source: Box<Error>,
    },
    /// The collation panicked.
    #[error(
        "collating the samples {indices:?} panicked in a worker thread: {message}; use `num_workers(0)` to see where"
    )]
    CollatePanicked {
        /// The samples' indices.
        indices: Vec<usize>,
        /// The panic's own message.
        message: String,
    },
    /// Tensors of different shapes in one batch.
    #[error(
        "cannot stack leaf {leaf} of the samples: expected shape {expected:?} as in sample 0 of the batch, found {found:?} in sample {item}; pad the samples or collate them yourself"
    )]
    StackShape {
        /// The tensor's place among the tensors of a sample.
        leaf: usize,
        /// The sample's place in the batch.
        item: usize,
        /// The shape in the first sample.
        expected: Vec<i64>,
        /// The shape in this sample.
        found: Vec<i64>,
    },
    /// Lists of different lengths, or maps with different keys, in one batch.
    #[error(
        "cannot stack the samples from leaf {leaf} on: expected the {expected} parts of sample 0 of the batch, found {found} or others in sample {item}"
    )]
    StackLength {
        /// The place of the first tensor concerned among the tensors of a sample.
        leaf: usize,
        /// The sample's place in the batch.
        item: usize,
        /// The number of parts in the first sample.
        expected: usize,
        /// The number of parts in this sample.
        found: usize,
    },
    /// A worker thread could not be started.
    #[error("cannot start data worker {worker}; use fewer workers")]
    WorkerStart {
        /// The worker's number.
        worker: usize,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A worker thread ended before its batch was made.
    #[error("data worker {worker} ended before its batch was made")]
    WorkerLost {
        /// The worker's number.
        worker: usize,
    },
    /// A saved state does not fit what it is loaded into.
    #[error("the saved state does not fit this {target}: {}", problems.join("; "))]
    StateMismatch {
        /// What it is loaded into, such as an optimizer's name.
        target: &'static str,
        /// Everything that does not fit.
        problems: Vec<String>,
    },
}

impl Error {
    /// An error of a data set or collation of your own.
    pub fn data(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Data(source.into())
    }
}

/// The result of an operation of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;
