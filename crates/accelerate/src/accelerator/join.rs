use std::rc::Rc;

use accelerate_torch::ProcessGroup;
use tch::Device;

use super::{Accelerator, PreparedModel};
use crate::data::LoaderControl;
use crate::nn::Module;
use crate::parallel::{self, Joinable};
use crate::{Error, Result};

impl Accelerator {
    /// Runs a loop over batches whose number may differ over ranks.
    ///
    /// A rank that has finished stands in for itself, without values, until the last one
    /// has; in the end all have the model of the one that finished last. `even_batches`,
    /// where given, holds for every prepared loader until the loop is over. Where it, or
    /// else the loaders' configuration, makes batches even, there is nothing to join and
    /// `body` just runs; so it does in a process by itself.
    ///
    /// # Collective
    /// Every rank calls this with the same models.
    ///
    /// # Errors
    /// As [`parallel::join_uneven_inputs`].
    ///
    /// # Source
    /// `Accelerator.join_uneven_inputs`. Differs: it works on CPUs too, where the original
    /// only warns.
    pub fn join_uneven_inputs<T>(
        &self,
        joinables: &[&dyn Joinable],
        even_batches: Option<bool>,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if !self.state().use_distributed() {
            return body();
        }
        let _restored = even_batches.map(|even| Overridden::set(self.prepared_loaders(), even));
        if even_batches.unwrap_or_else(|| self.even_batches()) {
            return body();
        }
        if !self.shared.registry.sharded().is_empty() {
            return Err(Error::Argument {
                operation: "join_uneven_inputs",
                expected: "a whole model on every rank".to_owned(),
                found: "a model in shards; make batches even instead".to_owned(),
            });
        }
        parallel::join_uneven_inputs(joinables, body).map_err(|error| self.state().explain(error))
    }
}

/// Loaders with another setting, and what it was.
struct Overridden(Vec<(Rc<dyn LoaderControl>, bool)>);

impl Overridden {
    fn set(loaders: Vec<Rc<dyn LoaderControl>>, even_batches: bool) -> Self {
        let all = loaders.len();
        let changed: Vec<_> = loaders
            .into_iter()
            .filter_map(|loader| {
                let before = loader.even_batches()?;
                loader.set_even_batches(even_batches);
                Some((loader, before))
            })
            .collect();
        if changed.len() < all {
            tracing::warn!(
                "`even_batches` does not reach {} loaders that read on rank 0 for all ranks or \
                 have no index",
                all - changed.len()
            );
        }
        Self(changed)
    }
}

impl Drop for Overridden {
    fn drop(&mut self) {
        for (loader, before) in &self.0 {
            loader.set_even_batches(*before);
        }
    }
}

impl<M: Module> Joinable for PreparedModel<M> {
    fn group(&self) -> Option<&ProcessGroup> {
        self.data_parallel().and_then(Joinable::group)
    }

    fn device(&self) -> Device {
        self.data_parallel().map_or(Device::Cpu, Joinable::device)
    }

    fn enter_join(&self, first: bool) {
        if let Some(model) = self.data_parallel() {
            model.enter_join(first);
        }
    }

    fn leave_join(&self) {
        if let Some(model) = self.data_parallel() {
            model.leave_join();
        }
    }

    fn mirror_step(&self) -> Result<()> {
        self.data_parallel().map_or(Ok(()), Joinable::mirror_step)
    }

    fn take_last_finished(&self, last: bool) -> Result<()> {
        self.data_parallel()
            .map_or(Ok(()), |model| model.take_last_finished(last))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::data::DataLoaderState;

    struct Loader(Cell<Option<bool>>);

    impl LoaderControl for Loader {
        fn state_dict(&self) -> Result<DataLoaderState> {
            Err(unasked())
        }

        fn load_state_dict(&self, _state: &DataLoaderState) -> Result<()> {
            Err(unasked())
        }

        fn even_batches(&self) -> Option<bool> {
            self.0.get()
        }

        fn set_even_batches(&self, even_batches: bool) {
            self.0.set(Some(even_batches));
        }
    }

    fn unasked() -> Error {
        Error::Argument {
            operation: "join",
            expected: "no question about the position".to_owned(),
            found: "one".to_owned(),
        }
    }

    #[test]
    fn loaders_are_as_before_when_the_loop_is_over() {
        let loaders = [Some(true), Some(false), None].map(|even| Rc::new(Loader(Cell::new(even))));
        let all = loaders
            .clone()
            .map(|loader| loader as Rc<dyn LoaderControl>);
        let states = || loaders.each_ref().map(|loader| loader.0.get());
        let overridden = Overridden::set(all.to_vec(), false);
        assert_eq!(states(), [Some(false), Some(false), None]);
        drop(overridden);
        assert_eq!(states(), [Some(true), Some(false), None]);
    }
}
