use proptest::prelude::{any, prop_assert, proptest};

use super::{
    files::{SCENARIO_1, SCENARIO_3, STAGE_2, STAGE_3_OFFLOAD, STUDENT, TEACHER, ZERO_PLUS_PLUS},
    *,
};
use crate::{
    Hint as _,
    config::Value,
    parallel::{Average, Clipping, Mesh, NoSync, Sharded, Storage},
};

fn refused(text: &str) -> PlanError {
    plan_of(text, 2).unwrap_err()
}

/// The text of an error and of what caused it.
fn whole(error: &PlanError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    [error.to_string(), cause.unwrap_or_default()].join(": ")
}

#[test]
fn unknown_keys_are_told_together_with_those_they_are_like() {
    let error = refused(
        r#"{
 "zero_optimisation": {"stage": 2},
 "zero_optimization": {"stage": 2, "offload_optimizer": {"devise": "cpu"}},
 "train_batch_sise": 8
}"#,
    );
    assert_eq!(
        whole(&error),
        "cannot understand the config of DeepSpeed: config file `<the program>` has unknown keys: \
         `train_batch_sise` (line 4), `zero_optimisation` (line 2), \
         `zero_optimization.offload_optimizer.devise` (line 3)"
    );
    let hint = error.hint().unwrap();
    for meant in ["`train_batch_size`", "`zero_optimization`", "`device`"] {
        assert!(hint.contains(meant), "{hint}");
    }
}

#[test]
fn values_that_may_not_stand_there_are_told_with_their_line() {
    for (text, words) in [
        (
            "{\"zero_optimization\":\n{\"stage\": 4}}",
            "`<the program>:2`: `zero_optimization.stage`: expected one of `0`, `1`, `2`, `3`, or `auto`",
        ),
        (
            r#"{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "gpu"}}}"#,
            "one of `none`, `cpu`, `nvme`, or `auto`, found the text `gpu`",
        ),
        (
            r#"{"zero_optimization": {"stage": 2, "cpu_offload": true}}"#,
            "expected `offload_optimizer`, which replaced this key",
        ),
        (
            r#"{"zero_optimization": 2}"#,
            "expected keys with values, found the whole number `2`",
        ),
        (
            r#"{"zero_optimization": {"stage": 2}, "train_batch_size": -1}"#,
            "a whole number, at least 0, or `auto`",
        ),
        (
            r#"{"zero_optimization": {"stage": 2}, "fp16": {"enabled": 3}}"#,
            "`true`, `false` or `auto`",
        ),
        (r#"{"zero_optimization": {"stage": 2"#, "EOF"),
        ("[1]", "[1]"),
    ] {
        let error = refused(text);
        assert!(whole(&error).contains(words), "{}", whole(&error));
    }
}

#[test]
fn what_is_no_config_is_refused() {
    let error = refused("nothing at all");
    assert!(matches!(error, PlanError::NoConfig { .. }), "{error}");
    let error = refused("/no/such/file.json");
    assert!(
        whole(&error).contains("does not exist"),
        "{}",
        whole(&error)
    );
    let error = refused("{}");
    assert!(
        matches!(error, PlanError::NoZeroOptimization { .. }),
        "{error}"
    );
    let value = Value::List(Vec::new());
    let list = DeepSpeedSettings::with_config(ConfigSource::Map(value));
    assert!(list.resolve(&precision(MixedPrecision::No)).is_err());
}

#[test]
fn every_auto_that_nothing_resolves_is_told_at_once() {
    let text = r#"{"zero_optimization": {"stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "sub_group_size": "auto"},
        "optimizer": {"type": "AdamW", "params": {"betas": "auto"}}}"#;
    let facts = PrepareFacts {
        hidden_sizes: Vec::new(),
        scheduler: GivenScheduler::Nothing,
        ..facts()
    };
    let error = resolved(text).prepare(&job(2), &facts).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot find out what `auto` is: `zero_optimization.reduce_bucket_size` (<the program>:2) \
         needs the hidden size of the model, which its configuration does not say; \
         `zero_optimization.stage3_prefetch_bucket_size` (<the program>:3) needs the hidden size of \
         the model, which its configuration does not say; `zero_optimization.sub_group_size` (<the \
         program>:4) needs a value: nothing fills it in; `optimizer.params.betas` (<the program>:5) \
         needs a value: nothing fills it in"
    );
    // Without an optimizer nobody needs to know its values.
    let evaluated = PrepareFacts {
        hidden_sizes: vec![8],
        optimizer: GivenOptimizer::Nothing,
        ..facts
    };
    let text = text.replace(r#""sub_group_size": "auto""#, r#""sub_group_size": 5"#);
    assert!(resolved(&text).prepare(&job(2), &evaluated).is_ok());
}

