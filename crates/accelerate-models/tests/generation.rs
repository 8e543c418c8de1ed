//! Generation against the tokens that `tests/parity` recorded from transformers.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod recording;

use std::cell::Cell;
use std::rc::Rc;

use accelerate::PartialState;
use accelerate::collectives::{Reduction, reduce};
use accelerate::nn::{Factory, Hook, Init, Module};
use accelerate::tree::Tree;
use accelerate_models::PretrainedModel;
use accelerate_models::bert::BertModel;
use accelerate_models::generation::{
    GENERATION_CONFIG_FILE, GenerateOptions, GenerationConfig, GenerativeModel, Prompt,
    PromptFacts, StopTokens, generate, logits_processors,
};
use accelerate_models::gpt2::GPT2LMHeadModel;
use accelerate_models::llama::LlamaForCausalLM;
use accelerate_testkit::Rank;
use recording::{equal, fill, integers, numbers, recorded};
use serde_json::Value;
use tch::{Kind, Tensor};

fn build<M: PretrainedModel + GenerativeModel + 'static>(
    config: &Value,
    spread: f64,
) -> Box<dyn GenerativeModel> {
    let config: M::Config = serde_json::from_value(config.clone()).unwrap();
    // Without a draw from the generator, of which there is one for all tests of the process.
    let model = M::new(&config, &Factory::default().with_init(Init::Skip)).unwrap();
    fill(&model, spread);
    model.train(false);
    Box::new(model)
}

fn model(recording: &Value, name: &str) -> Box<dyn GenerativeModel> {
    let (model, spread) = (
        &recording["models"][name],
        recording["spread"].as_f64().unwrap(),
    );
    match model["architecture"].as_str().unwrap() {
        "GPT2LMHeadModel" => build::<GPT2LMHeadModel>(&model["config"], spread),
        "LlamaForCausalLM" => build::<LlamaForCausalLM>(&model["config"], spread),
        other => unreachable!("{other}"),
    }
}

