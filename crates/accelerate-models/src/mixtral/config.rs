//! The configuration of Mixtral.

use accelerate::nn::{ActivationFunction, RotarySettings};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::decoder::{AttentionSizes, RopeKeys, RopeParameters, check_heads, rotary_settings};
use crate::pretrained::{ActivationName, ConfigChecks, ModelType, OtherKeys, PretrainedConfig};

const CHECKS: ConfigChecks = ConfigChecks::of("Mixtral");

/// The sizes and settings of a Mixtral model, as its `config.json` says.
///
/// Absent keys have the values of the published model of 8 experts with 7 billion parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct MixtralConfig {
    /// How many tokens there are.
    pub vocab_size: i64,
    /// The width of the hidden states.
    pub hidden_size: i64,
    /// The width inside the feed-forward part.
    pub intermediate_size: i64,
    /// How many layers there are.
    pub num_hidden_layers: usize,
    /// How many heads of queries each attention has.
    pub num_attention_heads: i64,
    /// How many heads of keys and values; as many as of queries where absent.
    pub num_key_value_heads: Option<i64>,
    /// The width of one head; `hidden_size / num_attention_heads` where absent.
    pub head_dim: Option<i64>,
    /// The function inside the feed-forward part.
    pub hidden_act: ActivationName,
    /// The longest sequence, in tokens.
    pub max_position_embeddings: i64,
    /// The standard deviation of new weights.
    pub initializer_range: f64,
    /// The term that keeps normalisation from dividing by zero.
    pub rms_norm_eps: f64,
    /// The padding token, whose embedding is not trained.
    pub pad_token_id: Option<i64>,
    /// What begins a text.
    pub bos_token_id: Option<i64>,
    /// What ends a text.
    #[serde(with = "crate::generation::one_or_many")]
    pub eos_token_id: Vec<i64>,
    /// Whether the language-modelling head has the weights of the token embeddings.
    pub tie_word_embeddings: bool,
    /// How far back a token sees; everything before it where absent.
    pub sliding_window: Option<i64>,
    /// How many experts each layer has.
    pub num_local_experts: i64,
    /// How many experts each token goes through.
    pub num_experts_per_tok: i64,
    /// Whether the router's auxiliary loss is computed, and added to the loss.
    pub output_router_logits: bool,
    /// How much the auxiliary loss counts.
    pub router_aux_loss_coef: f64,
    /// How far the router's inputs are shaken while training.
    pub router_jitter_noise: f64,
    /// The dropout probability of attention weights.
    pub attention_dropout: f64,
    /// The base of the rotary positions, as older configurations say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// How rotary positions are stretched, as older configurations say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeParameters>,
    /// The base of the rotary positions and how they are stretched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_parameters: Option<RopeParameters>,
    #[serde(flatten)]
    other: OtherKeys,
}

impl Default for MixtralConfig {
    fn default() -> Self {
        Self {
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 14336,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: Some(8),
            head_dim: None,
            hidden_act: ActivationFunction::Silu.into(),
            max_position_embeddings: 4096 * 32,
            initializer_range: 0.02,
            rms_norm_eps: 1e-5,
            pad_token_id: None,
            bos_token_id: Some(1),
            eos_token_id: vec![2],
            tie_word_embeddings: false,
            sliding_window: None,
            num_local_experts: 8,
            num_experts_per_tok: 2,
            output_router_logits: false,
            router_aux_loss_coef: 0.001,
            router_jitter_noise: 0.0,
            attention_dropout: 0.0,
            rope_theta: None,
            rope_scaling: None,
            rope_parameters: None,
            other: OtherKeys::default(),
        }
    }
}

impl MixtralConfig {
    /// The width of one attention head.
    pub fn head_width(&self) -> i64 {
        self.head_dim
            .unwrap_or(self.hidden_size / self.num_attention_heads)
    }

    /// How many heads of keys and values there are.
    pub fn key_heads(&self) -> i64 {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// The rotary positions.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a scaling that is not known or lacks a number.
    pub fn rotary(&self) -> Result<RotarySettings> {
        rotary_settings(RopeKeys {
            checks: CHECKS,
            theta: self.rope_theta,
            default_theta: 1e6,
            scaling: self.rope_scaling.as_ref(),
            parameters: self.rope_parameters.as_ref(),
            beside: &self.other,
            head_width: self.head_width(),
            max_positions: self.max_position_embeddings,
        })
    }

    pub(super) fn attention(&self) -> AttentionSizes {
        AttentionSizes {
            width: self.hidden_size,
            heads: self.num_attention_heads,
            key_heads: self.key_heads(),
            head_width: self.head_width(),
            bias: false,
            dropout: self.attention_dropout,
        }
    }
}

impl PretrainedConfig for MixtralConfig {
    const MODEL_TYPE: ModelType = ModelType::Mixtral;

    fn check(&self) -> Result<()> {
        CHECKS.at_least_one([
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.key_heads()),
            ("max_position_embeddings", self.max_position_embeddings),
            ("sliding_window", self.sliding_window.unwrap_or(1)),
            ("num_local_experts", self.num_local_experts),
        ])?;
        check_heads(CHECKS, &self.attention(), self.head_dim.is_some())?;
        let experts = self.num_local_experts;
        if !(1..=experts).contains(&self.num_experts_per_tok) {
            let expected = format!("within 1..={experts}, `num_local_experts`");
            let found = self.num_experts_per_tok;
            return Err(CHECKS.refused("num_experts_per_tok", expected, &found));
        }
        CHECKS.probabilities([
            ("attention_dropout", self.attention_dropout),
            ("router_jitter_noise", self.router_jitter_noise),
        ])?;
        // Some public files have -1 for "none".
        let pad = self.pad_token_id.filter(|&pad| pad >= 0);
        CHECKS.token("pad_token_id", pad, self.vocab_size)?;
        self.rotary().map(|_| ())
    }

    fn initializer_range(&self) -> f64 {
        self.initializer_range
    }

    fn hidden_sizes(&self) -> Vec<i64> {
        vec![self.hidden_size]
    }

    fn settle(&mut self) {
        self.pad_token_id = self.pad_token_id.filter(|&pad| pad >= 0);
    }
}

#[cfg(test)]
mod tests {
    use accelerate::nn::RotaryScaling;

    use super::*;

    #[test]
    fn public_configurations_are_read() {
        let json = r#"{"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
            "num_local_experts": 4, "rope_theta": 1000000.0, "sliding_window": null}"#;
        let config: MixtralConfig = serde_json::from_str(json).unwrap();
        config.check().unwrap();
        let rotary = config.rotary().unwrap();
        assert_eq!((rotary.base, rotary.width), (1e6, 8));
        assert_eq!(rotary.scaling, RotaryScaling::None);
    }

    #[test]
    fn what_the_model_cannot_do_is_told() {
        for (json, key) in [
            (r#"{"num_key_value_heads": 5}"#, "num_key_value_heads"),
            (r#"{"num_experts_per_tok": 9}"#, "num_experts_per_tok"),
            (r#"{"router_jitter_noise": 2.0}"#, "router_jitter_noise"),
            (r#"{"sliding_window": 0}"#, "sliding_window"),
        ] {
            let config: MixtralConfig = serde_json::from_str(json).unwrap();
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
    }
}
