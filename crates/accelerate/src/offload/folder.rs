//! The folder in which one rank keeps what is not in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use accelerate_plan::parallel::DiskTraffic;
use accelerate_torch::scratch::{self, ScratchFile};
use tch::Tensor;

use super::traffic::{Area, Leaving, Traffic};
use crate::Result;

/// The most elements that are updated at once, whatever a plan allows: a part of each kind of state
/// is then 16 MiB in float32, and larger ones are not faster.
const MOST_AT_ONCE: usize = 4 << 20;
/// Parts begin at multiples of so many elements, so that kernels meet the same elements in their
/// vector registers as without parts.
const ALIGNMENT: usize = 64;
/// So many bytes between two tensors are moved with them.
const LITTLE: usize = 256 << 10;
/// The largest block that is read at once.
const MOST_IN_A_BLOCK: usize = 16 << 20;

/// A folder for the numbers of one rank that lie on disk, with the threads that move them: a handle.
///
/// Its files have no names: they take room of the disk, which `df` shows and a listing of the folder
/// does not, and are gone when the process ends, however it does.
#[derive(Debug, Clone)]
pub struct DiskFolder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    rank: usize,
    at_once: usize,
    traffic: Traffic,
}

impl DiskFolder {
    /// The folder at `path`, which is made when the first file comes into it, for the numbers of
    /// `rank`.
    ///
    /// Of `traffic`, the size of sub-groups and of blocks counts. Sub-groups are no larger than 4 Mi
    /// elements; reads and writes are always beside the training.
    ///
    /// # Errors
    /// [`Error::ThreadStart`](crate::Error::ThreadStart).
    pub fn new(path: impl Into<PathBuf>, rank: usize, traffic: &DiskTraffic) -> Result<Self> {
        let size = |wanted: u64, most: usize| usize::try_from(wanted).unwrap_or(most).min(most);
        let at_once = size(traffic.sub_group_size, MOST_AT_ONCE);
        let shared = Shared {
            path: path.into(),
            rank,
            at_once: (at_once - at_once % ALIGNMENT).max(ALIGNMENT),
            traffic: Traffic::start(size(traffic.block_bytes, MOST_IN_A_BLOCK))?,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The most elements that are in memory at once to be updated: a multiple of 64.
    pub(crate) fn at_once(&self) -> usize {
        self.shared.at_once
    }

    /// A file of so many bytes for what messages call `what`.
    ///
    /// # Errors
    /// The folder cannot be written to, or has no room; the message names the rank.
    pub(crate) fn file(&self, what: &str, bytes: usize) -> Result<Arc<ScratchFile>> {
        let purpose = format!("{what} of rank {}", self.shared.rank);
        Ok(ScratchFile::create(&self.shared.path, purpose, bytes)?)
    }

    /// Begins to read tensors that lie on disk and are needed soon.
    ///
    /// # Errors
    /// What went wrong before, on the threads of this folder; so for the others.
    pub(crate) fn read_ahead(&self, tensors: &[Tensor]) -> Result<()> {
        self.shared.traffic.read_ahead(areas(tensors))
    }

    /// Begins to write tensors that have changed, and to drop them.
    pub(crate) fn write_back(&self, tensors: &[Tensor]) -> Result<()> {
        let areas = areas(tensors);
        match areas.is_empty() {
            true => Ok(()),
            false => self.shared.traffic.leave(Leaving::WriteBack(areas)),
        }
    }

    /// Begins to drop tensors that were only read, or that are read again before they must be on disk.
    pub(crate) fn forget(&self, tensors: &[Tensor]) -> Result<()> {
        let areas = areas(tensors);
        match areas.is_empty() {
            true => Ok(()),
            false => self.shared.traffic.leave(Leaving::Forget(areas)),
        }
    }
}

/// The parts of files in which tensors lie; tensors in ordinary memory have none.
///
/// Parts of a file with little between them are one: to wait for the disk once costs less than to
/// wait for each tensor.
fn areas(tensors: &[Tensor]) -> Vec<Area> {
    let mut all: Vec<Area> = tensors
        .iter()
        .filter_map(scratch::under)
        .map(|(file, part)| Area { file, part })
        .collect();
    all.sort_by_key(|area| (Arc::as_ptr(&area.file).addr(), area.part.start));
    let mut joined: Vec<Area> = Vec::new();
    for area in all {
        match joined.last_mut() {
            Some(last)
                if Arc::ptr_eq(&last.file, &area.file)
                    && area.part.start <= last.part.end.saturating_add(LITTLE) =>
            {
                last.part.end = last.part.end.max(area.part.end);
            }
            _ => joined.push(area),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    fn folder(path: &Path) -> Result<DiskFolder> {
        DiskFolder::new(path, 3, &DiskTraffic::default())
    }

    #[test]
    fn tensors_that_are_close_are_moved_together() -> Result<()> {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder(temporary.path())?;
        let (one, two) = (folder.file("one", 1 << 20)?, folder.file("two", 4096)?);
        let tensors = [
            one.tensor(1 << 19, Kind::Float, &[1])?,
            one.tensor(400, Kind::Float, &[10])?,
            two.tensor(0, Kind::Float, &[3])?,
            one.tensor(80, Kind::Float, &[10])?,
            Tensor::from_slice(&[1f32]),
        ];
        let mut found: Vec<_> = areas(&tensors)
            .into_iter()
            .map(|area| (area.file.purpose().to_owned(), area.part))
            .collect();
        // Files come in any order.
        found.sort_by_key(|(purpose, part)| (purpose.clone(), part.start));
        let far = 1 << 19;
        assert_eq!(
            found,
            [
                ("one of rank 3".to_owned(), 80..440),
                ("one of rank 3".to_owned(), far..far + 4),
                ("two of rank 3".to_owned(), 0..12)
            ]
        );
        Ok(())
    }

    #[test]
    fn what_is_moved_keeps_its_numbers() -> Result<()> {
        let temporary = tempfile::tempdir().unwrap();
        let folder = folder(temporary.path())?;
        let file = folder.file("a test", 1 << 20)?;
        let tensor = file.tensor(0, Kind::Float, &[1 << 18])?;
        for number in 1..20 {
            let own = [tensor.shallow_clone()];
            folder.read_ahead(&own)?;
            let _ = tensor.shallow_clone().f_add_scalar_(1.0)?;
            match number % 2 {
                0 => folder.write_back(&own)?,
                _ => folder.forget(&own)?,
            }
            let sum = tensor.f_sum(Kind::Double)?.double_value(&[]);
            assert_eq!(sum, f64::from(number) * f64::from(1 << 18));
        }
        Ok(())
    }

    #[test]
    fn sub_groups_are_whole_vectors_and_no_larger_than_they_may_be() -> Result<()> {
        let of = |elements| -> Result<usize> {
            let traffic = DiskTraffic {
                sub_group_size: elements,
                ..DiskTraffic::default()
            };
            Ok(DiskFolder::new("unused", 0, &traffic)?.at_once())
        };
        assert_eq!(of(1000)?, 960);
        assert_eq!(of(1)?, 64);
        assert_eq!(of(u64::MAX)?, MOST_AT_ONCE);
        Ok(())
    }

    #[test]
    fn a_folder_that_cannot_be_is_told_with_the_rank() -> Result<()> {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = folder(&file)?
            .file("the optimizer's state", 64)
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("64 bytes of the optimizer's state of rank 3"),
            "{text}"
        );
        Ok(())
    }
}
