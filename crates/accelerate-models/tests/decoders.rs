//! GPT-2, Llama and Mixtral against the numbers that `tests/parity` recorded from transformers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod recording;

use accelerate::Result;
use accelerate::nn::{Factory, Forward, Module, RotaryEmbedding, rotate};
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::generation::KeyValueCache;
use accelerate_models::gpt2::{GPT2ForSequenceClassification, GPT2LMHeadModel, GPT2SequenceInput};
use accelerate_models::llama::{LlamaConfig, LlamaForCausalLM};
use accelerate_models::mixtral::MixtralForCausalLM;
use accelerate_models::{PretrainedConfig, PretrainedModel};
use recording::{fill, integers, numbers, recorded};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

/// What a model of any class gives.
struct Output {
    loss: Option<Tensor>,
    aux_loss: Option<Tensor>,
    logits: Tensor,
}

/// A model of the recording, behind one function.
struct Recorded {
    model: Box<dyn Module>,
    run: Box<dyn Fn(CausalLmInput) -> Result<Output>>,
}

fn build<M: PretrainedModel + Clone + 'static>(
    config: &Value,
    run: impl Fn(&M, CausalLmInput) -> Result<Output> + 'static,
) -> Recorded {
    let mut config: M::Config = serde_json::from_value(config.clone()).unwrap();
    config.settle();
    let model = M::new(&config, &Factory::default()).unwrap();
    Recorded {
        model: Box::new(model.clone()),
        run: Box::new(move |input| run(&model, input)),
    }
}

fn model(architecture: &str, config: &Value) -> Recorded {
    match architecture {
        "GPT2LMHeadModel" => build(config, |model: &GPT2LMHeadModel, input| {
            let output = model.call(input)?;
            Ok(Output {
                loss: output.loss,
                aux_loss: None,
                logits: output.logits,
            })
        }),
        "GPT2ForSequenceClassification" => {
            build(config, |model: &GPT2ForSequenceClassification, input| {
                let output = model.call(GPT2SequenceInput {
                    input_ids: input.input_ids,
                    attention_mask: input.attention_mask,
                    labels: input.labels,
                })?;
                Ok(Output {
                    loss: output.loss,
                    aux_loss: None,
                    logits: output.logits,
                })
            })
        }
        "LlamaForCausalLM" => build(config, |model: &LlamaForCausalLM, input| {
            let output = model.call(input)?;
            Ok(Output {
                loss: output.loss,
                aux_loss: None,
                logits: output.logits,
            })
        }),
        "MixtralForCausalLM" => build(config, |model: &MixtralForCausalLM, input| {
            let output = model.call(input)?;
            Ok(Output {
                loss: output.loss,
                aux_loss: output.aux_loss,
                logits: output.logits,
            })
        }),
        other => unreachable!("{other}"),
    }
}

fn close(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() < 1e-6 + 1e-5 * expected.abs(),
        "{what}: {found} {expected}"
    );
}

fn input(recording: &Value, case: &Value) -> CausalLmInput {
    let ids = integers(&recording["input_ids"]);
    let labels = match &case["labels"] {
        Value::Null => ids.shallow_clone(),
        labels => integers(labels),
    };
    let mut input = CausalLmInput::new(&ids).with_labels(&labels);
    if !case["attention_mask"].is_null() {
        input = input.with_attention_mask(&integers(&case["attention_mask"]));
    }
    input.num_items = case["num_items"].as_i64();
    input
}

#[test]
fn logits_losses_and_gradients_are_those_of_transformers() {
    let recording = recorded("decoders.json");
    let cases = recording["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 17);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let Recorded { model, run } =
            model(case["architecture"].as_str().unwrap(), &case["config"]);
        let shapes: serde_json::Map<String, Value> = model
            .named_parameters()
            .into_iter()
            .map(|(name, parameter)| (name, parameter.shape().into()))
            .collect();
        assert_eq!(&Value::from(shapes), &case["parameters"], "{name}");
        fill(&*model, recording["spread"].as_f64().unwrap());
        let output = run(input(&recording, case)).unwrap();
        for (found, expected) in Vec::<f32>::try_from(output.logits.detach().reshape([-1]))
            .unwrap()
            .into_iter()
            .zip(numbers(&case["logits"]))
        {
            close(found.into(), expected, name);
        }
        let loss = output.loss.unwrap();
        close(loss.double_value(&[]), case["loss"].as_f64().unwrap(), name);
        assert_eq!(
            output.aux_loss.is_some(),
            case["aux_loss"].is_number(),
            "{name}"
        );
        if let Some(aux) = output.aux_loss {
            close(
                aux.double_value(&[]),
                case["aux_loss"].as_f64().unwrap(),
                name,
            );
        }
        loss.f_backward().unwrap();
        check_gradients(&*model, case, name);
    }
}

