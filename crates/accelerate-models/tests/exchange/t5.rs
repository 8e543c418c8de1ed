use accelerate::nn::Forward;
use accelerate_models::t5::{T5EncoderInput, T5EncoderModel, T5ForConditionalGeneration, T5Input};
use serde_json::{Value, json};
use tch::Tensor;

use crate::case::{Case, case, integers};

fn run(model: &T5ForConditionalGeneration, inputs: &Value) -> Tensor {
    let input = T5Input {
        input_ids: Some(integers(&inputs["input_ids"])),
        attention_mask: Some(integers(&inputs["attention_mask"])),
        decoder_input_ids: Some(integers(&inputs["decoder_input_ids"])),
        ..T5Input::default()
    };
    model.call(input).unwrap().logits
}

pub(crate) fn cases() -> Vec<Case> {
    let config = |kind: &str| {
        json!({
            "vocab_size": 24, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 2,
            "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12,
            "decoder_start_token_id": 0, "feed_forward_proj": kind,
        })
    };
    let text = json!({
        "input_ids": [[5, 17, 9, 3, 1], [14, 3, 1, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
    });
    let mut both = text.clone();
    both["decoder_input_ids"] = json!([[0, 4, 9], [0, 11, 2]]);
    let scaled = |scale: bool| {
        let mut config = config("gated-gelu");
        config["scale_decoder_outputs"] = scale.into();
        config
    };
    vec![
        case(
            "T5ForConditionalGeneration",
            config("relu"),
            both.clone(),
            "logits",
            run,
        ),
        case(
            "T5ForConditionalGeneration",
            scaled(true),
            both.clone(),
            "logits",
            run,
        ),
        case(
            "T5ForConditionalGeneration",
            scaled(false),
            both,
            "logits",
            run,
        ),
        case::<T5EncoderModel>(
            "T5EncoderModel",
            config("relu"),
            text,
            "last_hidden_state",
            |model, inputs| {
                let input = T5EncoderInput {
                    input_ids: integers(&inputs["input_ids"]),
                    attention_mask: Some(integers(&inputs["attention_mask"])),
                };
                model.call(input).unwrap()
            },
        ),
    ]
}
