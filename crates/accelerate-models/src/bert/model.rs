//! The bare model.

use accelerate::nn::{
    Activation, ActivationFunction, Factory, Forward, Linear, Module, ModuleState,
};
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::{Kind, Tensor};

use super::{BertConfig, BertEmbeddings, BertEncoder, RENAMED_ENDS};
use crate::pretrained::{
    Checkpoint, InitNode, PretrainedConfig, PretrainedModel, usual_first_values,
};

/// The first token's state, through a dense layer and tanh: one vector for the whole sequence.
///
/// # Shapes
/// `[batch, tokens, hidden_size]` to `[batch, hidden_size]`.
#[derive(Debug, Clone, Module)]
pub struct BertPooler {
    dense: Linear,
    activation: Activation,
    state: ModuleState,
}

impl BertPooler {
    fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            dense: Linear::new(config.hidden_size, config.hidden_size, factory)?,
            activation: Activation::new(ActivationFunction::Tanh),
            state: ModuleState::default(),
        })
    }
}

impl Forward for BertPooler {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        self.activation
            .call(self.dense.call(hidden.f_select(1, 0)?)?)
    }
}

/// What [`BertModel`] takes.
///
/// # Shapes
/// Each tensor is `[batch, tokens]`.
#[derive(Debug, Tree)]
pub struct BertModelInput {
    /// The token ids, int64 or int32.
    pub input_ids: Tensor,
    /// True or not zero where there is a token, false or 0 where there is padding; absent where
    /// there is none. A mask of four dimensions is used as it is.
    pub attention_mask: Option<Tensor>,
    /// The segment of each token; all in the first where absent.
    pub token_type_ids: Option<Tensor>,
}

/// What [`BertModel`] gives.
#[derive(Debug, Tree)]
pub struct BertModelOutput {
    /// The state of each token, `[batch, tokens, hidden_size]`.
    pub last_hidden_state: Tensor,
    /// One vector for each sequence, `[batch, hidden_size]`, where there is a pooler.
    pub pooler_output: Option<Tensor>,
}

/// The encoder with its embeddings and, where sequences are told apart, its pooler.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct BertModel {
    pub(super) embeddings: BertEmbeddings,
    pub(super) encoder: BertEncoder,
    pub(super) pooler: Option<BertPooler>,
    #[module(skip)]
    config: BertConfig,
    state: ModuleState,
}

impl BertModel {
    /// A part of a model that looks at tokens only.
    pub(super) fn without_pooler(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Self::assemble(config, None, factory)?.with_first_values(factory)
    }

    fn assemble(
        config: &BertConfig,
        pooler: Option<fn(&BertConfig, &Factory) -> Result<BertPooler>>,
        factory: &Factory,
    ) -> Result<Self> {
        Ok(Self {
            embeddings: BertEmbeddings::new(config, factory)?,
            encoder: BertEncoder::new(config, factory)?,
            pooler: pooler.map(|new| new(config, factory)).transpose()?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }
}

impl PretrainedModel for BertModel {
    type Config = BertConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("bert")
        .with_heads(&["pooler"])
        .with_ignored(&[
            "cls.",
            "classifier.",
            "qa_outputs.",
            "embeddings.position_ids",
        ])
        .with_renamed_ends(RENAMED_ENDS);

    fn build(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Self::assemble(config, Some(BertPooler::new), factory)
    }

    fn config(&self) -> &BertConfig {
        &self.config
    }

    fn init_module(config: &BertConfig, node: &InitNode<'_>) -> Result<()> {
        usual_first_values(node, config.initializer_range())?;
        match config.pad_token_id {
            Some(pad) if node.name().ends_with("word_embeddings") => node.zero_row("weight", pad),
            _ => Ok(()),
        }
    }
}

impl Forward for BertModel {
    type Input = BertModelInput;
    type Output = BertModelOutput;

    fn forward(&self, input: BertModelInput) -> Result<BertModelOutput> {
        let BertModelInput {
            input_ids,
            attention_mask,
            token_type_ids,
        } = input;
        let shape = input_ids.size();
        let embedded = self.embeddings.call((input_ids, token_type_ids))?;
        let mask = attention_mask
            .map(|mask| prepare_mask(mask, &shape))
            .transpose()?
            .flatten();
        let last_hidden_state = self.encoder.call((embedded, mask))?;
        let pooler = self.pooler.as_ref();
        let pooler_output = pooler
            .map(|pooler| pooler.call(&last_hidden_state))
            .transpose()?;
        Ok(BertModelOutput {
            last_hidden_state,
            pooler_output,
        })
    }
}

/// A padding mask `[batch, tokens]` as attention takes it, or none where nothing is padded: plain
/// attention has the faster kernel.
pub(super) fn prepare_mask(mask: Tensor, ids: &[i64]) -> Result<Option<Tensor>> {
    if mask.dim() == 4 {
        return Ok(Some(mask));
    }
    let (&[batch, tokens], true) = (ids, mask.size() == ids) else {
        return Err(Error::Argument {
            operation: "BertModel",
            expected: format!("an attention mask of the ids' shape {ids:?}"),
            found: format!("{:?}", mask.size()),
        });
    };
    let mask = mask.f_to_kind(Kind::Bool)?;
    if mask.f_all()?.f_int64_value(&[])? != 0 {
        return Ok(None);
    }
    Ok(Some(
        mask.f_view([batch, 1, 1, tokens])?
            .f_expand([batch, 1, tokens, tokens], false)?,
    ))
}
