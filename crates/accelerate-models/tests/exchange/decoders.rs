use accelerate::nn::Forward;
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::gpt2::GPT2LMHeadModel;
use accelerate_models::llama::LlamaForCausalLM;
use accelerate_models::mixtral::MixtralForCausalLM;
use serde_json::{Value, json};

use crate::case::{Case, case, integers};

fn input(inputs: &Value) -> CausalLmInput {
    CausalLmInput {
        attention_mask: Some(integers(&inputs["attention_mask"])),
        ..CausalLmInput::new(&integers(&inputs["input_ids"]))
    }
}

/// Sizes under the names that Llama and Mixtral have for them.
fn sizes(more: &Value) -> Value {
    let mut all = json!({
        "vocab_size": 24, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 12,
        "bos_token_id": 1, "eos_token_id": 2,
    });
    all.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    all
}

pub(crate) fn cases() -> Vec<Case> {
    let text = json!({
        "input_ids": [[2, 5, 17, 9, 3], [2, 14, 3, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
    });
    let gpt2 = json!({
        "vocab_size": 24, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 12,
        "bos_token_id": 1, "eos_token_id": 2,
    });
    let mixtral = json!({"num_local_experts": 4, "num_experts_per_tok": 2});
    vec![
        case::<GPT2LMHeadModel>(
            "GPT2LMHeadModel",
            gpt2,
            text.clone(),
            "logits",
            |model, inputs| model.call(input(inputs)).unwrap().logits,
        ),
        case::<LlamaForCausalLM>(
            "LlamaForCausalLM",
            sizes(&json!({})),
            text.clone(),
            "logits",
            |model, inputs| model.call(input(inputs)).unwrap().logits,
        ),
        case::<LlamaForCausalLM>(
            "LlamaForCausalLM",
            sizes(&json!({"tie_word_embeddings": true})),
            text.clone(),
            "logits",
            |model, inputs| model.call(input(inputs)).unwrap().logits,
        ),
        case::<MixtralForCausalLM>(
            "MixtralForCausalLM",
            sizes(&mixtral),
            text,
            "logits",
            |model, inputs| model.call(input(inputs)).unwrap().logits,
        ),
    ]
}
