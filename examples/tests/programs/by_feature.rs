//! Every feature as a plain program and accelerated, on one process and on two.

use accelerate::tracking::{Value, run as tracked};
use std::fs;

use crate::process::Done;
use crate::workplace::{HELD_OUT, Workplace};

/// An even number of batches for each process, and an odd one held out.
const SAMPLES: &str = "48";

/// Runs a feature on the small job and takes what it printed.
#[track_caller]
fn run(processes: usize, feature: &str, flags: &[&str]) -> Done {
    let place = Workplace::new();
    let job = place.small_job();
    let mut arguments: Vec<&str> = job.iter().map(String::as_str).collect();
    arguments.extend(["--samples", SAMPLES]);
    // The last one counts where a flag is given twice.
    let given = |name: &&str| flags.contains(name);
    let mut kept = Vec::new();
    for pair in arguments.chunks(2) {
        if !given(&pair[0]) {
            kept.extend(pair);
        }
    }
    kept.extend(flags);
    let done = place.by_feature(processes, feature, &kept).run();
    done.assert_code(0);
    done
}

/// The number behind each `name`.
#[track_caller]
fn numbers(done: &Done, name: &str) -> Vec<f64> {
    let name = format!("{name} ");
    let found: Vec<f64> = done
        .stdout
        .split(&name)
        .skip(1)
        .map(|rest| {
            let end = rest.find([',', ' ', '\n', ':']).unwrap_or(rest.len());
            rest[..end].parse().unwrap()
        })
        .collect();
    assert!(!found.is_empty(), "no `{name}`: {done:#?}");
    found
}

#[track_caller]
fn assert_loss_falls(done: &Done) {
    let losses = numbers(done, "loss");
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    assert!(last < first, "from {first} to {last}: {done:#?}");
}

/// Each evaluation is over all held-out snippets, each once.
#[track_caller]
fn assert_all_held_out(done: &Done) {
    assert!(
        numbers(done, "on").iter().all(|&on| on == HELD_OUT as f64),
        "{done:#?}"
    );
}

/// The same program on one process, plain and accelerated, and the other one on two.
fn plain_and_accelerated(feature: &str, flags: &[&str]) -> Done {
    let plain = run(1, feature, &[flags, &["--plain"]].concat());
    let alone = run(1, feature, flags);
    assert_eq!(plain.stdout, alone.stdout, "{plain:#?} {alone:#?}");
    assert_eq!(plain.stderr, alone.stderr);
    run(2, feature, flags)
}

#[test]
fn gradient_accumulation() {
    // Two processes come to two steps in an epoch, of which the second is a shorter one.
    let flags = ["--epochs", "4", "--gradient-accumulation-steps", "4"];
    let two = plain_and_accelerated("gradient_accumulation", &flags);
    assert_loss_falls(&two);
    assert_eq!(two.stderr, "", "the schedule does not fit");
    assert_all_held_out(&two);
}

#[test]
fn the_same_weight_with_accumulation_and_without() {
    let place = Workplace::new();
    let feature = "gradient_accumulation_exact";
    let plain = place.by_feature(1, feature, &["--plain"]).run();
    plain.assert_code(0);
    let whole = "initial model weight is 0.00000\n\
                 w/o accumulation, the final model weight is 2.04000\n";
    assert_eq!(plain.stdout, whole);
    let parts = "initial model weight is 0.00000\n\
                 w/ accumulation, the final model weight is 2.04000\n";
    for processes in [1, 2] {
        let done = place.by_feature(processes, feature, &[]).run();
        done.assert_code(0);
        assert_eq!(done.stdout, format!("{parts}{whole}"), "{processes}");
    }
}

#[test]
fn every_token_counts_the_same_on_one_process_and_on_two() {
    let feature = "gradient_accumulation_for_autoregressive_models";
    let flags = |steps| {
        let steps = ["--gradient-accumulation-steps", steps];
        [steps, ["--width", "16"], ["--epochs", "2"]].concat()
    };
    let plain = run(1, feature, &[flags("4"), vec!["--plain"]].concat());
    let alone = run(1, feature, &flags("4"));
    // The same twelve batches of each epoch make three steps.
    let two = run(2, feature, &flags("2"));
    assert_eq!(numbers(&plain, "loss").len(), 6);
    for done in [&alone, &two] {
        assert_eq!(numbers(done, "over"), numbers(&plain, "over"));
        for (found, expected) in numbers(done, "loss").iter().zip(numbers(&plain, "loss")) {
            assert!((found - expected).abs() < 2e-4, "{plain:#?} {done:#?}");
        }
        assert_loss_falls(done);
    }
}

