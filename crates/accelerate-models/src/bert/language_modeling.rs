//! BERT with the heads of its pre-training.

use accelerate::Result;
use accelerate::nn::{
    Activation, Factory, Forward, Init, LayerNorm, Linear, Module, ModuleState, Parameter, init,
};
use accelerate::tree::Tree;
use tch::Tensor;

use super::classification::pooled;
use super::{BertConfig, BertInput, BertModel, BertModelInput, RENAMED_ENDS};
use crate::loss::cross_entropy;
use crate::pretrained::{
    Checkpoint, InitNode, PretrainedConfig, PretrainedModel, usual_first_values,
};

/// How many answers there are to "does the second sentence follow the first?".
const SENTENCE_ORDERS: i64 = 2;

/// A dense layer, activation and normalisation before tokens are predicted.
///
/// # Shapes
/// `[batch, tokens, hidden_size]` to the same.
#[derive(Debug, Clone, Module)]
#[expect(
    non_snake_case,
    reason = "fields have the names of the public checkpoint"
)]
pub struct BertPredictionHeadTransform {
    dense: Linear,
    transform_act_fn: Activation,
    LayerNorm: LayerNorm,
    state: ModuleState,
}

impl BertPredictionHeadTransform {
    fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            dense: Linear::new(config.hidden_size, config.hidden_size, factory)?,
            transform_act_fn: Activation::new(config.hidden_act.into()),
            LayerNorm: LayerNorm::new(config.hidden_size, config.layer_norm_eps, factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for BertPredictionHeadTransform {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        self.LayerNorm
            .call(self.transform_act_fn.call(self.dense.call(hidden)?)?)
    }
}

/// The score of each token of the vocabulary.
///
/// # Shapes
/// `[batch, tokens, hidden_size]` to `[batch, tokens, vocab_size]`.
#[derive(Debug, Clone, Module)]
pub struct BertLMPredictionHead {
    transform: BertPredictionHeadTransform,
    decoder: Linear,
    /// The decoder's offset under its older name.
    bias: Parameter,
    state: ModuleState,
}

impl BertLMPredictionHead {
    fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        let transform = BertPredictionHeadTransform::new(config, factory)?;
        let decoder = Linear::new(config.hidden_size, config.vocab_size, factory)?;
        let bias = factory.empty(&[config.vocab_size])?;
        if factory.init() != Init::Skip {
            init::constant(&bias, 0.0)?;
        }
        Ok(Self {
            transform,
            decoder,
            bias: Parameter::new(bias)?,
            state: ModuleState::default(),
        })
    }

    fn tie(&mut self, bert: &BertModel) {
        self.decoder.weight = bert.embeddings.word_embeddings.weight.clone();
        self.decoder.bias = Some(self.bias.clone());
    }
}

impl Forward for BertLMPredictionHead {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        self.decoder.call(self.transform.call(hidden)?)
    }
}

/// The head of [`BertForMaskedLM`].
///
/// # Shapes
/// As [`BertLMPredictionHead`].
#[derive(Debug, Clone, Module)]
pub struct BertOnlyMLMHead {
    predictions: BertLMPredictionHead,
    state: ModuleState,
}

impl Forward for BertOnlyMLMHead {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        self.predictions.call(hidden)
    }
}

/// The heads of [`BertForPreTraining`].
///
/// # Shapes
/// Hidden states `[batch, tokens, hidden_size]` and pooled ones `[batch, hidden_size]` to
/// `[batch, tokens, vocab_size]` and `[batch, 2]`.
#[derive(Debug, Clone, Module)]
pub struct BertPreTrainingHeads {
    predictions: BertLMPredictionHead,
    seq_relationship: Linear,
    state: ModuleState,
}

impl Forward for BertPreTrainingHeads {
    type Input = (Tensor, Tensor);
    type Output = (Tensor, Tensor);

    fn forward(&self, (hidden, pooled): Self::Input) -> Result<Self::Output> {
        Ok((
            self.predictions.call(hidden)?,
            self.seq_relationship.call(pooled)?,
        ))
    }
}

fn init_head(config: &BertConfig, node: &InitNode<'_>) -> Result<()> {
    usual_first_values(node, config.initializer_range())?;
    match node.class() {
        "BertLMPredictionHead" => node.constant("bias", 0.0),
        _ => Ok(()),
    }
}

/// What [`BertForMaskedLM`] gives.
#[derive(Debug, Tree)]
pub struct MaskedLMOutput {
    /// The mean loss over all tokens with a label, where labels were given.
    pub loss: Option<Tensor>,
    /// The score of each token of the vocabulary, `[batch, tokens, vocab_size]`.
    pub logits: Tensor,
}

/// BERT that predicts masked tokens. The output layer has the weights of the token embeddings.
///
/// Tokens that are not to be predicted have the label
/// [`IGNORED_LABEL`](crate::loss::IGNORED_LABEL).
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct BertForMaskedLM {
    bert: BertModel,
    cls: BertOnlyMLMHead,
    #[module(skip)]
    config: BertConfig,
    state: ModuleState,
}

