//! An experiment on the service.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{ExperimentSettings, NAME, Record, base_url};
use crate::clock::unix_millis;
use crate::delivery::{Delivery, FOLDER, Failure, Service, Timing, send_left_in_background};
use crate::environment::{Environment, Secret};
use crate::error::{Error, Result, io_error};
use crate::http::{Content, Http, form};
use crate::percent::escaped;
use crate::tracker::RunContext;

/// The tracker's side.
#[derive(Debug)]
pub(super) struct Online {
    delivery: Delivery,
}

impl Online {
    pub(super) fn start(settings: &ExperimentSettings, run: &RunContext) -> Result<Self> {
        Self::start_with(settings, run, Timing::default())
    }

    pub(super) fn start_with(
        settings: &ExperimentSettings,
        run: &RunContext,
        timing: Timing,
    ) -> Result<Self> {
        let folder = run.files_folder();
        send_left_in_background(folder.clone(), run.environment.clone());
        let session = Session {
            project: settings.project.clone(),
            workspace: settings.workspace.clone(),
            name: settings.name.clone(),
            started: unix_millis(),
            ..Session::default()
        };
        let service = CometService::new(session, &run.environment)?;
        Ok(Self {
            delivery: Delivery::start(&folder.join(FOLDER), Box::new(service), timing)?,
        })
    }

    pub(super) fn record(&mut self, record: &Record) -> Result<()> {
        self.delivery.record(&json!(record))
    }

    pub(super) fn file(&mut self, ending: &str, bytes: &[u8]) -> Result<String> {
        self.delivery.file(ending, bytes)
    }

    pub(super) fn finish(self) -> Result<()> {
        self.delivery.finish()
    }
}

/// What has to be known to go on in another process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Session {
    project: String,
    workspace: Option<String>,
    name: Option<String>,
    started: i64,
    /// The experiment on the service, once it is there.
    key: Option<String>,
    /// How many records are sent: each is a request of its own.
    sent: u64,
}

/// Goes on with what an earlier run left.
pub(crate) fn connect(session: &Json, environment: &Environment) -> Result<Box<dyn Service>> {
    let session = serde_json::from_value(session.clone()).map_err(|source| Error::Damaged {
        path: NAME.into(),
        expected: "what an experiment of Comet needs to go on",
        source,
    })?;
    Ok(Box::new(CometService::new(session, environment)?))
}

#[derive(Debug)]
struct CometService {
    http: Http,
    base: String,
    session: Session,
}

impl CometService {
    fn new(session: Session, environment: &Environment) -> Result<Self> {
        let key = environment
            .get("COMET_API_KEY")
            .ok_or_else(|| Error::Unavailable {
                name: NAME,
                needs: "it needs `COMET_API_KEY`".to_owned(),
            })?;
        Ok(Self {
            http: Http::new(NAME).with_header("Authorization", Secret::new(key)),
            base: base_url(environment),
            session,
        })
    }

    fn post(&self, call: &str, content: &Json) -> Result<Json, Failure> {
        let url = format!("{}/write/experiment/{call}", self.base);
        Ok(self.http.post(&url, content)?.json())
    }

    /// The experiment, which is made if it is not there yet.
    fn key(&mut self) -> Result<String, Failure> {
        if let Some(key) = &self.session.key {
            return Ok(key.clone());
        }
        let mut content = json!({ "projectName": self.session.project });
        if let Some(workspace) = &self.session.workspace {
            content["workspaceName"] = json!(workspace);
        }
        if let Some(name) = &self.session.name {
            content["experimentName"] = json!(name);
        }
        let made = self.post("create", &content)?;
        let key = made.get("experimentKey").and_then(Json::as_str);
        let key = key.map(str::to_owned).ok_or_else(|| {
            Failure::Later(Error::Service {
                service: NAME,
                action: "making the experiment".to_owned(),
                message: "the answer holds no `experimentKey`".to_owned(),
            })
        })?;
        self.session.key = Some(key.clone());
        Ok(key)
    }

    fn send(&self, key: &str, record: &Record, files: &Path) -> Result<(), Failure> {
        let (call, content) = match record {
            Record::Metric {
                name,
                value,
                step,
                time,
            } => (
                "metric",
                json!({
                    "experimentKey": key, "metricName": name, "metricValue": value, "step": step,
                    "timestamp": time,
                }),
            ),
            Record::Parameter { name, value, time } => (
                "parameter",
                json!({
                    "experimentKey": key, "parameterName": name, "parameterValue": value,
                    "timestamp": time,
                }),
            ),
            Record::Other {
                key: name,
                value,
                time,
            } => (
                "log-other",
                json!({ "experimentKey": key, "key": name, "value": value, "timestamp": time }),
            ),
            Record::Tags(tags) => ("tags", json!({ "experimentKey": key, "addedTags": tags })),
            Record::End { time } => (
                "set-start-end-time",
                json!({
                    "experimentKey": key, "startTimeMillis": self.session.started, "endTimeMillis": time,
                }),
            ),
            Record::Asset {
                name,
                kind,
                file,
                step,
            } => return self.asset(key, name, kind, &files.join(file), *step),
        };
        self.post(call, &content).map(drop)
    }

    fn asset(
        &self,
        key: &str,
        name: &str,
        kind: &str,
        file: &Path,
        step: Option<i64>,
    ) -> Result<(), Failure> {
        // A file that is gone will not come back.
        let bytes =
            fs::read(file).map_err(|source| Failure::Refused(io_error("read", file, source)))?;
        let step = step.map_or_else(String::new, |step| format!("&step={step}"));
        let url = format!(
            "{}/write/experiment/upload-asset?experimentKey={}&fileName={}&type={}{step}&overwrite=false",
            self.base,
            escaped(key),
            escaped(name),
            escaped(kind)
        );
        let (kind, body) = form("file", name, "application/octet-stream", &bytes);
        let content = Content::Bytes(&kind, &body);
        self.http.checked("POST", &url, &content).map(drop)
    }
}

impl Service for CometService {
    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Json {
        json!(self.session)
    }

    fn deliver(&mut self, records: &[Json], first: u64, files: &Path) -> Result<(), Failure> {
        let key = self.key()?;
        for (number, record) in (first..).zip(records) {
            if number < self.session.sent {
                continue;
            }
            match serde_json::from_value(record.clone()) {
                Ok(record) => self.send(&key, &record, files)?,
                Err(error) => tracing::debug!("a record for `{NAME}` is not known: {error}"),
            }
            self.session.sent = number + 1;
        }
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<(), Failure> {
        let Some(key) = &self.session.key else {
            return Ok(());
        };
        let url = format!(
            "{}/write/experiment/set-status?experimentKey={}",
            self.base,
            escaped(key)
        );
        self.http.get(&url).map(drop)
    }
}
