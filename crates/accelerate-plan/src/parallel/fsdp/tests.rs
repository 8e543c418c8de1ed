use std::num::NonZeroUsize;

use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::{
    Hint as _, MixedPrecision,
    config::{RawFile, Value},
    env::Environment,
    launch::{Strategy, environment},
    parallel::{
        AfterForward, Average, Cast, Dialect, FloatType, Ignored, InputCast, JobFacts, LossScaling,
        Mesh, ParallelPlan, PlanError, PrefetchLimit, PrepareFacts, Preview, Recompute, Sharded,
        ShardingSettings, SizeRule, Storage, WeightSource, WrapPolicy,
    },
    settings::{
        AutoWrapPolicy, BackwardPrefetch, ConfigFile, FsdpVersion, ReshardAfterForward, Settings,
        ShardingStrategy, Sourced, StateDictType,
    },
};

fn size(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn job(world: usize, local: usize) -> JobFacts {
    JobFacts {
        local_world_size: size(local),
        ..JobFacts::on_one_machine(size(world))
    }
}

fn said<T>(value: T) -> Sourced<T> {
    Sourced::by_program(value)
}

fn with(strategy: ShardingStrategy) -> FsdpSettings {
    FsdpSettings {
        strategy: Some(said(strategy)),
        ..FsdpSettings::default()
    }
}

fn version_2() -> FsdpSettings {
    FsdpSettings {
        version: said(FsdpVersion::Two),
        ..FsdpSettings::default()
    }
}

fn compile(settings: &FsdpSettings, job: &JobFacts) -> ParallelPlan {
    settings.compile(job, None).unwrap()
}

/// The table of strategies of the specification, on two machines with four processes each.
#[test]
fn strategies_are_stages_on_a_mesh() {
    let whole = Mesh::sharded(size(8));
    let hybrid = Mesh::new(size(2), size(4));
    let (release, keep) = (AfterForward::Release, AfterForward::Keep);
    for (strategy, mesh, sharded, after) in [
        (
            ShardingStrategy::FullShard,
            whole,
            Sharded::Parameters,
            release,
        ),
        (
            ShardingStrategy::ShardGradOp,
            whole,
            Sharded::Gradients,
            keep,
        ),
        (
            ShardingStrategy::NoShard,
            Mesh::replicated(size(8)),
            Sharded::Nothing,
            keep,
        ),
        (
            ShardingStrategy::HybridShard,
            hybrid,
            Sharded::Parameters,
            release,
        ),
        (
            ShardingStrategy::HybridShardZero2,
            hybrid,
            Sharded::Gradients,
            keep,
        ),
    ] {
        let plan = compile(&with(strategy), &job(8, 4));
        assert_eq!(plan.dialect, Dialect::Fsdp1);
        assert_eq!(
            (plan.mesh, plan.sharded, plan.after_forward),
            (mesh, sharded, after),
            "{strategy}"
        );
    }
}

#[test]
fn a_strategy_has_a_name_in_any_case_a_number_and_torchs_own_name() {
    for (text, strategy) in [
        ("1", ShardingStrategy::FullShard),
        ("shard_grad_op", ShardingStrategy::ShardGradOp),
        ("3", ShardingStrategy::NoShard),
        ("HYBRID_SHARD", ShardingStrategy::HybridShard),
        ("_HYBRID_SHARD_ZERO2", ShardingStrategy::HybridShardZero2),
        ("5", ShardingStrategy::HybridShardZero2),
    ] {
        let env = Environment::from_pairs([("FSDP_SHARDING_STRATEGY", text)]);
        let settings = FsdpSettings::from_environment(&env).unwrap();
        assert_eq!(settings.strategy.map(|given| given.value), Some(strategy));
    }
}

#[test]
fn machines_must_be_of_one_size_for_a_hybrid() {
    let error = with(ShardingStrategy::HybridShard)
        .compile(&job(8, 3), None)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "`HYBRID_SHARD` (the program) needs machines with equally many processes: the job has 8, \
         this machine 3, and 8 is no multiple of 3"
    );
}

#[test]
fn one_process_shards_nothing_and_says_so() {
    let plan = compile(&with(ShardingStrategy::FullShard), &job(1, 1));
    assert_eq!(plan.sharded, Sharded::Nothing);
    assert_eq!(
        plan.notes,
        ["one process shards nothing: `FULL_SHARD` is `NO_SHARD` here"]
    );
}

