//! The job itself.

use std::error::Error;

use accelerate::data::DataLoader;
use accelerate::nn::{Factory, Forward, Module};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer, Scheduler, linear_schedule_with_warmup};
use accelerate::random::SeedOptions;
use accelerate::tree::SendOptions;
use accelerate::{Accelerator, tch::Tensor};
use accelerate_examples::curves::Curves;
use accelerate_examples::progress;
use accelerate_models::generation::Prompt;
use accelerate_models::t5::T5ForConditionalGeneration;
use accelerate_models::{PretrainedModel, TextTokenizer};

use crate::arguments::Arguments;
use crate::batches::Batches;
use crate::evaluation::{Scores, evaluate, write};
use crate::pairs::{self, Pair};
use crate::{snippets, tokens};

/// One step of so many is spent on letting the learning rate rise.
const WARMUP_PART: u64 = 16;
/// How many lines are shown in the end.
const SHOWN: usize = 4;

/// Trains, evaluates and shows what was learnt.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    progress::start_log();
    let (training, held_out) = snippets::read(&arguments.data, arguments.held_out.get())?;
    let [training, held_out] =
        [training, held_out].map(|all| pairs::of(&all, arguments.words.get()));
    let accelerator = Accelerator::new()?;
    let tokenizer = tokens::learn(&accelerator, &training, arguments.vocab_size.get())?;
    accelerator.set_seed(arguments.seed, SeedOptions::default())?;

    let config = arguments.model(tokenizer.vocab_size());
    let model = T5ForConditionalGeneration::new(&config, &Factory::default())?;
    let settings = AdamWConfig {
        lr: arguments.lr,
        weight_decay: 0.0,
        ..AdamWConfig::default()
    };
    let optimizer = AdamW::new(tensors(&model), settings)?;
    let shown: Vec<Pair> = held_out.iter().take(SHOWN).cloned().collect();
    let batches = loader(training, &tokenizer, arguments, true)?;
    let held_out = loader(held_out, &tokenizer, arguments, false)?;
    // The prepared schedule moves once per rank at each step: it is as long as the unprepared loader.
    let total = batches.len() as u64 * arguments.epochs;
    let scheduler = linear_schedule_with_warmup(&optimizer, total / WARMUP_PART, total);
    let (model, mut optimizer, batches, held_out, mut scheduler) =
        accelerator.prepare((model, optimizer, batches, held_out, scheduler))?;

    let parameters = tensors(&*model);
    let mut seen = Seen::default();
    for epoch in 1..=arguments.epochs {
        let name = format!("epoch {epoch}/{}", arguments.epochs);
        let bar = progress::bar_of_machine(&accelerator, name, batches.len());
        for (step, batch) in (1..).zip(&batches) {
            let loss = model.call(batch?)?.loss.ok_or("the batch has no labels")?;
            accelerator.backward(&loss)?;
            accelerator.clip_grad_norm(&parameters, arguments.max_grad_norm)?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;

            let loss = loss.f_double_value(&[])?;
            seen.step(loss);
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
            if arguments.max_steps.is_some_and(|most| step >= most) {
                break;
            }
        }
        bar.finish();
        let scores = evaluate(&accelerator, &model, &held_out)?;
        accelerator.print(format!(
            "epoch {epoch}: loss {:.4}, token accuracy {:.4}, exact match {:.4} on {} held-out lines",
            seen.last(),
            scores.token_accuracy(),
            scores.exact_match(),
            scores.lines(),
        ));
        seen.epoch(scores);
    }

    let model = accelerator.unwrap_model(model);
    model.train(false);
    if accelerator.is_main_process() {
        show(&accelerator, &model, &tokenizer, shown)?;
        if let Some(path) = &arguments.curves {
            seen.curves().save(path)?;
        }
        if let Some(folder) = &arguments.output {
            model.save_pretrained(folder)?;
            tokenizer.save(folder)?;
        }
    }
    Ok(accelerator.end_training()?)
}

fn tensors(model: &dyn Module) -> Vec<Tensor> {
    let parameters = model.parameters().into_iter();
    parameters.map(|p| p.tensor().shallow_clone()).collect()
}

fn loader(
    pairs: Vec<Pair>,
    tokenizer: &TextTokenizer,
    arguments: &Arguments,
    shuffle: bool,
) -> accelerate::Result<DataLoader<Vec<Pair>, Batches>> {
    DataLoader::builder(pairs)
        .batch_size(arguments.batch_size.get())
        .shuffle(shuffle)
        .collate(Batches {
            tokenizer: tokenizer.clone(),
        })
        .num_workers(1)
        .build()
}

/// Prints some lines as they are and as the model writes them.
fn show(
    accelerator: &Accelerator,
    model: &T5ForConditionalGeneration,
    tokenizer: &TextTokenizer,
    pairs: Vec<Pair>,
) -> Result<(), Box<dyn Error>> {
    use accelerate::data::Collate as _;
    let collate = Batches {
        tokenizer: tokenizer.clone(),
    };
    let sources: Vec<String> = pairs.iter().map(|pair| pair.source.clone()).collect();
    let batch = accelerator.send_to_device(collate.collate(pairs)?, &SendOptions::default())?;
    let (Some(input_ids), Some(labels)) = (batch.input_ids, batch.labels) else {
        return Ok(());
    };
    let prompt = Prompt {
        input_ids,
        attention_mask: batch.attention_mask,
    };
    let written = write(model, &prompt, labels.size()[1])?;
    for (source, ids) in sources.iter().zip(Vec::<Vec<i64>>::try_from(&written)?) {
        accelerator.print(format!("`{source}` -> `{}`", tokenizer.decode(&ids, true)?));
    }
    Ok(())
}

/// What was seen while training.
#[derive(Debug, Default)]
struct Seen {
    loss: Vec<(u64, f64)>,
    token_accuracy: Vec<(u64, f64)>,
    exact_match: Vec<(u64, f64)>,
}

impl Seen {
    fn step(&mut self, loss: f64) {
        self.loss.push((self.loss.len() as u64 + 1, loss));
    }

    fn last(&self) -> f64 {
        self.loss.last().map_or(f64::NAN, |&(_, loss)| loss)
    }

    fn epoch(&mut self, scores: Scores) {
        let step = self.loss.len() as u64;
        self.token_accuracy.push((step, scores.token_accuracy()));
        self.exact_match.push((step, scores.exact_match()));
    }

    fn curves(&self) -> Curves {
        Curves::new("lines of reviews, tidied up")
            .line("loss", &self.loss)
            .line("share/token accuracy", &self.token_accuracy)
            .line("share/exact match", &self.exact_match)
    }
}
