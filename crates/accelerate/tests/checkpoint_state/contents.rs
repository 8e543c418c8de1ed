//! What is in a checkpoint folder, and what belongs to it besides what was prepared.

use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;

use accelerate::checkpoint::{
    Checkpointable, Manifest, ProjectConfiguration, SaveStateOptions, Value, Verify, Weights,
};
use accelerate::nn::Module as _;
use accelerate::{Error, Result};
use accelerate_testkit::turn;

use crate::job::{Job, Setup};

#[derive(Debug, Default)]
struct Best(i64);

impl Checkpointable for Best {
    fn state_dict(&self) -> Result<Value> {
        Ok(self.0.into())
    }

    fn load_state_dict(&mut self, state: &Value) -> Result<()> {
        self.0 = state
            .as_int()
            .and_then(|best| best.try_into().ok())
            .unwrap_or_default();
        Ok(())
    }
}

#[test]
fn the_files_have_the_names_of_the_original() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new(folder.path(), Setup::default()).unwrap();
    let best = Rc::new(RefCell::new(Best(41)));
    job.accelerator.register_for_checkpointing(Rc::clone(&best));
    job.train(3).unwrap();
    let saved = job.accelerator.save_state(None).unwrap();
    let manifest = Manifest::verify(&saved, Verify::Hashes).unwrap();
    let names: Vec<&str> = manifest
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "custom_checkpoint_0.pkl",
            "dl_state_dict.bin",
            "model.safetensors",
            "optimizer.bin",
            "random_states_0.pkl",
            "scheduler.bin",
        ]
    );
    let weights = Weights::open(saved.join("model.safetensors")).unwrap();
    assert_eq!(
        weights.names().collect::<Vec<_>>(),
        ["first.bias", "first.weight", "second.bias", "second.weight"]
    );

    best.borrow_mut().0 = 0;
    job.accelerator.load_state(None).unwrap();
    assert_eq!(best.borrow().0, 41);
}

#[test]
fn what_was_not_registered_is_told_with_both_counts() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(folder.path(), Setup::default()).unwrap();
    job.accelerator
        .register_for_checkpointing(Rc::new(RefCell::new(Best(1))));
    job.accelerator.save_state(None).unwrap();
    let other = Job::new(folder.path(), Setup::default()).unwrap();
    let error = other.accelerator.load_state(None).unwrap_err();
    let Error::StateMismatch { problems, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        problems,
        &["1 custom objects saved, 0 registered for checkpointing"]
    );
}

#[test]
fn a_limit_keeps_the_newest() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let project =
        ProjectConfiguration::automatic(folder.path()).total_limit(NonZeroUsize::new(2).unwrap());
    let job = Job::with_project(project, Setup::default()).unwrap();
    for _ in 0..4 {
        job.accelerator.save_state(None).unwrap();
    }
    let mut left: Vec<String> = std::fs::read_dir(folder.path().join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["checkpoint_2", "checkpoint_3", "latest"]);
}

#[test]
fn a_folder_of_ones_own_does_for_both_ways() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::with_project(ProjectConfiguration::default(), Setup::default()).unwrap();
    let error = job.accelerator.save_state(None).unwrap_err();
    assert!(matches!(error, Error::NoCheckpointFolder { .. }), "{error}");
    let own = folder.path().join("epoch_1");
    job.train(2).unwrap();
    let weights = job.weights();
    assert_eq!(job.accelerator.save_state(Some(&own)).unwrap(), own);
    job.train(2).unwrap();
    assert_ne!(job.weights(), weights);
    job.accelerator.load_state(Some(&own)).unwrap();
    assert_eq!(job.weights(), weights);
}

#[test]
fn weights_may_be_in_the_older_form() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new(folder.path(), Setup::default()).unwrap();
    job.train(2).unwrap();
    let weights = job.weights();
    let options = SaveStateOptions::default().safe_serialization(false);
    let saved = job.accelerator.save_state_with(None, options).unwrap();
    assert!(saved.join("pytorch_model.bin").exists());
    assert!(!saved.join("model.safetensors").exists());
    job.train(2).unwrap();
    job.accelerator.load_state(None).unwrap();
    assert_eq!(job.weights(), weights);
}

#[test]
fn gradients_of_what_is_given_up_go() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        accumulation: 2,
        ..Setup::default()
    };
    let mut job = Job::new(folder.path(), setup).unwrap();
    job.accelerator.save_state(None).unwrap();
    job.train(1).unwrap();
    let has_some = |job: &Job| {
        let parameters = job.model.parameters();
        parameters.iter().any(|one| one.tensor().grad().defined())
    };
    assert!(has_some(&job));
    job.accelerator.load_state(None).unwrap();
    assert!(!has_some(&job));
}

#[test]
fn what_is_gone_or_was_never_trained_is_not_asked_for() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new(folder.path(), Setup::default()).unwrap();
    // Never stepped: the optimizer has no moments yet.
    job.accelerator.save_state(None).unwrap();
    job.train(1).unwrap();
    job.accelerator.load_state(None).unwrap();
    let steps = job.train(2).unwrap();
    let other = Setup {
        seed: 5,
        ..Setup::default()
    };
    let mut fresh = Job::new(folder.path(), other).unwrap();
    fresh.accelerator.load_state(None).unwrap();
    assert_eq!(fresh.train(2).unwrap(), steps);
    // Two jobs in one process share nothing.
    drop(job);
    fresh.accelerator.save_state(None).unwrap();
}
