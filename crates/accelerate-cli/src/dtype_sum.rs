//! Sums over the tensors of each type.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;

/// All tensors of one type together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DtypeSum {
    pub(crate) dtype: &'static str,
    pub(crate) tensors: u64,
    pub(crate) elements: u64,
    pub(crate) bytes: u64,
}

impl DtypeSum {
    /// The sums of tensors, each given by its type, its elements and its bytes; the largest first.
    pub(crate) fn of(tensors: impl Iterator<Item = (&'static str, u64, u64)>) -> Vec<Self> {
        let mut sums: BTreeMap<&'static str, Self> = BTreeMap::new();
        for (dtype, elements, bytes) in tensors {
            let sum = sums.entry(dtype).or_insert(Self {
                dtype,
                tensors: 0,
                elements: 0,
                bytes: 0,
            });
            sum.tensors += 1;
            sum.elements = sum.elements.saturating_add(elements);
            sum.bytes += bytes;
        }
        let mut sums: Vec<Self> = sums.into_values().collect();
        sums.sort_by_key(|sum| Reverse(sum.bytes));
        sums
    }
}
