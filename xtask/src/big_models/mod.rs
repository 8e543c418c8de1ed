//! `cargo xtask big-models`: models larger than the memory that they get, against themselves with all
//! the memory they want.

pub(crate) mod run;

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::memory_limit::MemoryLimit;
use crate::random_model::{self, Shape, WeightType};
use crate::release;
use crate::setup;
use crate::step::step;
use crate::workspace::Workspace;

use run::{Job, Measured, drop_from_cache, weight_files};

/// The example that generates.
pub(crate) const PROGRAM: &str = "big_model";

/// How models are run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Where models are written, and kept for the next time [default: `big-models` in cargo's target folder].
    #[arg(long)]
    into: Option<PathBuf>,
    /// How many megabytes a run gets, what is cached of its files included.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..))]
    limit_megabytes: u64,
    /// How many tokens are made.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    new_tokens: u32,
    /// Small models, to see whether everything works.
    #[arg(long)]
    tiny: bool,
}

/// A model, and how it is run.
struct Case {
    shape: Shape,
    kind: WeightType,
    /// How much of the model may stay in memory: the rest of the limit is for the program, one block,
    /// and the next one on its way.
    kept: &'static str,
}

const CASES: [Case; 2] = [
    Case {
        shape: Shape::Gpt2Xl,
        kind: WeightType::Float32,
        kept: "cpu=500MB",
    },
    Case {
        shape: Shape::Llama,
        kind: WeightType::Bfloat16,
        kept: "cpu=400MB",
    },
];

const TINY: [Case; 2] = [
    Case {
        shape: Shape::Gpt2Tiny,
        kind: WeightType::Float32,
        kept: "cpu=600KB",
    },
    Case {
        shape: Shape::LlamaTiny,
        kind: WeightType::Bfloat16,
        kept: "cpu=400KB",
    },
];

/// Makes the models, runs each with and without a limit, and compares what they wrote.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let limit_bytes = options.limit_megabytes * 1_000_000;
    // Before anything large is made.
    drop(MemoryLimit::new(limit_bytes)?);
    setup::run(workspace)?;
    let [flag, writer] = random_model::BUILD;
    release::build(workspace, &["--bin", PROGRAM, flag, writer])?;
    let target = workspace.metadata()?.target_dir;
    let folder = options
        .into
        .clone()
        .unwrap_or_else(|| target.join("big-models"));
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::because(format!("cannot make `{}`", folder.display()), error))?;
    let program = target.join("release").join(PROGRAM);
    let mut lines = Vec::new();
    for case in if options.tiny { &TINY } else { &CASES } {
        let model = random_model::ensure(workspace, &folder, case.shape, case.kind)?;
        let bench = Bench {
            program: &program,
            model: &model,
            offload: folder.join("offload"),
            case,
            options,
        };
        lines.extend(bench.compare(limit_bytes)?);
    }
    println!(
        "\n| model | memory | loading (s) | first token (s) | tokens/s | own memory (MiB) | with cached files (MiB) |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for line in lines {
        println!("{line}");
    }
    Ok(())
}

struct Bench<'a> {
    program: &'a Path,
    model: &'a Path,
    offload: PathBuf,
    case: &'a Case,
    options: &'a Options,
}

impl Bench<'_> {
    /// Runs the model in both ways; the same tokens have to come out.
    fn compare(&self, limit_bytes: u64) -> Result<[String; 2], Failure> {
        let name = self.case.shape.name();
        let files = weight_files(self.model)?;
        let whole = step(&format!("{name}, all the memory it wants"), || {
            self.job(&["--device_map", "auto"]).run(None)
        })?;
        let offload = self.offload.display().to_string();
        let limited = step(&format!("{name}, limited"), || {
            // Pages that are cached already would count for nobody.
            drop_from_cache(&files)?;
            self.job(&[
                "--device_map",
                "auto",
                "--max_memory",
                self.case.kept,
                "--offload_folder",
                &offload,
            ])
            .run(Some(limit_bytes))
        })?;
        if whole.tokens != limited.tokens {
            return Err(Failure::because(
                format!("`{name}` writes something else under a limit"),
                format!("without: {:?}, with: {:?}", whole.tokens, limited.tokens),
            ));
        }
        let limit = format!("{:.2} GB", limit_bytes as f64 / 1e9);
        Ok([
            line(name, "unlimited", &whole),
            line(name, &limit, &limited),
        ])
    }

    fn job(&self, arguments: &[&str]) -> Job {
        let mut arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        arguments.extend(["--dtype".to_owned(), self.case.kind.name().to_owned()]);
        Job {
            program: self.program.to_owned(),
            first: Vec::new(),
            model: self.model.to_owned(),
            new_tokens: self.options.new_tokens,
            arguments,
            threads: 2,
        }
    }
}

fn line(name: &str, memory: &str, run: &Measured) -> String {
    let mib = |bytes: f64| format!("{:.0}", bytes / 1_048_576.0);
    format!(
        "| {name} | {memory} | {:.2} | {:.2} | {:.3} | {} | {} |",
        run.load_seconds,
        run.first_token_seconds,
        run.tokens_per_second,
        mib(run.peak_private_bytes),
        run.peak_limited_bytes.map(mib).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_seconds_and_mebibytes() {
        let run = Measured {
            load_seconds: 0.25,
            first_token_seconds: 1.5,
            tokens_per_second: 0.5,
            peak_private_bytes: 2.0 * 1_048_576.0,
            ..Measured::default()
        };
        assert_eq!(
            line("x", "unlimited", &run),
            "| x | unlimited | 0.25 | 1.50 | 0.500 | 2 |  |"
        );
    }
}
