//! PowerSGD: gradients as products of thin matrices.

mod compressor;
mod legacy_random;
mod memory;
mod options;
mod orthogonalize;
mod plan;

use std::sync::mpsc::{Receiver, Sender, channel};

use accelerate_torch::{BoxError, Future, Generator, ProcessGroup, Promise, promise};
use tch::{Device, Tensor};

use super::{GradientBucket, average};
use crate::{Error, Result};

use compressor::Compressor;
pub(crate) use memory::Memory;
pub(in crate::parallel) use memory::SharedMemory;
pub use options::PowerSgdOptions;
pub(super) use plan::Layout;
use plan::{Batch, Plan};

/// The side of PowerSGD that the backward pass calls.
///
/// It decides what is compressed and draws random matrices, which needs the thread of
/// the backward pass, and hands the bucket to a thread of its own: there, sums over ranks
/// wait for each other while gradients are still computed here. That thread has a group
/// of its own, so that its sums can never meet others in another order on another rank.
///
/// # Source
/// PyTorch's `powerSGD_hook`. Differs: there, closures on the backend's threads make the
/// sums, which Gloo does not keep in order.
pub(super) struct PowerSgd {
    options: PowerSgdOptions,
    layout: Layout,
    group: ProcessGroup,
    memory: SharedMemory,
    tasks: Sender<Task>,
}

/// A bucket on its way to the thread that averages it.
struct Task {
    plan: Plan,
    drawn: Option<Vec<Tensor>>,
    promise: Promise,
}

/// How much compression saved until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompressionStats {
    /// The number of values that plain averages would have sent.
    pub numel_before_compression: u64,
    /// The number of values that were sent once of each thin matrix.
    pub numel_after_compression: u64,
}

impl CompressionStats {
    /// How many times fewer values were sent; 0 before anything was.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self.numel_after_compression {
            0 => 0.0,
            after => self.numel_before_compression as f64 / after as f64,
        }
    }
}

impl PowerSgd {
    pub(super) fn new(
        group: &ProcessGroup,
        options: PowerSgdOptions,
        layout: Layout,
    ) -> Result<Self> {
        options.validate()?;
        let own = group
            .subgroup(group.global_ranks())?
            .unwrap_or_else(|| group.clone());
        let memory = SharedMemory::new(options, layout);
        let compressor = Compressor::new(options, own, memory.clone());
        let (tasks, received) = channel();
        std::thread::Builder::new()
            .name("power-sgd".to_owned())
            .spawn(move || serve(&compressor, &received))
            .map_err(|source| Error::ThreadStart {
                purpose: "averages compressed gradients",
                source,
            })?;
        Ok(Self {
            options,
            layout,
            group: group.clone(),
            memory,
            tasks,
        })
    }

    pub(super) fn memory(&self) -> SharedMemory {
        self.memory.clone()
    }

    /// Averages a bucket over ranks, later.
    pub(super) fn run(&self, bucket: &GradientBucket<'_>) -> Result<Future, BoxError> {
        let iteration = self.memory.lock().iteration;
        let future = if iteration < self.options.start_power_sgd_iter {
            average(&self.group, &bucket.buffer()?)?
        } else {
            self.compress(bucket)?
        };
        self.memory.lock().iteration += u64::from(bucket.is_last());
        Ok(future)
    }

    fn compress(&self, bucket: &GradientBucket<'_>) -> Result<Future, BoxError> {
        let plan = Plan::new(bucket, &self.options, self.layout)?;
        self.count(plan.sizes, bucket.is_last());
        let drawn = self.draw(&plan)?;
        let (promise, future) = promise(Some(&plan.buffer))?;
        let task = Task {
            plan,
            drawn,
            promise,
        };
        self.tasks
            .send(task)
            .map_err(|_| "the thread that averages compressed gradients has ended")?;
        Ok(future)
    }

    /// Random right matrices, where none of the step before are to be used.
    fn draw(&self, plan: &Plan) -> Result<Option<Vec<Tensor>>> {
        let seed = {
            let mut memory = self.memory.lock();
            if self.options.warm_start && !memory.started.insert(plan.bucket) {
                return Ok(None);
            }
            u64::from(memory.random.below_a_billion())
        };
        let kind = plan.values.f_kind()?;
        let shapes = plan.batches.iter().map(Batch::right);
        // The numbers must not depend on what else a rank drew, nor change what it draws next.
        let generator = Generator::default_cpu()?;
        let state = generator.state()?;
        generator.manual_seed(seed)?;
        let drawn = shapes
            .map(|shape| Tensor::f_randn(shape, (kind, Device::Cpu)))
            .collect::<Result<_, _>>();
        generator.set_state(&state)?;
        Ok(Some(drawn?))
    }

    /// Counts what a bucket saves, and tells from time to time.
    fn count(&self, (before, after): (u64, u64), is_last: bool) {
        let mut memory = self.memory.lock();
        memory.stats.numel_before_compression += before;
        memory.stats.numel_after_compression += after;
        let iteration = memory.iteration;
        if !is_last || iteration < memory.next_report {
            return;
        }
        let every = self.options.compression_stats_logging_frequency.get();
        memory.next_report = iteration.saturating_add(every);
        let stats = memory.stats;
        drop(memory);
        tracing::info!(
            step = iteration,
            before = stats.numel_before_compression,
            after = stats.numel_after_compression,
            rate = stats.rate(),
            "gradients are compressed"
        );
    }
}

/// Averages buckets in the order in which they come, until the model is gone.
fn serve(compressor: &Compressor, tasks: &Receiver<Task>) {
    for task in tasks {
        let done = tch::no_grad(|| compressor.average(&task.plan, task.drawn.as_deref()));
        let told = match done {
            Ok(()) => task.promise.complete(&task.plan.buffer),
            Err(error) => task.promise.fail(error),
        };
        if let Err(error) = told {
            tracing::error!(%error, "the backward pass cannot be told about its gradients");
        }
    }
}
