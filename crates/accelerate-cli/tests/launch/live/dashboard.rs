//! What the page is told: over plain HTTP, as any program may ask.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    http::Served,
    written::{Written, broken, loss, newer_and_cut},
};
use crate::launcher::wait_until;

/// The entry of a run in the list.
fn entry<'a>(list: &'a Value, id: &str) -> &'a Value {
    let runs = list["runs"].as_array().unwrap();
    let mut runs = runs.iter();
    let found = runs.find(|run| run["id"] == id);
    assert!(found.is_some(), "no {id} in {list}");
    found.unwrap()
}

#[test]
fn runs_are_listed_with_where_they_stand_and_what_they_were_told() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut going = Written::new(root, 2, &[("lr", 0.1), ("max_train_steps", 50.0)]);
    going.losses(0..20);
    let mut failed = Written::new(root, 1, &[("lr", 0.2)]);
    failed.losses(0..5);
    failed.warn(0, "the loss is \u{1b}[31mlarge");
    let failed_id = failed.id();
    fs::write(
        failed.folder().join("log.txt"),
        "epoch 1\n 10%\r 90%\nTraceback\n",
    )
    .unwrap();
    failed.finish(Some("out of memory"));
    let newer = newer_and_cut(root);
    let newer = newer.file_name().unwrap().to_str().unwrap();
    broken(root, "broken");
    let served = Served::of(root);

    let list = served.json("/api/runs");
    let run = entry(&list, &going.id());
    assert_eq!(run["state"], "running");
    assert_eq!(
        (&run["step"], &run["total_steps"]),
        (&json!(19), &json!(50))
    );
    assert_eq!(run["metrics"], json!(["loss", "lr"]));
    assert_eq!(run["settings"], json!({"lr": 0.1, "max_train_steps": 50.0}));
    assert_eq!(
        (&run["processes"], &run["project"]),
        (&json!(2), &json!("demo"))
    );
    assert_eq!(entry(&list, &failed_id)["state"], "failed");
    let run = entry(&list, newer);
    assert_eq!(
        (&run["state"], &run["step"]),
        (&json!("crashed"), &json!(2))
    );
    assert!(
        run["problem"].as_str().unwrap().contains("newer version"),
        "{run}"
    );
    let run = entry(&list, "broken");
    assert_eq!(run["state"], "unreadable");
    assert!(
        run["problem"].as_str().unwrap().contains("run.json"),
        "{run}"
    );

    let log = served.json(&format!("/api/log?run={failed_id}"));
    assert_eq!(log["failure"], "Failed: out of memory");
    let lines: Vec<_> = log["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    assert!(
        lines[0].ends_with("rank 0  warning: the loss is large"),
        "{lines:?}"
    );
    assert_eq!(lines[1..], ["", "epoch 1", " 90%", "Traceback"]);
    let log = served.json(&format!("/api/log?run={newer}"));
    assert!(
        log["failure"].as_str().unwrap().contains("without a word"),
        "{log}"
    );
}

