//! Files as the memory of tensors, for numbers that need no memory while nobody computes with them.
//!
//! A [`ScratchFile`] is mapped into memory: its tensors are tensors like any other, the system reads a
//! page of the file when a kernel touches it, and takes the page back when memory is short. What is
//! to be read soon can be fetched beforehand ([`ScratchFile::read_ahead`]), and what is done with can
//! be written and dropped at once ([`ScratchFile::write_back`], [`ScratchFile::forget`]), so that a
//! process holds no more than what it works on. None of these changes what a tensor holds, whenever
//! they are called and by whichever thread.
//!
//! The file has no name: it is gone when its last tensor is, also where the process is killed, and no
//! other program can shorten it, which would end this process when it touches the lost part. Its
//! room on the disk is taken when it is made, so that a disk that is full is told then, as an error,
//! and not by a signal in the middle of training. File systems that write to new places each time
//! (btrfs, ZFS) keep no such promise.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use memmap2::{MmapRaw, UncheckedAdvice};
use tch::{Device, Kind, Tensor};

use crate::callback::drop_box;
use crate::kind::number;
use crate::status::{check, own};
use crate::{Error, Result, ffi};

/// A file in which tensors lie.
///
/// Shared through an [`Arc`]: it stays until the last tensor in it is dropped.
pub struct ScratchFile {
    folder: PathBuf,
    purpose: String,
    file: File,
    map: MmapRaw,
}

/// The files that are mapped, by their first address.
static MAPPED: Mutex<BTreeMap<usize, Weak<ScratchFile>>> = Mutex::new(BTreeMap::new());

fn mapped() -> MutexGuard<'static, BTreeMap<usize, Weak<ScratchFile>>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScratchFile {
    /// A file of `bytes` zeros in `folder`, which is made where it is not there. Nobody but this
    /// process can open the file. Messages say that it is for `purpose`.
    ///
    /// # Errors
    /// [`Error::Scratch`] if the folder cannot be made or written to, or has no room for it.
    pub fn create(
        folder: impl AsRef<Path>,
        purpose: impl Into<String>,
        bytes: usize,
    ) -> Result<Arc<Self>> {
        let (folder, purpose) = (folder.as_ref().to_owned(), purpose.into());
        // Nothing cannot be mapped.
        let bytes = bytes.max(1);
        let failed = |action, source| failure(action, &purpose, &folder, bytes, source);
        std::fs::create_dir_all(&folder).map_err(|source| failed("make the folder for", source))?;
        let file =
            tempfile::tempfile_in(&folder).map_err(|source| failed("make the file for", source))?;
        reserve(&file, bytes as u64).map_err(|source| failed("reserve", source))?;
        let map = MmapRaw::map_raw(&file).map_err(|source| failed("map", source))?;
        let address = map.as_ptr().addr();
        let made = Arc::new(Self {
            folder,
            purpose,
            file,
            map,
        });
        mapped().insert(address, Arc::downgrade(&made));
        Ok(made)
    }

    /// The folder that it is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it is for, as messages say it.
    #[must_use]
    pub fn purpose(&self) -> &str {
        &self.purpose
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    /// A CPU tensor over the bytes from `start` on, zeros unless something was written there.
    ///
    /// # Errors
    /// [`Error::Argument`] for a tensor that leaves the file, or a start that does not fit the kind.
    pub fn tensor(self: &Arc<Self>, start: usize, kind: Kind, shape: &[i64]) -> Result<Tensor> {
        let size = kind.elt_size_in_bytes();
        let needed = shape.iter().try_fold(size, |all, &length| {
            usize::try_from(length)
                .ok()
                .and_then(|length| all.checked_mul(length))
        });
        let end = needed.and_then(|needed| start.checked_add(needed));
        if !start.is_multiple_of(size) || end.is_none_or(|end| end > self.bytes()) {
            return Err(Error::Argument {
                operation: "tensor in a file",
                expected: format!(
                    "{kind:?} {shape:?} within {} bytes, from a multiple of {size} on",
                    self.bytes()
                ),
                found: format!("a start at byte {start}"),
            });
        }
        let mut out = ptr::null_mut();
        // SAFETY: the range lies within the mapping, which stays in place while the boxed `Arc` lives;
        // C++ drops the box once, when the last view is gone or when it fails. The file has no name,
        // so nobody shortens it, and Rust makes no reference into it.
        unsafe {
            let data = self.map.as_mut_ptr().add(start).cast_const();
            let owner = Box::into_raw(Box::new(Arc::clone(self))).cast::<c_void>();
            check(
                "tensor in a file",
                ffi::acc_from_owner(
                    data.cast(),
                    owner,
                    drop_box::<Arc<Self>>,
                    number(kind),
                    shape.as_ptr(),
                    shape.len(),
                    &mut out,
                ),
            )?;
            Ok(own(out))
        }
    }

    /// Reads a part of the file into the system's memory, a block at a time, so that who touches it
    /// next need not wait for the disk.
    ///
    /// # Errors
    /// [`Error::Scratch`] if it cannot be read.
    pub fn read_ahead(&self, part: Range<usize>, block: &mut [u8]) -> Result<()> {
        let end = part.end.min(self.bytes());
        let mut start = part.start;
        while start < end && !block.is_empty() {
            let count = block.len().min(end - start);
            let room = &mut block[..count];
            let read = read_at(&self.file, room, start as u64);
            let read = read.map_err(|source| self.failed("read", count, source))?;
            if read == 0 {
                break;
            }
            start += read;
        }
        Ok(())
    }

    /// Writes what was changed in a part of the file to the disk, waits for that, and gives the
    /// memory of the part back.
    ///
    /// # Errors
    /// [`Error::Scratch`] if it cannot be written.
    pub fn write_back(&self, part: Range<usize>) -> Result<()> {
        let end = part.end.min(self.bytes());
        let length = end.saturating_sub(part.start);
        if length == 0 {
            return Ok(());
        }
        self.map
            .flush_range(part.start, length)
            .map_err(|source| self.failed("write", length, source))?;
        self.forget(part)
    }

    /// Gives the memory of a part of the file back, as far as it need not be written first: the
    /// system begins to write what has changed, and keeps it until that is done.
    ///
    /// # Errors
    /// [`Error::Scratch`] if the system refuses.
    pub fn forget(&self, part: Range<usize>) -> Result<()> {
        let end = part.end.min(self.bytes());
        let length = end.saturating_sub(part.start);
        if length == 0 {
            return Ok(());
        }
        // SAFETY: a shared mapping of a file keeps what was written to it in the file's own pages;
        // the advice only ends that this process sees them at these addresses, until it looks again.
        unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, part.start, length)
        }
        .map_err(|source| self.failed("drop", length, source))?;
        give_up_pages(&self.file, part.start as u64, length as u64)
            .map_err(|source| self.failed("drop", length, source))
    }

    fn failed(&self, action: &'static str, bytes: usize, source: io::Error) -> Error {
        failure(action, &self.purpose, &self.folder, bytes, source)
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        mapped().remove(&self.map.as_ptr().addr());
    }
}

