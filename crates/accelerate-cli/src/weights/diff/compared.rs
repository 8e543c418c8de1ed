//! Two sources, name by name.

use std::collections::BTreeMap;

use accelerate_formats::{
    Dtype, TensorHeader,
    compare::{self, Comparison, Tolerance},
    source::TensorSource,
};
use serde::Serialize;

use crate::weights::{error::Result, names::Patterns};

/// What counts as equal.
pub(super) struct Rules {
    pub(super) patterns: Patterns,
    pub(super) tolerance: Option<Tolerance>,
    pub(super) ignore_dtype: bool,
}

/// All that is not the same.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    pub(super) a: String,
    pub(super) b: String,
    pub(super) equal: bool,
    pub(super) compared: usize,
    pub(super) only_a: Vec<String>,
    pub(super) only_b: Vec<String>,
    pub(super) tensors: Vec<TensorDifference>,
}

impl Difference {
    /// Whether neither source has a tensor that was to be compared.
    pub(super) fn is_of_nothing(&self) -> bool {
        self.compared == 0 && self.only_a.is_empty() && self.only_b.is_empty()
    }
}

/// A tensor that both have, and that is not the same.
#[derive(Debug, Serialize)]
pub(super) struct TensorDifference {
    pub(super) name: String,
    pub(super) dtype_a: &'static str,
    pub(super) dtype_b: &'static str,
    pub(super) shape_a: Vec<usize>,
    pub(super) shape_b: Vec<usize>,
    pub(super) values: Option<Values>,
}

/// How far the numbers are apart.
#[derive(Debug, Serialize)]
pub(super) struct Values {
    pub(super) elements: u64,
    pub(super) different: u64,
    pub(super) beyond_tolerance: u64,
    pub(super) max_absolute: Option<f64>,
    pub(super) max_relative: Option<f64>,
    pub(super) nan_a: u64,
    pub(super) nan_b: u64,
    pub(super) infinite: u64,
}

impl From<Comparison> for Values {
    fn from(found: Comparison) -> Self {
        Self {
            elements: found.elements,
            different: found.different,
            beyond_tolerance: found.beyond,
            max_absolute: found.is_measured.then_some(found.max_absolute),
            max_relative: found.is_measured.then_some(found.max_relative),
            nan_a: found.first_nan,
            nan_b: found.second_nan,
            infinite: found.infinite,
        }
    }
}

/// A tensor under one of its names.
struct Named {
    header: TensorHeader,
}

/// All names of a source, those of tied tensors too, each with what is stored under it.
fn names(source: &dyn TensorSource, patterns: &Patterns) -> BTreeMap<String, Named> {
    let stored: BTreeMap<String, TensorHeader> = source
        .headers()
        .into_iter()
        .map(|header| (header.name.clone(), header))
        .collect();
    let aliases = source.aliases();
    let tied = aliases
        .iter()
        .filter_map(|(alias, owner)| Some((alias.clone(), stored.get(owner)?.clone())));
    let own = stored
        .iter()
        .map(|(name, header)| (name.clone(), header.clone()));
    own.chain(tied)
        .filter(|(name, _)| patterns.fit(name))
        .map(|(name, header)| (name, Named { header }))
        .collect()
}

pub(super) fn compare(
    first: &dyn TensorSource,
    second: &dyn TensorSource,
    rules: &Rules,
) -> Result<Difference> {
    let (ours, theirs) = (
        names(first, &rules.patterns),
        names(second, &rules.patterns),
    );
    let missing = |from: &BTreeMap<String, Named>, other: &BTreeMap<String, Named>| {
        let names = from.keys().filter(|name| !other.contains_key(*name));
        names.cloned().collect::<Vec<_>>()
    };
    let (only_a, only_b) = (missing(&ours, &theirs), missing(&theirs, &ours));
    let mut compared = 0;
    let mut tensors = Vec::new();
    for (name, one) in &ours {
        let Some(other) = theirs.get(name) else {
            continue;
        };
        compared += 1;
        let values = values((first, one), (second, other), rules)?;
        let same_dtype = rules.ignore_dtype || one.header.dtype == other.header.dtype;
        let close = values.is_some_and(|values| values.beyond == 0);
        if same_dtype && close {
            continue;
        }
        tensors.push(TensorDifference {
            name: name.clone(),
            dtype_a: one.header.dtype.name(),
            dtype_b: other.header.dtype.name(),
            shape_a: one.header.shape.clone(),
            shape_b: other.header.shape.clone(),
            values: values.map(Values::from),
        });
    }
    Ok(Difference {
        a: String::new(),
        b: String::new(),
        equal: only_a.is_empty() && only_b.is_empty() && tensors.is_empty(),
        compared,
        only_a,
        only_b,
        tensors,
    })
}

/// How the numbers differ, where they can be compared one by one.
fn values(
    (first, one): (&dyn TensorSource, &Named),
    (second, other): (&dyn TensorSource, &Named),
    rules: &Rules,
) -> Result<Option<Comparison>> {
    let dtypes = (one.header.dtype, other.header.dtype);
    if one.header.shape != other.header.shape || !are_comparable(dtypes) {
        return Ok(None);
    }
    let found = compare::compare(
        (dtypes.0, first.pieces(&one.header.name)?),
        (dtypes.1, second.pieces(&other.header.name)?),
        rules.tolerance,
    )?;
    Ok(Some(found))
}

/// Complex numbers are compared with complex numbers, packed floats with their own type.
fn are_comparable((one, other): (Dtype, Dtype)) -> bool {
    let is_complex = |dtype| matches!(dtype, Dtype::C64 | Dtype::C128);
    one == other
        || (is_complex(one) == is_complex(other)
            && one.size_in_bits() >= 8
            && other.size_in_bits() >= 8)
}
