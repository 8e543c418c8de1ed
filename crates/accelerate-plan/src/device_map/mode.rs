//! Ways of filling devices.

use std::str::FromStr;

use super::{
    Balance, DeviceMapError, InferOptions, Inferred, ModuleShape, get_balanced_memory,
    infer_auto_device_map,
};
use crate::choice::named;

named! {
    /// A way of filling devices, as the argument `device_map` names it.
    Mode {
        /// The best that is known, which is `balanced`.
        Auto = "auto",
        /// Evenly over all accelerators.
        Balanced = "balanced",
        /// Evenly over all accelerators but the first, which gets what is left.
        BalancedLow0 = "balanced_low_0",
        /// Each accelerator up to its limit before the next one.
        Sequential = "sequential",
    }
}

impl Mode {
    /// Makes the device map of a model in this way.
    ///
    /// With `detected` limits, those of the machine that nobody chose, one accelerator keeps a tenth
    /// of its memory for what computes there.
    ///
    /// # Errors
    /// Those of [`infer_auto_device_map`].
    pub fn infer(
        self,
        model: &ModuleShape,
        options: &InferOptions,
        detected: bool,
    ) -> Result<Inferred, DeviceMapError> {
        let low_zero = match self {
            Self::Sequential => return infer_auto_device_map(model, options),
            Self::BalancedLow0 => true,
            Self::Auto | Self::Balanced => false,
        };
        let balance = Balance { low_zero, detected };
        let balanced = InferOptions {
            max_memory: get_balanced_memory(model, options, balance),
            ..options.clone()
        };
        infer_auto_device_map(model, &balanced)
    }
}

impl FromStr for Mode {
    type Err = DeviceMapError;

    /// # Errors
    /// [`DeviceMapError::NoMode`] for a text that names no way.
    fn from_str(text: &str) -> Result<Self, DeviceMapError> {
        Self::from_name(text).ok_or_else(|| DeviceMapError::NoMode {
            found: text.to_owned(),
        })
    }
}
