//! The names of what the nodes keep in the store. All are below the id of the run.

/// Of Python's launcher: which ranks a node has, by number of the node.
pub(super) const ROLE_INFO: &str = "torchelastic/role_info/";

/// Of Python's launcher: what the first node gives to each node.
pub(super) const ASSIGNED_RANKS: &str = "torchelastic/assigned_ranks/";

/// Of Python's launcher: how many nodes are done.
pub(super) const NUM_DONE: &str = "torchelastic/agent/terminal_state/num_members";

/// Of Python's launcher: set when all nodes are done.
pub(super) const ALL_DONE: &str = "torchelastic/agent/terminal_state/last_member";

/// The token of the node that keeps the store, if it is one of ours.
pub(super) const HOST: &str = "accelerate/host";

/// The round that is going on.
pub(super) const ROUND: &str = "accelerate/round";

/// Before the number of a node: its launcher is Python's, and it is gone.
pub(super) const AGENT_GONE: &str = "accelerate/agent_gone/";

/// How many have come to a round.
pub(super) fn joined(round: usize) -> String {
    format!("accelerate/{round}/joined")
}

/// Who came to a round, by order of arrival.
pub(super) fn member(round: usize, index: usize) -> String {
    format!("accelerate/{round}/member/{index}")
}

/// Who came and left before the round began.
pub(super) fn gone(round: usize, index: usize) -> String {
    format!("accelerate/{round}/gone/{index}")
}

/// Who takes part in a round, or why nobody can.
pub(super) fn verdict(round: usize) -> String {
    format!("accelerate/{round}/verdict")
}

/// Where the ranks of a round meet.
pub(super) fn meeting_point(round: usize) -> String {
    format!("accelerate/{round}/meeting_point")
}

/// How many nodes have succeeded.
pub(super) fn succeeded(round: usize) -> String {
    format!("accelerate/{round}/succeeded")
}

/// How a round ended.
pub(super) fn end(round: usize) -> String {
    format!("accelerate/{round}/end")
}

/// How many nodes know how a round ended, apart from the one that keeps the store.
pub(super) fn heard(round: usize) -> String {
    format!("accelerate/{round}/heard")
}

/// Counts as long as a node is alive.
pub(super) fn beat(token: &str) -> String {
    format!("accelerate/beat/{token}")
}

/// A node's will; see `store::wills`.
pub(super) fn will(token: &str, purpose: &str) -> String {
    format!("accelerate/will/{token}/{purpose}")
}
