//! Where a project's checkpoints are, and how many of them stay.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use accelerate_formats::manifest::{CheckpointFault, Manifest, Verify};

use super::folder::{io, partial_path, remove_if_there};
use super::manifest::SkippedCheckpoint;
use crate::{Error, Result};

/// The folder of automatically named checkpoints in a project's.
const CHECKPOINTS: &str = "checkpoints";
/// How their names begin.
const PREFIX: &str = "checkpoint_";
/// Names the newest whole one.
const LATEST: &str = "latest";

/// Where a project keeps what it makes.
///
/// # Source
/// `accelerate.utils.ProjectConfiguration`. Differs: checkpoints are counted by the whole ones,
/// and older ones go only after the new one is whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectConfiguration {
    /// The project's folder.
    pub project_dir: Option<PathBuf>,
    /// Where trackers write; the project's folder if there is none.
    pub logging_dir: Option<PathBuf>,
    /// Names checkpoints `checkpoints/checkpoint_0`, `.._1` and so on in the project's folder.
    pub automatic_checkpoint_naming: bool,
    /// How many automatically named checkpoints stay.
    pub total_limit: Option<NonZeroUsize>,
    /// The number of the next checkpoint.
    pub iteration: u64,
    /// Whether each machine has a folder of its own, and its first rank writes there what all ranks
    /// have alike: for machines without a common file system. A job goes on from such folders with
    /// the same ranks on the same machines.
    pub save_on_each_node: bool,
    /// How closely a checkpoint is looked at before it is loaded.
    pub verify: Verify,
    /// Whether state that cannot be restored, such as that of a random generator, is an error
    /// and not a warning.
    pub strict: bool,
}

impl ProjectConfiguration {
    /// A project in this folder, with automatically named checkpoints.
    #[must_use]
    pub fn automatic(project_dir: impl Into<PathBuf>) -> Self {
        Self {
            project_dir: Some(project_dir.into()),
            automatic_checkpoint_naming: true,
            ..Self::default()
        }
    }

    /// Keeps at most `limit` automatically named checkpoints.
    #[must_use]
    pub fn total_limit(mut self, limit: NonZeroUsize) -> Self {
        self.total_limit = Some(limit);
        self
    }
}

/// A project while it runs.
#[derive(Debug, Clone)]
pub(crate) struct Project {
    pub(crate) configuration: ProjectConfiguration,
    iteration: Cell<u64>,
}

impl Project {
    pub(crate) fn new(configuration: ProjectConfiguration) -> Self {
        Self {
            iteration: Cell::new(configuration.iteration),
            configuration,
        }
    }

    /// The number of the next checkpoint.
    pub(crate) fn iteration(&self) -> u64 {
        self.iteration.get()
    }

    pub(crate) fn set_iteration(&self, iteration: u64) {
        self.iteration.set(iteration);
    }

    /// The folder of automatically named checkpoints, where there are such.
    fn automatic(&self) -> Option<PathBuf> {
        let configuration = &self.configuration;
        let folder = configuration.project_dir.as_deref();
        folder
            .filter(|_| configuration.automatic_checkpoint_naming)
            .map(|folder| folder.join(CHECKPOINTS))
    }

    /// Where the next checkpoint goes.
    ///
    /// # Errors
    /// [`Error::NoCheckpointFolder`] if nobody says where.
    pub(crate) fn target(&self, asked: Option<&Path>) -> Result<PathBuf> {
        let numbered = |folder: PathBuf| folder.join(format!("{PREFIX}{}", self.iteration()));
        self.automatic()
            .map(numbered)
            .or_else(|| asked.map(Path::to_owned))
            .ok_or(Error::NoCheckpointFolder {
                argument: "output_dir",
            })
    }

