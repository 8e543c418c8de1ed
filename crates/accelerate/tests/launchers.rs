//! Launches out of a running program: this one.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use accelerate::launchers::{LaunchOptions, debug_launcher, notebook_launcher};
use accelerate::{Accelerator, Error, Result};
use accelerate_testkit::ranks;
use tch::Tensor;

/// Tells a rank the folder of its test.
const FOLDER: &str = "TEST_FOLDER";

fn folder() -> PathBuf {
    env::var_os(FOLDER).unwrap().into()
}

fn options(ranks: usize, folder: &Path) -> LaunchOptions {
    LaunchOptions::new(ranks)
        .cpu(true)
        .monitor_interval(Duration::from_millis(10))
        .env(FOLDER, folder.display().to_string())
        .in_this_test()
}

#[test]
fn a_function_runs_on_every_rank_of_each_launch() -> Result<()> {
    let home = tempfile::tempdir().unwrap();
    for world in [1, 2] {
        // Both calls are passed by the processes of later ones.
        debug_launcher(world, || -> Result<()> {
            let accelerator = Accelerator::new()?;
            let all: Tensor =
                accelerator.gather(Tensor::from_slice(&[accelerator.process_index() as i64]))?;
            let expected: Vec<i64> = (0..accelerator.num_processes() as i64).collect();
            assert_eq!(Vec::<i64>::try_from(all)?, expected);
            assert_eq!(
                accelerator.local_process_index(),
                accelerator.process_index()
            );
            accelerator.end_training()
        })?;
        notebook_launcher(&options(world, home.path()), || -> Result<()> {
            let accelerator = Accelerator::new()?;
            let name = format!(
                "{}-of-{}",
                accelerator.process_index(),
                accelerator.num_processes()
            );
            fs::write(
                folder().join(name),
                env::var("ACCELERATE_MIXED_PRECISION").unwrap(),
            )
            .unwrap();
            accelerator.end_training()
        })?;
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1 + 2);
    assert_eq!(
        fs::read_to_string(home.path().join("1-of-2")).unwrap(),
        "no"
    );
    assert!(env::var_os("RANK").is_none() && env::var_os(FOLDER).is_none());
    Ok(())
}

#[test]
fn the_rank_that_fails_is_named_with_what_it_wrote() {
    let outcome = debug_launcher(3, || {
        let accelerator = Accelerator::new()?;
        if accelerator.process_index() == 1 {
            return Err(Error::EmptyDataset);
        }
        // The others fail because of it, or are stopped.
        accelerator.wait_for_everyone()
    });
    let Err(Error::LaunchFailed {
        rank: 1,
        world: 3,
        status,
        last_lines,
    }) = outcome
    else {
        panic!("{outcome:?}");
    };
    assert!(status.contains('1'), "{status}");
    assert!(
        last_lines.contains("found an empty data set"),
        "{last_lines}"
    );
}

#[test]
fn a_panic_is_a_failure() {
    let panicked = debug_launcher(1, || -> Result<()> { panic!("out of cheese") });
    let text = panicked.unwrap_err().to_string();
    assert!(
        text.contains("rank 0 of 1") && text.contains("out of cheese"),
        "{text}"
    );
}

#[test]
#[cfg(unix)]
fn a_signal_is_a_failure() {
    let killed = debug_launcher(2, || -> Result<()> {
        let accelerator = Accelerator::new()?;
        if accelerator.is_last_process() {
            let own = std::process::id().to_string();
            Command::new("kill").args(["-KILL", &own]).status().unwrap();
        }
        accelerator.wait_for_everyone()
    });
    let text = killed.unwrap_err().to_string();
    assert!(
        text.contains("rank 1 of 2") && text.contains("signal: 9"),
        "{text}"
    );
}

#[test]
fn all_ranks_start_again_as_often_as_they_may() {
    let home = tempfile::tempdir().unwrap();
    let launched = notebook_launcher(
        &options(2, home.path()).max_restarts(1),
        || -> Result<()> {
            let accelerator = Accelerator::new()?;
            let tries = env::var("TORCHELASTIC_RESTART_COUNT").unwrap();
            let name = format!("{}-{tries}", accelerator.process_index());
            fs::write(folder().join(name), "").unwrap();
            accelerator.wait_for_everyone()?;
            if accelerator.is_main_process() && tries == "0" {
                return Err(Error::EmptyDataset);
            }
            accelerator.end_training()
        },
    );
    launched.unwrap();
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2 * 2);
}

#[test]
fn ranks_that_do_not_end_are_stopped_at_the_deadline() {
    let home = tempfile::tempdir().unwrap();
    let outcome = notebook_launcher(
        &options(2, home.path()).deadline(Duration::from_secs(2)),
        || -> Result<()> {
            if env::var("RANK").unwrap() == "1" {
                std::thread::sleep(Duration::from_secs(60));
            }
            Ok(())
        },
    );
    let Err(Error::LaunchDeadline { running, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(running.contains(&1), "{running:?}");
}

#[test]
fn what_cannot_be_launched_says_why() {
    let home = tempfile::tempdir().unwrap();
    let run = || -> Result<()> { Ok(()) };
    for (options, expected) in [
        (options(0, home.path()), "at least one process"),
        (
            options(1, home.path()).nodes(2, 2, "127.0.0.1"),
            "machine 2 of 2",
        ),
        (options(1, home.path()).nodes(0, 2, "127.0.0.1"), "use_port"),
    ] {
        let error = notebook_launcher(&options, run).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_rank_launches_nothing() {
    let nested = debug_launcher(1, || -> Result<()> {
        let error = debug_launcher(1, || -> Result<()> { Ok(()) }).unwrap_err();
        assert!(error.to_string().contains("itself launched"), "{error}");
        Ok(())
    });
    nested.unwrap();
}

#[test]
fn a_process_with_an_accelerator_launches_nothing() {
    ranks(&[1], |_| -> Result<()> {
        let _accelerator = Accelerator::new()?;
        let error = debug_launcher(2, || -> Result<()> { Ok(()) }).unwrap_err();
        assert!(error.to_string().contains("already"), "{error}");
        Ok(())
    });
}

#[test]
fn a_port_that_is_taken_fails_at_once() {
    let home = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind(("0.0.0.0", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().try_into().unwrap();
    let outcome = notebook_launcher(&options(2, home.path()).use_port(port), || -> Result<()> {
        Ok(())
    });
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("another process uses the port"), "{error}");
}

/// Started as a process of its own by the test below: launches a rank that would run for a minute.
#[test]
fn launches_a_rank_that_stays() {
    let Some(home) = env::var_os(FOLDER) else {
        return;
    };
    let _ = notebook_launcher(&options(1, Path::new(&home)), || -> Result<()> {
        fs::write(folder().join("new"), std::process::id().to_string()).unwrap();
        fs::rename(folder().join("new"), folder().join("rank")).unwrap();
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn ranks_do_not_outlive_a_launcher_that_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let mut launcher = Command::new(env::current_exe().unwrap())
        .args(["launches_a_rank_that_stays", "--exact", "--test-threads=1"])
        .env(FOLDER, home.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    let rank = loop {
        if let Ok(rank) = fs::read_to_string(home.path().join("rank")) {
            break rank;
        }
        assert!(Instant::now() < end, "the rank did not start");
        std::thread::sleep(Duration::from_millis(5));
    };
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    let running = || {
        // A process that has ended and that nobody has asked for yet is a zombie.
        fs::read_to_string(format!("/proc/{rank}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    };
    while running() {
        assert!(Instant::now() < end, "rank {rank} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}
