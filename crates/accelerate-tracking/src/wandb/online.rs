//! A run on the service.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::NAME;
use super::history::{Row, json_text};
use super::run_settings::{RunSettings, api_key, base_url};
use crate::delivery::{Delivery, FOLDER, Failure, Service, Timing, send_left_in_background};
use crate::environment::Environment;
use crate::error::{Error, Result, io_error};
use crate::http::{Content, Http, basic};
use crate::percent::escaped;
use crate::tracker::RunContext;
use crate::value::{Value, Values};

/// How long rows are gathered before they are sent, as the service asks of its clients.
const GATHER: Duration = Duration::from_secs(10);

const UPSERT: &str = "mutation UpsertBucket($input: UpsertBucketInput!) { upsertBucket(input: $input) { \
     bucket { id name displayName project { name entity { name } } historyLineCount } inserted } }";
const CREATE_FILES: &str = "mutation CreateRunFiles($entity: String!, $project: String!, $run: String!, \
     $files: [String!]!) { createRunFiles(input: { entityName: $entity, projectName: $project, runName: $run, \
     files: $files }) { runID uploadHeaders files { name uploadUrl } } }";

/// A record: what the tracker was told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    /// Settings by name, each as JSON.
    Config(Json),
    /// The number of a row, and its values by name, each as text of JSON.
    History {
        line: u64,
        row: Vec<(String, String)>,
    },
    /// A file of the run, and where its bytes lie.
    File {
        path: String,
        file: String,
    },
    End,
}

/// The tracker's side.
#[derive(Debug)]
pub(super) struct Online {
    delivery: Delivery,
    lines: u64,
}

impl Online {
    pub(super) fn start(settings: &RunSettings, run: &RunContext) -> Result<Self> {
        let timing = Timing {
            gather: GATHER,
            ..Timing::default()
        };
        Self::start_with(settings, run, timing)
    }

    pub(super) fn start_with(
        settings: &RunSettings,
        run: &RunContext,
        timing: Timing,
    ) -> Result<Self> {
        let folder = run.files_folder();
        send_left_in_background(folder.clone(), run.environment.clone());
        let session = Session::new(settings, &run.environment);
        let service = WandbService::new(session, &run.environment)?;
        Ok(Self {
            delivery: Delivery::start(&folder.join(FOLDER), Box::new(service), timing)?,
            lines: 0,
        })
    }

    pub(super) fn config(&mut self, values: &Values) -> Result<()> {
        self.delivery.record(&json!(Record::Config(json!(values))))
    }

    pub(super) fn history(&mut self, row: &Row) -> Result<()> {
        let values = row.values.iter();
        let row = values.map(|(name, value)| (name.to_owned(), json_text(value)));
        let record = Record::History {
            line: self.lines,
            row: row.collect(),
        };
        self.lines += 1;
        self.delivery.record(&json!(record))
    }

    pub(super) fn file(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        let ending = path.rsplit_once('.').map_or("bin", |(_, ending)| ending);
        let record = Record::File {
            path: path.to_owned(),
            file: self.delivery.file(ending, bytes)?,
        };
        self.delivery.record(&json!(record))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.delivery.record(&json!(Record::End))?;
        self.delivery.finish()
    }
}

/// What has to be known to go on in another process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Session {
    base: String,
    run: String,
    project: String,
    entity: Option<String>,
    display_name: Option<String>,
    group: Option<String>,
    job_type: Option<String>,
    notes: Option<String>,
    tags: Vec<String>,
    host: String,
    program: String,
    config: serde_json::Map<String, Json>,
    /// The last value of each name, as text of JSON.
    summary: BTreeMap<String, String>,
    /// Whether the service has the run with these settings.
    is_made: bool,
}

impl Session {
    fn new(settings: &RunSettings, environment: &Environment) -> Self {
        Self {
            base: base_url(environment),
            run: settings.id.clone(),
            project: settings.project.clone(),
            entity: settings.entity.clone(),
            display_name: settings.name.clone(),
            group: settings.group.clone(),
            job_type: settings.job_type.clone(),
            notes: settings.notes.clone(),
            tags: settings.tags.clone(),
            host: settings.host.clone(),
            program: settings.program.clone(),
            ..Self::default()
        }
    }
}

/// Goes on with what an earlier run left.
pub(crate) fn connect(session: &Json, environment: &Environment) -> Result<Box<dyn Service>> {
    let mut session: Session =
        serde_json::from_value(session.clone()).map_err(|source| Error::Damaged {
            path: NAME.into(),
            expected: "what a run of Weights & Biases needs to go on",
            source,
        })?;
    // The key that is set now belongs to the address that is set now.
    session.base = base_url(environment);
    Ok(Box::new(WandbService::new(session, environment)?))
}

#[derive(Debug)]
struct WandbService {
    http: Http,
    /// For addresses that the service gives out: the key is not theirs.
    plain: Http,
    session: Session,
}

impl WandbService {
    fn new(session: Session, environment: &Environment) -> Result<Self> {
        let key = api_key(environment).ok_or_else(|| Error::Unavailable {
            name: NAME,
            needs: "it needs `WANDB_API_KEY` or a login in `~/.netrc`".to_owned(),
        })?;
        Ok(Self {
            http: Http::new(NAME).with_header("Authorization", basic("api", key.reveal())),
            plain: Http::new(NAME),
            session,
        })
    }

    fn graphql(&self, query: &str, variables: &Json) -> Result<Json, Failure> {
        let url = format!("{}/graphql", self.session.base);
        let content = json!({ "query": query, "variables": variables });
        let answer = self.http.post(&url, &content)?.json();
        if let Some(errors) = answer.get("errors").filter(|errors| !errors.is_null()) {
            return Err(Failure::Later(self.error("the query", &errors.to_string())));
        }
        Ok(answer.get("data").cloned().unwrap_or_default())
    }

