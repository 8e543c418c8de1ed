//! Checkpoints that are not whole, and places where none can be.

use std::path::{Path, PathBuf};

use accelerate::checkpoint::{CheckpointFault, MANIFEST_FILE, ProjectConfiguration};
use accelerate::{Error, Result};
use accelerate_testkit::ranks;

use crate::job::{Job, Setup};

fn saved_twice(folder: &Path) -> (Job, [PathBuf; 2], Vec<u64>) {
    let mut job = Job::new(folder, Setup::default()).unwrap();
    job.train(2).unwrap();
    let first = job.accelerator.save_state(None).unwrap();
    let weights = job.weights();
    job.train(2).unwrap();
    let second = job.accelerator.save_state(None).unwrap();
    (job, [first, second], weights)
}

#[test]
fn a_damaged_one_is_passed_over_for_the_one_before() {
    for file in ["model.safetensors", "optimizer.bin", "random_states_0.pkl"] {
        let folder = tempfile::tempdir().unwrap();
        let (job, [first, second], weights) = saved_twice(folder.path());
        let path = second.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let loaded = job.accelerator.load_state(None).unwrap();
        assert_eq!(loaded.path, first);
        assert_eq!(loaded.skipped.len(), 1);
        assert_eq!(
            loaded.skipped[0].fault,
            CheckpointFault::Content { name: file.into() }
        );
        assert_eq!(job.weights(), weights);
        // Asked for by name it is refused, and nothing changes.
        let error = job.accelerator.load_state(Some(&second)).unwrap_err();
        assert!(matches!(&error, Error::CheckpointDamaged { path, .. } if *path == second));
        assert!(error.to_string().contains(file), "{error}");
        assert_eq!(job.weights(), weights);
    }
}

#[test]
fn random_state_that_is_gone_is_a_warning_or_in_a_strict_project_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (job, [first, _], _) = saved_twice(folder.path());
    std::fs::remove_file(first.join(MANIFEST_FILE)).unwrap();
    std::fs::write(first.join("random_states_0.pkl"), "junk").unwrap();
    let loaded = job.accelerator.load_state(Some(&first)).unwrap();
    assert_eq!(loaded.warnings.len(), 1, "{loaded:?}");
    assert!(
        loaded.warnings[0].contains("random_states_0.pkl"),
        "{loaded:?}"
    );

    let mut strict = ProjectConfiguration::automatic(folder.path());
    strict.strict = true;
    let job = Job::with_project(strict, Setup::default()).unwrap();
    let error = job.accelerator.load_state(Some(&first)).unwrap_err();
    assert!(error.to_string().contains("random_states_0.pkl"), "{error}");
}

#[test]
fn a_rank_that_cannot_write_stops_all_and_leaves_the_earlier_one() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = std::env::temp_dir().join(format!("accelerate-broken-{}", rank.port()));
        std::fs::create_dir_all(&folder).unwrap();
        let job = Job::new(&folder, Setup::default())?;
        let saved = job.accelerator.save_state(None)?;
        // Rank 0 fails at its own part, when the folder and the other rank's files are there.
        let object = std::rc::Rc::new(std::cell::RefCell::new(Unreadable));
        job.accelerator.register_for_checkpointing(object);
        let error = job.accelerator.save_state(None).unwrap_err();
        let expected = match rank.index() {
            0 => matches!(&error, Error::Data(_)),
            _ => matches!(&error, Error::OtherRankFailed { rank: 0 }),
        };
        assert!(expected, "{error}");
        job.accelerator.wait_for_everyone()?;
        let left = std::fs::read_dir(folder.join("checkpoints")).unwrap();
        let mut left: Vec<String> = left
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["checkpoint_0", "latest"]);
        assert!(saved.join(MANIFEST_FILE).exists());
        job.accelerator.wait_for_everyone()?;
        if rank.index() == 0 {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        Ok(())
    });
}

/// State that cannot be read.
struct Unreadable;

impl accelerate::checkpoint::Checkpointable for Unreadable {
    fn state_dict(&self) -> Result<accelerate::checkpoint::Value> {
        Err(Error::data("no state today"))
    }

    fn load_state_dict(&mut self, _state: &accelerate::checkpoint::Value) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_place_with_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::with_project(ProjectConfiguration::default(), Setup::default()).unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "all of it").unwrap();
    let error = job.accelerator.save_state(Some(folder.path())).unwrap_err();
    assert!(matches!(error, Error::CheckpointTarget { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
