use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::value::{Value, Values};
use crate::{Colour, Error, Image, RunContext, Table, Tracker, local::Local};

fn started(folder: &Path) -> Local {
    let mut tracker = Local::new();
    let options = Values::from([("tags", "first")]);
    let run = RunContext::new("my/project")
        .logging_dir(folder)
        .options(options);
    tracker.start(&run).unwrap();
    tracker
}

fn log(tracker: &mut Local, step: Option<i64>, values: Values) {
    tracker.log(&values, step, &Values::new()).unwrap();
}

/// A run of so many lines: `loss` falls, with one peak.
fn long_run(folder: &Path, lines: i64, peak: i64) -> Local {
    let mut tracker = started(folder);
    for step in 0..lines {
        let loss = if step == peak {
            99.0
        } else {
            1.0 / f64::from(i32::try_from(step).unwrap() + 1)
        };
        log(&mut tracker, Some(step), Values::from([("loss", loss)]));
    }
    tracker
}

#[test]
fn what_was_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut tracker = started(folder.path());
    let settings = Values::new()
        .with("lr", 0.1)
        .with("model", Values::from([("layers", 2)]));
    tracker.store_init_configuration(&settings).unwrap();
    let nested = Values::from([("inner", 2.0)]);
    log(
        &mut tracker,
        None,
        Values::new().with("loss", f64::NAN).with("note", "a\nb"),
    );
    log(
        &mut tracker,
        None,
        Values::new().with("loss", 1).with("deep", nested),
    );
    let image = Image::new(1, 1, Colour::Grey, vec![7])
        .unwrap()
        .with_caption("dot");
    tracker
        .log_images(
            &[("in/put".to_owned(), vec![image])],
            Some(3),
            &Values::new(),
        )
        .unwrap();
    let table = Table::new(["a"], vec![vec![Value::from(1)]]).unwrap();
    tracker
        .log_table("t", &table, None, &Values::new())
        .unwrap();
    tracker.event(Severity::Warning, 1, "slow").unwrap();
    let path = tracker.folder().unwrap().to_owned();
    assert!(path.starts_with(folder.path().join("my_project")));

    let mut reader = RunReader::open(&path).unwrap();
    assert_eq!(reader.status().unwrap(), RunStatus::Running);
    assert_eq!(
        (reader.info().project.as_str(), reader.info().world_size),
        ("my/project", 1)
    );
    assert_eq!(reader.info().tags, ["first"]);
    assert_eq!(
        reader.info().settings.get("model.layers"),
        Some(&Value::Int(2))
    );
    assert_eq!(reader.names().collect::<Vec<_>>(), ["loss", "deep/inner"]);
    let loss = reader.curve("loss", i64::MIN..=i64::MAX, 10).unwrap();
    assert!(loss.points[0].value.is_nan() && loss.points[1].value == 1.0);
    assert_eq!((loss.points[1].step, loss.is_thinned), (1, false));
    assert_eq!(
        reader.latest_texts().unwrap(),
        Values::from([("note", "a\nb")])
    );
    let media = reader.media().unwrap();
    assert_eq!(media[0].caption.as_deref(), Some("dot"));
    assert!(
        media
            .iter()
            .all(|medium| medium.path(&path).unwrap().is_file()),
        "{media:?}"
    );
    assert_eq!(reader.events().unwrap()[0].message, "slow");

    log(&mut tracker, None, Values::from([("loss", 0.5)]));
    assert_eq!(reader.poll().unwrap().lines, 1);
    assert_eq!(reader.latest("loss").unwrap().step, 2);
    tracker.finish().unwrap();
    let status = reader.status().unwrap();
    assert!(
        matches!(&status, RunStatus::Ended(ending) if ending.outcome == Outcome::Finished),
        "{status:?}"
    );
    assert_eq!(find_runs(folder.path()).unwrap(), [path.clone()]);
    assert_eq!(find_runs(&path).unwrap(), [path]);
}

