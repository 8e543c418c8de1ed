//! From the places of a map to devices of libtorch.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use accelerate_plan::device_map::{DeviceMap, MaxMemory, Placement};
use accelerate_torch::device;
use tch::Device;

use crate::{Error, Result};

/// Which device each place of a [`DeviceMap`] is.
///
/// Places are the machine's own devices, or [pretend](Self::pretend) ones: then every accelerator is
/// the CPU under another name, with a limit in bytes that is kept account of. So whatever runs on
/// several accelerators can be tried on a machine without one. A clone shares the account.
#[derive(Debug, Clone, Default)]
pub struct DeviceTable {
    pretended: Option<Rc<Account>>,
}

/// What pretended accelerators hold.
#[derive(Debug)]
struct Account {
    limits: MaxMemory,
    held: RefCell<BTreeMap<Placement, Held>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    now: u64,
    most: u64,
}

/// A place and the device it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) placement: Placement,
    pub(super) device: Device,
}

impl Site {
    pub(super) const CPU: Self = Self {
        placement: Placement::Cpu,
        device: Device::Cpu,
    };

    /// The place that a device of this machine is.
    pub(super) fn of(device: Device) -> Self {
        let placement = match device {
            Device::Cuda(index) => Placement::Accelerator(index as u32),
            Device::Mps => Placement::Mps,
            _ => Placement::Cpu,
        };
        Self { placement, device }
    }
}

impl DeviceTable {
    /// The devices of this machine.
    pub fn real() -> Self {
        Self::default()
    }

    /// Accelerators that are the CPU, each with a limit; a place without a limit is refused.
    pub fn pretend(limits: MaxMemory) -> Self {
        let held = RefCell::default();
        Self {
            pretended: Some(Rc::new(Account { limits, held })),
        }
    }

    /// The device of a place; none for the disk.
    ///
    /// # Errors
    /// [`Error::NoSuchPlace`] for an accelerator that is not there.
    pub fn resolve(&self, placement: Placement) -> Result<Option<Device>> {
        if let Some(account) = &self.pretended {
            return match placement {
                Placement::Disk => Ok(None),
                Placement::Cpu => Ok(Some(Device::Cpu)),
                _ if account.limits.get(placement).is_some() => Ok(Some(Device::Cpu)),
                _ => Err(no_such(
                    placement,
                    "pretended with a limit",
                    &account.limits,
                )),
            };
        }
        let found = match placement {
            Placement::Disk => return Ok(None),
            Placement::Cpu => return Ok(Some(Device::Cpu)),
            Placement::Mps => Device::Mps,
            Placement::Accelerator(index) => Device::Cuda(index as usize),
        };
        let (index, count) = match found {
            Device::Cuda(index) => (index, device::count(found)),
            _ => (0, usize::from(tch::utils::has_mps())),
        };
        if index < count {
            return Ok(Some(found));
        }
        Err(Error::NoSuchPlace {
            place: placement.to_string(),
            known: format!("this machine has {count} of that kind"),
        })
    }

    /// The limits of pretended places.
    pub(super) fn limits(&self) -> Option<&MaxMemory> {
        self.pretended.as_ref().map(|account| &account.limits)
    }

    pub(super) fn site(&self, placement: Placement) -> Result<Option<Site>> {
        let device = self.resolve(placement)?;
        Ok(device.map(|device| Site { placement, device }))
    }

    /// Where a map computes what it keeps in CPU memory or on disk.
    pub(super) fn main_site(&self, map: &DeviceMap) -> Result<Site> {
        Ok(self.site(map.main_device())?.unwrap_or(Site::CPU))
    }

    /// The bytes that a pretended accelerator holds; 0 for other places.
    pub fn held(&self, placement: Placement) -> u64 {
        self.account_of(placement).map_or(0, |held| held.now)
    }

    /// The most bytes that a pretended accelerator held at a time; 0 for other places.
    pub fn most_held(&self, placement: Placement) -> u64 {
        self.account_of(placement).map_or(0, |held| held.most)
    }

    fn account_of(&self, placement: Placement) -> Option<Held> {
        let account = self.pretended.as_ref()?;
        account.held.borrow().get(&placement).copied()
    }

    /// Takes note of bytes that come to a place.
    ///
    /// # Errors
    /// [`Error::PlaceFull`] if a pretended accelerator would hold more than its limit.
    pub(super) fn take(&self, placement: Placement, bytes: u64, what: &str) -> Result<()> {
        let Some((account, limit)) = self.limited(placement) else {
            return Ok(());
        };
        let mut all = account.held.borrow_mut();
        let held = all.entry(placement).or_default();
        if held.now.saturating_add(bytes) > limit {
            return Err(Error::PlaceFull {
                place: placement.to_string(),
                what: what.to_owned(),
                bytes,
                held: held.now,
                limit,
            });
        }
        held.now += bytes;
        held.most = held.most.max(held.now);
        Ok(())
    }

    /// Takes note of bytes that leave a place.
    pub(super) fn give_back(&self, placement: Placement, bytes: u64) {
        if let Some((account, _)) = self.limited(placement)
            && let Some(held) = account.held.borrow_mut().get_mut(&placement)
        {
            held.now = held.now.saturating_sub(bytes);
        }
    }

    fn limited(&self, placement: Placement) -> Option<(&Account, u64)> {
        let account = self.pretended.as_deref()?;
        let limit = account.limits.get(placement)?;
        placement.is_accelerator().then_some((account, limit))
    }
}

fn no_such(placement: Placement, what: &str, limits: &MaxMemory) -> Error {
    let places: Vec<String> = limits.iter().map(|(place, _)| place.to_string()).collect();
    Error::NoSuchPlace {
        place: placement.to_string(),
        known: format!("{what} are {}", places.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretended_accelerators_keep_account() {
        let table = DeviceTable::pretend("0=100,cpu=5".parse().unwrap());
        let place = Placement::Accelerator(0);
        assert_eq!(table.resolve(place).unwrap(), Some(Device::Cpu));
        assert_eq!(table.resolve(Placement::Disk).unwrap(), None);
        table.take(place, 60, "a").unwrap();
        let error = table.take(place, 41, "b").unwrap_err().to_string();
        assert!(
            error.contains("`b`") && error.contains("41") && error.contains("100"),
            "{error}"
        );
        table.give_back(place, 20);
        table.take(place, 41, "b").unwrap();
        assert_eq!((table.held(place), table.most_held(place)), (81, 81));
        // The CPU's limit is the map's matter.
        table.take(Placement::Cpu, 1000, "c").unwrap();
        let error = table.resolve(Placement::Accelerator(1)).unwrap_err();
        assert!(error.to_string().contains("`1`"), "{error}");
    }

    #[test]
    fn an_accelerator_that_is_not_there_is_refused() {
        let table = DeviceTable::real();
        let count = device::count(Device::Cuda(0)) as u32;
        assert!(table.resolve(Placement::Accelerator(count)).is_err());
        assert_eq!(table.resolve(Placement::Cpu).unwrap(), Some(Device::Cpu));
    }
}
