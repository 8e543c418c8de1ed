use std::cell::{Cell, RefCell};
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::{Rc, Weak};

use accelerate_torch::Generator;
use tch::{Device, Tensor};

use super::batch_sampler::IndexBatches;
use super::batch_sampler_shard::{BatchSamplerShard, ShardLayout};
use super::collate::Collate;
use super::dataset::Dataset;
use super::loader::DataLoader;
use super::loader_control::LoaderControl;
use super::loader_state::{
    DataLoaderState, GeneratorState, GeneratorStates, LoaderShape, with_global,
};
use super::random_sampler::SeedableRandomSampler;
use super::shard_options::ShardOptions;
use super::shard_position::ShardPosition;
use super::stack::Stack;
use crate::Result;
use crate::tree::Tree;

/// The part of a [`DataLoader`] that one rank sees, on this rank's device.
///
/// It reads one batch ahead, so that the loop knows that a batch is the last one
/// while it still works on it: [`LoaderProgress::end_of_dataloader`](super::LoaderProgress::end_of_dataloader).
///
/// # Collective
/// Starting an epoch over a shuffled loader is one where a
/// [`SyncGenerator`](super::SyncGenerator) is given: every rank starts its epochs in the same order.
///
/// # Source
/// `accelerate.data_loader.DataLoaderShard`. Differs: a loop that is left early
/// is no longer active, the remainder counts what the sampler yields, not
/// what the data set holds, and every loader can say and load where it stands.
pub struct DataLoaderShard<D, C = Stack> {
    pub(super) loader: DataLoader<D, C>,
    pub(super) options: ShardOptions,
    pub(super) position: Rc<ShardPosition>,
    total_batch_size: Option<usize>,
}

impl<D: Dataset, C: Collate<D::Item>> DataLoaderShard<D, C> {
    /// The part of `loader` that `options` names.
    ///
    /// # Errors
    /// Those of [`BatchSamplerShard::new`] and of making generators.
    pub fn new(mut loader: DataLoader<D, C>, options: ShardOptions) -> Result<Self> {
        prepare_sampler(loader.batches.as_mut(), &options)?;
        let ranks = options.num_processes;
        let batches_per_step = if options.split_batches {
            NonZeroUsize::MIN
        } else {
            ranks
        };
        let batch_size = loader.batches.batch_size().map(NonZeroUsize::get);
        let shape = LoaderShape {
            samples: samples_of(loader.batches.as_ref()),
            batch_size,
            batches: loader.batches.len(),
        };
        let total_batch_size = batch_size.map(|size| size * batches_per_step.get());
        let mut even_batches = None;
        let mut once_in_last_round = Rc::default();
        if ranks.get() > 1 {
            let repeated_from = shape.samples.filter(|_| !loader.batches.drop_last());
            report_repetition(&options, total_batch_size, repeated_from);
            let layout = ShardLayout {
                num_processes: ranks,
                process_index: options.process_index,
                split_batches: options.split_batches,
                even_batches: options.even_batches,
            };
            let shard = BatchSamplerShard::new(loader.batches, layout)?;
            even_batches = Some(shard.even_batches_switch());
            once_in_last_round = shard.once_in_last_round();
            loader.batches = Box::new(shard);
        }
        let batches: Rc<dyn IndexBatches> = Rc::from(loader.batches);
        loader.batches = Box::new(Rc::clone(&batches));
        let position = Rc::new(ShardPosition {
            batches,
            generator: loader.generator.clone(),
            even_batches,
            once_in_last_round,
            batches_per_step,
            shape,
            epoch: Cell::new(0),
            running: RefCell::default(),
            loaded: RefCell::default(),
        });
        Ok(Self {
            loader,
            options,
            position,
            total_batch_size,
        })
    }

    /// The number of batches in one epoch on this rank.
    pub fn len(&self) -> usize {
        self.loader.len()
    }

    /// Whether this rank gets no batch.
    pub fn is_empty(&self) -> bool {
        self.loader.is_empty()
    }

    /// The number of samples in one step of all ranks together; `None` if it varies.
    pub fn total_batch_size(&self) -> Option<usize> {
        self.total_batch_size
    }

    /// The number of samples in the data set, over all ranks.
    pub fn total_dataset_length(&self) -> usize {
        self.loader.dataset().len()
    }

