//! Filling places in order.

mod outcome;
mod split;

use std::collections::{BTreeMap, VecDeque};

use super::{
    DeviceMapError, InferOptions, Inferred, LargestLayer, MemorySize, ModuleShape, ModuleSizes,
    Placement, Step, Whole, compute_module_sizes, find_tied_parameters, queue::Item,
    shape::is_within, sizes::buffer_sizes, tied::tied_items,
};

/// Finds a place for every part of a model.
///
/// Places are filled in order: accelerators, CPU memory, disk. A module that does not fit is taken
/// apart if its class allows that. The first accelerator and the CPU keep enough free for the
/// largest layer that is still without a place, since it may have to come there to be computed.
/// Parts that share a tensor go to one place together. What fits nowhere else goes to disk.
///
/// The same model and the same options give the same map.
///
/// # Errors
/// [`DeviceMapError::Name`] if two parts of a module have one name, or one has no name or a dot in it.
///
/// # Source
/// `infer_auto_device_map`. Differs where that leaves tensors without a place or exceeds a limit:
/// - direct buffers of a module that is taken apart get a place of their own;
/// - tied parameters are told by whole names and not by parts of them, parts that are tied to parts
///   that come along come along too, and none counts twice;
/// - room for the largest layer is not kept for one that comes along and so is there already.
pub fn infer_auto_device_map(
    model: &ModuleShape,
    options: &InferOptions,
) -> Result<Inferred, DeviceMapError> {
    model.check_names()?;
    let mut fill = Fill::new(model, options);
    while let Some(item) = fill.queue.pop_front() {
        fill.take(item);
    }
    Ok(fill.finish(model))
}

/// A model on its way to its places.
struct Fill<'a> {
    options: &'a InferOptions,
    sizes: ModuleSizes,
    buffer_sizes: ModuleSizes,
    tied: Vec<Vec<String>>,
    /// Places in the order in which they are filled; the last one is the disk.
    places: Vec<Placement>,
    /// Those that keep room for the largest layer.
    computing: Vec<Placement>,
    queue: VecDeque<Item<'a>>,
    /// The largest layer that has no place yet.
    largest: LargestLayer,
    /// How many places are full.
    full: usize,
    used: BTreeMap<Placement, MemorySize>,
    /// What is kept free of places that are full.
    reserved: BTreeMap<Placement, MemorySize>,
    buffers: BTreeMap<Placement, MemorySize>,
    placed: Vec<(Item<'a>, Placement)>,
    minimum_required: BTreeMap<Placement, MemorySize>,
    steps: Vec<Step>,
}

/// A part that is looked at, with what comes along.
struct Candidate<'a> {
    item: Item<'a>,
    /// Its size.
    size: MemorySize,
    /// The names of other parts that share tensors with it, in the order of the queue.
    along: Vec<String>,
    /// Its size with theirs.
    size_along: MemorySize,
}

impl<'a> Fill<'a> {
    fn new(model: &'a ModuleShape, options: &'a InferOptions) -> Self {
        let sizes = compute_module_sizes(model, options.dtype, &options.special_dtypes);
        let mut places: Vec<_> = options.max_memory.iter().map(|(place, _)| place).collect();
        if places.last() != Some(&Placement::Disk) {
            places.push(Placement::Disk);
        }
        let queue = VecDeque::from(Item::parts_of("", model));
        let no_split = &options.no_split_module_classes;
        Self {
            largest: LargestLayer::among(&queue, &sizes, no_split),
            buffer_sizes: buffer_sizes(model, options.dtype, &options.special_dtypes),
            tied: find_tied_parameters(model),
            computing: computing(&places),
            options,
            sizes,
            places,
            queue,
            full: 0,
            used: BTreeMap::new(),
            reserved: BTreeMap::new(),
            buffers: BTreeMap::new(),
            placed: Vec::new(),
            minimum_required: BTreeMap::new(),
            steps: Vec::new(),
        }
    }

    /// Places an item, takes it apart, or goes on to the next place.
    fn take(&mut self, item: Item<'a>) {
        self.forget_layers(std::slice::from_ref(&item.name));
        let candidate = self.candidate(item);
        let place = self.place();
        if self.fits(&candidate) {
            return self.put(candidate, place);
        }
        let Some(limit) = self.options.max_memory.limit(place) else {
            return self.put(candidate, place);
        };
        let used = self.used_on(place);
        let reserved = self.reserve(place);
        let alone = used + candidate.size + reserved;
        let left = limit.saturating_sub(used + reserved);
        if alone <= limit && self.split_along(&candidate, place, left) {
            return self.queue.push_front(candidate.item);
        }
        let no_split = &self.options.no_split_module_classes;
        if alone >= limit
            && let Some(parts) = candidate.item.split(no_split)
        {
            return self.split(candidate, parts, place, left);
        }
        if self.options.fallback_allocation
            && used == MemorySize::ZERO
            && self.advance_smaller(&candidate, place, limit)
        {
            return;
        }
        self.close(candidate, place, limit);
    }

