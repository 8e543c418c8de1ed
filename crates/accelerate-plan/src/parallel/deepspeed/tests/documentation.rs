//! The documented files mean what the documentation says.

use super::{
    files::{
        PLUGIN_STAGE_2, PLUGIN_STAGE_3, SCENARIO_1, SCENARIO_3, STAGE_2, STAGE_3_OFFLOAD, STUDENT,
        TEACHER, ZERO_PLUS_PLUS,
    },
    *,
};
use crate::{
    config::RawFile,
    env::Environment,
    launch::{Strategy, environment},
    parallel::{
        Accumulation, AfterForward, Cast, Clipping, Construction, Dialect, FloatType, LossScaling,
        Mesh, Quantised, ScaleRule, Sharded, ShardingSettings, Storage,
    },
    settings::{self, AnyKey, ConfigFile, Layer, Settings},
};

#[test]
fn stage_2_is_the_plan_it_means() {
    let config = json(STAGE_2)
        .resolve(&precision(MixedPrecision::Fp16))
        .unwrap();
    assert_eq!(config.mixed_precision(), MixedPrecision::Fp16);
    let told = config.prepare(&job(2), &facts()).unwrap();
    let plan = &told.plan;
    assert_eq!(plan.dialect, Dialect::DeepSpeed);
    assert_eq!(
        (plan.sharded, plan.mesh),
        (Sharded::Gradients, Mesh::sharded(size(2)))
    );
    assert_eq!(plan.precision.parameters, Cast::To(FloatType::Float16));
    assert!(plan.precision.is_master_float32);
    let rule = LossScaling::Dynamic(ScaleRule::default());
    assert_eq!(plan.precision.loss_scaling, rule);
    assert_eq!(plan.reduction.bucket_size, 768 * 768);
    assert_eq!(plan.clipping, Clipping::Norm(1.0));
    assert_eq!(plan.accumulation, Accumulation::Steps(steps(1)));
    let batch = [
        &told.batch.train,
        &told.batch.micro,
        &told.batch.accumulation,
    ];
    assert_eq!(batch.map(|term| term.value), [32, 16, 1]);
    let optimizer = told.optimizer.unwrap();
    assert_eq!(
        optimizer.kind,
        OptimizerKind::Adam {
            lr: 5e-4,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            bias_correction: true,
            is_decoupled: true,
        }
    );
    let SchedulerKind::WarmupDecay {
        warmup,
        total_num_steps,
    } = told.scheduler.unwrap().kind
    else {
        panic!("expected a schedule that decays");
    };
    // 101 steps of two ranks are 51 of one.
    assert_eq!((total_num_steps, warmup.num_steps), (51, 10));
    assert_eq!((warmup.min_lr, warmup.max_lr), (0.0, Some(5e-4)));
    assert_eq!(told.config.autos(), [] as [&str; 0]);
}

#[test]
fn stage_3_with_offload_is_the_plan_it_means() {
    let config = json(STAGE_3_OFFLOAD)
        .resolve(&precision(MixedPrecision::Fp16))
        .unwrap();
    let plan = config.prepare(&job(2), &facts()).unwrap().plan;
    let cpu = Storage::Cpu { is_pinned: true };
    assert_eq!(plan.sharded, Sharded::Parameters);
    assert_eq!(plan.after_forward, AfterForward::Release);
    assert_eq!(plan.offload.parameters, cpu);
    assert_eq!(plan.offload.optimizer_state, cpu);
    assert_eq!(plan.offload.gradients, cpu);
    assert_eq!(plan.keep_up_to, 7680);
    assert_eq!(plan.reduction.bucket_size, 589_824);
    assert_eq!(plan.loading.construction, Construction::InShards);
    assert!(!plan.state_dict.gathers_16bit_model);
    assert_eq!(
        plan.prefetch.to_string(),
        "backward: before the current gradients, forward: early, 530841 elements ahead, at most \
         1000000000 whole, kept if used again within 1000000000"
    );
}

