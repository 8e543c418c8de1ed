//! Where shards are between their uses.

use std::path::PathBuf;
use std::sync::Arc;

use accelerate_plan::parallel::{Offload, Storage};
use accelerate_torch::scratch::ScratchFile;
use tch::{Device, Kind, Tensor};

use crate::Result;
use crate::offload::DiskFolder;
use crate::parallel::sharded::flat::{Kinds, length};

/// Where one shard is.
#[derive(Debug, Clone)]
pub(in crate::parallel::sharded) enum Home {
    /// On the device that computes.
    Device,
    /// In CPU memory.
    Cpu { is_pinned: bool },
    /// In a file of its own.
    Disk {
        folder: DiskFolder,
        file: Arc<ScratchFile>,
    },
}

/// Where the shards of one storage are.
#[derive(Debug, Clone)]
pub(in crate::parallel::sharded) struct Homes {
    pub(in crate::parallel::sharded) parameters: Home,
    pub(in crate::parallel::sharded) gradients: Home,
    /// Where whole tensors are put that a rank keeps until they are saved, if anything is on disk.
    pub(in crate::parallel::sharded) spill: Option<DiskFolder>,
}

/// The folders of a rank by their paths, each with its threads.
#[derive(Debug, Default)]
pub(in crate::parallel::sharded) struct Folders {
    known: Vec<(PathBuf, DiskFolder)>,
}

impl Home {
    /// A vector without defined content.
    pub(in crate::parallel::sharded) fn room(
        &self,
        count: usize,
        kind: Kind,
        device: Device,
    ) -> Result<Tensor> {
        let count = length(count);
        match self {
            Self::Device => Ok(Tensor::f_empty([count], (kind, device))?),
            Self::Cpu { is_pinned } => {
                let room = Tensor::f_empty([count], (kind, Device::Cpu))?;
                match (is_pinned, device) {
                    (true, Device::Cuda(_)) => Ok(room.f_pin_memory(device)?),
                    _ => Ok(room),
                }
            }
            Self::Disk { file, .. } => Ok(file.tensor(0, kind, &[count])?),
        }
    }

    /// Whether its memory is another's to give and take.
    pub(in crate::parallel::sharded) fn is_on_disk(&self) -> bool {
        matches!(self, Self::Disk { .. })
    }

    /// Begins to read a shard that is needed soon.
    pub(in crate::parallel::sharded) fn read_ahead(&self, shard: &Tensor) -> Result<()> {
        match self {
            Self::Disk { folder, .. } => folder.read_ahead(&[shard.shallow_clone()]),
            Self::Device | Self::Cpu { .. } => Ok(()),
        }
    }

    /// Begins to drop a shard that was used.
    pub(in crate::parallel::sharded) fn forget(&self, shard: &Tensor) -> Result<()> {
        match self {
            Self::Disk { folder, .. } => folder.forget(&[shard.shallow_clone()]),
            Self::Device | Self::Cpu { .. } => Ok(()),
        }
    }

    /// Begins to write a shard that was changed, and to drop it.
    pub(in crate::parallel::sharded) fn write_back(&self, shard: &Tensor) -> Result<()> {
        match self {
            Self::Disk { folder, .. } => folder.write_back(&[shard.shallow_clone()]),
            Self::Device | Self::Cpu { .. } => Ok(()),
        }
    }
}

impl Homes {
    /// The homes of a storage whose shards have `count` elements. Files are made here, with all of
    /// their room.
    ///
    /// # Errors
    /// A folder that cannot be written to, or has no room; the message names the rank.
    pub(in crate::parallel::sharded) fn open(
        offload: &Offload,
        (folders, rank): (&mut Folders, usize),
        kinds: Kinds,
        device: Device,
        is_trained: bool,
        count: usize,
    ) -> Result<Self> {
        let bytes = count * kinds.master.elt_size_in_bytes();
        let mut home = |storage: &Storage, what: &str| {
            Ok(match storage {
                Storage::Device => Home::Device,
                Storage::Cpu { is_pinned } => Home::Cpu {
                    is_pinned: *is_pinned,
                },
                Storage::Disk { folder } => {
                    let folder = folders.at(folder, rank, offload)?;
                    let file = folder.file(what, bytes)?;
                    Home::Disk { folder, file }
                }
            })
        };
        let storage = parameters(offload, kinds, device, is_trained);
        let own = home(storage, "the parameters")?;
        let gradients = match (is_trained, &offload.gradients) {
            (false, _) => Home::Device,
            // A gradient is on the device of its parameter.
            (true, Storage::Device) if *storage != Storage::Device => {
                Home::Cpu { is_pinned: false }
            }
            (true, Storage::Cpu { .. } | Storage::Disk { .. }) if *storage == Storage::Device => {
                match device {
                    Device::Cpu => home(&offload.gradients, "the gradients")?,
                    _ => Home::Device,
                }
            }
            (true, storage) => home(storage, "the gradients")?,
        };
        let spill = match (&offload.optimizer_state, &offload.parameters) {
            (Storage::Disk { folder }, _) | (_, Storage::Disk { folder }) => {
                Some(folders.at(folder, rank, offload)?)
            }
            _ => None,
        };
        Ok(Self {
            parameters: own,
            gradients,
            spill,
        })
    }
}

