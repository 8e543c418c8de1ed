//! Runs on a server.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::settings::{RunSettings, Target};
use super::{Metric, NAME};
use crate::clock::unix_millis;
use crate::delivery::{Delivery, FOLDER, Failure, Service, Timing, send_left_in_background};
use crate::environment::{Environment, Secret};
use crate::error::{Error, Result, io_error};
use crate::http::{Content, Http, basic};
use crate::machine;
use crate::percent::{escaped, escaped_path};
use crate::tracker::RunContext;
use crate::value::Value;

/// What one request of `runs/log-batch` may carry.
const METRICS: usize = 1000;
const PARAMS: usize = 100;
/// The length of a request, with room for what surrounds the values.
const BYTES: usize = 900_000;

/// A record: what the tracker was told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Metrics(Vec<Json>),
    Params(Vec<Json>),
    Artifact { path: String, file: String },
    End { time: i64 },
}

pub(super) fn metrics_record(metrics: &[Metric]) -> Json {
    let metric = |metric: &Metric| {
        json!({
            "key": metric.key,
            "value": Value::Float(metric.value),
            "timestamp": metric.timestamp,
            "step": metric.step,
        })
    };
    json!(Record::Metrics(metrics.iter().map(metric).collect()))
}

pub(super) fn params_record(params: &[(String, String)]) -> Json {
    json!(Record::Params(pairs(params)))
}

pub(super) fn artifact_record(path: &str, file: &str) -> Json {
    json!(Record::Artifact {
        path: path.to_owned(),
        file: file.to_owned(),
    })
}

pub(super) fn end_record() -> Json {
    json!(Record::End {
        time: unix_millis(),
    })
}

fn pairs(pairs: &[(String, String)]) -> Vec<Json> {
    let pair = |(key, value): &(String, String)| json!({ "key": key, "value": value });
    pairs.iter().map(pair).collect()
}

/// What has to be known to go on in another process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Session {
    experiment: String,
    artifact_location: Option<String>,
    run_name: String,
    tags: Vec<(String, String)>,
    user: String,
    start_time: i64,
    /// Never written down: it may hold a password.
    #[serde(skip)]
    uri: String,
    /// The run on the server, once it is there.
    run_id: Option<String>,
    artifact_uri: Option<String>,
}

/// Begins to deliver a run to the server at `uri`.
pub(super) fn start(uri: &str, settings: &RunSettings, run: &RunContext) -> Result<Delivery> {
    start_with(uri, settings, run, Timing::default())
}

fn start_with(
    uri: &str,
    settings: &RunSettings,
    run: &RunContext,
    timing: Timing,
) -> Result<Delivery> {
    let session = Session {
        experiment: settings.experiment.clone(),
        artifact_location: settings.artifact_location.clone(),
        run_name: settings.run_name.clone(),
        tags: settings.tags.clone(),
        user: machine::user(),
        start_time: unix_millis(),
        uri: uri.to_owned(),
        run_id: settings.run_id.clone(),
        artifact_uri: None,
    };
    let folder = run.files_folder();
    send_left_in_background(folder.clone(), run.environment.clone());
    let service = MlFlowServer::new(session, &run.environment);
    Delivery::start(&folder.join(FOLDER), Box::new(service), timing)
}

/// Goes on with what an earlier run left.
pub(crate) fn connect(session: &Json, environment: &Environment) -> Result<Box<dyn Service>> {
    let mut session: Session =
        serde_json::from_value(session.clone()).map_err(|source| Error::Damaged {
            path: NAME.into(),
            expected: "what a run of MLflow needs to go on",
            source,
        })?;
    // The key that is set now belongs to the address that is set now: no other is asked.
    let Target::Server(uri) = Target::of(environment)? else {
        return Err(Error::Unavailable {
            name: NAME,
            needs: "it needs `MLFLOW_TRACKING_URI` with the address of a server".to_owned(),
        });
    };
    session.uri = uri;
    Ok(Box::new(MlFlowServer::new(session, environment)))
}

#[derive(Debug)]
struct MlFlowServer {
    http: Http,
    session: Session,
}

impl MlFlowServer {
    fn new(session: Session, environment: &Environment) -> Self {
        let verify = !environment.is_on("MLFLOW_TRACKING_INSECURE_TLS");
        let mut http = Http::with_verification(NAME, verify);
        let user = environment.get("MLFLOW_TRACKING_USERNAME");
        let password = environment.get("MLFLOW_TRACKING_PASSWORD");
        if let (Some(user), Some(password)) = (user, password) {
            http.set_header("Authorization", basic(user, password));
        } else if let Some(token) = environment.get("MLFLOW_TRACKING_TOKEN") {
            http.set_header("Authorization", Secret::new(format!("Bearer {token}")));
        }
        Self { http, session }
    }

    fn url(&self, call: &str) -> String {
        format!("{}/api/2.0/mlflow/{call}", self.session.uri)
    }

    fn post(&self, call: &str, content: &Json) -> Result<Json, Failure> {
        Ok(self.http.post(&self.url(call), content)?.json())
    }

    /// The run on the server, which is made if it is not there yet.
    fn run_id(&mut self) -> Result<String, Failure> {
        if let Some(run_id) = &self.session.run_id {
            return Ok(run_id.clone());
        }
        let experiment = self.experiment()?;
        let made = self.post(
            "runs/create",
            &json!({
                "experiment_id": experiment,
                "user_id": self.session.user,
                "run_name": self.session.run_name,
                "start_time": self.session.start_time,
                "tags": pairs(&self.session.tags),
            }),
        )?;
        let info = made.pointer("/run/info").cloned().unwrap_or_default();
        let run_id = self.text(&info, "run_id", "runs/create")?;
        self.session.artifact_uri = info["artifact_uri"].as_str().map(str::to_owned);
        self.session.run_id = Some(run_id.clone());
        Ok(run_id)
    }

