//! What is in one file or folder.

use std::{collections::BTreeMap, path::Path};

use accelerate_formats::{
    Checkpoint, CheckpointKind, DistributedCheckpoint, DistributedPart, OffloadFolder, OpenOptions,
    TorchFile, Weights, manifest::Manifest, source::TensorSource,
};
use serde::Serialize;

use super::{entry::Entry, folder, values};
use crate::dtype_sum::DtypeSum;
use crate::weights::{
    error::{Result, WeightsError},
    names::Patterns,
};

/// Everything that is known of a path without reading data.
#[derive(Debug, Default, Serialize)]
pub(super) struct Listing {
    pub(super) path: String,
    pub(super) format: &'static str,
    pub(super) tensors: Vec<Entry>,
    pub(super) dtypes: Vec<DtypeSum>,
    pub(super) total_bytes: u64,
    pub(super) tied: Vec<Tie>,
    pub(super) values: Vec<NamedText>,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) manifest: Option<Manifest>,
    pub(super) members: Vec<Listing>,
    pub(super) details: Vec<NamedText>,
    pub(super) problem: Option<String>,
}

/// A second name of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Tie {
    pub(super) name: String,
    pub(super) tied_to: String,
}

/// Something with a name, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct NamedText {
    pub(super) name: String,
    pub(super) value: String,
}

impl NamedText {
    pub(super) fn new(name: &str, value: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            value: value.into(),
        }
    }
}

impl Listing {
    /// What is at `path`. With `verify`, files are compared with the hashes of a manifest.
    ///
    /// # Errors
    /// [`WeightsError::NothingToInspect`], or why it cannot be read.
    pub(super) fn of(path: &Path, verify: bool) -> Result<Self> {
        let kind = CheckpointKind::of(path)?;
        if path.is_dir() && folder::has_members(path, kind) {
            return folder::listing(path, verify);
        }
        let Some(kind) = kind else {
            return Err(WeightsError::NothingToInspect {
                path: path.to_owned(),
            });
        };
        Self::of_kind(path, kind)
    }

    /// What is at `path`, which is of this kind.
    pub(super) fn of_kind(path: &Path, kind: CheckpointKind) -> Result<Self> {
        let mut listing = match kind {
            CheckpointKind::Safetensors | CheckpointKind::Index | CheckpointKind::Weights => {
                Self::of_weights(&Weights::open(path)?)
            }
            CheckpointKind::Torch => Self::of_torch(path)?,
            CheckpointKind::Distributed => {
                Self::of_distributed(&DistributedCheckpoint::open(path)?)?
            }
            CheckpointKind::Zero => Self::of_zero(path)?,
            CheckpointKind::Offload => Self::of_offload(&OffloadFolder::open(path)?)?,
            _ => {
                return Err(WeightsError::NothingToInspect {
                    path: path.to_owned(),
                });
            }
        };
        listing.path = path.display().to_string();
        listing.format = format_name(kind);
        Ok(listing)
    }

    fn of_weights(weights: &Weights) -> Self {
        let tensors = weights
            .tensors()
            .map(|tensor| Entry::of_stored(tensor.name(), tensor.stored()));
        let files = weights.files().iter().filter_map(|file| file.metadata());
        let tied = ties(weights);
        let metadata = files
            .flat_map(|metadata| metadata.iter())
            .filter(|(key, _)| !tied.iter().any(|tie| tie.name == *key))
            .map(|(key, text)| (key.to_owned(), text.to_owned()));
        Self {
            tensors: tensors.collect(),
            metadata: metadata.collect(),
            details: vec![NamedText::new("files", weights.files().len().to_string())],
            tied,
            ..Self::default()
        }
    }

    fn of_torch(path: &Path) -> Result<Self> {
        let file = TorchFile::open(path)?;
        let format = format!("{:?}", file.format()).to_ascii_lowercase();
        let mut listing = values::listing(file.value());
        listing.details.push(NamedText::new("archive", format));
        Ok(listing)
    }