#[test]
fn a_preview_says_what_is_open() {
    let text = r#"{"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"},
        "gradient_clipping": "auto", "train_micro_batch_size_per_gpu": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}"#;
    let (plan, open) = resolved(text).preview(&job(2)).unwrap();
    assert_eq!(
        open,
        [
            "zero_optimization.reduce_bucket_size",
            "train_micro_batch_size_per_gpu",
            "optimizer.params.lr"
        ]
    );
    assert_eq!(plan.reduction.bucket_size, 500_000_000);
    assert_eq!(plan.clipping, Clipping::Norm(1.0));
}

#[test]
fn a_flag_may_say_what_the_file_leaves_out_but_not_something_else() {
    let flag = |text: &str, count| {
        let mut settings = json(text);
        settings.gradient_accumulation_steps = Sourced {
            value: Auto::Exactly(steps(count)),
            origin: Origin::Flag("--gradient_accumulation_steps".to_owned()),
        };
        settings.resolve(&precision(MixedPrecision::No))
    };
    let without = r#"{"zero_optimization": {"stage": 2}}"#;
    let config = flag(without, 5).unwrap();
    assert!(
        config
            .to_string()
            .contains("'gradient_accumulation_steps': 5"),
        "{config}"
    );
    let with = r#"{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 5}"#;
    assert!(flag(with, 5).is_ok());
    let error = flag(with, 6).unwrap_err();
    assert_eq!(
        error.to_string(),
        "this value is also given in the DeepSpeed config `<the program>`: \
         `gradient_accumulation_steps` is 6 (flag `--gradient_accumulation_steps`), \
         `gradient_accumulation_steps` is 5 (<the program>:1)"
    );
    assert!(error.hint().unwrap().contains("`auto`"));
    // Without a word from anybody it is 1, and the sizes of batches come before that.
    assert!(
        resolved(without)
            .to_string()
            .contains("'gradient_accumulation_steps': 1")
    );
    let sizes = r#"{"zero_optimization": {"stage": 2}, "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 8}"#;
    let told = resolved(sizes).prepare(&job(2), &own()).unwrap();
    assert_eq!(told.batch.accumulation.value, 4);
}

#[test]
fn an_offload_that_the_file_leaves_out_is_not_lost() {
    let mut settings = json(r#"{"zero_optimization": {"stage": 3}}"#);
    settings.offload_param_device = Sourced::by_program(crate::settings::OffloadDevice::Cpu);
    let config = settings.resolve(&precision(MixedPrecision::No)).unwrap();
    let plan = config.prepare(&job(2), &own()).unwrap().plan;
    assert_eq!(plan.offload.parameters, Storage::Cpu { is_pinned: true });
}

#[test]
fn the_precision_may_not_contradict_the_file() {
    let text = r#"{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true}}"#;
    let error = json(text)
        .resolve(&precision(MixedPrecision::Bf16))
        .unwrap_err();
    assert!(
        error.to_string().ends_with(
            "`mixed_precision` is bf16 (flag `--mixed_precision`), `fp16.enabled` is true (<the \
             program>:1)"
        ),
        "{error}"
    );
    // Nobody said `no`.
    let config = json(text).resolve(&precision(MixedPrecision::No)).unwrap();
    assert_eq!(config.mixed_precision(), MixedPrecision::Fp16);
    let both = r#"{"zero_optimization": {"stage": 2}, "fp16": {"enabled": true},
        "bf16": {"enabled": true}}"#;
    assert!(json(both).resolve(&precision(MixedPrecision::No)).is_err());
    let auto = r#"{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}"#;
    let config = json(auto).resolve(&precision(MixedPrecision::Fp8)).unwrap();
    assert_eq!(config.mixed_precision(), MixedPrecision::Bf16);
}

