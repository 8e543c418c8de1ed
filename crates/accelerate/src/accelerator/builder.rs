use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use accelerate_plan::env::{self, Environment};
use accelerate_torch::Backend;

use super::{Accelerator, Shared};
use crate::Result;
use crate::gradient_state::GradientState;
use crate::parallel::DistributedDataParallelKwargs;
use crate::state::{PartialState, StateOptions};

/// How prepared loaders divide their batches.
///
/// # Source
/// `accelerate.DataLoaderConfiguration`, as far as this version has loaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataLoaderConfiguration {
    /// Takes a loader's batch size as that of all ranks together and cuts each batch.
    pub split_batches: bool,
    /// Fills the last step up with samples from the start, so that all ranks take equal steps.
    pub even_batches: bool,
    /// Shuffles in an order that is a function of seed and epoch alone.
    pub use_seedable_sampler: bool,
    /// The seed of that order; `None` takes the seed of libtorch's global generator.
    pub data_seed: Option<u64>,
    /// Whether a copy to the device may still run when the batch is handed out.
    pub non_blocking: bool,
}

impl Default for DataLoaderConfiguration {
    fn default() -> Self {
        Self {
            split_batches: false,
            even_batches: true,
            use_seedable_sampler: false,
            data_seed: None,
            non_blocking: false,
        }
    }
}

/// Settings of an [`Accelerator`] to be.
#[derive(Debug, Clone)]
pub struct AcceleratorBuilder {
    state: StateOptions,
    device_placement: bool,
    gradient_accumulation_steps: NonZeroUsize,
    dataloader_config: DataLoaderConfiguration,
    step_scheduler_with_optimizer: bool,
    ddp: DistributedDataParallelKwargs,
}

impl Default for AcceleratorBuilder {
    fn default() -> Self {
        Self {
            state: StateOptions::default(),
            device_placement: true,
            gradient_accumulation_steps: NonZeroUsize::MIN,
            dataloader_config: DataLoaderConfiguration::default(),
            step_scheduler_with_optimizer: true,
            ddp: DistributedDataParallelKwargs::default(),
        }
    }
}

impl AcceleratorBuilder {
    /// Stays on the CPU even where there is a GPU.
    #[must_use]
    pub fn cpu(mut self, cpu: bool) -> Self {
        self.state.cpu = cpu;
        self
    }

    /// The backend that carries the communication, instead of the device's own.
    #[must_use]
    pub fn backend(mut self, backend: Backend) -> Self {
        self.state.backend = Some(backend);
        self
    }

    /// How long any operation between ranks may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.state.timeout = Some(timeout);
        self
    }

    /// Whether models and batches are moved to the device; on if not changed.
    #[must_use]
    pub fn device_placement(mut self, placement: bool) -> Self {
        self.device_placement = placement;
        self
    }

    /// Over how many batches gradients are accumulated.
    ///
    /// `ACCELERATE_GRADIENT_ACCUMULATION_STEPS`, which the launcher sets, wins.
    #[must_use]
    pub fn gradient_accumulation_steps(mut self, steps: NonZeroUsize) -> Self {
        self.gradient_accumulation_steps = steps;
        self
    }

    /// How prepared loaders divide their batches.
    #[must_use]
    pub fn dataloader_config(mut self, config: DataLoaderConfiguration) -> Self {
        self.dataloader_config = config;
        self
    }

    /// Whether schedules move on with their optimizers; on if not changed.
    #[must_use]
    pub fn step_scheduler_with_optimizer(mut self, with_optimizer: bool) -> Self {
        self.step_scheduler_with_optimizer = with_optimizer;
        self
    }

    /// The settings of data parallelism.
    #[must_use]
    pub fn ddp(mut self, kwargs: DistributedDataParallelKwargs) -> Self {
        self.ddp = kwargs;
        self
    }

    /// Makes the accelerator.
    ///
    /// # Collective
    /// In a job of several processes the first one waits until all of them make it.
    ///
    /// # Errors
    /// As [`PartialState::new`].
    pub fn build(self) -> Result<Accelerator> {
        let steps = Environment::from_process()
            .get(&env::GRADIENT_ACCUMULATION_STEPS)?
            .and_then(|steps| NonZeroUsize::try_from(steps).ok())
            .unwrap_or(self.gradient_accumulation_steps);
        Ok(Accelerator {
            shared: Rc::new(Shared {
                state: PartialState::with_options(&self.state)?,
                gradient_state: GradientState::new(steps),
                device_placement: self.device_placement,
                dataloader_config: self.dataloader_config,
                step_scheduler_with_optimizer: self.step_scheduler_with_optimizer,
                ddp: self.ddp,
                optimizers: RefCell::default(),
            }),
        })
    }
}
