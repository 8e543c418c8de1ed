//! What the arguments make: the accelerator, the optimizer, the loaders.

use accelerate::data::DataLoader;
use accelerate::nn::Module;
use accelerate::optim::{
    AdamW, AdamWConfig, ParamGroup, Scheduler, SchedulerOptions, get_scheduler,
};
use accelerate::random::SeedOptions;
use accelerate::tch::Tensor;
use accelerate::{Accelerator, DataLoaderConfiguration, Result};

use crate::arguments::Arguments;
use crate::batches::Batches;
use crate::snippets::Snippet;

/// The accelerator, with the generators seeded.
pub(crate) fn accelerator(arguments: &Arguments) -> Result<Accelerator> {
    let loaders = DataLoaderConfiguration {
        split_batches: arguments.split_batches,
        dispatch_batches: arguments.dispatch_batches.then_some(true),
        use_seedable_sampler: true,
        ..DataLoaderConfiguration::default()
    };
    let mut builder = Accelerator::builder().dataloader_config(loaders);
    if let Some(precision) = arguments.mixed_precision {
        builder = builder.mixed_precision(precision);
    }
    if let Some(steps) = arguments.gradient_accumulation_steps {
        builder = builder.gradient_accumulation_steps(steps);
    }
    let accelerator = builder.build()?;
    let options = SeedOptions {
        device_specific: arguments.device_specific_seed,
        deterministic: arguments.deterministic,
    };
    accelerator.set_seed(arguments.seed, options)?;
    Ok(accelerator)
}

/// AdamW; offsets and normalisation layers are not drawn to zero.
pub(crate) fn optimizer(model: &dyn Module, arguments: &Arguments) -> Result<AdamW> {
    let (mut decayed, mut free) = (Vec::new(), Vec::new());
    for (name, parameter) in model.named_parameters() {
        let is_free = name.ends_with("bias") || name.contains("LayerNorm");
        let group: &mut Vec<Tensor> = if is_free { &mut free } else { &mut decayed };
        group.push(parameter.tensor().shallow_clone());
    }
    let config = AdamWConfig {
        lr: arguments.lr,
        weight_decay: arguments.weight_decay,
        ..AdamWConfig::default()
    };
    let groups = vec![
        ParamGroup::new(decayed),
        ParamGroup::new(free).weight_decay(0.0),
    ];
    AdamW::new(groups, config)
}

/// The schedule over `updates` steps of the optimizer.
pub(crate) fn scheduler(
    optimizer: &AdamW,
    arguments: &Arguments,
    updates: u64,
) -> Result<Box<dyn Scheduler>> {
    let options = SchedulerOptions::default();
    let warmup = warmup(updates, arguments.warmup_ratio);
    get_scheduler(
        arguments.lr_scheduler,
        optimizer,
        Some(warmup),
        Some(updates),
        &options,
    )
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of a number of steps"
)]
fn warmup(updates: u64, ratio: f64) -> u64 {
    (updates as f64 * ratio) as u64
}

pub(crate) fn loader(
    snippets: Vec<Snippet>,
    arguments: &Arguments,
    collate: Batches,
    shuffle: bool,
) -> Result<DataLoader<Vec<Snippet>, Batches>> {
    DataLoader::builder(snippets)
        .batch_size(arguments.batch_size.get())
        .shuffle(shuffle)
        .collate(collate)
        .num_workers(arguments.num_workers)
        .build()
}
