//! The configuration of T5.

use std::fmt;

use accelerate::nn::ActivationFunction;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::Result;
use crate::pretrained::{ConfigChecks, ModelType, OtherKeys, PretrainedConfig};

const CHECKS: ConfigChecks = ConfigChecks::of("T5");

/// The sizes and settings of a T5 model, as its `config.json` says.
///
/// Absent keys have the values of `t5-small`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct T5Config {
    /// How many tokens there are.
    pub vocab_size: i64,
    /// The width of the hidden states.
    pub d_model: i64,
    /// The width of one attention head; the heads together need not be as wide as `d_model`.
    pub d_kv: i64,
    /// The width inside the feed-forward part.
    pub d_ff: i64,
    /// How many layers the encoder has.
    pub num_layers: usize,
    /// How many layers the decoder has; as many as the encoder where absent.
    pub num_decoder_layers: Option<usize>,
    /// How many heads each attention has.
    pub num_heads: i64,
    /// How many groups of distances between tokens are told apart.
    pub relative_attention_num_buckets: i64,
    /// Distances from here on are one group.
    pub relative_attention_max_distance: i64,
    /// The dropout probability everywhere.
    pub dropout_rate: f64,
    /// The term that keeps normalisation from dividing by zero.
    pub layer_norm_epsilon: f64,
    /// A factor on the standard deviations of new weights.
    pub initializer_factor: f64,
    /// The feed-forward part.
    pub feed_forward_proj: FeedForward,
    /// Whether the output layer has the weights of the token embeddings.
    pub tie_word_embeddings: bool,
    /// Whether the decoder's output is divided by `√d_model` before the output layer; as
    /// `tie_word_embeddings` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_decoder_outputs: Option<bool>,
    /// The padding token.
    pub pad_token_id: Option<i64>,
    /// The token or tokens that end a text.
    pub eos_token_id: Option<EndTokens>,
    /// The token that the decoder begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_start_token_id: Option<i64>,
    #[serde(flatten)]
    other: OtherKeys,
}

/// One token that ends a text, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EndTokens {
    /// One.
    One(i64),
    /// Any of these.
    Many(Vec<i64>),
}

impl EndTokens {
    /// All of them.
    pub fn to_vec(&self) -> Vec<i64> {
        match self {
            Self::One(token) => vec![*token],
            Self::Many(tokens) => tokens.clone(),
        }
    }
}

/// The feed-forward part: `relu`, or `gated-gelu` with a second layer that scales the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedForward {
    /// The function inside.
    pub activation: ActivationFunction,
    /// Whether there is a second layer.
    pub gated: bool,
}

impl fmt::Display for FeedForward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.gated, self.activation) {
            // What the original means by it.
            (true, ActivationFunction::GeluNew) => f.write_str("gated-gelu"),
            (true, activation) => write!(f, "gated-{activation}"),
            (false, activation) => write!(f, "{activation}"),
        }
    }
}

impl Serialize for FeedForward {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FeedForward {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let (gated, activation) = match name.strip_prefix("gated-") {
            Some(rest) => (true, rest),
            None => (false, name.as_str()),
        };
        let activation = match (gated, activation) {
            (true, "gelu") => Ok(ActivationFunction::GeluNew),
            (_, activation) => activation.parse(),
        };
        let activation = activation.map_err(|unknown| {
            serde::de::Error::custom(format!(
                "expected `FUNCTION` or `gated-FUNCTION`: {unknown}"
            ))
        })?;
        Ok(Self { activation, gated })
    }
}

impl Default for T5Config {
    fn default() -> Self {
        Self {
            vocab_size: 32128,
            d_model: 512,
            d_kv: 64,
            d_ff: 2048,
            num_layers: 6,
            num_decoder_layers: None,
            num_heads: 8,
            relative_attention_num_buckets: 32,
            relative_attention_max_distance: 128,
            dropout_rate: 0.1,
            layer_norm_epsilon: 1e-6,
            initializer_factor: 1.0,
            feed_forward_proj: FeedForward {
                activation: ActivationFunction::Relu,
                gated: false,
            },
            tie_word_embeddings: true,
            scale_decoder_outputs: None,
            pad_token_id: Some(0),
            eos_token_id: Some(EndTokens::One(1)),
            decoder_start_token_id: None,
            other: OtherKeys::default(),
        }
    }
}

impl T5Config {
    /// How many layers the decoder has.
    pub fn num_decoder_layers(&self) -> usize {
        self.num_decoder_layers.unwrap_or(self.num_layers)
    }

    /// Whether the decoder's output is divided by `√d_model` before the output layer.
    pub fn scale_decoder_outputs(&self) -> bool {
        self.scale_decoder_outputs
            .unwrap_or(self.tie_word_embeddings)
    }

    /// The width of all heads together.
    pub fn inner_dim(&self) -> i64 {
        self.num_heads * self.d_kv
    }

