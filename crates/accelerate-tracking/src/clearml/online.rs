//! A task on the service.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{NAME, TaskSettings, event};
use crate::delivery::{Delivery, FOLDER, Failure, Service, Timing, send_left_in_background};
use crate::environment::{Environment, Secret};
use crate::error::{Error, Result, io_error};
use crate::file_name::safe;
use crate::http::{Content, Http, basic, form};
use crate::percent::escaped_path;
use crate::tracker::RunContext;

/// The version of the interface.
const VERSION: &str = "v2.20";

/// What the tracker was told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Configuration(String),
    Events(Vec<Json>),
    Image {
        name: String,
        file: String,
        step: Option<i64>,
    },
    End,
}

/// The tracker's side.
#[derive(Debug)]
pub(super) struct Online {
    delivery: Delivery,
}

impl Online {
    pub(super) fn start(settings: TaskSettings, run: &RunContext) -> Result<Self> {
        Self::start_with(settings, run, Timing::default())
    }

    pub(super) fn start_with(
        settings: TaskSettings,
        run: &RunContext,
        timing: Timing,
    ) -> Result<Self> {
        let folder = run.files_folder();
        send_left_in_background(folder.clone(), run.environment.clone());
        let session = Session {
            settings,
            ..Session::default()
        };
        let service = ClearMlService::new(session, &run.environment)?;
        Ok(Self {
            delivery: Delivery::start(&folder.join(FOLDER), Box::new(service), timing)?,
        })
    }

    pub(super) fn configuration(&mut self, text: &str) -> Result<()> {
        self.record(&Record::Configuration(text.to_owned()))
    }

    pub(super) fn events(&mut self, events: &[Json]) -> Result<()> {
        self.record(&Record::Events(events.to_vec()))
    }

    pub(super) fn image(&mut self, name: &str, png: &[u8], step: Option<i64>) -> Result<()> {
        let record = Record::Image {
            name: name.to_owned(),
            file: self.delivery.file("png", png)?,
            step,
        };
        self.record(&record)
    }

    fn record(&mut self, record: &Record) -> Result<()> {
        self.delivery.record(&json!(record))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.record(&Record::End)?;
        self.delivery.finish()
    }
}

/// What has to be known to go on in another process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Session {
    settings: TaskSettings,
    /// The task on the service, once it is there.
    task: Option<String>,
    started: bool,
    /// How many records are sent.
    sent: u64,
}

/// Goes on with what an earlier run left.
pub(crate) fn connect(session: &Json, environment: &Environment) -> Result<Box<dyn Service>> {
    let session = serde_json::from_value(session.clone()).map_err(|source| Error::Damaged {
        path: NAME.into(),
        expected: "what a task of ClearML needs to go on",
        source,
    })?;
    Ok(Box::new(ClearMlService::new(session, environment)?))
}

#[derive(Debug)]
struct ClearMlService {
    /// Logs in.
    login: Http,
    /// Everything else, with the token of the login.
    http: Http,
    has_token: bool,
    api: String,
    files: String,
    session: Session,
}

impl ClearMlService {
    fn new(session: Session, environment: &Environment) -> Result<Self> {
        let access = environment.get("CLEARML_API_ACCESS_KEY");
        let secret = environment.get("CLEARML_API_SECRET_KEY");
        let (Some(access), Some(secret)) = (access, secret) else {
            return Err(Error::Unavailable {
                name: NAME,
                needs: "it needs `CLEARML_API_ACCESS_KEY` and `CLEARML_API_SECRET_KEY`".to_owned(),
            });
        };
        let host = |variable: &str, default: &str| {
            let host = environment.get(variable).unwrap_or(default);
            host.trim_end_matches('/').to_owned()
        };
        Ok(Self {
            login: Http::new(NAME).with_header("Authorization", basic(access, secret)),
            http: Http::new(NAME),
            has_token: false,
            api: host("CLEARML_API_HOST", "https://api.clear.ml"),
            files: host("CLEARML_FILES_HOST", "https://files.clear.ml"),
            session,
        })
    }

    /// Gets a token, once.
    fn log_in(&mut self) -> Result<(), Failure> {
        if self.has_token {
            return Ok(());
        }
        let answer = self
            .login
            .post(&format!("{}/auth.login", self.api), &json!({}))?
            .json();
        let token = text(&answer, "/data/token", "auth.login")?;
        let header = Secret::new(format!("Bearer {token}"));
        self.http.set_header("Authorization", header);
        self.has_token = true;
        Ok(())
    }

    fn call(&mut self, action: &str, content: &Content<'_>) -> Result<Json, Failure> {
        self.log_in()?;
        let url = format!("{}/{VERSION}/{action}", self.api);
        let answer = self.http.any_answer("POST", &url, content)?;
        // A token lives for some days.
        if answer.status == 401 {
            self.has_token = false;
        }
        if (200..300).contains(&answer.status) {
            return Ok(answer.json());
        }
        Err(self.http.judged("POST", &url, &answer))
    }

    fn post(&mut self, action: &str, content: &Json) -> Result<Json, Failure> {
        self.call(action, &Content::Json(content))
    }