#[test]
fn a_long_run_reads_the_same_with_and_without_its_index() {
    let folder = tempfile::tempdir().unwrap();
    let tracker = long_run(folder.path(), 5000, 3333);
    let path = tracker.folder().unwrap().to_owned();
    drop(tracker);
    let indexed = RunReader::open(&path).unwrap();
    fs::remove_file(path.join(INDEX_FILE)).unwrap();
    let plain = RunReader::open(&path).unwrap();
    assert!(
        path.join(INDEX_FILE).exists(),
        "written again for the next reader"
    );
    let rebuilt = RunReader::open(&path).unwrap();
    for points in [10, 100, 1000, 10_000] {
        for steps in [i64::MIN..=i64::MAX, 3000..=3400, 3333..=3333] {
            let curve = indexed.curve("loss", steps.clone(), points).unwrap();
            assert_eq!(curve, plain.curve("loss", steps.clone(), points).unwrap());
            assert_eq!(curve, rebuilt.curve("loss", steps.clone(), points).unwrap());
            assert!(
                curve.points.len() <= points + 1,
                "{points}: {}",
                curve.points.len()
            );
            let peak = curve.points.iter().find(|point| point.value == 99.0);
            assert_eq!(
                peak.map(|point| point.step),
                Some(3333),
                "{points} {steps:?}"
            );
            assert!(curve.points.iter().all(|point| steps.contains(&point.step)));
        }
    }
    let all = indexed.curve("loss", 0..=4999, 100_000).unwrap();
    assert_eq!((all.points.len(), all.is_thinned), (5000, false));
    assert_eq!(indexed.series("loss").unwrap().count, 5000);
    assert_eq!(indexed.status().unwrap(), RunStatus::Lost);
}

#[test]
fn an_index_that_does_not_fit_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let tracker = long_run(folder.path(), 1000, 10);
    let path = tracker.folder().unwrap().to_owned();
    drop(tracker);
    let index = path.join(INDEX_FILE);
    let whole = fs::read(&index).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [
        &whole[..whole.len() / 2],
        &flipped,
        &whole[..3],
        b"nonsense",
    ] {
        fs::write(&index, damaged).unwrap();
        let reader = RunReader::open(&path).unwrap();
        assert_eq!(
            (reader.lines(), reader.series("loss").unwrap().count),
            (1000, 1000)
        );
    }
    // Metrics that are shorter than the index says.
    fs::write(&index, &whole).unwrap();
    let metrics = fs::read_to_string(path.join(METRICS_FILE)).unwrap();
    let short: String = metrics
        .lines()
        .take(300)
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(path.join(METRICS_FILE), short).unwrap();
    assert_eq!(RunReader::open(&path).unwrap().lines(), 300);
}

#[test]
fn half_a_line_a_newer_version_and_nonsense_are_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::write(
        path.join(RUN_FILE),
        r#"{"format_version":7,"id":"x","started":1.0,"future":{"a":1}}"#,
    )
    .unwrap();
    fs::write(
        path.join(METRICS_FILE),
        "{\"t\":1,\"step\":5,\"values\":{\"loss\":2},\"future\":[]}\nnonsense\n{\"t\":2,\"step\":6,\"va",
    )
    .unwrap();
    fs::write(
        path.join(EVENTS_FILE),
        "{\"severity\":\"fatal\",\"message\":\"m\"}\n",
    )
    .unwrap();
    let mut reader = RunReader::open(path).unwrap();
    assert_eq!(reader.latest("loss").unwrap().step, 5);
    let notices = reader.notices();
    assert!(
        notices[0].contains("newer version (format 7"),
        "{notices:?}"
    );
    assert!(notices[1].starts_with("1 lines"), "{notices:?}");
    assert_eq!(reader.events().unwrap()[0].severity, Severity::Notice);
    assert_eq!(reader.status().unwrap(), RunStatus::Unknown);
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(path.join(METRICS_FILE))
        .unwrap();
    file.write_all(b"lues\":{\"loss\":3}}\n").unwrap();
    assert_eq!(reader.poll().unwrap().lines, 1);
    assert_eq!(reader.latest("loss").unwrap().step, 6);
}

#[test]
fn what_is_no_run_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = RunReader::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::NoRun { .. }), "{error}");
    fs::write(folder.path().join(RUN_FILE), "{").unwrap();
    let error = RunReader::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    fs::write(folder.path().join("file"), "").unwrap();
    let run = RunContext::new("p").logging_dir(folder.path().join("file"));
    let error = Local::new().start(&run).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(find_runs(&folder.path().join("absent")).is_err());
}

