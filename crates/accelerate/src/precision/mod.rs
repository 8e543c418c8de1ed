//! Computing in a smaller floating-point type.
//!
//! [`MixedPrecision`] names what is wanted; a [`Precision`] is what it means on a device:
//! whether operations of the forward pass are cast (autocast), and whether the loss is scaled
//! so that small gradients survive ([`GradScaler`]).
//!
//! | precision | forward pass of a prepared model | loss scaling |
//! | --- | --- | --- |
//! | `no` | as it is | no |
//! | `bf16` | autocast to bfloat16, on CPUs too | no |
//! | `fp16` | autocast to float16 on accelerators | yes |
//! | `fp16` on a CPU | float32, with one warning, unless [`fp16_on_cpu`] is set | with that switch |
//! | `fp8` | an error that names what is missing | |
//!
//! Parameters and gradients stay float32. Floating-point outputs of a prepared model in a
//! half-sized type become float32, unless [`convert_outputs_to_fp32`] is off, and a loss
//! computed outside of the model is float32: autocast ends with the model's forward pass. For
//! code outside there is [`Accelerator::autocast`].
//!
//! float16 on a CPU works, but took 15 times the time of float32 (bfloat16: 10 times, without
//! hardware for either) in a step of a small perceptron, and its range asks for loss scaling.
//! The original leaves float32 there without a word; here it says so.
//!
//! [`fp16_on_cpu`]: crate::AcceleratorBuilder::fp16_on_cpu
//! [`convert_outputs_to_fp32`]: crate::AcceleratorBuilder::convert_outputs_to_fp32
//! [`Accelerator::autocast`]: crate::Accelerator::autocast

mod autocast;
mod deepspeed_scale;
mod grad_scaler;
mod scaler_kwargs;
mod scaler_state;

pub use accelerate_plan::MixedPrecision;
pub use accelerate_plan::parallel::{LossScaling, ScaleRule};
pub use autocast::{AutocastHook, AutocastKwargs, AutocastScope, convert_outputs_to_fp32};
pub use grad_scaler::GradScaler;
pub use scaler_kwargs::GradScalerKwargs;

use std::sync::Once;

use tch::{Device, Kind};

use crate::{Error, Result};

/// How mixed precision is to be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrecisionOptions {
    /// How autocast behaves.
    pub autocast: AutocastKwargs,
    /// How the loss is scaled.
    pub grad_scaler: GradScalerKwargs,
    /// By which rule: [`Fixed`](LossScaling::Fixed) and [`Dynamic`](LossScaling::Dynamic) stand instead
    /// of `grad_scaler`, and count in any precision, unless fp16 is not computed in.
    pub loss_scaling: LossScaling,
    /// Whether outputs of prepared models become float32.
    pub convert_outputs_to_fp32: bool,
    /// Whether fp16 really computes in float16 on a CPU.
    pub fp16_on_cpu: bool,
}

impl Default for PrecisionOptions {
    fn default() -> Self {
        Self {
            autocast: AutocastKwargs::default(),
            grad_scaler: GradScalerKwargs::default(),
            loss_scaling: LossScaling::Accelerator,
            convert_outputs_to_fp32: true,
            fp16_on_cpu: false,
        }
    }
}

/// What a mixed precision means on one device.
#[derive(Debug)]
pub struct Precision {
    mixed: MixedPrecision,
    device: Device,
    /// What operations are cast to; none where nothing is cast.
    kind: Option<Kind>,
    options: PrecisionOptions,
    scaler: Option<GradScaler>,
}

impl Precision {
    /// Decides what `mixed` means on `device`.
    ///
    /// # Errors
    /// A precision that this build cannot do on this device; settings of the scaler that
    /// cannot be right.
    pub fn new(mixed: MixedPrecision, device: Device, options: PrecisionOptions) -> Result<Self> {
        let kind = match mixed {
            MixedPrecision::No => None,
            MixedPrecision::Bf16 => Some(Kind::BFloat16),
            MixedPrecision::Fp16 if device == Device::Cpu && !options.fp16_on_cpu => {
                warn_of_fp16_on_cpu();
                None
            }
            MixedPrecision::Fp16 => Some(Kind::Half),
            MixedPrecision::Fp8 => {
                return Err(Error::Argument {
                    operation: "mixed_precision",
                    expected: "`no`, `fp16` or `bf16`: 8-bit floats need a GPU of compute \
                               capability 8.9 or more and kernels that this build does not have"
                        .to_owned(),
                    found: format!("`fp8` on {device:?}"),
                });
            }
        };
        let is_ruled = matches!(
            options.loss_scaling,
            LossScaling::Fixed(_) | LossScaling::Dynamic(_)
        );
        let is_left_out = mixed == MixedPrecision::Fp16 && kind.is_none();
        let scaler = match kind {
            _ if is_left_out => None,
            Some(Kind::Half) => Some(options.loss_scaling),
            _ if is_ruled => Some(options.loss_scaling),
            _ => None,
        };
        let scaler = scaler.map(|scaling| GradScaler::by_plan(scaling, options.grad_scaler));
        Ok(Self {
            mixed,
            device,
            kind,
            options,
            scaler: scaler.transpose()?,
        })
    }

    /// What was asked for.
    #[must_use]
    pub fn mixed_precision(&self) -> MixedPrecision {
        self.mixed
    }

    /// Whether anything is computed in a smaller type.
    #[must_use]
    pub fn is_native_amp(&self) -> bool {
        self.kind.is_some()
    }

    /// What scales the loss; none where that is not needed.
    #[must_use]
    pub fn scaler(&self) -> Option<&GradScaler> {
        self.scaler.as_ref()
    }

    /// What a prepared model gets; none where nothing is cast.
    #[must_use]
    pub fn hook(&self) -> Option<AutocastHook> {
        let convert = self.options.convert_outputs_to_fp32;
        let kind = self.kind?;
        if convert {
            note_converted_outputs();
        }
        Some(AutocastHook::new(
            self.device,
            kind,
            self.options.autocast,
            convert,
        ))
    }

    /// Autocast until the scope is dropped, with `kwargs` instead of the usual ones.
    ///
    /// # Errors
    /// If libtorch has no autocast for the device.
    pub fn autocast(&self, kwargs: Option<AutocastKwargs>) -> Result<AutocastScope> {
        let kwargs = kwargs.unwrap_or(self.options.autocast);
        AutocastScope::new(self.device, self.kind, kwargs)
    }
}

fn warn_of_fp16_on_cpu() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!(
            "mixed precision fp16 computes in float32 on a CPU: float16 is slow there; \
             use bf16, or `fp16_on_cpu(true)` for float16 all the same"
        );
    });
}

fn note_converted_outputs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::info!(
            "half-sized outputs of prepared models are converted to float32; \
             `convert_outputs_to_fp32(false)` keeps them"
        );
    });
}
