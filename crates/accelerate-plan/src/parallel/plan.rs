//! The plan.

use std::num::NonZeroUsize;

use super::{
    Accumulation, AfterForward, Average, Clipping, Construction, Dialect, Ignored, Layout, Loading,
    Mesh, NoSync, Offload, Origins, Precision, Prefetch, PrefetchLimit, Quantised, Recompute,
    Reduction, Sharded, StateDict, WeightSource, WrapPolicy,
};
use crate::settings::{BackwardPrefetch, StateDictType};

/// How a model is spread over the ranks of a job, from its first values to its checkpoints.
///
/// Nothing in it is left to be decided: what is `auto` in settings has been replaced. Compilers of
/// settings make plans; a program can also start from [`ParallelPlan::new`] and change fields.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ParallelPlan {
    /// Whose words it was told in, which decides what checkpoints look like and who calls the step.
    pub dialect: Dialect,
    /// The ranks as a grid.
    pub mesh: Mesh,
    /// What is held in shards over the shard axis.
    pub sharded: Sharded,
    /// What becomes of gathered parameters after the forward pass.
    pub after_forward: AfterForward,
    /// Whether the unit of the root stays gathered between the forward and the backward pass, whatever
    /// `after_forward` says.
    pub keeps_root: bool,
    /// Parameters with at most so many elements are never released.
    pub keep_up_to: u64,
    /// Which modules become units.
    pub wrap: WrapPolicy,
    /// Which modules stay whole.
    pub ignored: Ignored,
    /// Class names of modules whose whole inside is gathered together although ranks use different
    /// parts of it: mixtures of experts.
    pub leaf_classes: Vec<String>,
    /// When units are gathered.
    pub prefetch: Prefetch,
    /// In which type everything is.
    pub precision: Precision,
    /// How parameters travel.
    pub weights: Quantised,
    /// How gradients become one.
    pub reduction: Reduction,
    /// Where everything is kept.
    pub offload: Offload,
    /// What is computed again in the backward pass.
    pub recompute: Recompute,
    /// Where first values come from.
    pub loading: Loading,
    /// Whether the optimizer sees the model's own parameters, so that frozen ones and several groups
    /// are possible in a unit, rather than one flat parameter for each unit.
    pub use_orig_params: bool,
    /// How it is saved.
    pub state_dict: StateDict,
    /// The largest norm of the gradients.
    pub clipping: Clipping,
    /// Over how many batches gradients are added up.
    pub accumulation: Accumulation,
    /// Where the parts came from.
    pub origins: Origins,
    /// What was asked for and is done otherwise, one sentence each.
    pub notes: Vec<String>,
}

impl ParallelPlan {
    /// A plan in nobody's words: gather before use, release after it, prefetch both ways, everything
    /// in its own type and on the device, the whole model one unit.
    ///
    /// ```
    /// use std::num::NonZeroUsize;
    ///
    /// use accelerate_plan::parallel::{AfterForward, Mesh, ParallelPlan, Sharded};
    ///
    /// let ranks = NonZeroUsize::new(4).unwrap();
    /// let plan = ParallelPlan::new(Mesh::sharded(ranks), Sharded::Parameters);
    /// assert_eq!(plan.after_forward, AfterForward::Release);
    /// ```
    pub fn new(mesh: Mesh, sharded: Sharded) -> Self {
        Self {
            dialect: Dialect::Plain,
            mesh,
            sharded,
            after_forward: match sharded {
                Sharded::Parameters => AfterForward::Release,
                _ => AfterForward::Keep,
            },
            keeps_root: true,
            keep_up_to: 0,
            wrap: WrapPolicy::Root,
            ignored: Ignored::Nothing,
            leaf_classes: Vec::new(),
            prefetch: Prefetch {
                backward: BackwardPrefetch::BackwardPre,
                forward: true,
                limit: PrefetchLimit::Gathers(GATHERS),
            },
            precision: Precision::AS_LOADED,
            weights: Quantised::No,
            reduction: Reduction {
                average: Average::After,
                no_sync: NoSync::Whole,
                bucket_size: BUCKET,
                gradients: Quantised::No,
            },
            offload: Offload::nothing(),
            recompute: Recompute::Nothing,
            loading: Loading {
                weights: WeightSource::EveryRank,
                sync_module_states: true,
                construction: Construction::Whole,
            },
            use_orig_params: true,
            state_dict: StateDict {
                kind: StateDictType::Sharded,
                offload_to_cpu: true,
                rank0_only: false,
                layout: Layout::Plain,
                gathers_16bit_model: false,
            },
            clipping: Clipping::ByProgram,
            accumulation: Accumulation::ByProgram,
            origins: Origins::default(),
            notes: Vec::new(),
        }
    }

    /// Copies of the model that share their gradients.
    pub fn replicated(ranks: NonZeroUsize) -> Self {
        Self::new(Mesh::replicated(ranks), Sharded::Nothing)
    }

    /// Whether each copy is cut into more than one shard.
    pub fn is_sharded(&self) -> bool {
        self.sharded > Sharded::Nothing && self.mesh.shard.get() > 1
    }

    /// Whether there are several copies, each in shards.
    pub fn is_hybrid(&self) -> bool {
        self.is_sharded() && self.mesh.replicate.get() > 1
    }
}

/// Gathers on their way at once, unless a plan says otherwise.
pub(super) const GATHERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1);

/// Elements of a bucket of gradients, unless a plan says otherwise.
pub(super) const BUCKET: u64 = 500_000_000;
