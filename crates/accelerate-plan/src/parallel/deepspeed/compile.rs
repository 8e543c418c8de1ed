//! From DeepSpeed's config to a plan.

mod memory;
mod precision;
mod stage;

use std::num::{NonZeroU32, NonZeroUsize};

use super::{DeepSpeedConfig, document::Document};
use crate::{
    parallel::{
        Accumulation, AfterForward, Average, Clipping, Construction, Dialect, JobFacts, Layout,
        Loading, Mesh, NoSync, ParallelPlan, Part, PlanError, Prefetch, PrefetchLimit, Quantised,
        Reduction, Sharded, StateDict, WeightSource, WrapPolicy, plan::BUCKET,
    },
    settings::{BackwardPrefetch, StateDictType},
};

type Result<T> = std::result::Result<T, PlanError>;

/// The plan that a config means in a job. Nothing that it reads may be `auto`.
pub(super) fn plan(config: &DeepSpeedConfig, job: &JobFacts) -> Result<ParallelPlan> {
    let compiler = Compiler {
        config,
        document: &config.document,
        job,
        stage: config.stage,
    };
    compiler.check()?;
    let mut plan = compiler.cut()?;
    compiler.describe_units(&mut plan)?;
    compiler.describe_precision(&mut plan)?;
    compiler.describe_reduction(&mut plan)?;
    compiler.describe_memory(&mut plan)?;
    compiler.describe_step(&mut plan)?;
    plan.notes.extend(config.notes.iter().cloned());
    Ok(plan)
}

struct Compiler<'a> {
    config: &'a DeepSpeedConfig,
    document: &'a Document,
    job: &'a JobFacts,
    stage: u64,
}

