//! The job itself.

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use accelerate::data::{Collate, DataLoader};
use accelerate::nn::{Factory, Forward, Module};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer, Scheduler, cosine_schedule_with_warmup};
use accelerate::tch::Tensor;
use accelerate_examples::curves::Curves;
use accelerate_examples::progress::bar_of_machine;
use accelerate_models::PretrainedModel;
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::gpt2::GPT2LMHeadModel;

use crate::arguments::Arguments;
use crate::{corpus, evaluation, sample};

type BoxError = Box<dyn std::error::Error>;

/// One step of so many is spent on letting the learning rate rise.
const WARMUP_PART: u64 = 20;

/// Trains, evaluates and makes up text as the arguments say.
pub(crate) fn run(arguments: &Arguments) -> Result<(), BoxError> {
    start_log();
    let accelerator = arguments.running.accelerator()?;
    let texts = corpus::read(&arguments.data)?;
    let (tokenizer, end) = corpus::tokenizer(&texts, arguments, &accelerator)?;
    let blocks = corpus::pack(&texts, &tokenizer, end, arguments)?;
    accelerator.print(format!(
        "{} blocks of {} tokens to train on, {} held out, {} different tokens",
        blocks.training.len(),
        arguments.block_size,
        blocks.held_out.len(),
        tokenizer.vocab_size()
    ));

    tch::manual_seed(arguments.seed);
    let config = arguments.model(tokenizer.vocab_size(), end);
    let model = GPT2LMHeadModel::new(&config, &Factory::default())?;
    let parameters: Vec<Tensor> = model
        .parameters()
        .into_iter()
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let optimizer = AdamW::new(
        parameters,
        AdamWConfig {
            lr: arguments.lr,
            ..Default::default()
        },
    )?;
    let batches = loader(blocks.training, arguments, true)?;
    let held_out = loader(blocks.held_out, arguments, false)?;
    // The prepared schedule moves once per rank at each update: it is as long as the unprepared loader,
    // divided by the batches of an update.
    let accumulated = accelerator.gradient_accumulation_steps().get();
    let total = batches.len().div_ceil(accumulated) as u64 * arguments.epochs;
    let scheduler = cosine_schedule_with_warmup(&optimizer, total / WARMUP_PART, total, 0.5);
    let (model, mut optimizer, batches, held_out, mut scheduler) =
        accelerator.prepare((model, optimizer, batches, held_out, scheduler))?;
    arguments.running.tell(&accelerator);

    accelerator.resume()?;
    let mut history = History::default();
    for epoch in batches.iteration() + 1..=arguments.epochs {
        let name = format!("epoch {epoch}/{}", arguments.epochs);
        let bar = bar_of_machine(&accelerator, name, batches.len());
        let (start, before) = (Instant::now(), history.training.len());
        for batch in &batches {
            let ids = batch?;
            let update = accelerator.accumulate(&model)?;
            let loss = loss_of(&model, &ids)?;
            accelerator.backward(&loss)?;
            accelerator.clip_grad_norm(model.parameters(), arguments.max_grad_norm)?;
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;
            drop(update);

            history.step(loss.f_double_value(&[])?);
            bar.set_message(format!("loss {:.3}", history.last()));
            bar.inc(1);
            if arguments
                .max_steps
                .is_some_and(|most| history.training.len() - before >= most)
            {
                break;
            }
            accelerator.leave_when_asked()?;
        }
        bar.finish();
        let loss = evaluation::loss(&accelerator, &model, &held_out)?;
        accelerator.print(format!(
            "epoch {epoch}: training loss {:.4}, held-out loss {loss:.4}, perplexity {:.2}, {:.1} s",
            history.mean_since(before),
            loss.exp(),
            start.elapsed().as_secs_f64(),
        ));
        history.evaluated(loss);
    }
    model.train(false);
    let end_job = |model: &GPT2LMHeadModel| -> Result<(), BoxError> {
        if let Some(folder) = &arguments.output {
            model.save_pretrained(folder)?;
            tokenizer.save(folder)?;
            accelerator.print(format!("saved the model to {}", folder.display()));
        }
        if let Some(path) = &arguments.curves {
            history.curves().save(path)?;
        }
        match arguments.sample_tokens {
            1.. => sample::write(model, &tokenizer, end, arguments),
            _ => Ok(()),
        }
    };
    let ended = if model.sharded().is_some() {
        // Each process has a part of the model only: here all of it is there.
        model.with_whole_parameters(false, |model| {
            Ok(accelerator.on_main_process(|| end_job(model)))
        })?
    } else {
        let model = accelerator.unwrap_model(model);
        accelerator.on_main_process(|| end_job(&model))
    };
    ended.transpose()?;
    accelerator.wait_for_everyone()?;
    Ok(())
}

fn loss_of(model: &GPT2LMHeadModel, ids: &Tensor) -> Result<Tensor, BoxError> {
    model
        .call(CausalLmInput::new(ids).with_labels(ids))?
        .loss
        .ok_or_else(|| "the batch has no labels".into())
}

/// Blocks into batches `[blocks, tokens]`.
#[derive(Debug, Clone, Copy)]
struct Stacked;

impl Collate<Vec<i64>> for Stacked {
    type Batch = Tensor;

    fn collate(&self, blocks: Vec<Vec<i64>>) -> accelerate::Result<Tensor> {
        let rows = blocks.len() as i64;
        Ok(Tensor::f_from_slice(&blocks.concat())?.f_view([rows, -1])?)
    }
}

fn loader(
    blocks: Vec<Vec<i64>>,
    arguments: &Arguments,
    shuffle: bool,
) -> accelerate::Result<DataLoader<Vec<Vec<i64>>, Stacked>> {
    DataLoader::builder(blocks)
        .batch_size(arguments.batch_size.get())
        .shuffle(shuffle)
        .collate(Stacked)
        .num_workers(1)
        .build()
}

/// Losses so far.
#[derive(Debug, Default)]
struct History {
    training: Vec<f64>,
    held_out: Vec<(u64, f64)>,
}

impl History {
    fn step(&mut self, loss: f64) {
        self.training.push(loss);
    }

    fn last(&self) -> f64 {
        self.training.last().copied().unwrap_or(f64::NAN)
    }

    fn mean_since(&self, before: usize) -> f64 {
        let new = &self.training[before..];
        new.iter().sum::<f64>() / new.len() as f64
    }

    fn evaluated(&mut self, loss: f64) {
        self.held_out.push((self.training.len() as u64, loss));
    }

    fn curves(&self) -> Curves {
        let training: Vec<(u64, f64)> = (1..).zip(self.training.iter().copied()).collect();
        let perplexity: Vec<(u64, f64)> = self
            .held_out
            .iter()
            .map(|&(step, loss)| (step, loss.exp()))
            .collect();
        Curves::new("clm")
            .line("loss/training", &training)
            .line("loss/held out", &self.held_out)
            .line("perplexity", &perplexity)
    }
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