    /// The data set, whole.
    pub fn dataset(&self) -> &D {
        self.loader.dataset()
    }

    /// The batches of indices that this rank asks for.
    pub fn batch_sampler(&self) -> &dyn IndexBatches {
        self.loader.batch_sampler()
    }

    /// The epoch that comes next: how many were gone through to their end, or what was set.
    pub fn iteration(&self) -> u64 {
        self.position.epoch.get()
    }

    /// Sets the epoch that comes next.
    ///
    /// If it is another one than that of a state that was loaded, it begins afresh.
    pub fn set_epoch(&self, epoch: u64) {
        self.position.set_epoch(epoch);
    }

    /// Whether the last step is filled up so that ranks take equal steps; `None` with one rank.
    pub fn even_batches(&self) -> Option<bool> {
        self.position.even_batches()
    }

    /// Changes [`even_batches`](Self::even_batches) from the next epoch on.
    pub fn set_even_batches(&self, even_batches: bool) {
        self.position.set_even_batches(even_batches);
    }

    /// Where the loop over this loader stands: how many batches it was handed out.
    ///
    /// A loop that was left early stands where it was left until the next one begins.
    ///
    /// ```
    /// use accelerate::data::{DataLoader, DataLoaderShard, ShardOptions};
    ///
    /// let loader = || -> accelerate::Result<_> {
    ///     let data: Vec<i64> = (0..8).collect();
    ///     let loader = DataLoader::builder(data).shuffle(true).seed(1).build()?;
    ///     DataLoaderShard::new(loader, ShardOptions::default())
    /// };
    /// let (before, after) = (loader()?, loader()?);
    /// let mut batches = before.iter();
    /// batches.next();
    /// after.load_state_dict(&before.state_dict()?)?;
    /// for (rest, resumed) in batches.zip(&after) {
    ///     assert_eq!(rest?, resumed?);
    /// }
    /// # Ok::<(), accelerate::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of reading generators.
    ///
    /// # Source
    /// `state_dict` of a loader with `use_stateful_dataloader`. Differs: every prepared
    /// loader has it and torchdata is not needed; it is exact for every sampler whose
    /// order follows from `set_epoch` and its generator.
    pub fn state_dict(&self) -> Result<DataLoaderState> {
        self.position.state_dict()
    }

    /// Makes the next loop go on with the batch behind those that `state` counts.
    ///
    /// The number of workers and of ranks may be another one than where the state was
    /// taken, also one. The epoch's end, its remainder and the epochs that follow are those of
    /// the uninterrupted program, provided that libtorch's global generator is restored too
    /// where a loader has no generator of its own. A process by itself draws each epoch from the
    /// global generator: several ranks that go on from it draw from rank 0's, so that the epochs
    /// that follow are its own as long as rank 0 draws from it what the process would.
    ///
    /// # Collective
    /// Every rank calls this with its own state, or one rank's.
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) if the state is of another
    /// loader: other samples, batch size or kind of sampler, or damaged.
    pub fn load_state_dict(&self, state: &DataLoaderState) -> Result<()> {
        self.position.load_state_dict(state)
    }

    /// What an accelerator keeps of this loader.
    pub(crate) fn handle(&self) -> Weak<dyn LoaderControl> {
        let position: Rc<dyn LoaderControl> = Rc::<ShardPosition>::clone(&self.position);
        Rc::downgrade(&position)
    }

    /// The remainder of an epoch that begins behind its first `batches` batches of all ranks.
    pub(super) fn remainder_after(&self, batches: usize) -> Option<usize> {
        let (total, size) = (self.total_batch_size?, self.position.shape.batch_size?);
        if self.loader.batches.drop_last() {
            return None;
        }
        Some(self.position.shape.samples?.saturating_sub(batches * size) % total)
    }

    /// Gives generators the state they have on rank 0.
    pub(super) fn synchronize(&self, resumes: bool) -> Result<()> {
        // In the middle of an epoch the global generators stay where the program had them.
        if let Some(sync) = self.options.sync_global.as_ref().filter(|_| !resumes) {
            sync()?;
        }
        let Some(sync) = &self.options.sync_generator else {
            return Ok(());
        };
        let Some(sampler) = self.position.sampler() else {
            return Ok(());
        };
        let Some(generator) = sampler.generator() else {
            return Ok(());
        };
        sync(generator)?;
        sampler.generator_synchronized()
    }

    /// Whether several ranks draw one order from rank 0's global generator: those of a job that
    /// went on from a process by itself.
    pub(super) fn draws_from_rank_0(&self) -> bool {
        self.options.sync_generator.is_some()
            && self.position.sampler().is_some_and(|sampler| {
                sampler.may_choose_generator() && sampler.generator().is_none()
            })
    }

    /// What the next epoch is drawn from, with rank 0's global generator.
    pub(super) fn generators_of_rank_0(&self) -> Result<GeneratorStates> {
        let mut states = self.position.generators(true)?;
        if let (Some(sync), Some(own)) = (&self.options.sync_generator, &states.global) {
            let rank_0 = Generator::new(0)?;
            own.restore(&rank_0)?;
            sync(&rank_0)?;
            states.global = Some(GeneratorState::of(&rank_0)?);
        }
        Ok(states)
    }

    pub(super) fn place(&self, batch: Result<C::Batch>) -> Result<C::Batch> {
        let mut batch = batch?;
        if let Some(device) = self.options.device {
            batch.visit_mut(&mut |leaf| self.move_leaf(leaf, device))?;
        }
        Ok(batch)
    }

    fn move_leaf(&self, leaf: &mut Tensor, device: Device) -> Result<()> {
        if leaf.device() != device {
            let kind = leaf.f_kind()?;
            *leaf = leaf.f_to_device_(device, kind, self.options.non_blocking, false)?;
        }
        Ok(())
    }
}

