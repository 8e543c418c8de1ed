//! Saves that do not stop training.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use accelerate::checkpoint::{
    Checkpointable, Manifest, ProjectConfiguration, SaveStateOptions, Value, Verify, WhileSaving,
};
use accelerate::{Accelerator, Error, Result};
use accelerate_formats::{Dtype, Storage, StoredTensor};
use accelerate_testkit::{ranks, turn};

use crate::job::{Job, Setup};

/// The thread that writes.
const WRITER: &str = "accelerate-save";

/// State whose bytes come, or fail to come, when they are written.
struct Late(Arc<Bytes>);

struct Bytes {
    at_writing: Box<dyn Fn() + Send + Sync>,
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        if std::thread::current().name() == Some(WRITER) {
            (self.at_writing)();
        }
        &[1, 2, 3]
    }
}

impl Checkpointable for Late {
    fn state_dict(&self) -> Result<Value> {
        let storage = Storage::from_owner(Arc::<Bytes>::clone(&self.0));
        let tensor = StoredTensor::contiguous(Dtype::U8, [3], Arc::new(storage));
        Ok(tensor.map_err(Error::data)?.into())
    }

    fn load_state_dict(&mut self, _state: &Value) -> Result<()> {
        Ok(())
    }
}

/// From now on saves of `accelerator` run `at_writing` in the middle of writing.
pub(crate) fn meanwhile(
    accelerator: &Accelerator,
    at_writing: impl Fn() + Send + Sync + 'static,
) -> Rc<RefCell<dyn Checkpointable>> {
    let at_writing = Box::new(at_writing);
    let object = Rc::new(RefCell::new(Late(Arc::new(Bytes { at_writing }))));
    accelerator.register_for_checkpointing(Rc::clone(&object));
    object
}

/// Saves stop in the middle of writing until something is sent, or nobody can send any more.
fn held(accelerator: &Accelerator) -> Sender<()> {
    let (go_on, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    meanwhile(accelerator, move || {
        let _released = wait.lock().unwrap().recv();
    });
    go_on
}

fn refusing() -> SaveStateOptions {
    SaveStateOptions::default().while_saving(WhileSaving::Refuse)
}

#[test]
fn what_is_saved_is_what_there_was_at_the_call() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let folder = std::env::temp_dir().join(format!("accelerate-background-{}", rank.port()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut job = Job::new(&folder, Setup::default())?;
        job.train(3)?;
        let weights = job.weights();
        let go_on = held(&job.accelerator);
        let waited_for = job.accelerator.save_state(None)?;
        let expected = Manifest::read(&waited_for).unwrap();
        let save = job
            .accelerator
            .save_state_in_background(None, SaveStateOptions::default())?;
        // The writer is in the middle; the ranks average gradients.
        job.train(4)?;
        assert_ne!(job.weights(), weights);
        assert!(!save.is_finished() && !save.path().exists());
        job.accelerator.wait_for_everyone()?;
        drop(go_on);
        let saved = save.wait()?;
        assert!(saved.ends_with("checkpoints/checkpoint_1"), "{saved:?}");
        // To the last bit what a save that is waited for wrote at the same moment.
        let manifest = Manifest::verify(&saved, Verify::Hashes).unwrap();
        assert_eq!(manifest.files, expected.files);
        assert_eq!(manifest.num_processes, rank.world());
        let latest = std::fs::read_to_string(folder.join("checkpoints/latest")).unwrap();
        assert_eq!(latest, "checkpoint_1\n");

        // Memory of the first copies is used again.
        let second = job
            .accelerator
            .save_state_in_background(None, SaveStateOptions::default())?;
        let after = job.weights();
        job.train(1)?;
        job.accelerator.load_state(Some(&second.wait()?))?;
        assert_eq!(job.weights(), after);
        job.accelerator.load_state(Some(&saved))?;
        assert_eq!(job.weights(), weights);
        job.accelerator.end_training()?;
        if rank.index() == 0 {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        Ok(())
    });
}

#[test]
fn the_next_save_waits_or_is_refused() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(folder.path(), Setup::default()).unwrap();
    let go_on = held(&job.accelerator);
    let first = job
        .accelerator
        .save_state_in_background(None, refusing())
        .unwrap();
    let error = job
        .accelerator
        .save_state_in_background(None, refusing())
        .unwrap_err();
    assert!(
        matches!(&error, Error::SavePending { ranks } if ranks == &[0]),
        "{error}"
    );
    drop(go_on);
    let second = job.accelerator.save_state(None).unwrap();
    assert!(first.is_finished() && first.path().exists());
    assert!(second.ends_with("checkpoint_1"), "{second:?}");
}

