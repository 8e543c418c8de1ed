//! The types of numbers that FSDP is told apart from the accelerator's precision.

use crate::{
    config::{Value, inline_json},
    parallel::{Cast, FloatType, PlanError},
    settings::FsdpVersion,
};

/// Types of parameters, reduction, and buffers (version 1) or outputs (version 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrecisionPolicy {
    /// Parameters as they are computed with.
    pub parameters: Cast,
    /// Gradients while they are added up.
    pub reduction: Cast,
    /// Buffers. Version 2 leaves them alone.
    pub buffers: Cast,
    /// Outputs. Version 1 has no word for them.
    pub outputs: Cast,
}

impl PrecisionPolicy {
    /// One type for everything that the version has a word for.
    pub const fn all(float: FloatType, version: FsdpVersion) -> Self {
        let (buffers, outputs) = match version {
            FsdpVersion::One => (Cast::To(float), Cast::AsIs),
            FsdpVersion::Two => (Cast::AsIs, Cast::To(float)),
        };
        Self {
            parameters: Cast::To(float),
            reduction: Cast::To(float),
            buffers,
            outputs,
        }
    }

    /// Reads the name of one type, or a map with a type for each of `param_dtype`, `reduce_dtype`,
    /// and `buffer_dtype` (version 1) or `output_dtype` (version 2).
    ///
    /// # Errors
    /// [`PlanError::PrecisionPolicy`] with the keys that are needed and the names that are known.
    pub fn parse(value: &Value, version: FsdpVersion) -> Result<Self, PlanError> {
        let last = match version {
            FsdpVersion::One => "buffer_dtype",
            FsdpVersion::Two => "output_dtype",
        };
        let refused = || PlanError::PrecisionPolicy {
            found: inline_json(value),
            keys: ["param_dtype", "reduce_dtype", last],
        };
        match value {
            Value::Text(name) => {
                let float = FloatType::from_name(name).ok_or_else(refused)?;
                Ok(Self::all(float, version))
            }
            Value::Map(entries) => {
                let cast = |key: &str| match entries.get(key) {
                    Some(Value::Text(name)) => {
                        let float = FloatType::from_name(name).ok_or_else(refused)?;
                        Ok(Cast::To(float))
                    }
                    _ => Err(refused()),
                };
                let (parameters, reduction, last) =
                    (cast("param_dtype")?, cast("reduce_dtype")?, cast(last)?);
                let is_old = version == FsdpVersion::One;
                Ok(Self {
                    parameters,
                    reduction,
                    buffers: if is_old { last } else { Cast::AsIs },
                    outputs: if is_old { Cast::AsIs } else { last },
                })
            }
            _ => Err(refused()),
        }
    }
}
