//! ResNet as transformers builds it. A convolution with its norm is one layer.

use super::{Family, Head, Skeleton};
use crate::estimate::{
    config::Config,
    error::Result,
    module::{Bias, Module, batch_norm, conv2d, linear},
};

pub(super) const FAMILY: Family = Family {
    model_type: "resnet",
    classes: &[
        ("ResNetModel", Head::Base),
        ("ResNetForImageClassification", Head::ImageClassification),
    ],
    build,
};

/// The most blocks of a stage and channels of a layer.
const MOST: u64 = 1 << 20;

fn build(config: &Config, head: Head) -> Result<Skeleton> {
    let channels = config.size("num_channels", 3)?;
    let embedded = config.size("embedding_size", 64)?;
    let widths = config.sizes("hidden_sizes", &[256, 512, 1024, 2048], MOST)?;
    let depths = config.sizes("depths", &[3, 4, 6, 3], 4096)?;
    let bottleneck = config.text("layer_type")?.unwrap_or("bottleneck") == "bottleneck";
    let first_strides = config.flag("downsample_in_first_stage", false)?;

    let mut inputs = embedded;
    let mut stages = Vec::new();
    for (number, (&width, &depth)) in widths.iter().zip(&depths).enumerate() {
        let strided = number > 0 || first_strides;
        stages.push(stage(bottleneck, inputs, width, depth, strided));
        inputs = width;
    }
    let mut list = Module::sequence(stages);
    list.class = "ModuleList".into();
    let embedder = Module::new("ResNetEmbeddings");
    let model = Module::new("ResNetModel")
        .child(
            "embedder",
            embedder.child("embedder", convolution(channels, embedded, 7)),
        )
        .child(
            "encoder",
            Module::new("ResNetEncoder").child("stages", list),
        );
    let root = if head == Head::Base {
        model
    } else {
        let mut classifier = Module::new("Sequential");
        let labels = config.labels()?;
        if labels > 0 {
            classifier = classifier.child("1", linear(inputs, labels, Bias::Yes));
        }
        Module::new("")
            .child("resnet", model)
            .child("classifier", classifier)
    };
    let no_split = vec!["ResNetConvLayer".into(), "ResNetShortCut".into()];
    Ok(Skeleton { root, no_split })
}

fn stage(bottleneck: bool, inputs: u64, width: u64, depth: u64, strided: bool) -> Module {
    let blocks = (0..depth).map(|number| {
        let inputs = if number == 0 { inputs } else { width };
        block(bottleneck, inputs, width, number == 0 && strided)
    });
    Module::new("ResNetStage").child("layers", Module::sequence(blocks))
}

fn block(bottleneck: bool, inputs: u64, width: u64, strided: bool) -> Module {
    let (class, layers) = if bottleneck {
        let narrow = width / 4;
        let layers = vec![
            convolution(inputs, narrow, 1),
            convolution(narrow, narrow, 3),
            convolution(narrow, width, 1),
        ];
        ("ResNetBottleNeckLayer", layers)
    } else {
        let layers = vec![convolution(inputs, width, 3), convolution(width, width, 3)];
        ("ResNetBasicLayer", layers)
    };
    let adapted = inputs != width || strided;
    Module::new(class)
        .child_if(adapted, "shortcut", || Module {
            class: "ResNetShortCut".into(),
            ..convolution(inputs, width, 1)
        })
        .child("layer", Module::sequence(layers))
}

fn convolution(inputs: u64, outputs: u64, kernel: u64) -> Module {
    Module::new("ResNetConvLayer")
        .child("convolution", conv2d(inputs, outputs, kernel, Bias::No))
        .child("normalization", batch_norm(outputs))
}
