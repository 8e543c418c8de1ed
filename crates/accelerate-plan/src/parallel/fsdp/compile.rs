//! From the words of FSDP to a plan.

use std::num::NonZeroUsize;

use super::{FsdpSettings, PrecisionPolicy};
use crate::{
    MixedPrecision,
    parallel::{
        AfterForward, Average, Cast, Dialect, FloatType, Ignored, InputCast, JobFacts,
        Layout, Loading, LossScaling, Mesh, NoSync, Offload, ParallelPlan, Part, PlanError,
        Precision, Prefetch, PrefetchLimit, Recompute, Sharded, SizeRule, StateDict, Storage,
        WeightSource, WrapPolicy,
        Construction, error::contradiction, plan::GATHERS,
    },
    settings::{
        AutoWrapPolicy, BackwardPrefetch, FsdpVersion, Origin, ReshardAfterForward,
        ShardingStrategy, Sourced, StateDictType,
    },
};

type Result<T> = std::result::Result<T, PlanError>;

impl FsdpSettings {
    /// The plan that these settings mean in a job. `mesh` is a grid that was laid out by other
    /// settings; without it the strategy decides.
    ///
    /// `FULL_SHARD` is [`Sharded::Parameters`]; `SHARD_GRAD_OP` is [`Sharded::Gradients`], or, where
    /// parameters are offloaded and only shards may stay in CPU memory, [`Sharded::Parameters`] that
    /// are kept after the forward pass; the hybrid strategies are the same within a machine, with
    /// copies between machines. A job of one rank shards nothing.
    ///
    /// # Errors
    /// - [`PlanError::Settings`] for settings that exclude each other.
    /// - [`PlanError::UnevenMachines`] if a hybrid strategy finds no machines of one size.
    ///
    /// # Source
    /// `FullyShardedDataParallelPlugin` and `fsdp2_prepare_model`. Differs: `cpu_ram_efficient_loading`
    /// compares truth values, not texts; in version 2 a sharding strategy without
    /// `reshard_after_forward` means what it means when a file is converted, where the original fails.
    pub fn compile(&self, job: &JobFacts, mesh: Option<Sourced<Mesh>>) -> Result<ParallelPlan> {
        self.check()?;
        let (strategy, origin) = self.strategy_in_force()?;
        let mut plan = self.cut(job, mesh, strategy, &origin)?;
        self.describe_units(&mut plan);
        self.describe_passes(&mut plan);
        self.describe_precision(&mut plan, &job.mixed_precision);
        self.describe_memory(&mut plan);
        self.describe_loading(&mut plan);
        self.describe_saving(&mut plan)?;
        Ok(plan)
    }

    fn is_old(&self) -> bool {
        self.version.value == FsdpVersion::One
    }

    fn check(&self) -> Result<()> {
        let offload = &self.activation_checkpointing_offload;
        if offload.value && !self.activation_checkpointing.value {
            return Err(contradiction(
                "fsdp_activation_checkpointing_offload",
                offload,
                "`false` without `fsdp_activation_checkpointing`",
                &self.activation_checkpointing,
            ));
        }
        if offload.value && self.is_old() {
            return Err(contradiction(
                "fsdp_activation_checkpointing_offload",
                offload,
                "`false` in version 1 of FSDP",
                &self.version,
            ));
        }
        let by_program = self.forward_prefetch.origin == Origin::Program;
        if self.forward_prefetch.value && by_program && !self.is_old() {
            return Err(contradiction(
                "fsdp_forward_prefetch",
                &self.forward_prefetch,
                "`false` in version 2 of FSDP, which has no such setting",
                &self.version,
            ));
        }
        Ok(())
    }

    /// The strategy, and the setting that decided it.
    fn strategy_in_force(&self) -> Result<(ShardingStrategy, Origin)> {
        match self.is_old() {
            true => Ok(self.strategy_of_version_1()),
            false => self.strategy_of_version_2(),
        }
    }

    /// A strategy under the newer name counts where the older name has none; a truth value there is
    /// the launcher's default for version 2 and says nothing.
    fn strategy_of_version_1(&self) -> (ShardingStrategy, Origin) {
        let newer = self.reshard_after_forward.as_ref();
        let newer = newer.and_then(|given| Some((given.value.strategy()?, given.origin.clone())));
        let older = self.strategy.as_ref();
        let older = older.map(|given| (given.value, given.origin.clone()));
        older
            .or(newer)
            .unwrap_or((ShardingStrategy::FullShard, Origin::Default))
    }

