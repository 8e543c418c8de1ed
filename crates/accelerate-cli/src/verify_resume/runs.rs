//! The three runs of the program.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::Command,
};

use accelerate_formats::step_records::{self, StepRecord, StepRecordsError};
use accelerate_plan::{
    LEFT_EARLY,
    env::{LEAVE_AT_STEP, RECORD_STEPS},
};

use super::VerifyResumeError;
use crate::{child, launch::Exit, report};

/// What stands for a run's folder of checkpoints in the arguments of the program.
pub(super) const PROJECT_DIR: &str = "{project_dir}";
/// How much of what a failed run said is shown.
const SHOWN: u64 = 2000;

/// Which of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Uninterrupted,
    Interrupted,
    Resumed,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Uninterrupted => "uninterrupted",
            Self::Interrupted => "interrupted",
            Self::Resumed => "resumed",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a run recorded.
#[derive(Debug)]
pub(super) struct Run {
    /// The steps of each rank.
    pub(super) ranks: Vec<Vec<StepRecord>>,
}

impl Run {
    /// The steps of rank 0.
    pub(super) fn steps(&self) -> usize {
        self.ranks.first().map_or(0, Vec::len)
    }

    /// The epoch of the data at a step, counted from 1; the epoch counts from 0.
    pub(super) fn epoch_of(&self, step: usize) -> u64 {
        let steps = self.ranks.first().map_or(&[][..], Vec::as_slice);
        let record = step.checked_sub(1).and_then(|at| steps.get(at));
        let batch = record.and_then(|record| record.batches.last());
        batch.map_or(0, |batch| batch.epoch)
    }

    /// The step in the middle of the second epoch, or in the middle of all if there is no second.
    pub(super) fn middle_of_second_epoch(&self) -> usize {
        let all = 1..=self.steps();
        let second: Vec<usize> = all.filter(|&step| self.epoch_of(step) == 1).collect();
        let middle = second.get(second.len().saturating_sub(1) / 2).copied();
        middle.unwrap_or(self.steps() / 2)
    }
}

/// Where the runs keep what they make.
#[derive(Debug)]
pub(super) struct Workplace {
    launcher: PathBuf,
    folder: PathBuf,
    /// Goes at the end, if nothing is to be kept.
    _temporary: Option<tempfile::TempDir>,
    options: Vec<OsString>,
    command: Vec<String>,
}

