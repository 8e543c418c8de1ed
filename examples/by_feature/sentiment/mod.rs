//! The job that the features are shown on: a small BERT learns whether a line of a movie review
//! is positive.

mod arguments;
mod mean;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use accelerate::data::{DataLoader, Dataset};
use accelerate::nn::{Factory, Forward, Module};
use accelerate::optim::{AdamW, AdamWConfig};
use accelerate::tch::Tensor;
use accelerate::{Error, Result, random};
use accelerate_models::bert::{BertConfig, BertForSequenceClassification, BertInput};
use accelerate_models::tokenizer::TextTokenizer;
use accelerate_models::{PretrainedConfig, PretrainedModel};

use crate::batches::Batches;
use crate::evaluation::Scores;
use crate::snippets::{self, Snippet};

pub(crate) use arguments::Arguments;
pub(crate) use mean::Mean;

/// The model.
pub(crate) type Classifier = BertForSequenceClassification;

/// Some lines of reviews, shared by all loaders over them.
pub(crate) type Snippets = Arc<Vec<Snippet>>;

/// Data and model, read once and made as often as an example needs them.
pub(crate) struct Sentiment {
    pub(crate) training: Snippets,
    pub(crate) held_out: Snippets,
    /// Makes batches of tokens.
    pub(crate) batches: Batches,
    config: BertConfig,
    arguments: Arguments,
}

impl Sentiment {
    /// Reads what the arguments name.
    ///
    /// # Errors
    /// Files that are missing or do not fit.
    pub(crate) fn read(arguments: &Arguments) -> Result<Self> {
        start_log(tracing::Level::WARN);
        let held_out = arguments.held_out.get();
        let (all, held_out) = snippets::read(&arguments.data, held_out).map_err(Error::data)?;
        // The file is sorted by label: samples are taken from everywhere.
        let samples = arguments.samples.get().min(all.len());
        let training = (0..samples).map(|k| all[k * all.len() / samples].clone());
        let folder = &arguments.model;
        let config = BertConfig::from_folder(folder).map_err(Error::data)?;
        let tokenizer = TextTokenizer::from_folder(folder).map_err(Error::data)?;
        Ok(Self {
            training: Arc::new(training.collect()),
            held_out: Arc::new(held_out),
            batches: Batches {
                tokenizer,
                max_length: arguments.max_length.get(),
            },
            config: config.with_num_labels(2),
            arguments: arguments.clone(),
        })
    }

    /// A model that was not fine-tuned yet, the same at each call, in training mode.
    pub(crate) fn model(&self) -> Result<Classifier> {
        random::set_seed(self.arguments.seed, random::SeedOptions::default())?;
        let (folder, factory) = (&self.arguments.model, Factory::default());
        let model = Classifier::with_weights_of(folder, &self.config, &factory);
        let model = model.map_err(Error::data)?;
        model.train(true);
        Ok(model)
    }

    /// The optimizer of a model.
    pub(crate) fn optimizer(&self, model: &Classifier) -> Result<AdamW> {
        let config = AdamWConfig {
            lr: self.arguments.lr,
            ..Default::default()
        };
        AdamW::new(parameters(model), config)
    }

    /// Batches to train on.
    pub(crate) fn training(&self) -> Result<DataLoader<Snippets, Batches>> {
        self.loader(
            Arc::clone(&self.training),
            self.arguments.batch_size.get(),
            true,
        )
    }

    /// Batches to evaluate on, in the order of the file.
    pub(crate) fn held_out(&self) -> Result<DataLoader<Snippets, Batches>> {
        self.loader(
            Arc::clone(&self.held_out),
            self.arguments.batch_size.get(),
            false,
        )
    }

    /// Batches of any snippets.
    pub(crate) fn loader<D: Dataset<Item = Snippet>>(
        &self,
        snippets: D,
        batch_size: usize,
        shuffle: bool,
    ) -> Result<DataLoader<D, Batches>> {
        DataLoader::builder(snippets)
            .batch_size(batch_size)
            .shuffle(shuffle)
            .collate(self.batches.clone())
            .build()
    }
}

/// Handles on all parameters of a model, for its optimizer.
pub(crate) fn parameters(model: &dyn Module) -> Vec<Tensor> {
    let parameters = model.parameters().into_iter();
    parameters.map(|p| p.tensor().shallow_clone()).collect()
}

/// The mean loss of a batch: `[]`.
pub(crate) fn loss_of(model: &Classifier, batch: BertInput) -> Result<Tensor> {
    let loss = model.call(batch)?.loss;
    loss.ok_or_else(|| Error::data("the batch has no labels"))
}

/// Logits `[batch, 2]` and labels `[batch]` of a batch that is not trained on.
pub(crate) fn predict(model: &Classifier, mut batch: BertInput) -> Result<(Tensor, Tensor)> {
    let labels = batch.labels.take();
    let labels = labels.ok_or_else(|| Error::data("the batch has no labels"))?;
    let logits = accelerate::tch::no_grad(|| Ok::<_, Error>(model.call(batch)?.logits))?;
    Ok((logits, labels))
}

/// Scores a model on all samples of a loader of this process alone.
pub(crate) fn evaluate<D: Dataset<Item = Snippet> + 'static>(
    model: &Classifier,
    batches: &DataLoader<D, Batches>,
) -> Result<Scores> {
    model.train(false);
    let mut scores = Scores::default();
    for batch in batches {
        let (logits, labels) = predict(model, batch?)?;
        scores.add(&logits.f_argmax(-1, false)?, &labels)?;
    }
    model.train(true);
    Ok(scores)
}

/// What is to be said about an evaluation.
pub(crate) fn told(scores: Scores) -> String {
    format!(
        "accuracy {:.4}, F1 {:.4} on {} held-out snippets",
        scores.accuracy(),
        scores.f1(),
        scores.samples()
    )
}

/// Prints a line; what a program without an accelerator does.
#[expect(clippy::print_stdout, reason = "what the examples are there to show")]
pub(crate) fn print(line: impl std::fmt::Display) {
    println!("{line}");
}

/// Messages of the library from this level on go to standard error; the first call counts.
pub(crate) fn start_log(level: tracing::Level) {
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .try_init();
}
