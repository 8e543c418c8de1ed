//! Language models and encoders in stages, against the same models whole.

use std::path::Path;

use accelerate::nn::Factory;
use accelerate::parallel::{PipelineOptions, Pipelined};
use accelerate::tree::{Tree, concatenate, leaves};
use accelerate::{Accelerator, Result};
use accelerate_models::PretrainedModel;
use accelerate_models::bert::{BertConfig, BertForSequenceClassification, BertInput};
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::gpt2::{GPT2Config, GPT2LMHeadModel};
use accelerate_models::llama::{LlamaConfig, LlamaForCausalLM};
use accelerate_models::pretrained::pipeline_from_folder;
use accelerate_models::t5::{T5Config, T5EncoderInput, T5EncoderModel};
use accelerate_testkit::ranks;
use serde_json::json;
use tch::{Device, Kind, Tensor};

const TOKENS: i64 = 6;

/// Token ids, and a mask with padding in some rows.
fn batch(rows: i64) -> (Tensor, Tensor) {
    let count = rows * TOKENS;
    let ids = Tensor::arange(count, (Kind::Int64, Device::Cpu)) * 7;
    let places = Tensor::arange(TOKENS, (Kind::Int64, Device::Cpu));
    let lengths = Tensor::arange(rows, (Kind::Int64, Device::Cpu)).remainder(3) + 4;
    let mask = places.unsqueeze(0).lt_tensor(&lengths.unsqueeze(1));
    (
        ids.remainder(40).view([rows, TOKENS]),
        mask.to_kind(Kind::Int64),
    )
}

/// Runs a model in stages and whole, on batches that cannot be cut evenly.
fn compare<M>(
    accelerator: &Accelerator,
    config: &M::Config,
    input: impl Fn(&Tensor, Option<&Tensor>) -> M::Input,
) -> Result<()>
where
    M: PretrainedModel + Pipelined,
{
    let world = accelerator.num_processes() as i64;
    tch::manual_seed(11);
    let whole = M::new(config, &Factory::default()).unwrap();
    whole.train(false);
    let shared = tempfile::tempdir().unwrap();
    // Rank 0's folder serves all.
    let mut folder = vec![shared.path().to_str().unwrap().to_owned()];
    accelerator.broadcast_object_list(&mut folder, 0)?;
    let folder = Path::new(&folder[0]);
    if accelerator.is_main_process() {
        whole.save_pretrained(folder).unwrap();
    }
    accelerator.wait_for_everyone()?;
    let options = PipelineOptions::default().gather_output(true);
    let pipeline =
        pipeline_from_folder::<M>(accelerator, folder, &Factory::default(), &options).unwrap();
    let all = whole.num_parameters();
    let held: usize = pipeline
        .model()
        .parameters()
        .iter()
        .filter(|one| !one.is_meta().unwrap())
        .map(|one| one.numel())
        .sum();
    assert!(0 < held && held < all, "{held} of {all}");
    for (rows, padded) in [(5, false), (7, true), (1, true)] {
        let (ids, mask) = batch(rows);
        let mask = padded.then_some(&mask);
        let output = pipeline.call(Given(input(&ids, mask)))?.unwrap();
        let (mut expected, mut start) = (Vec::new(), 0);
        for chunk in 0..world.min(rows) {
            let length = rows / world.min(rows) + i64::from(chunk < rows % world.min(rows));
            let ids = ids.narrow(0, start, length);
            let mask = mask.map(|mask| mask.narrow(0, start, length));
            let part = Given(input(&ids, mask.as_ref()));
            expected.push(tch::no_grad(|| whole.call(part))?);
            start += length;
        }
        let expected = leaves(&concatenate(expected, 0)?)?;
        assert_eq!(leaves(&output)?, expected, "{rows} rows");
    }
    accelerator.wait_for_everyone()
}

struct Given<T>(T);

impl<T: Tree> accelerate::nn::IntoInput<T> for Given<T> {
    fn into_input(self) -> T {
        self.0
    }
}

fn config<C: serde::de::DeserializeOwned>(value: serde_json::Value) -> C {
    serde_json::from_value(value).unwrap()
}

fn decoder_input(ids: &Tensor, mask: Option<&Tensor>) -> CausalLmInput {
    let input = CausalLmInput::new(ids);
    match mask {
        Some(mask) => input.with_attention_mask(mask),
        None => input,
    }
}

#[test]
fn models_in_stages_compute_what_whole_ones_do() {
    ranks(&[2, 3], |_| -> Result<()> {
        tch::set_num_threads(1);
        let accelerator = Accelerator::builder().cpu(true).build()?;
        // The head has the weights of the embeddings, which are on another rank.
        let gpt2: GPT2Config = config(json!({
            "vocab_size": 40, "n_positions": 16, "n_embd": 8, "n_layer": 3, "n_head": 2,
        }));
        compare::<GPT2LMHeadModel>(&accelerator, &gpt2, decoder_input)?;
        let llama: LlamaConfig = config(json!({
            "vocab_size": 40, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 3,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16,
            "tie_word_embeddings": false,
        }));
        compare::<LlamaForCausalLM>(&accelerator, &llama, decoder_input)?;
        let bert: BertConfig = config(json!({
            "vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
            "intermediate_size": 12, "max_position_embeddings": 16,
        }));
        compare::<BertForSequenceClassification>(&accelerator, &bert, |ids, mask| BertInput {
            input_ids: ids.shallow_clone(),
            attention_mask: mask.map(Tensor::shallow_clone),
            token_type_ids: None,
            labels: None,
        })?;
        let t5: T5Config = config(json!({
            "vocab_size": 40, "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 3, "num_heads": 2,
        }));
        compare::<T5EncoderModel>(&accelerator, &t5, |ids, mask| T5EncoderInput {
            input_ids: ids.shallow_clone(),
            attention_mask: mask.map(Tensor::shallow_clone),
        })?;
        labels_are_refused(&accelerator, &gpt2)
    });
}

fn labels_are_refused(accelerator: &Accelerator, config: &GPT2Config) -> Result<()> {
    let model = GPT2LMHeadModel::new(config, &Factory::default()).unwrap();
    let (ids, _) = batch(2);
    let error = model
        .begin(CausalLmInput::new(&ids).with_labels(&ids))
        .unwrap_err();
    assert!(error.to_string().contains("labels"), "{error}");
    accelerator.wait_for_everyone()
}