    /// The same configuration with no dropout anywhere.
    #[must_use]
    pub fn without_dropout(self) -> Self {
        Self {
            dropout_rate: 0.0,
            ..self
        }
    }

    fn check_tokens(&self) -> Result<()> {
        for (key, token) in [
            ("pad_token_id", self.pad_token_id),
            ("decoder_start_token_id", self.decoder_start_token_id),
        ] {
            CHECKS.token(key, token, self.vocab_size)?;
        }
        Ok(())
    }

    fn check_buckets(&self) -> Result<()> {
        // An encoder has half of them for each direction, and half of those for exact distances.
        let buckets = self.relative_attention_num_buckets;
        if buckets < 4 || buckets % 2 != 0 {
            let key = "relative_attention_num_buckets";
            return Err(CHECKS.refused(key, "an even number of at least 4", &buckets));
        }
        let distance = self.relative_attention_max_distance;
        if distance <= buckets / 2 {
            return Err(CHECKS.refused(
                "relative_attention_max_distance",
                format!("more than {}, half the number of buckets", buckets / 2),
                &distance,
            ));
        }
        Ok(())
    }
}

impl PretrainedConfig for T5Config {
    const MODEL_TYPE: ModelType = ModelType::T5;

    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for the first key that contradicts another.
    fn check(&self) -> Result<()> {
        CHECKS.at_least_one([
            ("vocab_size", self.vocab_size),
            ("d_model", self.d_model),
            ("d_kv", self.d_kv),
            ("d_ff", self.d_ff),
            ("num_heads", self.num_heads),
            ("num_layers", self.num_layers as i64),
            ("num_decoder_layers", self.num_decoder_layers() as i64),
        ])?;
        CHECKS.probabilities([("dropout_rate", self.dropout_rate)])?;
        self.check_buckets()?;
        self.check_tokens()
    }

    fn initializer_range(&self) -> f64 {
        self.initializer_factor
    }

    fn hidden_sizes(&self) -> Vec<i64> {
        vec![self.d_model]
    }

    fn write_derived(&self, config: &mut Map<String, Value>) {
        let derived = [
            (
                "dense_act_fn",
                self.feed_forward_proj.activation.name().into(),
            ),
            ("is_gated_act", self.feed_forward_proj.gated.into()),
            ("is_encoder_decoder", true.into()),
            ("num_decoder_layers", self.num_decoder_layers().into()),
            ("scale_decoder_outputs", self.scale_decoder_outputs().into()),
        ];
        config.extend(derived.map(|(key, value)| (key.to_owned(), value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Result<T5Config, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn both_generations_of_configurations_are_understood() {
        let first = parsed(r#"{"d_model": 32}"#).unwrap();
        assert!(first.tie_word_embeddings && first.scale_decoder_outputs());
        assert_eq!(first.num_decoder_layers(), 6);
        let second = parsed(
            r#"{"tie_word_embeddings": false, "feed_forward_proj": "gated-gelu",
                "num_decoder_layers": 3, "eos_token_id": [1, 5]}"#,
        )
        .unwrap();
        assert!(!second.scale_decoder_outputs());
        assert_eq!(
            second.feed_forward_proj,
            FeedForward {
                activation: ActivationFunction::GeluNew,
                gated: true
            }
        );
        let written = second.to_json("T5ForConditionalGeneration").unwrap();
        assert_eq!(written["feed_forward_proj"], "gated-gelu");
        assert_eq!(written["dense_act_fn"], "gelu_new");
        assert_eq!(written["eos_token_id"], serde_json::json!([1, 5]));
        let read: T5Config = serde_json::from_value(Value::Object(written)).unwrap();
        assert_eq!(read.num_decoder_layers(), 3);
        assert!(!read.scale_decoder_outputs() && !read.tie_word_embeddings);
    }

    #[test]
    fn what_the_model_cannot_do_is_told() {
        for (json, key) in [
            (r#"{"num_heads": 0}"#, "num_heads"),
            (r#"{"num_layers": 0}"#, "num_layers"),
            (r#"{"dropout_rate": -0.1}"#, "dropout_rate"),
            (r#"{"pad_token_id": 40000}"#, "pad_token_id"),
            (
                r#"{"decoder_start_token_id": -1}"#,
                "decoder_start_token_id",
            ),
            (
                r#"{"relative_attention_num_buckets": 3}"#,
                "relative_attention_num_buckets",
            ),
            (
                r#"{"relative_attention_max_distance": 16}"#,
                "relative_attention_max_distance",
            ),
        ] {
            let message = parsed(json).unwrap().check().unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
        let message = parsed(r#"{"feed_forward_proj": "gated-gelu-10"}"#).unwrap_err();
        assert!(
            message.to_string().contains("`gated-FUNCTION`"),
            "{message}"
        );
    }
}
