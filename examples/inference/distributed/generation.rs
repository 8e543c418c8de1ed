//! The job itself.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::time::Instant;

use accelerate::Accelerator;
use accelerate::nn::Factory;
use accelerate_models::generation::{
    GenerateOptions, GenerationConfig, GenerativeModel as _, Prompt, generate,
};
use accelerate_models::tokenizer::Encoding;
use accelerate_models::{AutoModelForCausalLM, TextTokenizer};
use tch::Kind;

use crate::arguments::Arguments;

type BoxError = Box<dyn std::error::Error>;

/// What is continued where nobody gives a prompt.
const PROMPTS: [&str; 5] = [
    "Alice was",
    "The Queen of Hearts",
    "In the beginning",
    "\"What is the use of a book,\"",
    "Down, down, down.",
];

/// Continues the prompts as the arguments say.
pub(crate) fn run(arguments: &Arguments) -> Result<(), BoxError> {
    start_log();
    let accelerator = Accelerator::new()?;
    let folder = arguments.model.fetch_together(accelerator.state())?;
    let tokenizer = TextTokenizer::from_folder(&folder)?;
    let factory = Factory::new(accelerator.device(), Kind::Float);
    let model = AutoModelForCausalLM::from_folder(&folder, &factory)?;
    let mut config = GenerationConfig::from_folder(&folder)?;
    config.max_new_tokens = Some(arguments.max_new_tokens.get() as i64);
    config.num_beams = arguments.num_beams.get() as i64;
    config.do_sample = arguments.sample;
    tch::manual_seed(arguments.seed + accelerator.process_index() as i64);

    let prompts = prompts(arguments)?;
    let start = Instant::now();
    // With padding every rank makes as many texts, so that none waits for another at the end.
    let part = accelerator.split_between_processes(prompts.clone(), true)?;
    let job = Job {
        model: &model,
        tokenizer: &tokenizer,
        config: &config,
    };
    let mut texts = Vec::with_capacity(part.items.len());
    for batch in part.items.chunks(arguments.batch_size.get()) {
        texts.extend(job.continued(batch)?);
    }
    // Copies at the end of a part were there to fill it up.
    texts.truncate(part.real);
    let texts = accelerator.gather_object(texts)?;

    for (prompt, text) in prompts.iter().zip(&texts) {
        accelerator.print(format!("{prompt}{text}\n"));
    }
    accelerator.print(format!(
        "continued {} prompts on {} processes in {:.1} s",
        texts.len(),
        accelerator.num_processes(),
        start.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// What makes a text out of a prompt.
struct Job<'a> {
    model: &'a AutoModelForCausalLM,
    tokenizer: &'a TextTokenizer,
    config: &'a GenerationConfig,
}

impl Job<'_> {
    /// What follows each prompt.
    fn continued(&self, prompts: &[String]) -> Result<Vec<String>, BoxError> {
        let texts: Vec<&str> = prompts.iter().map(String::as_str).collect();
        let encodings = self.tokenizer.encode_each(&texts, self.room())?;
        let encodings: Vec<&Encoding> = encodings.iter().collect();
        let batch = self.tokenizer.batch_to_continue(&encodings)?;
        let prompt = Prompt {
            input_ids: batch.input_ids.f_to_device(self.device())?,
            attention_mask: Some(batch.attention_mask),
        };
        let made = generate(self.model, &prompt, self.config, GenerateOptions::default())?;
        let rows = Vec::<Vec<i64>>::try_from(made.new_tokens()?)?;
        rows.iter()
            .map(|tokens| Ok(self.tokenizer.decode(self.until_end(tokens), true)?))
            .collect()
    }

    /// The longest prompt that leaves room for new tokens.
    fn room(&self) -> usize {
        let new = self.config.max_new_tokens.unwrap_or(0);
        let limit = self.model.generation_profile().max_positions;
        limit.map_or(usize::MAX, |limit| {
            usize::try_from(limit - new).unwrap_or(0).max(1)
        })
    }

    /// The tokens before the first that ends a text.
    fn until_end<'t>(&self, tokens: &'t [i64]) -> &'t [i64] {
        let ends = &self.config.eos_token_id;
        let length = tokens.iter().position(|token| ends.contains(token));
        &tokens[..length.unwrap_or(tokens.len())]
    }

    fn device(&self) -> tch::Device {
        use accelerate::nn::Module as _;
        self.model
            .parameters()
            .first()
            .map_or(tch::Device::Cpu, |parameter| parameter.tensor().device())
    }
}

fn prompts(arguments: &Arguments) -> Result<Vec<String>, BoxError> {
    let Some(path) = &arguments.prompts else {
        return Ok(PROMPTS.map(str::to_owned).to_vec());
    };
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read the prompts in `{}`: {error}", path.display()))?;
    let prompts: Vec<String> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(str::to_owned)
        .collect();
    if prompts.is_empty() {
        return Err(format!(
            "`{}` holds no prompt; write one on each line",
            path.display()
        )
        .into());
    }
    Ok(prompts)
}

/// Warnings of the library go to standard error.
fn start_log() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .init();
}
