//! One visible step of a task: a line when it starts, its time when it ends.

use std::process::Command;
use std::time::Instant;

use crate::failure::Failure;

/// Runs `work` between a line that names it and one with its time.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    println!("==> {name}");
    let start = Instant::now();
    let result = work();
    let end = if result.is_ok() { "done" } else { "FAILED" };
    println!(
        "    {end} in {:.1} s: {name}",
        start.elapsed().as_secs_f64()
    );
    result
}

/// Runs a command that writes to the terminal, as one step.
pub(crate) fn command(name: &str, command: &mut Command) -> Result<(), Failure> {
    step(name, || run(command))
}

/// Runs a command that writes to the terminal and demands that it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let line = line_of(command);
    let status = command
        .status()
        .map_err(|error| Failure::because(format!("cannot run `{line}`"), error))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("`{line}` failed: {status}")))
}

/// Runs a command and gives back its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let line = line_of(command);
    let output = command
        .output()
        .map_err(|error| Failure::because(format!("cannot run `{line}`"), error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let message = format!("`{line}` failed: {}", output.status);
    Err(if text.is_empty() {
        Failure::new(message)
    } else {
        Failure::because(message, text)
    })
}

/// The command as one would type it, cut to one line of the terminal's size.
fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    let first = line.lines().next().unwrap_or_default();
    match first.char_indices().nth(160) {
        Some((end, _)) => format!("{}...", &first[..end]),
        None if first.len() < line.len() => format!("{first}..."),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_named_with_its_own_words() {
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo told >&2; exit 3"]);
        let text = output(&mut failing).unwrap_err().render();
        assert!(
            text.contains("`sh -c echo told >&2; exit 3` failed"),
            "{text}"
        );
        assert!(text.contains("caused by: told"), "{text}");
    }

    #[test]
    fn long_and_many_lined_commands_are_cut() {
        let mut script = Command::new("python3");
        script.args(["-c", "import os\nprint()"]);
        assert_eq!(line_of(&script), "python3 -c import os...");
        let mut long = Command::new("x");
        long.arg("é".repeat(500));
        assert!(line_of(&long).ends_with("é..."));
    }
}
