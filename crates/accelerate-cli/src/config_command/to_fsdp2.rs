//! `accelerate to-fsdp2`: a config file for the first version of FSDP becomes one for the second.

use std::{path::PathBuf, process::ExitCode};

use accelerate_plan::config::{ConfigError, RawFile, to_fsdp2};
use clap::Args;

use super::{
    error::{ConfigCommandError, Result},
    save::{self, Target},
    tell_saved,
};
use crate::report;

/// What was typed after `accelerate to-fsdp2`.
#[derive(Debug, Args)]
pub(crate) struct ToFsdp2Args {
    /// The file to convert
    #[arg(long = "config_file", value_name = "FILE", required = true)]
    config_file: PathBuf,

    /// Write over a file that exists: the one to convert, if no other is named
    #[arg(long)]
    overwrite: bool,

    /// Where to save the converted file
    #[arg(long = "output_file", value_name = "FILE")]
    output_file: Option<PathBuf>,
}

/// Converts the file. The input is changed only with `--overwrite`.
pub(crate) fn run(args: &ToFsdp2Args) -> Result<ExitCode> {
    let output = output(args)?;
    let target = Target::new(Some(&output))?;
    let converted = to_fsdp2(&RawFile::read(&args.config_file)?.to_value());
    for warning in &converted.warnings {
        report::note(&warning.to_string(), &[]);
    }
    target.write(&save::render_all(&converted.value, &output))?;
    tell_saved(&output);
    Ok(ExitCode::SUCCESS)
}

/// Where the result goes.
fn output(args: &ToFsdp2Args) -> Result<PathBuf> {
    if !args.config_file.exists() {
        let path = args.config_file.clone();
        return Err(ConfigError::Missing { path }.into());
    }
    match &args.output_file {
        Some(path) if path.exists() && !args.overwrite => {
            Err(ConfigCommandError::OutputExists { path: path.clone() })
        }
        Some(path) => Ok(path.clone()),
        None if args.overwrite => Ok(args.config_file.clone()),
        None => Err(ConfigCommandError::NoTarget),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    const OLD: &str = "\
distributed_type: FSDP
fsdp_config:
  fsdp_offload_params: true
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_use_orig_params: true
main_process_ip: null
";

    const NEW: &str = "\
distributed_type: FSDP
fsdp_config:
  fsdp_offload_params: true
  fsdp_reshard_after_forward: false
  fsdp_version: 2
main_process_ip: null
";

    fn args(input: &Path, output: Option<&Path>, overwrite: bool) -> ToFsdp2Args {
        ToFsdp2Args {
            config_file: input.to_owned(),
            output_file: output.map(Path::to_owned),
            overwrite,
        }
    }

    #[test]
    fn the_input_stays_unless_it_may_be_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (
            folder.path().join("old.yaml"),
            folder.path().join("new.yaml"),
        );
        fs::write(&old, OLD).unwrap();
        let error = run(&args(&old, None, false)).unwrap_err();
        assert!(matches!(error, ConfigCommandError::NoTarget), "{error}");
        run(&args(&old, Some(&new), false)).unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), NEW);
        assert_eq!(fs::read_to_string(&old).unwrap(), OLD);
        let error = run(&args(&old, Some(&new), false)).unwrap_err();
        assert!(
            matches!(error, ConfigCommandError::OutputExists { .. }),
            "{error}"
        );
        run(&args(&old, None, true)).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), NEW);
    }

    #[test]
    fn a_file_that_says_nothing_is_not_converted() {
        let folder = tempfile::tempdir().unwrap();
        let failure = |name: &str| {
            let file = folder.path().join(name);
            let error = run(&args(&file, None, true)).unwrap_err();
            error.to_string()
        };
        fs::write(folder.path().join("empty"), "").unwrap();
        assert!(failure("empty").ends_with("is empty"));
        assert!(failure("absent").ends_with("does not exist"));
    }
}
