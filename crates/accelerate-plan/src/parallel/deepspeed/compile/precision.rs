//! In which types DeepSpeed computes and keeps.

use super::Compiler;
use crate::{
    config::Value,
    parallel::{
        Cast, FloatType, InputCast, LossScaling, ParallelPlan, Part, PlanError, Precision,
        ScaleRule, deepspeed::document::flag,
    },
};

type Result<T> = std::result::Result<T, PlanError>;

impl Compiler<'_> {
    /// What is kept is always float32, whatever type the model was loaded in.
    pub(super) fn describe_precision(&self, plan: &mut ParallelPlan) -> Result<()> {
        let is_fp16 = self.document.flag("fp16.enabled", false)?;
        let is_bf16 = self.document.flag("bf16.enabled", false)?;
        let float = match (is_fp16, is_bf16) {
            (true, _) => FloatType::Float16,
            (_, true) => FloatType::BFloat16,
            _ => FloatType::Float32,
        };
        let casts_inputs = match float {
            FloatType::Float16 => self.document.flag("fp16.auto_cast", false)?,
            FloatType::BFloat16 => true,
            FloatType::Float32 => false,
        };
        let on_the_way = self.document.text("communication_data_type")?;
        plan.precision = Precision {
            parameters: Cast::To(float),
            reduction: on_the_way
                .as_deref()
                .and_then(float_named)
                .map_or(Cast::To(float), Cast::To),
            buffers: Cast::To(float),
            outputs: Cast::AsIs,
            inputs: match casts_inputs {
                true => InputCast::Root,
                false => InputCast::Nobody,
            },
            autocast: Cast::AsIs,
            is_master_float32: true,
            loss_scaling: match float {
                FloatType::Float16 => self.loss_scaling()?,
                _ => LossScaling::Off,
            },
        };
        for key in ["fp16.enabled", "bf16.enabled", "communication_data_type"] {
            let is_on = self.document.get(key).is_some_and(|value| !is_false(value));
            if is_on {
                self.note(plan, Part::Precision, key);
            }
        }
        Ok(())
    }

    fn loss_scaling(&self) -> Result<LossScaling> {
        let fixed = self.document.number("fp16.loss_scale", 0.0)?;
        if fixed != 0.0 {
            return Ok(LossScaling::Fixed(fixed));
        }
        let plain = ScaleRule::default();
        let power = self.document.whole("fp16.initial_scale_power", 16)?;
        Ok(LossScaling::Dynamic(ScaleRule {
            initial_scale_power: u32::try_from(power).unwrap_or(u32::MAX),
            window: self
                .document
                .whole("fp16.loss_scale_window", plain.window)?,
            hysteresis: self.document.whole("fp16.hysteresis", plain.hysteresis)?,
            consecutive_hysteresis: self
                .document
                .flag("fp16.consecutive_hysteresis", plain.consecutive_hysteresis)?,
            min_scale: self
                .document
                .number("fp16.min_loss_scale", plain.min_scale)?,
        }))
    }
}

fn is_false(value: &Value) -> bool {
    flag(value) == Some(false)
}

fn float_named(name: &str) -> Option<FloatType> {
    match name {
        "bfp16" => Some(FloatType::BFloat16),
        name => FloatType::from_name(name),
    }
}
