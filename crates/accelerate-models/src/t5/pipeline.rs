//! T5's encoder as a row of steps.

use accelerate::Result;
use accelerate::nn::Forward;
use accelerate::parallel::{PipelineStep, Pipelined};
use accelerate::tree::Tree;
use tch::Tensor;

use super::{T5BlockInput, T5EncoderInput, T5EncoderModel, mask};
use crate::token_ids::check_token_ids;

/// What goes from one step of T5's encoder to the next.
///
/// # Shapes
/// `hidden`: the token ids, `[rows, tokens]`, then the states, `[rows, tokens, d_model]`.
#[derive(Debug, Tree)]
pub struct T5Carried {
    /// What the step works on.
    pub hidden: Tensor,
    /// Which tokens a token may look at, up to the last block.
    pub mask: Option<Tensor>,
    /// The bias of relative positions, from the first block to the last.
    pub bias: Option<Tensor>,
}

impl Pipelined for T5EncoderModel {
    type Carried = T5Carried;

    fn steps(&self) -> Vec<PipelineStep> {
        let blocks = (0..self.encoder.block.len())
            .map(|block| PipelineStep::new(format!("encoder.block.{block}")));
        [PipelineStep::new("shared").with("encoder.embed_tokens")]
            .into_iter()
            .chain(blocks)
            .chain([PipelineStep::new("encoder.final_layer_norm")])
            .collect()
    }

    fn begin(&self, input: T5EncoderInput) -> Result<T5Carried> {
        let ids = input.input_ids;
        let (batch, tokens) = check_token_ids("T5EncoderModel", &ids, self.encoder.vocab_size)?;
        Ok(T5Carried {
            hidden: ids,
            mask: mask::padding(input.attention_mask, batch, tokens)?,
            bias: None,
        })
    }

    fn advance(&self, step: usize, carried: T5Carried) -> Result<T5Carried> {
        let stack = &self.encoder;
        let T5Carried { hidden, mask, bias } = carried;
        let Some(block) = step.checked_sub(1) else {
            let hidden = stack.dropout.call(stack.embed_tokens.call(hidden)?)?;
            return Ok(T5Carried { hidden, mask, bias });
        };
        let Some(block) = stack.block.get(block) else {
            return Ok(T5Carried {
                hidden: stack.dropout.call(stack.final_layer_norm.call(hidden)?)?,
                mask: None,
                bias: None,
            });
        };
        let (hidden, bias, _) = block.call(T5BlockInput {
            hidden,
            mask: mask.as_ref().map(Tensor::shallow_clone),
            bias,
            encoder_states: None,
            encoder_mask: None,
            encoder_bias: None,
            cache: None,
        })?;
        Ok(T5Carried { hidden, mask, bias })
    }

    fn finish(&self, carried: T5Carried) -> Result<Tensor> {
        Ok(carried.hidden)
    }
}
