//! Folders with files of several kinds, as `save_state` writes them.

use std::{fs, path::Path};

use accelerate_formats::{
    CheckpointKind,
    folder::names_in,
    manifest::{CheckpointFault, MANIFEST_FILE, Manifest, Verify},
};

use super::{
    entry::file_name,
    listing::{Listing, NamedText, problem},
};
use crate::weights::error::Result;

/// Beginnings of the names of files that are saved beside weights.
const BESIDE_WEIGHTS: [&str; 8] = [
    "optimizer",
    "scheduler",
    "sampler",
    "scaler",
    "random_states_",
    "custom_checkpoint_",
    "dl_state_dict",
    "pytorch_model_fsdp",
];

/// Whether a folder is to be shown file by file.
pub(super) fn has_members(folder: &Path, kind: Option<CheckpointKind>) -> bool {
    if folder.join(MANIFEST_FILE).exists() {
        return true;
    }
    if !matches!(
        kind,
        None | Some(CheckpointKind::Weights | CheckpointKind::Zero)
    ) {
        return false;
    }
    let is_beside = |name: &str| BESIDE_WEIGHTS.iter().any(|begin| name.starts_with(begin));
    let names = names_in(folder).unwrap_or_default();
    // A folder of any other kind has something that is known in it, or there is nothing to show.
    names.iter().any(|name| is_beside(name))
        || (kind.is_none()
            && names
                .iter()
                .any(|name| kind_of(&folder.join(name)).is_some()))
}

/// Shows a folder file by file. What cannot be read is told in its place.
///
/// # Errors
/// If the folder itself cannot be read.
pub(super) fn listing(folder: &Path, verify: bool) -> Result<Listing> {
    let (manifest, fault) = match Manifest::read(folder) {
        Ok(manifest) => (Some(manifest), None),
        Err(CheckpointFault::NoManifest) => (None, None),
        Err(fault) => (None, Some(fault.to_string())),
    };
    let closely = if verify {
        Verify::Hashes
    } else {
        Verify::Sizes
    };
    let mut listing = Listing {
        path: folder.display().to_string(),
        format: "folder",
        problem: fault,
        ..Listing::default()
    };
    for name in names_in(folder)? {
        let path = folder.join(&name);
        if let Some(kind) = kind_of(&path) {
            listing.members.push(member(&path, kind));
        } else if path.is_file() && name != MANIFEST_FILE {
            let size = fs::metadata(&path).map_or(0, |found| found.len());
            listing
                .details
                .push(NamedText::new(&name, format!("{size} bytes")));
        }
    }
    if let Some(manifest) = &manifest {
        let mut faults: Vec<String> = manifest
            .files
            .iter()
            .filter_map(|file| file.check(folder, closely).err())
            .map(|fault| fault.to_string())
            .collect();
        faults.extend(listing.problem.take());
        listing.problem = (!faults.is_empty()).then(|| faults.join("; "));
    }
    listing.manifest = manifest;
    Ok(listing)
}

fn member(path: &Path, kind: CheckpointKind) -> Listing {
    match Listing::of_kind(path, kind) {
        Ok(mut listing) => {
            listing.path = file_name(path);
            listing
        }
        Err(error) => Listing {
            path: file_name(path),
            format: "unreadable",
            problem: problem::<()>(Err(error)),
            ..Listing::default()
        },
    }
}

/// The kind of a file or folder that is shown as a member.
fn kind_of(path: &Path) -> Option<CheckpointKind> {
    let kind = CheckpointKind::of(path).ok().flatten()?;
    let is_shown = match kind {
        // The files it names are shown themselves.
        CheckpointKind::Index => false,
        CheckpointKind::Weights | CheckpointKind::Offload => path.is_dir(),
        _ => true,
    };
    is_shown.then_some(kind)
}