impl fmt::Debug for ScratchFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScratchFile")
            .field("folder", &self.folder)
            .field("purpose", &self.purpose)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// The file in which a contiguous tensor lies, and which of its bytes are the tensor's; none for one
/// in ordinary memory.
#[must_use]
pub fn under(tensor: &Tensor) -> Option<(Arc<ScratchFile>, Range<usize>)> {
    if tensor.device() != Device::Cpu || tensor.numel() == 0 || !tensor.is_contiguous() {
        return None;
    }
    let address = tensor.data_ptr().addr();
    let (first, file) = {
        let mapped = mapped();
        let (first, file) = mapped.range(..=address).next_back()?;
        (*first, file.upgrade()?)
    };
    let start = address - first;
    let end = start + tensor.numel() * tensor.kind().elt_size_in_bytes();
    (end <= file.bytes()).then_some((file, start..end))
}

fn failure(
    action: &'static str,
    purpose: &str,
    folder: &Path,
    bytes: usize,
    source: io::Error,
) -> Error {
    Error::Scratch {
        action,
        bytes: bytes as u64,
        purpose: purpose.to_owned(),
        folder: folder.to_owned(),
        free: free_bytes(folder),
        source,
    }
}

/// How much the disk of a folder still takes, where the system says it.
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Takes room on the disk, which reads as zeros.
#[cfg(target_os = "linux")]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::{Errno, retry_on_intr};
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        Ok(()) => Ok(()),
        // Not every file system can.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, bytes),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    write_zeros(file, bytes)
}

fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    // Found out before the disk is full, as far as the system says it.
    if let Ok(found) = rustix::fs::fstatvfs(file)
        && found.f_bavail.saturating_mul(found.f_frsize) < bytes
    {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let zeros = vec![0; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(zeros.len());
        file.write_all(&zeros[..count])?;
        left -= count as u64;
    }
    Ok(())
}

#[cfg(unix)]
fn read_at(file: &File, room: &mut [u8], start: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, room, start)
}

#[cfg(windows)]
fn read_at(file: &File, room: &mut [u8], start: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, room, start)
}

/// Takes pages that are on the disk out of the system's memory.
#[cfg(target_os = "linux")]
fn give_up_pages(file: &File, start: u64, length: u64) -> io::Result<()> {
    use rustix::fs::{Advice, fadvise};
    Ok(fadvise(
        file,
        start,
        std::num::NonZeroU64::new(length),
        Advice::DontNeed,
    )?)
}

