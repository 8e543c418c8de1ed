//! What models that classify images take and give, and one type for all of them.

use accelerate::tree::Tree;
use tch::Tensor;

use crate::auto_model;
use crate::resnet::ResNetForImageClassification;
use crate::vit::ViTForImageClassification;

/// What a model that classifies images takes.
#[derive(Debug, Tree)]
pub struct ImageInput {
    /// The images, `[batch, channels, height, width]`, scaled as the model was trained.
    pub pixel_values: Tensor,
    /// What the images are, `[batch]`, or `[batch, num_labels]` where there can be several for
    /// each; with them there is a loss.
    pub labels: Option<Tensor>,
}

/// What a model that classifies images gives.
#[derive(Debug, Tree)]
pub struct ImageClassifierOutput {
    /// The mean loss over the batch, where labels were given.
    pub loss: Option<Tensor>,
    /// The score of each label, `[batch, num_labels]`.
    pub logits: Tensor,
}

auto_model! {
    /// A model that classifies images, of whichever kind the configuration in its folder says.
    ///
    /// # Source
    /// `AutoModelForImageClassification` of `transformers`.
    pub enum AutoModelForImageClassification for "image classification",
        forward(ImageInput => ImageClassifierOutput)
    {
        /// A residual network.
        ResNet(ResNetForImageClassification),
        /// A vision transformer.
        ViT(ViTForImageClassification),
    }
}
