use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::*;
use crate::delivery::deliver_left;
use crate::mlflow::{MlFlow, Store};
use crate::stub::{Request, Stub, quick};
use crate::{Tracker, Values};

fn answer(request: &Request) -> (u16, String) {
    let path = request.path.split('?').next().unwrap_or_default();
    let (status, body) = match path.rsplit("/mlflow/").next().unwrap_or_default() {
        "experiments/get-by-name" => (404, json!({ "error_code": "RESOURCE_DOES_NOT_EXIST" })),
        "experiments/create" => (200, json!({ "experiment_id": "7" })),
        "runs/create" => {
            let info =
                json!({ "run_id": "r1", "artifact_uri": "mlflow-artifacts:/7/r1/artifacts" });
            (200, json!({ "run": { "info": info } }))
        }
        _ => (200, json!({})),
    };
    (status, body.to_string())
}

fn context(url: &str, folder: &Path) -> RunContext {
    let environment = Environment::from_pairs([
        ("MLFLOW_TRACKING_URI", url),
        ("MLFLOW_TRACKING_TOKEN", "secret-token"),
    ]);
    RunContext::new("my project")
        .logging_dir(folder)
        .environment(environment)
}

/// A tracker that does not wait as long as usual.
fn started(run: &RunContext, timing: Timing) -> MlFlow {
    let settings = RunSettings::new(run).unwrap();
    let uri = run.environment.get("MLFLOW_TRACKING_URI").unwrap();
    let delivery = start_with(uri, &settings, run, timing).unwrap();
    MlFlow {
        store: Some(Store::Server(delivery)),
        ..MlFlow::default()
    }
}

fn values(number: f64) -> Values {
    Values::from([("loss", number)])
}

#[test]
fn a_run_is_made_filled_and_ended() {
    let stub = Stub::start(answer);
    let folder = tempfile::tempdir().unwrap();
    let mut tracker = started(&context(&stub.url, folder.path()), quick());
    let settings: Values = (0..150)
        .map(|number| (format!("p{number}"), true))
        .collect();
    tracker.store_init_configuration(&settings).unwrap();
    let both = Values::new()
        .with("accuracy", 0.95)
        .with("loss", f64::NAN)
        .with("non_numeric", "x");
    tracker.log(&both, Some(10), &Values::new()).unwrap();
    tracker.log_artifact("notes/a b.txt", b"hello").unwrap();
    tracker.finish().unwrap();

    let requests = stub.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.header("authorization") == "Bearer secret-token")
    );
    assert!(
        requests[0]
            .path
            .ends_with("get-by-name?experiment_name=my%20project")
    );
    assert_eq!(
        stub.bodies("experiments/create"),
        [json!({ "name": "my project" })]
    );
    let run = &stub.bodies("runs/create")[0];
    assert_eq!(run["experiment_id"], "7");
    assert!(
        run["start_time"].is_i64() && run["tags"].as_array().unwrap().len() >= 4,
        "{run}"
    );
    let batches = stub.bodies("runs/log-batch");
    assert!(batches.iter().all(|batch| batch["run_id"] == "r1"));
    let items = |kind: &str| -> Vec<Json> {
        let lists = batches.iter().filter_map(|batch| batch[kind].as_array());
        lists.flatten().cloned().collect()
    };
    let params: Vec<usize> = batches
        .iter()
        .filter_map(|batch| Some(batch["params"].as_array()?.len()))
        .collect();
    assert_eq!(params, [100, 50], "in groups that the server takes");
    assert_eq!(items("params")[0], json!({ "key": "p0", "value": "True" }));
    let metrics = items("metrics");
    assert_eq!(metrics.len(), 2);
    assert_eq!(
        (&metrics[0]["key"], &metrics[0]["step"]),
        (&json!("accuracy"), &json!(10))
    );
    assert_eq!(metrics[1]["value"], "NaN");
    assert!(
        metrics[0]["timestamp"].as_i64().unwrap() > 1_600_000_000_000,
        "milliseconds"
    );
    let put = requests
        .iter()
        .find(|request| request.method == "PUT")
        .unwrap();
    let expected = "/api/2.0/mlflow-artifacts/artifacts/7/r1/artifacts/notes/a%20b.txt";
    assert_eq!(
        (put.path.as_str(), put.body.as_slice()),
        (expected, b"hello".as_slice())
    );
    let end = &stub.bodies("runs/update")[0];
    assert_eq!(
        (&end["run_id"], &end["status"]),
        (&json!("r1"), &json!("FINISHED"))
    );
    assert!(end["end_time"].is_i64());
}

#[test]
fn a_server_that_fails_for_a_while_loses_nothing() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let stub = Stub::start(move |request| match count.fetch_add(1, Ordering::Relaxed) {
        0..12 => (500, "down: secret-token".to_owned()),
        _ => answer(request),
    });
    let folder = tempfile::tempdir().unwrap();
    let mut tracker = started(&context(&stub.url, folder.path()), quick());
    let begun = Instant::now();
    for step in 0..500 {
        tracker
            .log(&values(0.5), Some(step), &Values::new())
            .unwrap();
    }
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    tracker.finish().unwrap();
    let batches = stub.bodies("runs/log-batch");
    let lists = batches
        .iter()
        .filter_map(|batch| batch["metrics"].as_array());
    let mut steps: Vec<i64> = lists
        .flatten()
        .filter_map(|metric| metric["step"].as_i64())
        .collect();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps, (0..500).collect::<Vec<i64>>());
    assert!(asked.load(Ordering::Relaxed) > 12);
}

#[test]
fn what_a_run_could_not_send_the_next_one_sends() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody listens on the port of a listener that is gone.
    let refusing = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let timing = Timing {
        drain: Duration::from_millis(50),
        ..quick()
    };
    let mut tracker = started(&context(&refusing, folder.path()), timing);
    for step in 0..20 {
        tracker
            .log(&values(0.5), Some(step), &Values::new())
            .unwrap();
    }
    tracker.finish().unwrap();
    let undelivered = folder.path().join(FOLDER);
    let session = std::fs::read_dir(&undelivered)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let session = std::fs::read_to_string(session.join("session.json")).unwrap();
    assert!(!session.contains("secret-token"), "{session}");

    let stub = Stub::start(answer);
    let environment = context(&stub.url, folder.path()).environment;
    let deadline = Instant::now() + Duration::from_secs(20);
    let left = loop {
        let left = deliver_left(folder.path(), &environment, Duration::from_secs(10)).unwrap();
        // Until the thread has let go of the folder it is left alone.
        if !left.is_empty() || Instant::now() > deadline {
            break left;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(left.len() == 1 && left[0].error.is_none(), "{left:?}");
    let metrics = &stub.bodies("runs/log-batch")[0]["metrics"];
    assert_eq!(metrics.as_array().unwrap().len(), 20);
    assert_eq!(stub.bodies("runs/update").len(), 1);
    assert_eq!(std::fs::read_dir(&undelivered).unwrap().count(), 0);
}