#[test]
fn offload_is_all_or_nothing_and_leaves_shards_only() {
    let mut settings = with(ShardingStrategy::ShardGradOp);
    settings.offload = said(true);
    let plan = compile(&settings, &job(2, 2));
    assert_eq!(
        (plan.sharded, plan.after_forward),
        (Sharded::Parameters, AfterForward::Keep)
    );
    let cpu = Storage::Cpu { is_pinned: true };
    assert_eq!(plan.offload.parameters, cpu);
    assert_eq!(plan.offload.gradients, cpu);
    assert_eq!(plan.offload.optimizer_state, cpu);
    assert!(
        compile(&with(ShardingStrategy::FullShard), &job(2, 2))
            .offload
            .is_nothing()
    );
}

#[test]
fn the_newer_name_counts_where_the_older_one_is_silent() {
    let mut settings = FsdpSettings {
        reshard_after_forward: Some(said(ReshardAfterForward::AsStrategy(
            ShardingStrategy::ShardGradOp,
        ))),
        ..FsdpSettings::default()
    };
    assert_eq!(compile(&settings, &job(2, 2)).sharded, Sharded::Gradients);
    settings.strategy = Some(said(ShardingStrategy::FullShard));
    assert_eq!(compile(&settings, &job(2, 2)).sharded, Sharded::Parameters);
    // The launcher tells processes of version 1 a truth value, which says nothing.
    settings.strategy = None;
    settings.reshard_after_forward = Some(said(ReshardAfterForward::Whether(false)));
    assert_eq!(compile(&settings, &job(2, 2)).sharded, Sharded::Parameters);
}

#[test]
fn version_2_says_whether_parameters_are_dropped() {
    let mut settings = version_2();
    let of = |settings: &FsdpSettings| {
        let plan = compile(settings, &job(2, 2));
        (plan.sharded, plan.after_forward)
    };
    assert_eq!(of(&settings), (Sharded::Parameters, AfterForward::Release));
    settings.reshard_after_forward = Some(said(ReshardAfterForward::Whether(false)));
    assert_eq!(of(&settings), (Sharded::Gradients, AfterForward::Keep));
    settings.reshard_after_forward = Some(said(ReshardAfterForward::AsStrategy(
        ShardingStrategy::FullShard,
    )));
    let error = settings.compile(&job(2, 2), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`fsdp_reshard_after_forward` is `FULL_SHARD` (the program): expected `true` or `false` in \
         version 2 of FSDP, which is `2` (the program)"
    );
}

#[test]
fn version_2_has_its_own_rules() {
    let mut settings = version_2();
    settings.backward_prefetch = Some(said(BackwardPrefetch::NoPrefetch));
    settings.strategy = Some(said(ShardingStrategy::FullShard));
    let plan = compile(&settings, &job(2, 2));
    assert_eq!(plan.dialect, Dialect::Fsdp2);
    assert_eq!(plan.prefetch.backward, BackwardPrefetch::BackwardPre);
    assert_eq!(plan.state_dict.kind, StateDictType::Sharded);
    assert!(plan.use_orig_params);
    assert!(!plan.loading.sync_module_states);
    assert_eq!(plan.reduction.average, Average::BalancedIfFloat16);
    assert_eq!(plan.notes.len(), 2, "{:?}", plan.notes);

    settings.forward_prefetch = said(true);
    assert!(settings.compile(&job(2, 2), None).is_err());
    let mut settings = version_2();
    settings.state_dict_type = Some(said(StateDictType::Local));
    let error = settings.compile(&job(2, 2), None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`FULL_STATE_DICT` or `SHARDED_STATE_DICT`")
    );
}

#[test]
fn version_1_prefetches_as_told() {
    let mut settings = with(ShardingStrategy::FullShard);
    let plan = compile(&settings, &job(2, 2));
    assert_eq!(plan.prefetch.backward, BackwardPrefetch::NoPrefetch);
    assert_eq!(plan.prefetch.limit, PrefetchLimit::Gathers(size(2)));
    assert_eq!(plan.reduction.average, Average::Balanced);
    settings.backward_prefetch = Some(said(BackwardPrefetch::BackwardPost));
    settings.forward_prefetch = said(true);
    settings.limit_all_gathers = said(false);
    let plan = compile(&settings, &job(2, 2));
    assert_eq!(plan.prefetch.backward, BackwardPrefetch::BackwardPost);
    assert!(plan.prefetch.forward);
    assert_eq!(plan.prefetch.limit, PrefetchLimit::Unlimited);
}

