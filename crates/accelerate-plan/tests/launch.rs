//! What a launch plan tells each process.
#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

use std::{
    num::{NonZeroU16, NonZeroUsize},
    sync::Arc,
};

use accelerate_plan::{
    Error, Hint as _,
    config::Value,
    env::{EnvOverlay, Environment},
    launch::{
        self, Found, LaunchPlan, Layout, Nodes, Program, Restarts, Role, Strategy, Threads, check,
        cpu, environment,
    },
    settings::{self, AnyKey, Layer, Origin, Settings, Sourced},
    topology::{Rendezvous, Topology},
};

fn size(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

fn plan(processes: usize) -> LaunchPlan {
    let mut shared = EnvOverlay::new();
    shared.set_text("ACCELERATE_MIXED_PRECISION", "bf16".to_owned());
    LaunchPlan {
        program: Program {
            name: "train".to_owned(),
            executable: "train".into(),
            arguments: vec!["--epochs".into()],
        },
        nodes: Nodes::one(size(processes)),
        rendezvous: Rendezvous::local(NonZeroU16::new(4000).unwrap()),
        cpu: true,
        shared,
        threads: Threads::share(size(8), size(processes)),
        role: Role::of_all("trainer", &Nodes::one(size(processes))),
        store_is_served: false,
        run_id: "none".to_owned(),
        restarts: Restarts {
            count: 1,
            allowed: 3,
        },
    }
}

fn flags(pairs: &[(&dyn AnyKey, &str)]) -> Layer {
    let mut layer = Layer::default();
    for (key, text) in pairs {
        let origin = Origin::Flag(format!("--{}", key.entry().name));
        layer.give(*key, &Value::from(*text), origin).unwrap();
    }
    layer
}

fn file(pairs: &[(&dyn AnyKey, &str)]) -> Layer {
    let mut layer = Layer::default();
    let path = Arc::new("job.yaml".into());
    for (index, (key, text)) in pairs.iter().enumerate() {
        let origin = Origin::File {
            path: Arc::clone(&path),
            line: index + 1,
        };
        layer.give(*key, &Value::from(*text), origin).unwrap();
    }
    layer
}

fn by_flags(pairs: &[(&dyn AnyKey, &str)]) -> Settings {
    Settings::resolve([flags(pairs)])
}

#[test]
fn every_rank_gets_the_whole_protocol() {
    let ranks = plan(2).ranks().unwrap();
    let pairs: Vec<_> = ranks[1].overlay.iter().collect();
    let expected = [
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "4000"),
        ("GROUP_RANK", "0"),
        ("GROUP_WORLD_SIZE", "1"),
        ("ROLE_NAME", "trainer"),
        ("ROLE_RANK", "1"),
        ("ROLE_WORLD_SIZE", "2"),
        ("TORCHELASTIC_USE_AGENT_STORE", "False"),
        ("TORCHELASTIC_RESTART_COUNT", "1"),
        ("TORCHELASTIC_MAX_RESTARTS", "3"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("ACCELERATE_MIXED_PRECISION", "bf16"),
        ("OMP_NUM_THREADS", "4"),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn a_child_reads_the_topology_that_was_planned() {
    for rank in plan(3).ranks().unwrap() {
        let child = Environment::default().with(&rank.overlay);
        assert_eq!(Topology::read(&child), Ok(Some(rank.topology)));
    }
}

#[test]
fn a_single_process_is_told_nothing_about_ranks() {
    let ranks = plan(1).ranks().unwrap();
    assert_eq!(
        Topology::read(&Environment::default().with(&ranks[0].overlay)),
        Ok(None)
    );
    assert_eq!(ranks[0].overlay.get("OMP_NUM_THREADS"), Some("8"));
}

#[test]
fn cores_are_shared_out_with_at_least_one_each() {
    let share = |cores, processes| match Threads::share(size(cores), size(processes)) {
        Threads::Shared { per_process, .. } => per_process.get(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [share(2, 1), share(2, 2), share(2, 4), share(7, 2)],
        [2, 1, 1, 3]
    );
}

#[test]
fn what_is_not_said_is_left_to_the_process() {
    let quiet = LaunchPlan {
        cpu: false,
        shared: EnvOverlay::new(),
        threads: Threads::Inherited,
        ..plan(1)
    };
    let ranks = quiet.ranks().unwrap();
    assert!(ranks[0].overlay.is_empty());
}

#[test]
fn nodes_count_ranks_on_even_if_they_differ() {
    let counts = vec![size(1), size(2), size(3)];
    let nodes = Nodes::new(counts.clone(), 2).unwrap();
    let third = LaunchPlan { nodes, ..plan(1) };
    let ranks = third.ranks().unwrap();
    let places: Vec<_> = ranks.iter().map(|rank| rank.topology.rank()).collect();
    assert_eq!(places, [3, 4, 5]);
    assert_eq!(ranks[0].overlay.get("WORLD_SIZE"), Some("6"));
    assert_eq!(ranks[0].overlay.get("LOCAL_WORLD_SIZE"), Some("3"));
    assert_eq!(Nodes::new(counts, 3), None);
}

#[test]
fn a_plan_prints_itself() {
    let expected = "program: train --epochs\nprocesses: 2\nrendezvous: 127.0.0.1:4000\n\
                    device: cpu\nthreads per process: 4 (8 usable cores)";
    assert_eq!(plan(2).to_string(), expected);
}

#[test]
fn the_strategy_is_that_of_the_nearest_source() {
    let from_file = file(&[(&settings::DISTRIBUTED_TYPE, "FSDP")]);
    let of = |layers: Vec<Layer>| Strategy::of(&Settings::resolve(layers));
    assert_eq!(of(vec![]), Ok(Strategy::Plain));
    assert_eq!(of(vec![from_file.clone()]), Ok(Strategy::Fsdp));
    let multi_gpu = flags(&[(&settings::MULTI_GPU, "true")]);
    assert_eq!(
        of(vec![multi_gpu.clone(), from_file.clone()]),
        Ok(Strategy::Plain)
    );
    let on_cpu = flags(&[(&settings::CPU, "true")]);
    assert_eq!(of(vec![on_cpu.clone(), from_file]), Ok(Strategy::Fsdp));
    let both = flags(&[(&settings::CPU, "true"), (&settings::USE_DEEPSPEED, "true")]);
    assert_eq!(
        of(vec![both]).unwrap_err().to_string(),
        "flag `--cpu` and flag `--use_deepspeed` exclude each other"
    );
    let sagemaker = file(&[(&settings::COMPUTE_ENVIRONMENT, "AMAZON_SAGEMAKER")]);
    assert_eq!(of(vec![sagemaker]), Ok(Strategy::SageMaker));
}

#[test]
fn the_cpu_is_used_if_flag_file_or_kind_of_job_say_so() {
    let of = |layers: Vec<Layer>| {
        let chosen = cpu(&Settings::resolve(layers));
        (chosen.value, chosen.origin.to_string())
    };
    let multi_cpu = file(&[(&settings::DISTRIBUTED_TYPE, "MULTI_CPU")]);
    let use_cpu = file(&[(&settings::USE_CPU, "true")]);
    let multi_gpu = flags(&[(&settings::MULTI_GPU, "true")]);
    assert_eq!(of(vec![]), (false, "default".to_owned()));
    assert_eq!(of(vec![multi_cpu.clone()]), (true, "job.yaml:1".to_owned()));
    assert_eq!(of(vec![use_cpu.clone()]), (true, "job.yaml:1".to_owned()));
    assert!(
        !of(vec![multi_gpu.clone(), use_cpu]).0,
        "a flag beats a file"
    );
    assert!(!of(vec![multi_gpu, multi_cpu]).0, "a flag beats a file");
}

fn layout(settings: &Settings, devices: usize) -> accelerate_plan::Result<Layout> {
    Layout::of(settings, cpu(settings).value, Found { devices })
}

#[test]
fn processes_are_one_per_device_unless_someone_says_how_many() {
    let local = |settings: &Settings, devices| layout(settings, devices).unwrap().local.get();
    assert_eq!(local(&by_flags(&[]), 0), 1);
    assert_eq!(local(&by_flags(&[]), 4), 4);
    assert_eq!(local(&by_flags(&[(&settings::CPU, "true")]), 4), 1);
    assert_eq!(local(&by_flags(&[(&settings::NUM_PROCESSES, "3")]), 4), 3);
    let no = Settings::resolve([file(&[(&settings::DISTRIBUTED_TYPE, "NO")])]);
    assert_eq!(local(&no, 4), 1);
    let several = Settings::resolve([file(&[(&settings::DISTRIBUTED_TYPE, "MULTI_GPU")])]);
    assert_eq!(local(&several, 2), 2);
    assert_eq!(
        layout(&several, 0).unwrap_err().to_string(),
        "`num_processes` is not known: several processes are asked for, but not how many \
         (job.yaml:1)"
    );
}

#[test]
fn a_total_is_shared_by_the_machines_without_losing_one() {
    let local = |rank: &str| {
        let settings = by_flags(&[
            (&settings::NUM_PROCESSES, "5"),
            (&settings::NUM_MACHINES, "2"),
            (&settings::MACHINE_RANK, rank),
        ]);
        layout(&settings, 0).unwrap().local.get()
    };
    assert_eq!([local("0"), local("1")], [3, 2]);
}

#[test]
fn numbers_that_exclude_each_other_are_named_with_their_sources() {
    let error =
        |pairs: &[(&dyn AnyKey, &str)]| layout(&by_flags(pairs), 0).unwrap_err().to_string();
    assert_eq!(
        error(&[
            (&settings::NUM_MACHINES, "2"),
            (&settings::MACHINE_RANK, "2")
        ]),
        "`machine_rank` is `2` (flag `--machine_rank`): expected below `num_machines`, which is \
         `2` (flag `--num_machines`)"
    );
    assert_eq!(
        error(&[
            (&settings::NUM_PROCESSES, "1"),
            (&settings::NUM_MACHINES, "2")
        ]),
        "`num_processes` is `1` (flag `--num_processes`): expected at least `num_machines`, which \
         is `2` (flag `--num_machines`)"
    );
    assert_eq!(
        error(&[
            (&settings::NUM_PROCESSES, "3"),
            (&settings::NUM_PROCESSES_PER_MACHINE, "2")
        ]),
        "`num_processes_per_machine` is `2` (flag `--num_processes_per_machine`): expected a part \
         of `num_processes`, which is `3` (flag `--num_processes`)"
    );
}

#[test]
fn contradictions_are_refused() {
    let refused = |pairs: &[(&dyn AnyKey, &str)]| {
        let settings = by_flags(pairs);
        let strategy = Strategy::of(&settings).unwrap();
        matches!(check(&settings, strategy), Err(Error::Contradiction(_)))
    };
    use settings::*;
    assert!(refused(&[(&MULTI_GPU, "true"), (&NUM_PROCESSES, "1")]));
    assert!(refused(&[(&MULTI_GPU, "true"), (&GPU_IDS, "0")]));
    assert!(!refused(&[(&MULTI_GPU, "true"), (&GPU_IDS, "0,1")]));
    assert!(!refused(&[(&GPU_IDS, "0")]));
    assert!(refused(&[(&USE_PARALLELISM_CONFIG, "true")]));
    assert!(
        refused(&[(&USE_PARALLELISM_CONFIG, "true"), (&USE_FSDP, "true")]),
        "version 1"
    );
    assert!(!refused(&[
        (&USE_PARALLELISM_CONFIG, "true"),
        (&USE_FSDP, "true"),
        (&FSDP_VERSION, "2")
    ]));
    assert!(refused(&[
        (&USE_FSDP, "true"),
        (&FSDP_SYNC_MODULE_STATES, "false")
    ]));
    assert!(!refused(&[
        (&USE_FSDP, "true"),
        (&FSDP_SYNC_MODULE_STATES, "false"),
        (&FSDP_CPU_RAM_EFFICIENT_LOADING, "no")
    ]));
    let offload = |version: &'static str, checkpoints: &'static str| {
        refused(&[
            (&USE_FSDP, "true"),
            (&FSDP_VERSION, version),
            (&FSDP_ACTIVATION_CHECKPOINTING, checkpoints),
            (&FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD, "true"),
        ])
    };
    assert!(!offload("2", "true"));
    assert!(offload("2", "false"));
    assert!(offload("1", "true"));
    assert!(refused(&[
        (&DEEPSPEED_INCLUSION_FILTER, "a"),
        (&DEEPSPEED_EXCLUSION_FILTER, "b")
    ]));
}

fn told(settings: &Settings) -> EnvOverlay {
    let strategy = Strategy::of(settings).unwrap();
    environment(
        settings,
        strategy,
        cpu(settings).value,
        Some("CUDA_VISIBLE_DEVICES"),
    )
}

#[test]
fn every_process_is_told_precision_and_compilation() {
    let pairs: Vec<_> = told(&by_flags(&[]))
        .iter()
        .map(|(name, text)| format!("{name}={text}"))
        .collect();
    assert_eq!(
        pairs,
        [
            "ACCELERATE_DYNAMO_BACKEND=NO",
            "ACCELERATE_DYNAMO_MODE=default",
            "ACCELERATE_DYNAMO_USE_FULLGRAPH=False",
            "ACCELERATE_DYNAMO_USE_DYNAMIC=False",
            "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=False",
            "ACCELERATE_MIXED_PRECISION=no",
        ]
    );
}

#[test]
fn a_strategy_under_the_newer_name_is_not_lost() {
    use settings::*;
    let newer: (&dyn AnyKey, &str) = (&FSDP_RESHARD_AFTER_FORWARD, "SHARD_GRAD_OP");
    let fsdp: (&dyn AnyKey, &str) = (&USE_FSDP, "true");
    let strategy = |pairs: &[(&dyn AnyKey, &str)]| {
        told(&by_flags(pairs))
            .get("FSDP_SHARDING_STRATEGY")
            .map(str::to_owned)
    };
    assert_eq!(strategy(&[fsdp]).as_deref(), Some("FULL_SHARD"));
    assert_eq!(strategy(&[fsdp, newer]).as_deref(), Some("SHARD_GRAD_OP"));
    let older: (&dyn AnyKey, &str) = (&FSDP_SHARDING_STRATEGY, "NO_SHARD");
    assert_eq!(strategy(&[fsdp, newer, older]).as_deref(), Some("NO_SHARD"));
}

#[test]
fn deepspeed_learns_which_fields_the_file_gave() {
    use settings::*;
    let from_file = file(&[
        (&DISTRIBUTED_TYPE, "DEEPSPEED"),
        (&ZERO_STAGE, "3"),
        (&GRADIENT_CLIPPING, "1.0"),
        (&OFFLOAD_PARAM_NVME_PATH, "/nvme"),
        (&MIXED_PRECISION, "fp16"),
    ]);
    let by_flag = flags(&[(&ZERO_STAGE, "2")]);
    let overlay = told(&Settings::resolve([by_flag, from_file]));
    assert_eq!(
        overlay.get("ACCELERATE_CONFIG_DS_FIELDS"),
        Some("gradient_clipping,offload_param_nvme_path,mixed_precision")
    );
    assert_eq!(overlay.get("ACCELERATE_DEEPSPEED_ZERO_STAGE"), Some("2"));
    assert_eq!(overlay.get("ACCELERATE_GRADIENT_CLIPPING"), Some("1.0"));
    assert_eq!(
        overlay.get("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH"),
        Some("/nvme")
    );
    assert_eq!(overlay.get("ACCELERATE_DEEPSPEED_ZERO3_INIT"), None);
}

#[test]
fn the_mesh_is_told_as_far_as_it_is_used() {
    use settings::*;
    let mut pairs: Vec<(&dyn AnyKey, &str)> = vec![
        (&USE_FSDP, "true"),
        (&FSDP_VERSION, "2"),
        (&USE_PARALLELISM_CONFIG, "true"),
        (&PARALLELISM_TP_SIZE, "2"),
    ];
    let overlay = told(&by_flags(&pairs));
    assert_eq!(
        overlay.get("ACCELERATE_USE_PARALLELISM_CONFIG"),
        Some("true")
    );
    assert_eq!(overlay.get("PARALLELISM_CONFIG_TP_SIZE"), Some("2"));
    assert_eq!(overlay.get("PARALLELISM_CONFIG_CP_BACKEND"), Some("torch"));
    assert_eq!(overlay.get("PARALLELISM_CONFIG_CP_COMM_STRATEGY"), None);
    pairs.push((&PARALLELISM_CP_SIZE, "2"));
    let overlay = told(&by_flags(&pairs));
    assert_eq!(
        overlay.get("PARALLELISM_CONFIG_CP_COMM_STRATEGY"),
        Some("allgather")
    );
}

#[test]
fn chosen_devices_reach_the_processes_and_all_means_nothing() {
    use settings::*;
    let visible = |ids| {
        told(&by_flags(&[(&GPU_IDS, ids)]))
            .get("CUDA_VISIBLE_DEVICES")
            .map(str::to_owned)
    };
    assert_eq!(visible("1,3").as_deref(), Some("1,3"));
    assert_eq!(visible("all"), None);
}

#[test]
fn the_cpu_takes_the_place_of_tpus_and_may_stand_beside_megatron() {
    let of = |layers: Vec<Layer>| Strategy::of(&Settings::resolve(layers));
    let on_cpu = flags(&[(&settings::CPU, "true")]);
    let xla = file(&[(&settings::DISTRIBUTED_TYPE, "XLA")]);
    assert_eq!(of(vec![xla.clone()]), Ok(Strategy::Tpu));
    assert_eq!(of(vec![on_cpu, xla]), Ok(Strategy::Plain));
    let megatron: (&dyn AnyKey, &str) = (&settings::USE_MEGATRON_LM, "true");
    for device in [&settings::CPU, &settings::MULTI_GPU] {
        let both = flags(&[(device, "true"), megatron]);
        assert_eq!(of(vec![both]), Ok(Strategy::MegatronLm));
    }
    let two = flags(&[(&settings::USE_FSDP, "true"), megatron]);
    assert!(matches!(of(vec![two]), Err(Error::Exclusive { .. })));
}

fn said_of_unused(layers: Vec<Layer>) -> Vec<String> {
    let settings = Settings::resolve(layers);
    let strategy = Strategy::of(&settings).unwrap();
    let unused = launch::unused(&settings, strategy).into_iter();
    unused
        .map(|unused| format!("{} ({}): {}", unused.name, unused.origin, unused.why))
        .collect()
}

#[test]
fn a_group_whose_switch_is_off_has_no_effect() {
    for (key, value, switch) in [
        (&settings::ZERO_STAGE as &dyn AnyKey, "2", "--use_deepspeed"),
        (&settings::FSDP_VERSION, "2", "--use_fsdp"),
        (&settings::MEGATRON_LM_TP_DEGREE, "2", "--use_megatron_lm"),
        (&settings::FP8_MARGIN, "1", "--mixed_precision fp8"),
        (
            &settings::PARALLELISM_TP_SIZE,
            "2",
            "--use_parallelism_config",
        ),
    ] {
        let name = key.entry().name;
        assert_eq!(
            said_of_unused(vec![flags(&[(key, value)])]),
            [format!("{name} (flag `--{name}`): without `{switch}`")]
        );
    }
    let steps = flags(&[(&settings::GRADIENT_ACCUMULATION_STEPS, "4")]);
    assert!(said_of_unused(vec![steps]).is_empty());
    let on = flags(&[
        (&settings::USE_DEEPSPEED, "true"),
        (&settings::ZERO_STAGE, "2"),
        (&settings::MIXED_PRECISION, "fp8"),
        (&settings::FP8_MARGIN, "1"),
    ]);
    assert!(said_of_unused(vec![on]).is_empty());
    // A section of a file that is about another kind of job.
    let other = file(&[
        (&settings::DISTRIBUTED_TYPE, "MULTI_GPU"),
        (&settings::FSDP_VERSION, "2"),
    ]);
    assert_eq!(
        said_of_unused(vec![other]),
        ["fsdp_version (job.yaml:2): without `--use_fsdp`"]
    );
}

#[test]
fn what_nothing_reads_is_told_of_flags_and_not_of_files() {
    let pairs: [(&dyn AnyKey, &str); 2] = [
        (&settings::SAME_NETWORK, "true"),
        (&settings::MONITOR_INTERVAL, "2"),
    ];
    assert_eq!(
        said_of_unused(vec![flags(&pairs)]),
        [
            "same_network (flag `--same_network`): machines find each other wherever the address \
             leads",
            "monitor_interval (flag `--monitor_interval`): ends are noticed at once"
        ]
    );
    assert!(said_of_unused(vec![file(&pairs)]).is_empty());
}

#[test]
fn a_mesh_has_a_place_for_every_process() {
    let mesh = [
        (&settings::USE_PARALLELISM_CONFIG as &dyn AnyKey, "true"),
        (&settings::PARALLELISM_DP_SHARD_SIZE, "2"),
        (&settings::PARALLELISM_TP_SIZE, "3"),
    ];
    let check = |settings: &Settings, count| {
        let origin = Origin::Flag("--num_processes".to_owned());
        let value = size(count);
        launch::check_mesh(settings, &Sourced { value, origin })
    };
    let settings = by_flags(&mesh);
    assert_eq!(check(&settings, 6), Ok(()));
    let error = check(&settings, 8).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`parallelism_config_dp_shard_size` (2, flag `--parallelism_config_dp_shard_size`) x \
         `parallelism_config_tp_size` (3, flag `--parallelism_config_tp_size`) makes 6 processes, \
         but `num_processes` is 8 (flag `--num_processes`)"
    );
    assert_eq!(
        error.hint().unwrap(),
        "choose sizes whose product is 8, or give `--num_processes 6`"
    );
    assert_eq!(check(&by_flags(&mesh[1..]), 8), Ok(()), "no mesh");
    assert_eq!(check(&by_flags(&mesh[..1]), 8), Ok(()), "all sizes are 1");
    let by_deepspeed = by_flags(&[mesh[0], (&settings::PARALLELISM_SP_SIZE, "2")]);
    assert_eq!(check(&by_deepspeed, 8), Ok(()));
}

#[test]
fn a_mesh_of_a_file_needs_version_2_of_fsdp_too() {
    let check = |pairs: &[(&dyn AnyKey, &str)]| {
        let settings = Settings::resolve([file(pairs)]);
        check(&settings, Strategy::of(&settings).unwrap())
    };
    let size: (&dyn AnyKey, &str) = (&settings::PARALLELISM_TP_SIZE, "2");
    let fsdp: (&dyn AnyKey, &str) = (&settings::DISTRIBUTED_TYPE, "FSDP");
    assert_eq!(
        check(&[size, fsdp]).unwrap_err().to_string(),
        "`parallelism_config_tp_size` is `2` (job.yaml:1): expected together with version 2 of \
         FSDP, which is `1` (default)"
    );
    assert_eq!(check(&[size, fsdp, (&settings::FSDP_VERSION, "2")]), Ok(()));
    assert_eq!(check(&[size]), Ok(()), "copies of the model need no FSDP");
    let megatron: (&dyn AnyKey, &str) = (&settings::DISTRIBUTED_TYPE, "MEGATRON_LM");
    assert!(check(&[size, megatron]).is_err());
}

/// A text that is allowed for a setting and is not its default.
fn sample(key: &dyn AnyKey) -> &'static str {
    let entry = key.entry();
    let is_other = |text: &&&str| Some(**text) != entry.default;
    if let Some(choice) = entry.choices.iter().rev().find(is_other) {
        return choice;
    }
    match entry.kind {
        "flag" if entry.default == Some("true") => "false",
        "flag" => "true",
        "flag or strategy" => "SHARD_GRAD_OP",
        "text" => "some/text,more",
        _ => "7",
    }
}

/// Each flag of the documentation about sharding is there and reaches the processes, but for those
/// that are about which machines start them.
#[test]
fn every_flag_about_sharding_reaches_the_processes() {
    let documented = [
        "deepspeed_config_file",
        "zero_stage",
        "offload_optimizer_device",
        "offload_param_device",
        "offload_optimizer_nvme_path",
        "offload_param_nvme_path",
        "gradient_accumulation_steps",
        "gradient_clipping",
        "zero3_init_flag",
        "zero3_save_16bit_model",
        "deepspeed_hostfile",
        "deepspeed_exclusion_filter",
        "deepspeed_inclusion_filter",
        "deepspeed_multinode_launcher",
        "deepspeed_moe_layer_cls_names",
        "fsdp_offload_params",
        "fsdp_min_num_params",
        "fsdp_sharding_strategy",
        "fsdp_auto_wrap_policy",
        "fsdp_transformer_layer_cls_to_wrap",
        "fsdp_backward_prefetch_policy",
        "fsdp_state_dict_type",
        "fsdp_forward_prefetch",
        "fsdp_use_orig_params",
        "fsdp_cpu_ram_efficient_loading",
        "fsdp_sync_module_states",
        "fsdp_activation_checkpointing",
        "fsdp_version",
        "fsdp_reshard_after_forward",
    ];
    let for_the_launcher = [
        "deepspeed_hostfile",
        "deepspeed_exclusion_filter",
        "deepspeed_inclusion_filter",
        "deepspeed_multinode_launcher",
    ];
    for name in documented {
        let is_it =
            |entry: &settings::KeyEntry| entry.name == name || entry.aliases.contains(&name);
        let key = settings::TABLE.iter().find(|key| is_it(key.entry()));
        let key = *key.unwrap_or_else(|| panic!("no setting `{name}`"));
        let text = sample(key);
        let layer = flags(&[(key, text)]);
        let strategy = match key.entry().section {
            settings::Section::Fsdp => Strategy::Fsdp,
            _ => Strategy::DeepSpeed,
        };
        let overlay = environment(&Settings::resolve([layer.clone()]), strategy, true, None);
        let Some(variable) = key.entry().variable else {
            assert!(for_the_launcher.contains(&name), "{name}");
            continue;
        };
        // What a process reads there is what was given.
        let env = Environment::default().with(&overlay);
        let read = Layer::from_env(&env).unwrap();
        let given = layer.get(key.entry().name).unwrap();
        let read = read.get(key.entry().name);
        assert_eq!(
            read.map(|read| &read.value),
            Some(&given.value),
            "{variable}"
        );
    }
}
