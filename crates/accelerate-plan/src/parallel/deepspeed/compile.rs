//! From DeepSpeed's config to a plan.

use std::num::{NonZeroU32, NonZeroUsize};

use super::{
    DeepSpeedConfig,
    document::{Document, flag, number},
};
use crate::{
    config::{Value, inline_json},
    parallel::{
        Accumulation, AfterForward, Average, Cast, Clipping, Construction, Dialect, DiskTraffic,
        FloatType, InputCast, JobFacts, Layout, Loading, LossScaling, Mesh, NoSync, Offload,
        ParallelPlan, Part, PlanError, Precision, Prefetch, PrefetchLimit, Quantised, Reduction,
        ScaleRule, Sharded, StateDict, Storage, WeightSource, WrapPolicy, error::contradiction,
        plan::BUCKET,
    },
    settings::{BackwardPrefetch, Sourced, StateDictType},
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

/// What a key needs of the stage.
struct Needs {
    key: &'static str,
    is_on: fn(&Value) -> bool,
    stage: u64,
    expected: &'static str,
}

static NEEDS: [Needs; 6] = [
    Needs {
        key: "zero_optimization.offload_optimizer.device",
        is_on: is_device,
        stage: 1,
        expected: "`none` without ZeRO",
    },
    Needs {
        key: "zero_optimization.offload_param.device",
        is_on: is_device,
        stage: 3,
        expected: "`none` below stage 3",
    },
    Needs {
        key: "zero_optimization.zero_quantized_weights",
        is_on: is_true,
        stage: 3,
        expected: "`false` below stage 3",
    },
    Needs {
        key: "zero_optimization.zero_quantized_gradients",
        is_on: is_true,
        stage: 3,
        expected: "`false` below stage 3",
    },
    Needs {
        key: "zero_optimization.zero_hpz_partition_size",
        is_on: is_above_one,
        stage: 3,
        expected: "1 below stage 3",
    },
    Needs {
        key: "zero_optimization.mics_shard_size",
        is_on: is_above_one,
        stage: 3,
        expected: "-1 below stage 3",
    },
];

fn is_device(value: &Value) -> bool {
    matches!(value, Value::Text(text) if text != "none")
}

fn is_true(value: &Value) -> bool {
    flag(value) == Some(true)
}

fn is_above_one(value: &Value) -> bool {
    number(value).is_some_and(|number| number > 1.0)
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

    fn check(&self) -> Result<()> {
        let stage = Sourced {
            value: self.stage,
            origin: self.document.origin("zero_optimization.stage"),
        };
        for Needs {
            key,
            is_on,
            stage: least,
            expected,
        } in &NEEDS
        {
            let Some(value) = self.document.get(key).filter(|value| is_on(value)) else {
                continue;
            };
            if self.stage < *least {
                let found = Sourced {
                    value: inline_json(value),
                    origin: self.document.origin(key),
                };
                return Err(contradiction(key, &found, expected, &stage));
            }
        }
        let ratio = self.zero("offload_optimizer.ratio");
        match self.document.number(&ratio, 1.0)? {
            part if !(0.0..=1.0).contains(&part) => {
                Err(self.document.refuse(&ratio, "a number from 0 to 1"))
            }
            part if part < 1.0 && self.stage < 3 => {
                Err(self.document.refuse(&ratio, "1 below stage 3"))
            }
            _ => Ok(()),
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
        let is_quantised = self.document.flag(&self.zero("zero_quantized_weights"), false)?;
        if is_quantised {
            plan.weights = Quantised::Int8;
            let key = self.zero("zero_quantized_weights");
            self.note(plan, Part::WeightWire, &key);
        }
        Ok(())
    }

    /// What is kept is always float32, whatever type the model was loaded in.
    fn describe_precision(&self, plan: &mut ParallelPlan) -> Result<()> {
        let is_fp16 = self.document.flag("fp16.enabled", false)?;
        let is_bf16 = self.document.flag("bf16.enabled", false)?;
        let float = match (is_fp16, is_bf16) {
            (true, _) => FloatType::Float16,
            (_, true) => FloatType::BFloat16,
            _ => FloatType::Float32,
        };
        let casts_inputs = match float {
            FloatType::Float16 => self.document.flag("fp16.auto_cast", false)?,
            FloatType::BFloat16 => true,
            FloatType::Float32 => false,
        };
        let on_the_way = self.document.text("communication_data_type")?;
        plan.precision = Precision {
            parameters: Cast::To(float),
            reduction: on_the_way.as_deref().and_then(float_named).map_or(Cast::To(float), Cast::To),
            buffers: Cast::To(float),
            outputs: Cast::AsIs,
            inputs: match casts_inputs {
                true => InputCast::Root,
                false => InputCast::Nobody,
            },
            autocast: Cast::AsIs,
            is_master_float32: true,
            loss_scaling: match float {
                FloatType::Float16 => self.loss_scaling()?,
                _ => LossScaling::Off,
            },
        };
        for key in ["fp16.enabled", "bf16.enabled", "communication_data_type"] {
            let is_on = self.document.get(key).is_some_and(|value| !is_false(value));
            if is_on {
                self.note(plan, Part::Precision, key);
            }
        }
        Ok(())
    }

    fn loss_scaling(&self) -> Result<LossScaling> {
        let fixed = self.document.number("fp16.loss_scale", 0.0)?;
        if fixed != 0.0 {
            return Ok(LossScaling::Fixed(fixed));
        }
        let plain = ScaleRule::default();
        let power = self.document.whole("fp16.initial_scale_power", 16)?;
        Ok(LossScaling::Dynamic(ScaleRule {
            initial_scale_power: u32::try_from(power).unwrap_or(u32::MAX),
            window: self.document.whole("fp16.loss_scale_window", plain.window)?,
            hysteresis: self.document.whole("fp16.hysteresis", plain.hysteresis)?,
            consecutive_hysteresis: self
                .document
                .flag("fp16.consecutive_hysteresis", plain.consecutive_hysteresis)?,
            min_scale: self.document.number("fp16.min_loss_scale", plain.min_scale)?,
        }))
    }

    fn describe_reduction(&self, plan: &mut ParallelPlan) -> Result<()> {
        let is_prescaled = self.document.flag("prescale_gradients", false)?;
        let factor = self.document.number("gradient_predivide_factor", 1.0)?;
        if factor <= 0.0 {
            return Err(self.document.refuse("gradient_predivide_factor", "a number above 0"));
        }
        let is_quantised = self.document.flag(&self.zero("zero_quantized_gradients"), false)?;
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

    fn describe_memory(&self, plan: &mut ParallelPlan) -> Result<()> {
        let optimizer = self.storage("zero_optimization.offload_optimizer")?;
        let traffic = DiskTraffic::default();
        let both = self.flag_of("offload_optimizer.pipeline")?;
        plan.offload = Offload {
            parameters: self.storage("zero_optimization.offload_param")?,
            gradients: optimizer.clone(),
            optimizer_state: optimizer,
            optimizer_ratio: self.document.number(&self.zero("offload_optimizer.ratio"), 1.0)?,
            disk: DiskTraffic {
                sub_group_size: self.whole("sub_group_size", traffic.sub_group_size)?,
                param_buffers: self.whole("offload_param.buffer_count", traffic.param_buffers)?,
                param_buffer_size: self
                    .whole("offload_param.buffer_size", traffic.param_buffer_size)?,
                max_in_cpu: self.whole("offload_param.max_in_cpu", traffic.max_in_cpu)?,
                optimizer_buffers: self
                    .whole("offload_optimizer.buffer_count", traffic.optimizer_buffers)?,
                reads_ahead: both || self.flag_of("offload_optimizer.pipeline_read")?,
                writes_behind: both || self.flag_of("offload_optimizer.pipeline_write")?,
                block_bytes: self.document.whole("aio.block_size", traffic.block_bytes)?,
                queue_depth: self.document.whole("aio.queue_depth", traffic.queue_depth)?,
            },
        };
        let (param, state) = (
            "zero_optimization.offload_param.device",
            "zero_optimization.offload_optimizer.device",
        );
        if plan.offload.parameters != Storage::Device {
            self.note(plan, Part::OffloadParameters, param);
        }
        if plan.offload.optimizer_state != Storage::Device {
            self.note(plan, Part::OffloadGradients, state);
            self.note(plan, Part::OffloadOptimizer, state);
        }
        Ok(())
    }

    fn flag_of(&self, key: &str) -> Result<bool> {
        self.document.flag(&self.zero(key), false)
    }

    fn storage(&self, part: &'static str) -> Result<Storage> {
        let device = format!("{part}.device");
        let path = format!("{part}.nvme_path");
        Ok(match self.document.text(&device)?.as_deref() {
            Some("cpu") => Storage::Cpu {
                is_pinned: self.document.flag(&format!("{part}.pin_memory"), true)?,
            },
            Some("nvme") => match self.document.text(&path)? {
                Some(folder) if folder != "none" && !folder.is_empty() => Storage::Disk {
                    folder: folder.into(),
                },
                _ => return Err(self.no_folder(part, &device)),
            },
            _ => Storage::Device,
        })
    }

    fn no_folder(&self, part: &'static str, device: &str) -> PlanError {
        PlanError::NoFolder {
            what: part,
            origin: self.document.origin(device),
            path_key: match part {
                "zero_optimization.offload_param" => "offload_param_nvme_path",
                _ => "offload_optimizer_nvme_path",
            },
        }
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

fn is_false(value: &Value) -> bool {
    flag(value) == Some(false)
}

fn float_named(name: &str) -> Option<FloatType> {
    match name {
        "bfp16" => Some(FloatType::BFloat16),
        name => FloatType::from_name(name),
    }
}
