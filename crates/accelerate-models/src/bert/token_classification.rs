//! BERT with a head that classifies each token.

use accelerate::Result;
use accelerate::nn::{Dropout, Factory, Forward, Linear, Module, ModuleState};
use accelerate::tree::Tree;
use tch::Tensor;

use super::{BertConfig, BertInput, BertModel, RENAMED_ENDS};
use crate::loss::cross_entropy;
use crate::pretrained::{Checkpoint, PretrainedModel};

/// What [`BertForTokenClassification`] gives.
#[derive(Debug, Tree)]
pub struct TokenClassifierOutput {
    /// The mean loss over all tokens with a label, where labels were given.
    pub loss: Option<Tensor>,
    /// The score of each label for each token, `[batch, tokens, num_labels]`.
    pub logits: Tensor,
}

/// BERT whose hidden states go through dropout and a linear layer.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct BertForTokenClassification {
    bert: BertModel,
    dropout: Dropout,
    classifier: Linear,
    #[module(skip)]
    config: BertConfig,
    state: ModuleState,
}

impl PretrainedModel for BertForTokenClassification {
    type Config = BertConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("bert")
        .with_heads(&["classifier"])
        .with_ignored(&[
            "cls.",
            "qa_outputs.",
            "pooler.",
            "bert.pooler.",
            "embeddings.position_ids",
        ])
        .with_renamed_ends(RENAMED_ENDS);
    const PARTS: &'static [&'static str] = &["bert"];

    fn build(config: &BertConfig, factory: &Factory) -> Result<Self> {
        Ok(Self {
            bert: BertModel::without_pooler(config, factory)?,
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

impl Forward for BertForTokenClassification {
    type Input = BertInput;
    type Output = TokenClassifierOutput;

    fn forward(&self, input: BertInput) -> Result<TokenClassifierOutput> {
        let (input, labels) = input.split();
        let hidden = self.bert.call(input)?.last_hidden_state;
        let logits = self.classifier.call(self.dropout.call(hidden)?)?;
        let loss = labels
            .map(|labels| cross_entropy(&logits, &labels))
            .transpose()?;
        Ok(TokenClassifierOutput { loss, logits })
    }
}
