//! The embedding layer.

use tch::Tensor;

use super::{Factory, Forward, Init, Module, ModuleState, Parameter, init};
use crate::Result;

/// A table of vectors: each id gives its row.
///
/// Initialised from the standard normal distribution, the padding row with zeros.
///
/// # Shapes
/// - `weight`: `[ids, width]`
/// - input: `[..]` of int64 or int32, output: `[.., width]`
///
/// # Source
/// `torch.nn.Embedding`.
#[derive(Debug, Clone, Module)]
#[module(extra_repr = Self::sizes)]
pub struct Embedding {
    /// The table.
    pub weight: Parameter,
    #[module(skip)]
    padding_idx: Option<i64>,
    state: ModuleState,
}

impl Embedding {
    /// A table of `num_embeddings` vectors of width `embedding_dim`.
    ///
    /// # Errors
    /// If a size is negative or memory is short.
    pub fn new(num_embeddings: i64, embedding_dim: i64, factory: &Factory) -> Result<Self> {
        Self::build(num_embeddings, embedding_dim, None, factory)
    }

    /// A table with a row for padding, which begins at zero and gets no gradient.
    ///
    /// # Errors
    /// If there is no such row, a size is negative or memory is short.
    pub fn with_padding(
        num_embeddings: i64,
        embedding_dim: i64,
        padding_idx: i64,
        factory: &Factory,
    ) -> Result<Self> {
        if !(0..num_embeddings).contains(&padding_idx) {
            return Err(crate::Error::Argument {
                operation: "Embedding::with_padding",
                expected: format!("a padding row within 0..{num_embeddings}"),
                found: padding_idx.to_string(),
            });
        }
        Self::build(num_embeddings, embedding_dim, Some(padding_idx), factory)
    }

    /// The row for padding, where there is one.
    pub fn padding_idx(&self) -> Option<i64> {
        self.padding_idx
    }

    fn sizes(&self) -> String {
        let sizes: Vec<String> = self.weight.shape().iter().map(i64::to_string).collect();
        let padding = self
            .padding_idx
            .map(|row| format!(", padding_idx={row}"))
            .unwrap_or_default();
        sizes.join(", ") + &padding
    }

    fn build(rows: i64, width: i64, padding_idx: Option<i64>, factory: &Factory) -> Result<Self> {
        let weight = factory.empty(&[rows, width])?;
        let std = match factory.init() {
            Init::Layer => Some(1.0),
            Init::Normal { std } => Some(std),
            Init::Skip => None,
        };
        if let Some(std) = std {
            init::normal(&weight, 0.0, std)?;
            padding_idx.map_or(Ok(()), |row| init::zero_row(&weight, row))?;
        }
        Ok(Self {
            weight: Parameter::new(weight)?,
            padding_idx,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Embedding {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, ids: Tensor) -> Result<Tensor> {
        self.weight.embedding(&ids, self.padding_idx)
    }
}