#[cfg(not(target_os = "linux"))]
fn give_up_pages(_file: &File, _start: u64, _length: u64) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 64 * 1024;

    fn counted(file: &Arc<ScratchFile>) -> Result<Tensor> {
        let tensor = file.tensor(0, Kind::Float, &[COUNT as i64])?;
        let numbers = Tensor::f_arange(COUNT as i64, (Kind::Float, Device::Cpu))?;
        tensor.shallow_clone().f_copy_(&numbers)?;
        Ok(tensor)
    }

    #[test]
    fn numbers_stay_when_their_memory_goes() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let file = ScratchFile::create(folder.path(), "a test", COUNT * 4)?;
        let zeros = file.tensor(0, Kind::Float, &[COUNT as i64])?;
        assert_eq!(zeros.f_abs()?.f_max()?.double_value(&[]), 0.0);
        let tensor = counted(&file)?;
        let sum = tensor.f_sum(Kind::Double)?.double_value(&[]);
        file.forget(0..COUNT * 4)?;
        assert_eq!(tensor.f_sum(Kind::Double)?.double_value(&[]), sum);
        file.write_back(0..COUNT * 4)?;
        assert_eq!(tensor.f_sum(Kind::Double)?.double_value(&[]), sum);
        // Parts that do not begin with a page, and end behind the file.
        file.write_back(4097..usize::MAX)?;
        file.read_ahead(4097..usize::MAX, &mut [0; 1000])?;
        assert_eq!(tensor.f_sum(Kind::Double)?.double_value(&[]), sum);
        Ok(())
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_was_written_back_is_in_no_memory_of_the_process() -> Result<()> {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages = text.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
            pages * 4096
        };
        let folder = tempfile::tempdir().unwrap();
        let bytes = 64 << 20;
        let file = ScratchFile::create(folder.path(), "a test", bytes)?;
        let tensor = file.tensor(0, Kind::Uint8, &[bytes as i64])?;
        let _ = tensor.shallow_clone().f_fill_(1)?;
        let before = resident();
        file.write_back(0..bytes)?;
        assert!(
            resident() + (48 << 20) < before,
            "{} of {before}",
            resident()
        );
        Ok(())
    }

    #[test]
    fn the_file_goes_with_its_last_tensor_and_has_no_name() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("made").join("on demand");
        let file = ScratchFile::create(&inside, "a test", COUNT * 4)?;
        let weak = Arc::downgrade(&file);
        let view = counted(&file)?.f_narrow(0, 5, 1)?;
        drop(file);
        assert_eq!(view.double_value(&[0]), 5.0);
        assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 0);
        drop(view);
        assert!(weak.upgrade().is_none());
        Ok(())
    }

    #[test]
    fn the_file_under_a_tensor_is_found() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let first = ScratchFile::create(folder.path(), "one", 400)?;
        let second = ScratchFile::create(folder.path(), "two", 400)?;
        let tensor = second.tensor(40, Kind::Float, &[10])?;
        let view = tensor.f_narrow(0, 2, 3)?;
        let (file, part) = under(&view).unwrap();
        assert!(Arc::ptr_eq(&file, &second));
        assert_eq!(part, 48..60);
        let (file, part) = under(&first.tensor(0, Kind::Int64, &[50])?).unwrap();
        assert_eq!((file.purpose(), part), ("one", 0..400));
        assert!(under(&Tensor::from_slice(&[1f32])).is_none());
        assert!(under(&tensor.f_narrow(0, 0, 0)?).is_none());
        Ok(())
    }

    #[test]
    fn a_tensor_stays_within_its_file() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let file = ScratchFile::create(folder.path(), "a test", 16)?;
        assert!(file.tensor(0, Kind::Float, &[2, 2]).is_ok());
        for (start, shape) in [(0, [5]), (4, [4]), (2, [1]), (0, [-1]), (0, [i64::MAX])] {
            let error = file.tensor(start, Kind::Float, &shape).unwrap_err();
            assert!(error.to_string().contains("within 16 bytes"), "{error}");
        }
        Ok(())
    }

    #[test]
    fn a_folder_that_cannot_be_and_a_disk_that_is_too_small_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = ScratchFile::create(file.join("inside"), "the state of rank 1", 8).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("8 bytes of the state of rank 1"), "{text}");
        assert!(text.contains("cannot make the folder for"), "{text}");
        assert!(text.contains("inside`"), "{text}");
        // More than any file system holds.
        let error = ScratchFile::create(folder.path(), "a test", 1 << 60).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("cannot reserve"), "{text}");
        assert!(text.contains("bytes free"), "{text}");
    }
}
