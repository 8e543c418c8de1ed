//! ViT: a transformer encoder over the patches of an image.
//!
//! # Source
//! `ViTModel` and `ViTForImageClassification` of `transformers`, on its default attention path
//! (`sdpa`): the same operations in the same order.

mod attention;
mod classification;
mod config;
mod embeddings;
mod layer;
mod model;

pub use self::attention::ViTAttention;
pub use self::classification::ViTForImageClassification;
pub use self::config::{HeightWidth, ViTConfig};
pub use self::embeddings::{ViTEmbeddings, ViTPatchEmbeddings};
pub use self::layer::{ViTLayer, ViTMLP};
pub use self::model::{ViTModel, ViTModelInput, ViTModelOutput, ViTPooler};
