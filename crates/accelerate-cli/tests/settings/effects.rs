//! What is given and changes nothing is told, and what is secret is not shown.

use serde_json::Value;

use crate::command::Folder;

#[test]
fn settings_without_an_effect_are_told_with_the_switch_that_is_missing() {
    let folder = Folder::new();
    folder.write(
        "job.yaml",
        "distributed_type: MULTI_CPU\nnum_processes: 1\nsame_network: true\nfsdp_config:\n  \
         fsdp_version: 2\n  fsdp_offload_params: true\n",
    );
    let run = |words: &[&str]| {
        let run = folder.launch(["--config_file", "job.yaml", "--zero_stage", "2"]);
        let run = run.args([
            "--gradient_accumulation_steps",
            "2",
            "--monitor_interval",
            "1",
        ]);
        run.args(words).args(["true"]).done()
    };
    let done = run(&[]);
    done.assert_code(0).assert_says(
        "note: given, but without an effect:\n\
         \t`zero_stage` (flag `--zero_stage`): without `--use_deepspeed`\n",
    );
    done.assert_says(
        "\t`monitor_interval` (flag `--monitor_interval`): ends are noticed at once\n",
    );
    done.assert_says(
        "`fsdp_version` (job.yaml:5), `fsdp_offload_params` (job.yaml:6): without `--use_fsdp`\n",
    );
    for name in ["same_network", "gradient_accumulation_steps"] {
        assert!(!done.stderr.contains(name), "{done:#?}");
    }
    assert_eq!(run(&["-q"]).stderr, "");
    run(&["--dry_run"]).assert_prints("without an effect:\n  `zero_stage`");
    run(&["--tee", "3"]).assert_says("`--tee`: no files are written without `--log_dir`");
}

#[test]
fn every_setting_is_shown_with_its_section_and_whether_anything_reads_it() {
    let folder = Folder::new();
    folder.write_default_config("same_network: true\nfsdp_config:\n  fsdp_version: 2\n");
    let done = folder.accelerate(["config", "show"]).done();
    let line = |text: &str, name: &str| {
        let mut lines = text.lines();
        lines
            .find(|line| line.trim_start().starts_with(name))
            .unwrap()
            .to_owned()
    };
    let found = line(&done.stdout, "same_network");
    assert!(found.ends_with("default_config.yaml:1; no effect here: machines find each other wherever the address leads"), "{found}");
    let done = folder.accelerate(["config", "show", "--json"]).done();
    let json: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(json["same_network"]["no_effect"].is_string());
    assert!(json["num_machines"]["no_effect"].is_null());

    let done = folder.launch(["--dry_run", "true"]).done();
    assert!(line(&done.stdout, "fsdp_config.fsdp_version = 2").contains("default_config.yaml:3"));
}

#[test]
fn secrets_are_shown_nowhere() {
    let folder = Folder::new();
    let secrets = [
        "--aws_access_key_id",
        "AKIA1",
        "--aws_secret_access_key",
        "hush2",
    ];
    for words in [&["config", "show"][..], &["config", "show", "--json"]] {
        let done = folder.accelerate(words).args(secrets).done();
        done.assert_code(0).assert_prints("***");
        let text = done.stdout + &done.stderr;
        assert!(!text.contains("AKIA1") && !text.contains("hush2"), "{text}");
    }
    for words in [&["--dry_run"][..], &["--debug"]] {
        let done = folder.launch(words).args(secrets).args(["true"]).done();
        done.assert_code(0);
        let text = done.stdout + &done.stderr;
        assert!(text.contains("aws_secret_access_key"), "{text}");
        assert!(!text.contains("AKIA1") && !text.contains("hush2"), "{text}");
    }
    // Nor do other machines hear them.
    folder.write("hosts", "w0 slots=1\nw1 slots=1\n");
    folder.program("pdsh", "exit 0");
    let done = folder.launch([
        "--use_deepspeed",
        "--deepspeed_hostfile",
        "hosts",
        "--dry_run",
    ]);
    let done = done.args(["--main_process_ip", "w0", "--num_machines", "2"]);
    let done = done.args(secrets).args(["true"]).done();
    done.assert_code(0).assert_prints("--use_deepspeed");
    assert!(
        !done.stdout.contains("hush2") && !done.stdout.contains("AKIA1"),
        "{done:#?}"
    );
}