fn check_gradients(model: &dyn Module, case: &Value, name: &str) {
    for (parameter, tensor) in model.named_parameters() {
        let what = format!("{name}: {parameter}");
        let gradient = tensor.tensor().grad();
        let norm = if gradient.defined() {
            gradient.to_kind(Kind::Double).norm().double_value(&[])
        } else {
            // An expert without tokens.
            0.0
        };
        let expected = case["first_grad_norms"][&parameter].as_f64().unwrap();
        close(norm, expected, &what);
        if let (true, Some(values)) = (
            gradient.defined(),
            case["first_grads"][&parameter].as_array(),
        ) {
            let flat = gradient.reshape([-1]);
            for (index, expected) in values.iter().enumerate() {
                let found = flat.double_value(&[index as i64]);
                close(found, expected.as_f64().unwrap(), &what);
            }
        }
    }
}

#[test]
fn positions_turn_heads_as_in_transformers() {
    let recording = recorded("decoders.json");
    let cases = recording["rotary"].as_array().unwrap();
    assert_eq!(cases.len(), 10);
    for case in cases {
        let config: LlamaConfig = serde_json::from_value(case["config"].clone()).unwrap();
        let layer = RotaryEmbedding::new(config.rotary().unwrap(), Device::Cpu).unwrap();
        let query = Tensor::linspace(-1.0, 1.0, 24, (Kind::Float, Device::Cpu));
        let query = query.view([1, 1, 3, 8]);
        // One layer for all calls: what it remembers shows.
        for call in case["calls"].as_array().unwrap() {
            let positions = integers(&call["positions"]).view([1, -1]);
            let (cosines, sines) = layer.call((&query, &positions)).unwrap();
            let turned = rotate(&query, &cosines, &sines).unwrap();
            for (key, found) in [("cosines", cosines), ("sines", sines), ("turned", turned)] {
                let what = format!("{}, {}: {key}", case["name"], call["positions"]);
                let found = Vec::<f32>::try_from(found.reshape([-1])).unwrap();
                let expected = numbers(&call[key]);
                assert_eq!(found.len(), expected.len(), "{what}");
                for (found, expected) in found.into_iter().zip(expected) {
                    close(found.into(), expected, &what);
                }
            }
        }
    }
}

#[test]
fn a_cache_changes_no_logits() {
    let recording = recorded("decoders.json");
    for case in recording["cases"].as_array().unwrap() {
        let (name, architecture) = (
            case["name"].as_str().unwrap(),
            case["architecture"].as_str().unwrap(),
        );
        // Where scaling depends on the length, the keys of short sequences are not those of longer.
        let depends = name.contains("dynamic") || name.contains("longrope, long");
        if architecture == "GPT2ForSequenceClassification" || depends {
            continue;
        }
        let Recorded { model, run } = model(architecture, &case["config"]);
        fill(&*model, recording["spread"].as_f64().unwrap());
        model.train(false);
        let whole = input(&recording, case);
        let mask = whole.attention_mask.as_ref().map(Tensor::shallow_clone);
        let cache = KeyValueCache::new(2, 0);
        let mut parts = Vec::new();
        for (start, new) in [(0, 3), (3, 1), (4, 1), (5, 3)] {
            let mut part = CausalLmInput::new(&whole.input_ids.narrow(1, start, new));
            part.attention_mask = mask.as_ref().map(|mask| mask.narrow(1, 0, start + new));
            part.cache = Some(cache.clone());
            parts.push(tch::no_grad(|| run(part)).unwrap().logits);
        }
        let found = Tensor::cat(&parts, 1).reshape([-1]);
        // What a padded place sees does not matter to anyone.
        let counts = match mask {
            Some(mask) => mask
                .unsqueeze(-1)
                .expand_as(&Tensor::cat(&parts, 1))
                .reshape([-1]),
            None => found.ones_like(),
        };
        let expected = Tensor::from_slice(&numbers(&case["logits"])).to_kind(Kind::Float);
        let apart = ((found - expected) * counts).abs().max().double_value(&[]);
        assert!(apart < 1e-5, "{name}: {apart}");
    }
}

