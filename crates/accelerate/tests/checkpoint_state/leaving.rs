//! Asked to end, all ranks leave behind one step, and the job goes on as if nothing had been.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use accelerate::checkpoint::{Manifest, ProjectConfiguration, Verify};
use accelerate::collectives::gather_object;
use accelerate::{Accelerator, Result};
use accelerate_testkit::ranks;
use signal_hook::consts::SIGTERM;

use crate::job::{Job, Setup};
use crate::resume::folder;

const FOLDER: &str = "LEAVING_PROCESS_FOLDER";
const DEAF: &str = "LEAVING_PROCESS_ASKS_ONCE";

/// Trains until the job leaves; how many batches that took.
fn until_left(job: &mut Job, signalled: impl Fn(usize) -> bool) -> Result<usize> {
    let mut left = 0;
    let done = job.train_until(100_000, |accelerator, batch| {
        if signalled(batch) {
            // On a thread of its own, so that it comes at some moment of the next steps.
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_micros(700));
                signal_hook::low_level::raise(SIGTERM)
            });
        }
        let leaves = accelerator.should_leave()?;
        left = batch;
        Ok(leaves)
    })?;
    assert!(done.len() < 100_000, "nobody left");
    assert_eq!(done.len(), left);
    Ok(left)
}

#[test]
fn a_signal_to_any_ranks_lets_all_leave_behind_one_step_and_go_on_from_it() {
    ranks(&[1, 2, 3], |rank| -> Result<()> {
        // One rank, all ranks, and all ranks at different moments; with accumulation.
        let last = rank.world() - 1;
        let all: &dyn Fn(usize) -> bool = &|batch| batch == 9;
        let one: &dyn Fn(usize) -> bool = &|batch| batch == 9 && rank.index() == last;
        let apart: &dyn Fn(usize) -> bool = &|batch| batch == 8 + rank.index();
        for (number, signalled) in [one, all, apart].into_iter().enumerate() {
            // A process is asked to end only once: one case for each number of ranks.
            if number != rank.world() % 3 {
                continue;
            }
            let folder = folder(rank, &format!("leaving-{number}"));
            let setup = Setup {
                accumulation: 1 + rank.world() % 2,
                workers: 1,
                ..Setup::default()
            };
            let mut job = Job::new(&folder, setup)?;
            let left = until_left(&mut job, signalled)?;
            assert!(left >= 8, "{left}");
            let everywhere = gather_object(job.accelerator.state(), vec![left])?;
            assert_eq!(everywhere, vec![left; rank.world()]);
            assert!(
                job.accelerator.sync_gradients(),
                "in the middle of an update"
            );
            assert!(job.accelerator.should_leave()?, "it stays so");
            job.accelerator.save_state(None)?;
            drop(job);
            let mut resumed = Job::new(&folder, Setup { seed: 5, ..setup })?;
            assert!(resumed.accelerator.resume()?.is_some());
            let found = resumed.train(12)?;
            let expected = Job::new(&folder, setup)?.train(left + 12)?;
            assert_eq!(found, expected[left..]);
            resumed.accelerator.wait_for_everyone()?;
            if rank.index() == 0 {
                std::fs::remove_dir_all(&folder).unwrap();
            }
        }
        Ok(())
    });
}

#[test]
fn nothing_to_resume_is_a_fresh_start() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let folder = folder(rank, "fresh");
        let job = Job::new(&folder, Setup::default())?;
        assert_eq!(job.accelerator.resume()?, None);
        drop(job);
        let job = Job::with_project(ProjectConfiguration::default(), Setup::default())?;
        assert_eq!(job.accelerator.resume()?, None);
        job.accelerator.leave_when_asked()?;
        Ok(())
    });
}

#[test]
fn ranks_that_ran_out_of_data_leave_with_the_others() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let folder = folder(rank, "uneven");
        let mut job = Job::new(&folder, Setup::default())?;
        // The last rank has by far the most data, and is asked when the others have none.
        let last = rank.index() == rank.world() - 1;
        let batches = if last { 100_000 } else { 3 };
        let accelerator = job.accelerator.clone();
        let parts = (&job.model, &mut job.optimizer, &mut job.scheduler);
        let (model, optimizer, scheduler) = parts;
        let joined: [&dyn accelerate::parallel::Joinable; 1] = [model];
        let done = accelerator.join_uneven_inputs(&joined, Some(false), || {
            for batch in 1..=batches {
                let samples = tch::Tensor::from_slice(&[batch % 7, 3]);
                crate::job::step(&accelerator, model, optimizer, scheduler, &samples)?;
                if last && batch == 10 {
                    accelerator.ask_to_leave();
                }
                if accelerator.should_leave()? {
                    return Ok(batch);
                }
            }
            Ok(batches)
        })?;
        assert!(done < 100_000, "nobody left");
        assert!(accelerator.should_leave()?);
        accelerator.save_state(None)?;
        accelerator.wait_for_everyone()?;
        if rank.index() == 0 {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        Ok(())
    });
}

/// The part that runs in a process of its own until it is asked to end.
#[test]
fn leaving_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let mut job = Job::new(&folder, Setup::default()).unwrap();
    let asks_once = std::env::var_os(DEAF).is_some();
    let ready = |accelerator: &Accelerator, batch| {
        if !asks_once || batch == 1 {
            accelerator.leave_when_asked()?;
        }
        if batch == 3 {
            std::fs::write(folder.join("ready"), "").unwrap();
        }
        Ok(false)
    };
    job.train_until(usize::MAX, ready).unwrap();
}

struct Leaving(Child);

impl Drop for Leaving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Leaving {
    fn start(folder: &Path, asks_once: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "leaving::leaving_process"])
            .env(FOLDER, folder)
            .env("OMP_NUM_THREADS", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if asks_once {
            command.env(DEAF, "1");
        }
        let started = Self(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !folder.join("ready").exists() {
            assert!(Instant::now() < deadline, "it does not train");
            std::thread::sleep(Duration::from_millis(2));
        }
        started
    }

    fn ask(&self) {
        let process = self.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &process]).status();
        assert!(sent.unwrap().success());
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_process_that_is_asked_saves_and_says_so_by_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Leaving::start(folder.path(), false);
    process.ask();
    assert_eq!(process.wait().code(), Some(75));
    let saved = folder.path().join("checkpoints/checkpoint_0");
    Manifest::verify(&saved, Verify::Hashes).unwrap();
}

#[test]
fn a_second_signal_ends_a_process_at_once_but_an_echo_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Leaving::start(folder.path(), true);
    process.ask();
    process.ask();
    std::thread::sleep(Duration::from_millis(1200));
    assert!(process.0.try_wait().unwrap().is_none(), "it was no echo");
    process.ask();
    assert_eq!(process.wait().signal(), Some(SIGTERM));
}