#[test]
fn zero_plus_plus_is_the_plan_it_means() {
    let plan = plan_of(ZERO_PLUS_PLUS, 16).unwrap();
    assert_eq!(plan.after_forward, AfterForward::ReleaseTo(size(8)));
    assert_eq!(plan.weights, Quantised::Int8);
    assert_eq!(plan.reduction.gradients, Quantised::Int4);
    assert_eq!(plan.mesh, Mesh::sharded(size(16)));
    let error = plan_of(ZERO_PLUS_PLUS, 12).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`zero_hpz_partition_size` is 8 (<the program>:7): expected a divisor of the 12 ranks of the \
         job"
    );
}

/// A config file of the launcher, and what it means for two ranks.
fn launch(yaml: &str) -> (Settings, JobFacts) {
    let raw = RawFile::parse("ds.yaml", yaml).unwrap();
    let settings = Settings::resolve([ConfigFile::of(raw).unwrap().layer]);
    let facts = JobFacts {
        mixed_precision: settings.sourced(&settings::MIXED_PRECISION).unwrap(),
        ..job(2)
    };
    (settings, facts)
}

#[test]
fn the_plugin_of_a_file_is_the_plan_it_means() {
    let (settings, facts) = launch(PLUGIN_STAGE_2);
    let strategy = Strategy::of(&settings).unwrap();
    let told = ShardingSettings::of_launch(&settings, strategy, &facts);
    let preview = told.unwrap().unwrap().preview(&facts).unwrap();
    assert_eq!(
        preview.to_string(),
        "\
told as      DeepSpeed
ranks        2 x shard
sharded      optimizer state, gradients  (ds.yaml:8)
units        the blocks that the model names
precision    parameters float16, reduction float16, buffers float16, kept in float32, inputs cast, loss scaled from 2^16 on  (ds.yaml:15)
loading      each rank reads weights, rank 0 sends its values
saved        a folder as DeepSpeed writes it
clipped      to the global norm 1  (ds.yaml:4)
accumulated  over one batch  (ds.yaml:3)
note         `zero3_init_flag` means something in stage 3 only: it is off in stage 2
found out when a model is prepared: train_batch_size, train_micro_batch_size_per_gpu"
    );
    let (settings, facts) = launch(PLUGIN_STAGE_3);
    let told = DeepSpeedSettings::of_launch(&settings);
    let config = told.resolve(&facts.mixed_precision).unwrap();
    let plan = config.prepare(&facts, &own()).unwrap().plan;
    let cpu = Storage::Cpu { is_pinned: true };
    assert_eq!(
        (&plan.offload.parameters, &plan.offload.optimizer_state),
        (&cpu, &cpu)
    );
    assert!(plan.state_dict.gathers_16bit_model);
    assert_eq!(plan.loading.construction, Construction::InShards);
}

#[test]
fn a_rank_makes_the_plan_that_was_shown() {
    let own = PrepareFacts {
        accumulation: steps(1),
        ..own()
    };
    for yaml in [PLUGIN_STAGE_2, PLUGIN_STAGE_3] {
        let (settings, facts) = launch(yaml);
        let overlay = environment(&settings, Strategy::DeepSpeed, true, None);
        let place = [
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "0"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
        ];
        let env = Environment::from_pairs(place).with(&overlay);
        let told = JobFacts::from_environment(&env).unwrap();
        assert_eq!(told.mixed_precision.value, facts.mixed_precision.value);
        let mut plan = ParallelPlan::from_environment(&env, &told, &own)
            .unwrap()
            .unwrap();
        let shown = DeepSpeedSettings::of_launch(&settings);
        let shown = shown.resolve(&facts.mixed_precision).unwrap();
        let shown = shown.prepare(&facts, &own).unwrap().plan;
        plan.origins = shown.origins.clone();
        assert_eq!(plan, shown);
    }
}

fn file_beside(json: &str, yaml: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ds_config.json");
    std::fs::write(&path, json).unwrap();
    let yaml = yaml.replace("ds_config.json", path.to_str().unwrap());
    (folder, yaml)
}

