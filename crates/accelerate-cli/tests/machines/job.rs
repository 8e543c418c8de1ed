//! The launchers of one job.

use crate::command::{Done, Folder, Run, Running, free_port};

/// A place where the launchers of a job meet.
pub(crate) struct Job {
    folder: Folder,
    port: String,
    num_machines: String,
}

impl Job {
    pub(crate) fn new(num_machines: usize) -> Self {
        Self {
            folder: Folder::new(),
            port: free_port().to_string(),
            num_machines: num_machines.to_string(),
        }
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A launcher without a number.
    pub(crate) fn launcher(&self, words: &[&str]) -> Run {
        let [machines, port] = [&self.num_machines, &self.port];
        let common = ["--cpu", "--num_machines", machines, "--main_process_ip"];
        let common = self.folder.launch(common);
        let common = common.args(["127.0.0.1", "--main_process_port", port]);
        common.args(words)
    }

    /// The launcher of a machine.
    pub(crate) fn machine(&self, rank: usize, words: &[&str]) -> Run {
        self.launcher(&["--machine_rank", &rank.to_string()])
            .args(words)
    }
}

/// Runs launchers at the same time until all have ended.
pub(crate) fn together<const N: usize>(runs: [Run; N]) -> [Done; N] {
    runs.map(Run::start).map(Running::done)
}

/// What ranks print, sorted, from all launchers.
pub(crate) fn lines(all: &[Done]) -> Vec<String> {
    let lines = all.iter().flat_map(|done| done.lines());
    let mut lines: Vec<_> = lines.map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}
