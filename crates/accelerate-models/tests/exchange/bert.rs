use accelerate::nn::Forward;
use accelerate_models::bert::{
    BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertForTokenClassification,
    BertInput, BertModel, BertModelInput, BertPreTrainingInput,
};
use serde_json::{Value, json};

use crate::case::{Case, case, integers};

fn config(more: &Value) -> Value {
    let mut all = json!({
        "vocab_size": 24, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 12,
    });
    all.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    all
}

fn batch(inputs: &Value) -> BertInput {
    BertInput {
        input_ids: integers(&inputs["input_ids"]),
        attention_mask: Some(integers(&inputs["attention_mask"])),
        token_type_ids: None,
        labels: None,
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let text = json!({
        "input_ids": [[2, 5, 17, 9, 3], [2, 14, 3, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]],
    });
    let labels = json!({"id2label": {"0": "bad", "1": "fair", "2": "good"}});
    vec![
        case::<BertModel>(
            "BertModel",
            config(&json!({})),
            text.clone(),
            "last_hidden_state",
            |model, inputs| {
                let batch = batch(inputs);
                let input = BertModelInput {
                    input_ids: batch.input_ids,
                    attention_mask: batch.attention_mask,
                    token_type_ids: None,
                };
                model.call(input).unwrap().last_hidden_state
            },
        ),
        case::<BertForSequenceClassification>(
            "BertForSequenceClassification",
            config(&labels),
            text.clone(),
            "logits",
            |model, inputs| model.call(batch(inputs)).unwrap().logits,
        ),
        case::<BertForTokenClassification>(
            "BertForTokenClassification",
            config(&labels),
            text.clone(),
            "logits",
            |model, inputs| model.call(batch(inputs)).unwrap().logits,
        ),
        case::<BertForMaskedLM>(
            "BertForMaskedLM",
            config(&json!({})),
            text.clone(),
            "logits",
            |model, inputs| model.call(batch(inputs)).unwrap().logits,
        ),
        case::<BertForMaskedLM>(
            "BertForMaskedLM",
            config(&json!({"tie_word_embeddings": false})),
            text.clone(),
            "logits",
            |model, inputs| model.call(batch(inputs)).unwrap().logits,
        ),
        case::<BertForPreTraining>(
            "BertForPreTraining",
            config(&json!({})),
            text,
            "prediction_logits",
            |model, inputs| {
                let batch = batch(inputs);
                let input = BertPreTrainingInput {
                    input_ids: batch.input_ids,
                    attention_mask: batch.attention_mask,
                    token_type_ids: None,
                    labels: None,
                    next_sentence_label: None,
                };
                model.call(input).unwrap().prediction_logits
            },
        ),
    ]
}
