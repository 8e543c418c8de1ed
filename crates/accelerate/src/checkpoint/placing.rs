//! Putting a checkpoint in its place once every rank has written its part.

use std::path::{Path, PathBuf};

use accelerate_formats::manifest::{Manifest, ManifestFile};

use super::agreement::Agreement;
use super::folder::{PartialCheckpoint, io, partial_path};
use super::manifest::add_unlisted;
use super::project::Project;
use super::sharing::Sharing;
use crate::state::PartialState;
use crate::{Error, Result};

/// A checkpoint that is being written, on one rank. It can be finished on any thread.
#[derive(Debug)]
pub(super) struct Placing {
    sharing: Sharing,
    project: Project,
    num_processes: usize,
    target: PathBuf,
    /// On ranks that make folders.
    partial: Option<PartialCheckpoint>,
}

impl Placing {
    /// Makes the folder, on the ranks that do; the others can write into it then.
    ///
    /// # Collective
    /// Every rank calls this.
    pub(super) fn begin(
        state: &PartialState,
        project: &Project,
        output_dir: Option<&Path>,
    ) -> Result<Self> {
        let sharing = Sharing::of(state, project.configuration.save_on_each_node)?;
        let mut agreement = Agreement::Collectives(state);
        let begun = || -> Result<(PathBuf, Option<PartialCheckpoint>)> {
            let target = absolute(&project.target(output_dir)?)?;
            let partial = sharing
                .is_main()
                .then(|| PartialCheckpoint::begin(&target))
                .transpose()?;
            Ok((target, partial))
        };
        let (target, partial) = agreement.together(begun())?;
        Ok(Self {
            sharing,
            project: project.clone(),
            num_processes: state.num_processes(),
            target,
            partial,
        })
    }

    /// Whether this rank makes the folder, and writes what all ranks have alike.
    pub(super) fn is_main(&self) -> bool {
        self.sharing.is_main()
    }

    /// Where the checkpoint will be.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Where files are written meanwhile.
    pub(super) fn folder(&self) -> PathBuf {
        partial_path(&self.target)
    }

    /// Takes what each rank wrote, and puts the folder in its place if all of them could.
    ///
    /// No folder goes away while a rank that lives may still write into it. Older checkpoints go,
    /// and `latest` moves, when every folder is in its place.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// Its own, or [`Error::OtherRankFailed`]. Nothing is left of the new checkpoint then, except
    /// where only the last step fails, which is marking it and removing older ones.
    pub(super) fn finish(
        mut self,
        written: Result<Vec<ManifestFile>>,
        agreement: &mut Agreement<'_>,
    ) -> Result<PathBuf> {
        let (own, failure) = match written {
            Ok(files) => (Some(files), None),
            Err(error) => (None, Some(error)),
        };
        let parts = agreement.gather(own)?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if let Some(rank) = parts.iter().position(Option::is_none) {
            return Err(Error::OtherRankFailed { rank });
        }
        let files = self.sharing.of_own(parts).flatten().flatten().collect();
        let placed = self.place(files);
        agreement.together(placed)?;
        let marked = match self.is_main() {
            true => self.project.saved(&self.target),
            false => Ok(()),
        };
        agreement.together(marked)?;
        Ok(self.target)
    }

    fn place(&mut self, files: Vec<ManifestFile>) -> Result<()> {
        let Some(partial) = self.partial.take() else {
            return Ok(());
        };
        let iteration = self.project.iteration();
        let mut manifest = Manifest::new(self.num_processes, iteration, files);
        add_unlisted(&mut manifest, partial.path())?;
        partial.commit(&manifest).map(drop)
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|source| io("find", path, source))
}
