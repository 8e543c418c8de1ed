//! Values that a flag, a variable or a file does not allow: each is refused where it stands, and
//! nothing starts.

use crate::command::{Done, Folder};

fn launch(folder: &Folder, words: &[&str]) -> Done {
    let done = folder.launch(words).args(["sh", "-c", "touch started"]);
    let done = done.done();
    assert!(!folder.path("started").exists(), "{words:?}: {done:#?}");
    assert_eq!(done.stdout, "", "{words:?}");
    done
}

#[test]
fn a_flag_with_a_value_out_of_range() {
    let folder = Folder::new();
    let count = "expected a whole number, at least 1";
    let whole = "expected a whole number, at least 0";
    let number = "expected a number, at least 0";
    let seconds = "expected a number of seconds, at least 0";
    let port = "expected a port number from 1 to 65535";
    for (flag, value, expected) in [
        ("num_processes", "0", count),
        ("num_processes", "-1", count),
        ("num_processes", "two", count),
        ("num_processes", "1.5", count),
        ("num_processes", "", count),
        ("num_processes", "99999999999999999999", count),
        ("num_processes_per_machine", "0", count),
        ("num_machines", "0", count),
        ("machine_rank", "-1", whole),
        ("num_cpu_threads_per_process", "0", count),
        ("gradient_accumulation_steps", "0", count),
        ("max_restarts", "-1", whole),
        ("monitor_interval", "-0.5", number),
        ("monitor_interval", "inf", number),
        ("gradient_clipping", "nan", number),
        ("main_process_port", "65536", port),
        ("main_process_port", "-1", port),
        ("grace_period", "-1", seconds),
        ("grace_period", "soon", seconds),
        ("timeout", "nan", seconds),
        ("zero_stage", "4", "expected one of `0`, `1`, `2`, `3`"),
        (
            "mixed_precision",
            "fp64",
            "expected one of `no`, `fp16`, `bf16`, `fp8`",
        ),
        ("rdzv_backend", "etcd", "expected one of `static`, `c10d`"),
        ("dynamo_backend", "fast", "expected one of "),
        ("fsdp_version", "3", "expected "),
        ("fsdp_sharding_strategy", "6", "expected "),
        ("fsdp_offload_params", "maybe", "expected one of `y`"),
        ("fsdp_min_num_params", "-5", whole),
        ("fsdp_backward_prefetch", "LATER", "expected one of "),
        ("fsdp_state_dict_type", "HALF", "expected one of "),
        ("fsdp_auto_wrap_policy", "ALL", "expected one of "),
        ("offload_param_device", "disk", "expected one of "),
        ("deepspeed_multinode_launcher", "ssh", "expected one of "),
        ("megatron_lm_tp_degree", "0", count),
        ("megatron_lm_recompute_method", "x", "expected one of "),
        ("fp8_backend", "x", "expected one of "),
        ("fp8_format", "E3M4", "expected one of "),
        (
            "fp8_override_linear_precision",
            "true,false",
            "expected three truth words",
        ),
        ("parallelism_config_tp_size", "0", count),
        ("parallelism_config_cp_backend", "x", "expected "),
        ("gpu_ids", ",", "expected `all`, or numbers"),
        ("tee", "4", "`4` selects no streams"),
        ("tee", "0:5", "expected "),
        ("local_ranks_filter", "x", "local_ranks_filter"),
    ] {
        let done = launch(&folder, &[&format!("--{flag}"), value]);
        done.assert_code(2).assert_says(expected);
        done.assert_says(&format!("'--{flag} <"));
        assert!(done.stderr.starts_with("error: "), "{done:#?}");
    }
}

#[test]
fn a_variable_with_a_value_out_of_range() {
    let folder = Folder::new();
    for (variable, value) in [
        ("ACCELERATE_NUM_PROCESSES", "0"),
        ("ACCELERATE_MIXED_PRECISION", "fp64"),
        ("ACCELERATE_MAIN_PROCESS_PORT", "70000"),
        ("ACCELERATE_DYNAMO_BACKEND", "fast"),
        ("ACCELERATE_DEBUG_MODE", "perhaps"),
        ("FSDP_SHARDING_STRATEGY", "SOME"),
        ("OMP_NUM_THREADS", "many"),
    ] {
        let run = folder.launch(["sh"]).env(variable, value);
        let done = run.done();
        let said = format!("environment variable `{variable}` holds `{value}`: expected ");
        done.assert_code(1).assert_says(&said);
        done.assert_says(&format!("hint: correct `{variable}` or unset it"));
        // The same where it is only looked at.
        let show = folder.accelerate(["config", "show"]).env(variable, value);
        show.done().assert_code(1).assert_says(&said);
    }
}

