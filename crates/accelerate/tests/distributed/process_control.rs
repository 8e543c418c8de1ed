//! Who does what, who waits for whom, and how a job ends, on real ranks.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use accelerate::state::{Attendance, EachTensor, Share};
use accelerate::tracking::run::{RunReader, find_runs};
use accelerate::tracking::{
    Colour, Image, LogWith, LoggerType, Table, Tracker, TrackerHandle, TrackingResult, Value,
    Values, number,
};
use accelerate::{Accelerator, Error, PartialState, Result};
use accelerate_testkit::{Rank, ranks, ranks_within};
use accelerate_torch::ReduceOp;
use tch::{Device, Kind, Tensor};

#[derive(serde::Deserialize)]
struct Golden {
    n: usize,
    num_processes: usize,
    apply_padding: bool,
    parts: Vec<Vec<usize>>,
}

#[test]
fn shares_are_those_of_the_original() {
    let text = include_str!("../../../../tests/golden/split_between_processes.json");
    let cases: Vec<Golden> = serde_json::from_str(text).unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        for (rank, expected) in case.parts.iter().enumerate() {
            let share = Share::new(case.n, case.num_processes, rank, case.apply_padding);
            let found: Vec<_> = share.positions().collect();
            assert_eq!(
                &found, expected,
                "{} items, rank {rank} of {}",
                case.n, case.num_processes
            );
        }
    }
}

#[test]
fn everything_is_split_alike_and_padding_can_be_told_from_items() {
    ranks(&[1, 3], |rank: Rank| -> Result<()> {
        let state = PartialState::new()?;
        for length in 0..10usize {
            for apply_padding in [false, true] {
                let share = Share::new(length, rank.world(), rank.index(), apply_padding);
                let expected: Vec<usize> = share.positions().collect();
                let list: Vec<usize> = (0..length).collect();

                let part = state.split_between_processes(list.clone(), apply_padding)?;
                assert_eq!(part.items, expected);
                assert_eq!(part.real, share.range().len());
                assert_eq!(part.real + part.padding, expected.len());
                let borrowed = state.split_between_processes(&list[..], apply_padding)?;
                assert_eq!(borrowed, part);
                let indices = state.split_between_processes(0..length, apply_padding)?;
                assert_eq!(indices, part);

                let rows = Tensor::arange(length as i64 * 2, (Kind::Int64, Device::Cpu))
                    .view([length as i64, 2]);
                let first: Vec<i64> = expected.iter().map(|&at| at as i64 * 2).collect();
                let tensor = state.split_between_processes(rows.shallow_clone(), apply_padding)?;
                assert_eq!(tensor.items.size(), [expected.len() as i64, 2]);
                assert_eq!(Vec::<i64>::try_from(tensor.items.select(1, 0))?, first);

                let map = BTreeMap::from([("a", list.clone()), ("b", list.clone())]);
                let nested = (map, EachTensor((rows.select(1, 0), vec![rows])), "whole");
                let nested = state.split_between_processes(nested, apply_padding)?;
                assert_eq!(nested.real, part.real);
                let (map, (column, more), text) = nested.items;
                assert_eq!(
                    (&map["a"], &map["b"], text),
                    (&expected, &expected, "whole")
                );
                assert_eq!(Vec::<i64>::try_from(column)?, first);
                assert_eq!(more[0].size(), [expected.len() as i64, 2]);
            }
        }
        Ok(())
    });
}

#[test]
fn work_for_one_rank_runs_there_and_everywhere_on_a_process_by_itself() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let everywhere = TrackerHandle::new(Everywhere::default());
        let accelerator = tracked(folder.path(), &everywhere)?;
        let (index, last) = (rank.index(), rank.world() - 1);
        assert_eq!(accelerator.on_main_process(|| 7), (index == 0).then_some(7));
        assert_eq!(
            accelerator.on_local_main_process(|| 7),
            (index == 0).then_some(7)
        );
        assert_eq!(
            accelerator.on_last_process(|| 7),
            (index == last).then_some(7)
        );
        assert_eq!(
            accelerator.on_process(last, || 7),
            (index == last).then_some(7)
        );
        let nowhere = (last == 0).then_some(7);
        assert_eq!(accelerator.on_process(5, || 7), nowhere);
        assert_eq!(accelerator.on_local_process(5, || 7), nowhere);

        let kind = match rank.world() {
            1 => "NO",
            _ => "MULTI_CPU  Backend: gloo",
        };
        let state = format!(
            "Distributed environment: DistributedType.{kind}\nNum processes: {}\n\
             Process index: {index}\nLocal process index: {index}\nDevice: cpu\n",
            rank.world()
        );
        assert_eq!(accelerator.state().to_string(), state);
        assert_eq!(
            accelerator.to_string(),
            format!("{state}\nMixed precision type: no\n")
        );
        every_rank_tracks_and_the_main_process_does_it(&accelerator, folder.path(), &everywhere)
    });
}