    /// The task, which is made and started if it is not yet.
    fn task(&mut self) -> Result<String, Failure> {
        let task = match &self.session.task {
            Some(task) => task.clone(),
            None => {
                let project = self.project()?;
                let settings = &self.session.settings;
                let content = json!({
                    "name": settings.name, "type": "training", "project": project, "tags": settings.tags,
                });
                let made = self.post("tasks.create", &content)?;
                let task = text(&made, "/data/id", "tasks.create")?;
                self.session.task = Some(task.clone());
                task
            }
        };
        if !self.session.started {
            self.post("tasks.started", &json!({ "task": task, "force": true }))?;
            self.session.started = true;
        }
        Ok(task)
    }

    fn project(&mut self) -> Result<String, Failure> {
        let name = self.session.settings.project.clone();
        let content = json!({
            "name": format!("^{}$", pattern(&name)), "only_fields": ["id", "name"],
        });
        let found = self.post("projects.get_all", &content)?;
        if let Some(id) = found.pointer("/data/projects/0/id").and_then(Json::as_str) {
            return Ok(id.to_owned());
        }
        let content = json!({ "name": name, "description": "" });
        let made = self.post("projects.create", &content)?;
        text(&made, "/data/id", "projects.create")
    }

    fn send(&mut self, task: &str, record: Record, files: &Path) -> Result<(), Failure> {
        match record {
            Record::Configuration(text) => {
                let item = json!({ "name": "General", "value": text, "type": "dictionary" });
                let content = json!({
                    "task": task, "configuration": [item], "replace_configuration": "none",
                });
                self.post("tasks.edit_configuration", &content).map(drop)
            }
            Record::Events(events) => self.events(task, events),
            Record::Image { name, file, step } => {
                let event = self.image(task, &name, &files.join(&file), &file, step)?;
                self.events(task, vec![event])
            }
            Record::End => {
                let content = json!({ "task": task, "force": true });
                self.post("tasks.stopped", &content)?;
                self.post("tasks.completed", &content).map(drop)
            }
        }
    }

    fn events(&mut self, task: &str, events: Vec<Json>) -> Result<(), Failure> {
        let mut lines = String::new();
        for mut event in events {
            event["task"] = json!(task);
            lines.push_str(&event.to_string());
            lines.push('\n');
        }
        let content = Content::Bytes("application/json-lines", lines.as_bytes());
        self.call("events.add_batch", &content).map(drop)
    }

    fn image(
        &mut self,
        task: &str,
        name: &str,
        path: &Path,
        file: &str,
        step: Option<i64>,
    ) -> Result<Json, Failure> {
        // A file that is gone will not come back.
        let bytes =
            fs::read(path).map_err(|source| Failure::Refused(io_error("read", path, source)))?;
        self.log_in()?;
        let settings = &self.session.settings;
        let (title, series) = event::split(name);
        let key = format!(
            "{}/{}.{task}/metrics/{}/{}/{file}",
            safe(&settings.project),
            safe(&settings.name),
            safe(title),
            safe(series)
        );
        let (kind, body) = form("file", &key, "image/png", &bytes);
        let content = Content::Bytes(&kind, &body);
        self.http.checked("POST", &self.files, &content)?;
        let url = format!("{}/{}", self.files, escaped_path(&key));
        Ok(event::image(name, &url, &key, step))
    }
}

/// A text that an answer must hold.
fn text(answer: &Json, way: &str, action: &str) -> Result<String, Failure> {
    let found = answer.pointer(way).and_then(Json::as_str);
    found.map(str::to_owned).ok_or_else(|| {
        Failure::Later(Error::Service {
            service: NAME,
            action: action.to_owned(),
            message: format!("the answer holds no `{way}`: is this a server of ClearML?"),
        })
    })
}

/// A name as a pattern that matches it alone.
fn pattern(name: &str) -> String {
    let mut pattern = String::new();
    for c in name.chars() {
        if !c.is_alphanumeric() && !matches!(c, '_' | ' ') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

impl Service for ClearMlService {
    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Json {
        json!(self.session)
    }

    fn deliver(&mut self, records: &[Json], first: u64, files: &Path) -> Result<(), Failure> {
        let task = self.task()?;
        let mut events = Vec::new();
        let last = first + records.len() as u64;
        for (number, record) in (first..last).zip(records) {
            if number < self.session.sent {
                continue;
            }
            match serde_json::from_value(record.clone()) {
                // Neighbours go in one request.
                Ok(Record::Events(more)) => events.extend(more),
                Ok(other) => {
                    if !events.is_empty() {
                        self.events(&task, std::mem::take(&mut events))?;
                        self.session.sent = number;
                    }
                    self.send(&task, other, files)?;
                    self.session.sent = number + 1;
                }
                Err(error) => tracing::debug!("a record for `{NAME}` is not known: {error}"),
            }
        }
        if !events.is_empty() {
            self.events(&task, events)?;
        }
        self.session.sent = self.session.sent.max(last);
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<(), Failure> {
        match self.session.task.clone() {
            Some(task) => self.post("tasks.ping", &json!({ "task": task })).map(drop),
            None => Ok(()),
        }
    }
}