impl Workplace {
    /// For runs of `command` with the options of `accelerate launch`.
    pub(super) fn new(
        options: &[OsString],
        command: &[OsString],
        keep: Option<&Path>,
    ) -> Result<Self, VerifyResumeError> {
        let text = |word: &OsString| {
            let text = word.to_str().map(str::to_owned);
            text.ok_or_else(|| VerifyResumeError::NotText { word: word.clone() })
        };
        let command = command.iter().map(text).collect::<Result<Vec<_>, _>>()?;
        if !command.iter().any(|word| word.contains(PROJECT_DIR)) {
            return Err(VerifyResumeError::NoProjectDir);
        }
        let launcher =
            env::current_exe().map_err(|source| VerifyResumeError::Launcher { source })?;
        let temporary = match keep {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(failed("write into", &env::temp_dir()))?),
        };
        let folder = match (keep, &temporary) {
            (Some(folder), _) => folder.to_owned(),
            (None, Some(temporary)) => temporary.path().to_owned(),
            (None, None) => env::temp_dir(),
        };
        fs::create_dir_all(&folder).map_err(failed("make", &folder))?;
        let folder = std::path::absolute(&folder).map_err(failed("find", &folder))?;
        Ok(Self {
            launcher,
            folder,
            _temporary: temporary,
            options: options.to_vec(),
            command,
        })
    }

    /// Runs the program to its end, or to where it leaves behind step `stop`.
    pub(super) fn run(
        &self,
        stage: Stage,
        stop: Option<usize>,
        processes: Option<NonZeroUsize>,
    ) -> Result<Run, VerifyResumeError> {
        let own = self.folder.join(stage.name());
        fs::create_dir_all(&own).map_err(failed("make", &own))?;
        let records = own.join("records");
        // What an earlier comparison kept is not of this one.
        clear(&records)?;
        let project = self.project(stage);
        if stage != Stage::Resumed {
            clear(&project)?;
        }
        fs::create_dir_all(&project).map_err(failed("make", &project))?;
        let arguments = self.arguments(&project, processes);
        let words = arguments.iter().map(OsString::as_os_str);
        let shown = report::command([OsStr::new("accelerate")].into_iter().chain(words));
        report::say(&format!("\n{stage}: {shown}\n"));
        let output = own.join("output.txt");
        let exit = self.start(&arguments, &records, stop, &output, &shown)?;
        match (exit, stop) {
            (Exit::Code(0), None) | (Exit::Code(LEFT_EARLY), Some(_)) => {}
            (Exit::Code(0), Some(stop)) => return Err(VerifyResumeError::DidNotLeave { stop }),
            (exit, _) => {
                return Err(VerifyResumeError::Failed {
                    stage,
                    command: shown,
                    exit,
                    last_lines: last_lines(&output).unwrap_or_default(),
                });
            }
        }
        let ranks = step_records::read(&records).map_err(|source| match source {
            StepRecordsError::None { .. } => VerifyResumeError::NoRecords { stage, source },
            source => VerifyResumeError::Records { stage, source },
        })?;
        match ranks.iter().all(Vec::is_empty) {
            true => Err(VerifyResumeError::NoRecords {
                stage,
                source: StepRecordsError::None { folder: records },
            }),
            false => Ok(Run { ranks }),
        }
    }

    /// The folder of checkpoints; the resumed run has that of the interrupted one.
    fn project(&self, stage: Stage) -> PathBuf {
        let of = match stage {
            Stage::Uninterrupted => Stage::Uninterrupted,
            Stage::Interrupted | Stage::Resumed => Stage::Interrupted,
        };
        self.folder.join(of.name()).join("project")
    }

    fn arguments(&self, project: &Path, processes: Option<NonZeroUsize>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["launch".into()];
        arguments.extend(self.options.iter().cloned());
        if let Some(processes) = processes {
            arguments.extend(["--num_processes".into(), processes.to_string().into()]);
        }
        arguments.push("--".into());
        let project = project.to_string_lossy();
        let words = self.command.iter();
        arguments.extend(words.map(|word| word.replace(PROJECT_DIR, &project).into()));
        arguments
    }

    fn start(
        &self,
        arguments: &[OsString],
        records: &Path,
        stop: Option<usize>,
        output: &Path,
        shown: &str,
    ) -> Result<Exit, VerifyResumeError> {
        let file = File::create(output).map_err(failed("write", output))?;
        let same = file.try_clone().map_err(failed("write", output))?;
        let mut command = Command::new(&self.launcher);
        command.args(arguments).stdout(file).stderr(same);
        command.env(RECORD_STEPS.name(), records);
        match stop {
            Some(stop) => command.env(LEAVE_AT_STEP.name(), stop.to_string()),
            None => command.env_remove(LEAVE_AT_STEP.name()),
        };
        child::run(command).map_err(|source| VerifyResumeError::Start {
            command: shown.to_owned(),
            source,
        })
    }
}

/// Removes a folder, if it is there.
fn clear(folder: &Path) -> Result<(), VerifyResumeError> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(failed("remove", folder)(source))
        }
        _ => Ok(()),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VerifyResumeError {
    let path = path.to_owned();
    move |source| VerifyResumeError::Folder {
        action,
        path,
        source,
    }
}

/// The end of a file, in whole lines.
fn last_lines(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(SHOWN)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let whole = match text.split_once('\n') {
        Some((_, rest)) if length > SHOWN => rest,
        _ => &text,
    };
    let lines = whole.lines().map(|line| format!("    {line}\n"));
    Ok(lines.collect())
}

#[cfg(test)]
mod tests {
    use accelerate_formats::step_records::BatchRecord;

    use super::*;

    fn run(epochs: &[u64]) -> Run {
        let record = |&epoch: &u64| StepRecord {
            batches: vec![BatchRecord {
                epoch,
                ..Default::default()
            }],
            ..Default::default()
        };
        Run {
            ranks: vec![epochs.iter().map(record).collect()],
        }
    }

    #[test]
    fn the_middle_of_the_second_epoch_is_found() {
        assert_eq!(run(&[0, 0, 1, 1, 1, 2]).middle_of_second_epoch(), 4);
        assert_eq!(run(&[0, 0, 0, 1, 1, 1, 1]).middle_of_second_epoch(), 5);
        assert_eq!(run(&[0, 0, 0, 0]).middle_of_second_epoch(), 2);
        assert_eq!(run(&[]).middle_of_second_epoch(), 0);
    }
}