/// An accelerator that logs with a tracker of the program's own and with two that write files.
fn tracked(folder: &Path, own: &TrackerHandle) -> Result<Accelerator> {
    let trackers = [
        LogWith::Own(own.clone()),
        "tensorboard".into(),
        LoggerType::Local.into(),
    ];
    Accelerator::builder()
        .logging_dir(folder)
        .log_with(trackers)
        .build()
}

/// The same calls on every rank do nothing off the main one, but for a tracker that is for all.
fn every_rank_tracks_and_the_main_process_does_it(
    accelerator: &Accelerator,
    folder: &Path,
    everywhere: &TrackerHandle,
) -> Result<()> {
    let is_main = accelerator.is_main_process();
    assert_eq!(
        accelerator.get_tracker("local").is_err(),
        is_main,
        "before the start"
    );
    let config = Values::new()
        .with("api_key", "hidden")
        .with("betas", vec![Value::from(0.9), Value::from(0.999)])
        .with("model", Values::from([("layers", 2)]));
    accelerator.init_trackers("project", Some(&config))?;
    accelerator.init_trackers("project", Some(&config))?;
    let loss = number(&Tensor::from(0.5))?;
    accelerator.log([("loss", loss)], Some(3));
    let local = accelerator.get_tracker("local")?;
    assert_eq!(local.is_blank(), !is_main);
    let image = Image::new(1, 1, Colour::Grey, vec![0])?;
    let none = Values::new();
    local.log_images(&[("dot".to_owned(), vec![image])], None, &none)?;
    local.log_table("t", &Table::default(), None, &none)?;
    assert_eq!(accelerator.get_tracker("absent").is_err(), is_main);
    let run = accelerator.run_folder();
    assert_eq!(run.is_some(), is_main);
    // One that is for every rank has been told on every rank.
    let told = everywhere.with_inner(|tracker: &mut Everywhere| tracker.steps.clone());
    assert_eq!(told, Some(vec![Some(3)]));
    accelerator.end_training()?;
    accelerator.log([("loss", 1)], None);

    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files, usize::from(is_main), "other ranks write nothing");
    if let Some(run) = run {
        assert_eq!(
            find_runs(folder)?,
            [run.clone()],
            "one run, though begun twice"
        );
        let run = RunReader::open(run)?;
        assert_eq!(
            (run.lines(), run.latest("loss").map(|point| point.step)),
            (1, Some(3))
        );
        let settings = &run.info().settings;
        assert_eq!(settings.get("model.layers"), Some(&Value::Int(2)));
        assert_eq!(settings.get("betas"), Some(&Value::from("[0.9,0.999]")));
        assert_eq!(settings.get("api_key"), Some(&Value::from("[redacted]")));
        assert_eq!(run.media()?.len(), 2);
    }
    Ok(())
}

/// A tracker of the program's own that is for every rank.
#[derive(Debug, Default)]
struct Everywhere {
    steps: Vec<Option<i64>>,
}

