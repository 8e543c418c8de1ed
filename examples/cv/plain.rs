//! Trains a ResNet to tell handwritten digits apart, without accelerate: what `cv` begins from.
//!
//! ```text
//! cargo run -p accelerate-examples --bin cv_plain -- --curves curves.svg
//! ```

#![forbid(unsafe_code)]

mod arguments;

use std::error::Error;
use std::process::ExitCode;

use accelerate::data::DataLoader;
use accelerate::nn::{Factory, Forward, Module};
use accelerate::optim::{Adam, AdamConfig, OneCycleLR, OneCycleLRConfig, Optimizer, Scheduler};
use accelerate::tch::{self, Kind};
use accelerate_examples::curves::Curves;
use accelerate_examples::failure::exit_code;
use accelerate_examples::images::{ImageBatches, Images, Transform};
use accelerate_examples::progress::bar;
use accelerate_models::loss::cross_entropy;
use accelerate_models::resnet::ResNet;
use arguments::Arguments;
use clap::Parser;

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()))
}

#[expect(clippy::print_stdout, reason = "the program says how it goes")]
fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
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
    let mut optimizer = Adam::new(parameters, config)?;
    let steps = arguments
        .epochs
        .saturating_mul((batches.len() as u64).try_into()?);
    let mut scheduler = OneCycleLR::new(&optimizer, arguments.lr, OneCycleLRConfig::new(steps))?;

    let (mut losses, mut rates, mut accuracies) = (vec![], vec![], vec![]);
    for epoch in 1..=arguments.epochs.get() {
        model.train(true);
        let bar = bar(format!("epoch {epoch}"), batches.len());
        for batch in &batches {
            let (pixels, labels) = batch?;
            let loss = cross_entropy(&model.call(pixels)?, &labels)?;
            loss.f_backward()?;
            rates.push((rates.len() as u64 + 1, scheduler.last_lr()[0]));
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;
            let loss = loss.f_double_value(&[])?;
            losses.push((losses.len() as u64 + 1, loss));
            bar.set_message(format!("loss {loss:.4}"));
            bar.inc(1);
        }
        bar.finish();

        model.train(false);
        let (mut right, mut seen) = (0, 0);
        for batch in &held_out {
            let (pixels, labels) = batch?;
            let classes = tch::no_grad(|| model.call(pixels))?.f_argmax(-1, false)?;
            right += classes
                .f_eq_tensor(&labels)?
                .f_sum(Kind::Int64)?
                .f_int64_value(&[])?;
            seen += labels.size()[0];
        }
        let mean = losses
            .iter()
            .rev()
            .take(batches.len())
            .map(|(_, loss)| loss)
            .sum::<f64>()
            / batches.len() as f64;
        let accuracy = right as f64 / seen as f64;
        accuracies.push((losses.len() as u64, accuracy));
        println!("epoch {epoch}: loss {mean:.4}, accuracy {accuracy:.4} on {seen} held-out images");
    }
    if let Some(folder) = &arguments.output {
        model.save(folder)?;
    }
    if let Some(path) = &arguments.curves {
        Curves::new("digits without accelerate")
            .line("loss", &losses)
            .line("learning rate", &rates)
            .line("accuracy", &accuracies)
            .save(path)?;
    }
    Ok(())
}