#[test]
fn units_are_of_classes_of_a_size_or_the_root() {
    let mut settings = with(ShardingStrategy::FullShard);
    let wrap = |settings: &FsdpSettings| compile(settings, &job(2, 2)).wrap;
    assert_eq!(wrap(&settings), WrapPolicy::Root);
    settings.wrap = said(AutoWrapPolicy::TransformerBasedWrap);
    assert_eq!(wrap(&settings), WrapPolicy::ModelBlocks);
    settings.classes = said(names(" BertLayer,BertEmbeddings , "));
    let classes = ["BertLayer", "BertEmbeddings"].map(str::to_owned).to_vec();
    assert_eq!(wrap(&settings), WrapPolicy::Classes(classes));
    settings.wrap = said(AutoWrapPolicy::SizeBasedWrap);
    assert_eq!(wrap(&settings), WrapPolicy::Root);
    settings.min_num_params = said(2000);
    let min_num_params = 2000;
    let rule = SizeRule::RestAtLeast;
    assert_eq!(
        wrap(&settings),
        WrapPolicy::Size {
            min_num_params,
            rule
        }
    );
    settings.version = said(FsdpVersion::Two);
    let rule = SizeRule::TotalAbove;
    assert_eq!(
        wrap(&settings),
        WrapPolicy::Size {
            min_num_params,
            rule
        }
    );
    settings.ignored = Some(said("embeddings.*".to_owned()));
    let plan = compile(&settings, &job(2, 2));
    assert_eq!(plan.ignored, Ignored::Matching("embeddings.*".to_owned()));
}

#[test]
fn recomputation_can_wait_in_cpu_memory_in_version_2_only() {
    let mut settings = version_2();
    settings.activation_checkpointing = said(true);
    assert_eq!(compile(&settings, &job(2, 2)).recompute, Recompute::Units);
    settings.activation_checkpointing_offload = said(true);
    assert_eq!(
        compile(&settings, &job(2, 2)).recompute,
        Recompute::UnitsOffloaded
    );
    settings.activation_checkpointing = said(false);
    assert!(settings.compile(&job(2, 2), None).is_err());
    settings.activation_checkpointing = said(true);
    settings.version = said(FsdpVersion::One);
    assert!(settings.compile(&job(2, 2), None).is_err());
}

/// The precision table of the specification.
#[test]
fn precision_follows_the_table() {
    let (bf16, fp32) = (Cast::To(FloatType::BFloat16), Cast::To(FloatType::Float32));
    let settings = with(ShardingStrategy::FullShard);
    let none = compile(&settings, &job(2, 2)).precision;
    assert!(!none.is_master_float32);
    assert_eq!(none.master(FloatType::BFloat16), FloatType::BFloat16);
    assert_eq!(none.compute(FloatType::BFloat16), FloatType::BFloat16);

    let mixed = job(2, 2).with_precision(MixedPrecision::Bf16);
    let old = compile(&settings, &mixed).precision;
    assert_eq!(old.master(FloatType::BFloat16), FloatType::Float32);
    assert_eq!(old.compute(FloatType::BFloat16), FloatType::BFloat16);
    assert_eq!(
        (old.parameters, old.reduction, old.buffers),
        (bf16, bf16, bf16)
    );
    assert_eq!((old.outputs, old.autocast), (fp32, bf16));
    assert_eq!(old.inputs, InputCast::Root);
    assert_eq!(old.loss_scaling, LossScaling::Off);

    let new = compile(&version_2(), &mixed).precision;
    assert_eq!(
        (new.parameters, new.reduction, new.outputs),
        (bf16, bf16, bf16)
    );
    assert_eq!((new.buffers, new.autocast), (Cast::AsIs, Cast::AsIs));
    assert_eq!(new.inputs, InputCast::EveryUnit);

    let fp16 = job(2, 2).with_precision(MixedPrecision::Fp16);
    let scaled = compile(&settings, &fp16).precision;
    assert_eq!(scaled.loss_scaling, LossScaling::Accelerator);
    let fp8 = job(2, 2).with_precision(MixedPrecision::Fp8);
    assert_eq!(compile(&settings, &fp8).precision.parameters, bf16);
}

