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
    /// A tracker cannot be chosen or started.
    #[error(transparent)]
    Tracking(#[from] accelerate_tracking::Error),
    /// Settings of sharding make no plan, or the plan does not fit the model.
    #[error("{}", with_hint(.0.as_ref()))]
    Sharding(Box<accelerate_plan::parallel::PlanError>),
    /// There is no device map, or it does not fit the model.
    #[error("{}", with_hint(.0.as_ref()))]
    DeviceMap(Box<accelerate_plan::device_map::DeviceMapError>),
    /// A device map names a place that is not there.
    #[error("the device map puts weights on `{place}`, which is not there; {known}")]
    NoSuchPlace {
        /// The place.
        place: String,
        /// What is there, in words.
        known: String,
    },
    /// A pretended accelerator would hold more than its limit.
    #[error(
        "`{what}` takes {bytes} bytes on `{place}`, which holds {held} of its limit of {limit} bytes; \
         raise the limit, or put less there"
    )]
    PlaceFull {
        /// The accelerator.
        place: String,
        /// The weight that does not fit.
        what: String,
        /// Its size.
        bytes: u64,
        /// What is there already.
        held: u64,
        /// What may be there.
        limit: u64,
    },
    /// Weights are to be on disk, and nothing says where.
    #[error(
        "{} {} to be on disk, but {why}; give a folder (`offload_folder`)",
        shown(weights.iter().map(|name| format!("`{name}`"))),
        if weights.len() == 1 { "is" } else { "are" }
    )]
    NoOffloadFolder {
        /// The weights.
        weights: Vec<String>,
        /// Why they have no place on disk as it is.
        why: &'static str,
    },
    /// A folder for weights has not enough room.
    #[error(
        "{weights} weights take {needed} bytes on disk, but `{}` has room for {free}; give another \
         folder, or keep more in memory",
        folder.display()
    )]
    OffloadSpace {
        /// The folder.
        folder: PathBuf,
        /// How many weights were to be written.
        weights: usize,
        /// Their size.
        needed: u64,
        /// The free bytes of the file system.
        free: u64,
    },
    /// Weights have no values, neither in the model nor elsewhere.
    #[error(
        "{} {} no values: the model has none (meta device), and {why}",
        shown(weights.iter().map(|name| format!("`{name}`"))),
        if weights.len() == 1 { "has" } else { "have" }
    )]
    NothingOffloaded {
        /// The weights.
        weights: Vec<String>,
        /// Where else was looked.
        why: String,
    },
    /// A model whose weights wait in several places was to be moved.
    #[error(
        "`{class}` cannot be moved as a whole: {} {} elsewhere until computed with; bring them back \
         with `big_model::remove_hooks` first",
        shown(offloaded.iter().map(|name| format!("`{name}`"))),
        if offloaded.len() == 1 { "waits" } else { "wait" }
    )]
    MovesDispatched {
        /// The class of the model.
        class: &'static str,
        /// The weights that wait elsewhere.
        offloaded: Vec<String>,
    },
    /// A model that is spread over devices was to be trained with several processes.
    #[error(
        "`{class}` is spread over {} by its device map, and {processes} processes cannot train it \
         together; give each process the whole model on its own device, shard it, or set \
         `ACCELERATE_BYPASS_DEVICE_MAP` to `true`",
        places.join(", ")
    )]
    TrainsDispatched {
        /// The class of the model.
        class: &'static str,
        /// The places of its map.
        places: Vec<String>,
        /// How many processes there are.
        processes: usize,
    },
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
    /// A module has no member of this name.
    #[error(
        "`{class}` has no {what} `{name}`{}; it has {}",
        nearest.as_ref().map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default(),
        shown(known.iter().map(|name| format!("`{name}`")))
    )]
    NoSuchMember {
        /// The class of the module that was searched.
        class: &'static str,
        /// What was searched for: `module`, `parameter` or `buffer`.
        what: &'static str,
        /// The name that is not there.
        name: String,
        /// The name that is most like it, if one is like it.
        nearest: Option<String>,
        /// The names there are.
        known: Vec<String>,
    },
    /// A module was to be put where modules of another type live.
    #[error(
        "`{name}` of `{class}` holds a `{expected}`, found a `{found}`; make the field a `Layer` or a \
         `Box<dyn Module>`, and wrap the new module the same way"
    )]
    MemberType {
        /// The class of the module that was to be changed.
        class: &'static str,
        /// The place.
        name: String,
        /// The type that lives there.
        expected: &'static str,
        /// The type of the new module.
        found: &'static str,
    },
    /// Tensors on the meta device have no values to work with.
    #[error(
        "`{operation}` needs values, but {} {} none (meta device); give them memory with \
         `materialize`, then load or set the values",
        shown(tensors.iter().cloned()),
        if tensors.len() == 1 { "has" } else { "have" }
    )]
    OnMeta {
        /// What was called.
        operation: &'static str,
        /// The tensors without values: names in backticks, or descriptions.
        tensors: Vec<String>,
    },
    /// The names, shapes or types of a state dict are not those of the module.
    #[error("the state dict does not fit `{class}`: {report}")]
    StateDoesNotFit {
        /// The class of the module.
        class: &'static str,
        /// Everything that does not fit.
        report: Box<crate::checkpoint::LoadReport>,
    },
    /// Names of weights can be read in two ways.
    #[error(
        "cannot tell whether `{prefix}` in the names of the weights belongs to `{class}` or to a \
         wrapper around it: `{name}` would be `{}`; rename the tensors (`LoadOptions::with_rename`), \
         or load them under the names they have (`LoadOptions::with_exact_names`)",
        readings.join("` or `")
    )]
    AmbiguousNames {
        /// The class of the module.
        class: &'static str,
        /// The part of the names that is in doubt.
        prefix: String,
        /// One of the names.
        name: String,
        /// The names of the module that it may stand for.
        readings: Vec<String>,
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
    /// Ranks came to different collectives, or with different arguments, shapes or kinds.
    ///
    /// Found in debug mode, before anything was sent; every rank gets it.
    #[error("{report}")]
    CollectiveMismatch {
        /// Every rank's side.
        report: Box<crate::collectives::MismatchReport>,
    },
    /// A collective failed because other ranks ended, left the job, stopped answering or did
    /// not come.
    #[error("{report}")]
    CollectiveIncomplete {
        /// Who is missing, and where the others are.
        report: Box<crate::collectives::IncompleteReport>,
        /// How it was noticed.
        #[source]
        source: Box<accelerate_torch::Error>,
    },
    /// A tensor has more dimensions on one rank than on another.
    #[error(
        "`{operation}` needs tensors with as many dimensions on every rank, found {}",
        .shapes.iter().enumerate().map(|(rank, shapes)| format!("rank {rank}: {shapes}")).collect::<Vec<_>>().join("; ")
    )]
    DimensionsDiffer {
        /// What was called.
        operation: &'static str,
        /// Shapes and kinds, by rank.
        shapes: Vec<String>,
    },
    /// A value could not be made a message between ranks, or a message a value.
    #[error("`{operation}` cannot {action} an object")]
    ObjectEncoding {
        /// What was called.
        operation: &'static str,
        /// `encode` or `decode`.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Another rank could not send its object.
    #[error(
        "`{operation}` got nothing from rank {rank}, which could not encode its object; see its error"
    )]
    ObjectOfOtherRank {
        /// What was called.
        operation: &'static str,
        /// The rank that could not.
        rank: usize,
    },
    /// An object is too large to be sent to every rank.
    #[error(
        "`{operation}` sends at most {limit} bytes from a rank, found {bytes} on rank {rank}; \
         send numbers as tensors, or write to a file that all ranks read"
    )]
    ObjectTooLarge {
        /// What was called.
        operation: &'static str,
        /// The rank with the object.
        rank: usize,
        /// Its size as a message.
        bytes: i64,
        /// The largest size.
        limit: usize,
    },
    /// A rank that was to do something before the others did not do it.
    #[error("rank {rank} went first and failed; its own message says why")]
    TurnFailed {
        /// The rank that failed.
        rank: usize,
    },
    /// Another rank failed at what all ranks try together.
    #[error("rank {rank} failed, so this rank stops as well; its own message says why")]
    OtherRankFailed {
        /// The rank that failed.
        rank: usize,
    },
    /// A step of a model that runs as a pipeline failed.
    #[error("step `{step}` of the pipeline failed on rank {rank}")]
    PipelineStep {
        /// The dotted name of the step.
        step: String,
        /// The rank that runs it.
        rank: usize,
        /// Why it failed.
        #[source]
        source: Box<Error>,
    },
    /// A pipeline that broke earlier was called again.
    #[error(
        "the pipeline does not run any more since rank {rank} failed, whose own message says why; \
         prepare the model again on every rank"
    )]
    PipelineBroken {
        /// The rank that failed first.
        rank: usize,
    },
    /// The job was asked to end, and its ranks do not agree where.
    #[error(
        "the ranks were asked to leave and cannot agree where: {why}; the job goes on from its last \
         checkpoint when it is started again"
    )]
    NoDeparture {
        /// What keeps them.
        why: String,
    },
    /// The system does not let signals be noticed.
    #[error("cannot notice the signals that ask this process to end")]
    Signals {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No batch size fits into memory.
    #[error(
        "no executable batch size found: started at {starting} and came below {floor}; \
         use a smaller model, or less memory for each sample"
    )]
    NoExecutableBatchSize {
        /// The first size that was tried.
        starting: usize,
        /// The smallest size that would have been.
        floor: usize,
    },
    /// An in-process launch was asked for where there can be none.
    #[error("cannot launch processes: {problem}; {remedy}")]
    CannotLaunch {
        /// What stands against it.
        problem: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A process could not be started or waited for.
    #[error("cannot start rank {rank} as a new process of this program")]
    LaunchStart {
        /// The rank.
        rank: usize,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A process of a launch failed.
    #[error(
        "rank {rank} of {world} failed with {status}{}",
        if last_lines.is_empty() { String::new() } else { format!("; it last wrote:\n{last_lines}") }
    )]
    LaunchFailed {
        /// The first rank that failed.
        rank: usize,
        /// How many were started.
        world: usize,
        /// How it ended: an exit code or a signal.
        status: String,
        /// The last lines of its standard error.
        last_lines: String,
    },
    /// The processes of a launch did not end in time.
    #[error("ranks {running:?} did not end within {} s and were stopped", deadline.as_secs_f64())]
    LaunchDeadline {
        /// The ranks that were still running.
        running: Vec<usize>,
        /// The time they had.
        deadline: std::time::Duration,
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
    /// Parameters got no gradient in a backward pass in which ranks average gradients.
    #[error("{report}")]
    UnusedParameters {
        /// Which, and on which ranks.
        report: Box<crate::parallel::UnusedReport>,
    },
    /// Ranks brought different models to be trained together.
    #[error(
        "all ranks need the same model: expected {expected} as on rank {base}, found {found} on rank {rank}; \
         build it from the same settings on every rank"
    )]
    ModelsDiffer {
        /// The rank whose model the others are compared with.
        base: usize,
        /// The first rank whose model is another.
        rank: usize,
        /// The first tensor that differs as rank `base` has it: name, kind, shape.
        expected: String,
        /// The tensor that this rank has in its place.
        found: String,
    },
    /// A thread could not be started.
    #[error("cannot start the thread that {purpose}; is the limit of threads reached?")]
    ThreadStart {
        /// What the thread is for.
        purpose: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
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
    /// A worker thread did not deliver its batch in time.
    #[error(
        "data worker {worker} did not deliver its batch within {} s: it is {doing}; \
         give it more time (`timeout`), or read that with `num_workers(0)` to see what takes so long",
        timeout.as_secs_f64()
    )]
    WorkerTimeout {
        /// The worker's number.
        worker: usize,
        /// How long it was waited for.
        timeout: std::time::Duration,
        /// What it was doing then, such as `reading sample 7`.
        doing: String,
    },
    /// A worker thread ended before its batch was made.
    #[error("data worker {worker} ended before its batch was made")]
    WorkerLost {
        /// The worker's number.
        worker: usize,
    },
    /// Batches that are to be dealt out from rank 0 together do not fit each other.
    #[error(
        "cannot join batches to deal them out from rank 0: expected {expected} as in the first of them, found {found} in batch {batch}; \
         cut each batch instead with `split_batches: true`, or let every rank read its own with `dispatch_batches: Some(false)`"
    )]
    UnevenBatches {
        /// The batch's place among those that are dealt out in one step.
        batch: usize,
        /// What the first batch has there.
        expected: String,
        /// What this batch has there.
        found: String,
    },
    /// Another rank could not read its next batch.
    #[error("rank {rank} could not read its next batch, so the loop ends on every rank: {message}")]
    ReadElsewhere {
        /// The rank that failed.
        rank: usize,
        /// Its error, with the causes.
        message: String,
    },
    /// Ranks do not take the same steps through a loader.
    #[error(
        "rank 0 deals out step {sent_step} of loop {sent_loop} over a loader, expected step {step} of loop {own_loop}; \
         start and leave a loop at the same step on every rank"
    )]
    OutOfStep {
        /// The step that rank 0 sends, from 0 on.
        sent_step: u64,
        /// The loop that rank 0 is in, counted from 0 on for each loader.
        sent_loop: u64,
        /// The step that this rank waits for.
        step: u64,
        /// The loop that this rank is in.
        own_loop: u64,
    },
    /// Nobody says where a checkpoint is.
    #[error(
        "no `{argument}` is given and automatic checkpoint naming is off; give a folder, or a \
         `ProjectConfiguration` with `project_dir` and `automatic_checkpoint_naming`"
    )]
    NoCheckpointFolder {
        /// The argument that would say it.
        argument: &'static str,
    },
    /// A checkpoint cannot be put where something else is.
    #[error("cannot save a checkpoint as `{}`: {problem}; name a folder of its own", path.display())]
    CheckpointTarget {
        /// The place.
        path: PathBuf,
        /// What is there.
        problem: &'static str,
    },
    /// Another process saves to the same place.
    #[error(
        "another process is saving a checkpoint as `{}`; give each job a folder of its own",
        path.display()
    )]
    CheckpointBusy {
        /// The place.
        path: PathBuf,
    },
    /// A save in the background failed.
    #[error("the checkpoint `{}` could not be saved in the background", path.display())]
    BackgroundSave {
        /// Where it was to be.
        path: PathBuf,
        /// Why it failed. Whoever asks again gets the same.
        #[source]
        source: std::sync::Arc<Error>,
    },
    /// A save was refused because an earlier one is not finished.
    #[error(
        "a checkpoint is still being saved in the background (by ranks {ranks:?}), and \
         `WhileSaving::Refuse` was asked for; wait for it, or let the next save wait"
    )]
    SavePending {
        /// The ranks that are not finished.
        ranks: Vec<usize>,
    },
    /// The thread that saves in the background panicked.
    #[error("the thread that writes the checkpoint panicked: {message}")]
    SavePanicked {
        /// The panic's own message.
        message: String,
    },
    /// A checkpoint is not what was saved.
    #[error("the checkpoint `{}` is damaged: {fault}; load an earlier one", path.display())]
    CheckpointDamaged {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        fault: Box<crate::checkpoint::CheckpointFault>,
    },
    /// There is no checkpoint that could be loaded.
    #[error(
        "no whole checkpoint in `{}`{}",
        folder.display(),
        skipped.iter().map(|one| format!("; {one}")).collect::<String>()
    )]
    NoWholeCheckpoint {
        /// The folder of the project's checkpoints.
        folder: PathBuf,
        /// Those that are there, and what is wrong with them.
        skipped: Vec<crate::checkpoint::SkippedCheckpoint>,
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

impl From<accelerate_plan::parallel::PlanError> for Error {
    fn from(error: accelerate_plan::parallel::PlanError) -> Self {
        Self::Sharding(Box::new(error))
    }
}

impl From<accelerate_plan::device_map::DeviceMapError> for Error {
    fn from(error: accelerate_plan::device_map::DeviceMapError) -> Self {
        Self::DeviceMap(Box::new(error))
    }
}

impl Error {
    /// An error of a data set or collation of your own.
    pub fn data(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Data(source.into())
    }

    /// The message with those of the causes behind it, for ranks that get no more than a text.
    pub(crate) fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Why there is no plan, and what to do about it.
fn with_hint(error: &(impl accelerate_plan::Hint + std::fmt::Display)) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

/// Up to ten of a list, and how many more there are.
fn shown(mut all: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = all.by_ref().take(SHOWN).collect();
    if shown.is_empty() {
        return "none".to_owned();
    }
    match all.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The result of an operation of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;
