//! `cargo xtask random-model`: a model of made-up weights, as public checkpoints are.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::release;
use crate::step;
use crate::workspace::Workspace;

/// What has to be built: it writes files by the library's own means, and needs no libtorch.
pub(crate) const BUILD: [&str; 2] = ["--example", "random_model"];

/// Which model, and where it goes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// The kind and size of the model.
    #[arg(long, value_enum)]
    shape: Shape,
    /// What the weights are kept in.
    #[arg(long, value_enum, default_value = "float32")]
    dtype: WeightType,
    /// The most bytes of weights in a file, such as `1GB`.
    #[arg(long, alias = "max_shard_size", default_value = SHARD_SIZE)]
    max_shard_size: String,
    /// The folder, which is made.
    #[arg(long)]
    into: PathBuf,
}

/// Seven files for the Llama in float32.
const SHARD_SIZE: &str = "500MB";

/// The shapes that the program knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    /// GPT-2 XL: 1.56 billion parameters.
    Gpt2Xl,
    /// A Llama of 0.78 billion parameters.
    #[value(name = "llama-0.8b")]
    Llama,
    /// A GPT-2 that is there in a moment.
    Gpt2Tiny,
    /// A Llama that is there in a moment.
    LlamaTiny,
}

/// What weights are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WeightType {
    /// 32 bits.
    Float32,
    /// 16 bits with the range of float32.
    Bfloat16,
}

impl Shape {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gpt2Xl => "gpt2-xl",
            Self::Llama => "llama-0.8b",
            Self::Gpt2Tiny => "gpt2-tiny",
            Self::LlamaTiny => "llama-tiny",
        }
    }
}

impl WeightType {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
        }
    }
}

/// Builds the program and writes the model.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    release::build(workspace, &BUILD)?;
    let program = program(workspace)?;
    let mut command = Command::new(program);
    command
        .args([
            options.shape.name(),
            options.dtype.name(),
            &options.max_shard_size,
        ])
        .arg(&options.into);
    step::run(&mut command)
}

/// The model in a folder below `folder`, written unless it is there; the program must be built.
pub(crate) fn ensure(
    workspace: &Workspace,
    folder: &Path,
    shape: Shape,
    kind: WeightType,
) -> Result<PathBuf, Failure> {
    let model = folder.join(format!("{}-{}", shape.name(), kind.name()));
    // Written last.
    if model.join("config.json").is_file() {
        return Ok(model);
    }
    let mut command = Command::new(program(workspace)?);
    command
        .args([shape.name(), kind.name(), SHARD_SIZE])
        .arg(&model);
    step::command(
        &format!("{} in {}, made up", shape.name(), kind.name()),
        &mut command,
    )?;
    Ok(model)
}

fn program(workspace: &Workspace) -> Result<PathBuf, Failure> {
    let target = workspace.metadata()?.target_dir;
    Ok(target.join("release/examples/random_model"))
}
