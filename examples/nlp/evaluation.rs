//! How good the model is on what it has not seen.

use accelerate::data::{Collate, Dataset, PreparedDataLoader};
use accelerate::nn::{Forward, Module};
use accelerate::{Accelerator, Result};
use accelerate_models::bert::{BertForSequenceClassification, BertInput};
use tch::Kind;

#[path = "scores.rs"]
mod scores;

pub(crate) use scores::Scores;

/// Scores the model on every sample of a prepared loader, over all ranks.
pub(crate) fn evaluate<D, C>(
    accelerator: &Accelerator,
    model: &BertForSequenceClassification,
    batches: &PreparedDataLoader<D, C>,
) -> Result<Scores>
where
    D: Dataset + 'static,
    C: Collate<D::Item, Batch = BertInput> + 'static,
{
    model.train(false);
    let mut scores = Scores::default();
    for batch in batches {
        let mut batch = batch?;
        let labels = batch
            .labels
            .take()
            .ok_or_else(|| accelerate::Error::Argument {
                operation: "evaluation",
                expected: "labels in every batch".to_owned(),
                found: "none".to_owned(),
            })?;
        let predictions = tch::no_grad(|| {
            Ok::<_, accelerate::Error>(model.call(batch)?.logits.f_argmax(-1, false)?)
        })?;
        let (predictions, labels) = accelerator.gather_for_metrics((predictions, labels))?;
        scores.add(&predictions, &labels.f_to_kind(Kind::Int64)?)?;
    }
    model.train(true);
    Ok(scores)
}