/// Where what the optimizer updates is kept.
///
/// It goes with the state of the optimizer where it is another copy than what is computed with: in
/// another type, or because the optimizer computes on the CPU and the model does not.
fn parameters(offload: &Offload, kinds: Kinds, device: Device, is_trained: bool) -> &Storage {
    let is_a_copy = kinds.master != kinds.compute || device != Device::Cpu;
    match is_trained && is_a_copy && offload.optimizer_state != Storage::Device {
        true => &offload.optimizer_state,
        false => &offload.parameters,
    }
}

impl Folders {
    fn at(&mut self, path: &PathBuf, rank: usize, offload: &Offload) -> Result<DiskFolder> {
        if let Some((_, folder)) = self.known.iter().find(|(known, _)| known == path) {
            return Ok(folder.clone());
        }
        let folder = DiskFolder::new(path, rank, &offload.disk)?;
        self.known.push((path.clone(), folder.clone()));
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Kinds = Kinds {
        master: Kind::Float,
        compute: Kind::Float,
        reduce: Kind::Float,
    };
    const MIXED: Kinds = Kinds {
        compute: Kind::BFloat16,
        ..SAME
    };

    fn homes(
        offload: &Offload,
        kinds: Kinds,
        device: Device,
        is_trained: bool,
    ) -> [&'static str; 2] {
        let mut folders = Folders::default();
        let found = Homes::open(offload, (&mut folders, 0), kinds, device, is_trained, 10).unwrap();
        [found.parameters, found.gradients].map(|home| match home {
            Home::Device => "device",
            Home::Cpu { .. } => "cpu",
            Home::Disk { .. } => "disk",
        })
    }

    #[test]
    fn copies_of_parameters_are_with_the_optimizer() {
        let temporary = tempfile::tempdir().unwrap();
        let disk = Storage::Disk {
            folder: temporary.path().to_owned(),
        };
        let optimizer = Offload {
            parameters: Storage::Device,
            ..Offload::everything(disk.clone())
        };
        let (cpu, cuda) = (Device::Cpu, Device::Cuda(0));
        assert_eq!(homes(&optimizer, SAME, cpu, true), ["device", "disk"]);
        assert_eq!(homes(&optimizer, MIXED, cpu, true), ["disk", "disk"]);
        assert_eq!(homes(&optimizer, SAME, cuda, true), ["disk", "disk"]);
        assert_eq!(homes(&optimizer, MIXED, cpu, false), ["device", "device"]);
        let all = Offload::everything(disk.clone());
        assert_eq!(homes(&all, SAME, cpu, true), ["disk", "disk"]);
        assert_eq!(homes(&all, SAME, cpu, false), ["disk", "device"]);
        let parameters = Offload {
            parameters: disk,
            ..Offload::nothing()
        };
        assert_eq!(homes(&parameters, SAME, cuda, true), ["disk", "cpu"]);
        assert_eq!(homes(&Offload::nothing(), SAME, cuda, true), ["device"; 2]);
        let pinned = Offload::everything(Storage::Cpu { is_pinned: true });
        assert_eq!(homes(&pinned, SAME, cuda, true), ["cpu", "cpu"]);
    }

    #[test]
    fn rooms_are_where_they_are_said_to_be() -> Result<()> {
        let temporary = tempfile::tempdir().unwrap();
        let folder = DiskFolder::new(temporary.path(), 0, &Offload::nothing().disk)?;
        let home = Home::Disk {
            file: folder.file("a test", 40)?,
            folder,
        };
        let room = home.room(10, Kind::Float, Device::Cpu)?;
        let _ = room.shallow_clone().f_fill_(2.0)?;
        home.write_back(&room)?;
        assert!(accelerate_torch::scratch::under(&room).is_some());
        assert_eq!(room.f_sum(Kind::Float)?.double_value(&[]), 20.0);
        let pinned = Home::Cpu { is_pinned: true };
        let room = pinned.room(0, Kind::Float, Device::Cpu)?;
        assert_eq!((room.size(), room.device()), (vec![0], Device::Cpu));
        Ok(())
    }
}
