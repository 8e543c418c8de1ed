//! The configuration of GPT-2.

use accelerate::nn::ActivationFunction;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Result;
use crate::loss::ProblemType;
use crate::pretrained::{
    ActivationName, ConfigChecks, Labels, ModelType, OtherKeys, PretrainedConfig,
};

const CHECKS: ConfigChecks = ConfigChecks::of("GPT-2");

/// The sizes and settings of a GPT-2 model, as its `config.json` says.
///
/// Absent keys have the values of the smallest published model, `gpt2`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GPT2Config {
    /// How many tokens there are.
    pub vocab_size: i64,
    /// The longest sequence, in tokens.
    pub n_positions: i64,
    /// The width of the hidden states.
    pub n_embd: i64,
    /// How many layers there are.
    pub n_layer: usize,
    /// How many heads each attention has; they divide `n_embd`.
    pub n_head: i64,
    /// The width inside the feed-forward part; four times `n_embd` where absent.
    pub n_inner: Option<i64>,
    /// The function inside the feed-forward part.
    pub activation_function: ActivationName,
    /// The dropout probability of what a layer adds.
    pub resid_pdrop: f64,
    /// The dropout probability of the embeddings.
    pub embd_pdrop: f64,
    /// The dropout probability of attention weights.
    pub attn_pdrop: f64,
    /// The term that keeps layer normalisation from dividing by zero.
    pub layer_norm_epsilon: f64,
    /// The standard deviation of new weights.
    pub initializer_range: f64,
    /// Whether attention divides its products by the root of the head's width.
    pub scale_attn_weights: bool,
    /// Whether attention also divides them by the number of its layer.
    pub scale_attn_by_inverse_layer_idx: bool,
    /// The token that fills sequences.
    pub pad_token_id: Option<i64>,
    /// What begins a text.
    pub bos_token_id: Option<i64>,
    /// What ends a text.
    #[serde(with = "crate::generation::one_or_many")]
    pub eos_token_id: Vec<i64>,
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
    add_cross_attention: bool,
    #[serde(flatten)]
    other: OtherKeys,
}

impl Default for GPT2Config {
    fn default() -> Self {
        Self {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: ActivationFunction::GeluNew.into(),
            resid_pdrop: 0.1,
            embd_pdrop: 0.1,
            attn_pdrop: 0.1,
            layer_norm_epsilon: 1e-5,
            initializer_range: 0.02,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            pad_token_id: None,
            bos_token_id: Some(50256),
            eos_token_id: vec![50256],
            tie_word_embeddings: true,
            problem_type: None,
            id2label: Labels::default(),
            unnamed_labels: None,
            add_cross_attention: false,
            other: OtherKeys::default(),
        }
    }
}

impl GPT2Config {
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
            resid_pdrop: 0.0,
            embd_pdrop: 0.0,
            attn_pdrop: 0.0,
            ..self
        }
    }

    /// The width inside the feed-forward part.
    pub fn inner_width(&self) -> i64 {
        self.n_inner.unwrap_or(4 * self.n_embd)
    }

    /// The width of one attention head.
    pub fn head_width(&self) -> i64 {
        self.n_embd / self.n_head
    }

    fn check_sizes(&self) -> Result<()> {
        CHECKS.at_least_one([
            ("vocab_size", self.vocab_size),
            ("n_positions", self.n_positions),
            ("n_embd", self.n_embd),
            ("n_head", self.n_head),
            ("n_inner", self.inner_width()),
            ("id2label", self.id2label.count()),
        ])?;
        CHECKS.divides(("n_head", self.n_head), ("n_embd", self.n_embd))
    }
}

impl PretrainedConfig for GPT2Config {
    const MODEL_TYPE: ModelType = ModelType::Gpt2;

    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for the first key that contradicts another or asks
    /// for what this model does not have: cross-attention.
    fn check(&self) -> Result<()> {
        if self.add_cross_attention {
            let expected = "`false`: this model has no encoder to look at";
            return Err(CHECKS.refused("add_cross_attention", expected, &"`true`"));
        }
        self.check_sizes()?;
        CHECKS.probabilities([
            ("resid_pdrop", self.resid_pdrop),
            ("embd_pdrop", self.embd_pdrop),
            ("attn_pdrop", self.attn_pdrop),
        ])
    }

    fn initializer_range(&self) -> f64 {
        self.initializer_range
    }

    fn hidden_sizes(&self) -> Vec<i64> {
        vec![self.n_embd]
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

    #[test]
    fn what_the_model_cannot_do_is_told() {
        for (json, key) in [
            (r#"{"add_cross_attention": true}"#, "add_cross_attention"),
            (r#"{"n_head": 7}"#, "n_head"),
            (r#"{"attn_pdrop": -1.0}"#, "attn_pdrop"),
            (r#"{"n_positions": 0}"#, "n_positions"),
        ] {
            let config: GPT2Config = serde_json::from_str(json).unwrap();
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
        assert!(GPT2Config::default().check().is_ok());
    }
}
