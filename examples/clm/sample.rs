//! Text that the trained model makes up.

use std::io::{self, Write as _};

use accelerate_models::TextTokenizer;
use accelerate_models::generation::{
    GenerateOptions, GenerationConfig, Prompt, TextStreamer, generate,
};
use accelerate_models::gpt2::GPT2LMHeadModel;
use tch::Tensor;

use crate::arguments::Arguments;

type BoxError = Box<dyn std::error::Error>;

/// Draws from so many likeliest tokens.
const TOP_K: i64 = 40;
/// Makes the likeliest tokens likelier.
const TEMPERATURE: f64 = 0.8;

/// Writes a prompt and its continuation to standard output, word by word as it comes.
pub(crate) fn write(
    model: &GPT2LMHeadModel,
    tokenizer: &TextTokenizer,
    end: i64,
    arguments: &Arguments,
) -> Result<(), BoxError> {
    // Together they have to fit into what the model sees at once.
    let room = arguments.block_size.get().saturating_sub(1).max(1);
    let mut ids = tokenizer.encode(&arguments.prompt, room)?.ids;
    if ids.is_empty() {
        ids.push(end);
    }
    let prompt_tokens = ids.len() as i64;
    let new = arguments
        .sample_tokens
        .min(arguments.block_size.get() as i64 - prompt_tokens);
    let ids = Tensor::f_from_slice(&ids)?
        .f_unsqueeze(0)?
        .f_to_device(device(model))?;
    let mut config = GenerationConfig::default();
    config.max_new_tokens = Some(new.max(1));
    config.do_sample = true;
    config.top_k = TOP_K;
    config.temperature = TEMPERATURE;
    config.eos_token_id = vec![end];

    let mut out = io::stdout().lock();
    write!(out, "sample: {}", arguments.prompt)?;
    let mut streamer = TextStreamer::new(tokenizer, |piece: &str| {
        write!(out, "{piece}")
            .and_then(|()| out.flush())
            .map_err(accelerate::Error::data)
    });
    let options = GenerateOptions {
        streamer: Some(&mut streamer),
        ..Default::default()
    };
    tch::manual_seed(arguments.seed);
    generate(model, &Prompt::new(&ids), &config, options)?;
    writeln!(out)?;
    Ok(())
}

fn device(model: &GPT2LMHeadModel) -> tch::Device {
    use accelerate::nn::Module as _;
    model
        .parameters()
        .first()
        .map_or(tch::Device::Cpu, |parameter| parameter.tensor().device())
}
