//! A folder with a tiny model, a few snippets, and the programs that work on them.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use accelerate_formats::{Dtype, Metadata, TensorData, Weights, write_file};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::Program;

/// How many snippets there are.
pub(crate) const SNIPPETS: usize = 60;
/// How many of them are held out: an odd number, so that batches and ranks do not come out even.
pub(crate) const HELD_OUT: usize = 7;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/parity/fixtures");

/// The folder of one test; its name is in the arguments of everything that the test starts.
pub(crate) struct Workplace(TempDir);

impl Workplace {
    /// A folder with `model` and `snippets.txt`.
    pub(crate) fn new() -> Self {
        let place = Self(
            tempfile::Builder::new()
                .prefix("nlp-test-")
                .tempdir()
                .unwrap(),
        );
        let model = place.model();
        fs::create_dir(&model).unwrap();
        fs::copy(format!("{FIXTURES}/bert_tiny.safetensors"), place.weights()).unwrap();
        let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tokenizer.json");
        fs::copy(tokenizer, model.join("tokenizer.json")).unwrap();
        let recorded = fs::read(format!("{FIXTURES}/bert_finetune.json")).unwrap();
        let recorded: Value = serde_json::from_slice(&recorded).unwrap();
        fs::write(model.join("config.json"), recorded["model"].to_string()).unwrap();
        fs::write(place.snippets(), snippets()).unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn model(&self) -> PathBuf {
        self.path("model")
    }

    pub(crate) fn weights(&self) -> PathBuf {
        self.path("model/model.safetensors")
    }

    pub(crate) fn snippets(&self) -> PathBuf {
        self.path("snippets.txt")
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.path("output")
    }

    /// What is in a folder, sorted; empty where there is none.
    pub(crate) fn files(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }

    /// `nlp` by itself, on the model and the snippets of this folder.
    pub(crate) fn nlp(&self) -> Program {
        Program::new(nlp(), &self.path("logs")).args(self.job())
    }

    /// `nlp` on some processes, with further `flags` of the launcher.
    pub(crate) fn launch_nlp(&self, processes: usize, flags: &[&str]) -> Program {
        self.launch(processes, flags).args([nlp()]).args(self.job())
    }

    /// `by_feature` on some processes, without the launcher on one; a job on the model and
    /// the snippets of this folder, if there is one to be named by `flags`.
    pub(crate) fn by_feature(&self, processes: usize, feature: &str, flags: &[&str]) -> Program {
        let executable = env!("CARGO_BIN_EXE_by_feature");
        let program = match processes {
            1 => Program::new(executable, &self.path("logs")),
            _ => self
                .launch(processes, &["--quiet", "--no_prefix"])
                .args([executable]),
        };
        program.args([feature]).args(flags)
    }

    /// The model and the snippets of this folder, and numbers that fit them.
    pub(crate) fn small_job(&self) -> Vec<String> {
        let paths = self.job().into_iter();
        paths
            .map(|path| path.into_os_string().into_string().unwrap())
            .collect()
    }

    /// The launcher for some processes, still without a program.
    pub(crate) fn launch(&self, processes: usize, flags: &[&str]) -> Program {
        Program::new(launcher(), &self.path("logs"))
            .args(["launch", "--cpu", "--num_processes", &processes.to_string()])
            .args(flags)
    }

    /// The comparison of a resumed program with an uninterrupted one, still without its words.
    pub(crate) fn verify_resume(&self) -> Program {
        Program::new(launcher(), &self.path("logs")).args(["verify-resume"])
    }

    /// Changes the configuration of the model.
    pub(crate) fn set_config(&self, key: &str, value: Value) {
        let path = self.path("model/config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config[key] = value;
        fs::write(path, config.to_string()).unwrap();
    }

    /// Writes the weights again with every tensor as `change` leaves it.
    pub(crate) fn change_weights(&self, change: impl Fn(&mut OwnedTensor)) {
        let mut tensors: Vec<OwnedTensor> = {
            let weights = Weights::open(self.weights()).unwrap();
            weights
                .tensors()
                .map(|tensor| OwnedTensor {
                    name: tensor.name().to_owned(),
                    dtype: tensor.dtype(),
                    shape: tensor.shape().to_vec(),
                    bytes: tensor.bytes().unwrap().into_owned(),
                })
                .collect()
        };
        tensors.iter_mut().for_each(change);
        let data = tensors.iter().map(|tensor| {
            TensorData::new(&tensor.name, tensor.dtype, &tensor.shape, &tensor.bytes)
        });
        write_file(self.weights(), data, &Metadata::pytorch()).unwrap();
    }

    /// Arguments of a job on the model and the snippets, with numbers that fit them.
    pub(crate) fn job(&self) -> Vec<PathBuf> {
        let numbers = [
            "--held-out",
            "7",
            "--batch-size",
            "4",
            "--max-length",
            "16",
            "--lr",
            "0.001",
        ];
        let mut arguments = vec![
            "--model".into(),
            self.model(),
            "--data".into(),
            self.snippets(),
        ];
        arguments.extend(numbers.map(PathBuf::from));
        arguments
    }
}

/// A tensor that can be changed.
pub(crate) struct OwnedTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// Lines of id, rating and text; what is good is said with other words than what is bad.
fn snippets() -> String {
    let good = [
        "a good and clever film",
        "this movie is lovely",
        "great story with a warm script",
    ];
    let bad = [
        "a bad and boring film",
        "this movie is a mess",
        "weak plot and the script is dull",
    ];
    let mut lines = String::new();
    for number in 0..SNIPPETS {
        let (texts, rating) = if number % 2 == 0 {
            (good, 1.5)
        } else {
            (bad, -2.25)
        };
        let text = texts[number / 2 % 3];
        lines += &format!(
            "{number}\t{rating}\t{}{text} .\n",
            "so very ".repeat(number % 4)
        );
    }
    lines
}

/// The built example.
pub(crate) fn nlp() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_nlp"))
}

/// The launcher beside the examples; it is built where a run of single packages left it out.
fn launcher() -> &'static Path {
    static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();
    LAUNCHER.get_or_init(|| {
        let folder = nlp().parent().unwrap();
        let launcher = folder.join(format!("accelerate{EXE_SUFFIX}"));
        if !launcher.exists() {
            let profile = match folder.file_name().unwrap().to_str().unwrap() {
                "debug" => "dev",
                name => name,
            };
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args([
                "build",
                "--package",
                "accelerate-cli",
                "--profile",
                profile,
                "--target-dir",
            ]);
            let status = cargo.arg(folder.parent().unwrap()).status().unwrap();
            assert!(status.success(), "the launcher cannot be built: {status}");
        }
        launcher
    })
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
