//! Writing on from a prompt, greedily and with beams.

use std::error::Error;
use std::time::{Duration, Instant};

use accelerate_models::PretrainedModel;
use accelerate_models::generation::{
    GenerateOptions, GenerationConfig, GenerativeModel, Prompt, generate,
};
use accelerate_models::gpt2::GPT2LMHeadModel;
use accelerate_models::llama::LlamaForCausalLM;
use accelerate_models::t5::T5ForConditionalGeneration;
use tch::{Kind, Tensor};

use super::measures::Measures;
use super::shapes::{self, Shape};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PROMPT: i64 = 32;
const NEW: i64 = 48;
/// The fastest of so many counts.
const RUNS: usize = 3;

/// Every model that writes, in every size.
pub(crate) fn run(measures: &mut Measures) -> Outcome<()> {
    for (name, sizes) in shapes::read()? {
        for (size, shape) in sizes {
            let model: Box<dyn GenerativeModel> = match name.as_str() {
                "gpt2" => build::<GPT2LMHeadModel>(&shape)?,
                "llama" => build::<LlamaForCausalLM>(&shape)?,
                "t5" => build::<T5ForConditionalGeneration>(&shape)?,
                _ => continue,
            };
            for beams in [1, 4] {
                let key = format!("{name}_{size}_{beams}_beams");
                let (made, fastest) = pace(&*model, &shape.token_ids(Some(PROMPT))?, beams)?;
                measures.check(format!("{key}_tokens"), made.numel() as f64);
                if beams == 1 {
                    let sum = made.f_sum(Kind::Int64)?.f_int64_value(&[])?;
                    measures.check(format!("{key}_sum"), sum as f64);
                }
                measures.time(format!("{key}_token_s"), fastest.as_secs_f64() / NEW as f64);
            }
        }
    }
    Ok(())
}

fn build<M: PretrainedModel + GenerativeModel + 'static>(
    shape: &Shape,
) -> Outcome<Box<dyn GenerativeModel>> {
    let model = shape.model::<M>()?;
    model.train(false);
    Ok(Box::new(model))
}

/// The new tokens, and how long the fastest run took.
fn pace(model: &dyn GenerativeModel, prompt: &Tensor, beams: i64) -> Outcome<(Tensor, Duration)> {
    let mut settings = GenerationConfig::default();
    settings.max_new_tokens = Some(NEW);
    settings.num_beams = beams;
    settings.pad_token_id = Some(0);
    settings.decoder_start_token_id = Some(0);
    let prompt = Prompt {
        input_ids: prompt.shallow_clone(),
        attention_mask: Some(prompt.f_ones_like()?),
    };
    let run = || generate(model, &prompt, &settings, GenerateOptions::default());
    let made = run()?.sequences;
    let mut fastest = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        fastest = fastest.min(start.elapsed());
    }
    Ok((made.f_narrow(1, made.size()[1] - NEW, NEW)?, fastest))
}