#[test]
fn flags_that_contradict_each_other() {
    let folder = Folder::new();
    for (words, said) in [
        (
            &["--cpu", "--multi_gpu"][..],
            "flag `--cpu` and flag `--multi_gpu` exclude each other",
        ),
        (
            &["--use_fsdp", "--use_deepspeed"],
            "flag `--use_deepspeed` and flag `--use_fsdp` exclude each other",
        ),
        (
            &["--multi_gpu", "--num_processes", "1"],
            "`num_processes` is `1` (flag `--num_processes`): expected at least 2 with `multi_gpu`",
        ),
        (
            &["--multi_gpu", "--num_processes", "2", "--gpu_ids", "0"],
            "`gpu_ids` is `0` (flag `--gpu_ids`): expected at least two devices",
        ),
        (
            &[
                "--num_machines",
                "2",
                "--machine_rank",
                "2",
                "--num_processes",
                "2",
            ],
            "`machine_rank` is `2` (flag `--machine_rank`): expected below `num_machines`, which \
             is `2` (flag `--num_machines`)",
        ),
        (
            &[
                "--num_machines",
                "3",
                "--machine_rank",
                "0",
                "--num_processes",
                "2",
            ],
            "`num_processes` is `2` (flag `--num_processes`): expected at least `num_machines`",
        ),
        (
            &["--num_processes", "2", "--num_processes_per_machine", "3"],
            "`num_processes_per_machine` is `3` (flag `--num_processes_per_machine`): expected a \
             part of `num_processes`",
        ),
        (
            &["--use_parallelism_config"],
            "`use_parallelism_config` is `on` (flag `--use_parallelism_config`): expected together \
             with `use_fsdp`, which is `off`",
        ),
        (
            &[
                "--use_fsdp",
                "--num_processes",
                "2",
                "--fsdp_sync_module_states",
                "false",
            ],
            "`fsdp_sync_module_states` is `false` (flag `--fsdp_sync_module_states`)",
        ),
        (
            &[
                "--use_deepspeed",
                "--deepspeed_inclusion_filter",
                "a",
                "--deepspeed_exclusion_filter",
                "b",
            ],
            "`deepspeed_exclusion_filter` is `b` (flag `--deepspeed_exclusion_filter`)",
        ),
        (
            &["--module", "--no_python"],
            "`--module` and `--no_python` exclude each other",
        ),
        (
            &["--cpu", "--num_processes", "2", "--tee", "2:3"],
            "`--tee` names rank 2: expected ranks below 2",
        ),
        (
            &[
                "--cpu",
                "--num_processes",
                "2",
                "--local_ranks_filter",
                "0,2",
            ],
            "`--local_ranks_filter` names rank 2: expected ranks below 2",
        ),
        (
            &["--cpu", "--num_machines", "2", "--num_processes", "2"],
            "a job on 2 machines needs `machine_rank`",
        ),
        (
            &[
                "--cpu",
                "--num_machines",
                "2",
                "--machine_rank",
                "0",
                "--num_processes",
                "2",
            ],
            "a job on 2 machines needs `main_process_ip`",
        ),
    ] {
        let done = launch(&folder, words);
        done.assert_code(2).assert_says(said);
    }
}

#[test]
fn a_flag_that_contradicts_the_file_names_the_line() {
    let folder = Folder::new();
    folder.write(
        "job.yaml",
        "distributed_type: MULTI_CPU\nnum_machines: 2\nmachine_rank: 0\nnum_processes: 4\n",
    );
    let done = launch(
        &folder,
        &["--config_file", "job.yaml", "--machine_rank", "5"],
    );
    done.assert_code(2).assert_says(
        "`machine_rank` is `5` (flag `--machine_rank`): expected below `num_machines`, which is \
         `2` (job.yaml:2)",
    );
    folder.write(
        "several.yaml",
        "use_cpu: true\ndistributed_type: MULTI_CPU\n",
    );
    let done = launch(&folder, &["--config_file", "several.yaml"]);
    done.assert_code(2).assert_says(
        "`num_processes` is not known: several processes are asked for, but not how many \
         (several.yaml:2)",
    );
    done.assert_says("hint: give it with `--num_processes`");
}

#[test]
fn details_of_the_rendezvous_that_cannot_be_read() {
    let folder = Folder::new();
    let machines = [
        "--cpu",
        "--num_machines",
        "2",
        "--machine_rank",
        "0",
        "--num_processes",
        "2",
    ];
    for (words, said) in [
        (
            ["--main_process_ip", "127.0.0.1", "--rdzv_conf", "timeout"],
            "`timeout` in `rdzv_conf` has no value",
        ),
        (
            [
                "--main_process_ip",
                "127.0.0.1",
                "--rdzv_conf",
                "timeout=soon",
            ],
            "`timeout` in `rdzv_conf`: expected whole seconds, 1 or more, found `soon`",
        ),
        (
            ["--main_process_ip", "", "--rdzv_conf", "timeout=1"],
            "main_process_ip",
        ),
        (
            ["--main_process_ip", ":29500", "--rdzv_conf", "timeout=1"],
            "no host in the address `:29500`",
        ),
    ] {
        let words = [&machines[..], &words[..]].concat();
        launch(&folder, &words).assert_code(2).assert_says(said);
    }
}
