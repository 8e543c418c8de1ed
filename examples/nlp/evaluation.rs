//! How good the model is on what it has not seen.

use accelerate::data::{Collate, Dataset, PreparedDataLoader};
use accelerate::nn::{Forward, Module};
use accelerate::{Accelerator, Result};
use accelerate_models::bert::{BertForSequenceClassification, BertInput};
use tch::{Kind, Tensor};

/// Counts over all held-out samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scores {
    true_positive: i64,
    true_negative: i64,
    false_positive: i64,
    false_negative: i64,
}

impl Scores {
    /// The number of samples.
    pub(crate) fn samples(self) -> i64 {
        self.true_positive + self.true_negative + self.false_positive + self.false_negative
    }

    /// The share that was told right.
    pub(crate) fn accuracy(self) -> f64 {
        ratio(self.true_positive + self.true_negative, self.samples())
    }

    /// The harmonic mean of precision and recall for positive samples.
    pub(crate) fn f1(self) -> f64 {
        let twice = 2 * self.true_positive;
        ratio(twice, twice + self.false_positive + self.false_negative)
    }

    /// Counts one batch: two vectors of classes, with one entry for each sample.
    pub(crate) fn add(&mut self, predictions: &Tensor, labels: &Tensor) -> Result<()> {
        let (predictions, labels) = (
            Vec::<i64>::try_from(predictions)?,
            Vec::<i64>::try_from(labels)?,
        );
        for (prediction, label) in predictions.into_iter().zip(labels) {
            let count = match (prediction, label) {
                (1, 1) => &mut self.true_positive,
                (1, _) => &mut self.false_positive,
                (_, 1) => &mut self.false_negative,
                _ => &mut self.true_negative,
            };
            *count += 1;
        }
        Ok(())
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sample counts are far below 2^52"
)]
fn ratio(part: i64, whole: i64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_those_of_the_textbook() {
        let mut scores = Scores::default();
        scores
            .add(
                &Tensor::from_slice(&[1i64, 1, 0, 0, 1]),
                &Tensor::from_slice(&[1i64, 0, 0, 1, 1]),
            )
            .unwrap();
        assert_eq!(scores.samples(), 5);
        assert!((scores.accuracy() - 0.6).abs() < 1e-12);
        assert!((scores.f1() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(Scores::default().accuracy(), 0.0);
    }
}