    fn experiment(&self) -> Result<String, Failure> {
        let name = escaped(&self.session.experiment);
        let url = self.url(&format!("experiments/get-by-name?experiment_name={name}"));
        let answer = self.http.any_answer("GET", &url, &Content::Nothing)?;
        let json = answer.json();
        if (200..300).contains(&answer.status) {
            let found = json.get("experiment").cloned().unwrap_or_default();
            return self.text(&found, "experiment_id", "experiments/get-by-name");
        }
        if json["error_code"] != "RESOURCE_DOES_NOT_EXIST" {
            return Err(self.http.judged("GET", &url, &answer));
        }
        let mut content = json!({ "name": self.session.experiment });
        if let Some(place) = &self.session.artifact_location {
            content["artifact_location"] = json!(place);
        }
        let made = self.post("experiments/create", &content)?;
        self.text(&made, "experiment_id", "experiments/create")
    }

    /// A text that an answer must hold.
    fn text(&self, answer: &Json, field: &str, call: &str) -> Result<String, Failure> {
        let text = answer.get(field).and_then(Json::as_str);
        text.map(str::to_owned).ok_or_else(|| {
            Failure::Later(Error::Service {
                service: NAME,
                action: call.to_owned(),
                message: format!("the answer holds no `{field}`: is this a server of MLflow?"),
            })
        })
    }

    /// Sends values in as few requests as the server's limits allow.
    fn log_batches(
        &self,
        run_id: &str,
        kind: &str,
        items: &[Json],
        most: usize,
    ) -> Result<(), Failure> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for item in items {
            let length = item.to_string().len() + 1;
            if batch.len() == most || (bytes + length > BYTES && !batch.is_empty()) {
                self.log_batch(run_id, kind, &std::mem::take(&mut batch))?;
                bytes = 0;
            }
            bytes += length;
            batch.push(item.clone());
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.log_batch(run_id, kind, &batch)
    }

    fn log_batch(&self, run_id: &str, kind: &str, items: &[Json]) -> Result<(), Failure> {
        self.post("runs/log-batch", &json!({ "run_id": run_id, kind: items }))
            .map(drop)
    }

    fn artifact(&mut self, run_id: &str, path: &str, file: &Path) -> Result<(), Failure> {
        // A file that is gone will not come back.
        let bytes =
            fs::read(file).map_err(|source| Failure::Refused(io_error("read", file, source)))?;
        let root = self.artifact_root(run_id)?;
        if let Some(folder) = root
            .strip_prefix("file://")
            .or(root.strip_prefix('/').and(Some(root.as_str())))
        {
            let target = Path::new(folder).join(path);
            let written = target
                .parent()
                .map_or(Ok(()), fs::create_dir_all)
                .and_then(|()| fs::write(&target, &bytes));
            return written.map_err(|source| Failure::Later(io_error("write", &target, source)));
        }
        let Some(place) = root.strip_prefix("mlflow-artifacts:") else {
            return Err(Failure::Refused(Error::Service {
                service: NAME,
                action: format!("keeping the artifact `{path}`"),
                message: format!(
                    "artifacts go to `{}`, which is not written here; start the server with `--serve-artifacts`",
                    root.split(':').next().unwrap_or_default()
                ),
            }));
        };
        // `mlflow-artifacts:/1/abc/artifacts`, or with a host between two slashes and the path.
        let place = match place.strip_prefix("//") {
            Some(rest) => rest.split_once('/').map_or("", |(_, path)| path),
            None => place.trim_start_matches('/'),
        };
        let url = format!(
            "{}/api/2.0/mlflow-artifacts/artifacts/{}/{}",
            self.session.uri,
            escaped_path(place),
            escaped_path(path)
        );
        let content = Content::Bytes("application/octet-stream", &bytes);
        self.http.checked("PUT", &url, &content).map(drop)
    }

    /// Where the run's artifacts go; asked of the server for a run that was there before.
    fn artifact_root(&mut self, run_id: &str) -> Result<String, Failure> {
        if let Some(root) = &self.session.artifact_uri {
            return Ok(root.clone());
        }
        let url = self.url(&format!("runs/get?run_id={}", escaped(run_id)));
        let found = self.http.get(&url)?.json();
        let info = found.pointer("/run/info").cloned().unwrap_or_default();
        let root = self.text(&info, "artifact_uri", "runs/get")?;
        self.session.artifact_uri = Some(root.clone());
        Ok(root)
    }
}

impl Service for MlFlowServer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Json {
        json!(self.session)
    }

    fn deliver(&mut self, records: &[Json], _first: u64, files: &Path) -> Result<(), Failure> {
        let run_id = self.run_id()?;
        let (mut metrics, mut params) = (Vec::new(), Vec::new());
        let mut others = Vec::new();
        for record in records {
            match serde_json::from_value(record.clone()) {
                Ok(Record::Metrics(items)) => metrics.extend(items),
                Ok(Record::Params(items)) => params.extend(items),
                Ok(other) => others.push(other),
                Err(error) => tracing::debug!("a record for `{NAME}` is not known: {error}"),
            }
        }
        self.log_batches(&run_id, "params", &params, PARAMS)?;
        self.log_batches(&run_id, "metrics", &metrics, METRICS)?;
        for record in others {
            match record {
                Record::Artifact { path, file } => {
                    self.artifact(&run_id, &path, &files.join(file))?;
                }
                Record::End { time } => {
                    let content =
                        json!({ "run_id": run_id, "status": "FINISHED", "end_time": time });
                    self.post("runs/update", &content)?;
                }
                Record::Metrics(_) | Record::Params(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "rest_tests.rs"]
mod tests;
