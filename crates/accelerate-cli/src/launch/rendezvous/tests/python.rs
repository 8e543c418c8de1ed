//! One job with our nodes and nodes of Python's own launcher.

use std::{
    num::NonZeroU16,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use accelerate_testkit::parity_python;

use super::{Barrier, PeerEvent, Round, enter, event, free_port, ranked};

/// Python takes seconds to start where the machine is busy.
const PATIENCE: Duration = Duration::from_secs(100);

/// What a rank of Python does here: it joins a group over the store of the launchers, unless it is
/// to fail at once.
const RANK: &str = "
import os, sys
if sys.argv[1] == 'fail':
    sys.exit(3)
import torch, torch.distributed as dist
dist.init_process_group('gloo')
sum = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(sum)
# In one piece: two ranks write to one pipe.
os.write(1, f'RANK {dist.get_rank()} of {dist.get_world_size()} sums up {int(sum)}\\n'.encode())
dist.destroy_process_group()
";

fn torchrun(python: &Path, rank: usize, port: NonZeroU16, script: &str, what: &str) -> Child {
    Command::new(python)
        .args([
            "-m",
            "torch.distributed.run",
            "--nnodes=2",
            "--nproc_per_node=2",
        ])
        .arg(format!("--node_rank={rank}"))
        .args(["--master_addr=127.0.0.1", &format!("--master_port={port}")])
        .args([script, what])
        .env_remove("LD_LIBRARY_PATH")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A job of one node of ours with 1 process, and one of Python with 2.
fn with_python(our_rank: usize, what: &str, test: &str) {
    let Some(python) = parity_python(test) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("rank.py");
    std::fs::write(&script, RANK).unwrap();
    let port = free_port();
    let script = script.to_str().unwrap();
    let theirs = torchrun(&python, 1 - our_rank, port, script, what);
    let succeeds = what == "succeed";
    let mut request = ranked(our_rank, port, 2);
    request.timing.join = PATIENCE;
    let (mut nodes, round) = enter(request, 1).unwrap();
    assert_eq!(round.world_size, 3);
    assert_eq!(round.counts[our_rank], 1);
    assert_eq!(round.base_rank, if our_rank == 0 { 0 } else { 2 });
    assert!(round.meeting_point.served_by_launcher);
    assert_eq!(round.meeting_point.port, port.get());
    assert!(!nodes.restart_is_left());
    if succeeds {
        let ours = our_rank_of(&round, &python, script);
        assert!(
            ours.contains(&format!("RANK {} of 3 sums up 6", round.base_rank)),
            "{ours}"
        );
        assert_eq!(nodes.exit_barrier(PATIENCE), Barrier::Passed);
    } else {
        let told = event(&nodes);
        assert!(
            matches!(told, PeerEvent::Lost { .. } | PeerEvent::StoreLost { .. }),
            "{told:?}"
        );
    }
    nodes.leave();
    let output = theirs.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.success(), succeeds, "{text}");
    if succeeds {
        let first = if our_rank == 0 { 1 } else { 0 };
        for rank in [first, first + 1] {
            assert!(
                text.contains(&format!("RANK {rank} of 3 sums up 6")),
                "{text}"
            );
        }
    }
}

/// Runs the rank of our node, as the launcher would start it.
fn our_rank_of(round: &Round, python: &Path, script: &str) -> String {
    let point = &round.meeting_point;
    let output = Command::new(python)
        .args([script, "succeed"])
        .env_remove("LD_LIBRARY_PATH")
        .env("RANK", round.base_rank.to_string())
        .env("LOCAL_RANK", "0")
        .env("WORLD_SIZE", round.world_size.to_string())
        .env("MASTER_ADDR", &point.address)
        .env("MASTER_PORT", point.port.to_string())
        .env("TORCHELASTIC_RUN_ID", "none")
        .env("TORCHELASTIC_RESTART_COUNT", round.number.to_string())
        .env("TORCHELASTIC_USE_AGENT_STORE", "True")
        .output()
        .unwrap();
    said(&output)
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn parity_our_store_with_a_node_of_torchrun() {
    with_python(0, "succeed", "parity_our_store_with_a_node_of_torchrun");
}

#[test]
fn parity_our_node_at_the_store_of_torchrun() {
    with_python(1, "succeed", "parity_our_node_at_the_store_of_torchrun");
}

#[test]
fn parity_a_node_of_torchrun_that_fails_is_missed() {
    with_python(0, "fail", "parity_a_node_of_torchrun_that_fails_is_missed");
}

#[test]
fn parity_the_store_of_torchrun_is_missed() {
    with_python(1, "fail", "parity_the_store_of_torchrun_is_missed");
}
