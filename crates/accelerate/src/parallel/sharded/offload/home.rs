//! Where shards are between their uses.

use std::path::Path;
use std::sync::Arc;

use accelerate_plan::parallel::{
    AfterForward, DiskTraffic, Offload, ParallelPlan, Quantised, Sharded, Storage,
};
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
    /// Of what the optimizer updates.
    pub(in crate::parallel::sharded) parameters: Home,
    /// Of a copy in the type that is computed in, if it is elsewhere and gathered as it is: in both
    /// passes.
    pub(in crate::parallel::sharded) computed: Option<Home>,
    pub(in crate::parallel::sharded) gradients: Home,
    /// Where whole tensors are put that a rank keeps until they are saved, if anything is on disk.
    pub(in crate::parallel::sharded) spill: Option<DiskFolder>,
}

/// The folders of a rank, each with its threads.
#[derive(Debug)]
pub(in crate::parallel::sharded) struct Folders {
    rank: usize,
    known: Vec<DiskFolder>,
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

    /// Whether a shard that is here can be sent, or received, where it is: it lies in memory of the
    /// device that computes.
    pub(in crate::parallel::sharded) fn is_at(&self, device: Device, shard: &Tensor) -> bool {
        !self.is_on_disk() && shard.device() == device
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
        plan: &ParallelPlan,
        folders: &mut Folders,
        kinds: Kinds,
        device: Device,
        is_trained: bool,
        count: usize,
    ) -> Result<Self> {
        let offload = &plan.offload;
        let mut home = |storage: &Storage, what: &str, kind: Kind| -> Result<Home> {
            Ok(match storage {
                Storage::Device => Home::Device,
                Storage::Cpu { is_pinned } => Home::Cpu {
                    is_pinned: *is_pinned,
                },
                Storage::Disk { folder } => {
                    let folder = folders.at(folder, &offload.disk)?;
                    let file = folder.file(what, count * kind.elt_size_in_bytes())?;
                    Home::Disk { folder, file }
                }
            })
        };
        let storage = updated(offload, kinds, device, is_trained);
        let parameters = home(storage, "the parameters", kinds.master)?;
        // Where it is gathered once a step it comes from where it is updated: so it is where the backward
        // pass has second shards. What is sent as small integers is rounded from there as well.
        let is_gathered_again = plan.sharded == Sharded::Parameters
            && plan.after_forward == AfterForward::Release
            && plan.weights == Quantised::No;
        let computed = match *storage != offload.parameters && is_gathered_again {
            true => {
                let what = "the parameters to compute with";
                Some(home(&offload.parameters, what, kinds.compute)?)
            }
            false => None,
        };
        let gradients = match gradients(offload, storage, device) {
            Some(storage) if is_trained => home(storage, "the gradients", kinds.master)?,
            _ => Home::Device,
        };
        let spill = match (&offload.optimizer_state, &offload.parameters) {
            (Storage::Disk { folder }, _) | (_, Storage::Disk { folder }) => {
                Some(folders.at(folder, &offload.disk)?)
            }
            _ => None,
        };
        Ok(Self {
            parameters,
            computed,
            gradients,
            spill,
        })
    }
}

/// Where what the optimizer updates is kept.
///
/// It goes with the state of the optimizer where it is another copy than what is computed with: in
/// another type, or because the optimizer computes on the CPU and the model does not.
fn updated(offload: &Offload, kinds: Kinds, device: Device, is_trained: bool) -> &Storage {
    let is_a_copy = kinds.master != kinds.compute || device != Device::Cpu;
    match is_trained && is_a_copy && offload.optimizer_state != Storage::Device {
        true => &offload.optimizer_state,
        false => &offload.parameters,
    }
}

/// Where gradients of parameters that are updated at `updated` are kept, if not with the computation:
/// a gradient is on the device of its parameter.
fn gradients<'o>(
    offload: &'o Offload,
    updated: &'o Storage,
    device: Device,
) -> Option<&'o Storage> {
    const CPU: &Storage = &Storage::Cpu { is_pinned: false };
    let is_away = offload.gradients != Storage::Device;
    match (is_away, *updated == Storage::Device) {
        (true, true) if device != Device::Cpu => None,
        (true, _) => Some(&offload.gradients),
        (false, false) => Some(CPU),
        (false, true) => None,
    }
}

