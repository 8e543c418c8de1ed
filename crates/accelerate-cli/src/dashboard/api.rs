//! What the page asks for, as JSON. Runs are named by what the listing gave out: no parameter ever
//! becomes a path.

mod log;

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use accelerate_tracking::Values;
use serde::Serialize;

use self::log::Log;
use super::{
    curves::{Drawn, Wanted},
    request::Request,
    response::{Response, Status},
};
use crate::runs::{RankSummary, Run, Runs, Standing, with_causes};

/// Answers questions about the runs of a folder.
#[derive(Debug)]
pub(super) struct Api {
    runs: Runs,
}

#[derive(Debug, Serialize)]
struct RunList {
    folder: String,
    problem: Option<String>,
    runs: Vec<RunEntry>,
}

#[derive(Debug, Serialize)]
struct RunEntry {
    id: String,
    name: String,
    project: String,
    state: &'static str,
    /// Seconds since 1970.
    started: Option<f64>,
    updated: Option<f64>,
    /// How long it has run, in seconds.
    elapsed: Option<f64>,
    step: Option<i64>,
    total_steps: Option<i64>,
    processes: usize,
    program: String,
    host: String,
    tags: Vec<String>,
    metrics: Vec<String>,
    settings: Values,
    problem: Option<String>,
    /// Another text when something has changed.
    version: String,
}

#[derive(Debug, Serialize)]
struct Curves {
    curves: Vec<Drawn>,
}

#[derive(Debug, Serialize)]
struct RankList {
    problem: Option<String>,
    ranks: Vec<RankEntry>,
}

/// Times in seconds, memory in bytes.
#[derive(Debug, Serialize)]
struct RankEntry {
    rank: usize,
    step: i64,
    step_time: f64,
    data_wait: f64,
    compute: f64,
    communication: f64,
    other: f64,
    samples_per_second: Option<f64>,
    tokens_per_second: Option<f64>,
    memory: Option<u64>,
    peak_memory: Option<u64>,
    gradient_norm: Option<f64>,
    loss_scale: Option<f64>,
    /// When it was heard of last, in seconds since 1970.
    updated: Option<f64>,
    straggler: bool,
    warning: Option<String>,
}

type Answer = Result<Response, Response>;

impl Api {
    /// Of the runs below `folder`.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            runs: Runs::new(folder),
        }
    }

    /// The runs themselves.
    pub(super) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// The answer to a request; `None` if there is nothing of that name.
    pub(super) fn respond(&self, request: &Request) -> Option<Response> {
        let answer = match request.path.as_str() {
            "/api/runs" => Ok(self.list()),
            "/api/curves" => self.curves(request),
            "/api/curves.csv" => self.csv(request),
            "/api/ranks" => self.ranks(request),
            "/api/log" => self.log(request),
            _ => return None,
        };
        Some(answer.unwrap_or_else(|problem| problem))
    }

    fn list(&self) -> Response {
        let runs = self.runs.all();
        Response::json(&RunList {
            folder: self.runs.root().display().to_string(),
            problem: self.runs.problem(),
            runs: runs.iter().map(|run| RunEntry::of(run)).collect(),
        })
    }

    fn curves(&self, request: &Request) -> Answer {
        let (wanted, runs) = self.wanted(request)?;
        let curves = wanted.read(&runs).map_err(|error| unreadable(&error))?;
        Ok(Response::json(&Curves { curves }))
    }

    fn csv(&self, request: &Request) -> Answer {
        let (wanted, runs) = self.wanted(request)?;
        let text = wanted.csv(&runs).map_err(|error| unreadable(&error))?;
        Ok(Response::file(
            "curves.csv",
            "text/csv; charset=utf-8",
            text,
        ))
    }

    fn ranks(&self, request: &Request) -> Answer {
        let run = self.run(request)?;
        let started = run.info().map(|info| info.started);
        let ranks = run.ranks();
        Ok(Response::json(&RankList {
            problem: ranks.problem().map(str::to_owned),
            ranks: ranks
                .summaries()
                .into_iter()
                .map(|rank| RankEntry::of(rank, started))
                .collect(),
        }))
    }

    fn log(&self, request: &Request) -> Answer {
        let run = self.run(request)?;
        let log = Log::of(&run).map_err(|error| unreadable(&error))?;
        Ok(Response::json(&log))
    }

    fn wanted(&self, request: &Request) -> Result<(Wanted, Vec<Arc<Run>>), Response> {
        let wanted = Wanted::of(request);
        let wanted = wanted.map_err(|text| Response::error(Status::BadRequest, &text))?;
        let mut seen = HashSet::new();
        let once = request.parameters("run").filter(|id| seen.insert(*id));
        let runs = once.map(|id| self.named(id));
        Ok((wanted, runs.collect::<Result<_, _>>()?))
    }

    fn run(&self, request: &Request) -> Result<Arc<Run>, Response> {
        match request.parameter("run") {
            Some(id) => self.named(id),
            None => Err(Response::error(Status::BadRequest, "`run` is missing")),
        }
    }

    fn named(&self, id: &str) -> Result<Arc<Run>, Response> {
        let missing = || Response::error(Status::NotFound, &format!("no run `{id}`"));
        self.runs.get(id).ok_or_else(missing)
    }
}

fn unreadable(error: &accelerate_tracking::Error) -> Response {
    Response::error(Status::Failed, &with_causes(error))
}

impl RunEntry {
    fn of(run: &Run) -> Self {
        let standing = run.standing();
        let name = run.folder().file_name().unwrap_or_default();
        let info = run.info().unwrap_or_default();
        Self {
            id: run.id().to_owned(),
            name: name.to_string_lossy().into_owned(),
            project: info.project,
            state: standing.word(),
            started: (standing != Standing::Unreadable).then_some(info.started),
            updated: run.written(),
            elapsed: run.elapsed(),
            step: run.step(),
            total_steps: run.total_steps(),
            processes: info.world_size,
            program: info.program,
            host: info.host,
            tags: info.tags,
            metrics: run.metrics(),
            settings: info.settings,
            problem: run.problem(),
            version: format!("{:x}", run.version()),
        }
    }
}

impl RankEntry {
    fn of(rank: RankSummary, started: Option<f64>) -> Self {
        let RankSummary {
            rank,
            newest,
            seconds,
            split,
            is_straggler,
        } = rank;
        Self {
            rank,
            step: newest.step,
            step_time: seconds,
            data_wait: split.data_wait,
            compute: split.compute,
            communication: split.communication,
            other: split.other,
            samples_per_second: newest.samples_per_second,
            tokens_per_second: newest.tokens_per_second,
            memory: newest.memory_bytes,
            peak_memory: newest.peak_memory_bytes,
            gradient_norm: newest.gradient_norm,
            loss_scale: newest.loss_scale,
            updated: started.map(|started| started + newest.t),
            straggler: is_straggler,
            warning: newest.warning,
        }
    }
}
