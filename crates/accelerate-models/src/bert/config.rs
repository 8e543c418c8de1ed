//! The configuration of BERT.

use accelerate::nn::ActivationFunction;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Result;
use crate::loss::ProblemType;
use crate::pretrained::{
    ActivationName, ConfigChecks, Labels, ModelType, OtherKeys, PretrainedConfig,
};

const CHECKS: ConfigChecks = ConfigChecks::of("BERT");

/// The sizes and settings of a BERT model, as its `config.json` says.
///
/// Absent keys have the values of `bert-base-uncased`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BertConfig {
    /// How many tokens there are.
    pub vocab_size: i64,
    /// The width of the hidden states.
    pub hidden_size: i64,
    /// How many layers the encoder has.
    pub num_hidden_layers: usize,
    /// How many heads each attention has; they divide `hidden_size`.
    pub num_attention_heads: i64,
    /// The width inside the feed-forward part.
    pub intermediate_size: i64,
    /// The function inside the feed-forward part.
    pub hidden_act: ActivationName,
    /// The dropout probability of hidden states.
    pub hidden_dropout_prob: f64,
    /// The dropout probability of attention weights.
    pub attention_probs_dropout_prob: f64,
    /// The longest sequence, in tokens.
    pub max_position_embeddings: i64,
    /// How many segments a sequence can have.
    pub type_vocab_size: i64,
    /// The standard deviation of new weights.
    pub initializer_range: f64,
    /// The term that keeps layer normalisation from dividing by zero.
    pub layer_norm_eps: f64,
    /// The padding token, whose embedding is not trained.
    pub pad_token_id: Option<i64>,
    /// The dropout probability before the classifier; `hidden_dropout_prob` where absent.
    pub classifier_dropout: Option<f64>,
    /// Whether the language-modelling head has the weights of the token embeddings.
    pub tie_word_embeddings: bool,
    /// What the classifier's loss is; found from the labels where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem_type: Option<ProblemType>,
    /// The name of each label.
    pub id2label: Labels,
    /// Says how many labels there are where they have no names.
    #[serde(rename = "num_labels", skip_serializing)]
    unnamed_labels: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position_embedding_type: Option<String>,
    is_decoder: bool,
    add_cross_attention: bool,
    #[serde(flatten)]
    other: OtherKeys,
}

impl Default for BertConfig {
    fn default() -> Self {
        Self {
            vocab_size: 30522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: ActivationFunction::Gelu.into(),
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            pad_token_id: Some(0),
            classifier_dropout: None,
            tie_word_embeddings: true,
            problem_type: None,
            id2label: Labels::default(),
            unnamed_labels: None,
            position_embedding_type: None,
            is_decoder: false,
            add_cross_attention: false,
            other: OtherKeys::default(),
        }
    }
}

impl BertConfig {
    /// The same configuration for another number of labels, named `LABEL_0` and so on.
    #[must_use]
    pub fn with_num_labels(mut self, num_labels: usize) -> Self {
        self.id2label = self.id2label.or_numbered(num_labels);
        self
    }

    /// The same configuration with no dropout anywhere.
    #[must_use]
    pub fn without_dropout(self) -> Self {
        Self {
            hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0,
            classifier_dropout: Some(0.0),
            ..self
        }
    }

    /// How many labels the classifier tells apart.
    pub fn num_labels(&self) -> i64 {
        self.id2label.count()
    }

    /// The width of one attention head.
    pub fn head_size(&self) -> i64 {
        self.hidden_size / self.num_attention_heads
    }

    /// The dropout probability before the classifier.
    pub fn classifier_dropout(&self) -> f64 {
        self.classifier_dropout.unwrap_or(self.hidden_dropout_prob)
    }
    fn check_sizes(&self) -> Result<()> {
        CHECKS.at_least_one([
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("type_vocab_size", self.type_vocab_size),
            ("id2label", self.num_labels()),
        ])?;
        CHECKS.divides(
            ("num_attention_heads", self.num_attention_heads),
            ("hidden_size", self.hidden_size),
        )?;
        CHECKS.token("pad_token_id", self.pad_token_id, self.vocab_size)
    }