    fn strategy_of_version_2(&self) -> Result<(ShardingStrategy, Origin)> {
        match &self.reshard_after_forward {
            Some(Sourced {
                value: ReshardAfterForward::Whether(whether),
                origin,
            }) => Ok((of_reshard(*whether), origin.clone())),
            Some(named) => Err(contradiction(
                "fsdp_reshard_after_forward",
                &Sourced {
                    value: named.value.strategy().map_or("", ShardingStrategy::name),
                    origin: named.origin.clone(),
                },
                "`true` or `false` in version 2 of FSDP",
                &self.version,
            )),
            // What the launcher exports by default decides nothing.
            None => match &self.strategy {
                Some(given) if given.origin.is_given() => Ok((given.value, given.origin.clone())),
                _ => Ok((ShardingStrategy::FullShard, Origin::Default)),
            },
        }
    }

    /// A plan with its mesh, and with what is sharded over it.
    fn cut(
        &self,
        job: &JobFacts,
        mesh: Option<Sourced<Mesh>>,
        strategy: ShardingStrategy,
        origin: &Origin,
    ) -> Result<ParallelPlan> {
        let is_laid_out = mesh.is_some();
        let mesh = match mesh {
            Some(mesh) => mesh,
            None => mesh_of(strategy, job, origin)?,
        };
        let is_one = mesh.value.shard.get() == 1;
        let (sharded, after_forward) = match strategy {
            _ if is_one => (Sharded::Nothing, AfterForward::Keep),
            ShardingStrategy::NoShard => (Sharded::Nothing, AfterForward::Keep),
            ShardingStrategy::FullShard | ShardingStrategy::HybridShard => {
                (Sharded::Parameters, AfterForward::Release)
            }
            ShardingStrategy::ShardGradOp | ShardingStrategy::HybridShardZero2
                if self.offload.value =>
            {
                (Sharded::Parameters, AfterForward::Keep)
            }
            ShardingStrategy::ShardGradOp | ShardingStrategy::HybridShardZero2 => {
                (Sharded::Gradients, AfterForward::Keep)
            }
        };
        let mut plan = ParallelPlan::new(mesh.value, sharded);
        plan.after_forward = after_forward;
        plan.dialect = match self.version.value {
            FsdpVersion::One => Dialect::Fsdp1,
            FsdpVersion::Two => Dialect::Fsdp2,
        };
        plan.origins.note(Part::Dialect, &self.version.origin);
        plan.origins.note(Part::Sharded, origin);
        plan.origins.note(Part::AfterForward, origin);
        if is_laid_out {
            plan.origins.note(Part::Mesh, &mesh.origin);
        }
        if is_one && job.world_size.get() == 1 && strategy != ShardingStrategy::NoShard {
            plan.notes.push(format!(
                "one process shards nothing: `{strategy}` is `NO_SHARD` here"
            ));
        }
        // A launcher tells its processes a strategy whether anybody chose one or not.
        let is_chosen = |origin: &Origin| origin.is_given() && !matches!(origin, Origin::Variable(_));
        if !self.is_old() && self.strategy.as_ref().is_some_and(|given| is_chosen(&given.origin)) {
            plan.notes.push(
                "version 2 of FSDP says `fsdp_reshard_after_forward` for `fsdp_sharding_strategy`"
                    .to_owned(),
            );
        }
        Ok(plan)
    }

