//! Files as memory.
//!
//! This is the only module of the crate with unsafe code: the call in [`MappedFile::open`], and the
//! one in [`MappedBytes::forget`].
//!
//! A mapping shows the file as it is on disk at every moment, so it is only sound to read while
//! nobody changes or shortens the file. What this crate does about it:
//!
//! - a mapping is read-only, and no code here opens a mapped file for writing;
//! - every file this crate writes is written aside and renamed into place
//!   ([`AtomicFile`](crate::AtomicFile)). An old mapping then goes on showing the old file, which the
//!   system keeps until the last mapping is gone;
//! - the length is read once and all ranges are checked against the mapping itself, never
//!   against a later length.
//!
//! What it cannot prevent is another program that shortens the file in place: the system then
//! ends this process when it touches the lost part (`SIGBUS`). Replace weight files by renaming,
//! as `git`, `pip` and the Hugging Face tools do, and do not edit them in place while they are in use.

use std::fmt;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(target_os = "linux")]
use memmap2::UncheckedAdvice;
use memmap2::{Advice, Mmap};

use crate::error::{Error, Result};

/// No page is smaller.
const PAGE: usize = 4096;

/// A whole file, mapped into memory read-only.
///
/// Shared through an [`Arc`]: the file stays mapped until the last [`MappedBytes`] is dropped.
/// Pages are read from disk when first touched.
pub struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// [`Error::Open`] if it cannot be opened, [`Error::NotAFile`] if it is a folder, a pipe or a
    /// device, [`Error::Map`] if the system refuses the mapping.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let opening = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        // Asked before opening: opening a pipe would wait for a writer.
        if !std::fs::metadata(path).map_err(opening)?.is_file() {
            return Err(Error::NotAFile {
                path: path.to_owned(),
            });
        }
        let file = File::open(path).map_err(opening)?;
        let map = map_read_only(&file).map_err(|source| Error::Map {
            path: path.to_owned(),
            source,
        })?;
        Ok(Arc::new(Self {
            path: path.to_owned(),
            map,
        }))
    }

    /// Where the file was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[expect(
    unsafe_code,
    reason = "a file mapping is only sound while the file keeps its length; see the module docs"
)]
fn map_read_only(file: &File) -> std::io::Result<Mmap> {
    // SAFETY: the mapped file must not be changed or shortened while the mapping lives. We never
    // open it for writing, and our own writers replace files by renaming, which leaves the mapped
    // file as it was. Other programs are bound by the rule in the module docs.
    unsafe { Mmap::map(file) }
}

/// Takes the pages of a range out of this process's view, so that the system may drop them.
#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "the system may answer a range with other bytes afterwards, which cannot be here"
)]
fn unmap_pages(map: &Mmap, range: &Range<usize>) -> std::io::Result<()> {
    // SAFETY: what is unsafe about this advice is that changes which are only in memory are lost.
    // The mapping is shared and read-only, so it has none: the next touch reads the same bytes from
    // the file, which nobody changes (see the module docs).
    unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedFile")
            .field("path", &self.path)
            .field("bytes", &self.len())
            .finish()
    }
}

/// A range of a mapped file that keeps the file mapped.
///
/// This is what a tensor without a copy owns: it is `Send`, `Sync` and `'static`, its address
/// never changes, and cloning it copies no data.
#[derive(Clone)]
pub struct MappedBytes {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl MappedBytes {
    /// The bytes `range` of `file`, or `None` where the range leaves the file.
    pub fn new(file: Arc<MappedFile>, range: Range<usize>) -> Option<Self> {
        file.get(range.clone())?;
        Some(Self { file, range })
    }

    /// As [`new`](Self::new), for a range that is known to lie within the file.
    pub(crate) fn within(file: Arc<MappedFile>, range: Range<usize>) -> Self {
        debug_assert!(file.get(range.clone()).is_some());
        Self { file, range }
    }

    /// A part of these bytes, or `None` where the range leaves them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        self.get(range.clone())?;
        let begin = self.range.start;
        Some(Self {
            file: Arc::clone(&self.file),
            range: begin + range.start..begin + range.end,
        })
    }

    /// All bytes of a file.
    pub fn whole(file: Arc<MappedFile>) -> Self {
        let range = 0..file.len();
        Self { file, range }
    }

    /// The file the bytes lie in.
    pub fn file(&self) -> &Arc<MappedFile> {
        &self.file
    }

    /// Where in the file the bytes lie, in bytes from its start.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Asks the system to begin to read these bytes from disk, and does not wait for them.
    ///
    /// Advice: where the system does not take it, the bytes come when they are touched.
    pub fn will_need(&self) {
        if !self.range.is_empty() {
            let (start, length) = (self.range.start, self.range.len());
            let _advice = self.file.map.advise_range(Advice::WillNeed, start, length);
        }
    }

    /// Waits until these bytes are in memory, so that who touches them next need not.
    pub fn populate(&self) {
        if self.range.is_empty() || self.populated_at_once() {
            return;
        }
        // A touch of every page does the same, one fault after another.
        for page in self.chunks(PAGE) {
            let _touched = std::hint::black_box(page.first().copied());
        }
    }

