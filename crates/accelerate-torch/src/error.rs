use std::fmt;
use std::path::PathBuf;

/// What can go wrong at the boundary to libtorch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// libtorch raised an exception.
    #[error("`{operation}` failed in libtorch ({kind}): {message}")]
    Libtorch {
        /// The operation that was asked for.
        operation: &'static str,
        /// Which exception it was.
        kind: ExceptionKind,
        /// What libtorch says, without its C++ stack.
        message: String,
    },
    /// A collective or a store operation did not complete in time.
    #[error("`{operation}` timed out{}: {message}", .place.as_ref().map(|p| format!(" on {p}")).unwrap_or_default())]
    Timeout {
        /// The operation that was waiting.
        operation: &'static str,
        /// The rank that waited, where one is known.
        place: Option<Place>,
        /// What libtorch says.
        message: String,
    },
    /// A collective failed because a peer closed its connection.
    #[error(
        "`{operation}` lost its connection on {place}, most likely because another rank ended: {message}"
    )]
    ConnectionLost {
        /// The operation that failed.
        operation: &'static str,
        /// The rank that noticed.
        place: Place,
        /// What libtorch says.
        message: String,
    },
    /// The port that the store is to be served on is taken.
    #[error(
        "cannot serve the store at `{address}`: another process uses the port; \
         end it, or give another port (`MASTER_PORT`, or `--main_process_port` of the launcher)"
    )]
    AddressInUse {
        /// Host and port.
        address: String,
    },
    /// The store could not be served or reached.
    #[error("cannot {} the store at `{address}`: {message}", if *server { "serve" } else { "reach" })]
    Unreachable {
        /// Host and port.
        address: String,
        /// Whether this process was to serve it.
        server: bool,
        /// What libtorch says.
        message: String,
    },
    /// Ranks did not come to the meeting point in time.
    #[error(
        "{} of {world} ranks did not join at `{address}` within {} s: missing {missing:?}; \
         start them, or see why they ended", missing.len(), timeout.as_secs_f64()
    )]
    RanksMissing {
        /// Host and port of the store.
        address: String,
        /// How many ranks were expected.
        world: usize,
        /// Which of them did not come.
        missing: Vec<usize>,
        /// How long was waited.
        timeout: std::time::Duration,
    },
    /// Parameters got no gradient in the last backward pass that was to be reduced.
    #[error("no gradient on {place} in the last backward pass for `{}`; {remedy}", names.join("`, `"))]
    UnusedParameters {
        /// The rank that misses the gradients; others may have them.
        place: Place,
        /// The names of the parameters, in the model's order.
        names: Vec<String>,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A Rust closure that libtorch called returned an error.
    #[error("the callback of `{operation}` failed: {source}")]
    Callback {
        /// The operation that called back.
        operation: &'static str,
        /// What the closure returned.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A Rust closure that libtorch called panicked.
    #[error("the callback of `{operation}` panicked: {message}")]
    CallbackPanicked {
        /// The operation that called back.
        operation: &'static str,
        /// The panic's own message.
        message: String,
    },
    /// A file in which tensors are to lie could not be made, read or written.
    #[error(
        "cannot {action} {bytes} bytes of {purpose} in `{}`{}: {source}; name a folder on a local disk \
         that this user can write to and that has room for it",
        folder.display(),
        free.map(|free| format!(" ({free} bytes free)")).unwrap_or_default()
    )]
    Scratch {
        /// What was tried, such as `reserve`.
        action: &'static str,
        /// How many bytes it was about.
        bytes: u64,
        /// What they are for, and of which rank.
        purpose: String,
        /// The folder of the file.
        folder: PathBuf,
        /// How many bytes its disk still takes, where the system says it.
        free: Option<u64>,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A tensor operation of `tch` failed.
    #[error("a tensor operation failed")]
    Tensor(#[from] tch::TchError),
    /// An argument that cannot be right, found before libtorch was asked.
    #[error("`{operation}` needs {expected}, found {found}")]
    Argument {
        /// The operation that was asked for.
        operation: &'static str,
        /// What it accepts.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// This build cannot do it.
    #[error("`{operation}` needs {needed}, which this build does not have; {remedy}")]
    Unavailable {
        /// The operation that was asked for.
        operation: &'static str,
        /// What it needs.
        needed: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
}

/// The result of an operation at the boundary.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of exception that libtorch raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExceptionKind {
    /// A `c10::Error`: a broken precondition of an operation.
    Torch,
    /// Not enough memory on the device.
    OutOfMemory,
    /// The store could not be reached or refused.
    Store,
    /// A network operation failed.
    Network,
    /// A communication backend failed.
    Backend,
    /// Another exception of the C++ standard hierarchy.
    Standard,
    /// An exception outside the standard hierarchy.
    Unknown,
}

impl fmt::Display for ExceptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torch => "tensor operation",
            Self::OutOfMemory => "out of memory",
            Self::Store => "store",
            Self::Network => "network",
            Self::Backend => "communication backend",
            Self::Standard => "C++ exception",
            Self::Unknown => "unknown exception",
        })
    }
}

/// Who an error happened to: a rank of a named group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The group's name, `0` for the default group.
    pub group: String,
    /// The rank within the group.
    pub rank: usize,
    /// The number of ranks in the group.
    pub world: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rank {} of {} (group `{}`)",
            self.rank, self.world, self.group
        )
    }
}
