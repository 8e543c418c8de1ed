//! Mixed precision, as a plan names it.

use std::{fmt, str::FromStr};

use crate::Error;

/// In which lower precision the model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MixedPrecision {
    /// Everything stays in the precision of the model.
    #[default]
    No,
    /// Half precision with a scaled loss.
    Fp16,
    /// Brain float.
    Bf16,
    /// Eight-bit floats on the hardware that has them.
    Fp8,
}

impl MixedPrecision {
    /// All values, in the order in which messages list them.
    pub const ALL: [Self; 4] = [Self::No, Self::Fp16, Self::Bf16, Self::Fp8];

    /// The name used in flags, files and variables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }
}

impl fmt::Display for MixedPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for MixedPrecision {
    type Err = Error;

    /// Reads a name in any case.
    ///
    /// # Errors
    /// [`Error::UnknownPrecision`] for any other text.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.name().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| Error::UnknownPrecision {
                value: text.to_owned(),
            })
    }
}
