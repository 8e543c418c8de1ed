//! One weight that comes where it is computed with and goes again.

use std::cell::RefCell;

use accelerate_torch::{meta, storage};
use tch::{Device, Kind, Tensor};

use super::devices::{DeviceTable, Site};
use super::source::{Source, Wanted, tensor_bytes};
use crate::Result;

/// A weight that is elsewhere while nobody computes with it. Names that are tied are one slot.
///
/// Coming and going may be nested: a module inside another may hold the same weight.
pub(super) struct Slot {
    key: usize,
    name: String,
    /// A handle on the module's tensor.
    tensor: Tensor,
    home: Home,
    /// Whether modules write into it, as into statistics.
    written: bool,
    stays: RefCell<Vec<Stay>>,
}

enum Home {
    /// The module's tensor is on the meta device, the values are in `source`.
    Away {
        source: Source,
        /// Where the module's tensor had its values before; none if it had none.
        from: Option<Device>,
    },
    /// The module's tensor has its values, and other places copies: each at most one.
    Copied(RefCell<Vec<(Site, Tensor)>>),
}

/// One time that the weight is where it is computed with.
struct Stay {
    /// What the module's tensor looked at before.
    before: Tensor,
    values: Tensor,
    site: Site,
    /// What was taken note of at the site for this stay.
    bytes: u64,
}

impl Slot {
    /// A weight whose values are in `source`; the tensor is put on the meta device.
    pub(super) fn away(key: usize, name: &str, tensor: &Tensor, source: Source) -> Result<Self> {
        let own = tensor.shallow_clone();
        let from = match meta::is_meta(&own)? {
            true => None,
            false => Some(own.device()),
        };
        if from.is_some() {
            let empty = meta::like(&own.f_detach()?)?;
            storage::replace(&own, &empty)?;
        }
        Ok(Self::new(key, name, own, Home::Away { source, from }))
    }

    /// A weight that is at `site` and computed with at other places too.
    pub(super) fn copied(key: usize, name: &str, tensor: &Tensor, site: Site) -> Result<Self> {
        let own = tensor.shallow_clone();
        let first = (site, own.f_detach()?);
        Ok(Self::new(
            key,
            name,
            own,
            Home::Copied(RefCell::new(vec![first])),
        ))
    }

    /// Says whether modules write into it: it is then never the memory of a file.
    pub(super) fn written(mut self, written: bool) -> Self {
        self.written = written;
        self
    }

    fn new(key: usize, name: &str, tensor: Tensor, home: Home) -> Self {
        Self {
            key,
            name: name.to_owned(),
            tensor,
            home,
            written: false,
            stays: RefCell::default(),
        }
    }

    /// The number of the slot among those of a model.
    pub(super) fn key(&self) -> usize {
        self.key
    }

    /// The first of its names.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The module's tensor.
    pub(super) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Where the values are kept, if not in the module's tensor.
    pub(super) fn source(&self) -> Option<&Source> {
        match &self.home {
            Home::Away { source, .. } => Some(source),
            Home::Copied(_) => None,
        }
    }

    /// The type that the module computes with.
    pub(super) fn kind(&self) -> Result<Kind> {
        Ok(match self.stays.borrow().first() {
            Some(stay) => stay.before.f_kind()?,
            None => self.tensor.f_kind()?,
        })
    }

    /// As what the weight is wanted at a site.
    pub(super) fn wanted(&self, site: Site) -> Result<Wanted> {
        Ok(Wanted {
            kind: self.kind()?,
            device: site.device,
        })
    }

    /// Whether the values are computed with where they are kept, if that is at `site`.
    pub(super) fn is_in_place(&self, site: Site) -> Result<bool> {
        match &self.home {
            Home::Away { source, .. } => source.is_in_place(&self.name, self.wanted(site)?),
            Home::Copied(_) => Ok(true),
        }
    }

    /// Puts the values into the module's tensor. `brought` gives them if somebody made them before.
    pub(super) fn enter(
        &self,
        site: Site,
        devices: &DeviceTable,
        brought: impl FnOnce() -> Result<Option<Tensor>>,
    ) -> Result<()> {
        let (values, bytes) = match self.here(site) {
            Some(values) => (values, 0),
            None => self.fetch(site, devices, brought)?,
        };
        let stay = Stay {
            before: self.tensor.f_detach()?,
            values,
            site,
            bytes,
        };
        if let Err(error) = storage::replace(&self.tensor, &stay.values) {
            devices.give_back(site.placement, bytes);
            return Err(error.into());
        }
        self.stays.borrow_mut().push(stay);
        Ok(())
    }

    /// The values if the weight is at this site already.
    fn here(&self, site: Site) -> Option<Tensor> {
        let stays = self.stays.borrow();
        let same = stays.iter().find(|stay| stay.site == site);
        same.map(|stay| stay.values.shallow_clone())
    }

