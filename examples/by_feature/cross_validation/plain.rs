//! One process trains all models, and sees all samples.
//!
//! `cargo run --bin by_feature -- cross_validation --plain`

use accelerate::Result;
use accelerate::nn::Module;
use accelerate::optim::Optimizer;
use accelerate::tch::Tensor;

use super::{Arguments, common_vote, split};
use crate::sentiment::{self, Sentiment, loss_of, predict, print, told};

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let task = Sentiment::read(&arguments.sentiment)?;
    let (folds, batch_size) = (arguments.folds.get(), arguments.sentiment.batch_size.get());

    let (mut votes, mut labels) = (Vec::new(), Vec::new());
    for fold in 0..folds {
        let (outside, inside) = split(&task.training, fold, folds)?;
        let model = task.model()?;
        let mut optimizer = task.optimizer(&model)?;
        let batches = task.loader(outside, batch_size, true)?;
        let validation = task.loader(inside, batch_size, false)?;
        let held_out = task.held_out()?;

        for _epoch in 0..arguments.sentiment.epochs {
            for batch in &batches {
                loss_of(&model, batch?)?.f_backward()?;
                optimizer.step()?;
                optimizer.zero_grad()?;
            }
        }
        let scores = sentiment::evaluate(&model, &validation)?;
        print(format!("fold {fold}: {}", told(scores)));

        model.train(false);
        let mut logits = Vec::new();
        labels.clear();
        for batch in &held_out {
            let (of_batch, true_ones) = predict(&model, batch?)?;
            logits.push(of_batch);
            labels.push(true_ones);
        }
        votes.push(Tensor::f_cat(&logits, 0)?.f_softmax(-1, None)?);
    }
    let scores = common_vote(&votes, &Tensor::f_cat(&labels, 0)?)?;
    print(format!("all {folds} models: {}", told(scores)));
    Ok(())
}
