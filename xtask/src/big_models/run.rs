//! One run of the example `big_model`, and what it says about itself.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::failure::Failure;
use crate::memory_limit::MemoryLimit;
use crate::private_memory::watch;

/// The tokens that every run goes on from.
pub(crate) const PROMPT: &str = "1,2,3,4,5,6,7,8";

/// A program that generates, and how.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// The program, and what comes before the arguments that all take.
    pub(crate) program: PathBuf,
    pub(crate) first: Vec<PathBuf>,
    pub(crate) model: PathBuf,
    pub(crate) new_tokens: u32,
    /// Further arguments, such as `--device_map auto`.
    pub(crate) arguments: Vec<String>,
    pub(crate) threads: u32,
}

/// What a run says, and what was seen of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Measured {
    /// From the start of the program to its end.
    pub(crate) wall_seconds: f64,
    pub(crate) load_seconds: f64,
    pub(crate) first_token_seconds: f64,
    pub(crate) tokens_per_second: f64,
    /// The most memory of its own that the program was seen with: what is mapped from files is not
    /// counted.
    pub(crate) peak_private_bytes: f64,
    /// The most of its group, what is cached of files included, where there was a limit.
    pub(crate) peak_limited_bytes: Option<f64>,
    pub(crate) tokens: Vec<i64>,
}

impl Job {
    /// Runs the program, within a limit if there is one.
    pub(crate) fn run(&self, limit_bytes: Option<u64>) -> Result<Measured, Failure> {
        let limit = limit_bytes.map(MemoryLimit::new).transpose()?;
        let mut command = match &limit {
            Some(limit) => limit.command(&self.program),
            None => Command::new(&self.program),
        };
        command
            .args(&self.first)
            .arg("--model")
            .arg(&self.model)
            .args(["--prompt", PROMPT, "--json", "--max_new_tokens"])
            .arg(self.new_tokens.to_string())
            .args(&self.arguments)
            .env("OMP_NUM_THREADS", self.threads.to_string())
            .env("HF_HUB_OFFLINE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let start = Instant::now();
        let (text, seen) = spawn_and_watch(&mut command).map_err(|error| {
            let failure = Failure::because(format!("`{}` failed", self.program.display()), error);
            match limit.as_ref().map_or(0, MemoryLimit::kills) {
                0 => failure,
                kills => failure.hint(format!(
                    "the limit of {:.2} GB was too little: the system killed {kills} of its processes",
                    limit_bytes.unwrap_or_default() as f64 / 1e9
                )),
            }
        })?;
        let wall_seconds = start.elapsed().as_secs_f64();
        let said = Measured::parse(&text)?;
        Ok(Measured {
            wall_seconds,
            peak_private_bytes: said.peak_private_bytes.max(seen),
            peak_limited_bytes: limit.as_ref().and_then(MemoryLimit::peak_bytes),
            ..said
        })
    }
}

impl Measured {
    /// Reads the line of JSON in what a program printed.
    fn parse(text: &str) -> Result<Self, Failure> {
        let lacks = |what: &str| {
            Failure::because(format!("the program did not say `{what}`"), text.to_owned())
                .hint("with `--json` it prints one line: `load_seconds`, `first_token_seconds`, `tokens_per_second`, `peak_private_bytes`, `tokens`")
        };
        let line = text.lines().rev().find(|line| line.starts_with('{'));
        let value: Value = line
            .and_then(|line| serde_json::from_str(line).ok())
            .ok_or_else(|| lacks("a line of JSON"))?;
        let number = |name: &str| value[name].as_f64().ok_or_else(|| lacks(name));
        let tokens: Option<Vec<i64>> = value["tokens"]
            .as_array()
            .and_then(|list| list.iter().map(Value::as_i64).collect());
        Ok(Self {
            load_seconds: number("load_seconds")?,
            first_token_seconds: number("first_token_seconds")?,
            // A single token has no pace.
            tokens_per_second: match value.get("tokens_per_second") {
                Some(Value::Null) => 0.0,
                _ => number("tokens_per_second")?,
            },
            peak_private_bytes: number("peak_private_bytes")?,
            tokens: tokens
                .filter(|tokens| !tokens.is_empty())
                .ok_or_else(|| lacks("tokens"))?,
            ..Self::default()
        })
    }
}

/// What a program printed, and the most memory of its own that it was seen with.
fn spawn_and_watch(command: &mut Command) -> io::Result<(String, f64)> {
    let mut child = command.spawn()?;
    // It prints one short line, which fits into the pipe.
    let peak = watch(&mut child)?;
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut text)?;
    }
    Ok((text, peak))
}

/// The weight files of a model.
pub(crate) fn weight_files(model: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::because(format!("cannot look into `{}`", model.display()), error);
    let mut files = Vec::new();
    for entry in fs::read_dir(model).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Takes files out of the system's cache, so that the next program reads them from the disk and
/// pays for their pages itself.
pub(crate) fn drop_from_cache(files: &[PathBuf]) -> Result<(), Failure> {
    for file in files {
        let mut input = std::ffi::OsString::from("if=");
        input.push(file);
        crate::step::run(Command::new("dd").arg(input).args([
            "iflag=nocache",
            "count=0",
            "status=none",
        ]))
        .map_err(|failure| {
            Failure::because("cannot take files out of the cache", failure)
                .hint("`dd` of the GNU core utilities does that")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_read_from_its_last_line_of_json() {
        let line = r#"{"load_seconds": 0.5, "first_token_seconds": 1.5, "tokens_per_second": 2, "peak_private_bytes": 1024, "tokens": [4, 5]}"#;
        let said = Measured::parse(&format!("words\n{line}\n")).unwrap();
        assert_eq!(said.tokens, [4, 5]);
        assert_eq!((said.load_seconds, said.first_token_seconds), (0.5, 1.5));
        let text = Measured::parse("words").unwrap_err().render();
        assert!(text.contains("a line of JSON"), "{text}");
        let text = Measured::parse("{\"load_seconds\": 1}")
            .unwrap_err()
            .render();
        assert!(text.contains("`first_token_seconds`"), "{text}");
    }

    #[test]
    fn a_program_is_watched_to_its_end() {
        let mut talks = Command::new("sh");
        talks.args(["-c", "echo said"]).stdout(Stdio::piped());
        let (text, _) = spawn_and_watch(&mut talks).unwrap();
        assert_eq!(text, "said\n");
        let mut fails = Command::new("sh");
        fails.args(["-c", "exit 3"]).stdout(Stdio::piped());
        assert!(spawn_and_watch(&mut fails).is_err());
    }
}
