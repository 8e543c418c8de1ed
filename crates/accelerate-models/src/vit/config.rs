//! The configuration of ViT.

use accelerate::nn::ActivationFunction;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Result;
use crate::loss::ProblemType;
use crate::pretrained::{
    ActivationName, ConfigChecks, Labels, ModelType, OtherKeys, PretrainedConfig,
};

const CHECKS: ConfigChecks = ConfigChecks::of("ViT");

/// The size of an image or a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HeightWidth {
    /// Height and width are the same.
    Square(i64),
    /// Height, then width.
    Sides([i64; 2]),
}

impl HeightWidth {
    /// Height, then width.
    pub const fn sides(self) -> [i64; 2] {
        match self {
            Self::Square(side) => [side; 2],
            Self::Sides(sides) => sides,
        }
    }
}

/// The sizes and settings of a ViT model, as its `config.json` says.
///
/// Absent keys have the values of `google/vit-base-patch16-224`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ViTConfig {
    /// The width of the hidden states.
    pub hidden_size: i64,
    /// How many layers there are.
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
    /// The standard deviation of new weights.
    pub initializer_range: f64,
    /// The term that keeps layer normalisation from dividing by zero.
    pub layer_norm_eps: f64,
    /// The size of an image.
    pub image_size: HeightWidth,
    /// The size of a patch.
    pub patch_size: HeightWidth,
    /// The channels of an image.
    pub num_channels: i64,
    /// Whether query, key and value have an offset.
    pub qkv_bias: bool,
    /// The width of the pooler's output; `hidden_size` where absent.
    pub pooler_output_size: Option<i64>,
    /// The function of the pooler.
    pub pooler_act: ActivationName,
    /// What the classifier's loss is; found from the labels where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem_type: Option<ProblemType>,
    /// The name of each label.
    pub id2label: Labels,
    /// Says how many labels there are where they have no names.
    #[serde(rename = "num_labels", skip_serializing)]
    unnamed_labels: Option<usize>,
    #[serde(flatten)]
    other: OtherKeys,
}

impl Default for ViTConfig {
    fn default() -> Self {
        Self {
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: ActivationFunction::Gelu.into(),
            hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            image_size: HeightWidth::Square(224),
            patch_size: HeightWidth::Square(16),
            num_channels: 3,
            qkv_bias: true,
            pooler_output_size: None,
            pooler_act: ActivationFunction::Tanh.into(),
            problem_type: None,
            id2label: Labels::default(),
            unnamed_labels: None,
            other: OtherKeys::default(),
        }
    }
}

impl ViTConfig {
    /// The same configuration for another number of labels, named `LABEL_0` and so on.
    #[must_use]
    pub fn with_num_labels(mut self, num_labels: usize) -> Self {
        self.id2label = self.id2label.or_numbered(num_labels);
        self
    }

    /// How many labels the classifier tells apart.
    pub fn num_labels(&self) -> i64 {
        self.id2label.count()
    }

    /// The width of one attention head.
    pub fn head_size(&self) -> i64 {
        self.hidden_size / self.num_attention_heads
    }

    /// How many patches an image has, from top to bottom and from left to right.
    pub fn patches(&self) -> [i64; 2] {
        let ([height, width], [patch_height, patch_width]) =
            (self.image_size.sides(), self.patch_size.sides());
        [height / patch_height, width / patch_width]
    }

    fn check_sizes(&self) -> Result<()> {
        let [height, width] = self.image_size.sides();
        let [patch_height, patch_width] = self.patch_size.sides();
        CHECKS.at_least_one([
            ("hidden_size", self.hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("intermediate_size", self.intermediate_size),
            ("num_channels", self.num_channels),
            ("patch_size", patch_height.min(patch_width)),
            ("pooler_output_size", self.pooler_output_size.unwrap_or(1)),
        ])?;
        if height < patch_height || width < patch_width {
            let expected = format!("at least one patch of {patch_height}x{patch_width}");
            let found = format!("{height}x{width}");
            return Err(CHECKS.refused("image_size", expected, &found));
        }
        CHECKS.divides(
            ("num_attention_heads", self.num_attention_heads),
            ("hidden_size", self.hidden_size),
        )
    }
}

impl PretrainedConfig for ViTConfig {
    const MODEL_TYPE: ModelType = ModelType::Vit;

    fn check(&self) -> Result<()> {
        self.check_sizes()?;
        CHECKS.probabilities([
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            (
                "attention_probs_dropout_prob",
                self.attention_probs_dropout_prob,
            ),
        ])
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

    #[test]
    fn sizes_are_one_number_or_two() {
        let config: ViTConfig =
            serde_json::from_str(r#"{"image_size": [32, 16], "patch_size": 8}"#).unwrap();
        assert_eq!(config.patches(), [4, 2]);
        let written = serde_json::to_value(&config).unwrap();
        assert_eq!(written["image_size"], serde_json::json!([32, 16]));
        assert_eq!(written["patch_size"], 8);
    }

    #[test]
    fn what_the_model_cannot_do_is_told() {
        for (json, key) in [
            (r#"{"num_attention_heads": 7}"#, "num_attention_heads"),
            (r#"{"patch_size": 0}"#, "patch_size"),
            (r#"{"image_size": 8}"#, "image_size"),
            (r#"{"hidden_dropout_prob": 1.5}"#, "hidden_dropout_prob"),
        ] {
            let config: ViTConfig = serde_json::from_str(json).unwrap();
            let message = config.check().unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
    }
}