    fn of_distributed(checkpoint: &DistributedCheckpoint) -> Result<Self> {
        let mut listing = Self {
            tensors: checkpoint.tensors().map(Entry::of_sharded).collect(),
            // Those with one place: PyTorch stores every name by itself, and says nothing of ties.
            tied: ties(&DistributedPart::whole(checkpoint)),
            problem: problem(checkpoint.check_files().map_err(Into::into)),
            ..Self::default()
        };
        if listing.problem.is_none() {
            for name in checkpoint.value_names() {
                let text = values::short(&checkpoint.value(name)?);
                listing.values.push(NamedText::new(name, text));
            }
        }
        Ok(listing)
    }

    fn of_zero(path: &Path) -> Result<Self> {
        let opened = Checkpoint::open(path, &OpenOptions::default())?;
        let source = opened.source()?;
        let mut listing = Self {
            tied: ties(&*source),
            ..Self::default()
        };
        for header in source.headers() {
            let bits = header.dtype.bits_of(&header.shape).unwrap_or(0);
            listing.tensors.push(Entry {
                name: header.name,
                dtype: header.dtype.name(),
                shape: header.shape,
                bytes: bits as u64 / 8,
                file: None,
                offset: None,
                strides: None,
                parts: Vec::new(),
            });
        }
        if let Some(zero) = opened.as_zero() {
            listing.details = vec![
                NamedText::new("stage", zero.stage().to_string()),
                NamedText::new("ranks", zero.world_size().to_string()),
                NamedText::new("folder", zero.folder().display().to_string()),
            ];
        }
        Ok(listing)
    }

    fn of_offload(folder: &OffloadFolder) -> Result<Self> {
        let mut listing = Self::default();
        for (name, _) in folder.entries() {
            let weight = folder.get(name)?;
            listing.tensors.push(Entry::of_stored(name, &weight.tensor));
            if let Some(cast_to) = weight.cast_to {
                listing
                    .values
                    .push(NamedText::new(name, format!("becomes {cast_to}")));
            }
        }
        Ok(listing)
    }

    /// Keeps the tensors that fit, puts them in order, and sums them up; those of members too.
    pub(super) fn arrange(&mut self, patterns: &Patterns, sort: impl Fn(&mut Vec<Entry>) + Copy) {
        self.tensors.retain(|tensor| patterns.fit(&tensor.name));
        self.tied
            .retain(|tie| patterns.fit(&tie.name) || patterns.fit(&tie.tied_to));
        sort(&mut self.tensors);
        let tensors = self.tensors.iter();
        self.dtypes =
            DtypeSum::of(tensors.map(|tensor| (tensor.dtype, tensor.elements(), tensor.bytes)));
        self.total_bytes = self.dtypes.iter().map(|sum| sum.bytes).sum();
        for member in &mut self.members {
            member.arrange(patterns, sort);
            self.total_bytes += member.total_bytes;
        }
    }

    pub(super) fn has_problem(&self) -> bool {
        self.problem.is_some() || self.members.iter().any(Self::has_problem)
    }
}

fn ties(source: &dyn TensorSource) -> Vec<Tie> {
    let mut ties: Vec<Tie> = source
        .aliases()
        .into_iter()
        .map(|(name, tied_to)| Tie { name, tied_to })
        .collect();
    ties.sort_by(|one, other| one.name.cmp(&other.name));
    ties
}

const fn format_name(kind: CheckpointKind) -> &'static str {
    match kind {
        CheckpointKind::Safetensors => "safetensors",
        CheckpointKind::Torch => "torch",
        CheckpointKind::Index => "index",
        CheckpointKind::Weights => "weights",
        CheckpointKind::Distributed => "distributed",
        CheckpointKind::Zero => "zero",
        CheckpointKind::Offload => "offload",
        _ => "unknown",
    }
}

/// What went wrong, with its causes, in one line.
pub(super) fn problem<T>(outcome: Result<T>) -> Option<String> {
    let error = outcome.err()?;
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    Some(text)
}
