//! The job itself.

use std::error::Error;
use std::num::NonZeroU64;

use accelerate::data::{DataLoader, PreparedDataLoader};
use accelerate::nn::{Factory, Forward, Module, Parameter, convert_sync_batchnorm};
use accelerate::optim::{
    Adam, AdamConfig, OneCycleLR, OneCycleLRConfig, Optimizer, Scheduler, SchedulerOptions,
    get_scheduler,
};
use accelerate::random::SeedOptions;
use accelerate::tch::{self, Kind, Tensor};
use accelerate::{Accelerator, PreparedModel};
use accelerate_examples::images::{ImageBatches, Images, Transform};
use accelerate_examples::progress::bar_of_machine;
use accelerate_models::loss::cross_entropy;
use accelerate_models::resnet::ResNet;

use crate::arguments::{Arguments, ScheduleName};
use crate::history::History;

type BoxError = Box<dyn Error>;
type Loader = DataLoader<Images, ImageBatches>;
type Batches = PreparedDataLoader<Images, ImageBatches>;

/// Trains and evaluates as the arguments say.
pub(crate) fn run(arguments: &Arguments) -> Result<(), BoxError> {
    let accelerator = accelerator(arguments)?;
    accelerator.set_seed(arguments.seed, SeedOptions::default())?;
    let images = Images::open(&arguments.data)?;
    let classes = images.classes().to_vec();
    let (batches, held_out) = loaders(arguments, images)?;

    let model = network(arguments, classes.len(), &accelerator)?;
    let optimizer = Adam::new(
        trained(&model),
        AdamConfig {
            lr: arguments.lr,
            ..AdamConfig::default()
        },
    )?;
    let scheduler = schedule(arguments, &optimizer, batches.len())?;
    let (model, mut optimizer, batches, held_out, mut scheduler) =
        accelerator.prepare((model, optimizer, batches, held_out, scheduler))?;

    let mut history = History::default();
    for epoch in 1..=arguments.epochs.get() {
        let before = history.updates();
        let bar = bar_of_machine(&accelerator, format!("epoch {epoch}"), batches.len());
        let mut pending = Vec::new();
        model.train(true);
        for batch in &batches {
            let (pixels, labels) = batch?;
            let _step = accelerator.accumulate(&model)?;
            let loss = cross_entropy(&model.call(pixels)?, &labels)?;
            accelerator.backward(&loss)?;
            let norm = match arguments.clip_norm {
                Some(most) => accelerator.clip_grad_norm(model.parameters(), most)?,
                None => None,
            };
            let rate = scheduler.last_lr()[0];
            optimizer.step()?;
            scheduler.step()?;
            optimizer.zero_grad()?;

            pending.push(loss.f_double_value(&[])?);
            if accelerator.sync_gradients() {
                let norm = norm.map(|norm| norm.f_double_value(&[])).transpose()?;
                let mean = pending.iter().sum::<f64>() / pending.len() as f64;
                history.update(mean, rate, norm);
                pending.clear();
                bar.set_message(format!("loss {mean:.4}, lr {rate:.2e}"));
            }
            bar.inc(1);
        }
        bar.finish();
        let (loss, accuracy, seen) = evaluate(&accelerator, &model, &held_out)?;
        history.evaluated(loss, accuracy);
        accelerator.print(format!(
            "epoch {epoch}: loss {:.4}, held out: loss {loss:.4}, accuracy {accuracy:.4} on {seen} images",
            history.mean_loss_since(before),
        ));
    }
    let model = accelerator.unwrap_model(model);
    if accelerator.is_main_process() {
        if let Some(folder) = &arguments.output {
            model.save(folder)?;
            accelerator.print(format!("saved the network to {}", folder.display()));
        }
        if let Some(path) = &arguments.curves {
            history.draw(path)?;
        }
    }
    accelerator.wait_for_everyone()?;
    Ok(())
}

fn accelerator(arguments: &Arguments) -> accelerate::Result<Accelerator> {
    let builder =
        Accelerator::builder().gradient_accumulation_steps(arguments.gradient_accumulation_steps);
    match arguments.mixed_precision {
        Some(precision) => builder.mixed_precision(precision).build(),
        None => builder.build(),
    }
}

