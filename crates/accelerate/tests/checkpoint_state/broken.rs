//! Checkpoints that are not whole, and places where none can be.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use accelerate::checkpoint::{
    CheckpointFault, MANIFEST_FILE, ProjectConfiguration, SaveStateOptions,
};
use accelerate::{Error, Result};
use accelerate_testkit::{ranks, start_ranks, turn};
use tch::{Device, Kind, Tensor};

use crate::background::names;
use crate::job::{Job, Setup};
use crate::resume::folder;

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
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (job, [first, second], weights) = saved_twice(folder.path());
    let names = names(&second);
    assert_eq!(names.len(), 6, "{names:?}");
    for file in names {
        let path = second.join(&file);
        let whole = std::fs::read(&path).unwrap();
        // At the start, in the middle and at the end; and the file cut short.
        for place in [0, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            let loaded = job.accelerator.load_state(None).unwrap();
            assert_eq!(loaded.path, first, "{file} {place}");
            let fault = &loaded.skipped[0].fault;
            let content = CheckpointFault::Content { name: file.clone() };
            let told = *fault == content || file == MANIFEST_FILE;
            assert!(told, "{file} {place}: {fault}");
            assert_eq!(job.weights(), weights);
            // Asked for by name it is refused, and nothing changes.
            let error = job.accelerator.load_state(Some(&second)).unwrap_err();
            assert!(matches!(&error, Error::CheckpointDamaged { path, .. } if *path == second));
            assert!(error.to_string().contains(&file), "{error}");
        }
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let loaded = job.accelerator.load_state(None).unwrap();
        assert_eq!(loaded.path, first, "{file}");
        std::fs::write(&path, &whole).unwrap();
    }
    assert_eq!(job.accelerator.load_state(None).unwrap().path, second);
}