#[test]
fn details_of_the_rendezvous_are_read_on_one_machine_too() {
    let folder = Folder::new();
    let run = |text: &str| folder.launch(["--cpu", "--rdzv_conf", text, "true"]).done();
    run("timeout")
        .assert_code(2)
        .assert_says("hint: correct `--rdzv_conf`");
    let done = run("timeout=5,last_call_timeout=3");
    done.assert_code(0).assert_says(
        "`last_call_timeout` in `rdzv_conf` (flag `--rdzv_conf`): nothing reads it here",
    );
}

#[test]
fn the_device_in_use_is_shown_once() {
    let folder = Folder::new();
    let done = folder
        .accelerate(["config", "show", "--cpu", "--json"])
        .done();
    let json: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(json["use_cpu"]["value"], true);
    assert_eq!(json["use_cpu"]["from"], "--cpu");
    assert!(json["cpu"].is_null());
}

#[test]
fn a_switch_that_a_flag_turns_off() {
    let folder = Folder::new();
    for (words, value) in [
        (&["--no_tpu_cluster"][..], false),
        (&["--tpu_use_cluster", "--no-tpu-cluster"], false),
        (&["--no_tpu_cluster", "--tpu_cluster"], true),
    ] {
        let run = folder.accelerate(["config", "show", "--json"]).args(words);
        let json: Value = serde_json::from_str(&run.done().stdout).unwrap();
        assert_eq!(json["tpu_use_cluster"]["value"], value, "{words:?}");
        assert_eq!(json["tpu_use_cluster"]["origin"], "flag", "{words:?}");
    }
}

#[test]
fn a_mesh_that_does_not_fit_is_refused_with_every_size() {
    let folder = Folder::new();
    let flags = ["--cpu", "--num_processes", "8", "--config_file", "job.yaml"];
    folder.write(
        "job.yaml",
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n  \
         parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 3\n",
    );
    let done = folder.launch(flags).args(["true"]).done();
    done.assert_code(2).assert_says(
        "`parallelism_config_dp_replicate_size` (2, job.yaml:5) x \
         `parallelism_config_dp_shard_size` (3, job.yaml:6) makes 6 processes, but \
         `num_processes` is 8 (flag `--num_processes`)",
    );
    done.assert_says("hint: choose sizes whose product is 8, or give `--num_processes 6`");
}

#[test]
fn a_dry_run_shows_the_plan_that_the_processes_will_make() {
    let folder = Folder::new();
    let run = |words: &[&str]| {
        let run = folder.launch(["--num_processes", "2", "--dry_run"]);
        run.args(words).args(["true"]).done()
    };
    let done = run(&["--use_fsdp", "--fsdp_sharding_strategy", "2"]);
    done.assert_code(0).assert_prints("plan:\n  told as ");
    done.assert_prints("optimizer state, gradients  (flag `--fsdp_sharding_strategy`)\n");
    let done = run(&[
        "--use_deepspeed",
        "--zero_stage",
        "3",
        "--offload_param_device",
        "cpu",
    ]);
    done.assert_prints("in pinned CPU memory  (flag `--offload_param_device`)\n");
    done.assert_prints("found out when a model is prepared: train_batch_size");
    folder.write("ds.json", "{\"zero_optimization\": {\"stag\": 3}}");
    let done = run(&["--use_deepspeed", "--deepspeed_config_file", "ds.json"]);
    done.assert_prints("cannot be made: cannot understand the config of DeepSpeed\n");
    done.assert_prints("`zero_optimization.stag` (line 1)\n");
    done.assert_prints("hint: did you mean `stage` instead of `zero_optimization.stag`?\n");
    assert!(!run(&[]).stdout.contains("plan:"));
}