#[test]
fn ranks_write_beside_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let tracker = started(folder.path());
    let path = tracker.folder().unwrap();
    let step = |step| StepMetrics {
        step,
        gradient_norm: Some(f64::INFINITY),
        split: TimeSplit {
            compute: 0.5,
            ..TimeSplit::default()
        },
        ..StepMetrics::default()
    };
    for rank in [10, 2] {
        let mut writer = RankWriter::open(path, rank).unwrap();
        writer.write(&step(1)).unwrap();
        writer.write(&step(2)).unwrap();
    }
    let mut ranks = RunReader::open(path).unwrap().ranks().unwrap();
    assert_eq!(
        ranks.iter().map(RankReader::rank).collect::<Vec<_>>(),
        [2, 10]
    );
    assert_eq!(ranks[0].poll().unwrap(), [step(1), step(2)]);
    assert_eq!(ranks[0].latest(), Some(&step(2)));
    assert!(ranks[0].poll().unwrap().is_empty());
    assert!(RankWriter::open(folder.path(), 0).is_err());
}

/// Where the process that is killed writes.
const KILLED_FOLDER: &str = "ACCELERATE_TEST_KILLED_RUN";

#[test]
#[ignore = "is started and killed by the test below"]
fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(KILLED_FOLDER) else {
        return;
    };
    let mut tracker = started(Path::new(&folder));
    for step in 0.. {
        log(&mut tracker, Some(step), Values::from([("loss", 0.5)]));
    }
}

#[test]
fn a_killed_run_is_whole_up_to_its_last_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "run::tests::writes_until_it_is_killed",
            "--ignored",
        ])
        .env(KILLED_FOLDER, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut reader = loop {
        assert!(Instant::now() < deadline, "nothing was written");
        let runs = find_runs(folder.path()).unwrap();
        let opened = runs.first().map(RunReader::open).and_then(Result::ok);
        match opened {
            Some(reader) if reader.lines() > 300 => break reader,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert_eq!(reader.status().unwrap(), RunStatus::Running);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.poll().unwrap();
    assert_eq!(reader.status().unwrap(), RunStatus::Lost);
    let lines = reader.lines();
    let last = i64::try_from(lines).unwrap() - 1;
    assert_eq!(
        reader.latest("loss").unwrap().step,
        last,
        "every line is there, in order"
    );
    assert!(reader.notices().is_empty(), "{:?}", reader.notices());
    let again = RunReader::open(reader.folder()).unwrap();
    assert_eq!(
        (again.lines(), again.series("loss")),
        (lines, reader.series("loss"))
    );
}

#[test]
#[ignore = "a measurement: run it alone, with optimisation and `--nocapture`"]
fn a_hundred_long_runs_open_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let tracker = long_run(&folder.path().join("first"), 100_000, 77_777);
    let first = tracker.folder().unwrap().to_owned();
    drop(tracker);
    for number in 1..100 {
        let copy = folder.path().join(format!("copy-{number}"));
        fs::create_dir(&copy).unwrap();
        for name in [RUN_FILE, METRICS_FILE, INDEX_FILE] {
            fs::hard_link(first.join(name), copy.join(name)).unwrap();
        }
    }
    let open = || {
        let begun = Instant::now();
        let runs = find_runs(folder.path()).unwrap();
        assert_eq!(runs.len(), 100);
        std::thread::scope(|scope| {
            for half in runs.chunks(50) {
                scope.spawn(move || {
                    for run in half {
                        let reader = RunReader::open(run).unwrap();
                        let curve = reader.curve("loss", i64::MIN..=i64::MAX, 1000).unwrap();
                        assert_eq!(reader.lines(), 100_000);
                        assert!(curve.points.iter().any(|point| point.step == 77_777));
                    }
                });
            }
        });
        begun.elapsed()
    };
    println!("100 runs of 100,000 points: {:?} by their indexes", open());
    // All copies share one file: each rebuild is of a folder that has lost its own.
    for run in find_runs(folder.path()).unwrap() {
        fs::remove_file(run.join(INDEX_FILE)).unwrap();
    }
    println!("{:?} without them", open());
}
