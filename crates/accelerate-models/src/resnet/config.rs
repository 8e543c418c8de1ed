//! The configuration of ResNet as transformers has it.

use accelerate::nn::ActivationFunction;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Result;
use crate::loss::ProblemType;
use crate::pretrained::{
    ActivationName, ConfigChecks, Labels, ModelType, OtherKeys, PretrainedConfig,
};

pub(super) const CHECKS: ConfigChecks = ConfigChecks::of("ResNet");

/// What a layer of a [`ResNetModel`](super::ResNetModel) is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResNetLayerType {
    /// Two 3x3 convolutions.
    Basic,
    /// A 1x1 convolution that narrows, a 3x3 convolution, and a 1x1 convolution that widens.
    Bottleneck,
}

/// The sizes and settings of a ResNet, as its `config.json` says.
///
/// Absent keys have the values of `microsoft/resnet-50`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ResNetConfig {
    /// The channels of an image.
    pub num_channels: i64,
    /// The channels after the first convolution.
    pub embedding_size: i64,
    /// The channels of each stage.
    pub hidden_sizes: Vec<i64>,
    /// How many layers each stage has.
    pub depths: Vec<usize>,
    /// What a layer is made of.
    pub layer_type: ResNetLayerType,
    /// The function behind each convolution.
    pub hidden_act: ActivationName,
    /// Whether the first stage halves the size too.
    pub downsample_in_first_stage: bool,
    /// Whether the first convolution of a bottleneck halves the size, and not the second.
    pub downsample_in_bottleneck: bool,
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

impl Default for ResNetConfig {
    fn default() -> Self {
        Self {
            num_channels: 3,
            embedding_size: 64,
            hidden_sizes: vec![256, 512, 1024, 2048],
            depths: vec![3, 4, 6, 3],
            layer_type: ResNetLayerType::Bottleneck,
            hidden_act: ActivationFunction::Relu.into(),
            downsample_in_first_stage: false,
            downsample_in_bottleneck: false,
            problem_type: None,
            id2label: Labels::default(),
            unnamed_labels: None,
            other: OtherKeys::default(),
        }
    }
}

impl ResNetConfig {
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

    /// The channels of the last stage.
    pub fn num_features(&self) -> i64 {
        self.hidden_sizes
            .last()
            .copied()
            .unwrap_or(self.embedding_size)
    }
}

impl PretrainedConfig for ResNetConfig {
    const MODEL_TYPE: ModelType = ModelType::ResNet;

    fn check(&self) -> Result<()> {
        let refuse = |key, expected: &str, found: &dyn std::fmt::Debug| {
            Err(CHECKS.refused(key, expected, &format!("{found:?}")))
        };
        CHECKS.at_least_one([
            ("num_channels", self.num_channels),
            ("embedding_size", self.embedding_size),
        ])?;
        let narrow = match self.layer_type {
            ResNetLayerType::Basic => 1,
            ResNetLayerType::Bottleneck => 4,
        };
        if self.hidden_sizes.is_empty() || self.hidden_sizes.iter().any(|size| *size < narrow) {
            let expected = format!("sizes of at least {narrow}");
            return refuse("hidden_sizes", &expected, &self.hidden_sizes);
        }
        if self.depths.len() != self.hidden_sizes.len() || self.depths.contains(&0) {
            let expected = format!("{} counts of layers", self.hidden_sizes.len());
            return refuse("depths", &expected, &self.depths);
        }
        Ok(())
    }

    /// What is drawn first, before weights that depend on the sizes of their layers.
    fn initializer_range(&self) -> f64 {
        0.02
    }

    fn hidden_sizes(&self) -> Vec<i64> {
        self.hidden_sizes.clone()
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