    #[cfg(target_os = "linux")]
    fn populated_at_once(&self) -> bool {
        let (start, length) = (self.range.start, self.range.len());
        let map = &self.file.map;
        map.advise_range(Advice::PopulateRead, start, length)
            .is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn populated_at_once(&self) -> bool {
        false
    }

    /// Lets the system drop these bytes from memory at once, where it can; they come from disk again
    /// when they are touched.
    ///
    /// For what is read in turn and is larger than memory: what is kept longest is then not what the
    /// system has to throw out for it. Whole pages go; those at the ends stay, since neighbours have
    /// a part in them.
    pub fn forget(&self) {
        #[cfg(target_os = "linux")]
        self.drop_pages();
    }

    #[cfg(target_os = "linux")]
    fn drop_pages(&self) {
        use rustix::fs::Advice;
        let Some(length) = std::num::NonZeroU64::new(self.range.len() as u64) else {
            return;
        };
        if unmap_pages(&self.file.map, &self.range).is_err() {
            return;
        }
        // Opened again rather than kept open: folders may have more files than a process may hold.
        if let Ok(file) = File::open(&self.file.path) {
            let start = self.range.start as u64;
            let _advice = rustix::fs::fadvise(&file, start, Some(length), Advice::DontNeed);
        }
    }

    /// Whether the first byte lies at a multiple of `alignment` bytes in memory.
    ///
    /// Mappings begin at a page and files written by common tools keep every tensor aligned to
    /// its element size, but the format does not promise it: ask before reading the bytes as
    /// numbers in place, and copy where the answer is no. An alignment of 0 is never met.
    pub fn is_aligned_to(&self, alignment: usize) -> bool {
        alignment != 0 && self.as_ptr().addr().is_multiple_of(alignment)
    }
}

impl Deref for MappedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // In bounds: the range was checked on construction, and a mapping never changes its length.
        &self.file[self.range.clone()]
    }
}

impl AsRef<[u8]> for MappedBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for MappedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedBytes")
            .field("path", &self.file.path)
            .field("range", &self.range)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(bytes: &[u8]) -> (tempfile::TempDir, Arc<MappedFile>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, bytes).unwrap();
        (folder, MappedFile::open(path).unwrap())
    }

    /// What a tensor library asks of the owner of a foreign buffer.
    const _: () = {
        const fn can_own_a_tensor<T: AsRef<[u8]> + Clone + Send + Sync + 'static>() {}
        can_own_a_tensor::<MappedBytes>();
    };

    #[test]
    fn bytes_outlive_every_other_handle_and_the_name() {
        let (folder, file) = mapped(b"0123456789");
        let bytes = MappedBytes::new(file, 2..5).unwrap();
        drop(folder);
        let read = std::thread::spawn(move || bytes.to_vec()).join().unwrap();
        assert_eq!(read, b"234");
    }

    #[test]
    fn advice_changes_no_byte() {
        let content: Vec<u8> = (0..40_000u32).map(|value| (value % 251) as u8).collect();
        let (_folder, file) = mapped(&content);
        let part = MappedBytes::new(Arc::clone(&file), 5000..30_000).unwrap();
        for bytes in [part, MappedBytes::new(file, 7..7).unwrap()] {
            bytes.will_need();
            bytes.populate();
            assert_eq!(*bytes, content[bytes.range()]);
            bytes.forget();
            assert_eq!(*bytes, content[bytes.range()]);
        }
    }

    #[test]
    fn a_replaced_file_leaves_the_mapping_as_it_was() {
        let (folder, file) = mapped(b"old");
        let mut new = crate::AtomicFile::create(file.path()).unwrap();
        std::io::Write::write_all(&mut new, b"quite new").unwrap();
        new.commit().unwrap();
        assert_eq!(&file[..], b"old");
        assert_eq!(
            std::fs::read(folder.path().join("data")).unwrap(),
            b"quite new"
        );
    }

    #[test]
    fn ranges_outside_the_file_are_refused() {
        let (_folder, file) = mapped(b"0123456789");
        assert!(MappedBytes::new(Arc::clone(&file), 8..11).is_none());
        assert!(MappedBytes::new(Arc::clone(&file), 11..11).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "the case under test")]
        let reversed = 5..3;
        assert!(MappedBytes::new(Arc::clone(&file), reversed).is_none());
        assert_eq!(MappedBytes::new(file, 10..10).unwrap().len(), 0);
    }

    #[test]
    fn alignment_is_that_of_the_address() {
        let (_folder, file) = mapped(&[0; 64]);
        let at = |begin: usize| MappedBytes::new(Arc::clone(&file), begin..64).unwrap();
        assert!(at(0).is_aligned_to(64));
        assert!(at(12).is_aligned_to(4));
        assert!(!at(12).is_aligned_to(8));
        assert!(!at(0).is_aligned_to(0));
    }

    #[test]
    fn an_empty_file_maps() {
        let (_folder, file) = mapped(b"");
        assert!(file.is_empty());
    }

    #[test]
    fn what_is_no_file_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let error = MappedFile::open(folder.path()).unwrap_err();
        assert!(
            matches!(&error, Error::NotAFile { path } if path == folder.path()),
            "{error}"
        );

        let absent = folder.path().join("absent");
        let error = MappedFile::open(&absent).unwrap_err();
        assert!(
            matches!(&error, Error::Open { path, .. } if *path == absent),
            "{error}"
        );
    }
}
