//! What became of a model whose parts all have a place.

use super::{
    super::{
        BufferWarning, DeviceMap, Explanation, Inferred, LargestLayer, MemorySize, ModuleShape,
        Placement, clean_device_map,
    },
    Fill,
};

impl Fill<'_> {
    /// The map, and what is to be known of it.
    pub(super) fn finish(self, model: &ModuleShape) -> Inferred {
        let places = self.placed.iter();
        let map: DeviceMap = places.map(|(item, place)| (&*item.name, *place)).collect();
        let unused_classes = unused_classes(model, &self.options.no_split_module_classes);
        Inferred {
            largest_offloaded: self.largest_offloaded(map.main_device()),
            buffer_warning: self.buffer_warning(),
            device_map: match self.options.clean_result {
                true => clean_device_map(&map),
                false => map,
            },
            used: self.used,
            max_memory: self.options.max_memory.clone(),
            minimum_required: self.minimum_required,
            explanation: Explanation {
                steps: self.steps,
                unused_classes,
            },
        }
    }

    fn largest_offloaded(&self, main: Placement) -> Option<(String, MemorySize)> {
        let is_elsewhere = |place: Placement| match main {
            Placement::Cpu => place == Placement::Disk,
            _ => !place.is_accelerator(),
        };
        let items = self.placed.iter().filter(|(_, place)| is_elsewhere(*place));
        let items = items.map(|(item, _)| item);
        let no_split = &self.options.no_split_module_classes;
        let largest = LargestLayer::among(items, &self.sizes, no_split);
        let name = largest.names.into_iter().next()?;
        (largest.size > MemorySize::ZERO).then_some((name, largest.size))
    }

    fn buffer_warning(&self) -> Option<BufferWarning> {
        let on = |place: Placement| self.buffers.get(&place).copied().unwrap_or_default();
        let size = on(Placement::Cpu) + on(Placement::Disk);
        let limits = self.options.max_memory.iter();
        let mut accelerators = limits
            .filter(|(place, _)| place.is_accelerator())
            .peekable();
        if size == MemorySize::ZERO || self.options.offload_buffers || accelerators.peek().is_none()
        {
            return None;
        }
        let has_room = |(place, bytes): (Placement, u64)| {
            let reserved = self.reserved.get(&place).copied().unwrap_or_default();
            self.used_on(place) + reserved + size <= MemorySize::from_bytes(bytes)
        };
        (!accelerators.any(has_room)).then_some(BufferWarning { size })
    }
}

fn unused_classes(model: &ModuleShape, no_split: &[String]) -> Vec<String> {
    let mut unused = no_split.to_vec();
    model.visit(&mut |_, module| unused.retain(|class| *class != module.class));
    unused
}
