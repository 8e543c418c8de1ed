//! What holds for every model and all limits.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::device_map::shape::is_within;

const DTYPES: [ElementType; 4] = [
    ElementType::Float32,
    ElementType::BFloat16,
    ElementType::Int64,
    ElementType::Int4,
];

fn tensors(prefix: &'static str, most: usize) -> impl Strategy<Value = Vec<TensorShape>> {
    let tensor = (0_u64..40, prop::sample::select(DTYPES.to_vec()));
    prop::collection::vec(tensor, 0..=most).prop_map(move |tensors| {
        let named = tensors.into_iter().enumerate();
        let named = named.map(|(index, (elements, dtype))| {
            TensorShape::parameter(format!("{prefix}{index}"), elements, dtype, 0)
        });
        named.collect()
    })
}

fn one_module(
    children: impl Strategy<Value = Vec<ModuleShape>>,
) -> impl Strategy<Value = ModuleShape> {
    let class = prop::sample::select(vec!["Linear", "Block", "Net"]);
    let tensors = (tensors("p", 2), tensors("b", 1));
    (class, tensors, children).prop_map(|(class, (parameters, buffers), children)| ModuleShape {
        parameters,
        buffers,
        children: sequential(children).children,
        ..ModuleShape::new("", class)
    })
}

/// Random trees in which some parameters are one.
fn models() -> impl Strategy<Value = ModuleShape> {
    let leaf = one_module(Just(Vec::new()));
    let tree = leaf.prop_recursive(4, 40, 5, |inner| {
        one_module(prop::collection::vec(inner, 0..5))
    });
    let ties = prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..4);
    (tree, ties).prop_map(|(tree, ties)| {
        let mut model = numbered(tree);
        let parameters = model.named_parameters();
        let names: Vec<_> = parameters.into_iter().map(|(name, _)| name).collect();
        for (from, to) in ties {
            if !names.is_empty() {
                let (from, to): (&String, &String) = (from.get(&names), to.get(&names));
                model = tied(model, from, to);
            }
        }
        model
    })
}

fn some_options() -> impl Strategy<Value = InferOptions> {
    let accelerators = prop::collection::btree_map(0_u32..6, 0_u64..2000, 0..4);
    let cpu = prop::option::of(0_u64..3000);
    let class = prop::option::of(prop::sample::select(vec!["Linear", "Block", "Net"]));
    let dtype = prop::option::of(prop::sample::select(DTYPES.to_vec()));
    (accelerators, cpu, class, dtype, any::<(bool, bool)>()).prop_map(
        |(accelerators, cpu, class, dtype, (fallback_allocation, offload_buffers))| {
            let accelerators = accelerators.into_iter();
            let limits = accelerators.map(|(index, bytes)| (Placement::Accelerator(index), bytes));
            let limits = limits.chain(cpu.map(|bytes| (Placement::Cpu, bytes)));
            InferOptions {
                no_split_module_classes: class.into_iter().map(str::to_owned).collect(),
                dtype,
                clean_result: false,
                offload_buffers,
                fallback_allocation,
                ..InferOptions::with_limits(limits.collect())
            }
        },
    )
}

/// All tensors with their names and sizes, as they are loaded; a tied one has its size each time.
fn all_tensors(model: &ModuleShape, options: &InferOptions) -> Vec<(String, u64, MemorySize)> {
    let mut named = model.named_parameters();
    named.extend(model.named_buffers());
    let loaded = |tensor: &TensorShape| match options.dtype {
        Some(dtype) if !tensor.dtype.is_whole_number() && dtype.bits() < tensor.dtype.bits() => {
            dtype.of(tensor.elements)
        }
        _ => tensor.size(),
    };
    let named = named.into_iter();
    named
        .map(|(name, tensor)| (name, tensor.identity, loaded(tensor)))
        .collect()
}

fn check(model: &ModuleShape, options: &InferOptions) -> Result<(), TestCaseError> {
    let found = infer_auto_device_map(model, options).unwrap();
    let map = &found.device_map;
    let mut held: BTreeMap<Placement, MemorySize> = BTreeMap::new();
    let mut total = MemorySize::ZERO;
    let mut places: BTreeMap<u64, Placement> = BTreeMap::new();
    for (name, identity, size) in all_tensors(model, options) {
        let covering = map.iter().filter(|(entry, _)| is_within(&name, entry));
        let covering: Vec<_> = covering.map(|(_, place)| place).collect();
        prop_assert_eq!(covering.len(), 1, "`{}` in {}", name, shown(map));
        match places.insert(identity, covering[0]) {
            None => {
                *held.entry(covering[0]).or_default() += size;
                total += size;
            }
            Some(other) => prop_assert_eq!(other, covering[0], "`{}` is tied", name),
        }
    }
    for (place, size) in &held {
        prop_assert_eq!(found.used_on(*place), *size);
        if let Some(limit) = options.max_memory.limit(*place) {
            prop_assert!(
                *size <= limit,
                "{} holds {}: {}",
                place,
                size,
                found.explanation
            );
        }
    }
    let first = options.max_memory.iter().next();
    if let Some((first, bytes)) = first
        && total <= MemorySize::from_bytes(bytes)
    {
        let elsewhere: HashSet<_> = map
            .placements()
            .into_iter()
            .filter(|p| *p != first)
            .collect();
        prop_assert!(elsewhere.is_empty(), "it fits: {}", found.explanation);
    }
    prop_assert!(map.check_device_map(model).is_ok());
    let cleaned = clean_device_map(map);
    for (name, ..) in all_tensors(model, options) {
        prop_assert_eq!(cleaned.placement_of(&name), map.placement_of(&name));
    }
    prop_assert_eq!(infer_auto_device_map(model, options).unwrap(), found);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn each_tensor_has_one_place_and_no_place_too_much(
        model in models(),
        options in some_options(),
    ) {
        check(&model, &options)?;
    }

    #[test]
    fn balanced_limits_are_never_above_those_that_were_given(
        model in models(),
        options in some_options(),
        low_zero in any::<bool>(),
    ) {
        let balance = Balance { low_zero, detected: false };
        let balanced = get_balanced_memory(&model, &options, balance);
        prop_assert_eq!(balanced.iter().len(), options.max_memory.iter().len());
        for (place, bytes) in balanced.iter() {
            prop_assert!(bytes <= options.max_memory.get(place).unwrap());
        }
        check(&model, &InferOptions { max_memory: balanced, ..options })?;
    }
}