impl PretrainedModel for BertForMaskedLM {
    type Config = BertConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("bert")
        .with_heads(&["cls"])
        .with_ignored(&[
            "cls.seq_relationship.",
            "classifier.",
            "qa_outputs.",
            "pooler.",
            "bert.pooler.",
            "embeddings.position_ids",
        ])
        .with_renamed_ends(RENAMED_ENDS);
    const PARTS: &'static [&'static str] = &["bert"];

    fn build(config: &BertConfig, factory: &Factory) -> Result<Self> {
        let bert = BertModel::without_pooler(config, factory)?;
        let cls = BertOnlyMLMHead {
            predictions: BertLMPredictionHead::new(config, factory)?,
            state: ModuleState::default(),
        };
        Ok(Self {
            bert,
            cls,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &BertConfig {
        &self.config
    }

    fn tie_weights(&mut self) {
        if self.config.tie_word_embeddings {
            self.cls.predictions.tie(&self.bert);
        }
    }

    fn init_module(config: &BertConfig, node: &InitNode<'_>) -> Result<()> {
        init_head(config, node)
    }
}

impl Forward for BertForMaskedLM {
    type Input = BertInput;
    type Output = MaskedLMOutput;

    fn forward(&self, input: BertInput) -> Result<MaskedLMOutput> {
        let (input, labels) = input.split();
        let logits = self.cls.call(self.bert.call(input)?.last_hidden_state)?;
        let loss = labels
            .map(|labels| cross_entropy(&logits, &labels))
            .transpose()?;
        Ok(MaskedLMOutput { loss, logits })
    }
}

/// What [`BertForPreTraining`] takes.
///
/// # Shapes
/// Each tensor is `[batch, tokens]`, `next_sentence_label` is `[batch]`.
#[derive(Debug, Tree)]
pub struct BertPreTrainingInput {
    /// The token ids, int64 or int32.
    pub input_ids: Tensor,
    /// 1 where there is a token, 0 where there is padding; absent where there is none.
    pub attention_mask: Option<Tensor>,
    /// The segment of each token; all in the first where absent.
    pub token_type_ids: Option<Tensor>,
    /// The token behind each mask, [`IGNORED_LABEL`](crate::loss::IGNORED_LABEL) elsewhere.
    pub labels: Option<Tensor>,
    /// 0 where the second sentence follows the first, 1 where it does not.
    pub next_sentence_label: Option<Tensor>,
}

/// What [`BertForPreTraining`] gives.
#[derive(Debug, Tree)]
pub struct BertPreTrainingOutput {
    /// The sum of both mean losses, where both kinds of labels were given.
    pub loss: Option<Tensor>,
    /// The score of each token of the vocabulary, `[batch, tokens, vocab_size]`.
    pub prediction_logits: Tensor,
    /// Whether the second sentence follows the first, and whether not, `[batch, 2]`.
    pub seq_relationship_logits: Tensor,
}

/// BERT that predicts masked tokens and whether two sentences follow each other.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct BertForPreTraining {
    bert: BertModel,
    cls: BertPreTrainingHeads,
    #[module(skip)]
    config: BertConfig,
    state: ModuleState,
}

impl PretrainedModel for BertForPreTraining {
    type Config = BertConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("bert")
        .with_heads(&["cls.predictions", "cls.seq_relationship", "bert.pooler"])
        .with_ignored(&["classifier.", "qa_outputs.", "embeddings.position_ids"])
        .with_renamed_ends(RENAMED_ENDS);
    const PARTS: &'static [&'static str] = &["bert"];

    fn build(config: &BertConfig, factory: &Factory) -> Result<Self> {
        let bert = BertModel::new_part(config, factory)?;
        let cls = BertPreTrainingHeads {
            predictions: BertLMPredictionHead::new(config, factory)?,
            seq_relationship: Linear::new(config.hidden_size, SENTENCE_ORDERS, factory)?,
            state: ModuleState::default(),
        };
        Ok(Self {
            bert,
            cls,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &BertConfig {
        &self.config
    }

    fn tie_weights(&mut self) {
        if self.config.tie_word_embeddings {
            self.cls.predictions.tie(&self.bert);
        }
    }

    fn init_module(config: &BertConfig, node: &InitNode<'_>) -> Result<()> {
        init_head(config, node)
    }
}

impl Forward for BertForPreTraining {
    type Input = BertPreTrainingInput;
    type Output = BertPreTrainingOutput;

    fn forward(&self, input: BertPreTrainingInput) -> Result<BertPreTrainingOutput> {
        let BertPreTrainingInput {
            input_ids,
            attention_mask,
            token_type_ids,
            labels,
            next_sentence_label,
        } = input;
        let encoded = self.bert.call(BertModelInput {
            input_ids,
            attention_mask,
            token_type_ids,
        })?;
        let pooled = pooled(encoded.pooler_output)?;
        let (prediction_logits, seq_relationship_logits) =
            self.cls.call((encoded.last_hidden_state, pooled))?;
        let loss = match (labels, next_sentence_label) {
            (Some(labels), Some(order)) => {
                let tokens = cross_entropy(&prediction_logits, &labels)?;
                Some(tokens.f_add(&cross_entropy(&seq_relationship_logits, &order)?)?)
            }
            _ => None,
        };
        Ok(BertPreTrainingOutput {
            loss,
            prediction_logits,
            seq_relationship_logits,
        })
    }
}
