//! Saved in shards, and gone on from with other shards, other numbers of ranks, or none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use accelerate::checkpoint::{LoadOptions, SaveModelOptions, load_checkpoint_in_model};
use accelerate::nn::Module;
use accelerate_plan::parallel::{Layout, Mesh, ParallelPlan, Sharded};
use accelerate_testkit::{Rank, start_ranks};
use tch::Tensor;

use crate::job::{Job, Setup, by_class, count, model, plan};

const FOLDER: &str = "SHARDED_STATE_FOLDER";
const PART: &str = "SHARDED_STATE_PART";
const STAGE: &str = "SHARDED_STATE_STAGE";
/// Steps before the state is saved, and behind it.
const STEPS: usize = 3;

/// What is sharded in a part of a test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Stage {
    Whole,
    One,
    Two,
    Three,
    Hybrid,
    /// Parameters, and checkpoints too.
    Written,
}

const STAGES: [Stage; 6] = [
    Stage::Whole,
    Stage::One,
    Stage::Two,
    Stage::Three,
    Stage::Hybrid,
    Stage::Written,
];

impl Stage {
    fn setup(self, rank: Rank) -> Setup {
        let setup = Setup {
            tied: true,
            frozen: true,
            ..Setup::default()
        };
        let sharded = match self {
            Self::Whole => return setup,
            Self::One => Sharded::OptimizerState,
            Self::Two => Sharded::Gradients,
            Self::Three | Self::Written => Sharded::Parameters,
            Self::Hybrid => {
                let mesh = Mesh::new(count(2), count(rank.world() / 2));
                let mut plan = ParallelPlan::new(mesh, Sharded::Parameters);
                plan.wrap = by_class();
                return setup.by(plan);
            }
        };
        let mut plan = plan(rank, sharded, by_class());
        if self == Self::Written {
            plan.state_dict.layout = Layout::Fsdp;
        }
        setup.by(plan)
    }
}

/// The part that runs as a rank.
#[test]
fn rank_with_a_state() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let stage = STAGES[number(STAGE)];
    let rank = Rank::new(number("RANK"), number("WORLD_SIZE"), 0);
    let mut job = Job::new(rank, &stage.setup(rank)).unwrap();
    let state = folder.join("state");
    match std::env::var(PART).unwrap().as_str() {
        "save" => {
            job.train(STEPS).unwrap();
            job.accelerator.save_state(Some(&state)).unwrap();
            let options = SaveModelOptions::default();
            job.accelerator
                .save_model(&*job.model, folder.join("before"), &options)
                .unwrap();
            job.train(STEPS).unwrap();
            job.accelerator
                .save_model(&*job.model, folder.join("after"), &options)
                .unwrap();
        }
        "go on" => {
            job.accelerator.load_state(Some(&state)).unwrap();
            job.goes_on_behind(STEPS);
            job.train(STEPS).unwrap();
            let after = weights_in(&folder.join("after"), &stage.setup(rank));
            assert_eq!(job.weights().unwrap(), after);
        }
        _ => {
            // A job that has other weights and moments until it loads.
            job.goes_on_behind(40);
            job.train(1).unwrap();
            job.accelerator.load_state(Some(&state)).unwrap();
            let again = folder.join("again");
            job.accelerator.save_state(Some(&again)).unwrap();
            if state.join("model.safetensors").exists() && again.join("optimizer.bin").exists() {
                same_files(&state, &again);
            }
            job.train(1).unwrap();
        }
    }
    job.accelerator.end_training().unwrap();
}

fn same_files(one: &Path, other: &Path) {
    for name in ["model.safetensors", "optimizer.bin"] {
        let read = |folder: &Path| fs::read(folder.join(name)).unwrap();
        assert!(read(one) == read(other), "{name} is another one");
    }
}

pub(crate) fn weights_in(folder: &Path, setup: &Setup) -> Vec<(String, Tensor)> {
    let model = model(setup).unwrap();
    load_checkpoint_in_model(&model, folder, &LoadOptions::strict()).unwrap();
    let own = model.named_parameters().into_iter();
    own.map(|(name, one)| (name, one.tensor().detach()))
        .collect()
}

pub(crate) fn run(part: &str, stage: Stage, world: usize, folder: &Path) {
    let number = STAGES.iter().position(|one| *one == stage).unwrap();
    let outputs = start_ranks(world, Duration::from_secs(60), |rank| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "state::rank_with_a_state", "--nocapture"])
            .envs(rank.environment())
            .env(PART, part)
            .env(STAGE, number.to_string())
            .env(FOLDER, folder);
        command
    });
    for output in outputs.unwrap() {
        let fine = output.status.is_some_and(|status| status.success());
        assert!(fine, "{part} {stage:?} on {world}: {}", output.text);
    }
}

#[test]
fn a_job_goes_on_as_if_nothing_had_been() {
    for stage in [Stage::One, Stage::Two, Stage::Three, Stage::Written] {
        let folder = tempfile::tempdir().unwrap();
        run("save", stage, 2, folder.path());
        run("go on", stage, 2, folder.path());
    }
}

#[test]
fn a_state_fits_every_stage_and_number_of_ranks() {
    for (stage, ranks, then) in [
        (
            Stage::Three,
            2,
            &[(Stage::Three, 3), (Stage::Two, 2), (Stage::Whole, 1)][..],
        ),
        (Stage::Whole, 1, &[(Stage::Three, 2), (Stage::One, 3)][..]),
        (
            Stage::Hybrid,
            4,
            &[(Stage::Whole, 2), (Stage::Three, 3)][..],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        run("save", stage, ranks, folder.path());
        for &(other, ranks) in then {
            run("other", other, ranks, folder.path());
            fs::remove_dir_all(folder.path().join("again")).unwrap();
        }
    }
}

#[test]
fn what_ranks_wrote_each_for_itself_is_read_by_any_number() {
    let folder = tempfile::tempdir().unwrap();
    run("save", Stage::Written, 2, folder.path());
    let state = folder.path().join("state");
    for name in [
        "pytorch_model_fsdp_0/.metadata",
        "pytorch_model_fsdp_0/__1_0.distcp",
        "optimizer_0/.metadata",
        "optimizer_0/__0_0.distcp",
    ] {
        assert!(state.join(name).exists(), "{name}");
    }
    let again = |stage: Stage, ranks: usize| {
        run("other", stage, ranks, folder.path());
        let kept = folder.path().join(format!("{stage:?}"));
        fs::rename(folder.path().join("again"), &kept).unwrap();
        kept
    };
    let whole = again(Stage::Whole, 1);
    same_files(&whole, &again(Stage::Three, 3));
    same_files(&whole, &again(Stage::Two, 2));
    // As many shards out of a whole one, and back.
    fs::remove_dir_all(&state).unwrap();
    fs::rename(&whole, &state).unwrap();
    let written = again(Stage::Written, 3);
    fs::rename(&state, folder.path().join("first")).unwrap();
    fs::rename(&written, &state).unwrap();
    let back = again(Stage::One, 2);
    same_files(&folder.path().join("first"), &back);
}
