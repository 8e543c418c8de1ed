//! What decoder models share: their input, the causal mask, attention with rotary positions, and
//! the loss of predicting the next token.

mod attention;
mod input;
mod loss;
mod mask;
mod pipeline;
mod rope;

pub use self::attention::RotaryAttention;
pub use self::input::{
    CausalLmInput, CausalLmOutput, DecoderInput, DecoderLayerInput, DecoderOutput,
};
pub use self::loss::causal_lm_loss;
pub use self::mask::CausalMask;
pub use self::pipeline::CarriedStates;
pub use self::rope::RopeParameters;

pub(crate) use self::attention::{AttentionSizes, check_heads, joined_heads};
pub(crate) use self::input::{Prepared, Reach, last_token, step_input};
pub(crate) use self::pipeline::{DecoderStage, decoder_steps};
pub(crate) use self::rope::{RopeKeys, longest_sequence, rotary_settings};