#[test]
fn random_state_that_is_gone_is_a_warning_or_in_a_strict_project_an_error() {
    let _turn = turn();
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

fn hundred_draws() -> Vec<f64> {
    let drawn = Tensor::rand([100], (Kind::Double, Device::Cpu));
    drawn.try_into().unwrap()
}

#[test]
fn every_rank_draws_on_and_the_one_whose_state_is_cut_short_says_so() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = folder(rank, "draws");
        let mut job = Job::new(&folder, Setup::default())?;
        job.train(2)?;
        // Dropout is drawn by each rank for itself.
        tch::manual_seed(5 + rank.index() as i64);
        let saved = job.accelerator.save_state(None)?;
        let expected = hundred_draws();
        assert_ne!(hundred_draws(), expected);
        let loaded = job.accelerator.load_state(None)?;
        assert_eq!(loaded.warnings, Vec::<String>::new());
        assert_eq!(hundred_draws(), expected);

        job.accelerator.wait_for_everyone()?;
        let name = "random_states_1.pkl";
        if rank.index() == 0 {
            std::fs::remove_file(saved.join(MANIFEST_FILE)).unwrap();
            let whole = std::fs::read(saved.join(name)).unwrap();
            std::fs::write(saved.join(name), &whole[..whole.len() / 2]).unwrap();
        }
        job.accelerator.wait_for_everyone()?;
        let loaded = job.accelerator.load_state(Some(&saved))?;
        let told = loaded.warnings.iter().filter(|text| text.contains(name));
        assert_eq!(told.count(), rank.index(), "{:?}", loaded.warnings);
        let mut strict = ProjectConfiguration::automatic(&folder);
        strict.strict = true;
        let job = Job::with_project(strict, Setup::default())?;
        let error = job.accelerator.load_state(Some(&saved)).unwrap_err();
        let expected = match rank.index() {
            0 => matches!(&error, Error::OtherRankFailed { rank: 1 }),
            _ => error.to_string().contains(name),
        };
        assert!(expected, "{error}");
        job.accelerator.wait_for_everyone()?;
        if rank.index() == 0 {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        Ok(())
    });
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
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let job = Job::with_project(ProjectConfiguration::default(), Setup::default()).unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "all of it").unwrap();
    let error = job.accelerator.save_state(Some(folder.path())).unwrap_err();
    assert!(matches!(error, Error::CheckpointTarget { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn where_nothing_can_be_written_nothing_is_left() {
    let _turn = turn();
    let job = Job::with_project(ProjectConfiguration::default(), Setup::default()).unwrap();
    // Nobody, and no administrator either, makes a folder there.
    let target = Path::new("/proc/accelerate/step_1");
    for error in [
        job.accelerator.save_state(Some(target)).unwrap_err(),
        job.accelerator
            .save_state_in_background(Some(target), SaveStateOptions::default())
            .unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Io { path, .. } if path.starts_with("/proc/accelerate")),
            "{error}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let read_only = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(folder.path(), read_only).unwrap();
    let target = folder.path().join("step_1");
    match job.accelerator.save_state(Some(&target)) {
        Err(error) => {
            assert!(matches!(error, Error::Io { .. }), "{error}");
            assert_eq!(names(folder.path()), [""; 0]);
        }
        // An administrator may.
        Ok(_) => assert!(std::fs::write(folder.path().join("probe"), "").is_ok()),
    }
}

const FULL: &str = "ACCELERATE_FULL_DISK_FOLDER";
/// Nothing is full yet: it saves once.
const ROOMY: &str = "ACCELERATE_FULL_DISK_LATER";

/// The part that runs as one of two ranks, of which the second cannot write 4 KiB into a file.
#[test]
fn rank_with_a_full_disk() {
    let Some(folder) = std::env::var_os(FULL).map(PathBuf::from) else {
        return;
    };
    let mut job = Job::new(&folder, Setup::default()).unwrap();
    if std::env::var_os(ROOMY).is_some() {
        job.accelerator.save_state(None).unwrap();
        return;
    }
    let loaded = job.accelerator.load_state(None).unwrap();
    let expected = |error: &Error| match job.accelerator.process_index() {
        0 => matches!(error, Error::OtherRankFailed { rank: 1 }),
        _ => matches!(error, Error::Formats(error)
            if error.to_string().contains(".checkpoint_1.partial/")),
    };
    let error = job.accelerator.save_state(None).unwrap_err();
    assert!(expected(&error), "{error}");
    let save = job
        .accelerator
        .save_state_in_background(None, SaveStateOptions::default())
        .unwrap();
    let error = save.wait().unwrap_err();
    assert!(
        matches!(&error, Error::BackgroundSave { source, .. } if expected(source)),
        "{error}"
    );
    // Rank 0 cleans up, and the other may be here before.
    job.accelerator.wait_for_everyone().unwrap();
    assert_eq!(
        names(&folder.join("checkpoints")),
        ["checkpoint_0", "latest"]
    );
    assert_eq!(job.accelerator.load_state(None).unwrap().path, loaded.path);
    job.train(1).unwrap();
    job.accelerator.end_training().unwrap();
}

#[test]
fn a_full_disk_leaves_the_earlier_one_and_all_ranks_learn_of_it() {
    let folder = tempfile::tempdir().unwrap();
    for full in [false, true] {
        let outputs = start_ranks(2, Duration::from_secs(60), |rank| {
            let program = std::env::current_exe().unwrap();
            let mut command = if full && rank.index() == 1 {
                // The limit of the size of files stands for a disk that is full in their middle.
                let mut shell = Command::new("sh");
                shell
                    .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\""])
                    .arg(program);
                shell
            } else {
                Command::new(program)
            };
            command
                .args(["--exact", "broken::rank_with_a_full_disk", "--nocapture"])
                .envs(rank.environment())
                .env(FULL, folder.path());
            if !full {
                command.env(ROOMY, "1");
            }
            command
        });
        let outputs = outputs.unwrap();
        let ended = outputs.iter().map(|output| output.status);
        let fine = ended.flatten().all(|status| status.success());
        assert!(fine, "{outputs:#?}");
    }
}