#[test]
fn what_needs_a_stage_is_refused_below_it() {
    for zero in [
        r#""stage": 0, "offload_optimizer": {"device": "cpu"}"#,
        r#""stage": 2, "offload_param": {"device": "cpu"}"#,
        r#""stage": 2, "zero_quantized_weights": true"#,
        r#""stage": 1, "zero_quantized_gradients": true"#,
        r#""stage": 2, "zero_hpz_partition_size": 2"#,
        r#""stage": 2, "mics_shard_size": 2"#,
    ] {
        let error = refused(&format!(r#"{{"zero_optimization": {{{zero}}}}}"#));
        assert!(
            matches!(error, PlanError::Settings(crate::Error::Contradiction(_))),
            "{error}"
        );
    }
    let error = refused(
        r#"{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}}"#,
    );
    assert!(
        error.to_string().contains("expected 1 below stage 3"),
        "{error}"
    );
}

#[test]
fn the_rest_of_a_config_is_in_the_plan() {
    let plan = plan_of(
        r#"{"zero_optimization": {"stage": 3, "mics_shard_size": 2, "reduce_bucket_size": 3e2,
            "stage3_param_persistence_threshold": 0,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/fast", "pipeline_read": true,
                "ratio": 0.25, "buffer_count": 6},
            "offload_param": {"device": "nvme", "nvme_path": "/slow", "max_in_cpu": 7}},
            "bf16": {"enabled": true}, "communication_data_type": "fp32",
            "gradient_predivide_factor": 2.0, "gradient_clipping": 0,
            "aio": {"queue_depth": 16}}"#,
        4,
    )
    .unwrap();
    assert_eq!(plan.mesh, Mesh::new(size(2), size(2)));
    assert!(plan.is_hybrid());
    assert_eq!(plan.reduction.bucket_size, 300);
    assert_eq!(plan.reduction.average, Average::Before(2.0));
    assert_eq!(plan.reduction.no_sync, NoSync::Shards);
    assert_eq!(plan.precision.reduction.to_string(), "float32");
    assert_eq!(plan.clipping, Clipping::Never);
    assert_eq!(plan.keep_up_to, 0);
    let disk = |folder: &str| Storage::Disk {
        folder: folder.into(),
    };
    assert_eq!(plan.offload.optimizer_state, disk("/fast"));
    assert_eq!(plan.offload.gradients, disk("/fast"));
    assert_eq!(plan.offload.parameters, disk("/slow"));
    assert_eq!(plan.offload.optimizer_ratio, 0.25);
    let traffic = plan.offload.disk;
    assert_eq!((traffic.optimizer_buffers, traffic.queue_depth), (6, 16));
    assert_eq!(
        (
            traffic.max_in_cpu,
            traffic.reads_ahead,
            traffic.writes_behind
        ),
        (7, true, false)
    );
    let text = plan.to_string();
    assert!(text.contains("0.25 of it on disk, in `/fast`"), "{text}");
    let threshold = plan.origins.of(crate::parallel::Part::AfterForward);
    assert_eq!(threshold.len(), 1, "{threshold:?}");
}

