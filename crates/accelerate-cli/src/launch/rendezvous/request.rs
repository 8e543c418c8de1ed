//! What a node asks for when it joins.

use std::{num::NonZeroUsize, time::Duration};

use super::{agreement::NodeView, endpoint::Endpoint, options::Options};

/// How the nodes get their numbers, and who keeps the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// `static`: by `machine_rank`; node 0 keeps the store. Nodes of Python's launcher can take
    /// part.
    Static { node_rank: usize },
    /// `c10d`: in the order in which they come, the one that keeps the store first. That is the
    /// node to which the address belongs, unless `is_host` says otherwise.
    C10d { is_host: Option<bool> },
}

/// What a node wants.
#[derive(Debug, Clone)]
pub(crate) struct JoinRequest {
    pub(crate) run_id: String,
    pub(crate) backend: Backend,
    pub(crate) endpoint: Endpoint,
    pub(crate) num_nodes: NonZeroUsize,
    pub(crate) max_restarts: usize,
    pub(crate) role: String,
    /// Name of this machine, to be shown.
    pub(crate) host: String,
    /// Address of this machine for the ranks of other nodes, if the user gave one.
    pub(crate) local_address: Option<String>,
    /// What must be the same on all nodes. The setting `num_processes` is compared with the sum
    /// over the nodes too.
    pub(crate) view: NodeView,
    pub(crate) timing: Timing,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Until all nodes have come.
    pub(crate) join: Duration,
    /// An answer of the store.
    pub(crate) answer: Duration,
    /// Until the first report on who is missing, and between the reports after it.
    pub(crate) first_report: Duration,
    pub(crate) next_report: Duration,
    /// How often a node shows that it is alive.
    pub(crate) beat: Duration,
    /// After how many of these times without a sign it is lost.
    pub(crate) misses: u32,
    /// How long the node that keeps the store waits at the end until others have hung up.
    pub(crate) linger: Duration,
}

impl Timing {
    /// The usual times, with those that `rdzv_conf` gives.
    pub(crate) fn new(backend: Backend, options: &Options) -> Self {
        let seconds = Duration::from_secs;
        Self {
            join: match backend {
                Backend::Static { .. } => options.timeout.unwrap_or(seconds(900)),
                Backend::C10d { .. } => options.join_timeout.unwrap_or(seconds(600)),
            },
            answer: options.read_timeout.unwrap_or(seconds(60)),
            first_report: seconds(10),
            next_report: seconds(60),
            beat: seconds(5),
            misses: 3,
            linger: seconds(2),
        }
    }
}
