//! ResNet: residual networks for images, under both names that public checkpoints have.
//!
//! | names | model | configuration |
//! | --- | --- | --- |
//! | of torchvision and timm: `layer1.0.conv1.weight` | [`ResNet`] | [`ResNetArchitecture`] |
//! | of transformers: `resnet.encoder.stages.0.layers.0.layer.0.convolution.weight` | [`ResNetModel`], [`ResNetForImageClassification`] | [`ResNetConfig`] |
//!
//! # Source
//! `torchvision.models.resnet`, timm's models of the same names, and `ResNetModel` of
//! `transformers`: the same operations in the same order.

mod architecture;
mod block;
mod config;
mod network;
mod pretrained;
mod stage;
mod timm;

pub use self::architecture::{ResNetArchitecture, ResidualKind};
pub use self::block::{BasicBlock, Bottleneck, Downsample, ResidualBlock};
pub use self::config::{ResNetConfig, ResNetLayerType};
pub use self::network::ResNet;
pub use self::pretrained::{
    ResNetForImageClassification, ResNetHead, ResNetModel, ResNetModelOutput,
};
pub use self::stage::{
    ResNetConvLayer, ResNetEmbeddings, ResNetEncoder, ResNetLayer, ResNetShortCut, ResNetStage,
};
