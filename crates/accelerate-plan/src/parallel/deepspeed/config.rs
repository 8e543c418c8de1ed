//! DeepSpeed's config when the accelerator is made.

use std::fmt;

use super::{document::{Document, flag}, python};
use crate::{MixedPrecision, settings::{Origin, Sourced}};

/// DeepSpeed's config with the plugin's values and the precision filled in. What depends on the model
/// and the loaders may still be `auto`.
///
/// Shown as Python shows the `dict`, which is what the original prints as `ds_config`.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepSpeedConfig {
    pub(super) document: Document,
    pub(super) stage: u64,
    pub(super) zero3_init: Sourced<bool>,
    pub(super) moe_layer_classes: Sourced<Vec<String>>,
    /// What was asked for and is done otherwise, one sentence each.
    pub(super) notes: Vec<String>,
}

impl DeepSpeedConfig {
    /// The stage of ZeRO: 0 to 3.
    pub const fn stage(&self) -> u64 {
        self.stage
    }

    /// The precision that the config asks for. The accelerator takes it from here.
    pub fn mixed_precision(&self) -> MixedPrecision {
        let is_on = |key: &str| self.document.get(key).and_then(flag) == Some(true);
        match (is_on("fp16.enabled"), is_on("bf16.enabled")) {
            (true, _) => MixedPrecision::Fp16,
            (_, true) => MixedPrecision::Bf16,
            _ => MixedPrecision::No,
        }
    }

    /// Whether a model is cut while it is built.
    pub const fn cuts_while_building(&self) -> bool {
        self.zero3_init.value
    }

    /// Whether the config names an optimizer.
    pub fn names_optimizer(&self) -> bool {
        self.document.has("optimizer")
    }

    /// Whether the config names a schedule.
    pub fn names_scheduler(&self) -> bool {
        self.document.has("scheduler")
    }

    /// Every key that is still `auto`, with dots between, in order.
    pub fn autos(&self) -> Vec<String> {
        self.document.autos()
    }

    /// Where the value of a key came from.
    pub fn origin(&self, key: &str) -> Origin {
        self.document.origin(key)
    }

    /// What was asked for and is done otherwise, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl fmt::Display for DeepSpeedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&python::dict(self.document.root()))
    }
}