    fn check_probabilities(&self) -> Result<()> {
        CHECKS.probabilities([
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            (
                "attention_probs_dropout_prob",
                self.attention_probs_dropout_prob,
            ),
            ("classifier_dropout", self.classifier_dropout()),
        ])
    }
}

impl PretrainedConfig for BertConfig {
    const MODEL_TYPE: ModelType = ModelType::Bert;

    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for the first key that contradicts another or asks
    /// for what this model does not have: relative positions, or a decoder.
    fn check(&self) -> Result<()> {
        if let Some(other) = self
            .position_embedding_type
            .as_deref()
            .filter(|kind| *kind != "absolute")
        {
            return Err(CHECKS.refused(
                "position_embedding_type",
                "`absolute`",
                &format!("`{other}`"),
            ));
        }
        for (key, asked) in [
            ("is_decoder", self.is_decoder),
            ("add_cross_attention", self.add_cross_attention),
        ] {
            if asked {
                return Err(CHECKS.refused(key, "`false`: this model is an encoder", &"`true`"));
            }
        }
        self.check_sizes()?;
        self.check_probabilities()
    }

    fn initializer_range(&self) -> f64 {
        self.initializer_range
    }

    fn hidden_sizes(&self) -> Vec<i64> {
        vec![self.hidden_size]
    }

    fn settle(&mut self) {
        if let Some(count) = self.unnamed_labels.take() {
            self.id2label = std::mem::take(&mut self.id2label).or_numbered(count);
        }
    }

    fn write_derived(&self, config: &mut Map<String, Value>) {
        self.id2label.write_reversed(config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Result<BertConfig, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn absent_keys_have_defaults_and_unknown_ones_are_ignored() {
        let config = parsed(
            r#"{"hidden_size": 384, "pad_token_id": null, "gradient_checkpointing": false}"#,
        )
        .unwrap();
        assert_eq!(
            (
                config.hidden_size,
                config.num_hidden_layers,
                config.pad_token_id
            ),
            (384, 12, None)
        );
        assert_eq!(config.num_labels(), 2);
    }

    #[test]
    fn labels_are_counted() {
        let config = parsed(r#"{"id2label": {"0": "neg", "1": "neutral", "2": "pos"}}"#).unwrap();
        assert_eq!(config.num_labels(), 3);
        assert_eq!(config.clone().with_num_labels(3), config);
        assert_eq!(config.with_num_labels(1).id2label, Labels::numbered(1));
    }

    #[test]
    fn an_unknown_activation_is_told_with_the_known_ones() {
        let message = parsed(r#"{"hidden_act": "gelu_10"}"#)
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("unknown activation `gelu_10`, expected one of `gelu`"),
            "{message}"
        );
    }

    #[test]
    fn what_the_model_cannot_do_is_told() {
        for (json, key) in [
            (
                r#"{"position_embedding_type": "relative_key"}"#,
                "position_embedding_type",
            ),
            (r#"{"is_decoder": true}"#, "is_decoder"),
            (r#"{"num_attention_heads": 7}"#, "num_attention_heads"),
            (r#"{"pad_token_id": 40000}"#, "pad_token_id"),
            (r#"{"hidden_dropout_prob": 1.5}"#, "hidden_dropout_prob"),
            (r#"{"vocab_size": 0}"#, "vocab_size"),
        ] {
            let message = parsed(json).unwrap().check().unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
    }

    #[test]
    fn what_is_written_is_read_again_with_keys_that_nobody_knows() {
        let json = r#"{"hidden_size": 384, "hidden_act": "relu", "problem_type": "regression",
                       "id2label": {"0": "neg", "1": "pos"}, "gradient_checkpointing": false}"#;
        let config = parsed(json).unwrap();
        let written = config.to_json("BertModel").unwrap();
        assert_eq!(written["architectures"], serde_json::json!(["BertModel"]));
        assert_eq!(written["model_type"], "bert");
        assert_eq!(written["gradient_checkpointing"], false);
        assert_eq!(written["label2id"]["pos"], 1);
        let read: BertConfig = serde_json::from_value(Value::Object(written)).unwrap();
        assert_eq!(read, config);
    }
}
