//! The files of a tag, in the order of the ranks.

use std::path::{Path, PathBuf};

use super::{Fallible, refused};
use crate::error::{Result, ZeroFault};
use crate::folder::names_in;
use crate::index::is_plain_name;
use crate::mmap::{MappedBytes, MappedFile};
use crate::torch::{Strangers, read_value};
use crate::value::{Dict, Value};

/// The file with the tag that was saved last.
const LATEST: &str = "latest";
pub(super) const MODEL_ENDING: &str = "_model_states.pt";
pub(super) const OPTIMIZER_ENDING: &str = "_optim_states.pt";
/// The longest tag.
const MAX_TAG_BYTES: usize = 4096;

/// A file that was read, by its name.
pub(super) struct File {
    pub(super) name: String,
    pub(super) value: Value,
}

/// The folder that has the files.
pub(super) fn tagged(folder: &Path, tag: Option<&str>) -> Result<PathBuf> {
    let names = names_by_rank(folder)?;
    let here = names.iter().any(|name| name.ends_with(OPTIMIZER_ENDING));
    match tag {
        Some(tag) => {
            let tag = checked(tag).map_err(|fault| refused(folder, fault))?;
            Ok(folder.join(tag))
        }
        None if here => Ok(folder.to_owned()),
        None => Ok(folder.join(latest(folder, &names)?)),
    }
}

/// Model states and optimizer states.
pub(super) fn read(folder: &Path) -> Result<(Vec<File>, Vec<File>)> {
    let names = names_by_rank(folder)?;
    let optimizers = read_all(folder, &names, OPTIMIZER_ENDING)?;
    Ok((read_all(folder, &names, MODEL_ENDING)?, optimizers))
}

/// Whether a folder is one of DeepSpeed's: it holds the files of ranks, or says in `latest` which
/// folder inside does.
pub(crate) fn is_zero(folder: &Path) -> Result<bool> {
    let holds_states = |names: &[String]| {
        let mut names = names.iter();
        names.any(|name| name.ends_with(OPTIMIZER_ENDING) || name.ends_with(MODEL_ENDING))
    };
    let names = names_in(folder)?;
    if holds_states(&names) {
        return Ok(true);
    }
    let Ok(tag) = latest(folder, &names) else {
        return Ok(false);
    };
    // Where the folder is gone, reading it will say so.
    Ok(names_in(&folder.join(tag)).map_or(true, |inner| holds_states(&inner)))
}

fn checked(tag: &str) -> Fallible<&str> {
    if is_plain_name(tag) {
        return Ok(tag);
    }
    Err(ZeroFault::Tag {
        tag: tag.to_owned(),
    })
}

fn names_by_rank(folder: &Path) -> Result<Vec<String>> {
    let mut names = names_in(folder)?;
    names.sort_by_cached_key(|name| natural(name));
    Ok(names)
}

fn latest(folder: &Path, names: &[String]) -> Result<String> {
    if !names.iter().any(|name| name == LATEST) {
        return Err(refused(folder, ZeroFault::NoLatest));
    }
    let file = MappedFile::open(folder.join(LATEST))?;
    let text = file.get(..MAX_TAG_BYTES).unwrap_or(&file);
    let tag = String::from_utf8_lossy(text);
    let tag = checked(tag.trim()).map_err(|fault| refused(folder, fault))?;
    Ok(tag.to_owned())
}

/// A key under which `rank_10` comes after `rank_9`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = vec![(String::new(), 0u64)];
    let mut in_number = false;
    for char in name.chars() {
        let digit = char.to_digit(10).map(u64::from);
        if in_number && digit.is_none() {
            parts.push((String::new(), 0));
        }
        in_number = digit.is_some();
        if let Some((text, number)) = parts.last_mut() {
            match digit {
                Some(digit) => *number = number.saturating_mul(10).saturating_add(digit),
                None => text.push(char),
            }
        }
    }
    parts
}

/// Reads all files with an ending, in the order of their ranks.
fn read_all(folder: &Path, names: &[String], ending: &'static str) -> Result<Vec<File>> {
    let wanted: Vec<&String> = names.iter().filter(|name| name.ends_with(ending)).collect();
    if wanted.is_empty() {
        let found = names.iter().take(64).cloned().collect();
        return Err(refused(folder, ZeroFault::NoFiles { ending, found }));
    }
    if let Some(file) = wanted.iter().find(|name| !name.contains("mp_rank_00")) {
        let file = (*file).clone();
        return Err(refused(folder, ZeroFault::ModelParallel { file }));
    }
    let read = wanted.into_iter().map(|name| {
        let bytes = MappedBytes::whole(MappedFile::open(folder.join(name))?);
        let value = read_value(&bytes, Strangers::Kept).map_err(|source| {
            refused(
                folder,
                ZeroFault::File {
                    file: name.clone(),
                    source,
                },
            )
        })?;
        Ok(File {
            name: name.clone(),
            value,
        })
    });
    read.collect()
}

impl File {
    /// The rank that wrote it, by its name.
    pub(super) fn rank(&self) -> Option<usize> {
        let (_, rest) = self.name.split_once("zero_pp_rank_")?;
        rest.split('_').next()?.parse().ok()
    }

    pub(super) fn lacks(&self, what: &'static str) -> ZeroFault {
        ZeroFault::Lacks {
            file: self.name.clone(),
            what,
        }
    }

    /// The dict under a key; none where `None` or nothing stands there.
    pub(super) fn dict(&self, key: &'static str) -> Fallible<Option<&Dict>> {
        match self.value.get(key) {
            None | Some(Value::None) => Ok(None),
            Some(Value::Dict(dict)) => Ok(Some(dict)),
            Some(_) => Err(self.lacks(key)),
        }
    }

    pub(super) fn optimizer(&self) -> Fallible<&Value> {
        let what = "optimizer_state_dict";
        self.value.get(what).ok_or_else(|| self.lacks(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_the_order_of_their_numbers() {
        let mut names = ["rank_10_x", "rank_9_x", "bf16_rank_1_x", "rank_1"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["bf16_rank_1_x", "rank_1", "rank_9_x", "rank_10_x"]);
    }
}