    /// Marks `saved` as the newest and removes what the limit does not allow, oldest first.
    pub(crate) fn saved(&self, saved: &Path) -> Result<()> {
        // With automatic names it is always one of them, by its absolute path.
        let Some(folder) = self.automatic().and(saved.parent()) else {
            return Ok(());
        };
        mark(folder, saved)?;
        let Some(limit) = self.configuration.total_limit else {
            return Ok(());
        };
        let mut numbered = numbered(folder)?;
        // Numbers above this one belong to a run that was given up: they are the oldest.
        let own = self.iteration();
        numbered.sort_by_key(|(number, _)| (*number <= own, *number));
        let surplus = numbered.len().saturating_sub(limit.get());
        for (number, old) in numbered.into_iter().take(surplus) {
            if number != own {
                remove_if_there(&old)?;
                remove_if_there(&partial_path(&old))?;
            }
        }
        Ok(())
    }

    /// Whether no checkpoint was ever named automatically here.
    ///
    /// # Errors
    /// As for [`source`](Self::source) without a folder.
    pub(crate) fn has_none(&self) -> Result<bool> {
        let folder = self.automatic().ok_or(Error::NoCheckpointFolder {
            argument: "input_dir",
        })?;
        Ok(numbered(&folder)?.is_empty())
    }

    /// The checkpoint to load, and those that were passed over on the way to it.
    ///
    /// A folder that is asked for is taken or refused. Without one it is the newest whole one whose
    /// number is not above `at_most`.
    ///
    /// # Errors
    /// [`Error::NoCheckpointFolder`] if nobody says where, [`Error::CheckpointDamaged`] if what
    /// was asked for is not whole, [`Error::NoWholeCheckpoint`] if none is.
    pub(crate) fn source(
        &self,
        asked: Option<&Path>,
        at_most: Option<u64>,
    ) -> Result<FoundCheckpoint> {
        let verify = self.configuration.verify;
        if let Some(path) = asked {
            return asked_for(path, verify);
        }
        let folder = self.automatic().ok_or(Error::NoCheckpointFolder {
            argument: "input_dir",
        })?;
        let mut numbered = numbered(&folder)?;
        numbered.retain(|(number, _)| at_most.is_none_or(|most| *number <= most));
        numbered.reverse();
        let mut skipped = Vec::new();
        for (number, path) in numbered {
            match Manifest::verify(&path, verify) {
                Ok(manifest) => {
                    return Ok(FoundCheckpoint {
                        path,
                        manifest: Some(manifest),
                        number: Some(number),
                        skipped,
                    });
                }
                Err(fault) => skipped.push(SkippedCheckpoint { path, fault }),
            }
        }
        Err(Error::NoWholeCheckpoint { folder, skipped })
    }
}

/// A checkpoint that can be loaded.
#[derive(Debug)]
pub(crate) struct FoundCheckpoint {
    pub(crate) path: PathBuf,
    /// None for a folder that another program wrote.
    pub(crate) manifest: Option<Manifest>,
    /// Its number, if it was named automatically.
    pub(crate) number: Option<u64>,
    pub(crate) skipped: Vec<SkippedCheckpoint>,
}

fn asked_for(path: &Path, verify: Verify) -> Result<FoundCheckpoint> {
    if !path.is_dir() {
        return Err(Error::Io {
            action: "find the checkpoint folder",
            path: path.to_owned(),
            source: std::io::ErrorKind::NotFound.into(),
        });
    }
    let manifest = match Manifest::verify(path, verify) {
        Ok(manifest) => Some(manifest),
        // The original writes none.
        Err(CheckpointFault::NoManifest) => None,
        Err(fault) => {
            return Err(Error::CheckpointDamaged {
                path: path.to_owned(),
                fault: Box::new(fault),
            });
        }
    };
    Ok(FoundCheckpoint {
        path: path.to_owned(),
        manifest,
        number: None,
        skipped: Vec::new(),
    })
}

/// The automatically named checkpoints in `folder`, by ascending number.
fn numbered(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| io("look into", folder, source))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| io("look into", folder, source))?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        if let Some(number) = number.filter(|_| entry.path().is_dir()) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Writes the name of the newest checkpoint into `latest`, for people and other programs.
fn mark(folder: &Path, saved: &Path) -> Result<()> {
    use std::io::Write as _;
    let name = saved.file_name().unwrap_or_default().to_string_lossy();
    let mut file = accelerate_formats::AtomicFile::create(folder.join(LATEST))?;
    writeln!(file, "{name}").map_err(|source| io("write", &folder.join(LATEST), source))?;
    Ok(file.commit()?)
}

