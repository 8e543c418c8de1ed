//! Trains a ResNet to tell handwritten digits apart. `plain.rs` is the same program without
//! accelerate; beside each other they show what it takes.
//!
//! ```text
//! cargo xtask setup                                                    # fetches the digits
//! cargo run -p accelerate-examples --bin cv -- --curves curves.svg     # 1 process
//! accelerate launch --cpu --num_processes 2 cv --curves curves.svg     # N processes
//! accelerate launch --num_machines 2 --machine_rank 0 ... cv           # N machines
//! cv --data FOLDER                                                     # FOLDER/class/*.png
//! cv --project-dir FOLDER                 # ended early it saves there; again, it goes on
//! ```

#![forbid(unsafe_code)]

mod arguments;

use std::error::Error;
use std::process::ExitCode;

use accelerate::data::DataLoader;
use accelerate::nn::{Factory, Forward, Module};
use accelerate::optim::{Adam, AdamConfig, OneCycleLR, OneCycleLRConfig, Optimizer, Scheduler};
use accelerate::tch::{self, Kind, Tensor};
use accelerate_examples::curves::Curves;
use accelerate_examples::failure::exit_code;
use accelerate_examples::images::{ImageBatches, Images, Transform};
use accelerate_examples::progress::bar_of_machine;
use accelerate_examples::running::Running;
use accelerate_models::loss::cross_entropy;
use accelerate_models::resnet::ResNet;
use arguments::Arguments;
use clap::Parser;

/// Trains a ResNet to tell images apart: handwritten digits, or those of a folder.
#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct CommandLine {
    #[command(flatten)]
    arguments: Arguments,
    #[command(flatten)]
    running: Running,
}

fn main() -> ExitCode {
    let CommandLine { arguments, running } = CommandLine::parse();
    exit_code(run(&arguments, &running))
}

fn run(arguments: &Arguments, running: &Running) -> Result<(), Box<dyn Error>> {
    let images = Images::open(&arguments.data)?;
    let network = arguments.model.clone().with_planes(arguments.planes);
    let network = network.with_num_classes(images.classes().len() as i64);
    let (training, held_out) = images.split(arguments.held_out)?;
    let resize = Transform::resize(arguments.image_size);
    let loader = |images: Images, shuffle| {
        DataLoader::builder(images.with_transform(resize))
            .batch_size(arguments.batch_size.get())
            .shuffle(shuffle)
            .collate(ImageBatches)
            .num_workers(1)
            .build()
    };
    let batches = loader(training, true)?;
    let held_out = loader(held_out, false)?;

    let accelerator = running.accelerator()?;
    tch::manual_seed(arguments.seed as i64);
    let model = ResNet::new(&network, &Factory::default())?;
    let parameters: Vec<_> = model
        .parameters()
        .iter()
        .map(|p| p.tensor().shallow_clone())
        .collect();
    let config = AdamConfig {
        lr: arguments.lr / 25.0,
        ..AdamConfig::default()
    };
    let optimizer = Adam::new(parameters, config)?;
    // The prepared schedule moves once per rank at each update: it is as long as the unprepared loader,
    // divided by the batches of an update.
    let accumulated = accelerator.gradient_accumulation_steps().get();
    let updates = batches.len().div_ceil(accumulated) as u64;
    let steps = arguments.epochs.saturating_mul(updates.try_into()?);
    let scheduler = OneCycleLR::new(&optimizer, arguments.lr, OneCycleLRConfig::new(steps))?;
    let (model, mut optimizer, batches, held_out, mut scheduler) =
        accelerator.prepare((model, optimizer, batches, held_out, scheduler))?;
    running.tell(&accelerator);

    accelerator.resume()?;
    let (mut losses, mut rates, mut accuracies) = (vec![], vec![], vec![]);
    for epoch in batches.iteration() + 1..=arguments.epochs.get() {
        let before = losses.len();
        model.train(true);
        let bar = bar_of_machine(&accelerator, format!("epoch {epoch}"), batches.len());
        for batch in &batches {
            let (pixels, labels) = batch?;
            let update = accelerator.accumulate(&model)?;
            let loss = cross_entropy(&model.call(pixels)?, &labels)?;
            accelerator.backward(&loss)?;
            rates.push((rates.len() as u64 + 1, scheduler.last_lr()[0]));
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;
            drop(update);
            let loss = loss.f_double_value(&[])?;
            losses.push((losses.len() as u64 + 1, loss));
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
            accelerator.leave_when_asked()?;
        }
        bar.finish();

        model.train(false);
        let (mut right, mut seen) = (0, 0);
        for batch in &held_out {
            let (pixels, labels) = batch?;
            let classes = tch::no_grad(|| model.call(pixels))?.f_argmax(-1, false)?;
            let (classes, labels): (Tensor, Tensor) =
                accelerator.gather_for_metrics((classes, labels))?;
            right += classes
                .f_eq_tensor(&labels)?
                .f_sum(Kind::Int64)?
                .f_int64_value(&[])?;
            seen += labels.size()[0];
        }
        let new = losses[before..].iter().map(|(_, loss)| loss);
        let mean = new.sum::<f64>() / (losses.len() - before) as f64;
        let accuracy = right as f64 / seen as f64;
        accuracies.push((losses.len() as u64, accuracy));
        accelerator.print(format!(
            "epoch {epoch}: loss {mean:.4}, accuracy {accuracy:.4} on {seen} held-out images"
        ));
    }
    if let Some(folder) = &arguments.output {
        // Each process may have a part of the model only: here all of it is there.
        let saved = model.with_whole_parameters(false, |model| {
            Ok(accelerator.on_main_process(|| model.save(folder)))
        })?;
        saved.transpose()?;
    }
    if let Some(path) = &arguments.curves
        && accelerator.is_main_process()
    {
        Curves::new("digits")
            .line("loss", &losses)
            .line("learning rate", &rates)
            .line("accuracy", &accuracies)
            .save(path)?;
    }
    accelerator.wait_for_everyone()?;
    Ok(())
}
