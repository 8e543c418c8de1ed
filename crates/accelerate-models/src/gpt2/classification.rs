//! GPT-2 with a head that classifies whole sequences.

use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::{Kind, Tensor};

use super::model::{IGNORED, init_module};
use super::{GPT2Config, GPT2Model};
use crate::bert::SequenceClassifierOutput;
use crate::decoder::DecoderInput;
use crate::loss::ProblemType;
use crate::pretrained::{Checkpoint, InitNode, PretrainedModel};

/// What [`GPT2ForSequenceClassification`] takes.
///
/// # Shapes
/// Each tensor is `[rows, tokens]`; labels are `[rows]`, or `[rows, num_labels]` where there can
/// be several for each row.
#[derive(Debug, Tree)]
pub struct GPT2SequenceInput {
    /// The token ids, int64 or int32.
    pub input_ids: Tensor,
    /// 1 where there is a token, 0 where there is padding; absent where there is none.
    pub attention_mask: Option<Tensor>,
    /// What the sequences are; with them there is a loss.
    pub labels: Option<Tensor>,
}

/// GPT-2 whose state of the last token, padding aside, goes through a linear layer.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct GPT2ForSequenceClassification {
    transformer: GPT2Model,
    score: Linear,
    #[module(skip)]
    config: GPT2Config,
    state: ModuleState,
}

impl PretrainedModel for GPT2ForSequenceClassification {
    type Config = GPT2Config;

    const CHECKPOINT: Checkpoint = Checkpoint::new("transformer")
        .with_heads(&["score"])
        .with_ignored(&[IGNORED[0], IGNORED[1], "lm_head.", "multiple_choice_head."]);
    const PARTS: &'static [&'static str] = &["transformer"];
    const NO_SPLIT: &'static [&'static str] = &["GPT2Block"];

    fn build(config: &GPT2Config, factory: &Factory) -> Result<Self> {
        Ok(Self {
            transformer: GPT2Model::new_part(config, factory)?,
            score: Linear::without_bias(config.n_embd, config.id2label.count(), factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &GPT2Config {
        &self.config
    }

    fn init_module(config: &GPT2Config, node: &InitNode<'_>) -> Result<()> {
        init_module(config, node)
    }
}

impl GPT2ForSequenceClassification {
    /// The place of each row's last token, `[rows]`: the rightmost that is no padding.
    fn last_places(&self, ids: &Tensor) -> Result<Tensor> {
        let (rows, tokens) = ids.size2()?;
        let options = (Kind::Int64, ids.device());
        let Some(pad) = self.config.pad_token_id else {
            if rows != 1 {
                return Err(Error::Argument {
                    operation: "GPT2ForSequenceClassification",
                    expected: "a configuration with `pad_token_id`, to find the end of each row"
                        .to_owned(),
                    found: format!("{rows} rows and no padding token"),
                });
            }
            return Ok(Tensor::f_full([1], tokens - 1, options)?);
        };
        let token = ids.f_ne(pad)?.f_to_kind(Kind::Int64)?;
        let places = Tensor::f_arange(tokens, options)?;
        Ok(token.f_mul(&places)?.f_argmax(-1, false)?)
    }

    fn loss(&self, logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let problem = match self.config.problem_type {
            Some(problem) => problem,
            None => ProblemType::of(labels, self.config.id2label.count())?,
        };
        problem.loss(logits, labels)
    }
}

impl Forward for GPT2ForSequenceClassification {
    type Input = GPT2SequenceInput;
    type Output = SequenceClassifierOutput;

    fn forward(&self, input: GPT2SequenceInput) -> Result<SequenceClassifierOutput> {
        let GPT2SequenceInput {
            input_ids,
            attention_mask,
            labels,
        } = input;
        let decoded = self.transformer.call(DecoderInput {
            input_ids: input_ids.shallow_clone(),
            attention_mask,
            position_ids: None,
            cache: None,
        })?;
        let hidden = decoded.last_hidden_state;
        let (rows, _, width) = hidden.size3()?;
        let places = self
            .last_places(&input_ids)?
            .f_view([rows, 1, 1])?
            .f_expand([rows, 1, width], false)?;
        // One token of each row goes through the head, not all of them.
        let last = hidden.f_gather(1, &places, false)?.f_squeeze_dim(1)?;
        let logits = self.score.call(last)?;
        let loss = labels
            .map(|labels| self.loss(&logits, &labels))
            .transpose()?;
        Ok(SequenceClassifierOutput { loss, logits })
    }
}