#[test]
fn folders_are_written_and_read() {
    let recording = recorded("decoders.json");
    for case in [0, 2, 4, 6, 11, 14] {
        let case = &recording["cases"][case];
        let config = &case["config"];
        match case["architecture"].as_str().unwrap() {
            "GPT2LMHeadModel" => round_trip::<GPT2LMHeadModel>(config),
            "LlamaForCausalLM" => round_trip::<LlamaForCausalLM>(config),
            _ => round_trip::<MixtralForCausalLM>(config),
        }
    }
}

fn round_trip<M: PretrainedModel>(config: &Value) {
    let config: M::Config = serde_json::from_value(config.clone()).unwrap();
    let model = M::new(&config, &Factory::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    model.save_pretrained(&folder).unwrap();
    let read = M::from_folder(&folder, &Factory::default()).unwrap();
    assert!(!read.is_training());
    let (before, after) = (model.named_parameters(), read.named_parameters());
    assert_eq!(before.len(), after.len());
    for ((name, before), (_, after)) in before.into_iter().zip(after) {
        assert_eq!(before.dense().unwrap(), after.dense().unwrap(), "{name}");
    }
}

#[test]
fn classes_have_the_names_of_the_original() {
    let recording = recorded("decoders.json");
    let classes = |case: &str, names: &[(&str, &str)]| {
        let cases = recording["cases"].as_array().unwrap();
        let case = cases.iter().find(|other| other["name"] == case).unwrap();
        let model = model(case["architecture"].as_str().unwrap(), &case["config"]).model;
        let modules = model.named_modules();
        for (name, expected) in names {
            let found = modules.iter().find(|(other, _)| other == name);
            assert_eq!(
                found.map(|(_, module)| module.class_name()),
                Some(*expected)
            );
        }
    };
    classes(
        "gpt2",
        &[
            ("transformer", "GPT2Model"),
            ("transformer.h.1", "GPT2Block"),
            ("transformer.h.0.attn", "GPT2Attention"),
            ("transformer.h.0.attn.c_attn", "Conv1D"),
            ("transformer.h.0.mlp", "GPT2MLP"),
        ],
    );
    classes(
        "llama",
        &[
            ("model", "LlamaModel"),
            ("model.layers.1", "LlamaDecoderLayer"),
            ("model.layers.0.self_attn", "LlamaAttention"),
            ("model.layers.0.mlp", "LlamaMLP"),
            ("model.norm", "LlamaRMSNorm"),
            ("model.rotary_emb", "LlamaRotaryEmbedding"),
        ],
    );
    classes(
        "mixtral, padded on the right",
        &[
            ("model.layers.1", "MixtralDecoderLayer"),
            ("model.layers.0.block_sparse_moe", "MixtralSparseMoeBlock"),
            (
                "model.layers.0.block_sparse_moe.experts.3",
                "MixtralBlockSparseTop2MLP",
            ),
        ],
    );
}

#[test]
fn inputs_that_do_not_fit_are_told() {
    let recording = recorded("decoders.json");
    for (case, length) in [(0, 12), (4, 12)] {
        let case = &recording["cases"][case];
        let run = model(case["architecture"].as_str().unwrap(), &case["config"]).run;
        let told = |input: CausalLmInput| run(input).err().unwrap().to_string();
        let zeros = |shape: &[i64]| Tensor::zeros(shape, (Kind::Int64, Device::Cpu));
        let text = told(CausalLmInput::new(&zeros(&[1, length + 1])));
        assert!(text.contains(&format!("at most {length} tokens")), "{text}");
        let text = told(CausalLmInput::new(&(zeros(&[1, 3]) + 30)));
        assert!(text.contains("0..30") && text.contains("30"), "{text}");
        let input = CausalLmInput::new(&zeros(&[2, 3])).with_attention_mask(&zeros(&[2, 4]));
        assert!(told(input).contains("found [2, 4]"));
        let input = CausalLmInput::new(&zeros(&[2, 3])).with_labels(&zeros(&[2, 2]));
        assert!(told(input).contains("labels of shape [2, 3]"));
    }
}
