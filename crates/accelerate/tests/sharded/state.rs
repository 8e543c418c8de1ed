//! Saved in shards, and gone on from with other shards, other numbers of ranks, or none.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use accelerate::checkpoint::{LoadOptions, SaveModelOptions, load_checkpoint_in_model};
use accelerate::nn::Module;
use accelerate::optim::AdamW;
use accelerate_formats::{Weights, ZeroCheckpoint};
use accelerate_plan::parallel::{Layout, Mesh, ParallelPlan, Sharded, StateDictType};
use accelerate_testkit::{Rank, RankOutput, start_ranks};
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
    /// The stages of ZeRO, with its folders.
    ZeroOne,
    ZeroTwo,
    ZeroThree,
    ZeroHybrid,
}

const STAGES: [Stage; 10] = [
    Stage::Whole,
    Stage::One,
    Stage::Two,
    Stage::Three,
    Stage::Hybrid,
    Stage::Written,
    Stage::ZeroOne,
    Stage::ZeroTwo,
    Stage::ZeroThree,
    Stage::ZeroHybrid,
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
            Self::One | Self::ZeroOne => Sharded::OptimizerState,
            Self::Two | Self::ZeroTwo => Sharded::Gradients,
            _ => Sharded::Parameters,
        };
        let mut plan = match self {
            Self::Hybrid | Self::ZeroHybrid => {
                let mesh = Mesh::new(count(2), count(rank.world() / 2));
                let mut plan = ParallelPlan::new(mesh, sharded);
                plan.wrap = by_class();
                plan
            }
            _ => plan(rank, sharded, by_class()),
        };
        plan.state_dict.layout = match self {
            Self::Written => Layout::Fsdp,
            Self::ZeroOne | Self::ZeroTwo | Self::ZeroThree | Self::ZeroHybrid => Layout::DeepSpeed,
            _ => plan.state_dict.layout,
        };
        plan.state_dict.kind = match plan.state_dict.layout {
            Layout::DeepSpeed => StateDictType::Sharded,
            _ => plan.state_dict.kind,
        };
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
        "killed" => return killed(&mut job, &folder, &stage.setup(rank), rank),
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

/// Goes on from a state that is there, saves another one, and is killed while it trains on.
fn killed(job: &mut Job<AdamW>, folder: &Path, setup: &Setup, rank: Rank) {
    let (state, saved) = (folder.join("state"), folder.join("saved"));
    if state.exists() {
        job.accelerator.load_state(Some(&state)).unwrap();
        assert_eq!(job.weights().unwrap(), weights_in(&saved, setup));
    }
    job.train(STEPS).unwrap();
    job.accelerator.save_state(Some(&state)).unwrap();
    let options = SaveModelOptions::default();
    let saved = job.accelerator.save_model(&*job.model, &saved, &options);
    saved.unwrap();
    job.train(1).unwrap();
    if rank.index() == 1 {
        let kill = Command::new("sh").args(["-c", "kill -9 $PPID"]).status();
        kill.unwrap();
        std::thread::sleep(Duration::from_secs(60));
    }
    // The others notice, in this step or one of the next.
    assert!(job.train(100).is_err());
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

fn start(part: &str, stage: Stage, world: usize, folder: &Path) -> Vec<RankOutput> {
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
    outputs.unwrap()
}

pub(crate) fn run(part: &str, stage: Stage, world: usize, folder: &Path) {
    for output in start(part, stage, world, folder) {
        let fine = output.status.is_some_and(|status| status.success());
        assert!(fine, "{part} {stage:?} on {world}: {}", output.text);
    }
}

#[test]
fn a_job_goes_on_as_if_nothing_had_been() {
    for stage in [Stage::One, Stage::ZeroTwo, Stage::ZeroThree, Stage::Written] {
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

/// What is saved in a state's folder of DeepSpeed's is the model that was saved beside it.
fn assert_holds(state: &Path, model: &Path) {
    let zero = ZeroCheckpoint::open(state, None).unwrap();
    let weights = Weights::open(model).unwrap();
    let mut found = 0;
    for header in zero.tensors() {
        let expected = weights.get(&header.name).unwrap();
        let pieces = zero.pieces(&header.name).unwrap();
        let bytes: Vec<u8> = pieces.flat_map(|piece| piece.unwrap().to_vec()).collect();
        assert_eq!(header.shape, expected.shape(), "{}", header.name);
        assert!(bytes == *expected.bytes().unwrap(), "{}", header.name);
        found += 1;
    }
    // One word's vector in and out is one parameter with two names.
    assert_eq!(
        (found, zero.aliases().count()),
        (weights.tensors().count(), 1)
    );
}

#[test]
fn folders_of_deepspeed_are_read_by_any_number_and_any_plan() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    run("save", Stage::ZeroTwo, 2, folder.path());
    let tag = fs::read_to_string(state.join("latest")).unwrap();
    assert_eq!(tag, "pytorch_model");
    for name in [
        "mp_rank_00_model_states.pt",
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt",
    ] {
        assert!(state.join(&tag).join(name).exists(), "{name}");
    }
    assert!(!state.join("model.safetensors").exists() && !state.join("optimizer.bin").exists());
    assert_holds(&state, &folder.path().join("before"));
    // Each goes on from what the one before it wrote, and changes nothing.
    let mut kept = Vec::new();
    for (stage, ranks) in [
        (Stage::Whole, 1),
        (Stage::ZeroThree, 3),
        (Stage::Written, 2),
        (Stage::ZeroOne, 2),
        (Stage::Whole, 1),
    ] {
        run("other", stage, ranks, folder.path());
        let own = folder.path().join(format!("{}", kept.len()));
        fs::rename(&state, &own).unwrap();
        fs::rename(folder.path().join("again"), &state).unwrap();
        if matches!(stage, Stage::ZeroThree | Stage::ZeroOne) {
            assert_holds(&state, &folder.path().join("before"));
        }
        kept.push(own);
    }
    same_files(&kept[1], &state);
}

#[test]
fn a_job_that_was_killed_goes_on_with_other_shards() {
    let folder = tempfile::tempdir().unwrap();
    for (stage, ranks) in [
        (Stage::ZeroOne, 2),
        (Stage::ZeroHybrid, 4),
        (Stage::ZeroThree, 3),
        (Stage::ZeroTwo, 2),
    ] {
        let outputs = start("killed", stage, ranks, folder.path());
        for (rank, output) in outputs.iter().enumerate() {
            let status = output.status.unwrap();
            let is_as_wanted = match rank {
                1 => status.signal() == Some(9),
                _ => status.success(),
            };
            assert!(is_as_wanted, "{stage:?} on {ranks}: {}", output.text);
        }
    }
}
