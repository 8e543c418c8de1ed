//! Whether a folder has changed, without reading what is in it.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    time::SystemTime,
};

/// How deep the files of a run lie.
const DEPTH: usize = 2;

/// What can be told of a folder from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// Another one when a file has come, gone, grown or been replaced.
    pub(super) sum: u64,
    /// When something was written last.
    pub(super) written: Option<SystemTime>,
}

impl Fingerprint {
    /// That of `folder`. What cannot be looked at does not count.
    pub(super) fn of(folder: &Path) -> Self {
        let mut fingerprint = Self::default();
        fingerprint.add(folder, DEPTH);
        fingerprint
    }

    fn add(&mut self, folder: &Path, depth: usize) {
        let entries = fs::read_dir(folder).into_iter().flatten();
        for entry in entries.filter_map(Result::ok) {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                if depth > 1 {
                    self.add(&entry.path(), depth - 1);
                }
                continue;
            }
            let modified = metadata.modified().ok();
            let mut hasher = DefaultHasher::new();
            (entry.file_name(), metadata.len(), modified).hash(&mut hasher);
            // The order in which a folder lists its files is not told.
            self.sum = self.sum.wrapping_add(hasher.finish());
            self.written = self.written.max(modified);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_changes_with_every_file_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::create_dir(path.join("ranks")).unwrap();
        fs::write(path.join("run.json"), "{}").unwrap();
        let first = Fingerprint::of(path);
        assert_eq!(Fingerprint::of(path), first);
        assert!(first.written.is_some());
        fs::write(path.join("ranks/0.jsonl"), "{}\n").unwrap();
        let second = Fingerprint::of(path);
        assert_ne!(second.sum, first.sum);
        fs::write(path.join("ranks/0.jsonl"), "{}\n{}\n").unwrap();
        assert_ne!(Fingerprint::of(path).sum, second.sum);
        assert_eq!(Fingerprint::of(&path.join("none")), Fingerprint::default());
    }
}
