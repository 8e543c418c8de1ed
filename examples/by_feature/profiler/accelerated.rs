//! Settings of the profiler, then `profile` before the loop, `step` in it and `finish` behind it.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature profiler --trace-dir traces`

use std::num::NonZeroU64;
use std::rc::Rc;

use accelerate::optim::Optimizer;
use accelerate::profile::{GroupBy, ProfileKwargs, Schedule};
use accelerate::{Accelerator, PartialState, Result};

use super::Arguments;
use crate::sentiment::{Mean, Sentiment, loss_of};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let rows = arguments.rows;
    let accelerator = Accelerator::builder()
        .profile_kwargs(ProfileKwargs {
            schedule_option: Some(Schedule {
                warmup: 1,
                repeat: Some(NonZeroU64::MIN),
                ..Schedule::new(arguments.active)
            }),
            on_trace_ready: Some(Rc::new(move |profiler| {
                let averages = profiler.key_averages(GroupBy::Name)?;
                let table = averages.table().sort_by("self_cpu_time_total")?;
                PartialState::new()?.print(table.row_limit(Some(rows)));
                Ok(())
            })),
            profile_memory: true,
            with_flops: true,
            output_trace_dir: arguments.trace_dir.clone(),
            ..ProfileKwargs::default()
        })
        .build()?;

    let model = task.model()?;
    let optimizer = task.optimizer(&model)?;
    let (model, mut optimizer, batches) =
        accelerator.prepare((model, optimizer, task.training()?))?;

    let mut profiler = accelerator.profile()?;
    for epoch in 1..=arguments.sentiment.epochs {
        let mut mean = Mean::default();
        for batch in &batches {
            let loss = loss_of(&model, batch?)?;
            mean.add(&loss)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            profiler.step()?;
        }
        accelerator.print(format!("epoch {epoch}: loss {:.4}", mean.get()));
    }
    profiler.finish()
}
