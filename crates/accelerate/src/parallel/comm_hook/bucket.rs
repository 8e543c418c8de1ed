use accelerate_torch::GradBucket;
use tch::{Kind, Tensor};

use crate::Result;

/// A bucket of gradients, as a communication hook sees it.
///
/// # Source
/// `torch.distributed.GradBucket`.
#[derive(Debug)]
pub struct GradientBucket<'a> {
    raw: &'a GradBucket,
    /// What stands for the reducer's own buffer under a wrapper.
    buffer: Option<Tensor>,
}

impl<'a> GradientBucket<'a> {
    pub(super) fn new(raw: &'a GradBucket) -> Self {
        Self { raw, buffer: None }
    }

    /// The same bucket with a buffer of another kind.
    pub(super) fn to_kind(&self, kind: Kind) -> Result<Self> {
        Ok(Self {
            raw: self.raw,
            buffer: Some(tch::no_grad(|| {
                self.buffer()?.f_to_kind(kind).map_err(crate::Error::from)
            })?),
        })
    }

    /// Its number; buckets are reduced in this order.
    #[must_use]
    pub fn index(&self) -> usize {
        self.raw.index()
    }

    /// Whether it is the last one of this backward pass.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.raw.is_last()
    }

    /// All gradients of the bucket in one flat tensor. A hook may change it in place.
    ///
    /// # Shapes
    /// - output: `[numel of all gradients]`
    ///
    /// # Errors
    /// None that is known.
    pub fn buffer(&self) -> Result<Tensor> {
        match &self.buffer {
            Some(buffer) => Ok(buffer.shallow_clone()),
            None => Ok(self.raw.buffer()?),
        }
    }

    /// The gradients, each as a view of the buffer shaped as its parameter.
    ///
    /// # Errors
    /// None that is known.
    pub fn gradients(&self) -> Result<Vec<Tensor>> {
        let gradients = self.raw.gradients()?;
        let Some(buffer) = &self.buffer else {
            return Ok(gradients);
        };
        let mut start = 0;
        gradients
            .iter()
            .map(|gradient| {
                let shape = gradient.size();
                let length: i64 = shape.iter().product();
                let view = buffer
                    .f_narrow(0, start, length)?
                    .f_view(shape.as_slice())?;
                start += length;
                Ok(view)
            })
            .collect()
    }

    /// The parameters, in the order of [`gradients`](Self::gradients).
    ///
    /// # Errors
    /// None that is known.
    pub fn parameters(&self) -> Result<Vec<Tensor>> {
        Ok(self.raw.parameters()?)
    }
}
