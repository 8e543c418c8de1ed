use accelerate::nn::Forward;
use accelerate_models::image_classification::ImageInput;
use accelerate_models::resnet::ResNetForImageClassification;
use accelerate_models::vit::ViTForImageClassification;
use serde_json::{Value, json};
use tch::{Kind, Tensor};

use crate::case::{Case, case, flat};

const SIDE: usize = 16;

/// Two images of three channels, as nested lists.
fn images() -> Value {
    let pixel = |place: usize| (place * 37 % 101) as f64 / 50.0 - 1.0;
    let row = |start: usize| (0..SIDE).map(|x| pixel(start + x)).collect::<Vec<_>>();
    let channel = |start: usize| (0..SIDE).map(|y| row(start + SIDE * y)).collect::<Vec<_>>();
    let image = |start: usize| (0..3).map(|c| channel(start + 300 * c)).collect::<Vec<_>>();
    json!({"pixel_values": [image(0), image(1000)]})
}

fn input(inputs: &Value) -> ImageInput {
    let mut numbers = Vec::new();
    flat(&inputs["pixel_values"], &mut numbers);
    let side = SIDE as i64;
    ImageInput {
        pixel_values: Tensor::from_slice(&numbers)
            .to_kind(Kind::Float)
            .view([2, 3, side, side]),
        labels: None,
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let labels = json!({"0": "cat", "1": "dog", "2": "ox"});
    let resnet = json!({
        "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic",
        "id2label": labels,
    });
    let vit = json!({
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 24, "image_size": SIDE, "patch_size": 4, "id2label": labels,
    });
    vec![
        case::<ResNetForImageClassification>(
            "ResNetForImageClassification",
            resnet,
            images(),
            "logits",
            |model, inputs| model.call(input(inputs)).unwrap().logits,
        ),
        case::<ViTForImageClassification>(
            "ViTForImageClassification",
            vit,
            images(),
            "logits",
            |model, inputs| model.call(input(inputs)).unwrap().logits,
        ),
    ]
}
