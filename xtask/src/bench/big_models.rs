//! A Llama of 0.78 billion parameters in seven files: how soon it has its first token, half of it on
//! disk, and in stages on two processes.

mod floor;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::big_models::PROGRAM;
use crate::big_models::run::{Job, Measured, drop_from_cache, weight_files};
use crate::failure::Failure;
use crate::python_env::PythonEnv;
use crate::random_model::{self, Shape, WeightType};
use crate::release;
use crate::setup;
use crate::step::{self, step};
use crate::workspace::Workspace;

use floor::Floor;
use table::Round;

/// How often each side runs where nobody says.
pub(super) const ROUNDS: u32 = 3;

/// The original's side.
const PEER_SCRIPT: &str = "tests/parity/bench_big_models.py";

/// The example that runs models in stages.
const PIPELINE: &str = "pipelined_inference";

/// What it is told: 16 rows of 128 tokens, four times, in parts of two rows.
const PIPELINE_ARGUMENTS: [&str; 9] = [
    "--made-up-rows",
    "16",
    "--made-up-tokens",
    "128",
    "--rounds",
    "4",
    "--num-chunks",
    "8",
    "--json",
];

/// How many tokens are made where their pace is measured.
const NEW_TOKENS: u32 = 16;

/// Under a limit every token costs the disk.
const NEW_TOKENS_LIMITED: u32 = 6;

const THREADS: u32 = 2;

/// Room for the half in memory and for the original itself, and not for the other half in the cache.
const LIMIT_BYTES: u64 = 2_600_000_000;

/// Runs both sides in turns, and gives the table in Markdown.
pub(super) fn measure(workspace: &Workspace, rounds: u32) -> Result<String, Failure> {
    setup::run(workspace)?;
    let env = PythonEnv::set_up(workspace)?;
    let [flag, writer] = random_model::BUILD;
    let targets = [
        "--bin",
        "accelerate",
        "--bin",
        PROGRAM,
        "--bin",
        PIPELINE,
        flag,
        writer,
    ];
    release::build(workspace, &targets)?;
    let target = workspace.metadata()?.target_dir;
    let folder = target.join("bench-peers/big-models");
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::because(format!("cannot make `{}`", folder.display()), error))?;
    let model = random_model::ensure(workspace, &folder, Shape::Llama, WeightType::Float32)?;
    let map = half_on_disk(&model, &folder)?;
    let bench = Bench {
        release: target.join("release"),
        script: workspace.path(PEER_SCRIPT),
        python: env.python(),
        files: weight_files(&model)?,
        model,
        map,
        offload: folder.join("offload"),
    };
    let mut all = Vec::new();
    for round in 0..rounds {
        all.push(bench.round(round)?);
    }
    Ok(table::table(&all))
}

struct Bench {
    release: PathBuf,
    script: PathBuf,
    python: PathBuf,
    model: PathBuf,
    files: Vec<PathBuf>,
    /// A device map with half the layers on disk.
    map: PathBuf,
    /// Where the original writes what is on disk.
    offload: PathBuf,
}

/// Whose program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Original,
}

/// Where the weights of a run are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Memory,
    HalfOnDisk,
}

/// Whether what is on disk may stay in the system's cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// It is there.
    Warm,
    /// It is not there at the start, and may come.
    Cold,
    /// It has no room.
    Limited,
}

impl Bench {
    /// Every run once; which side goes first alternates.
    fn round(&self, round: u32) -> Result<Round, Failure> {
        let floor = step("bandwidths of disk and memory", || {
            Floor::measure(&self.files, &self.map)
        })?;
        let pair = |place, cache| -> Result<(Measured, Measured), Failure> {
            let ours = || self.run(round, Side::Ours, place, cache, true);
            let original = || self.run(round, Side::Original, place, cache, true);
            if round.is_multiple_of(2) {
                let ours = ours()?;
                return Ok((ours, original()?));
            }
            let original = original()?;
            Ok((ours()?, original))
        };
        let alone = |cache| self.run(round, Side::Ours, Place::HalfOnDisk, cache, false);
        let plain = pair(Place::Memory, Cache::Warm)?;
        let half = pair(Place::HalfOnDisk, Cache::Warm)?;
        let without_prefetch = alone(Cache::Warm)?;
        let cold = self.run(round, Side::Ours, Place::Memory, Cache::Cold, true)?;
        let limited = pair(Place::HalfOnDisk, Cache::Limited)?;
        let limited_without_prefetch = alone(Cache::Limited)?;
        // The next runs find the files in the cache again.
        let rows_per_second = |processes| self.pipeline(round, processes);
        Ok(Round {
            floor,
            plain,
            cold,
            half,
            without_prefetch,
            limited,
            limited_without_prefetch,
            one_rank: rows_per_second(1)?,
            two_ranks: rows_per_second(2)?,
        })
    }