    fn describe_units(&self, plan: &mut ParallelPlan) {
        let rule = match self.is_old() {
            true => SizeRule::RestAtLeast,
            false => SizeRule::TotalAbove,
        };
        plan.origins.note(Part::Wrap, &self.wrap.origin);
        plan.wrap = match self.wrap.value {
            AutoWrapPolicy::NoWrap => WrapPolicy::Root,
            AutoWrapPolicy::TransformerBasedWrap if self.classes.value.is_empty() => {
                WrapPolicy::ModelBlocks
            }
            AutoWrapPolicy::TransformerBasedWrap => {
                plan.origins.note(Part::Wrap, &self.classes.origin);
                WrapPolicy::Classes(self.classes.value.clone())
            }
            AutoWrapPolicy::SizeBasedWrap if self.min_num_params.value == 0 => WrapPolicy::Root,
            AutoWrapPolicy::SizeBasedWrap => {
                plan.origins.note(Part::Wrap, &self.min_num_params.origin);
                WrapPolicy::Size {
                    min_num_params: self.min_num_params.value,
                    rule,
                }
            }
        };
        if let Some(ignored) = &self.ignored {
            plan.origins.note(Part::Ignored, &ignored.origin);
            plan.ignored = Ignored::Matching(ignored.value.clone());
        }
    }

    fn describe_passes(&self, plan: &mut ParallelPlan) {
        let asked = self.backward_prefetch.as_ref();
        plan.prefetch = match self.is_old() {
            true => Prefetch {
                backward: asked.map_or(BackwardPrefetch::NoPrefetch, |asked| asked.value),
                forward: self.forward_prefetch.value,
                limit: match self.limit_all_gathers.value {
                    true => PrefetchLimit::Gathers(GATHERS),
                    false => PrefetchLimit::Unlimited,
                },
            },
            false => Prefetch {
                backward: BackwardPrefetch::BackwardPre,
                forward: false,
                limit: PrefetchLimit::Gathers(GATHERS),
            },
        };
        if let (false, Some(asked)) = (self.is_old(), asked)
            && asked.value != BackwardPrefetch::BackwardPre
        {
            plan.notes.push(format!(
                "version 2 of FSDP always gathers before the current gradients: `{}` has no effect",
                asked.value
            ));
        }
        if !self.is_old() && self.forward_prefetch.value {
            plan.notes.push(
                "version 2 of FSDP has no `fsdp_forward_prefetch`: it has no effect".to_owned(),
            );
        }
        if self.is_old() {
            let origins = [
                asked.map(|asked| &asked.origin),
                Some(&self.forward_prefetch.origin),
            ];
            for origin in origins.into_iter().flatten() {
                plan.origins.note(Part::Prefetch, origin);
            }
        }
        plan.reduction.average = match self.is_old() {
            true => Average::Balanced,
            false => Average::BalancedIfFloat16,
        };
        plan.reduction.no_sync = NoSync::Whole;
        plan.recompute = match (
            self.activation_checkpointing.value,
            self.activation_checkpointing_offload.value,
        ) {
            (false, _) => Recompute::Nothing,
            (true, false) => Recompute::Units,
            (true, true) => Recompute::UnitsOffloaded,
        };
        let origin = &self.activation_checkpointing.origin;
        plan.origins.note(Part::Recompute, origin);
    }

    fn describe_precision(&self, plan: &mut ParallelPlan, mixed: &Sourced<MixedPrecision>) {
        let float = match mixed.value {
            MixedPrecision::No => None,
            MixedPrecision::Fp16 => Some(FloatType::Float16),
            MixedPrecision::Bf16 | MixedPrecision::Fp8 => Some(FloatType::BFloat16),
        };
        let own = self.policy.as_ref().map(|policy| policy.value);
        let Some(policy) =
            own.or_else(|| float.map(|float| PrecisionPolicy::all(float, self.version.value)))
        else {
            return;
        };
        match &self.policy {
            Some(given) => plan.origins.note(Part::Precision, &given.origin),
            None => plan.origins.note(Part::Precision, &mixed.origin),
        }
        let autocast = float.map_or(Cast::AsIs, Cast::To);
        let is_old = self.is_old();
        let is_mixed = float.is_some();
        plan.precision = Precision {
            parameters: policy.parameters,
            reduction: policy.reduction,
            buffers: policy.buffers,
            outputs: match is_old && is_mixed {
                true => Cast::To(FloatType::Float32),
                false => policy.outputs,
            },
            inputs: match is_old {
                true => InputCast::Root,
                false => InputCast::EveryUnit,
            },
            autocast: if is_old { autocast } else { Cast::AsIs },
            is_master_float32: is_mixed,
            loss_scaling: match float {
                Some(FloatType::Float16) => LossScaling::Accelerator,
                _ => LossScaling::Off,
            },
        };
    }

