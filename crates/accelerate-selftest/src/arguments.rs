//! The command line.

use std::time::Duration;

use clap::Parser;

use crate::breakage::Breakage;

/// Tries out everything the library does between processes
#[derive(Debug, Parser)]
#[command(name = "accelerate-selftest", version)]
pub(crate) struct Arguments {
    /// Seconds that each stage may take
    #[arg(
        long = "stage_timeout",
        alias = "stage-timeout",
        value_name = "SECONDS",
        default_value = "60",
        value_parser = seconds
    )]
    pub(crate) stage_timeout: Duration,

    /// Run only these stages
    #[arg(long, value_name = "STAGE,...", value_delimiter = ',')]
    pub(crate) stages: Option<Vec<String>>,

    /// Print one JSON object per stage instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Make a rank stop, fail, err or exit at the start of a stage, or of a step of it
    #[arg(
        long = "break_stage",
        alias = "break-stage",
        hide = true,
        value_name = "STAGE[/STEP]:RANK:stop|fail|error|exit"
    )]
    pub(crate) break_stage: Option<Breakage>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a number of seconds above 0, found `{text}`");
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn clap_finds_no_fault_in_the_definition() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_limit_is_a_time_above_zero() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for wrong in ["0", "-1", "nan", "soon", "inf"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
