//! In which types FSDP computes and keeps.

use super::{FsdpSettings, PrecisionPolicy};
use crate::{
    MixedPrecision,
    parallel::{Cast, FloatType, InputCast, LossScaling, ParallelPlan, Part, Precision},
    settings::Sourced,
};

impl FsdpSettings {
    /// Notes the types that the accelerator's precision asks for, or a policy of its own.
    pub(super) fn describe_precision(
        &self,
        plan: &mut ParallelPlan,
        mixed: &Sourced<MixedPrecision>,
    ) {
        let float = match mixed.value {
            MixedPrecision::No => None,
            MixedPrecision::Fp16 => Some(FloatType::Float16),
            MixedPrecision::Bf16 | MixedPrecision::Fp8 => Some(FloatType::BFloat16),
        };
        let own = self.policy.as_ref().map(|policy| policy.value);
        let Some(policy) =
            own.or_else(|| float.map(|float| PrecisionPolicy::all(float, self.version.value)))
        else {
            return;
        };
        match &self.policy {
            Some(given) => plan.origins.note(Part::Precision, &given.origin),
            None => plan.origins.note(Part::Precision, &mixed.origin),
        }
        let autocast = float.map_or(Cast::AsIs, Cast::To);
        let is_old = self.is_old();
        let is_mixed = float.is_some();
        plan.precision = Precision {
            parameters: policy.parameters,
            reduction: policy.reduction,
            buffers: policy.buffers,
            outputs: match is_old && is_mixed {
                true => Cast::To(FloatType::Float32),
                false => policy.outputs,
            },
            inputs: match is_old {
                true => InputCast::Root,
                false => InputCast::EveryUnit,
            },
            autocast: if is_old { autocast } else { Cast::AsIs },
            is_master_float32: is_mixed,
            loss_scaling: match float {
                Some(FloatType::Float16) => LossScaling::Accelerator,
                _ => LossScaling::Off,
            },
        };
    }
}