/// The steps of each process, and how many there could have been.
#[track_caller]
fn stopped(done: &Done) -> (Vec<u64>, u64) {
    let line = done.stdout.lines().next().unwrap();
    let (steps, most) = line.split_once("] of ").unwrap();
    let steps = steps.strip_prefix("stopped after [").unwrap().split(", ");
    let most = most.strip_suffix(" steps").unwrap();
    (
        steps.map(|steps| steps.parse().unwrap()).collect(),
        most.parse().unwrap(),
    )
}

#[test]
fn early_stopping_stops_all_processes_at_one_step() {
    let flags = ["--epochs", "50", "--patience", "4"];
    let two = plain_and_accelerated("early_stopping", &flags);
    let (steps, most) = stopped(&two);
    assert_eq!(most, 300);
    assert!(steps.len() == 2 && steps[0] == steps[1], "{steps:?}");
    assert!((5..100).contains(&steps[0]), "{steps:?}");
}

#[test]
fn cross_validation_scores_each_fold_and_the_common_vote() {
    let two = plain_and_accelerated("cross_validation", &["--folds", "3"]);
    // 48 snippets in three folds, and what was held out from all of them.
    assert_eq!(numbers(&two, "on"), [16.0, 16.0, 16.0, HELD_OUT as f64]);
    assert!(two.stdout.contains("\nall 3 models: accuracy "), "{two:#?}");
}

#[test]
fn metrics_count_each_sample_once() {
    let two = plain_and_accelerated("multi_process_metrics", &[]);
    assert_all_held_out(&two);
    let more = "`gather` would have counted 8\n";
    assert_eq!(two.stdout.matches(more).count(), 1, "{two:#?}");
}

#[test]
fn memory_finds_the_largest_size_that_fits() {
    let flags = ["--batch-size", "16", "--memory-for", "7"];
    let plain = run(1, "memory", &[&flags[..], &["--plain"]].concat());
    let alone = run(1, "memory", &flags);
    let two = run(2, "memory", &flags);
    assert_eq!(plain.stdout, alone.stdout);
    alone.assert_told(&["ran out of memory with batch size 16; trying 8"]);
    for done in [&alone, &two] {
        assert!(done.stdout.starts_with("batch size 4: "), "{done:#?}");
        assert_all_held_out(done);
    }
}

#[test]
fn accumulation_makes_up_for_a_smaller_batch_size() {
    let feature = "automatic_gradient_accumulation";
    let flags = ["--batch-size", "16", "--memory-for", "4"];
    let plain = run(1, feature, &[&flags[..], &["--plain"]].concat());
    let alone = run(1, feature, &flags);
    let two = run(2, feature, &flags);
    assert_eq!(plain.stdout, alone.stdout);
    for (done, samples) in [(&alone, 16), (&two, 32)] {
        let told = format!(
            "batch size 4, 4 batches in a step, {samples} samples of all processes: accuracy "
        );
        assert!(done.stdout.starts_with(&told), "{done:#?}");
        assert_all_held_out(done);
    }
}

#[test]
fn gradients_travel_in_half_precision_or_compressed() {
    let feature = "ddp_comm_hook";
    let epochs = ["--epochs", "3"];
    let plain = run(2, feature, &[&epochs[..], &["--plain"]].concat());
    assert_loss_falls(&plain);
    let expected = numbers(&plain, "loss");
    for hook in ["fp16", "bf16"] {
        let done = run(2, feature, &[&epochs[..], &["--hook", hook]].concat());
        for (found, expected) in numbers(&done, "loss").iter().zip(&expected) {
            assert!((found - expected).abs() < 0.02, "{plain:#?} {done:#?}");
        }
    }
    let power_sgd = ["--hook", "power_sgd", "--start-power-sgd-iter", "2"];
    let wrapper = ["--wrapper", "fp16"];
    let done = run(2, feature, &[&epochs[..], &power_sgd, &wrapper].concat());
    assert_loss_falls(&done);
    let line = done.stdout.lines().last().unwrap();
    let rate: f64 = line
        .strip_suffix(" times fewer numbers sent")
        .unwrap()
        .parse()
        .unwrap();
    assert!(rate > 2.0, "{rate}");
    // By itself a process sends nothing.
    assert_loss_falls(&run(1, feature, &epochs));
}

#[test]
fn local_sgd_ends_with_one_model() {
    let accumulated = ["--gradient-accumulation-steps", "2"];
    let flags = ["--epochs", "3", "--local-sgd-steps", "4"];
    let flags = [&flags[..], &accumulated].concat();
    let two = run(2, "local_sgd", &flags);
    assert_loss_falls(&two);
    assert_eq!(numbers(&two, "are"), [0.0; 3]);
    // Six batches in an epoch; the optimizer steps at the sixth, after the average at the fourth.
    let before = numbers(&two, "were");
    assert!(before.iter().all(|&apart| apart > 0.0), "{before:?}");
    let plain = run(2, "local_sgd", &[&flags[..], &["--plain"]].concat());
    assert_eq!(numbers(&plain, "are"), [0.0; 3]);
    let alone = run(1, "local_sgd", &flags);
    assert_loss_falls(&alone);
    assert_eq!(numbers(&alone, "were"), [0.0; 3]);
}