#[test]
fn stage_0_is_data_parallel_and_stage_1_sends_nothing_between_steps() {
    let plan = plan_of(r#"{"zero_optimization": {"stage": 0}}"#, 2).unwrap();
    assert_eq!(
        (plan.sharded, plan.mesh),
        (Sharded::Nothing, Mesh::replicated(size(2)))
    );
    let plan = plan_of(
        r#"{"zero_optimization": {"stage": 1}, "prescale_gradients": true}"#,
        2,
    );
    let plan = plan.unwrap();
    assert_eq!(plan.reduction.no_sync, NoSync::Whole);
    assert_eq!(plan.reduction.average.factors(2, false), (2.0, 1.0));
}

#[test]
fn what_nothing_here_reads_is_told() {
    let text = r#"{"zero_optimization": {"stage": 1}, "flops_profiler": {"enabled": true},
        "tensorboard": {"enabled": false}, "wandb": null, "dump_state": false,
        "data_types": {"grad_accum_dtype": "fp32"}, "checkpoint": {"load_universal": true}}"#;
    assert_eq!(
        resolved(text).notes(),
        [
            "`flops_profiler` has no effect here",
            "`data_types.grad_accum_dtype` has no effect here",
            "`checkpoint.load_universal` has no effect here",
        ]
    );
}

#[test]
fn values_of_a_program_fill_in_or_must_match() {
    let text = r#"{"zero_optimization": {"stage": 2}, "train_batch_size": "auto",
        "gradient_clipping": 0.5, "gradient_accumulation_steps": "8"}"#;
    let mut config = resolved(text);
    let values = [
        ("train_batch_size", Value::Int(64)),
        ("gradient_accumulation_steps", Value::Int(8)),
        ("gradient_clipping", Value::Float(1.0)),
        ("bf16.immediate_grad_update", Value::Bool(true)),
    ];
    let error = config.fill(&values, true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the DeepSpeed config and the program disagree: `gradient_clipping` is 0.5 (<the \
         program>:2), and the program says 1.0"
    );
    assert_eq!(config.autos(), ["train_batch_size"]);
    config.fill(&values, false).unwrap();
    assert_eq!(config.autos(), [] as [&str; 0]);
    assert!(config.to_string().contains("'gradient_clipping': 0.5"));
}

