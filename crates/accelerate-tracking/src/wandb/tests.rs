use std::fs;
use std::path::PathBuf;

use super::*;
use crate::media::Colour;

fn offline(folder: &std::path::Path) -> Wandb {
    let environment = Environment::from_pairs([
        ("WANDB_MODE", "offline"),
        ("WANDB_DIR", folder.to_str().unwrap()),
    ]);
    let options = Values::from([("tags", vec![Value::from("my_tag")])]);
    let mut tracker = Wandb::new();
    let run = RunContext::new("my_project").options(options);
    tracker.start(&run.environment(environment)).unwrap();
    tracker
}

fn records(tracker_folder: &std::path::Path) -> Vec<Vec<u8>> {
    let file: PathBuf = fs::read_dir(tracker_folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|ending| ending == "wandb"))
        .unwrap();
    datastore::records(&fs::read(file).unwrap())
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// An item as `field 1 { field FIELD: name, field 16: json }`.
fn item(field: u8, name: &str, json: &str) -> Vec<u8> {
    let mut inner = vec![(field << 3) | 2, name.len() as u8];
    inner.extend_from_slice(name.as_bytes());
    inner.extend_from_slice(&[0x82, 0x01, json.len() as u8]);
    inner.extend_from_slice(json.as_bytes());
    let mut outer = vec![0x0a, inner.len() as u8];
    outer.extend(inner);
    outer
}

/// The number of a field whose key begins with these bytes.
fn field_of(first: u8, second: u8) -> u8 {
    if first < 0x80 {
        return first >> 3;
    }
    ((first & 0x7f) >> 3) | (second << 4)
}

