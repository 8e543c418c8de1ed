//! BERT with a head that classifies whole sequences.

use accelerate::nn::{Dropout, Factory, Forward, Linear, Module, ModuleState};
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::Tensor;

use super::{BertConfig, BertModel, BertModelInput, RENAMED_ENDS};
use crate::loss::ProblemType;
use crate::pretrained::{Checkpoint, PretrainedModel};

/// What BERT with a head takes.
///
/// # Shapes
/// Each tensor is `[batch, tokens]`. Labels are `[batch]` where sequences are classified, or
/// `[batch, num_labels]` where there can be several for each; they are `[batch, tokens]` where
/// there is one for each token.
#[derive(Debug, Tree)]
pub struct BertInput {
    /// The token ids, int64 or int32.
    pub input_ids: Tensor,
    /// 1 where there is a token, 0 where there is padding; absent where there is none.
    pub attention_mask: Option<Tensor>,
    /// The segment of each token; all in the first where absent.
    pub token_type_ids: Option<Tensor>,
    /// What the sequences or tokens are; with them there is a loss.
    pub labels: Option<Tensor>,
}

impl BertInput {
    /// What the bare model takes, and the labels.
    pub(super) fn split(self) -> (BertModelInput, Option<Tensor>) {
        let Self {
            input_ids,
            attention_mask,
            token_type_ids,
            labels,
        } = self;
        let input = BertModelInput {
            input_ids,
            attention_mask,
            token_type_ids,
        };
        (input, labels)
    }
}

/// What [`BertForSequenceClassification`] gives.
#[derive(Debug, Tree)]
pub struct SequenceClassifierOutput {
    /// The mean loss over the batch, where labels were given.
    pub loss: Option<Tensor>,
    /// The score of each label, `[batch, num_labels]`.
    pub logits: Tensor,
}

/// BERT whose pooled output goes through dropout and a linear layer.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct BertForSequenceClassification {
    pub(super) bert: BertModel,
    pub(super) dropout: Dropout,
    pub(super) classifier: Linear,
    #[module(skip)]
    config: BertConfig,
    state: ModuleState,
}

impl PretrainedModel for BertForSequenceClassification {
    type Config = BertConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("bert")
        .with_heads(&["classifier", "bert.pooler"])
        .with_ignored(&["cls.", "qa_outputs.", "embeddings.position_ids"])
        .with_renamed_ends(RENAMED_ENDS);
    const PARTS: &'static [&'static str] = &["bert"];

    fn build(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            bert: BertModel::new_part(config, factory)?,
            dropout: Dropout::new(config.classifier_dropout())?,
            classifier: Linear::new(config.hidden_size, config.num_labels(), factory)?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &BertConfig {
        &self.config
    }
}

impl BertForSequenceClassification {
    fn loss(&self, logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let problem = match self.config.problem_type {
            Some(problem) => problem,
            None => ProblemType::of(labels, self.config.num_labels())?,
        };
        problem.loss(logits, labels)
    }
}

impl Forward for BertForSequenceClassification {
    type Input = BertInput;
    type Output = SequenceClassifierOutput;

    fn forward(&self, input: BertInput) -> Result<SequenceClassifierOutput> {
        let (input, labels) = input.split();
        let pooled = pooled(self.bert.call(input)?.pooler_output)?;
        let logits = self.classifier.call(self.dropout.call(pooled)?)?;
        let loss = labels
            .map(|labels| self.loss(&logits, &labels))
            .transpose()?;
        Ok(SequenceClassifierOutput { loss, logits })
    }
}

/// The pooled output of a model that was built with a pooler.
pub(super) fn pooled(output: Option<Tensor>) -> Result<Tensor> {
    output.ok_or_else(|| Error::Argument {
        operation: "BERT's head",
        expected: "a model with a pooler".to_owned(),
        found: "none".to_owned(),
    })
}