    /// The place that is filled now.
    fn place(&self) -> Placement {
        self.places
            .get(self.full)
            .copied()
            .unwrap_or(Placement::Disk)
    }

    fn used_on(&self, place: Placement) -> MemorySize {
        self.used.get(&place).copied().unwrap_or_default()
    }

    /// What is kept free on a place for the largest layer.
    fn reserve(&self, place: Placement) -> MemorySize {
        match self.computing.contains(&place) {
            true => self.largest.size,
            false => MemorySize::ZERO,
        }
    }

    fn candidate(&self, item: Item<'a>) -> Candidate<'a> {
        let along = tied_items(&item.name, &self.queue, &self.tied);
        let size = self.sizes.get(&item.name);
        let sizes = along.iter().map(|name| self.sizes.get(name));
        let others: MemorySize = sizes.sum();
        Candidate {
            size_along: size + others,
            item,
            size,
            along,
        }
    }

    fn fits(&self, candidate: &Candidate<'_>) -> bool {
        let place = self.place();
        let Some(limit) = self.options.max_memory.limit(place) else {
            return true;
        };
        let comes_along =
            |layer: &String| candidate.along.iter().any(|name| is_within(layer, name));
        // The largest layer needs no room besides itself.
        let reserved = match self.largest.names.iter().all(comes_along) {
            true if self.computing.contains(&place) => self.largest_without(&candidate.along),
            true => MemorySize::ZERO,
            false => self.reserve(place),
        };
        self.used_on(place) + candidate.size_along + reserved <= limit
    }

    /// The size of the largest layer in the queue outside of some items.
    fn largest_without(&self, names: &[String]) -> MemorySize {
        let others = self.queue.iter().filter(|item| !names.contains(&item.name));
        let modules = others.filter(|item| item.module.is_some());
        let no_split = &self.options.no_split_module_classes;
        LargestLayer::among(modules, &self.sizes, no_split).size
    }

    /// Looks for the largest layer again if none of those that are known is left without a place.
    fn forget_layers(&mut self, names: &[String]) {
        let is_gone = |layer: &String| names.iter().any(|name| is_within(layer, name));
        self.largest.names.retain(|layer| !is_gone(layer));
        if self.largest.names.is_empty() {
            self.find_largest();
        }
    }

    /// Looks for the largest layer among the modules of the queue.
    fn find_largest(&mut self) {
        let modules = self.queue.iter().filter(|item| item.module.is_some());
        let no_split = &self.options.no_split_module_classes;
        self.largest = LargestLayer::among(modules, &self.sizes, no_split);
    }

    fn put(&mut self, candidate: Candidate<'a>, place: Placement) {
        let Candidate {
            item,
            size_along: size,
            along,
            ..
        } = candidate;
        *self.used.entry(place).or_default() += size;
        let queue = std::mem::take(&mut self.queue).into_iter();
        let (coming, staying): (VecDeque<_>, _) =
            queue.partition(|other| along.contains(&other.name));
        self.queue = staying;
        self.forget_layers(&along);
        let limit = self.options.max_memory.limit(place);
        let taken = self.used_on(place) + self.reserve(place);
        self.steps.push(Step::Placed {
            name: item.name.clone(),
            size,
            place,
            along,
            left: limit.map(|limit| limit.saturating_sub(taken)),
        });
        for item in [item].into_iter().chain(coming) {
            *self.buffers.entry(place).or_default() += self.buffer_sizes.get(&item.name);
            self.placed.push((item, place));
        }
    }

    /// Goes on to the next place.
    fn close(&mut self, candidate: Candidate<'a>, place: Placement, limit: MemorySize) {
        let used = self.used_on(place);
        let reserved = self.reserve(place);
        if used == MemorySize::ZERO {
            let required = candidate.size_along + reserved;
            self.minimum_required.insert(place, required);
        }
        self.reserved.insert(place, reserved);
        self.steps.push(Step::Full {
            place,
            name: candidate.item.name.clone(),
            size: candidate.size_along,
            whole: whole(&candidate),
            used,
            reserved,
            limit,
        });
        self.full += 1;
        self.queue.push_front(candidate.item);
    }
}

/// The places where parts from elsewhere are computed.
fn computing(places: &[Placement]) -> Vec<Placement> {
    if places.contains(&Placement::Mps) {
        return vec![Placement::Mps];
    }
    let first = places.iter().find(|place| place.is_accelerator());
    first.copied().into_iter().chain([Placement::Cpu]).collect()
}

fn whole(candidate: &Candidate<'_>) -> Whole {
    match candidate.item.module {
        _ if !candidate.along.is_empty() => Whole::Tied {
            names: candidate.along.clone(),
        },
        Some(module) if !module.children.is_empty() => Whole::NoSplit {
            class: module.class.clone(),
        },
        _ => Whole::Leaf,
    }
}