impl Compiler<'_> {
    fn zero(&self, key: &str) -> String {
        format!("zero_optimization.{key}")
    }

    fn whole(&self, key: &str, otherwise: u64) -> Result<u64> {
        self.document.whole(&self.zero(key), otherwise)
    }

    fn note(&self, plan: &mut ParallelPlan, part: Part, key: &str) {
        if self.document.has(key) {
            plan.origins.note(part, &self.document.origin(key));
        }
    }

    /// A plan with its mesh, and with what is sharded over it.
    fn cut(&self) -> Result<ParallelPlan> {
        let world = self.job.world_size;
        let group = self.zero("mics_shard_size");
        let mesh = match self.document.number(&group, -1.0)? {
            _ if self.stage == 0 => Mesh::replicated(world),
            size if size >= 1.0 => {
                let size = self.divisor("mics_shard_size", size as u64)?;
                let copies = NonZeroUsize::new(world.get() / size.get());
                Mesh::new(copies.unwrap_or(NonZeroUsize::MIN), size)
            }
            _ => Mesh::sharded(world),
        };
        let sharded = match self.stage {
            0 => Sharded::Nothing,
            1 => Sharded::OptimizerState,
            2 => Sharded::Gradients,
            _ => Sharded::Parameters,
        };
        let mut plan = ParallelPlan::new(mesh, sharded);
        plan.dialect = Dialect::DeepSpeed;
        plan.keeps_root = false;
        let hpz = self.whole("zero_hpz_partition_size", 1)?;
        if sharded == Sharded::Parameters && hpz > 1 {
            let size = self.divisor("zero_hpz_partition_size", hpz)?;
            plan.after_forward = AfterForward::ReleaseTo(size);
            let key = self.zero("zero_hpz_partition_size");
            self.note(&mut plan, Part::AfterForward, &key);
        }
        self.note(&mut plan, Part::Sharded, "zero_optimization.stage");
        self.note(&mut plan, Part::Mesh, &group);
        Ok(plan)
    }

    /// A size that divides the ranks.
    fn divisor(&self, key: &'static str, size: u64) -> Result<NonZeroUsize> {
        let world = self.job.world_size.get();
        let fits = usize::try_from(size).ok().and_then(NonZeroUsize::new);
        let fits = fits.filter(|size| world.is_multiple_of(size.get()));
        fits.ok_or_else(|| PlanError::Divisor {
            what: key,
            size,
            origin: self.document.origin(&self.zero(key)),
            world_size: world,
        })
    }

    fn describe_units(&self, plan: &mut ParallelPlan) -> Result<()> {
        plan.wrap = WrapPolicy::ModelBlocks;
        plan.leaf_classes = self.config.moe_layer_classes.value.clone();
        let origin = &self.config.moe_layer_classes.origin;
        plan.origins.note(Part::Wrap, origin);
        plan.prefetch = Prefetch {
            backward: BackwardPrefetch::NoPrefetch,
            forward: false,
            limit: PrefetchLimit::Unlimited,
        };
        if plan.sharded == Sharded::Parameters {
            plan.keep_up_to = self.whole("stage3_param_persistence_threshold", 100_000)?;
            let key = self.zero("stage3_param_persistence_threshold");
            self.note(plan, Part::AfterForward, &key);
            plan.prefetch = Prefetch {
                backward: BackwardPrefetch::BackwardPre,
                forward: true,
                limit: PrefetchLimit::Elements {
                    ahead: self.whole("stage3_prefetch_bucket_size", 50_000_000)?,
                    live: self.whole("stage3_max_live_parameters", 1_000_000_000)?,
                    reuse_distance: self.whole("stage3_max_reuse_distance", 1_000_000_000)?,
                },
            };
            for key in [
                "stage3_prefetch_bucket_size",
                "stage3_max_live_parameters",
                "stage3_max_reuse_distance",
            ] {
                let key = self.zero(key);
                self.note(plan, Part::Prefetch, &key);
            }
        }
        let is_quantised = self
            .document
            .flag(&self.zero("zero_quantized_weights"), false)?;
        if is_quantised {
            plan.weights = Quantised::Int8;
            let key = self.zero("zero_quantized_weights");
            self.note(plan, Part::WeightWire, &key);
        }
        Ok(())
    }

    fn describe_reduction(&self, plan: &mut ParallelPlan) -> Result<()> {
        let is_prescaled = self.document.flag("prescale_gradients", false)?;
        let factor = self.document.number("gradient_predivide_factor", 1.0)?;
        if factor <= 0.0 {
            return Err(self
                .document
                .refuse("gradient_predivide_factor", "a number above 0"));
        }
        let is_quantised = self
            .document
            .flag(&self.zero("zero_quantized_gradients"), false)?;
        plan.reduction = Reduction {
            average: match (is_prescaled, factor) {
                (true, _) => Average::Before(plan.mesh.data_parallel().get() as f64),
                (false, 1.0) => Average::After,
                (false, factor) => Average::Before(factor),
            },
            no_sync: match plan.sharded >= Sharded::Gradients {
                true => NoSync::Shards,
                false => NoSync::Whole,
            },
            bucket_size: self.whole("reduce_bucket_size", BUCKET)?,
            gradients: match is_quantised {
                true => Quantised::Int4,
                false => Quantised::No,
            },
        };
        if is_quantised {
            let key = self.zero("zero_quantized_gradients");
            self.note(plan, Part::GradientWire, &key);
        }
        Ok(())
    }

    fn describe_step(&self, plan: &mut ParallelPlan) -> Result<()> {
        let clipping = "gradient_clipping";
        plan.clipping = match self.document.number(clipping, 1.0)? {
            norm if norm > 0.0 => Clipping::Norm(norm),
            _ => Clipping::Never,
        };
        self.note(plan, Part::Clipping, clipping);
        let steps = "gradient_accumulation_steps";
        if self.document.has(steps) {
            let count = self.document.whole(steps, 1)?;
            let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
            let Some(count) = count else {
                return Err(self.document.refuse(steps, "a whole number, at least 1"));
            };
            plan.accumulation = Accumulation::Steps(count);
            self.note(plan, Part::Accumulation, steps);
        }
        let in_shards = self.config.zero3_init.value && plan.sharded == Sharded::Parameters;
        plan.loading = Loading {
            weights: match in_shards {
                true => WeightSource::RankZero,
                false => WeightSource::EveryRank,
            },
            sync_module_states: true,
            construction: match in_shards {
                true => Construction::InShards,
                false => Construction::Whole,
            },
        };
        if in_shards {
            let origin = &self.config.zero3_init.origin;
            plan.origins.note(Part::Loading, origin);
        }
        let save = self.zero("stage3_gather_16bit_weights_on_model_save");
        plan.state_dict = StateDict {
            kind: StateDictType::Sharded,
            offload_to_cpu: true,
            rank0_only: false,
            layout: Layout::DeepSpeed,
            gathers_16bit_model: self.document.flag(&save, false)?,
        };
        if plan.state_dict.gathers_16bit_model {
            self.note(plan, Part::StateDict, &save);
        }
        Ok(())
    }
}
