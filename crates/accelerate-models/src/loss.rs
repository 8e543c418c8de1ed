//! Losses that the heads of several models share.

use accelerate::{Error, Result};
use serde::{Deserialize, Serialize};
use tch::{Kind, Reduction, Tensor};

/// The label of a token that does not count.
pub const IGNORED_LABEL: i64 = -100;

/// What a classifier of whole inputs is trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemType {
    /// Numbers: mean squared error.
    Regression,
    /// One label for each input: cross entropy.
    SingleLabelClassification,
    /// Any number of labels for each input: binary cross entropy.
    MultiLabelClassification,
}

impl ProblemType {
    /// The problem that the labels pose where the configuration does not say.
    ///
    /// # Errors
    /// If the labels are no dense tensor.
    pub fn of(labels: &Tensor, num_labels: i64) -> Result<Self> {
        let whole_numbers = matches!(labels.f_kind()?, Kind::Int64 | Kind::Int);
        Ok(match num_labels {
            1 => Self::Regression,
            _ if whole_numbers => Self::SingleLabelClassification,
            _ => Self::MultiLabelClassification,
        })
    }

    /// The mean loss where there are labels; `problem` is found from them where it is absent.
    ///
    /// # Errors
    /// As for [`loss`](Self::loss).
    pub fn loss_of(
        problem: Option<Self>,
        logits: &Tensor,
        labels: Option<&Tensor>,
    ) -> Result<Option<Tensor>> {
        let Some(labels) = labels else {
            return Ok(None);
        };
        let problem = match problem {
            Some(problem) => problem,
            None => Self::of(labels, last(logits))?,
        };
        problem.loss(logits, labels).map(Some)
    }

    /// The mean loss over the batch.
    ///
    /// # Shapes
    /// - `logits`: `[batch, num_labels]`
    /// - `labels`: `[batch]`, or `[batch, num_labels]` where there can be several for each input
    ///
    /// # Errors
    /// If the shapes do not fit, or a label is out of range.
    ///
    /// # Source
    /// `ForSequenceClassificationLoss` of `transformers`.
    pub fn loss(self, logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let num_labels = last(logits);
        Ok(match self {
            Self::Regression if num_labels == 1 => logits
                .f_squeeze()?
                .f_mse_loss(&labels.f_squeeze()?, Reduction::Mean)?,
            Self::Regression => logits.f_mse_loss(labels, Reduction::Mean)?,
            Self::SingleLabelClassification => cross_entropy(logits, labels)?,
            Self::MultiLabelClassification => logits.f_binary_cross_entropy_with_logits(
                labels,
                None::<Tensor>,
                None::<Tensor>,
                Reduction::Mean,
            )?,
        })
    }
}

/// The mean cross entropy over all labels that are not [`IGNORED_LABEL`].
///
/// # Shapes
/// - `logits`: `[.., classes]`
/// - `labels`: `[..]` of integers
///
/// # Errors
/// [`Error::Argument`] if there are not as many labels as logits, or, on the CPU, a label is
/// out of range.
///
/// # Source
/// `torch.nn.CrossEntropyLoss` with its defaults.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let classes = last(logits);
    let logits = logits.f_reshape([-1, classes])?;
    let labels = labels.f_reshape([-1])?.f_to_kind(Kind::Int64)?;
    if logits.size().first() != labels.size().first() {
        return Err(Error::Argument {
            operation: "cross_entropy",
            expected: format!(
                "a label for each of the {} rows of logits",
                logits.size()[0]
            ),
            found: format!("{} labels", labels.size()[0]),
        });
    }
    check_labels(&labels, classes)?;
    Ok(
        logits.f_cross_entropy_loss(
            &labels,
            None::<Tensor>,
            Reduction::Mean,
            IGNORED_LABEL,
            0.0,
        )?,
    )
}

/// Labels within `0..classes`, or ignored. Elsewhere than on the CPU it would stop the stream.
fn check_labels(labels: &Tensor, classes: i64) -> Result<()> {
    if labels.device() != tch::Device::Cpu {
        return Ok(());
    }
    let outside = labels
        .f_lt(0)?
        .f_logical_and(&labels.f_ne(IGNORED_LABEL)?)?
        .f_logical_or(&labels.f_ge(classes)?)?;
    let outside = labels.f_masked_select(&outside)?;
    if outside.numel() == 0 {
        return Ok(());
    }
    Err(Error::Argument {
        operation: "cross_entropy",
        expected: format!("labels within 0..{classes}, or {IGNORED_LABEL} for none"),
        found: outside.f_int64_value(&[0])?.to_string(),
    })
}

fn last(logits: &Tensor) -> i64 {
    logits.size().last().copied().unwrap_or(1)
}