#[test]
fn the_documented_pairs_of_files_agree_about_the_precision() {
    let yaml = "\
compute_environment: LOCAL_MACHINE
deepspeed_config:
 deepspeed_config_file: ds_config.json
 zero3_init_flag: true
distributed_type: DEEPSPEED
fsdp_config: {}
machine_rank: 0
mixed_precision: fp16
num_machines: 1
num_processes: 2
use_cpu: false
";
    for json in [STAGE_2, STAGE_3_OFFLOAD] {
        let (_folder, yaml) = file_beside(json, yaml);
        let (settings, job) = launch(&yaml);
        let told = DeepSpeedSettings::of_launch(&settings);
        let config = told.resolve(&job.mixed_precision).unwrap();
        assert_eq!(config.mixed_precision(), MixedPrecision::Fp16);
        config.prepare(&job, &facts()).unwrap();
    }
    let (_folder, yaml) = file_beside(STAGE_2, &yaml.replace("fp16", "bf16"));
    let (settings, job) = launch(&yaml);
    let told = DeepSpeedSettings::of_launch(&settings);
    let error = told.resolve(&job.mixed_precision).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`mixed_precision` is bf16 (ds.yaml:8)"),
        "{error}"
    );
}

#[test]
fn scenario_1_tells_every_value_that_is_given_twice() {
    let yaml = "\
deepspeed_config:
  gradient_accumulation_steps: 1
  gradient_clipping: 1.0
  offload_optimizer_device: 'cpu'
  offload_param_device: 'cpu'
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
  deepspeed_config_file: 'ds_config.json'
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 2
";
    let (_folder, yaml) = file_beside(SCENARIO_1, yaml);
    let (settings, job) = launch(&yaml);
    let told = DeepSpeedSettings::of_launch(&settings);
    let error = told.resolve(&job.mixed_precision).unwrap_err();
    let PlanError::Ambiguous { keys, .. } = &error else {
        panic!("expected an ambiguity, found {error}");
    };
    let names: Vec<_> = keys.iter().map(|key| key.name).collect();
    assert_eq!(
        names,
        [
            "gradient_accumulation_steps",
            "gradient_clipping",
            "zero_stage",
            "offload_optimizer_device",
            "offload_param_device",
            "zero3_save_16bit_model",
        ]
    );
    assert!(
        error.to_string().contains(
            "`gradient_accumulation_steps` is 1 (ds.yaml:2), `gradient_accumulation_steps` is 10 ("
        ),
        "{error}"
    );
    // A rank is told the same by the launcher.
    let overlay = environment(&settings, Strategy::DeepSpeed, true, None);
    let env = Environment::default().with(&overlay);
    let of_rank = DeepSpeedSettings::from_environment(&env).unwrap();
    let error = of_rank.resolve(&job.mixed_precision).unwrap_err();
    assert!(matches!(error, PlanError::Ambiguous { keys, .. } if keys.len() == 6));
}

#[test]
fn scenario_2_prints_what_the_documentation_prints() {
    let config = resolved(SCENARIO_1);
    assert_eq!(config.mixed_precision(), MixedPrecision::Bf16);
    assert_eq!(
        config.to_string(),
        "{'bf16': {'enabled': True}, 'zero_optimization': {'stage': 3, \
         'stage3_gather_16bit_weights_on_model_save': False, 'offload_optimizer': {'device': 'none'}, \
         'offload_param': {'device': 'none'}}, 'gradient_clipping': 1.0, 'train_batch_size': 'auto', \
         'train_micro_batch_size_per_gpu': 'auto', 'gradient_accumulation_steps': 10, \
         'steps_per_print': inf, 'fp16': {'enabled': False}}"
    );
}

