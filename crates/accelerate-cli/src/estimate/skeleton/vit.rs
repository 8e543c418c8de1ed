//! Vision transformer.

use super::{Family, Head, Skeleton};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, conv2d, layer_norm, linear},
};

pub(super) const FAMILY: Family = Family {
    model_type: "vit",
    classes: &[
        ("ViTModel", Head::Base),
        ("ViTForImageClassification", Head::ImageClassification),
        ("ViTForMaskedImageModeling", Head::MaskedImage),
    ],
    build,
};

fn build(config: &Config, head: Head) -> Result<Skeleton> {
    let hidden = config.size("hidden_size", 768)?;
    let channels = config.size("num_channels", 3)?;
    let pooled = config.size("pooler_output_size", hidden)?;
    let wide = config.size("intermediate_size", 3072)?;
    let layers = config.layers("num_hidden_layers", 12)?;
    let bias = Bias::when(config.flag("qkv_bias", true)?);
    let masked = head == Head::MaskedImage;

    let model = Module::new("ViTModel")
        .child("embeddings", embeddings(config, hidden, channels, masked)?)
        .child(
            "layers",
            Module::list(layers, |_| layer(hidden, wide, bias)),
        )
        .child("layernorm", layer_norm(hidden))
        .child_if(head == Head::Base, "pooler", || {
            Module::new("ViTPooler").child("dense", linear(hidden, pooled, Bias::Yes))
        });
    let under = |model| Module::new("").child("vit", model);
    let root = match head {
        Head::MaskedImage => {
            let stride = config.size("encoder_stride", 16)?;
            let pixels = stride.saturating_mul(stride).saturating_mul(channels);
            let decoder = Module::sequence([conv2d(hidden, pixels, 1, Bias::Yes)]);
            under(model).child("decoder", decoder)
        }
        Head::ImageClassification => match config.labels()? {
            0 => under(model),
            labels => under(model).child("classifier", linear(hidden, labels, Bias::Yes)),
        },
        _ => model,
    };
    let no_split = vec!["ViTEmbeddings".into(), "ViTLayer".into()];
    Ok(Skeleton { root, no_split })
}

fn embeddings(config: &Config, hidden: u64, channels: u64, masked: bool) -> Result<Module> {
    let [height, width] = config.height_and_width("image_size", 224)?;
    let [patch_height, patch_width] = config.height_and_width("patch_size", 16)?;
    let patches = (height / patch_height) * (width / patch_width);
    let projection = Module::new("Conv2d")
        .parameter("weight", &[hidden, channels, patch_height, patch_width])
        .parameter("bias", &[hidden]);
    let embeddings = Module::new("ViTEmbeddings").parameter("cls_token", &[1, 1, hidden]);
    let embeddings = if masked {
        embeddings.parameter("mask_token", &[1, 1, hidden])
    } else {
        embeddings
    };
    Ok(embeddings
        .parameter("position_embeddings", &[1, patches + 1, hidden])
        .child(
            "patch_embeddings",
            Module::new("ViTPatchEmbeddings").child("projection", projection),
        ))
}

fn layer(hidden: u64, wide: u64, bias: Bias) -> Module {
    let attention = Module::new("ViTAttention")
        .child("q_proj", linear(hidden, hidden, bias))
        .child("k_proj", linear(hidden, hidden, bias))
        .child("v_proj", linear(hidden, hidden, bias))
        .child("o_proj", linear(hidden, hidden, Bias::Yes));
    let mlp = Module::new("ViTMLP")
        .child("fc1", linear(hidden, wide, Bias::Yes))
        .child("fc2", linear(wide, hidden, Bias::Yes));
    Module::new("ViTLayer")
        .child("attention", attention)
        .child("layernorm_before", layer_norm(hidden))
        .child("layernorm_after", layer_norm(hidden))
        .child("mlp", mlp)
}
