//! Killed at any moment of saving, a job goes on from its newest whole checkpoint.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use accelerate::checkpoint::{Manifest, SaveStateOptions, Verify};
use accelerate_testkit::{start_ranks, turn};

use crate::job::{Job, Setup};

const FOLDER: &str = "KILLED_SAVER_FOLDER";
/// Asks for saves while training goes on.
const IN_BACKGROUND: &str = "KILLED_SAVER_IN_BACKGROUND";
/// How many processes are killed, where nobody asks for more.
const KILLS: u64 = 15;
/// Asks for more.
const ASKED: &str = "KILLED_SAVER_KILLS";

/// The part that runs in a process of its own: saves as often as it can, until it is killed.
#[test]
fn saving_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let in_background = std::env::var_os(IN_BACKGROUND).is_some();
    let mut job = Job::new(&folder, Setup::default()).unwrap();
    let _ = job.accelerator.load_state(None);
    loop {
        job.train(1).unwrap();
        if in_background {
            let options = SaveStateOptions::default();
            job.accelerator
                .save_state_in_background(None, options)
                .unwrap();
        } else {
            job.accelerator.save_state(None).unwrap();
        }
    }
}

fn start(folder: &Path, in_background: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if in_background {
        command.env(IN_BACKGROUND, "1");
    }
    command
        .args(["--exact", "killed::saving_process"])
        .env(FOLDER, folder)
        .env("OMP_NUM_THREADS", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn newest(folder: &Path) -> Option<(u64, PathBuf)> {
    let entries = std::fs::read_dir(folder.join("checkpoints")).ok()?;
    let numbered = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let number = path
            .file_name()?
            .to_str()?
            .strip_prefix("checkpoint_")?
            .parse()
            .ok()?;
        Some((number, path))
    });
    numbered.max()
}

#[test]
fn whatever_is_killed_when_there_is_a_whole_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let asked = std::env::var(ASKED).map(|kills| kills.parse().unwrap());
    let mut last = 0;
    for kill in 0..asked.unwrap_or(KILLS) {
        let mut child = start(folder.path(), kill % 2 == 1);
        // Until it has saved something new, then for a random part of a save.
        let deadline = Instant::now() + Duration::from_secs(60);
        while newest(folder.path()).is_none_or(|(number, _)| number < last + 1) {
            assert!(Instant::now() < deadline, "nothing saved in a minute");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(kill * 7919 % 9000));
        child.kill().unwrap();
        child.wait().unwrap();
        let (number, newest) = newest(folder.path()).unwrap();
        assert!(number > last, "{number} after {last}");
        last = number;
        // What has its name is whole: the folder gets it only then.
        Manifest::verify(&newest, Verify::Hashes).unwrap();
        for old in std::fs::read_dir(folder.path().join("checkpoints")).unwrap() {
            let path = old.unwrap().path();
            if path.is_dir() && path != newest && !path.ends_with(".partial") {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
    }
    let _turn = turn();
    let job = Job::new(folder.path(), Setup::default()).unwrap();
    let loaded = job.accelerator.load_state(None).unwrap();
    assert_eq!(loaded.skipped, []);
}

const SHARED: &str = "KILLED_RANK_FOLDER";
/// Which of the ranks kills itself.
const DOOMED: &str = "KILLED_RANK";
/// How many microseconds behind its second save.
const MOMENT: &str = "KILLED_RANK_MOMENT";

/// The part that runs as one of two ranks: saves as often as it can, until one of them is gone.
#[test]
fn saving_rank() {
    let Some(folder) = std::env::var_os(SHARED).map(PathBuf::from) else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let in_background = std::env::var_os(IN_BACKGROUND).is_some();
    let (doomed, moment) = (number(DOOMED), Duration::from_micros(number(MOMENT)));
    let mut job = Job::new(&folder, Setup::default()).unwrap();
    let newest = newest(&folder).map(|(_, path)| path);
    let resumed = job.accelerator.resume().unwrap();
    assert_eq!(resumed.map(|loaded| loaded.path), newest);
    let is_doomed = job.accelerator.process_index() as u64 == doomed;
    for save in 0.. {
        job.train(1).unwrap();
        if in_background {
            let options = SaveStateOptions::default();
            let saved = job.accelerator.save_state_in_background(None, options);
            drop(saved.unwrap());
        } else {
            job.accelerator.save_state(None).unwrap();
        }
        if is_doomed && save == 1 {
            std::thread::spawn(move || {
                std::thread::sleep(moment);
                Command::new("sh").args(["-c", "kill -9 $PPID"]).status()
            });
        }
    }
}

#[test]
fn whichever_rank_is_killed_all_go_on_from_a_whole_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = None;
    for round in 0..4u64 {
        let doomed = (round % 2) as usize;
        let outputs = start_ranks(2, Duration::from_secs(60), |rank| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            if round > 1 {
                command.env(IN_BACKGROUND, "1");
            }
            command
                .args(["--exact", "killed::saving_rank", "--nocapture"])
                .envs(rank.environment())
                .env(SHARED, folder.path())
                .env(DOOMED, doomed.to_string())
                .env(MOMENT, (round * 7919 % 9000).to_string());
            command
        });
        let outputs = outputs.unwrap();
        let status = outputs[doomed].status.unwrap();
        assert_eq!(status.signal(), Some(9), "{outputs:#?}");
        let (number, newest) = newest(folder.path()).unwrap();
        assert!(last.is_none_or(|last| number > last), "{outputs:#?}");
        last = Some(number);
        Manifest::verify(&newest, Verify::Hashes).unwrap();
    }
}