#[cfg(test)]
mod tests {
    use accelerate_formats::manifest::MANIFEST_FILE;

    use super::super::folder::PartialCheckpoint;
    use super::*;

    fn project(folder: &Path, limit: Option<usize>) -> Project {
        let mut configuration = ProjectConfiguration::automatic(folder);
        configuration.total_limit = limit.and_then(NonZeroUsize::new);
        Project::new(configuration)
    }

    fn save(project: &Project) -> PathBuf {
        let target = project.target(None).unwrap();
        let partial = PartialCheckpoint::begin(&target).unwrap();
        let saved = partial
            .commit(&Manifest::new(1, project.iteration(), Vec::new()))
            .unwrap();
        project.saved(&saved).unwrap();
        project.set_iteration(project.iteration() + 1);
        saved
    }

    fn left(folder: &Path) -> Vec<u64> {
        let numbered = numbered(&folder.join(CHECKPOINTS)).unwrap();
        numbered.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn the_newest_stay_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path(), Some(3));
        for _ in 0..12 {
            save(&project);
        }
        assert_eq!(left(folder.path()), [9, 10, 11]);
        let latest = std::fs::read_to_string(folder.path().join("checkpoints/latest")).unwrap();
        assert_eq!(latest, "checkpoint_11\n");
        assert_eq!(project.source(None, None).unwrap().number, Some(11));
    }

    #[test]
    fn a_relative_folder_is_counted_too() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let relative = Path::new(folder.path().file_name().unwrap());
        let project = project(relative, Some(2));
        for _ in 0..4 {
            save(&project);
        }
        assert_eq!(left(relative), [2, 3]);
        let latest = std::fs::read_to_string(relative.join("checkpoints/latest")).unwrap();
        assert_eq!(latest, "checkpoint_3\n");
    }

    #[test]
    fn one_number_saved_twice_stays_once() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path(), Some(1));
        let first = save(&project);
        project.set_iteration(0);
        assert_eq!(save(&project), first);
        assert_eq!(left(folder.path()), [0]);
        assert!(Manifest::verify(&first, Verify::Hashes).is_ok());
    }

    #[test]
    fn the_one_just_written_stays_below_higher_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path(), Some(2));
        for number in [7, 8, 3] {
            project.set_iteration(number);
            save(&project);
        }
        assert_eq!(left(folder.path()), [3, 8]);
    }

    #[test]
    fn broken_ones_are_passed_over_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let project = project(folder.path(), None);
        let saved: Vec<PathBuf> = (0..3).map(|_| save(&project)).collect();
        std::fs::remove_file(saved[2].join(MANIFEST_FILE)).unwrap();
        let found = project.source(None, None).unwrap();
        assert_eq!((found.path, found.number), (saved[1].clone(), Some(1)));
        assert_eq!(found.skipped.len(), 1);
        assert_eq!(found.skipped[0].fault, CheckpointFault::NoManifest);
        for path in &saved[..2] {
            std::fs::write(path.join(MANIFEST_FILE), "{").unwrap();
        }
        let error = project.source(None, None).unwrap_err();
        assert!(
            matches!(&error, Error::NoWholeCheckpoint { skipped, .. } if skipped.len() == 3),
            "{error}"
        );
    }

    #[test]
    fn somebody_has_to_say_where() {
        let nowhere = Project::new(ProjectConfiguration::default());
        assert!(matches!(
            nowhere.target(None),
            Err(Error::NoCheckpointFolder { .. })
        ));
        assert!(matches!(
            nowhere.source(None, None),
            Err(Error::NoCheckpointFolder { .. })
        ));
        assert_eq!(
            nowhere.target(Some(Path::new("here"))).unwrap(),
            Path::new("here")
        );
        let gone = nowhere
            .source(Some(Path::new("not there")), None)
            .unwrap_err();
        assert!(matches!(gone, Error::Io { .. }), "{gone}");
    }
}
