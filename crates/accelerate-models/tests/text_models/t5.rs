use accelerate::nn::Forward;
use accelerate_models::generation::{
    DecoderStep, GenerateOptions, GenerationConfig, GenerativeModel, KeyValueCache, Prompt,
    generate,
};
use accelerate_models::t5::{T5EncoderInput, T5EncoderModel, T5ForConditionalGeneration, T5Input};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::recorded::{
    TOLERANCE, assert_first_step, assert_near, assert_parameters, input, integers, model, recording,
};

const KINDS: [&str; 3] = [
    "T5ForConditionalGeneration",
    "T5ForConditionalGeneration gated",
    "T5ForConditionalGeneration silu",
];

fn spread(recording: &Value, key: &str) -> f64 {
    recording[key].as_f64().unwrap()
}

#[test]
fn logits_loss_and_gradients_are_those_of_transformers() {
    let recording = recording();
    for name in KINDS {
        let case = &recording["cases"][name];
        let model: T5ForConditionalGeneration = model(case, spread(&recording, "spread"));
        assert_parameters(&model, case);
        let output = model
            .call(T5Input {
                input_ids: input(case, "input_ids"),
                attention_mask: input(case, "attention_mask"),
                labels: input(case, "labels"),
                ..T5Input::default()
            })
            .unwrap();
        assert_near(name, &output.logits, &case["logits"]);
        assert_first_step(&model, &output.loss.unwrap(), case);
    }
}

#[test]
fn the_encoder_alone_is_that_of_transformers() {
    let recording = recording();
    let case = &recording["cases"]["T5EncoderModel"];
    let model: T5EncoderModel = model(case, spread(&recording, "spread"));
    assert_parameters(&model, case);
    let states = model
        .call(T5EncoderInput {
            input_ids: input(case, "input_ids").unwrap(),
            attention_mask: input(case, "attention_mask"),
        })
        .unwrap();
    assert_near("states", &states, &case["states"]);
    assert_first_step(&model, &states.square().mean(Kind::Float), case);
}

/// What the model writes, step by step with its cache, and the logits of every step.
fn written(model: &T5ForConditionalGeneration, case: &Value, steps: i64) -> (Tensor, Tensor) {
    let ids = input(case, "input_ids").unwrap();
    let mask = input(case, "attention_mask").map(|mask| mask.to_kind(Kind::Bool));
    let states = model.encode(&ids, mask.as_ref()).unwrap();
    let cache = KeyValueCache::new(model.generation_profile().num_layers, 4);
    let mut sequence = Tensor::zeros([ids.size()[0], 1], (Kind::Int64, Device::Cpu));
    let mut logits = Vec::new();
    for position in 0..steps {
        let newest = sequence.narrow(1, position, 1);
        let next = model
            .next_token_logits(&DecoderStep {
                input_ids: &newest,
                position_ids: &Tensor::from_slice(&[position]).view([1, 1]),
                attention_mask: None,
                cache: &cache,
                encoder: Some(&states),
            })
            .unwrap();
        sequence = Tensor::cat(&[sequence, next.argmax(-1, true)], 1);
        logits.push(next);
    }
    assert_eq!(cache.tokens(), steps);
    (sequence, Tensor::stack(&logits, 1))
}

#[test]
fn the_same_tokens_are_written_as_by_transformers() {
    let recording = recording();
    for name in KINDS {
        let case = &recording["cases"][name];
        let model: T5ForConditionalGeneration = model(case, spread(&recording, "greedy_spread"));
        accelerate::nn::Module::train(&model, false);
        let expected = integers(&case["greedy"]);
        let (ids, logits) = tch::no_grad(|| written(&model, case, expected.size()[1] - 1));
        assert_eq!(ids, expected, "{name}");
        // Without a cache, all at once.
        let output = model
            .call(T5Input {
                input_ids: input(case, "input_ids"),
                attention_mask: input(case, "attention_mask"),
                decoder_input_ids: Some(ids.narrow(1, 0, ids.size()[1] - 1)),
                ..T5Input::default()
            })
            .unwrap();
        let scale = output.logits.abs().max().double_value(&[]);
        let error = (output.logits - logits).abs().max().double_value(&[]);
        assert!(error < TOLERANCE * scale, "{name}: {error:e}");
    }
}

#[test]
fn generation_stops_where_transformers_stops() {
    let recording = recording();
    for name in KINDS {
        let case = &recording["cases"][name];
        let model: T5ForConditionalGeneration = model(case, spread(&recording, "greedy_spread"));
        accelerate::nn::Module::train(&model, false);
        let prompt = Prompt {
            input_ids: input(case, "input_ids").unwrap(),
            attention_mask: input(case, "attention_mask"),
        };
        let mut config = GenerationConfig::default();
        config.max_new_tokens = Some(12);
        config.pad_token_id = Some(0);
        config.decoder_start_token_id = Some(0);
        let made = |config: &GenerationConfig| {
            let made = generate(&model, &prompt, config, GenerateOptions::default());
            made.unwrap().sequences
        };
        assert_eq!(made(&config), integers(&case["greedy"]), "{name}");
        let ended = &case["greedy_ended"];
        config.eos_token_id = vec![ended["eos_token_id"].as_i64().unwrap()];
        assert_eq!(made(&config), integers(&ended["ids"]), "{name}");
    }
}
