//! All processes train each model together, and gather what it says about their parts.
//!
//! `accelerate launch --cpu --num_processes 2 target/debug/by_feature cross_validation`

use accelerate::nn::Module;
use accelerate::optim::Optimizer;
use accelerate::tch::Tensor;
use accelerate::{Accelerator, Result};

use super::{Arguments, common_vote, split};
use crate::evaluation::evaluate;
use crate::sentiment::{Sentiment, loss_of, predict, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let (folds, batch_size) = (arguments.folds.get(), arguments.sentiment.batch_size.get());
    let accelerator = Accelerator::new()?;

    let (mut votes, mut labels) = (Vec::new(), Vec::new());
    for fold in 0..folds {
        let (outside, inside) = split(&task.training, fold, folds)?;
        let model = task.model()?;
        let optimizer = task.optimizer(&model)?;
        let batches = task.loader(outside, batch_size, true)?;
        let validation = task.loader(inside, batch_size, false)?;
        let held_out = task.held_out()?;
        let (model, mut optimizer, batches, validation, held_out) =
            accelerator.prepare((model, optimizer, batches, validation, held_out))?;

        for _epoch in 0..arguments.sentiment.epochs {
            for batch in &batches {
                accelerator.backward(&loss_of(&model, batch?)?)?;
                optimizer.step()?;
                optimizer.zero_grad()?;
            }
        }
        let scores = evaluate(&accelerator, &model, &validation)?;
        accelerator.print(format!("fold {fold}: {}", told(scores)));

        model.train(false);
        let mut logits = Vec::new();
        labels.clear();
        for batch in &held_out {
            let (of_batch, true_ones) = predict(&model, batch?)?;
            let gathered: (Tensor, Tensor) =
                accelerator.gather_for_metrics((of_batch, true_ones))?;
            logits.push(gathered.0);
            labels.push(gathered.1);
        }
        votes.push(Tensor::f_cat(&logits, 0)?.f_softmax(-1, None)?);
        accelerator.free_memory((model, optimizer, batches, validation, held_out))?;
    }
    let scores = common_vote(&votes, &Tensor::f_cat(&labels, 0)?)?;
    accelerator.print(format!("all {folds} models: {}", told(scores)));
    Ok(())
}
