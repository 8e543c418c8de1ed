//! BERT as a row of steps.

use accelerate::nn::Forward;
use accelerate::parallel::{PipelineStep, Pipelined};
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::Tensor;

use super::classification::pooled;
use super::model::prepare_mask;
use super::{BertForSequenceClassification, BertInput, SequenceClassifierOutput};

/// What goes from one step of BERT to the next.
///
/// # Shapes
/// `hidden`: the token ids, `[rows, tokens]`, then the states, `[rows, tokens, hidden_size]`, in the
/// end the scores, `[rows, num_labels]`.
#[derive(Debug, Tree)]
pub struct BertCarried {
    /// What the step works on.
    pub hidden: Tensor,
    /// The attention mask, up to the last layer.
    pub mask: Option<Tensor>,
    /// The segment of each token, up to the embeddings.
    pub token_type_ids: Option<Tensor>,
}

impl Pipelined for BertForSequenceClassification {
    type Carried = BertCarried;

    fn steps(&self) -> Vec<PipelineStep> {
        let layers = (0..self.bert.encoder.layer.len())
            .map(|layer| PipelineStep::new(format!("bert.encoder.layer.{layer}")));
        let ends = ["bert.pooler", "classifier"].map(PipelineStep::new);
        [PipelineStep::new("bert.embeddings")]
            .into_iter()
            .chain(layers)
            .chain(ends)
            .collect()
    }

    fn begin(&self, input: BertInput) -> Result<BertCarried> {
        let (input, labels) = input.split();
        if labels.is_some() {
            return Err(Error::Argument {
                operation: "BertForSequenceClassification",
                expected: "a pipeline's input, that is token ids, mask and segments".to_owned(),
                found: "labels: a loss over parts of a batch is not the batch's".to_owned(),
            });
        }
        let shape = input.input_ids.size();
        let mask = input.attention_mask;
        Ok(BertCarried {
            mask: mask
                .map(|mask| prepare_mask(mask, &shape))
                .transpose()?
                .flatten(),
            hidden: input.input_ids,
            token_type_ids: input.token_type_ids,
        })
    }

    fn advance(&self, step: usize, carried: BertCarried) -> Result<BertCarried> {
        let (bert, layers) = (&self.bert, &self.bert.encoder.layer);
        let BertCarried {
            hidden,
            mask,
            token_type_ids,
        } = carried;
        let without_mask = |hidden| BertCarried {
            hidden,
            mask: None,
            token_type_ids: None,
        };
        Ok(match step.checked_sub(1) {
            None => BertCarried {
                hidden: bert.embeddings.call((hidden, token_type_ids))?,
                mask,
                token_type_ids: None,
            },
            Some(layer) if layer < layers.len() => BertCarried {
                hidden: layers[layer].call((hidden, mask.as_ref()))?,
                mask,
                token_type_ids: None,
            },
            Some(next) if next == layers.len() => {
                let pooler = bert.pooler.as_ref();
                let output = pooler.map(|pooler| pooler.call(hidden)).transpose()?;
                without_mask(pooled(output)?)
            }
            Some(_) => without_mask(self.classifier.call(self.dropout.call(hidden)?)?),
        })
    }

    fn finish(&self, carried: BertCarried) -> Result<SequenceClassifierOutput> {
        Ok(SequenceClassifierOutput {
            loss: None,
            logits: carried.hidden,
        })
    }
}