#[test]
fn schedule_free() {
    let two = plain_and_accelerated("schedule_free", &["--epochs", "4"]);
    assert_loss_falls(&two);
    assert_all_held_out(&two);
}

#[test]
fn profiler() {
    let traces = tempfile::tempdir().unwrap();
    let folder = traces.path().to_str().unwrap();
    let done = run(
        2,
        "profiler",
        &["--epochs", "1", "--rows", "200", "--trace-dir", folder],
    );
    for said in ["epoch 1: loss ", " aten::addmm ", "Self CPU time total: "] {
        assert_eq!(done.stdout.matches(said).count(), 1, "{said}: {done:#?}");
    }
    assert!(done.stdout.contains("Total KFLOPs"), "{done:#?}");
    for rank in 0..2 {
        let text = fs::read_to_string(traces.path().join(format!("profile_{rank}.json"))).unwrap();
        let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let named = |start: &str| {
            let name = |event: &serde_json::Value| event["name"].as_str().map(str::to_owned);
            let all = events.iter().filter_map(name);
            all.filter(|name| name.starts_with(start)).count()
        };
        assert_eq!(named("ProfilerStep#"), 2, "the steps that are recorded");
        assert!(named("aten::addmm") > 0 && named("gloo:all_reduce") > 0);
    }
    let plain = run(1, "profiler", &["--epochs", "1", "--plain"]);
    assert!(!plain.stdout.contains("Self CPU"), "{plain:#?}");
}

#[test]
fn messages_come_once_or_from_each_process() {
    let plain = run(1, "logging", &["--plain"]);
    plain.assert_told(&["training on 48 snippets", "epoch 1: loss ", "epoch 1: acc"]);
    assert!(!plain.stderr.contains("step 0"), "{plain:#?}");
    for processes in [1, 2] {
        let place = Workplace::new();
        let job = place.small_job();
        let job: Vec<&str> = job.iter().map(String::as_str).collect();
        let done = place
            .by_feature(processes, "logging", &job)
            .env("ACCELERATE_LOG_LEVEL", "debug")
            .run();
        done.assert_code(0);
        let from = |text: &str| -> Vec<usize> {
            (0..3)
                .map(|rank| {
                    done.stderr
                        .matches(&format!("[RANK {rank}] {text}"))
                        .count()
                })
                .collect()
        };
        let each = if processes == 1 { [1, 0, 0] } else { [1, 1, 0] };
        assert_eq!(from("training on 53 snippets"), [1, 0, 0], "{done:#?}");
        assert_eq!(from("epoch 1: accuracy"), [1, 0, 0], "{done:#?}");
        assert_eq!(from("epoch 1: loss"), each, "{done:#?}");
        assert_eq!(from("step 3: loss"), each, "{done:#?}");
    }
}

#[test]
fn curves_come_from_the_main_process_alone() {
    let place = Workplace::new();
    let job = place.small_job();
    let runs = place.output();
    let mut flags: Vec<&str> = job.iter().map(String::as_str).collect();
    flags.extend(["--log-with", "local,tensorboard", "--logging-dir"]);
    flags.push(runs.to_str().unwrap());
    let done = place.by_feature(2, "tracking", &flags).run();
    done.assert_code(0);
    for said in ["epoch 1: loss ", "accelerate watch "] {
        assert!(done.stdout.contains(said), "{said}: {done:#?}");
    }
    let found = tracked::find_runs(&runs).unwrap();
    assert_eq!(found.len(), 1, "one run for all processes: {found:?}");
    let reader = tracked::RunReader::open(&found[0]).unwrap();
    assert_eq!(reader.info().world_size, 2);
    assert!(matches!(
        reader.info().settings.get("epochs"),
        Some(Value::Int(_))
    ));
    assert!(
        reader
            .series("train_loss")
            .is_some_and(|series| series.count > 1)
    );
    assert!(matches!(
        reader.status().unwrap(),
        tracked::RunStatus::Ended(_)
    ));
    let event_files = std::fs::read_dir(runs.join("sentiment"))
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with("events.out.tfevents.")
        });
    assert_eq!(event_files.count(), 1);
}

#[test]
fn files_that_are_missing_are_named() {
    let place = Workplace::new();
    let flags = ["--model", "/nowhere", "--data", "/nowhere/data"];
    let done = place.by_feature(1, "early_stopping", &flags).run();
    done.assert_code(1);
    done.assert_told(&["/nowhere/data", "cargo xtask setup"]);
    let unknown = place.by_feature(1, "time_travel", &[]).run();
    unknown.assert_code(2);
    unknown.assert_told(&["time_travel"]);
}