#[test]
fn scenario_3_takes_flags_where_the_file_says_auto() {
    let mut flags = Layer::default();
    let given: [(&dyn AnyKey, &str); 6] = [
        (&settings::ZERO_STAGE, "3"),
        (&settings::GRADIENT_ACCUMULATION_STEPS, "5"),
        (&settings::GRADIENT_CLIPPING, "1.0"),
        (&settings::OFFLOAD_PARAM_DEVICE, "cpu"),
        (&settings::OFFLOAD_OPTIMIZER_DEVICE, "nvme"),
        (&settings::ZERO3_SAVE_16BIT_MODEL, "true"),
    ];
    for (key, text) in given {
        let origin = Origin::Flag(format!("--{}", key.entry().name));
        flags.give(key, &text.into(), origin).unwrap();
    }
    let mut told = DeepSpeedSettings::of_launch(&Settings::resolve([flags]));
    told.config = json(SCENARIO_3).config;
    let config = told.resolve(&precision(MixedPrecision::Fp16)).unwrap();
    assert_eq!(
        config.to_string(),
        "{'bf16': {'enabled': False}, 'zero_optimization': {'stage': 3, \
         'stage3_gather_16bit_weights_on_model_save': True, 'offload_optimizer': {'device': 'nvme'}, \
         'offload_param': {'device': 'cpu'}}, 'gradient_clipping': 1.0, 'train_batch_size': 'auto', \
         'train_micro_batch_size_per_gpu': 'auto', 'gradient_accumulation_steps': 5, \
         'steps_per_print': inf, 'fp16': {'enabled': True, 'auto_cast': True}}"
    );
    let error = config.prepare(&job(4), &own()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`zero_optimization.offload_optimizer` is `nvme` (flag `--offload_optimizer_device`), but \
         `offload_optimizer_nvme_path` names no folder"
    );
    told.offload_optimizer_nvme_path = Some(Sourced::by_program("/nvme".to_owned()));
    let config = told.resolve(&precision(MixedPrecision::Fp16)).unwrap();
    let plan = config.prepare(&job(4), &own()).unwrap().plan;
    let folder = "/nvme".into();
    assert_eq!(plan.offload.optimizer_state, Storage::Disk { folder });
}

#[test]
fn teacher_and_student_have_configs_of_their_own() {
    let bf16 = precision(MixedPrecision::Bf16);
    let student = json(STUDENT).resolve(&bf16).unwrap();
    let teacher = json(TEACHER).resolve(&bf16).unwrap();
    let both = [("student", student), ("teacher", teacher)];
    let both = both.map(|(name, config)| (name.to_owned(), config));
    let mut plugins = DeepSpeedPlugins::new(both).unwrap();
    let (name, active) = plugins.active().unwrap();
    assert_eq!((name, active.stage()), ("student", 2));
    let told = active.prepare(&job(2), &facts()).unwrap();
    assert_eq!(
        told.plan.offload.optimizer_state,
        Storage::Cpu { is_pinned: true }
    );
    assert_eq!(told.plan.offload.parameters, Storage::Device);

    plugins.select("teacher").unwrap();
    let (name, active) = plugins.active().unwrap();
    assert_eq!((name, active.stage()), ("teacher", 3));
    // It is only evaluated: nothing but the model is prepared.
    let alone = PrepareFacts {
        hidden_sizes: vec![64, 768],
        ..PrepareFacts::default()
    };
    let told = active.prepare(&job(2), &alone).unwrap();
    assert_eq!(told.plan.keep_up_to, 7680);
    assert_eq!(told.batch.micro.value, 1);
    assert_eq!(told.roles.optimizer, OptimizerRole::Nobody);

    let error = plugins.select("techer").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no DeepSpeed plugin is called `techer`: there are `student`, `teacher`"
    );
    assert_eq!(
        crate::Hint::hint(&error).as_deref(),
        Some("did you mean `teacher`?")
    );
    assert!(plugins.get("student").is_ok() && plugins.get("nobody").is_err());
    assert!(DeepSpeedPlugins::new([]).is_err());
}

#[test]
fn a_config_may_come_as_base64_and_from_a_file_with_a_comma_too_many() {
    // {"zero_optimization": {"stage": 1}}
    let text = "eyJ6ZXJvX29wdGltaXphdGlvbiI6IHsic3RhZ2UiOiAxfX0=";
    assert_eq!(resolved(text).stage(), 1);
    let (folder, _) = file_beside(TEACHER, "");
    let path = folder.path().join("ds_config.json");
    let config = resolved(path.to_str().unwrap());
    assert_eq!(config.stage(), 3);
    let Origin::File { path: found, line } = config.origin("zero_optimization.stage") else {
        panic!("expected a line of the file");
    };
    assert_eq!((found.as_path(), line), (path.as_path(), 6));
}