impl Folders {
    /// None yet, of a rank.
    pub(in crate::parallel::sharded) fn new(rank: usize) -> Self {
        Self {
            rank,
            known: Vec::new(),
        }
    }

    fn at(&mut self, path: &Path, traffic: &DiskTraffic) -> Result<DiskFolder> {
        if let Some(folder) = self.known.iter().find(|known| known.path() == path) {
            return Ok(folder.clone());
        }
        let folder = DiskFolder::new(path, self.rank, traffic)?;
        self.known.push(folder.clone());
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use accelerate_plan::parallel::Mesh;

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

    fn plan(offload: Offload) -> ParallelPlan {
        let mesh = Mesh::sharded(NonZeroUsize::MIN);
        let mut plan = ParallelPlan::new(mesh, Sharded::Parameters);
        plan.offload = offload;
        plan
    }

    /// Where are what is updated, what is computed with if that is another copy, and gradients.
    fn homes(
        plan: &ParallelPlan,
        kinds: Kinds,
        device: Device,
        is_trained: bool,
    ) -> [&'static str; 3] {
        let mut folders = Folders::new(0);
        let found = Homes::open(plan, &mut folders, kinds, device, is_trained, 10).unwrap();
        let name = |home: Home| match home {
            Home::Device => "device",
            Home::Cpu { .. } => "cpu",
            Home::Disk { .. } => "disk",
        };
        let computed = found.computed.map_or("", name);
        [name(found.parameters), computed, name(found.gradients)]
    }

    #[test]
    fn copies_of_parameters_are_with_the_optimizer() {
        let temporary = tempfile::tempdir().unwrap();
        let disk = Storage::Disk {
            folder: temporary.path().to_owned(),
        };
        let pinned = Storage::Cpu { is_pinned: true };
        let (cpu, cuda) = (Device::Cpu, Device::Cuda(0));
        let mut optimizer = plan(Offload {
            parameters: Storage::Device,
            ..Offload::everything(disk.clone())
        });
        assert_eq!(homes(&optimizer, SAME, cpu, true), ["device", "", "disk"]);
        let apart = ["disk", "device", "disk"];
        assert_eq!(homes(&optimizer, MIXED, cpu, true), apart);
        assert_eq!(homes(&optimizer, SAME, cuda, true), apart);
        let frozen = ["device", "", "device"];
        assert_eq!(homes(&optimizer, MIXED, cpu, false), frozen);
        optimizer.sharded = Sharded::Gradients;
        assert_eq!(homes(&optimizer, MIXED, cpu, true), ["disk", "", "disk"]);
        // Nothing is gathered from there in the backward pass, or in the type that is computed in.
        optimizer.sharded = Sharded::Parameters;
        optimizer.after_forward = AfterForward::ReleaseTo(NonZeroUsize::MIN);
        assert_eq!(homes(&optimizer, MIXED, cpu, true), ["disk", "", "disk"]);
        optimizer.after_forward = AfterForward::Release;
        assert_eq!(homes(&optimizer, MIXED, cpu, true), apart);
        optimizer.weights = Quantised::Int8;
        assert_eq!(homes(&optimizer, MIXED, cpu, true), ["disk", "", "disk"]);
        let all = plan(Offload::everything(disk.clone()));
        assert_eq!(homes(&all, SAME, cpu, true), ["disk", "", "disk"]);
        assert_eq!(homes(&all, MIXED, cuda, true), ["disk", "", "disk"]);
        assert_eq!(homes(&all, SAME, cpu, false), ["disk", "", "device"]);
        let parameters = plan(Offload {
            parameters: disk,
            ..Offload::nothing()
        });
        assert_eq!(homes(&parameters, SAME, cuda, true), ["disk", "", "cpu"]);
        let nothing = plan(Offload::nothing());
        assert_eq!(homes(&nothing, SAME, cuda, true), ["device", "", "device"]);
        let memory = plan(Offload::everything(pinned));
        assert_eq!(homes(&memory, SAME, cuda, true), ["cpu", "", "cpu"]);
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
