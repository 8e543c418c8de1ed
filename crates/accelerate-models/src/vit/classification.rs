//! ViT with a head that classifies images.

use accelerate::Result;
use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};

use super::model::{RENAMED_PARTS, first_values};
use super::{ViTConfig, ViTModel, ViTModelInput};
use crate::image_classification::{ImageClassifierOutput, ImageInput};
use crate::loss::ProblemType;
use crate::pretrained::{Checkpoint, InitNode, PretrainedModel};

/// ViT whose state of the whole image goes through a linear layer.
#[derive(Debug, Clone, Module)]
#[module(hidden_sizes = crate::pretrained::hidden_sizes)]
pub struct ViTForImageClassification {
    vit: ViTModel,
    classifier: Option<Linear>,
    #[module(skip)]
    config: ViTConfig,
    state: ModuleState,
}

impl PretrainedModel for ViTForImageClassification {
    type Config = ViTConfig;

    const CHECKPOINT: Checkpoint = Checkpoint::new("vit")
        .with_heads(&["classifier"])
        .with_ignored(&[
            "pooler.",
            "vit.pooler.",
            "decoder.",
            "embeddings.mask_token",
        ])
        .with_renamed_parts(RENAMED_PARTS);
    const PARTS: &'static [&'static str] = &["vit"];

    fn build(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        let (width, labels) = (config.hidden_size, config.num_labels());
        let vit = ViTModel::without_pooler(config, factory)?;
        let classifier = || Linear::new(width, labels, factory);
        Ok(Self {
            vit,
            classifier: (labels > 0).then(classifier).transpose()?,
            config: config.clone(),
            state: ModuleState::default(),
        })
    }

    fn config(&self) -> &ViTConfig {
        &self.config
    }

    fn init_module(config: &ViTConfig, node: &InitNode<'_>) -> Result<()> {
        first_values(config, node)
    }
}

impl Forward for ViTForImageClassification {
    type Input = ImageInput;
    type Output = ImageClassifierOutput;

    fn forward(&self, input: ImageInput) -> Result<ImageClassifierOutput> {
        let encoded = self.vit.call(ViTModelInput {
            pixel_values: input.pixel_values,
            interpolate_pos_encoding: false,
        })?;
        let of_image = encoded.last_hidden_state.f_select(1, 0)?;
        let logits = match &self.classifier {
            Some(classifier) => classifier.call(of_image)?,
            None => of_image,
        };
        let problem = self.config.problem_type;
        let loss = ProblemType::loss_of(problem, &logits, input.labels.as_ref())?;
        Ok(ImageClassifierOutput { loss, logits })
    }
}
