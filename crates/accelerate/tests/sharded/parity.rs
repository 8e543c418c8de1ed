//! Beside PyTorch's own FSDP, live; `cargo xtask parity` runs these.
//!
//! The Python side is `tests/parity/fsdp2_peer.py`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use accelerate::checkpoint::{SaveModelOptions, save_model};
use accelerate_plan::parallel::Sharded;
use accelerate_testkit::{Rank, parity_python, start_ranks};

use crate::job::{Job, Setup, by_class, model, plan};
use crate::state::{Stage, run, weights_in};

const FOLDER: &str = "SHARDED_PARITY_FOLDER";
/// As many as the Python side makes.
const STEPS: usize = 10;
/// Python takes seconds to start where the machine is busy.
const DEADLINE: Duration = Duration::from_secs(60);

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/fsdp2_peer.py")
}

/// The Rust side of the comparison, as one rank.
#[test]
fn rank_beside_fsdp2() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let rank = Rank::new(number("RANK"), number("WORLD_SIZE"), 0);
    let setup = Setup::default().by(plan(rank, Sharded::Parameters, by_class()));
    let found = Job::new(rank, &setup).unwrap().train(STEPS).unwrap();
    let theirs = std::fs::read(folder.join(format!("losses-{}.json", rank.index()))).unwrap();
    let theirs: Vec<f64> = serde_json::from_slice(&theirs).unwrap();
    assert_eq!(theirs.len(), STEPS);
    for (theirs, ours) in theirs.iter().zip(&found.losses) {
        // Their optimizer has other kernels, whose last digits differ.
        assert!((theirs - ours).abs() < 1e-5, "{ours}, not {theirs}");
    }
    let theirs = weights_in(&folder.join("theirs"), &setup);
    for ((name, theirs), (_, ours)) in theirs.iter().zip(&found.weights) {
        let apart = (theirs - ours).abs().max().double_value(&[]);
        assert!(apart < 1e-5, "`{name}` is {apart:e} apart");
    }
}

#[test]
fn parity_training_is_that_of_fsdp2() {
    let Some(python) = parity_python("parity_training_is_that_of_fsdp2") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let first = model(&Setup::default()).unwrap();
    save_model(
        &first,
        folder.path().join("first"),
        &SaveModelOptions::default(),
    )
    .unwrap();
    let peers = start_ranks(2, DEADLINE, |rank| {
        let mut command = Command::new(&python);
        command
            .arg(script())
            .arg("train")
            .arg(folder.path())
            .envs(rank.environment());
        command
    });
    for peer in peers.unwrap() {
        assert!(peer.text.contains("PEER OK"), "{}", peer.text);
    }
    let outputs = start_ranks(2, DEADLINE, |rank| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "parity::rank_beside_fsdp2", "--nocapture"])
            .envs(rank.environment())
            .env(FOLDER, folder.path());
        command
    });
    for output in outputs.unwrap() {
        let fine = output.status.is_some_and(|status| status.success());
        assert!(fine, "{}", output.text);
    }
}

#[test]
fn parity_pytorch_reads_what_ranks_wrote() {
    let Some(python) = parity_python("parity_pytorch_reads_what_ranks_wrote") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    run("save", Stage::Written, 2, folder.path());
    let read = Command::new(python)
        .arg(script())
        .arg("read")
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{text}");
}
