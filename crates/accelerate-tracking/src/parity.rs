//! What the trackers write, read by the tools that it is for.
//!
//! `cargo xtask parity` gives the Python that has them; without it these tests skip, saying so.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use accelerate_testkit::parity_python;
use serde_json::{Value as Json, json};

use crate::{
    Colour, DvcLive, Environment, Image, MlFlow, RunContext, TensorBoard, Tracker, Value, Values,
    Wandb,
};

/// What the reader of a tracker says of a folder or an address.
fn read(python: &Path, tracker: &str, what: &str) -> Json {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/read_trackers.py");
    let output = Command::new(python)
        .arg(script)
        .args([tracker, what])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {text}{errors}"))
}

fn settings() -> Values {
    Values::new()
        .with("num_iterations", 12)
        .with("learning_rate", 0.01)
        .with("some_boolean", false)
        .with("some_string", "some_value")
}

/// Three steps of `loss`, and once what is no number.
fn log(tracker: &mut dyn Tracker) {
    for (step, loss) in [(0, 0.5), (1, 0.25), (3, 0.125)] {
        let values = Values::from([("loss", loss)]);
        tracker.log(&values, Some(step), &Values::new()).unwrap();
    }
    let odd = Values::from([("odd", f64::NAN)]);
    tracker.log(&odd, Some(4), &Values::new()).unwrap();
}

fn dot() -> Vec<(String, Vec<Image>)> {
    let image = Image::new(2, 1, Colour::Rgb, vec![0, 1, 2, 3, 4, 5]).unwrap();
    vec![("dot".to_owned(), vec![image])]
}

#[test]
fn parity_tensorboard_reads_event_files() {
    let Some(python) = parity_python("parity_tensorboard_reads_event_files") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut tracker = TensorBoard::new();
    tracker
        .start(&RunContext::new("parity").logging_dir(folder.path()))
        .unwrap();
    tracker.store_init_configuration(&settings()).unwrap();
    log(&mut tracker);
    let more = Values::new()
        .with("note", "hello")
        .with("both", Values::from([("a", 1.0), ("b", 2.0)]));
    tracker.log(&more, Some(5), &Values::new()).unwrap();
    tracker.log_images(&dot(), Some(5), &Values::new()).unwrap();
    tracker
        .log_histogram("spread", &[-1.0, 0.0, 2.0, 2.0], Some(5))
        .unwrap();
    tracker.finish().unwrap();

    let found = read(
        &python,
        "tensorboard",
        tracker_folder(&folder, "parity").to_str().unwrap(),
    );
    let scalars = &found["scalars"];
    assert_eq!(scalars["loss"], json!([[0, 0.5], [1, 0.25], [3, 0.125]]));
    assert_eq!(
        (&scalars["both_a:both"], &scalars["both_b:both"]),
        (&json!([[5, 1.0]]), &json!([[5, 2.0]]))
    );
    assert_eq!(found["texts"], json!({ "note/text_summary": ["hello"] }));
    assert_eq!(found["images"], json!({ "dot": [[2, 1]] }));
    assert_eq!(
        found["histograms"],
        json!({ "spread": [[-1.0, 2.0, 4.0, 4.0]] })
    );
    let expected = json!({
        "num_iterations": 12.0, "learning_rate": 0.01, "some_boolean": 0.0, "some_string": "some_value",
    });
    assert_eq!(found["hparams"], expected);
}

fn tracker_folder(folder: &tempfile::TempDir, project: &str) -> PathBuf {
    folder.path().join(project)
}

#[test]
fn parity_mlflow_reads_its_folder() {
    let Some(python) = parity_python("parity_mlflow_reads_its_folder") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("mlruns");
    mlflow_run(place.to_str().unwrap(), folder.path());
    assert_mlflow(&read(&python, "mlflow", place.to_str().unwrap()));
}

#[test]
fn parity_an_mlflow_server_takes_a_run() {
    let Some(python) = parity_python("parity_an_mlflow_server_takes_a_run") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let server = MlFlowServer::start(&python, folder.path());
    mlflow_run(&server.url, folder.path());
    assert_mlflow(&read(&python, "mlflow", &server.url));
}

