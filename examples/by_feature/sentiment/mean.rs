use accelerate::Result;
use accelerate::tch::Tensor;

/// The mean of the losses that were added.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    /// Adds a loss: `[]`.
    pub(crate) fn add(&mut self, loss: &Tensor) -> Result<()> {
        self.sum += loss.f_double_value(&[])?;
        self.count += 1;
        Ok(())
    }

    /// The mean; 0 of nothing.
    pub(crate) fn get(self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}
