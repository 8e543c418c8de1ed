//! Limits that spread a model evenly.

use std::collections::HashSet;

use super::{
    InferOptions, MaxMemory, MemorySize, ModuleShape, ModuleSizes, Placement, compute_module_sizes,
};

/// How limits are balanced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Balance {
    /// Whether the first accelerator holds only what the others cannot, so that it has room for
    /// other things, such as the tokens that are generated.
    pub low_zero: bool,
    /// Whether the limits are what a machine has, and nobody chose them. A single accelerator then
    /// keeps a tenth for itself.
    pub detected: bool,
}

/// Lowers the limits of the accelerators so that each gets an equal part of the model and some
/// slack: as much as a block that may not be split, or a quarter more than the mean of the smallest
/// modules. The last accelerator keeps its limit, in case the slack was too small.
///
/// # Source
/// `get_balanced_memory`. Differs: accelerators may have any indices, a limit for the disk is let
/// be, and the first accelerator counts as one that is kept low only if it may hold anything.
pub fn get_balanced_memory(
    model: &ModuleShape,
    options: &InferOptions,
    balance: Balance,
) -> MaxMemory {
    let mut limits = options.max_memory.clone();
    let accelerators = limits.accelerators();
    let [first, .., last] = accelerators.as_slice() else {
        if let ([only], true) = (accelerators.as_slice(), balance.detected) {
            lower(&mut limits, *only, |bytes| bytes - bytes.div_ceil(10));
        }
        return limits;
    };
    let lowest = limits.iter().map(|(place, _)| place).next();
    let kept_low = (balance.low_zero && lowest == Some(*first)).then_some(*first);
    let sizes = compute_module_sizes(model, options.dtype, &options.special_dtypes);
    let shares = accelerators.len() - usize::from(kept_low.is_some());
    let share = sizes.total().bits() / 8 / shares as u128;
    let slack = slack(model, &sizes, &options.no_split_module_classes);
    let each = u64::try_from(share + slack).unwrap_or(u64::MAX);
    for place in accelerators.iter().filter(|place| *place != last) {
        if Some(*place) != kept_low {
            lower(&mut limits, *place, |_| each);
        }
    }
    if let Some(place) = kept_low {
        let others = accelerators.iter().filter(|other| **other != place);
        let others: MemorySize = others.filter_map(|place| limits.limit(*place)).sum();
        let rest = sizes.total().saturating_sub(others).bytes();
        lower(&mut limits, place, |_| rest);
    }
    limits
}

/// Sets a limit to what `to` makes of it, unless that is more.
fn lower(limits: &mut MaxMemory, place: Placement, to: impl FnOnce(u64) -> u64) {
    if let Some(bytes) = limits.get(place) {
        limits.insert(place, bytes.min(to(bytes)));
    }
}

/// The bytes that each accelerator gets beyond its equal part.
fn slack(model: &ModuleShape, sizes: &ModuleSizes, no_split: &[String]) -> u128 {
    let block = largest_first_block(model, sizes, no_split).bits();
    let mean = mean_of_last_modules(sizes) * 8;
    // Five quarters of the bits, in bytes.
    block.max(mean) * 5 / 4 / 8
}

/// For each class that may not be split the first module of it; of these the largest one's size.
fn largest_first_block(
    model: &ModuleShape,
    sizes: &ModuleSizes,
    no_split: &[String],
) -> MemorySize {
    let mut seen = HashSet::new();
    let blocks = sizes.iter().filter(|(name, _)| {
        let module = (!name.is_empty()).then(|| model.find(name)).flatten();
        module.is_some_and(|module| no_split.contains(&module.class) && seen.insert(&module.class))
    });
    blocks.map(|(_, size)| size).max().unwrap_or_default()
}

/// The mean size in bytes of the modules that hold tensors and no further modules.
fn mean_of_last_modules(sizes: &ModuleSizes) -> u128 {
    let named = sizes.iter().filter(|(name, _)| !name.is_empty());
    let named: Vec<_> = named.collect();
    let tensors = leaves(&named);
    let is_module = |name: &&str| !tensors.contains(*name);
    let modules: Vec<_> = named
        .iter()
        .filter(|(name, _)| is_module(name))
        .copied()
        .collect();
    let last = leaves(&modules);
    let sum: MemorySize = modules
        .iter()
        .filter(|(name, _)| last.contains(name))
        .map(|(_, size)| *size)
        .sum();
    sum.bits() / 8 / last.len().max(1) as u128
}

/// The names that are no other name's parent.
fn leaves<'a>(named: &[(&'a str, MemorySize)]) -> HashSet<&'a str> {
    let parents: HashSet<_> = named
        .iter()
        .filter_map(|(name, _)| name.rsplit_once('.'))
        .map(|(parent, _)| parent)
        .collect();
    let names = named.iter().map(|(name, _)| *name);
    names.filter(|name| !parents.contains(name)).collect()
}