    /// All or nothing.
    fn describe_memory(&self, plan: &mut ParallelPlan) {
        if !self.offload.value {
            return;
        }
        plan.offload = Offload::everything(Storage::Cpu { is_pinned: true });
        for part in [
            Part::OffloadParameters,
            Part::OffloadGradients,
            Part::OffloadOptimizer,
        ] {
            plan.origins.note(part, &self.offload.origin);
        }
    }

    fn describe_loading(&self, plan: &mut ParallelPlan) {
        let efficient = self.cpu_ram_efficient_loading.value;
        let asked = self.sync_module_states.value;
        if efficient && !asked && self.is_old() {
            plan.notes.push(
                "`fsdp_sync_module_states` is on, because only one process reads the weights"
                    .to_owned(),
            );
        }
        plan.loading = Loading {
            weights: match efficient {
                true => WeightSource::RankZero,
                false => WeightSource::EveryRank,
            },
            sync_module_states: match self.is_old() {
                true => asked || efficient,
                false => efficient,
            },
            construction: Construction::Whole,
        };
        let origin = &self.cpu_ram_efficient_loading.origin;
        plan.origins.note(Part::Loading, origin);
        if self.is_old() {
            let origin = &self.sync_module_states.origin;
            plan.origins.note(Part::Loading, origin);
            let origin = &self.use_orig_params.origin;
            plan.origins.note(Part::OrigParams, origin);
        }
        plan.use_orig_params = self.use_orig_params.value || !self.is_old();
    }

    fn describe_saving(&self, plan: &mut ParallelPlan) -> Result<()> {
        let kind = match (&self.state_dict_type, self.is_old()) {
            (Some(local), false) if local.value == StateDictType::Local => {
                return Err(contradiction(
                    "fsdp_state_dict_type",
                    local,
                    "`FULL_STATE_DICT` or `SHARDED_STATE_DICT` in version 2 of FSDP",
                    &self.version,
                ));
            }
            (Some(given), _) => given.value,
            (None, true) => StateDictType::Full,
            (None, false) => StateDictType::Sharded,
        };
        let is_full = kind == StateDictType::Full;
        let chosen = |given: &Option<Sourced<bool>>, otherwise: bool| {
            given.as_ref().map_or(otherwise, |given| given.value)
        };
        plan.state_dict = StateDict {
            kind,
            offload_to_cpu: chosen(
                &self.state_dict_offload_to_cpu,
                kind != StateDictType::Local,
            ),
            rank0_only: chosen(&self.state_dict_rank0_only, is_full),
            layout: Layout::Fsdp,
            gathers_16bit_model: false,
        };
        let given = [
            self.state_dict_type.as_ref().map(|given| &given.origin),
            self.state_dict_offload_to_cpu.as_ref().map(|given| &given.origin),
            self.state_dict_rank0_only.as_ref().map(|given| &given.origin),
        ];
        for origin in given.into_iter().flatten() {
            plan.origins.note(Part::StateDict, origin);
        }
        Ok(())
    }
}

fn of_reshard(whether: bool) -> ShardingStrategy {
    match whether {
        true => ShardingStrategy::FullShard,
        false => ShardingStrategy::ShardGradOp,
    }
}

/// The grid that a strategy asks for.
fn mesh_of(strategy: ShardingStrategy, job: &JobFacts, origin: &Origin) -> Result<Sourced<Mesh>> {
    let world = job.world_size;
    let value = match strategy {
        ShardingStrategy::FullShard | ShardingStrategy::ShardGradOp => Mesh::sharded(world),
        ShardingStrategy::NoShard => Mesh::replicated(world),
        ShardingStrategy::HybridShard | ShardingStrategy::HybridShardZero2 => {
            let local = job.local_world_size;
            let machines = NonZeroUsize::new(world.get() / local.get());
            match machines.filter(|machines| machines.get() * local.get() == world.get()) {
                Some(machines) => Mesh::new(machines, local),
                None => {
                    return Err(PlanError::UnevenMachines {
                        what: strategy.name(),
                        origin: origin.clone(),
                        world_size: world.get(),
                        local_world_size: local.get(),
                    });
                }
            }
        }
    };
    Ok(Sourced {
        value,
        origin: origin.clone(),
    })
}