/// The training part, which is changed at random, and the held-out part, which is not.
fn loaders(arguments: &Arguments, images: Images) -> Result<(Loader, Loader), BoxError> {
    let (training, held_out) = images.split(arguments.held_out)?;
    let resize = Transform::resize(arguments.image_size);
    let random = resize.with_random_flip(arguments.flip);
    let random = match arguments.crop {
        Some(least) => random.with_random_crop(least),
        None => random,
    };
    let loader = |images: Images, shuffle| {
        DataLoader::builder(images)
            .batch_size(arguments.batch_size.get())
            .shuffle(shuffle)
            .collate(ImageBatches)
            .num_workers(arguments.workers)
            .build()
    };
    Ok((
        loader(training.with_transform(random), true)?,
        loader(held_out.with_transform(resize), false)?,
    ))
}

/// A new network, or one with weights to begin from.
fn network(
    arguments: &Arguments,
    classes: usize,
    accelerator: &Accelerator,
) -> Result<ResNet, BoxError> {
    let shape = arguments.model.clone().with_planes(arguments.planes);
    let shape = shape.with_num_classes(i64::try_from(classes)?);
    let factory = Factory::default();
    let model = match &arguments.pretrained {
        Some(path) => ResNet::with_weights_of(path, &shape, &factory)?,
        None => ResNet::new(&shape, &factory)?,
    };
    if arguments.freeze {
        model.set_requires_grad(false)?;
        for (name, parameter) in model.named_parameters() {
            parameter.set_requires_grad(name.starts_with("fc."))?;
        }
    }
    if arguments.sync_batch_norm {
        convert_sync_batchnorm(&model, accelerator.state().process_group());
    }
    Ok(model)
}

fn trained(model: &ResNet) -> Vec<Tensor> {
    let parameters = model.parameters().into_iter();
    parameters
        .filter(|parameter| parameter.requires_grad())
        .map(Parameter::tensor)
        .map(Tensor::shallow_clone)
        .collect()
}

/// The prepared schedule moves once per rank at each update: it is as long as the unprepared
/// loader, divided by the batches of an update.
fn schedule(
    arguments: &Arguments,
    optimizer: &Adam,
    batches: usize,
) -> Result<Box<dyn Scheduler>, BoxError> {
    let updates = batches.div_ceil(arguments.gradient_accumulation_steps.get()) as u64;
    let updates = arguments
        .epochs
        .saturating_mul(NonZeroU64::try_from(updates)?);
    Ok(match arguments.schedule {
        ScheduleName::OneCycle => {
            let config = OneCycleLRConfig::new(updates);
            Box::new(OneCycleLR::new(optimizer, arguments.lr, config)?)
        }
        ScheduleName::Other(name) => {
            let (warmup, total) = (Some(arguments.warmup_steps), Some(updates.get()));
            get_scheduler(name, optimizer, warmup, total, &SchedulerOptions::default())?
        }
    })
}

/// Mean loss, accuracy and number of all held-out images, over all ranks.
fn evaluate(
    accelerator: &Accelerator,
    model: &PreparedModel<ResNet>,
    batches: &Batches,
) -> accelerate::Result<(f64, f64, i64)> {
    model.train(false);
    let (mut loss, mut right, mut seen) = (0.0, 0, 0);
    for batch in batches {
        let (pixels, labels) = batch?;
        let logits = tch::no_grad(|| model.call(pixels))?;
        let (logits, labels): (Tensor, Tensor) =
            accelerator.gather_for_metrics((logits, labels))?;
        let count = labels.numel() as i64;
        loss += cross_entropy(&logits, &labels)?.f_double_value(&[])? * count as f64;
        let same = logits.f_argmax(-1, false)?.f_eq_tensor(&labels)?;
        right += same.f_sum(Kind::Int64)?.f_int64_value(&[])?;
        seen += count;
    }
    let all = seen.max(1) as f64;
    Ok((loss / all, right as f64 / all, seen))
}
