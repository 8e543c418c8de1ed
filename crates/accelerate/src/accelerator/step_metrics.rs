use super::Accelerator;
use crate::metrics::StepReport;
use crate::tracking::Values;

impl Accelerator {
    /// What the last step of this rank was like, and what steps are like on average; none before the
    /// first step of a prepared optimizer.
    ///
    /// It is measured in any case. Samples are the rows of prepared loaders' batches, tokens the whole
    /// numbers in them that come in rows, such as `input_ids`, without what an `attention_mask` hides; the
    /// norm of gradients is that of [`clip_grad_norm`](Self::clip_grad_norm), which this waits for on
    /// a GPU. See [`metrics`](crate::metrics) for what counts as what.
    ///
    /// ```
    /// use accelerate::Accelerator;
    /// use accelerate::data::DataLoader;
    /// use accelerate::nn::{Factory, Forward, Linear, Module};
    /// use accelerate::optim::{Optimizer, Sgd, SgdConfig};
    /// use accelerate::tch::{Kind, Tensor};
    ///
    /// let accelerator = Accelerator::new()?;
    /// let model = Linear::new(1, 1, &Factory::default())?;
    /// let weights: Vec<_> = model.parameters().iter().map(|p| p.tensor().shallow_clone()).collect();
    /// let optimizer = Sgd::new(weights, SgdConfig::new(0.01))?;
    /// let batches = DataLoader::builder(vec![1.0, 2.0, 3.0, 4.0]).batch_size(2).build()?;
    /// let (model, mut optimizer, batches) = accelerator.prepare((model, optimizer, batches))?;
    /// for batch in &batches {
    ///     let batch: Tensor = batch?;
    ///     let x = batch.f_to_kind(Kind::Float)?.f_unsqueeze(1)?;
    ///     accelerator.backward(&model.call(&x)?.f_square()?.f_mean(Kind::Float)?)?;
    ///     optimizer.step()?;
    ///     optimizer.zero_grad()?;
    /// }
    /// let report = accelerator.step_metrics().unwrap();
    /// assert_eq!(report.last.step, 2);
    /// assert!(report.average.samples_per_second > Some(0.0));
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Source
    /// None.
    #[must_use]
    pub fn step_metrics(&self) -> Option<StepReport> {
        let steps = self.gradient_state().progress().steps();
        steps.report(self.device(), self.scaler())
    }

    /// Adds the averages to what is logged; what the program says itself stays.
    pub(super) fn add_step_metrics(&self, values: &mut Values) {
        let Some(report) = self.step_metrics() else {
            return;
        };
        for (name, value) in report.values().iter() {
            if values.get(name).is_none() {
                values.insert(name, value.clone());
            }
        }
    }
}
