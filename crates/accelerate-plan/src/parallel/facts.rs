//! What settings cannot know: the job, and the things that are prepared together.

use std::num::{NonZeroU32, NonZeroUsize};

use crate::{
    MixedPrecision, Result,
    env::{Environment, MIXED_PRECISION},
    settings::{Origin, Sourced},
    topology::Topology,
};

/// The job that a plan is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFacts {
    /// Ranks of the job.
    pub world_size: NonZeroUsize,
    /// Ranks on each machine.
    pub local_world_size: NonZeroUsize,
    /// Lower precision to compute in.
    pub mixed_precision: Sourced<MixedPrecision>,
}

impl JobFacts {
    /// A job of so many ranks on one machine, in full precision.
    pub fn on_one_machine(world_size: NonZeroUsize) -> Self {
        Self {
            world_size,
            local_world_size: world_size,
            mixed_precision: Sourced::default_value(MixedPrecision::No),
        }
    }

    /// The job that a rank's environment tells of: one rank if it tells of none.
    ///
    /// # Errors
    /// Those of [`Topology::read`] and [`Environment::get`].
    pub fn from_environment(env: &Environment) -> Result<Self> {
        let topology = Topology::read(env)?;
        let size = |count: Option<usize>| count.and_then(NonZeroUsize::new);
        let world_size = size(topology.as_ref().map(Topology::world_size));
        let local = size(topology.as_ref().map(Topology::local_world_size));
        let mixed_precision = match env.get(&MIXED_PRECISION)? {
            Some(value) => Sourced {
                value,
                origin: Origin::Variable(MIXED_PRECISION.name()),
            },
            None => Sourced::default_value(MixedPrecision::No),
        };
        Ok(Self {
            world_size: world_size.unwrap_or(NonZeroUsize::MIN),
            local_world_size: local.unwrap_or(NonZeroUsize::MIN),
            mixed_precision,
        })
    }

    /// The same job in another precision, as the program chose.
    pub fn with_precision(mut self, precision: MixedPrecision) -> Self {
        self.mixed_precision = Sourced::by_program(precision);
        self
    }
}

/// What the model, the loaders and the accelerator know when they are prepared. DeepSpeed's `auto`
/// values come from here.
#[derive(Debug, Clone, PartialEq)]
pub struct PrepareFacts {
    /// Hidden sizes of the model, as its configuration says: one, or one for each stage. The largest
    /// counts. Empty: the configuration does not say.
    pub hidden_sizes: Vec<u64>,
    /// Batch size of each loader; [`None`] for one that has no fixed size.
    pub batch_sizes: Vec<Option<NonZeroUsize>>,
    /// Whether loaders give batches for all ranks together, of which each rank takes its part.
    pub split_batches: bool,
    /// Whether the smallest batch size counts, rather than the largest.
    pub smallest_batch_counts: bool,
    /// Over how many batches the accelerator was told to add gradients up.
    pub accumulation: NonZeroU32,
    /// Ranks that share the sequences of one batch.
    pub sequence_parallel: NonZeroUsize,
    /// The optimizer that the program prepares.
    pub optimizer: GivenOptimizer,
    /// The schedule that the program prepares.
    pub scheduler: GivenScheduler,
}

impl Default for PrepareFacts {
    fn default() -> Self {
        Self {
            hidden_sizes: Vec::new(),
            batch_sizes: Vec::new(),
            split_batches: false,
            smallest_batch_counts: true,
            accumulation: NonZeroU32::MIN,
            sequence_parallel: NonZeroUsize::MIN,
            optimizer: GivenOptimizer::Nothing,
            scheduler: GivenScheduler::Nothing,
        }
    }
}

impl PrepareFacts {
    /// The hidden size that counts.
    pub fn hidden_size(&self) -> Option<u64> {
        self.hidden_sizes.iter().copied().max()
    }
}

/// The optimizer that a program prepares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum GivenOptimizer {
    /// None: the model is only evaluated.
    Nothing,
    /// One that works.
    Real {
        /// Learning rate of its first group.
        lr: f64,
    },
    /// A stand-in for the one that DeepSpeed's config names.
    Dummy {
        /// Learning rate that the stand-in was given.
        lr: f64,
        /// Weight decay that the stand-in was given.
        weight_decay: f64,
    },
}

impl GivenOptimizer {
    /// A stand-in with the values that it has by itself.
    pub const DUMMY: Self = Self::Dummy {
        lr: 0.001,
        weight_decay: 0.0,
    };

    /// The learning rate that it was given.
    pub const fn lr(self) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Real { lr } | Self::Dummy { lr, .. } => Some(lr),
        }
    }
}

/// The schedule that a program prepares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenScheduler {
    /// None.
    Nothing,
    /// One that works.
    Real,
    /// A stand-in for the one that DeepSpeed's config names.
    Dummy {
        /// Steps in all, over all ranks.
        total_num_steps: Option<u64>,
        /// Steps of the warm-up.
        warmup_num_steps: u64,
        /// Whether it can make a schedule by itself, once there is an optimizer.
        has_callable: bool,
    },
}
