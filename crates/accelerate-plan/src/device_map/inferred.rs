//! A device map that was found, and what was found out on the way.

use std::collections::BTreeMap;

use super::{DeviceMap, DeviceMapError, Explanation, MaxMemory, MemorySize, Placement};

/// A device map that was found, and what was found out on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Inferred {
    /// Which part of the model is where.
    pub device_map: DeviceMap,
    /// What each place holds of the model for good, disk included.
    pub used: BTreeMap<Placement, MemorySize>,
    /// What each place was allowed to hold.
    pub max_memory: MaxMemory,
    /// The largest part among those that are computed on another place than where they are kept.
    pub largest_offloaded: Option<(String, MemorySize)>,
    /// Buffers that are always on the accelerator and for which no accelerator has room.
    pub buffer_warning: Option<BufferWarning>,
    /// For each place that stayed empty because the next part did not fit: what it must be able to
    /// hold, so that this part would.
    pub minimum_required: BTreeMap<Placement, MemorySize>,
    /// Why each part is where it is.
    pub explanation: Explanation,
}

impl Inferred {
    /// Whether a part of the model waits in CPU memory or on disk to be computed on an accelerator,
    /// or on disk to be computed on the CPU.
    pub fn is_offloaded(&self) -> bool {
        self.largest_offloaded.is_some()
    }

    /// What a place holds of the model.
    pub fn used_on(&self, place: Placement) -> MemorySize {
        self.used.get(&place).copied().unwrap_or_default()
    }

    /// Checks that the place that computes has room for the largest part that comes to it from
    /// elsewhere, besides what it holds for good. Without a limit for that place nothing is checked.
    ///
    /// # Errors
    /// [`DeviceMapError::LimitTooSmall`] names the part, its size and the limit.
    pub fn check_room(&self) -> Result<(), DeviceMapError> {
        let place = self.main_device();
        let limit = self.max_memory.get(place).map(MemorySize::from_bytes);
        let (Some((block, size)), Some(limit)) = (&self.largest_offloaded, limit) else {
            return Ok(());
        };
        let used = self.used_on(place);
        if used + *size <= limit {
            return Ok(());
        }
        Err(DeviceMapError::LimitTooSmall {
            place,
            limit,
            used,
            block: block.clone(),
            size: *size,
        })
    }

    /// Where parts that are in CPU memory or on disk are computed: the first accelerator of the map.
    /// Without one it is the CPU, or the first accelerator where the CPU has no limit and so no part.
    pub fn main_device(&self) -> Placement {
        let place = self.device_map.main_device();
        if place != Placement::Cpu || self.max_memory.get(place).is_some() {
            return place;
        }
        let mut limits = self.max_memory.iter();
        let first = limits.find(|(place, bytes)| place.is_accelerator() && *bytes > 0);
        first.map_or(place, |(place, _)| place)
    }
}

/// Buffers of parts that are not on an accelerator, but stay on one all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferWarning {
    /// Their size.
    pub size: MemorySize,
}

impl std::fmt::Display for BufferWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "buffers of {} belong to parts that are not on an accelerator and stay on one all the \
             same, but no accelerator has room for them: with `offload_buffers` they wait with their \
             parts",
            self.size.exact()
        )
    }
}