#[test]
fn curves_come_thinned_zoomed_and_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Written::new(folder.path(), 1, &[]);
    for step in 0..5000 {
        let peak = if step == 3210 { 1e6 } else { loss(step) };
        run.log(step, &[("loss/train", peak)]);
    }
    run.log(5000, &[("loss/train", f64::NAN)]);
    let served = Served::of(folder.path());
    let ask = |more: &str| {
        let target = format!("/api/curves?metric=loss%2Ftrain&run={}{more}", run.id());
        served.json(&target)["curves"][0].clone()
    };
    let numbers = |curve: &Value, name: &str| -> Vec<f64> {
        let values = curve[name].as_array().unwrap().iter();
        values
            .map(|value| value.as_f64().unwrap_or(f64::NAN))
            .collect()
    };

    let whole = ask("&points=200");
    let steps = numbers(&whole, "step");
    assert!(steps.len() <= 210 && steps.is_sorted(), "{}", steps.len());
    assert_eq!(whole["thinned"], true);
    assert!(numbers(&whole, "value").contains(&1e6), "no peak is lost");
    assert_eq!(steps.last(), Some(&5000.0));
    assert_eq!(
        whole["value"].as_array().unwrap().last(),
        Some(&Value::Null)
    );

    let zoomed = ask("&from=3200&to=3220&points=200");
    let steps = numbers(&zoomed, "step");
    assert!(
        steps[0] < 3200.0 && *steps.last().unwrap() > 3220.0,
        "lines reach the edges"
    );
    let at = steps.iter().position(|step| *step == 3205.0).unwrap();
    assert_eq!(numbers(&zoomed, "value")[at], loss(3205));
    assert_eq!(zoomed["thinned"], false);

    let times = numbers(&ask("&across=time&points=200"), "time");
    let (from, to) = (times[50], times[60]);
    let zoomed = ask(&format!("&across=time&from={from}&to={to}&points=200"));
    let inside = numbers(&zoomed, "time");
    assert!(inside.is_sorted() && inside.iter().any(|time| (from..=to).contains(time)));

    let target = format!(
        "/api/curves.csv?metric=loss%2Ftrain&run={}&from=10&to=12",
        run.id()
    );
    let answer = served.get(&target);
    assert!(
        answer.head.contains("attachment; filename=\"curves.csv\""),
        "{}",
        answer.head
    );
    let rows: Vec<&str> = answer.body.lines().collect();
    assert_eq!(rows[0], "run,metric,step,seconds,value");
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert!(
        rows[1].starts_with(&format!("{},loss/train,10,", run.id())),
        "{rows:?}"
    );
    let target = format!("/api/curves.csv?metric=loss%2Ftrain&run={}", run.id());
    assert_eq!(served.get(&target).body.lines().count(), 5002);
}

#[test]
fn ranks_are_told_apart_and_the_late_one_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = Written::new(folder.path(), 3, &[]);
    for step in 0..30 {
        for (rank, compute) in [(0, 0.2), (1, 0.2), (2, 0.45)] {
            run.rank(rank, step, compute);
        }
    }
    // Half a line at the end of a file.
    let path = run.folder().join("ranks/0.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "{\"t\":1,\"ste").unwrap();
    let served = Served::of(&run.folder());
    let list = served.json("/api/runs");
    assert_eq!(
        list["runs"][0]["id"],
        run.id(),
        "the folder may be a run itself"
    );
    let ranks = &served.json(&format!("/api/ranks?run={}", run.id()))["ranks"];
    let stragglers: Vec<_> = ranks
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| &rank["straggler"])
        .collect();
    assert_eq!(stragglers, [false, false, true]);
    let first = &ranks[0];
    assert_eq!(
        (&first["step"], &first["step_time"]),
        (&json!(29), &json!(0.5))
    );
    assert_eq!(
        (&first["memory"], &first["samples_per_second"]),
        (&json!(3_u64 << 29), &json!(64.0))
    );
    let compute = first["compute"].as_f64().unwrap();
    assert!((compute - 0.2).abs() < 1e-9, "{compute}");
}

