//! In which type numbers are kept, computed, sent and given back.

use std::fmt;

use super::FloatType;

/// Whether something changes its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cast {
    /// It stays as it is.
    AsIs,
    /// It becomes this type.
    To(FloatType),
}

impl Cast {
    /// The type of something that was `loaded`.
    pub fn of(self, loaded: FloatType) -> FloatType {
        match self {
            Self::AsIs => loaded,
            Self::To(to) => to,
        }
    }
}

impl fmt::Display for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsIs => f.pad("as it is"),
            Self::To(to) => f.pad(to.name()),
        }
    }
}

/// Whose floating inputs are cast to the type of the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InputCast {
    /// Nobody's.
    Nobody,
    /// The model's.
    Root,
    /// Each unit's.
    EveryUnit,
}

/// In which type everything is.
///
/// `parameters` is what a unit's parameters are gathered and computed in. What ranks keep between
/// steps, and what the optimizer updates, is the loaded type or float32: see
/// [`Precision::is_master_float32`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Precision {
    /// Parameters as they are gathered and computed with.
    pub parameters: Cast,
    /// Gradients while they are added up over ranks. [`Cast::AsIs`]: the type of the parameters that
    /// were computed with.
    pub reduction: Cast,
    /// Floating buffers.
    pub buffers: Cast,
    /// Floating outputs of the model.
    pub outputs: Cast,
    /// Whose floating inputs become the type of `parameters`.
    pub inputs: InputCast,
    /// Type in which the forward pass runs under autocast; [`Cast::AsIs`]: without.
    pub autocast: Cast,
    /// Whether what is kept and updated of each trainable parameter is float32, whatever type it was
    /// loaded in. If not, it is the loaded type, and so is the optimizer's state.
    pub is_master_float32: bool,
    /// How the loss is scaled.
    pub loss_scaling: LossScaling,
}

impl Precision {
    /// Everything in the type it was loaded in.
    pub const AS_LOADED: Self = Self {
        parameters: Cast::AsIs,
        reduction: Cast::AsIs,
        buffers: Cast::AsIs,
        outputs: Cast::AsIs,
        inputs: InputCast::Nobody,
        autocast: Cast::AsIs,
        is_master_float32: false,
        loss_scaling: LossScaling::Off,
    };

    /// The type of what ranks keep and the optimizer updates, for trainable parameters that were
    /// `loaded` in some type.
    pub fn master(&self, loaded: FloatType) -> FloatType {
        match self.is_master_float32 {
            true => FloatType::Float32,
            false => loaded,
        }
    }

    /// The type that parameters are computed in.
    pub fn compute(&self, loaded: FloatType) -> FloatType {
        self.parameters.of(self.master(loaded))
    }
}

/// How the loss is scaled before the backward pass, so that small gradients survive 16 bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossScaling {
    /// Not at all.
    Off,
    /// By the accelerator's own gradient scaler. Whether a gradient is infinite is asked of all
    /// ranks.
    Accelerator,
    /// By this number, always.
    Fixed(f64),
    /// By DeepSpeed's rule.
    Dynamic(ScaleRule),
}

/// DeepSpeed's rule for the scale of the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleRule {
    /// The first scale is 2 to this power.
    pub initial_scale_power: u32,
    /// Steps without overflow after which the scale doubles.
    pub window: u64,
    /// Overflows that are borne before the scale halves.
    pub hysteresis: u64,
    /// Whether each good step forgives earlier overflows.
    pub consecutive_hysteresis: bool,
    /// Least scale: an overflow at it ends the training.
    pub min_scale: f64,
}

impl Default for ScaleRule {
    fn default() -> Self {
        Self {
            initial_scale_power: 16,
            window: 1000,
            hysteresis: 2,
            consecutive_hysteresis: false,
            min_scale: 1.0,
        }
    }
}