    fn error(&self, action: &str, message: &str) -> Error {
        Error::Service {
            service: NAME,
            action: action.to_owned(),
            message: message.chars().take(300).collect(),
        }
    }

    /// Makes the run, or tells the service of changed settings.
    fn upsert(&mut self) -> Result<(), Failure> {
        let session = &self.session;
        let config: serde_json::Map<String, Json> = session
            .config
            .iter()
            .map(|(name, value)| (name.clone(), json!({ "value": value })))
            .chain([("_wandb".to_owned(), json!({ "value": {} }))])
            .collect();
        let input = json!({
            "name": session.run,
            "modelName": session.project,
            "entityName": session.entity,
            "groupName": session.group,
            "displayName": session.display_name,
            "notes": session.notes,
            "config": Json::Object(config).to_string(),
            "host": session.host,
            "jobProgram": session.program,
            "jobType": session.job_type,
            "state": "running",
            "tags": session.tags,
        });
        let data = self.graphql(UPSERT, &json!({ "input": input }))?;
        let bucket = data
            .pointer("/upsertBucket/bucket")
            .cloned()
            .unwrap_or_default();
        if bucket.is_null() {
            let error = self.error("making the run", "the answer holds no run");
            return Err(Failure::Later(error));
        }
        let text = |way: &str| {
            bucket
                .pointer(way)
                .and_then(Json::as_str)
                .map(str::to_owned)
        };
        if let Some(entity) = text("/project/entity/name") {
            self.session.entity = Some(entity);
        }
        if let Some(project) = text("/project/name") {
            self.session.project = project;
        }
        self.session.is_made = true;
        Ok(())
    }

    fn stream(&self, content: &str) -> Result<(), Failure> {
        let session = &self.session;
        let url = format!(
            "{}/files/{}/{}/{}/file_stream",
            session.base,
            escaped(session.entity.as_deref().unwrap_or_default()),
            escaped(&session.project),
            escaped(&session.run)
        );
        let content = Content::Bytes("application/json", content.as_bytes());
        self.http.checked("POST", &url, &content).map(drop)
    }

    /// Sends rows, with the last value of each name.
    fn history(&mut self, first: u64, rows: &[Vec<(String, String)>]) -> Result<(), Failure> {
        if rows.is_empty() {
            return Ok(());
        }
        for (name, value) in rows.iter().flatten() {
            self.session.summary.insert(name.clone(), value.clone());
        }
        let lines: Vec<Json> = rows.iter().map(|row| json!(object(row))).collect();
        let summary = object(&self.session.summary.clone().into_iter().collect::<Vec<_>>());
        let content = json!({
            "files": {
                "wandb-history.jsonl": { "offset": first, "content": lines },
                "wandb-summary.json": { "offset": 0, "content": [summary] },
            }
        });
        self.stream(&content.to_string())
    }

    fn file(&self, path: &str, file: &Path) -> Result<(), Failure> {
        // A file that is gone will not come back.
        let bytes =
            fs::read(file).map_err(|source| Failure::Refused(io_error("read", file, source)))?;
        let session = &self.session;
        let variables = json!({
            "entity": session.entity, "project": session.project, "run": session.run, "files": [path],
        });
        let data = self.graphql(CREATE_FILES, &variables)?;
        let url = data
            .pointer("/createRunFiles/files/0/uploadUrl")
            .and_then(Json::as_str);
        let Some(url) = url else {
            let error = self.error("sending a file", "the answer holds no `uploadUrl`");
            return Err(Failure::Later(error));
        };
        let content = Content::Bytes("application/octet-stream", &bytes);
        // The service may give out an address of its own without a host.
        if url.starts_with('/') {
            let url = format!("{}{url}", session.base);
            self.http.checked("PUT", &url, &content)?;
        } else {
            self.plain.checked("PUT", url, &content)?;
        }
        self.stream(&json!({ "uploaded": [path] }).to_string())
    }
}

/// An object of JSON from values that are text of it already.
fn object(row: &[(String, String)]) -> String {
    let pairs: Vec<String> = row
        .iter()
        .map(|(name, value)| format!("{}:{value}", json_text(&Value::from(name.as_str()))))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

impl Service for WandbService {
    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Json {
        json!(self.session)
    }

    fn deliver(&mut self, records: &[Json], _first: u64, files: &Path) -> Result<(), Failure> {
        let (mut first, mut rows) = (None, Vec::new());
        let mut others = Vec::new();
        for record in records {
            match serde_json::from_value(record.clone()) {
                Ok(Record::Config(Json::Object(config))) => {
                    self.session.config.extend(config);
                    self.session.is_made = false;
                }
                Ok(Record::History { line, row }) => {
                    first.get_or_insert(line);
                    rows.push(row);
                }
                Ok(other) => others.push(other),
                Err(error) => tracing::debug!("a record for `{NAME}` is not known: {error}"),
            }
        }
        if !self.session.is_made {
            self.upsert()?;
        }
        self.history(first.unwrap_or_default(), &rows)?;
        for record in others {
            match record {
                Record::File { path, file } => self.file(&path, &files.join(file))?,
                Record::End => self.stream(r#"{"complete":true,"exitcode":0}"#)?,
                Record::Config(_) | Record::History { .. } => {}
            }
        }
        Ok(())
    }

    fn keep_alive(&mut self) -> Result<(), Failure> {
        if !self.session.is_made {
            return Ok(());
        }
        self.stream("{}")
    }
}