#[test]
fn nothing_leads_out_of_the_folder_and_nobody_else_may_ask() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::write(folder.path().join("secret"), "hidden").unwrap();
    Written::new(folder.path(), 1, &[]).losses(0..2);
    let served = Served::of(&inside);
    for target in [
        "/../secret",
        "/assets/../../secret",
        "/assets/%2e%2e/secret",
        "/api/log?run=../secret",
        "/api/log?run=..",
        "/api/curves?metric=loss&run=..%2F..",
        "//etc/passwd",
        "/nothing",
    ] {
        let answer = served.get(target);
        assert_eq!(answer.status(), 404, "{target}: {answer:?}");
        assert!(!answer.body.contains("hidden"));
    }
    let with_host = |host: &str| {
        let request = format!("GET /api/runs HTTP/1.1\r\nHost: {host}\r\n\r\n");
        served.raw(&request).status()
    };
    assert_eq!(with_host("evil.example"), 421);
    assert_eq!(with_host("localhost:9999"), 200);
    assert_eq!(with_host("[::1]"), 200);
    let host = &served.address;
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = served.raw(&format!(
            "{method} /api/runs HTTP/1.1\r\nHost: {host}\r\n\r\n"
        ));
        assert_eq!(answer.status(), 405, "{method}");
    }
    assert_eq!(served.raw("nonsense\r\n\r\n").status(), 400);
    let page = served.get("/");
    assert!(
        page.head
            .contains("Content-Security-Policy: default-src 'none'"),
        "{}",
        page.head
    );
    let head = served.raw(&format!("HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!((head.status(), head.body.as_str()), (200, ""));
    assert_eq!(served.json("/api/runs")["runs"], json!([]));
    assert_eq!(served.get("/api/curves?run=x").status(), 400);
}

#[test]
fn what_is_new_is_told_while_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::of(folder.path());
    let mut stream = served.connect();
    let request = format!(
        "GET /api/events HTTP/1.1\r\nHost: {}\r\n\r\n",
        served.address
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut next = |wanted: &str| lines.find(|line| line.starts_with(wanted)).unwrap();
    assert_eq!(next("Content-Type"), "Content-Type: text/event-stream");
    next("retry");
    let mut run = Written::new(folder.path(), 1, &[]);
    next("event: change");
    run.losses(0..1);
    next("event: change");
    wait_until("the step of the run", || {
        served.json("/api/runs")["runs"][0]["step"] == 0
    });
    let id = run.id();
    run.finish(None);
    next("event: change");
    wait_until("its end", || {
        served.json("/api/runs")["runs"][0]["state"] == "finished"
    });
    assert_eq!(
        served.json(&format!("/api/log?run={id}"))["failure"],
        Value::Null
    );
}

#[test]
fn a_hundred_long_runs_open_quickly() {
    const RUNS: usize = 100;
    const POINTS: i64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let mut run = Written::new(folder.path(), 1, &[]);
    run.losses(0..POINTS);
    let first = run.folder();
    run.finish(None);
    // The others are the same files under other names: what is read does not get less by that.
    for number in 1..RUNS {
        let other = folder.path().join(format!("20000101-000000-{number:06}"));
        fs::create_dir(&other).unwrap();
        for file in fs::read_dir(&first).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                fs::hard_link(file.path(), other.join(file.file_name())).unwrap();
            }
        }
    }
    let served = Served::of(folder.path());
    let begin = Instant::now();
    let list = served.json("/api/runs");
    let runs = list["runs"].as_array().unwrap();
    assert_eq!(runs.len(), RUNS);
    let ids: String = runs
        .iter()
        .map(|run| format!("&run={}", run["id"].as_str().unwrap()))
        .collect();
    let curves = served.json(&format!("/api/curves?metric=loss&points=800{ids}"));
    let took = begin.elapsed();
    let curves = curves["curves"].as_array().unwrap();
    assert_eq!(curves.len(), RUNS);
    for curve in curves {
        assert_eq!(
            curve["step"].as_array().unwrap().last(),
            Some(&json!(POINTS - 1))
        );
    }
    eprintln!("{RUNS} runs of {POINTS} points: {} ms", took.as_millis());
    // Two seconds are the aim of an optimized build on a quiet machine.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn what_cannot_be_served_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_accelerate"));
        let output = command
            .arg("dashboard")
            .args(words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text) = run(&["absent"]);
    assert_eq!(code, Some(1));
    assert!(
        text.starts_with("error: cannot read the folder `absent`\n"),
        "{text}"
    );
    assert!(text.contains("\nhint: "), "{text}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (code, text) = run(&[".", "--port", &port]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains(&format!("cannot listen at `127.0.0.1`, port {port}")),
        "{text}"
    );
    assert!(text.contains("`--port 0`"), "{text}");
}
