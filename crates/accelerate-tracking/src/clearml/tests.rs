use std::fs;

use serde_json::json;

use super::*;
use crate::stub::{Stub, quick};
use crate::{Colour, Environment, zip};

fn log_all(tracker: &mut ClearMl) {
    let settings = Values::new()
        .with("num_iterations", 12)
        .with("some_boolean", false);
    tracker.store_init_configuration(&settings).unwrap();
    let with_step = Values::new()
        .with("should_be_under_train", 1)
        .with("eval_value", 2)
        .with("test_value", 3.1)
        .with("train_value", 4.1)
        .with("text", "x");
    tracker.log(&with_step, Some(1), &Values::new()).unwrap();
    let single = Values::new()
        .with("single_value_1", 1.1)
        .with("single_value_2", 2.2);
    tracker.log(&single, None, &Values::new()).unwrap();
    let image = || Image::new(1, 1, Colour::Grey, vec![0]).unwrap();
    let images = ["a", "b"].map(|name| (name.to_owned(), vec![image()]));
    tracker
        .log_images(&images, Some(1), &Values::new())
        .unwrap();
}

#[test]
fn an_offline_task_is_a_folder_and_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::from_pairs([
        ("CLEARML_OFFLINE_MODE", "1"),
        ("CLEARML_CACHE_DIR", folder.path().to_str().unwrap()),
    ]);
    let mut tracker = ClearMl::new();
    tracker
        .start(&RunContext::new("my_project").environment(environment))
        .unwrap();
    log_all(&mut tracker);
    tracker.finish().unwrap();

    let root = folder.path().join("offline");
    let names: Vec<String> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let id = names.iter().find(|name| !name.ends_with(".zip")).unwrap();
    assert!(
        id.starts_with("offline-") && names.contains(&format!("{id}.zip")),
        "{names:?}"
    );
    let task: Json =
        serde_json::from_slice(&fs::read(root.join(id).join("task.json")).unwrap()).unwrap();
    assert_eq!(
        (&task["name"], &task["project_name"]),
        (&json!("my_project"), &json!("my_project"))
    );
    let general = &task["configuration"]["General"];
    assert_eq!(
        general["value"],
        "num_iterations = 12\nsome_boolean = false\n"
    );
    let text = fs::read_to_string(root.join(id).join("metrics.jsonl")).unwrap();
    let lines: Vec<Vec<Json>> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let events: Vec<&Json> = lines.iter().flatten().collect();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(
        (of("training_stats_scalar"), of("training_debug_image")),
        (6, 2)
    );
    assert!(events.iter().all(|event| event["task"] == json!(id)));
    let packed = zip::entries(&root.join(format!("{id}.zip")));
    let pictures = packed
        .iter()
        .filter(|(name, _)| name.starts_with("data/my_project/my_project.offline-"));
    assert_eq!(pictures.count(), 2);
}

#[test]
fn a_service_gets_the_task() {
    let stub = Stub::start(|request| {
        let data = match request.path.rsplit('/').next() {
            Some("auth.login") => json!({ "token": "t0k3n" }),
            Some("projects.get_all") => json!({ "projects": [] }),
            Some("projects.create") => json!({ "id": "p1" }),
            Some("tasks.create") => json!({ "id": "t1" }),
            _ => json!({}),
        };
        (
            200,
            json!({ "meta": { "result_code": 200 }, "data": data }).to_string(),
        )
    });
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::from_pairs([
        ("CLEARML_API_HOST", stub.url.as_str()),
        ("CLEARML_FILES_HOST", stub.url.as_str()),
        ("CLEARML_API_ACCESS_KEY", "access"),
        ("CLEARML_API_SECRET_KEY", "hidden"),
    ]);
    let run = RunContext::new("my.project")
        .logging_dir(folder.path())
        .environment(environment);
    let online = Online::start_with(TaskSettings::new(&run), &run, quick()).unwrap();
    let mut tracker = ClearMl {
        sink: Some(Sink::Service(online)),
        ..ClearMl::default()
    };
    log_all(&mut tracker);
    tracker.finish().unwrap();

    let requests = stub.requests();
    assert_eq!(requests[0].path, "/auth.login");
    assert!(requests[0].header("authorization").starts_with("Basic "));
    let others = requests
        .iter()
        .filter(|request| request.path.starts_with("/v2.20/"));
    assert!(
        others
            .clone()
            .all(|request| request.header("authorization") == "Bearer t0k3n")
    );
    assert_eq!(stub.bodies("projects.get_all")[0]["name"], r"^my\.project$");
    assert_eq!(stub.bodies("tasks.create")[0]["project"], "p1");
    assert_eq!(
        stub.bodies("tasks.started"),
        [json!({ "task": "t1", "force": true })]
    );
    let configuration = &stub.bodies("tasks.edit_configuration")[0];
    assert_eq!(configuration["configuration"][0]["name"], "General");
    let batches = requests
        .iter()
        .filter(|request| request.path.ends_with("events.add_batch"));
    assert!(
        batches
            .clone()
            .all(|request| request.header("content-type") == "application/json-lines")
    );
    let text: String = batches.map(crate::stub::Request::text).collect();
    let events: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.len(), 8);
    assert!(events.iter().all(|event| event["task"] == "t1"));
    let image = events
        .iter()
        .find(|event| event["type"] == "training_debug_image")
        .unwrap();
    let url = image["url"].as_str().unwrap();
    assert!(
        url.starts_with(&format!("{}/my.project/my.project.t1/metrics/", stub.url)),
        "{url}"
    );
    assert_eq!(
        requests
            .iter()
            .filter(|request| request.path == "/")
            .count(),
        2,
        "the bytes of two pictures"
    );
    assert_eq!(stub.bodies("tasks.completed").len(), 1);
}