fn settings(value: &Value) -> GenerationConfig {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn tokens_are_those_of_transformers() {
    let _turn = accelerate_testkit::turn();
    let recording = recorded("generation.json");
    let runs = recording["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 64);
    for name in ["gpt2", "llama"] {
        let model = model(&recording, name);
        for run in runs.iter().filter(|run| run["model"] == name) {
            let case = format!("{name}: {}", run["name"]);
            if let Some(seed) = run["seed"].as_i64() {
                tch::manual_seed(seed);
            }
            let prompt = Prompt::new(&integers(&run["prompt"]));
            let config = settings(&run["settings"]);
            let made = generate(&*model, &prompt, &config, GenerateOptions::default()).unwrap();
            assert!(
                equal(&made.sequences, &run["sequences"]),
                "{case}: {} {}",
                made.sequences,
                run["sequences"]
            );
            let scores = made
                .scores
                .map(|scores| Vec::<f32>::try_from(scores).unwrap());
            assert_eq!(scores.is_some(), run["scores"].is_array(), "{case}");
            for (found, expected) in scores
                .into_iter()
                .flatten()
                .zip(numbers_or_none(&run["scores"]))
            {
                assert!(
                    (f64::from(found) - expected).abs() < 1e-4 * expected.abs(),
                    "{case}: {found} {expected}"
                );
            }
        }
    }
}

fn numbers_or_none(value: &Value) -> Vec<f64> {
    if value.is_null() {
        return Vec::new();
    }
    numbers(value)
}

#[test]
fn scores_are_changed_as_by_transformers() {
    let _turn = accelerate_testkit::turn();
    let recording = recorded("generation.json");
    let scores = &recording["scores"];
    let sequences = integers(&scores["sequences"]);
    let shape = [2, 12];
    let logits = Tensor::from_slice(&numbers(&scores["logits"])).to_kind(Kind::Float);
    let prompt = sequences.narrow(1, 0, 4);
    let cases = scores["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 30);
    for case in cases {
        let mut config = settings(&case["settings"]);
        config.do_sample = true;
        config.check().unwrap();
        let mut facts = PromptFacts::new(
            case["settings"]["prompt_tokens"].as_i64().unwrap_or(4),
            config.max_length.unwrap_or(20),
        );
        facts.prompt_ids = Some(&prompt);
        let left = logits_processors(&config, &facts)
            .unwrap()
            .iter()
            .try_fold(logits.view(shape), |scores, processor| {
                processor.process(&sequences, scores)
            })
            .unwrap();
        let found = Vec::<f32>::try_from(left.reshape([-1])).unwrap();
        let rows = case["left"].as_array().unwrap();
        let expected = rows.iter().flat_map(|row| row.as_array().unwrap());
        for (found, expected) in found.into_iter().zip(expected) {
            let expected = expected.as_f64().unwrap_or(f64::NEG_INFINITY);
            let same = f64::from(found) == expected
                || (f64::from(found) - expected).abs() < 1e-6 * expected.abs();
            assert!(same, "{}: {found} {expected}", case["settings"]);
        }
    }
}

#[test]
fn a_streamer_gets_every_token_once() {
    let _turn = accelerate_testkit::turn();
    let recording = recorded("generation.json");
    let model = model(&recording, "gpt2");
    let run = &recording["runs"][0];
    let (prompt, config) = (
        Prompt::new(&integers(&run["prompt"])),
        settings(&run["settings"]),
    );
    let mut streamed = Vec::new();
    let mut streamer = |token: i64| {
        streamed.push(token);
        Ok(())
    };
    let options = GenerateOptions {
        streamer: Some(&mut streamer),
        ..Default::default()
    };
    let made = generate(&*model, &prompt, &config, options).unwrap();
    let new = made.new_tokens().unwrap();
    assert_eq!(streamed, Vec::<i64>::try_from(new.select(0, 0)).unwrap());

    let two = Prompt::new(&Tensor::cat(&[&prompt.input_ids, &prompt.input_ids], 0));
    let mut ignored = |_| Ok(());
    let options = GenerateOptions {
        streamer: Some(&mut ignored),
        ..Default::default()
    };
    let error = generate(&*model, &two, &config, options).unwrap_err();
    assert!(error.to_string().contains("found 2 sequences"), "{error}");
}

#[test]
fn criteria_end_sequences() {
    let _turn = accelerate_testkit::turn();
    let recording = recorded("generation.json");
    let model = model(&recording, "gpt2");
    let run = &recording["runs"][0];
    let prompt = Prompt::new(&integers(&run["prompt"]));
    let whole = integers(&run["sequences"]);
    let run_of_two = Vec::<i64>::try_from(whole.select(0, 0).narrow(0, 7, 2)).unwrap();
    let options = GenerateOptions {
        stopping: vec![Box::new(StopTokens::new([run_of_two]))],
        ..Default::default()
    };
    let config = settings(&run["settings"]);
    let made = generate(&*model, &prompt, &config, options).unwrap();
    assert_eq!(made.sequences, whole.narrow(1, 0, 9));
}

#[test]
fn what_cannot_be_continued_is_told() {
    let _turn = accelerate_testkit::turn();
    let recording = recorded("generation.json");
    let model = model(&recording, "llama");
    let told = |ids: Tensor, json: &str| {
        let config: GenerationConfig = serde_json::from_str(json).unwrap();
        let made = generate(
            &*model,
            &Prompt::new(&ids),
            &config,
            GenerateOptions::default(),
        );
        made.unwrap_err().to_string()
    };
    let ids = |values: &[i64]| Tensor::from_slice(values).view([1, -1]);
    let text = told(ids(&[]), "{}");
    assert!(text.contains("at least one token"), "{text}");
    let text = told(ids(&[3, 27, 27]), r#"{"pad_token_id": 27}"#);
    assert!(
        text.contains("padded on the left") && text.contains("row 0"),
        "{text}"
    );
    let text = told(ids(&[3, 4]), r#"{"max_new_tokens": 31}"#);
    assert!(
        text.contains("`max_new_tokens`") && text.contains("found 33"),
        "{text}"
    );
    let text = told(ids(&[3, 40]), "{}");
    assert!(text.contains("0..30") && text.contains("40"), "{text}");
    let text = told(ids(&[3]), r#"{"temperature": -1.0, "do_sample": true}"#);
    assert!(text.contains("`temperature`"), "{text}");
}

#[test]
fn settings_for_generation_stand_beside_a_saved_model() {
    let _turn = accelerate_testkit::turn();
    let recording = recorded("generation.json");
    let mut config = recording["models"]["gpt2"]["config"].clone();
    config["eos_token_id"] = 9.into();
    config["pad_token_id"] = 27.into();
    let config = serde_json::from_value(config).unwrap();
    let model = GPT2LMHeadModel::new(&config, &Factory::default().with_init(Init::Skip)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    model.save_pretrained(&folder).unwrap();
    assert!(folder.path().join(GENERATION_CONFIG_FILE).exists());
    let mut read = GenerationConfig::from_folder(&folder).unwrap();
    assert_eq!(
        (read.eos_token_id.as_slice(), read.pad_token_id),
        ([9].as_slice(), Some(27))
    );
    // Settings of the user's own stay where the model is saved again.
    read.do_sample = true;
    read.typical_p = Some(0.75);
    read.sequence_bias = vec![(vec![3, 4], -1.5)];
    read.save_pretrained(&folder).unwrap();
    model.save_pretrained(&folder).unwrap();
    assert_eq!(GenerationConfig::from_folder(&folder).unwrap(), read);
}

#[test]
fn a_model_that_only_reads_has_no_settings_for_generation() {
    let json = r#"{"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 12}"#;
    let config = serde_json::from_str(json).unwrap();
    let factory = Factory::default().with_init(Init::Skip);
    let folder = tempfile::tempdir().unwrap();
    let model = BertModel::new(&config, &factory).unwrap();
    model.save_pretrained(&folder).unwrap();
    assert!(!folder.path().join(GENERATION_CONFIG_FILE).exists());
}

/// Counts the calls of a model; each needs one of every other rank, as in a sharded model.
struct Meeting {
    state: PartialState,
    calls: Rc<Cell<i64>>,
}

impl Hook for Meeting {
    fn before_forward(
        &self,
        _module: &dyn Module,
        _input: &mut dyn Tree,
    ) -> accelerate::Result<()> {
        self.calls.set(self.calls.get() + 1);
        let one = Tensor::from_slice(&[1i64]);
        let all = reduce(&self.state, one, Reduction::Sum)?;
        assert_eq!(all.int64_value(&[0]), self.state.num_processes() as i64);
        Ok(())
    }
}

#[test]
fn ranks_that_have_finished_call_their_models_for_the_others() {
    accelerate_testkit::ranks(&[1, 2], |rank: Rank| -> accelerate::Result<()> {
        let state = PartialState::new()?;
        let recording = recorded("generation.json");
        let runs = recording["runs"].as_array().unwrap();
        // One row, or three with padding; rank 0 has finished long before rank 1.
        let prompts = ["greedy, batch", "greedy"].map(|name| {
            let run = runs.iter().find(|run| run["name"] == name).unwrap();
            Prompt::new(&integers(&run["prompt"]))
        });
        let prompt = &prompts[rank.index()];
        let new = [3, 9][rank.index()];
        let most = [3, 9][rank.world() - 1];
        for (name, beams) in [("gpt2", 1), ("llama", 1), ("llama", 3)] {
            let model = model(&recording, name);
            let mut config = GenerationConfig::default();
            config.max_new_tokens = Some(new);
            config.num_beams = beams;
            config.pad_token_id = Some(27);
            let made = |synced| {
                let options = GenerateOptions {
                    synced,
                    ..Default::default()
                };
                generate(&*model, prompt, &config, options).unwrap()
            };
            let alone = made(None);
            let calls = Rc::new(Cell::new(0));
            let hook = Rc::new(Meeting {
                state: state.clone(),
                calls: calls.clone(),
            });
            let id = model.state().unwrap().add_hook(hook);
            let together = made(Some(&state));
            model.state().unwrap().remove_hook(id);
            assert_eq!(calls.get(), most, "{name}, {beams} beams");
            assert_eq!(together.sequences, alone.sequences, "{name}, {beams} beams");
            assert_eq!(together.new_tokens()?.size()[1], new);
        }
        Ok(())
    });
}