fn mlflow_run(uri: &str, folder: &Path) {
    let environment = Environment::from_pairs([("MLFLOW_TRACKING_URI", uri)]);
    let mut tracker = MlFlow::new();
    let run = RunContext::new("parity")
        .logging_dir(folder)
        .options(Values::from([("run_name", "my run")]));
    tracker.start(&run.environment(environment)).unwrap();
    tracker.store_init_configuration(&settings()).unwrap();
    log(&mut tracker);
    tracker.log_artifact("notes/a.txt", b"hello").unwrap();
    tracker.finish().unwrap();
}

fn assert_mlflow(found: &Json) {
    let expected = json!({
        "num_iterations": "12", "learning_rate": "0.01", "some_boolean": "False", "some_string": "some_value",
    });
    assert_eq!(found["params"], expected);
    assert_eq!(found["loss"], json!([[0, 0.5], [1, 0.25], [3, 0.125]]));
    assert_eq!(
        (&found["status"], &found["nan"]),
        (&json!("FINISHED"), &json!(true))
    );
    assert_eq!(
        (&found["artifacts"], &found["name"]),
        (&json!(["notes/a.txt"]), &json!("my run"))
    );
}

/// A server of MLflow that ends with the test.
struct MlFlowServer {
    process: Child,
    url: String,
}

impl MlFlowServer {
    fn start(python: &Path, folder: &Path) -> Self {
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let process = Command::new(python)
            .args([
                "-m",
                "mlflow",
                "server",
                "--host",
                "127.0.0.1",
                "--workers",
                "1",
            ])
            .args(["--port", &port.to_string(), "--serve-artifacts"])
            .args(["--backend-store-uri", "sqlite:///server.db"])
            .args(["--artifacts-destination", "artifacts"])
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            process,
            url: format!("http://127.0.0.1:{port}"),
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                std::time::Instant::now() < deadline,
                "the server does not come up"
            );
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        server
    }
}

impl Drop for MlFlowServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn parity_dvc_reads_the_files_of_dvclive() {
    let Some(python) = parity_python("parity_dvc_reads_the_files_of_dvclive") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let options = Values::from([("dir", place("dvclive")), ("dvcyaml", place("dvc.yaml"))]);
    let mut tracker = DvcLive::new();
    let run = RunContext::new("parity").options(options);
    tracker
        .start(&run.environment(Environment::default()))
        .unwrap();
    tracker.store_init_configuration(&settings()).unwrap();
    log(&mut tracker);
    tracker.finish().unwrap();

    let found = read(&python, "dvclive", folder.path().to_str().unwrap());
    assert_eq!(found["params"], json!(settings()));
    assert_eq!(
        found["metrics"],
        json!({ "loss": 0.125, "odd": "nan", "step": 4 })
    );
    assert_eq!(found["next_step"], 5);
    assert!(
        found["plots"].to_string().contains("plots/metrics"),
        "{found}"
    );
}

#[test]
fn parity_wandb_reads_an_offline_run() {
    let Some(python) = parity_python("parity_wandb_reads_an_offline_run") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::from_pairs([
        ("WANDB_MODE", "offline"),
        ("WANDB_DIR", folder.path().to_str().unwrap()),
    ]);
    let mut tracker = Wandb::new();
    let tags = Values::from([("tags", vec![Value::from("a"), Value::from("b")])]);
    let run = RunContext::new("parity").options(tags);
    tracker.start(&run.environment(environment)).unwrap();
    tracker.store_init_configuration(&settings()).unwrap();
    // Longer than a block of the file.
    let long = Values::from([("loss", Value::from("x".repeat(100_000)))]);
    tracker.log(&long, Some(0), &Values::new()).unwrap();
    let last = Values::new().with("loss", 0.5).with("odd", f64::NAN);
    tracker.log(&last, Some(7), &Values::new()).unwrap();
    tracker.finish().unwrap();

    let found = read(&python, "wandb", folder.path().to_str().unwrap());
    let kinds = [
        "header", "run", "config", "history", "history", "summary", "exit",
    ];
    assert_eq!(found["kinds"], json!(kinds));
    assert_eq!(
        (&found["project"], &found["tags"]),
        (&json!("parity"), &json!(["a", "b"]))
    );
    assert_eq!(found["config"], json!(settings()));
    assert_eq!(found["history"][0][1].as_str().unwrap().len(), 100_002);
    assert_eq!(found["history"][1], json!([7, "0.5"]));
    assert_eq!(found["summary"], json!({ "loss": "0.5", "odd": "NaN" }));
}