impl Tracker for Everywhere {
    fn name(&self) -> &'static str {
        "everywhere"
    }

    fn main_process_only(&self) -> bool {
        false
    }

    fn log(&mut self, _: &Values, step: Option<i64>, _: &Values) -> TrackingResult<()> {
        self.steps.push(step);
        Ok(())
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[test]
fn the_others_follow_the_main_process_and_learn_that_it_failed() {
    ranks(&[3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let done = accelerator.main_process_first(|| Ok(rank.index()))?;
        assert_eq!(done, rank.index());

        let mut ran = false;
        let failed = accelerator.local_main_process_first(|| {
            ran = true;
            Err::<(), _>(Error::EmptyDataset)
        });
        match failed.unwrap_err() {
            Error::EmptyDataset => assert_eq!(rank.index(), 0),
            Error::TurnFailed { rank: 0 } => assert!(rank.index() > 0 && !ran),
            other => panic!("{other}"),
        }

        let state = accelerator.state().clone();
        let panicked = std::panic::catch_unwind(|| {
            let turn = state.main_process_first().unwrap();
            turn.run(|| -> Result<()> { panic!("on purpose") })
        });
        assert!(panicked.is_err());
        // Nobody is a meeting behind: the next ones fit together.
        accelerator.main_process_first(|| Ok(()))?;
        accelerator.wait_for_everyone()
    });
}

#[test]
fn a_trigger_ends_the_loop_of_every_rank_at_the_same_step() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let mut steps = 0;
        for step in 0..10 {
            if rank.index() + 1 == rank.world() && step == 3 {
                accelerator.set_trigger();
            }
            steps = step;
            if accelerator.check_trigger()? {
                break;
            }
        }
        assert_eq!(steps, 3);
        assert!(!accelerator.check_breakpoint()?, "it was reset");
        accelerator.set_breakpoint();
        assert!(accelerator.check_trigger()?);
        accelerator.end_training()
    });
}

/// The ranks that an error says are gone: ended, left, silent.
fn gone(error: Error, own: usize) -> (Vec<usize>, Vec<usize>, Vec<usize>) {
    let text = error.to_string();
    let Error::CollectiveIncomplete { report, .. } = error else {
        panic!("{text}");
    };
    assert_eq!(report.rank, own);
    assert!(
        text.contains(&format!("did not complete on rank {own} of ")),
        "{text}"
    );
    let those = |wanted: Attendance| {
        let found = report.others.iter().filter(|o| o.attendance == wanted);
        found.map(|other| other.rank).collect()
    };
    (
        those(Attendance::Ended),
        those(Attendance::Left),
        those(Attendance::Silent),
    )
}

#[test]
fn a_rank_that_leaves_the_loop_alone_is_named() {
    ranks(&[3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        for step in 0..10 {
            if rank.index() == 1 && step == 3 {
                // Comes to its end while the others go on.
                return Ok(());
            }
            if let Err(error) = accelerator.check_trigger() {
                // A rank that failed because of rank 1 may be gone as well by now.
                let (ended, left, silent) = gone(error, rank.index());
                assert_eq!(step, 3);
                assert!(
                    ended.contains(&1) && silent.is_empty(),
                    "{ended:?} {left:?} {silent:?}"
                );
                return Ok(());
            }
        }
        panic!("rank 1 was not missed");
    });
}

#[test]
#[expect(clippy::exit, reason = "rank 0 ends before the other one")]
fn a_main_process_that_ends_is_named_although_it_serves_the_store() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        accelerator.wait_for_everyone()?;
        if rank.index() == 0 {
            std::process::exit(0);
        }
        let (ended, ..) = gone(accelerator.wait_for_everyone().unwrap_err(), 1);
        assert_eq!(ended, [0]);
        Ok(())
    });
}

#[test]
fn a_rank_that_finished_while_others_wait_is_named() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let state = PartialState::new()?;
        if rank.index() == 1 {
            let absent = state.destroy_process_group_within(Duration::from_millis(300))?;
            assert_eq!(absent.at_work, [0], "{absent}");
            return Ok(());
        }
        let (ended, left, _) = gone(state.wait_for_everyone().unwrap_err(), 0);
        assert_eq!((&ended[..], &left[..]), (&[][..], &[1][..]));
        Ok(())
    });
}

#[test]
fn ranks_take_leave_together_and_send_nothing_after() {
    ranks(&[3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        std::thread::sleep(Duration::from_millis(30) * rank.index() as u32);
        let absent = accelerator.state().destroy_process_group()?;
        assert!(absent.is_empty(), "{absent}");
        accelerator.end_training()?;
        assert_eq!(accelerator.num_processes(), rank.world());
        let error = accelerator.wait_for_everyone().unwrap_err().to_string();
        assert!(error.contains("was shut down"), "{error}");
        Ok(())
    });
}

