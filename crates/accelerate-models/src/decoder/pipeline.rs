//! What decoder models share when they run as a pipeline.

use accelerate::nn::{Forward, IntoInput};
use accelerate::parallel::PipelineStep;
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::Tensor;

use super::{
    CausalLmInput, CausalLmOutput, CausalMask, DecoderLayerInput, Prepared, Reach, last_token,
};

/// What goes from one step of a decoder to the next.
///
/// # Shapes
/// `hidden`: the token ids, `[rows, tokens]`, then the states, `[rows, tokens, hidden_size]`, in the
/// end the score of each next token.
#[derive(Debug, Tree)]
pub struct CarriedStates {
    /// What the step works on.
    pub hidden: Tensor,
    /// What each token may look at, up to the last layer.
    pub mask: CausalMask,
    /// The position of each token, up to the embeddings.
    pub positions: Option<Tensor>,
    /// Cosines and sines of rotary positions, up to the last layer.
    pub angles: Option<(Tensor, Tensor)>,
    /// Whether only the last token is scored.
    pub last_only: bool,
}

impl CarriedStates {
    /// What the first step works on.
    pub(crate) fn begin(input: &CausalLmInput, reach: Reach) -> Result<Self> {
        let unfit = match (&input.labels, &input.cache) {
            (Some(_), _) => Some("labels: a loss over parts of a batch is not the batch's"),
            (None, Some(_)) => Some("a cache, which would be needed on several ranks"),
            (None, None) => None,
        };
        if let Some(found) = unfit {
            return Err(Error::Argument {
                operation: reach.model,
                expected: "a pipeline's input, that is token ids, mask and positions".to_owned(),
                found: found.to_owned(),
            });
        }
        let last_only = input.last_only;
        let mut decoder = input.decoder_input();
        let Prepared { positions, mask } = Prepared::new(&mut decoder, reach)?;
        Ok(Self {
            hidden: decoder.input_ids,
            mask,
            positions: Some(positions),
            angles: None,
            last_only,
        })
    }

    /// The positions, which only the first step needs.
    pub(crate) fn take_positions(&mut self) -> Result<Tensor> {
        self.positions.take().ok_or_else(|| Error::Argument {
            operation: "Pipelined::advance",
            expected: "positions, which `begin` makes".to_owned(),
            found: "none".to_owned(),
        })
    }

    /// The states behind a layer.
    pub(crate) fn through<L>(self, layer: &L) -> Result<Self>
    where
        L: Forward<Input = DecoderLayerInput, Output = Tensor>,
    {
        let hidden = layer.call(DecoderLayerInput {
            hidden: self.hidden.shallow_clone(),
            mask: (&self.mask).into_input(),
            angles: self
                .angles
                .as_ref()
                .map(|(cosines, sines)| (cosines.shallow_clone(), sines.shallow_clone())),
            cache: None,
        })?;
        Ok(Self { hidden, ..self })
    }

    /// The states behind the last normalisation, where no mask is needed any more.
    pub(crate) fn normed<N>(self, norm: &N) -> Result<Self>
    where
        N: Forward<Input = Tensor, Output = Tensor>,
    {
        Ok(Self {
            hidden: norm.call(self.hidden)?,
            mask: CausalMask::default(),
            angles: None,
            ..self
        })
    }

    /// The scores.
    pub(crate) fn scored<H>(self, head: &H) -> Result<Self>
    where
        H: Forward<Input = Tensor, Output = Tensor>,
    {
        let hidden = match self.last_only {
            true => last_token(&self.hidden)?,
            false => self.hidden.shallow_clone(),
        };
        Ok(Self {
            hidden: head.call(hidden)?,
            ..self
        })
    }

    /// The output.
    pub(crate) fn finish(self) -> CausalLmOutput {
        CausalLmOutput {
            loss: None,
            logits: self.hidden,
        }
    }
}

/// The steps of a decoder: embeddings, layers, normalisation, head.
pub(crate) fn decoder_steps(
    embeddings: PipelineStep,
    (layers, count): (&str, usize),
    norm: &str,
    head: &str,
) -> Vec<PipelineStep> {
    let layers = (0..count).map(|layer| PipelineStep::new(format!("{layers}.{layer}")));
    let ends = [norm, head].map(PipelineStep::new);
    [embeddings].into_iter().chain(layers).chain(ends).collect()
}

/// What a step of a decoder does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecoderStage {
    Embed,
    Layer(usize),
    Norm,
    Head,
}

impl DecoderStage {
    /// The step with this number of a decoder of so many layers.
    pub(crate) fn of(step: usize, layers: usize) -> Self {
        match step.checked_sub(1) {
            None => Self::Embed,
            Some(layer) if layer < layers => Self::Layer(layer),
            Some(next) if next == layers => Self::Norm,
            Some(_) => Self::Head,
        }
    }
}