    fn fetch(
        &self,
        site: Site,
        devices: &DeviceTable,
        brought: impl FnOnce() -> Result<Option<Tensor>>,
    ) -> Result<(Tensor, u64)> {
        let wanted = self.wanted(site)?;
        match &self.home {
            Home::Away { source, .. } => {
                let bytes = (self.tensor.numel() * wanted.kind.elt_size_in_bytes()) as u64;
                devices.take(site.placement, bytes, &self.name)?;
                let values = brought().and_then(|brought| match brought {
                    // A tied weight may have been brought for another place.
                    Some(values) if values.device() == wanted.device => Ok(values),
                    _ if self.written && source.mapped().is_some() => {
                        source.copied(&self.name, wanted)
                    }
                    _ => source.made(&self.name, wanted, None),
                });
                match values {
                    Ok(values) => Ok((values, bytes)),
                    Err(error) => {
                        devices.give_back(site.placement, bytes);
                        Err(error)
                    }
                }
            }
            Home::Copied(copies) => {
                let mut copies = copies.borrow_mut();
                if let Some((_, copy)) = copies.iter().find(|(known, _)| *known == site) {
                    return Ok((copy.shallow_clone(), 0));
                }
                // Stays there from now on, so nobody gives its bytes back.
                devices.take(site.placement, tensor_bytes(&self.tensor), &self.name)?;
                let copy = Source::Memory(self.tensor.f_detach()?).copied(&self.name, wanted)?;
                copies.push((site, copy.shallow_clone()));
                Ok((copy, 0))
            }
        }
    }

    /// Takes the values out again, and gives them if nobody here needs them any more.
    pub(super) fn leave(&self, devices: &DeviceTable) -> Result<Option<Tensor>> {
        let Some(stay) = self.stays.borrow_mut().pop() else {
            return Ok(None);
        };
        devices.give_back(stay.site.placement, stay.bytes);
        storage::replace(&self.tensor, &stay.before)?;
        let stays = self.stays.borrow();
        let is_last = stays.iter().all(|other| other.site != stay.site);
        let brought = is_last && matches!(self.home, Home::Away { .. });
        Ok(brought.then_some(stay.values))
    }

    /// Gives the module's tensor its values for good: where it had them before, or, if it had none and
    /// `bring_back` says so, in CPU memory.
    pub(super) fn go_home(&self, bring_back: bool) -> Result<()> {
        let Home::Away { source, from } = &self.home else {
            return Ok(());
        };
        let device = from.or(bring_back.then_some(Device::Cpu));
        // A tied weight comes with the first of its modules.
        if let Some(device) = device.filter(|_| meta::is_meta(&self.tensor).unwrap_or(false)) {
            let kind = self.kind()?;
            let values = match source {
                Source::Memory(kept) if kept.device() == device && kept.f_kind()? == kind => {
                    kept.shallow_clone()
                }
                _ => source.copied(&self.name, Wanted { kind, device })?,
            };
            storage::replace(&self.tensor, &values)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("name", &self.name)
            .field("offloaded", &self.source().is_some())
            .field("stays", &self.stays.borrow().len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody() -> Result<Option<Tensor>> {
        Ok(None)
    }

    #[test]
    fn values_come_and_go_also_nested() -> Result<()> {
        let devices = DeviceTable::pretend("0=16".parse().unwrap());
        let site = Site {
            placement: accelerate_plan::device_map::Placement::Accelerator(0),
            device: Device::Cpu,
        };
        let tensor = Tensor::from_slice(&[1f32, 2.0, 3.0]);
        let values = tensor.f_detach()?;
        let slot = Slot::away(0, "w", &tensor, Source::Memory(values))?;
        assert!(meta::is_meta(&tensor)?);
        slot.enter(site, &devices, nobody)?;
        slot.enter(site, &devices, nobody)?;
        // One copy, however often it is asked for.
        assert_eq!(devices.held(site.placement), 12);
        assert_eq!(tensor.double_value(&[2]), 3.0);
        assert!(slot.leave(&devices)?.is_none());
        assert_eq!(tensor.double_value(&[2]), 3.0);
        assert!(slot.leave(&devices)?.is_some());
        assert!(meta::is_meta(&tensor)?);
        assert_eq!(devices.held(site.placement), 0);
        assert!(slot.leave(&devices)?.is_none());
        Ok(())
    }

    #[test]
    fn a_weight_is_cast_to_the_type_of_the_module() -> Result<()> {
        let tensor = meta::empty(&[2], Kind::BFloat16)?;
        let kept = Tensor::from_slice(&[1f32, 2.0]);
        let slot = Slot::away(0, "w", &tensor, Source::Memory(kept))?;
        assert!(!slot.is_in_place(Site::CPU)?);
        slot.enter(Site::CPU, &DeviceTable::real(), nobody)?;
        assert_eq!(tensor.kind(), Kind::BFloat16);
        assert_eq!(tensor.double_value(&[1]), 2.0);
        slot.leave(&DeviceTable::real())?;
        slot.go_home(false)?;
        assert!(meta::is_meta(&tensor)?);
        slot.go_home(true)?;
        assert_eq!(tensor.double_value(&[1]), 2.0);
        Ok(())
    }
}
