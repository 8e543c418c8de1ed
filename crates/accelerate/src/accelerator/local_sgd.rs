use std::num::NonZeroUsize;

use super::{Accelerator, PreparedModel};
use crate::nn::Module;
use crate::parallel::LocalSgd;
use crate::{Error, Result};

impl Accelerator {
    /// Lets the ranks train apart and averages their parameters every `local_sgd_steps`
    /// steps of the optimizer; not `enabled`, it changes nothing.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    ///
    /// use accelerate::Accelerator;
    /// use accelerate::nn::{Factory, Linear};
    ///
    /// let accelerator = Accelerator::new()?;
    /// let model = accelerator.prepare(Linear::new(1, 1, &Factory::default())?)?;
    /// let every = NonZeroUsize::new(8).unwrap();
    /// let mut local_sgd = accelerator.local_sgd(&model, every, true)?;
    /// for _ in 0..20 {
    ///     // backward, and the optimizer's step
    ///     local_sgd.step()?;
    /// }
    /// local_sgd.finish()?;
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Collective
    /// Every rank calls this, with the same number.
    ///
    /// # Errors
    /// As [`LocalSgd::new`].
    ///
    /// # Source
    /// `accelerate.local_sgd.LocalSGD(accelerator, model, local_sgd_steps, enabled)`.
    pub fn local_sgd<'m, M: Module>(
        &self,
        model: &'m PreparedModel<M>,
        local_sgd_steps: NonZeroUsize,
        enabled: bool,
    ) -> Result<LocalSgd<'m>> {
        if model.sharded().is_some() {
            return Err(Error::Argument {
                operation: "local SGD",
                expected: "a whole model on every rank".to_owned(),
                found: "a model in shards".to_owned(),
            });
        }
        LocalSgd::new(
            self.state(),
            &**model,
            model.data_parallel(),
            local_sgd_steps,
            enabled,
        )
    }
}