#[test]
fn two_jobs_do_not_save_to_one_folder() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("shared");
    let project = ProjectConfiguration::default;
    let job = Job::with_project(project(), Setup::default()).unwrap();
    let other = Job::with_project(project(), Setup::default()).unwrap();
    let go_on = held(&job.accelerator);
    let options = SaveStateOptions::default();
    let save = job
        .accelerator
        .save_state_in_background(Some(&target), options)
        .unwrap();
    for error in [
        other.accelerator.save_state(Some(&target)).unwrap_err(),
        other
            .accelerator
            .save_state_in_background(Some(&target), options)
            .unwrap_err(),
    ] {
        assert!(matches!(error, Error::CheckpointBusy { .. }), "{error}");
    }
    drop(go_on);
    save.wait().unwrap();
    other.accelerator.save_state(Some(&target)).unwrap();
    assert_eq!(names(folder.path()), ["shared"]);
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_rank_that_fails_while_writing_fails_the_save_on_all() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = std::env::temp_dir().join(format!("accelerate-fails-{}", rank.port()));
        std::fs::create_dir_all(&folder).unwrap();
        let job = Job::new(&folder, Setup::default())?;
        job.accelerator.save_state(None)?;
        // A folder stands where rank 1 is going to write a file.
        let hook = job.accelerator.register_save_state_pre_hook(|saving| {
            let in_the_way = saving.output_dir.join("random_states_1.pkl");
            std::fs::create_dir_all(in_the_way).map_err(Error::data)
        });
        let expected = |error: &Error| {
            let Error::BackgroundSave { source, .. } = error else {
                return false;
            };
            match rank.index() {
                0 => matches!(&**source, Error::OtherRankFailed { rank: 1 }),
                _ => source.to_string().contains("random_states_1.pkl"),
            }
        };
        // Told by whoever waits, and then no more.
        let save = job
            .accelerator
            .save_state_in_background(None, SaveStateOptions::default())?;
        let error = save.wait().unwrap_err();
        assert!(expected(&error), "{error:?}");
        // Told by the next save where nobody waits; and by the end.
        let _unheeded = job
            .accelerator
            .save_state_in_background(None, SaveStateOptions::default())?;
        let error = job.accelerator.save_state(None).unwrap_err();
        assert!(expected(&error), "{error:?}");
        // Told on one rank, it holds up no save on the others.
        let save = job
            .accelerator
            .save_state_in_background(None, SaveStateOptions::default())?;
        if rank.index() == 0 {
            assert!(expected(&save.wait().unwrap_err()));
        }
        let _unheeded = job
            .accelerator
            .save_state_in_background(None, SaveStateOptions::default())?;
        // Loading waits, and takes what there is.
        let loaded = job.accelerator.load_state(None)?;
        assert!(loaded.path.ends_with("checkpoint_0"), "{loaded:?}");
        assert_eq!(
            names(&folder.join("checkpoints")),
            ["checkpoint_0", "latest"]
        );
        hook.remove();
        let error = job.accelerator.end_training().unwrap_err();
        assert!(expected(&error), "{error:?}");
        if rank.index() == 0 {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        Ok(())
    });
}

#[test]
fn a_panic_while_writing_is_an_error_and_leaves_nothing() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(folder.path(), Setup::default()).unwrap();
    meanwhile(&job.accelerator, || panic!("no bytes today"));
    let save = job
        .accelerator
        .save_state_in_background(None, SaveStateOptions::default())
        .unwrap();
    let error = save.wait().unwrap_err();
    let Error::BackgroundSave { source, .. } = &error else {
        panic!("{error}")
    };
    assert!(source.to_string().contains("no bytes today"), "{source}");
    assert_eq!(names(&folder.path().join("checkpoints")), [""; 0]);
}