#[test]
fn nobody_waits_for_a_rank_that_ended_without_taking_leave() {
    ranks(&[3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        accelerator.wait_for_everyone()?;
        if rank.index() == 1 {
            return Ok(());
        }
        let begin = Instant::now();
        let absent = accelerator.state().destroy_process_group()?;
        assert_eq!(absent.ended, [1], "{absent}");
        assert!(
            begin.elapsed() < Duration::from_secs(8),
            "it waited out the grace time"
        );
        Ok(())
    });
}

fn send_signal(signal: &str, process: &str) {
    let status = Command::new("kill").args([signal, process]).status();
    assert!(status.unwrap().success());
}

/// The process number of the other rank of two.
fn other_process(state: &PartialState, rank: Rank) -> Result<String> {
    let store = state.process_group().unwrap().store();
    let key = |index: usize| format!("test/process/{index}");
    store.set(
        &key(rank.index()),
        std::process::id().to_string().as_bytes(),
    )?;
    Ok(store.get_text(&key(1 - rank.index()), Duration::from_secs(20))?)
}

#[test]
#[cfg(unix)]
fn a_rank_that_is_stopped_is_named_at_the_deadline() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let state = PartialState::new()?;
        let other = other_process(&state, rank)?;
        // Rank 1 has read what it needs of rank 0 before that is stopped.
        state.wait_for_everyone()?;
        if rank.index() == 0 {
            // Sleeps, or is stopped in its sleep, until rank 1 is done.
            let store = state.process_group().unwrap().store();
            store.wait("test/done", Duration::from_secs(40))?;
            return Ok(());
        }
        send_signal("-STOP", &other);
        let absent = state.destroy_process_group_within(Duration::from_millis(200));
        send_signal("-CONT", &other);
        state
            .process_group()
            .unwrap()
            .store()
            .set("test/done", b"1")?;
        let absent = absent?;
        assert_eq!(absent.silent, [0], "{absent}");
        Ok(())
    });
}

#[test]
#[cfg(unix)]
#[expect(clippy::exit, reason = "rank 0 ends while the other one is stopped")]
fn a_process_ends_although_a_transfer_is_stuck() {
    ranks_within(Duration::from_secs(40), &[2], |rank: Rank| -> Result<()> {
        stop_the_other_and_take_leave(rank)?;
        if rank.index() == 0 {
            std::process::exit(0);
        }
        Ok(())
    });
}

#[cfg(unix)]
fn stop_the_other_and_take_leave(rank: Rank) -> Result<()> {
    let state = PartialState::new()?;
    let other = other_process(&state, rank)?;
    state.wait_for_everyone()?;
    if rank.index() == 1 {
        // Stopped in its sleep until rank 0 has ended.
        std::thread::sleep(Duration::from_secs(3));
        return Ok(());
    }
    send_signal("-STOP", &other);
    let own = std::process::id();
    let wake = format!("(while kill -0 {own}; do sleep 0.1; done; kill -CONT {other}) &");
    let status = Command::new("sh").args(["-c", &wake]).status();
    assert!(status.unwrap().success());
    let tensor = Tensor::ones([4], (Kind::Float, Device::Cpu));
    let _stuck = state
        .process_group()
        .unwrap()
        .all_reduce_async(&tensor, ReduceOp::Sum)?;
    let begin = Instant::now();
    let absent = state.destroy_process_group_within(Duration::from_millis(100))?;
    assert_eq!(absent.silent, [1], "{absent}");
    assert!(begin.elapsed() < Duration::from_secs(20));
    Ok(())
}

#[test]
fn a_forgotten_state_is_made_again() {
    ranks(&[1], |_| -> Result<()> {
        assert!(PartialState::current().is_none());
        let old = PartialState::new()?;
        assert!(PartialState::current().is_some());
        PartialState::reset();
        assert!(PartialState::current().is_none());
        assert_eq!(old.num_processes(), 1);
        assert_eq!(PartialState::new()?.process_index(), 0);
        Ok(())
    });
}
