use serde_json::{Value as Json, json};

use super::*;
use crate::stub::{Stub, quick};
use crate::{Colour, zip};

fn log_all(tracker: &mut Comet) {
    let settings = Values::new()
        .with("num_iterations", 12)
        .with("some_boolean", false)
        .with("n", Values::from([("x", "v")]));
    tracker.store_init_configuration(&settings).unwrap();
    let values = Values::new()
        .with("total_loss", 0.1)
        .with("iteration", 1)
        .with("my_text", "some_value");
    tracker.log(&values, Some(0), &Values::new()).unwrap();
}

#[test]
fn an_archive_has_the_messages_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let environment =
        Environment::from_pairs([("COMET_OFFLINE_DIRECTORY", folder.path().to_str().unwrap())]);
    let mut tracker = Comet::new();
    let run = RunContext::new("my_project").options(Values::from([("tags", "a")]));
    tracker.start(&run.environment(environment)).unwrap();
    log_all(&mut tracker);
    tracker.finish().unwrap();

    let archives: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(archives.len(), 1, "{archives:?}");
    assert_eq!(archives[0].file_name().unwrap().len(), 32 + 4);
    let entries = zip::entries(&archives[0]);
    let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["experiment.json", "messages.json"]);
    let experiment: Json = serde_json::from_slice(&entries[0].1).unwrap();
    assert_eq!(
        (&experiment["project_name"], &experiment["tags"]),
        (&json!("my_project"), &json!(["a"]))
    );
    assert!(experiment["stop_time"].as_i64() >= experiment["start_time"].as_i64());
    let text = String::from_utf8(entries[1].1.clone()).unwrap();
    let messages: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = messages
        .iter()
        .map(|message| message["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "log_other",
            "log_other",
            "parameter_msg",
            "parameter_msg",
            "parameter_msg",
            "parameter_msg",
            "metric_msg",
            "metric_msg",
            "log_other"
        ]
    );
    for (number, message) in (1..).zip(&messages) {
        assert_eq!(message["payload"]["message_id"], json!(number));
    }
    let param = |at: usize| &messages[at]["payload"]["param"];
    assert_eq!(
        (&param(3)["paramName"], &param(3)["paramValue"]),
        (&json!("some_boolean"), &json!(false))
    );
    assert_eq!(param(4)["paramName"], "n|x");
    assert_eq!(
        (&param(5)["paramName"], &param(5)["paramValue"]),
        (&json!("curr_step"), &json!(0))
    );
    let metric = &messages[6]["payload"]["metric"];
    assert_eq!(
        (
            &metric["metricName"],
            &metric["metricValue"],
            &metric["step"]
        ),
        (&json!("total_loss"), &json!(0.1), &json!(0))
    );
    assert_eq!(messages[8]["payload"]["key"], "my_text");
}

#[test]
fn a_service_gets_each_value_once() {
    let stub = Stub::start(|request| match request.path.rsplit('/').next() {
        Some("create") => (200, r#"{"experimentKey":"k1","link":"l"}"#.to_owned()),
        _ => (200, "{}".to_owned()),
    });
    let folder = tempfile::tempdir().unwrap();
    let override_url = format!("{}/clientlib/", stub.url);
    let environment = Environment::from_pairs([
        ("COMET_API_KEY", "the-key"),
        ("COMET_URL_OVERRIDE", override_url.as_str()),
        ("COMET_WORKSPACE", "w"),
    ]);
    let run = RunContext::new("my_project")
        .logging_dir(folder.path())
        .environment(environment);
    let settings = ExperimentSettings::new(&run);
    let mut tracker = Comet {
        sink: Some(Sink::Service(
            Online::start_with(&settings, &run, quick()).unwrap(),
        )),
        ..Comet::default()
    };
    log_all(&mut tracker);
    let image = Image::new(1, 1, Colour::Grey, vec![0]).unwrap();
    tracker
        .log_images(&[("pic".to_owned(), vec![image])], Some(2), &Values::new())
        .unwrap();
    tracker.finish().unwrap();

    let requests = stub.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.header("authorization") == "the-key")
    );
    assert!(
        requests
            .iter()
            .all(|request| request.path.starts_with("/api/rest/v2/write/experiment/"))
    );
    assert_eq!(
        stub.bodies("/create"),
        [json!({ "projectName": "my_project", "workspaceName": "w" })]
    );
    let metrics = stub.bodies("/metric");
    assert_eq!(metrics.len(), 2);
    assert_eq!(
        (&metrics[0]["experimentKey"], &metrics[0]["metricValue"]),
        (&json!("k1"), &json!(0.1))
    );
    assert_eq!(stub.bodies("/parameter").len(), 3);
    let others = stub.bodies("/log-other");
    assert_eq!(others[0]["key"], "hasNestedParams");
    assert!(others[1]["key"] == "my_text" && others[1].get("step").is_none());
    let upload = requests
        .iter()
        .find(|request| request.path.contains("upload-asset"))
        .unwrap();
    assert!(
        upload
            .path
            .ends_with("?experimentKey=k1&fileName=pic.png&type=image&step=2&overwrite=false")
    );
    assert!(
        upload
            .header("content-type")
            .starts_with("multipart/form-data; boundary=")
    );
    assert!(
        upload
            .text()
            .contains("name=\"file\"; filename=\"pic.png\"")
    );
    assert!(stub.bodies("set-start-end-time")[0]["endTimeMillis"].is_i64());
}

#[test]
fn a_key_is_needed_for_the_service() {
    let error = connect(&json!({}), &Environment::default()).err().unwrap();
    assert!(error.to_string().contains("COMET_API_KEY"), "{error}");
}
