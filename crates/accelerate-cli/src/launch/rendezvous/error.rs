//! Why nodes cannot work together.

use std::{io, time::Duration};

use accelerate_plan::Hint;

use super::{
    agreement::Conflict,
    store::client::StoreError,
    waiting::{State, Waiting},
};

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why nodes do not find each other, or cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    #[error("`rdzv_conf` has a part without a name in `{text}`: expected `key=value,key=value`")]
    OptionName { text: String },

    #[error("`{key}` in `rdzv_conf` has no value: expected `{key}=value`")]
    OptionEmpty { key: String },

    #[error("`{key}` in `rdzv_conf`: expected {expected}, found `{value}`")]
    OptionValue {
        key: String,
        value: String,
        expected: &'static str,
    },

    #[error("no host in the address `{endpoint}`: expected `host:port` or `[v6]:port`")]
    EndpointHost { endpoint: String },

    #[error("no port in the address `{endpoint}`: expected a number from 1 to 65535 after `:`")]
    EndpointPort { endpoint: String },

    #[error("port {port} is in use, and what uses it is no launcher of a job")]
    PortBusy { port: u16, source: io::Error },

    #[error("cannot listen on port {port} for the other nodes")]
    Listen { port: u16, source: io::Error },

    #[error("no launcher answers at {endpoint} after {} s", waited.as_secs())]
    Unreachable {
        endpoint: String,
        waited: Duration,
        source: StoreError,
    },

    #[error("lost the launcher that answers at {endpoint}")]
    Store {
        endpoint: String,
        source: StoreError,
    },

    #[error("the nodes do not agree:\n{}", listed(conflicts))]
    Disagreement { conflicts: Vec<Conflict> },

    #[error(
        "after {} s at {endpoint} there are {} of {num_nodes} nodes: joined {}; missing {}",
        waited.as_secs(), joined.len(), words(joined), words(missing)
    )]
    Missing {
        endpoint: String,
        waited: Duration,
        num_nodes: usize,
        joined: Vec<String>,
        missing: Vec<String>,
    },

    #[error(
        "the job at {endpoint} runs without this node: `machine_rank` {rank} is that of {holder}"
    )]
    RankTaken {
        endpoint: String,
        rank: usize,
        holder: String,
    },

    #[error("the job at {endpoint} has ended after all its {restarts} restarts")]
    NoRestartLeft { endpoint: String, restarts: usize },

    #[error("the job at {endpoint} is over: {why}")]
    JobOver { endpoint: String, why: String },

    #[error("{what}")]
    TimedOut { what: Box<Waiting> },

    #[error("a job that shares nodes with Python's launcher cannot be restarted")]
    MixedRestart,

    #[error("`{key}` in the store of the job is not what a launcher writes")]
    Garbled {
        key: String,
        source: serde_json::Error,
    },

    #[error("cannot find a free port for rank 0")]
    NoFreePort {
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    #[error("cannot {doing}")]
    System {
        doing: &'static str,
        source: io::Error,
    },

    #[error("interrupted while waiting for other nodes")]
    Interrupted,
}

impl Error {
    /// A wait has reached its limit.
    pub(super) fn timed_out(waiting: Waiting) -> Self {
        match waiting.state {
            State::Gathering {
                num_nodes,
                joined,
                missing,
            } => Self::Missing {
                endpoint: waiting.endpoint,
                waited: waiting.elapsed,
                num_nodes,
                joined,
                missing,
            },
            _ => Self::TimedOut {
                what: Box::new(waiting),
            },
        }
    }

    /// Whether the command line or the configuration is wrong by itself.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::OptionName { .. }
                | Self::OptionEmpty { .. }
                | Self::OptionValue { .. }
                | Self::EndpointHost { .. }
                | Self::EndpointPort { .. }
        )
    }
}

impl Hint for Error {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::PortBusy { .. } => {
                "end what uses it, or give all nodes another port with `--main_process_port`"
            }
            Self::Unreachable { .. } => {
                "start the launcher of `machine_rank` 0, and see that `--main_process_ip` and \
                 `--main_process_port` are its address and that no firewall is in between"
            }
            Self::Disagreement { .. } => {
                "start every node with the same configuration; only \
                 `machine_rank` differs, and the number of processes may"
            }
            Self::Missing { .. } => {
                "start the launcher on the missing nodes with the same address, port and \
                 `num_machines`; `rdzv_conf` can give them more time (`timeout`, `join_timeout`)"
            }
            Self::RankTaken { .. } => "give each node a `machine_rank` of its own",
            Self::MixedRestart => "set `max_restarts` to 0, or use one launcher on all nodes",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

fn listed(conflicts: &[Conflict]) -> String {
    let lines: Vec<_> = conflicts
        .iter()
        .map(|conflict| format!("    {conflict}"))
        .collect();
    lines.join("\n")
}

/// How many names a list of nodes has at most.
const MOST_NAMES: usize = 16;

pub(super) fn words(names: &[String]) -> String {
    match names.len() {
        0 => "none".to_owned(),
        count if count > MOST_NAMES => {
            let (shown, rest) = names.split_at(MOST_NAMES);
            format!("{} and {} more", shown.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}
