//! Gradient accumulation where batches hold different numbers of tokens: each token is to count
//! the same, so the loss is divided by the number of tokens in all batches of a step.

pub(crate) mod accelerated;
mod causal_lm;
pub(crate) mod plain;

use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate::data::{Collate, DataLoader};
use accelerate::nn::{Factory, Init};
use accelerate::optim::{AdamW, AdamWConfig};
use accelerate::tch::Tensor;
use accelerate::{Error, Result, random};
use accelerate_models::tokenizer::TextTokenizer;
use clap::Args;

use self::causal_lm::{CausalLm, PADDING};
use crate::sentiment::{self, Sentiment, Snippets, parameters};
use crate::snippets::Snippet;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sentiment: sentiment::Arguments,
    /// Over how many batches gradients are accumulated.
    #[arg(long, default_value = "4")]
    gradient_accumulation_steps: NonZeroUsize,
    /// Width of the model.
    #[arg(long, default_value = "128")]
    width: NonZeroUsize,
}

/// A language model with new weights, its optimizer, and batches of the snippets' tokens.
fn set_up(arguments: &Arguments) -> Result<(CausalLm, AdamW, DataLoader<Snippets, Tokens>)> {
    let task = Sentiment::read(&arguments.sentiment)?;
    random::set_seed(arguments.sentiment.seed, random::SeedOptions::default())?;
    let tokens = Tokens {
        tokenizer: task.batches.tokenizer,
        max_length: task.batches.max_length,
    };
    let factory = Factory::default().with_init(Init::Normal { std: 0.02 });
    let vocabulary = tokens.tokenizer.vocab_size();
    let width = arguments.width.get();
    let model = CausalLm::new(vocabulary, tokens.max_length, width, &factory)?;
    let config = AdamWConfig {
        lr: arguments.sentiment.lr,
        ..Default::default()
    };
    let optimizer = AdamW::new(parameters(&model), config)?;
    let batches = DataLoader::builder(Arc::clone(&task.training))
        .batch_size(arguments.sentiment.batch_size.get())
        .collate(tokens)
        .build()?;
    Ok((model, optimizer, batches))
}

/// Snippets to token ids and labels, both `[batch, tokens]`; padding has the label [`PADDING`].
struct Tokens {
    tokenizer: TextTokenizer,
    max_length: usize,
}

impl Collate<Snippet> for Tokens {
    type Batch = (Tensor, Tensor);

    fn collate(&self, items: Vec<Snippet>) -> Result<Self::Batch> {
        let texts: Vec<&str> = items.iter().map(|snippet| snippet.text.as_str()).collect();
        let encodings = self.tokenizer.encode_each(&texts, self.max_length);
        let encodings = encodings.map_err(Error::data)?;
        let batch = self.tokenizer.batch(&encodings.iter().collect::<Vec<_>>());
        let batch = batch.map_err(Error::data)?;
        let padding = batch.attention_mask.f_eq(0)?;
        let labels = batch.input_ids.f_masked_fill(&padding, PADDING)?;
        Ok((batch.input_ids, labels))
    }
}
