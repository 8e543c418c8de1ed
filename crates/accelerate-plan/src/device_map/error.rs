//! Why there is no device map, or why one does not fit a model.

use super::{MemorySize, Placement};
use crate::{Hint, size_text::NoSize};

/// Why there is no device map, or why one does not fit a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceMapError {
    /// A text that is no place.
    #[error(
        "`{found}` is no place for a part of a model: expected the index of an accelerator such as \
         `0`, `mps`, `cpu` or `disk`"
    )]
    NoPlacement {
        /// The text.
        found: String,
    },

    /// A text that is no type of elements.
    #[error(
        "`{found}` is no type of elements: expected a name such as `float16`, `bfloat16`, `float32`, \
         `fp8`, `int8` or `int4`"
    )]
    NoElementType {
        /// The text.
        found: String,
    },

    /// A text that is no way of filling devices.
    #[error(
        "`{found}` is no way of making a device map: expected `auto`, `balanced`, `balanced_low_0` or \
         `sequential`"
    )]
    NoMode {
        /// The text.
        found: String,
    },

    /// The limit of a place is no size.
    #[error("cannot read the memory limit of `{place}`")]
    LimitSize {
        /// The place.
        place: Placement,
        /// What was found.
        #[source]
        source: NoSize,
    },

    /// A text without a place and its limit.
    #[error(
        "`{found}` is no memory limit: expected a place and a size, such as `0=10GB` or `cpu=30GiB`"
    )]
    NoLimit {
        /// The text.
        found: String,
    },

    /// A place with two limits.
    #[error("`{place}` has two memory limits")]
    LimitTwice {
        /// The place.
        place: Placement,
    },

    /// Memory limits that are no JSON, or not the right one.
    #[error("cannot read memory limits from JSON")]
    LimitsJson(#[source] serde_json::Error),

    /// A part of a model that cannot be told from others.
    #[error(
        "`{name}` cannot be the name of a part of {}: expected names without dots, each once",
        module_named(.module)
    )]
    Name {
        /// The module, `""` for the whole model.
        module: String,
        /// The name in it.
        name: String,
    },

    /// A map that leaves out parts of the model, or has names that the model lacks.
    #[error("the device map does not fit the model: {}", mismatch(.uncovered, .unknown))]
    Mismatch {
        /// The parameters and buffers of the model's state that no name of the map covers.
        uncovered: Vec<String>,
        /// The names of the map that the model lacks.
        unknown: Vec<UnknownName>,
    },

    /// A place that cannot hold even the largest part that must be computed there in one piece.
    #[error(
        "{}", too_small(*.place, *.limit, *.used, .block, *.size)
    )]
    LimitTooSmall {
        /// The place.
        place: Placement,
        /// What it may hold.
        limit: MemorySize,
        /// What it holds for good.
        used: MemorySize,
        /// The largest part that is placed elsewhere and computed here.
        block: String,
        /// Its size.
        size: MemorySize,
    },
}

/// A name of a device map that the model lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// The name of the model that is most like it.
    pub nearest: Option<String>,
}

impl Hint for DeviceMapError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Mismatch { uncovered, unknown } => {
                let alike = unknown
                    .iter()
                    .filter_map(|unknown| unknown.nearest.as_ref());
                let alike: Vec<_> = alike.map(|name| format!("`{name}`")).collect();
                if !alike.is_empty() {
                    return Some(format!("did you mean {}?", alike.join(", ")));
                }
                (!uncovered.is_empty())
                    .then(|| "the name `\"\"` places all that no other name covers".to_owned())
            }
            Self::LimitTooSmall {
                place, used, size, ..
            } => Some(format!(
                "give `{place}` at least {} bytes, load the model in a smaller type, or let the classes \
                 of larger blocks be split",
                (*used + *size).bytes()
            )),
            Self::LimitSize { .. } | Self::NoLimit { .. } | Self::LimitsJson(_) => Some(
                "limits are written as `0=10GB,cpu=30GB` or as JSON, `{\"0\": \"10GB\", \"cpu\": \
                 \"30GB\"}`"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

fn mismatch(uncovered: &[String], unknown: &[UnknownName]) -> String {
    let mut parts = Vec::new();
    if !uncovered.is_empty() {
        parts.push(format!("it has no place for {}", quoted(uncovered)));
    }
    if !unknown.is_empty() {
        let names = unknown.iter().map(|unknown| &unknown.name);
        parts.push(format!("the model has no {}", quoted(names)));
    }
    parts.join("; ")
}

fn quoted<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names = names.into_iter().map(|name| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}

fn module_named(name: &str) -> String {
    match name {
        "" => "the model".to_owned(),
        _ => format!("`{name}`"),
    }
}

fn too_small(
    place: Placement,
    limit: MemorySize,
    used: MemorySize,
    block: &str,
    size: MemorySize,
) -> String {
    let left = limit.saturating_sub(used);
    format!(
        "`{block}` must be whole on `{place}` to be computed and takes {}, but of the limit of {} only \
         {} are left",
        size.exact(),
        limit.exact(),
        left.exact()
    )
}