#[test]
fn ms_amp_and_experts_come_from_the_plugin() {
    let mut settings = json(r#"{"zero_optimization": {"stage": 2}}"#);
    settings.msamp = Some(Sourced::by_program(crate::settings::Fp8OptLevel::O2));
    let classes = vec!["MixtralSparseMoeBlock".to_owned()];
    settings.moe_layer_classes = Sourced::by_program(classes.clone());
    let config = settings.resolve(&precision(MixedPrecision::Fp8)).unwrap();
    assert!(
        config
            .to_string()
            .ends_with("'msamp': {'enabled': True, 'opt_level': 'O2'}}")
    );
    let plan = config.prepare(&job(2), &own()).unwrap().plan;
    assert_eq!(plan.leaf_classes, classes);
    settings.config = json(r#"{"zero_optimization": {"stage": 3}}"#).config;
    let error = settings
        .resolve(&precision(MixedPrecision::Fp8))
        .unwrap_err();
    assert!(
        error.to_string().contains("0, 1 or 2 with MS-AMP"),
        "{error}"
    );
}

/// Every key of the specification, each with its default, and the plan that the defaults make.
#[test]
fn every_key_of_the_specification_is_known() {
    let text = r#"{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 16,
        "gradient_accumulation_steps": 1, "gradient_clipping": 1.0, "prescale_gradients": false,
        "gradient_predivide_factor": 1.0, "communication_data_type": null,
        "sparse_gradients": false, "wall_clock_breakdown": false, "memory_breakdown": false,
        "dump_state": false, "data_types": {"grad_accum_dtype": null},
        "zero_allow_untested_optimizer": false, "zero_force_ds_cpu_optimizer": true,
        "checkpoint": {"tag_validation": "Warn", "load_universal": false,
            "use_node_local_storage": false},
        "fp16": {"enabled": false, "auto_cast": false, "loss_scale": 0, "initial_scale_power": 16,
            "loss_scale_window": 1000, "hysteresis": 2, "consecutive_hysteresis": false,
            "min_loss_scale": 1},
        "bf16": {"enabled": false},
        "aio": {"block_size": 1048576, "queue_depth": 8, "single_submit": false,
            "overlap_events": true, "intra_op_parallelism": 1},
        "zero_optimization": {"stage": 3, "contiguous_gradients": true, "reduce_scatter": true,
            "reduce_bucket_size": 5e8, "allgather_partitions": true, "allgather_bucket_size": 5e8,
            "overlap_comm": true, "load_from_fp32_weights": true, "round_robin_gradients": false,
            "ignore_unused_parameters": true, "sub_group_size": 1e9,
            "stage3_prefetch_bucket_size": 5e7, "stage3_param_persistence_threshold": 1e5,
            "stage3_model_persistence_threshold": 9223372036854775807,
            "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
            "stage3_gather_16bit_weights_on_model_save": false, "zero_hpz_partition_size": 1,
            "zero_quantized_weights": false, "zero_quantized_nontrainable_weights": false,
            "zero_quantized_gradients": false, "elastic_checkpoint": false,
            "memory_efficient_linear": true,
            "offload_param": {"device": "none", "nvme_path": null, "buffer_count": 5,
                "buffer_size": 1e8, "max_in_cpu": 1e9, "pin_memory": true},
            "offload_optimizer": {"device": "none", "nvme_path": null, "buffer_count": 4,
                "pin_memory": true, "pipeline_read": false, "pipeline_write": false,
                "fast_init": false, "ratio": 1.0}}}"#;
    let config = resolved(text);
    assert_eq!(config.notes(), [] as [&str; 0]);
    let facts = PrepareFacts {
        accumulation: steps(1),
        ..own()
    };
    let whole = config.prepare(&job(2), &facts).unwrap().plan;
    let plain = r#"{"zero_optimization": {"stage": 3}}"#;
    let mut plain = resolved(plain).prepare(&job(2), &facts).unwrap().plan;
    plain.origins = whole.origins.clone();
    assert_eq!(whole, plain);
}

#[test]
fn a_config_that_accumulates_otherwise_than_the_accelerator_says_so() {
    let text = r#"{"zero_optimization": {"stage": 1}, "gradient_accumulation_steps": 2}"#;
    let plan = plan_of(text, 2).unwrap();
    assert_eq!(
        plan.notes,
        ["gradient accumulation is 2 (<the program>:1), not 4 as the accelerator was told"]
    );
}

/// Values of every kind, few of which fit where they are put.
const VALUES: [&str; 16] = [
    "null",
    "true",
    "-1",
    "0",
    "3",
    "2.5",
    "1e30",
    "9223372036854775807",
    "\"auto\"",
    "\"\"",
    "\"nvme\"",
    "\"4\"",
    "[]",
    "[1, 2]",
    "{}",
    "{\"device\": \"cpu\"}",
];

proptest! {
    /// Whatever stands in a file, there is a plan that can be shown, or an error that can be.
    #[test]
    fn no_config_breaks_anything(
        file in 0_usize..7,
        line in 0_usize..50,
        value in 0..VALUES.len(),
        world in 1_usize..9,
        is_own in any::<bool>(),
    ) {
        let files = [
            STAGE_2, STAGE_3_OFFLOAD, ZERO_PLUS_PLUS, SCENARIO_1, SCENARIO_3, TEACHER, STUDENT,
        ];
        let mut lines: Vec<String> = files[file].lines().map(str::to_owned).collect();
        let line = line % lines.len();
        if let Some((key, old)) = lines[line].clone().split_once(": ") {
            let comma = if old.ends_with(',') { "," } else { "" };
            lines[line] = format!("{key}: {}{comma}", VALUES[value]);
        }
        let facts = if is_own { own() } else { facts() };
        let job = job(world);
        let told = json(&lines.join("\n")).resolve(&precision(MixedPrecision::No));
        let shown = told.and_then(|config| {
            let (preview, _) = config.preview(&job)?;
            let told = config.prepare(&job, &facts)?;
            Ok([preview.to_string(), told.plan.to_string(), told.batch.to_string()].concat())
        });
        match shown {
            Ok(text) => prop_assert!(text.contains("DeepSpeed")),
            Err(error) => prop_assert!(!whole(&error).is_empty() && error.hint().is_none_or(|hint| !hint.is_empty())),
        }
    }
}