    fn run(
        &self,
        round: u32,
        side: Side,
        place: Place,
        cache: Cache,
        prefetch: bool,
    ) -> Result<Measured, Failure> {
        let job = self.job(side, place, cache, prefetch);
        let whose = match side {
            Side::Ours => "ours",
            Side::Original => "the original",
        };
        let what = match place {
            Place::Memory => "all in memory",
            Place::HalfOnDisk => "half on disk",
        };
        let how = match cache {
            Cache::Warm => "",
            Cache::Cold => ", cold",
            Cache::Limited => ", limited",
        };
        let ahead = if prefetch { "" } else { ", no prefetch" };
        let name = format!("round {}, {what}{how}{ahead}, {whose}", round + 1);
        step(&name, || {
            self.remove_offload()?;
            match cache {
                Cache::Warm => floor::read_all(&self.files).map(drop)?,
                Cache::Cold | Cache::Limited => drop_from_cache(&self.files)?,
            }
            job.run((cache == Cache::Limited).then_some(LIMIT_BYTES))
        })
    }

    fn job(&self, side: Side, place: Place, cache: Cache, prefetch: bool) -> Job {
        let (program, first) = match side {
            Side::Ours => (self.release.join(PROGRAM), Vec::new()),
            Side::Original => (self.python.clone(), vec![self.script.clone()]),
        };
        let mut arguments = vec!["--device_map".to_owned()];
        match place {
            Place::Memory => arguments.push("auto".to_owned()),
            Place::HalfOnDisk => arguments.extend([
                self.map.display().to_string(),
                "--offload_folder".to_owned(),
                self.offload.display().to_string(),
            ]),
        }
        if !prefetch {
            arguments.push("--no_prefetch".to_owned());
        }
        let new_tokens = match (place, cache) {
            (Place::Memory, _) => 1,
            (Place::HalfOnDisk, Cache::Limited) => NEW_TOKENS_LIMITED,
            (Place::HalfOnDisk, _) => NEW_TOKENS,
        };
        Job {
            program,
            first,
            model: self.model.clone(),
            new_tokens,
            arguments,
            threads: THREADS,
        }
    }

    /// Rows per second in stages on so many processes, one thread each.
    fn pipeline(&self, round: u32, processes: usize) -> Result<f64, Failure> {
        let program = self.release.join(PIPELINE);
        let mut command = match processes {
            1 => Command::new(program),
            _ => {
                let mut launch = Command::new(self.release.join("accelerate"));
                launch
                    .args([
                        "launch",
                        "--cpu",
                        "--quiet",
                        "--no_prefix",
                        "--num_processes",
                    ])
                    .arg(processes.to_string())
                    .arg(program);
                launch
            }
        };
        command
            .arg("--model")
            .arg(&self.model)
            .args(PIPELINE_ARGUMENTS)
            .env("OMP_NUM_THREADS", "1");
        step(
            &format!("round {}, in stages on {processes} processes", round + 1),
            || {
                let text = step::output(&mut command)?;
                let line = text.lines().rev().find(|line| line.starts_with('{'));
                let said: Option<Value> = line.and_then(|line| serde_json::from_str(line).ok());
                let found = said.and_then(|said| said["rows_per_second"].as_f64());
                found.ok_or_else(|| {
                    Failure::because(format!("`{PIPELINE}` did not say `rows_per_second`"), text)
                })
            },
        )
    }

    fn remove_offload(&self) -> Result<(), Failure> {
        match fs::remove_dir_all(&self.offload) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::because(
                format!("cannot remove `{}`", self.offload.display()),
                error,
            )),
            _ => Ok(()),
        }
    }
}

/// A file with a device map that puts the second half of the layers on disk.
fn half_on_disk(model: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    let path = model.join("config.json");
    let failed = |error| {
        Failure::because(
            format!("cannot read or write in `{}`", folder.display()),
            error,
        )
    };
    let text = fs::read_to_string(&path).map_err(failed)?;
    let layers = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|config| config["num_hidden_layers"].as_u64())
        .ok_or_else(|| Failure::new(format!("`{}` lacks `num_hidden_layers`", path.display())))?;
    let map = folder.join("half-on-disk.json");
    fs::write(&map, map_of(layers).to_string()).map_err(failed)?;
    Ok(map)
}

fn map_of(layers: u64) -> Value {
    let mut map = Map::new();
    for name in [
        "model.embed_tokens",
        "model.norm",
        "model.rotary_emb",
        "lm_head",
    ] {
        map.insert(name.to_owned(), json!("cpu"));
    }
    for layer in 0..layers {
        let place = if layer < layers / 2 { "cpu" } else { "disk" };
        map.insert(format!("model.layers.{layer}"), json!(place));
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_layers_are_on_disk() {
        let map = map_of(5);
        let on_disk = map
            .as_object()
            .unwrap()
            .values()
            .filter(|place| **place == "disk");
        assert_eq!(on_disk.count(), 3);
        assert_eq!(map["model.layers.1"], "cpu");
        assert_eq!(map["model.layers.2"], "disk");
        assert_eq!(map["lm_head"], "cpu");
    }
}