#[test]
fn an_offline_run_has_the_records_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut tracker = offline(folder.path());
    let settings = Values::new()
        .with("num_iterations", 12)
        .with("some_boolean", false)
        .with("nest", Values::from([("q", 1)]));
    tracker.store_init_configuration(&settings).unwrap();
    let values = Values::new()
        .with("total_loss", 0.1)
        .with("bad", f64::NAN)
        .with("nest", Values::from([("q", 2)]));
    tracker.log(&values, Some(0), &Values::new()).unwrap();
    let image = Image::new(1, 1, Colour::Grey, vec![9]).unwrap();
    tracker
        .log_images(&[("pic".to_owned(), vec![image])], Some(0), &Values::new())
        .unwrap();
    let run_folder = tracker.folder().unwrap().to_owned();
    tracker.finish().unwrap();

    let records = records(&run_folder);
    // Header, run, config, file, history, summary, exit; each begins with its number.
    let kinds: Vec<(u8, u8)> = records
        .iter()
        .map(|record| (record[1], field_of(record[2], record[3])))
        .collect();
    assert_eq!(
        kinds,
        [(1, 21), (2, 17), (3, 5), (4, 6), (5, 2), (6, 3), (7, 18)]
    );
    assert!(holds(&records[1], b"my_project") && holds(&records[1], b"my_tag"));
    assert!(holds(&records[2], &item(1, "num_iterations", "12")));
    assert!(holds(&records[2], &item(1, "some_boolean", "false")));
    assert!(holds(&records[2], &item(1, "nest", r#"{"q":1}"#)));
    assert!(holds(&records[3], b"media/images/pic_0_000001.png"));
    let history = &records[4];
    assert!(
        holds(history, &item(2, "total_loss", "0.1")) && holds(history, &item(2, "bad", "NaN"))
    );
    assert!(holds(history, &item(2, "_step", "0")) && holds(history, b"_timestamp"));
    assert!(holds(history, b"\x12\x04nest\x12\x01q\x82\x01\x012"));
    assert!(
        run_folder
            .join("files/media/images/pic_0_000001.png")
            .is_file()
    );
    #[cfg(unix)]
    assert!(folder.path().join("wandb/latest-run/files").is_dir());
}

#[test]
fn a_disabled_run_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::from_pairs([
        ("WANDB_MODE", "disabled"),
        ("WANDB_DIR", folder.path().to_str().unwrap()),
    ]);
    let mut tracker = Wandb::new();
    tracker
        .start(&RunContext::new("p").environment(environment))
        .unwrap();
    tracker
        .log(&Values::from([("a", 1)]), None, &Values::new())
        .unwrap();
    tracker.finish().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(tracker.log(&Values::new(), None, &Values::new()).is_err());
}

#[cfg(feature = "network")]
mod online {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value as Json, json};

    use super::*;
    use crate::stub::{Request, Stub, quick};

    fn answer(request: &Request) -> (u16, String) {
        if request.path != "/graphql" {
            return (200, "{}".to_owned());
        }
        let body = request.json();
        let query = body["query"].as_str().unwrap_or_default();
        let data = if query.contains("UpsertBucket") {
            let project = json!({ "name": "my_project", "entity": { "name": "me" } });
            json!({ "upsertBucket": { "bucket": { "id": "x", "project": project } } })
        } else {
            let files = json!([{ "name": "f", "uploadUrl": "/storage/f" }]);
            json!({ "createRunFiles": { "runID": "x", "uploadHeaders": [], "files": files } })
        };
        (200, json!({ "data": data }).to_string())
    }

    #[test]
    fn rows_settings_and_files_arrive() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // The first rows are refused for a while: they come again with the same offset.
        let stub = Stub::start(move |request| {
            if request.path.ends_with("file_stream") && count.fetch_add(1, Ordering::Relaxed) < 3 {
                return (503, String::new());
            }
            answer(request)
        });
        let folder = tempfile::tempdir().unwrap();
        let environment = Environment::from_pairs([
            ("WANDB_BASE_URL", stub.url.as_str()),
            ("WANDB_API_KEY", "key"),
            ("WANDB_RUN_ID", "run1"),
        ]);
        let run = RunContext::new("my_project")
            .logging_dir(folder.path())
            .environment(environment);
        let service =
            super::super::online::Online::start_with(&RunSettings::new(&run), &run, quick());
        let mut tracker = Wandb {
            run: Some(Run {
                sink: Sink::Service(service.unwrap()),
                history: History::new(),
                media: 0,
            }),
        };
        tracker
            .store_init_configuration(&Values::from([("lr", 0.1)]))
            .unwrap();
        for step in 0..5 {
            let values = Values::new()
                .with("loss", f64::INFINITY)
                .with("n", Values::from([("q", 1)]));
            tracker.log(&values, Some(step), &Values::new()).unwrap();
        }
        let table = Table::new(["a"], vec![vec![Value::from(1)]]).unwrap();
        tracker
            .log_table("t", &table, Some(5), &Values::new())
            .unwrap();
        tracker.finish().unwrap();

        let requests = stub.requests();
        let upserts: Vec<Json> = stub.bodies("/graphql");
        let input = &upserts[0]["variables"]["input"];
        assert_eq!(
            (&input["name"], &input["modelName"]),
            (&json!("run1"), &json!("my_project"))
        );
        let config: Json = serde_json::from_str(input["config"].as_str().unwrap()).unwrap();
        assert_eq!(config["lr"], json!({ "value": 0.1 }));
        assert!(requests[0].header("authorization").starts_with("Basic "));
        let mut lines = std::collections::BTreeMap::new();
        for body in stub.bodies("/files/me/my_project/run1/file_stream") {
            let history = &body["files"]["wandb-history.jsonl"];
            let content = history["content"].as_array().cloned().unwrap_or_default();
            let first = history["offset"].as_u64().unwrap_or_default();
            for (line, content) in (first..).zip(content) {
                let content = content.as_str().unwrap().to_owned();
                if let Some(earlier) = lines.insert(line, content.clone()) {
                    assert_eq!(earlier, content, "a line sent again is the same");
                }
            }
        }
        assert_eq!(
            lines.keys().copied().collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5]
        );
        assert!(
            lines[&0].starts_with(r#"{"loss":Infinity,"n":{"q":1},"_step":0,"_runtime":"#),
            "{lines:?}"
        );
        let put = requests
            .iter()
            .find(|request| request.method == "PUT")
            .unwrap();
        assert_eq!(
            (put.path.as_str(), put.text()),
            ("/storage/f", r#"{"columns":["a"],"data":[[1]]}"#.to_owned())
        );
        let last = stub.bodies("file_stream").pop().unwrap();
        assert_eq!(last, json!({ "complete": true, "exitcode": 0 }));
        assert_eq!(
            fs::read_dir(folder.path().join("undelivered"))
                .unwrap()
                .count(),
            0
        );
    }
}