#[test]
fn a_policy_of_its_own_names_three_types() {
    let parse = |text: &str, version| {
        let value = crate::config::json::parse(text).unwrap().to_value();
        PrecisionPolicy::parse(&value, version)
    };
    let map =
        r#"{"param_dtype": "bf16", "reduce_dtype": "float32", "buffer_dtype": "torch.float16"}"#;
    let policy = parse(map, FsdpVersion::One).unwrap();
    assert_eq!(policy.parameters, Cast::To(FloatType::BFloat16));
    assert_eq!(policy.reduction, Cast::To(FloatType::Float32));
    assert_eq!(policy.buffers, Cast::To(FloatType::Float16));
    let error = parse(map, FsdpVersion::Two).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("`param_dtype`, `reduce_dtype`, `output_dtype`"),
        "{error}"
    );
    assert!(parse(r#"{"param_dtype": "int8"}"#, FsdpVersion::One).is_err());
    assert!(parse("3", FsdpVersion::One).is_err());
    let mut settings = with(ShardingStrategy::FullShard);
    settings.policy = Some(said(policy));
    let plan = compile(&settings, &job(2, 2));
    assert_eq!(plan.precision.reduction, Cast::To(FloatType::Float32));
    assert!(!plan.precision.is_master_float32);
    let name = Value::from("bf16");
    let all = PrecisionPolicy::parse(&name, FsdpVersion::Two).unwrap();
    assert_eq!(
        all,
        PrecisionPolicy::all(FloatType::BFloat16, FsdpVersion::Two)
    );
}

#[test]
fn one_reader_of_weights_needs_a_sender() {
    let mut settings = with(ShardingStrategy::FullShard);
    settings.cpu_ram_efficient_loading = said(true);
    let plan = compile(&settings, &job(2, 2));
    assert_eq!(plan.loading.weights, WeightSource::RankZero);
    assert!(plan.loading.sync_module_states);
    assert_eq!(plan.notes.len(), 1);
    settings.sync_module_states = said(true);
    assert!(compile(&settings, &job(2, 2)).notes.is_empty());
}

#[test]
fn a_whole_state_is_for_rank_0() {
    let mut settings = with(ShardingStrategy::FullShard);
    let state = compile(&settings, &job(2, 2)).state_dict;
    assert_eq!(state.kind, StateDictType::Full);
    assert!(state.offload_to_cpu && state.rank0_only);
    settings.state_dict_type = Some(said(StateDictType::Sharded));
    let state = compile(&settings, &job(2, 2)).state_dict;
    assert!(state.offload_to_cpu && !state.rank0_only);
    settings.state_dict_type = Some(said(StateDictType::Full));
    settings.state_dict_offload_to_cpu = Some(said(false));
    settings.state_dict_rank0_only = Some(said(false));
    let state = compile(&settings, &job(2, 2)).state_dict;
    assert!(!state.offload_to_cpu && !state.rank0_only);
}

/// The settings that a config file gives.
fn file(text: &str) -> (Settings, Strategy) {
    let raw = RawFile::parse("fsdp.yaml", text).unwrap();
    let settings = Settings::resolve([ConfigFile::of(raw).unwrap().layer]);
    let strategy = Strategy::of(&settings).unwrap();
    (settings, strategy)
}

/// The plan that is shown before a start, and the one that a rank of two makes of what it is told.
fn both(text: &str) -> (Preview, ParallelPlan) {
    let (settings, strategy) = file(text);
    let facts = JobFacts {
        mixed_precision: settings.sourced(&crate::settings::MIXED_PRECISION).unwrap(),
        ..job(2, 2)
    };
    let told = ShardingSettings::of_launch(&settings, strategy, &facts).unwrap();
    let preview = told.unwrap().preview(&facts).unwrap();
    let place = [
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
    ];
    let overlay = environment(&settings, strategy, true, None);
    let env = Environment::from_pairs(place).with(&overlay);
    let facts = JobFacts::from_environment(&env).unwrap();
    let plan = ParallelPlan::from_environment(&env, &facts, &PrepareFacts::default());
    (preview, plan.unwrap().unwrap())
}

/// The file of the documentation's section on FSDP.
const DOCUMENTED: &str = "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch_policy: BACKWARD_PRE
  fsdp_forward_prefetch: false
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
";

#[test]
fn the_documented_file_is_the_plan_it_means() {
    let (preview, plan) = both(DOCUMENTED);
    assert_eq!(
        preview.to_string(),
        "\
told as        FSDP 1
ranks          2 x shard
sharded        optimizer state, gradients, parameters  (fsdp.yaml:11)
after forward  released, gathered again for the backward pass  (fsdp.yaml:11)
units          modules of class BertLayer  (fsdp.yaml:6, fsdp.yaml:14)
prefetch       backward: before the current gradients, forward: none, at most 2 gathers at once  (fsdp.yaml:7, fsdp.yaml:8)
precision      parameters bfloat16, reduction bfloat16, buffers bfloat16, outputs float32, autocast bfloat16, kept in float32, inputs cast  (fsdp.yaml:18)
loading        rank 0 reads weights and sends them  (fsdp.yaml:9, fsdp.yaml:13)
saved          SHARDED_STATE_DICT  (fsdp.yaml:12)"
    );
    assert!(plan.origins.of(crate::parallel::Part::Wrap).contains(
        &crate::settings::Origin::Variable("FSDP_TRANSFORMER_CLS_TO_WRAP")
    ));
    assert_eq!(without_origins(plan), without_origins(preview.plan));
}

fn without_origins(mut plan: ParallelPlan) -> ParallelPlan {
    plan.origins = crate::parallel::Origins::default();
    plan
}

#[test]
fn a_mesh_of_settings_is_the_plans() {
    let text = "\
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: false
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 1
";
    let (preview, plan) = both(text);
    assert_eq!(preview.plan.mesh, Mesh::replicated(size(2)));
    assert_eq!(without_origins(plan), without_origins(preview.plan));
    let (settings, strategy) = file(text);
    let error = ShardingSettings::of_launch(&settings, strategy, &job(3, 3)).unwrap_err();
    assert!(matches!(error, PlanError::Settings(crate::Error::Mesh(_))));
    assert!(error.hint().is_some());
}

#[test]
fn a_job_that_is_not_sharded_has_no_plan() {
    let env = Environment::from_pairs([("FSDP_SHARDING_STRATEGY", "1")]);
    let plan = ParallelPlan::from_environment(&env, &job(2, 2), &PrepareFacts::default());
    assert_eq!(plan.unwrap(), None);
}

#[test]
fn a_variable_that_cannot_be_read_is_told() {
    let pairs = [
        ("ACCELERATE_USE_FSDP", "true"),
        ("FSDP_AUTO_WRAP_POLICY", "ALL"),
    ];
    let env = Environment::from_pairs(pairs);
    let error = ParallelPlan::from_environment(&env, &job(2, 2), &PrepareFacts::default());
    assert_eq!(
        error.unwrap_err().to_string(),
        "environment variable `FSDP_AUTO_WRAP_POLICY` holds `ALL`: expected one of \
         `TRANSFORMER_BASED_WRAP`, `SIZE_BASED_WRAP`, `NO_WRAP`"
    );
}

proptest! {
    /// Whatever is said, there is a plan that can be shown, or an error that can be.
    #[test]
    fn every_plan_can_be_shown(
        strategy in 0..ShardingStrategy::ALL.len(),
        wrap in 0..AutoWrapPolicy::ALL.len(),
        is_new in any::<bool>(),
        flags in proptest::collection::vec(any::<bool>(), 7),
        world in 1_usize..9,
        local in 1_usize..5,
        precision in 0..MixedPrecision::ALL.len(),
        params in 0_u64..1_000_000,
    ) {
        let settings = FsdpSettings {
            version: said(if is_new { FsdpVersion::Two } else { FsdpVersion::One }),
            strategy: Some(said(ShardingStrategy::ALL[strategy])),
            wrap: said(AutoWrapPolicy::ALL[wrap]),
            min_num_params: said(params),
            forward_prefetch: said(flags[0]),
            offload: said(flags[1]),
            use_orig_params: said(flags[2]),
            sync_module_states: said(flags[3]),
            activation_checkpointing: said(flags[4]),
            activation_checkpointing_offload: said(flags[5]),
            cpu_ram_efficient_loading: said(flags[6]),
            ..FsdpSettings::default()
        };
        let facts = job(world, local.min(world)).with_precision(MixedPrecision::ALL[precision]);
        match settings.compile(&facts, None) {
            Ok(plan) => {
                prop_assert_eq!(plan.mesh.world_size(), facts.world_size);
                let text = plan.to_string();
                prop_assert!(text.contains("the program"), "{}", text);
                let first = text.lines().next().unwrap_or_default();
                let column = first.find("FSDP").unwrap_or_default();
                for line in text.lines() {
                    prop_assert!(line.is_char_boundary(column) && line.len() > column);
                    prop_assert_eq!(&line[column - 2..column], "  ", "{}", text);
                }
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}