/// The number of samples in one epoch over all ranks; `None` if batches vary in size.
fn samples_of(batches: &dyn IndexBatches) -> Option<usize> {
    let (size, last) = (batches.batch_size()?.get(), batches.last_batch_len()?);
    Some(batches.len().saturating_sub(1) * size + last)
}

/// Says once per job that training sees some samples twice.
fn report_repetition(options: &ShardOptions, total: Option<usize>, samples: Option<usize>) {
    let (Some(total), Some(samples)) = (total, samples) else {
        return;
    };
    let remainder = samples % total;
    if options.even_batches && remainder > 0 && options.process_index == 0 {
        let repeated = total - remainder;
        tracing::info!(
            repeated,
            "the last step of each epoch is filled up with {repeated} samples from its start, so \
             that all ranks take equal steps; `even_batches: false` turns this off"
        );
    }
}

/// Gives a sampler that draws what it needs to have one order on every rank.
fn prepare_sampler(batches: &mut dyn IndexBatches, options: &ShardOptions) -> Result<()> {
    let Some(sampler) = batches.sampler_mut() else {
        return Ok(());
    };
    if options.use_seedable_sampler
        && let Some(random) = sampler.as_random()
    {
        let seed = match options.data_seed {
            Some(seed) => seed,
            None => Generator::default_cpu()?.initial_seed()?,
        };
        let seedable = SeedableRandomSampler::from_random(random.clone(), seed)?;
        *sampler = Box::new(seedable);
    } else if options.num_processes.get() > 1 {
        sampler.own_generator()?;
    }
    Ok(())
}

impl<D, C> DataLoaderShard<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Where a loop would stand that begins now.
    pub(super) fn beginning(&self) -> Result<DataLoaderState> {
        Ok(DataLoaderState {
            epoch: self.position.epoch.get(),
            in_epoch: true,
            batches: 0,
            shape: self.position.shape,
            generators: self.position.generators(true)?,
            stream: None,
        })
    }

    /// Draws what starting an epoch draws, without reading.
    pub(super) fn draw_base_seed(&self) -> Result<()> {
        let loaded = self.position.loaded.take();
        if let Some(state) = &loaded {
            self.position.restore(&state.generators)?;
        }
        let resumed = loaded.as_ref().filter(|state| state.in_epoch);
        let global = resumed.and_then(|state| state.generators.global.as_ref());
        with_global(global, || self.loader.base_seed())??;
        Ok(())
    }
}

impl<D, C> fmt::Debug for DataLoaderShard<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderShard")
            .field("loader", &self.loader)
            .field("options", &self.options)
            .field("iteration", &self.position.epoch)
            .finish_non_exhaustive()
    }
}
