//! Cross validation: for each fold of the data a new model is trained on the others and scored
//! on it; what all models say about the held-out snippets is averaged.

pub(crate) mod accelerated;
pub(crate) mod plain;

use std::num::NonZeroUsize;
use std::sync::Arc;

use accelerate::Result;
use accelerate::data::Subset;
use accelerate::tch::{Kind, Tensor};
use clap::Args;

use crate::evaluation::Scores;
use crate::sentiment::{self, Snippets};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    sentiment: sentiment::Arguments,
    /// Into how many folds the training part is divided.
    #[arg(long, default_value = "3")]
    folds: NonZeroUsize,
}

/// The snippets outside of a fold and those in it.
///
/// The snippets are sorted by label, so that each fold gets its share of both.
fn split(
    all: &Snippets,
    fold: usize,
    folds: usize,
) -> Result<(Subset<Snippets>, Subset<Snippets>)> {
    let (inside, outside) = (0..all.len()).partition(|index| index % folds == fold);
    let subset = |indices| Subset::new(Arc::clone(all), indices);
    Ok((subset(outside)?, subset(inside)?))
}

/// The scores of the mean of what all models say.
///
/// # Shapes
/// - each of `votes`: `[samples, 2]`, `labels`: `[samples]`
fn common_vote(votes: &[Tensor], labels: &Tensor) -> Result<Scores> {
    let mean = Tensor::f_stack(votes, 0)?.f_mean_dim(&[0i64][..], false, Kind::Float)?;
    let mut scores = Scores::default();
    scores.add(&mean.f_argmax(-1, false)?, labels)?;
    Ok(scores)
}
