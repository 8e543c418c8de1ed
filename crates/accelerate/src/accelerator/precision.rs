use super::{Accelerator, PreparedModel};
use crate::nn::Module;
use crate::precision::{AutocastKwargs, AutocastScope, GradScaler, MixedPrecision, Precision};
use crate::{Error, Result};

impl Accelerator {
    /// What mixed precision was asked for.
    #[must_use]
    pub fn mixed_precision(&self) -> MixedPrecision {
        self.precision().mixed_precision()
    }

    /// What mixed precision means on this device.
    #[must_use]
    pub fn precision(&self) -> &Precision {
        &self.shared.precision
    }

    /// What scales the loss; none where that is not needed.
    #[must_use]
    pub fn scaler(&self) -> Option<&GradScaler> {
        self.precision().scaler()
    }

    /// Casts operations until the scope is dropped, as inside of prepared models.
    ///
    /// For code outside of them, such as a loss. Without mixed precision nothing changes.
    ///
    /// # Errors
    /// If libtorch has no autocast for the device.
    ///
    /// # Source
    /// `Accelerator.autocast`.
    pub fn autocast(&self) -> Result<AutocastScope> {
        self.precision().autocast(None)
    }

    /// As [`autocast`](Self::autocast), with settings for this scope alone.
    ///
    /// # Errors
    /// If libtorch has no autocast for the device.
    pub fn autocast_with(&self, kwargs: AutocastKwargs) -> Result<AutocastScope> {
        self.precision().autocast(Some(kwargs))
    }

    /// Divides the gradients of every prepared optimizer by the loss scale, so that they can be
    /// looked at. Those that are divided already stay; without loss scaling nothing changes.
    ///
    /// # Errors
    /// While gradients are accumulated: the batches to come would be added at another scale.
    ///
    /// # Source
    /// `Accelerator.unscale_gradients`. Differs: a second call does no harm, and a call at the
    /// wrong step is an error at once, where the original fails at the next call.
    pub fn unscale_gradients(&self) -> Result<()> {
        let Some(scaler) = self.scaler() else {
            return Ok(());
        };
        if !self.sync_gradients() {
            return Err(Error::Argument {
                operation: "unscale_gradients",
                expected: "a batch that completes the gradients; ask `sync_gradients()` first"
                    .to_owned(),
                found: "one in the middle of accumulation".to_owned(),
            });
        }
        scaler.unscale_of(None)
    }

    /// As [`unwrap_model`](Self::unwrap_model); whether the model keeps autocast and the
    /// conversion of its outputs is said here.
    ///
    /// # Source
    /// `Accelerator.unwrap_model` with `keep_fp32_wrapper`.
    #[must_use]
    pub fn unwrap_model_with<M: Module>(
        &self,
        model: PreparedModel<M>,
        keep_fp32_wrapper: bool,
    ) -> M {
        if keep_fp32_wrapper {
            model.into_inner_in_precision()
        } else {
            model.into_inner()
        }
    }
}
