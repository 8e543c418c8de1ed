//! `config default`, `config update` and `to-fsdp2`.

use std::fs;

use crate::command::Home;

#[test]
fn default_writes_json_under_any_name_and_never_over_a_file() {
    let home = Home::new();
    let arguments = ["config", "default", "--mixed_precision", "bf16"];
    let ended = home.run(&arguments).assert_code(0);
    let name = ".cache/huggingface/accelerate/default_config.yaml";
    let expected = format!("configuration saved at {}\n", home.path(name).display());
    assert_eq!(ended.stdout(), expected);
    let text = home.read(name);
    assert!(
        text.starts_with("{\n  \"compute_environment\": \"LOCAL_MACHINE\",\n"),
        "{text}"
    );
    for entry in [
        "mixed_precision\": \"bf16\"",
        "same_network\": false",
        "downcast_bf16\": false",
    ] {
        assert!(text.contains(entry), "no {entry} in {text}");
    }
    let again = home.run(&["config", "default"]).assert_code(0).stdout();
    assert!(
        again.contains("exists already and stays as it is"),
        "{again}"
    );
    assert_eq!(home.read(name), text);
}

#[test]
fn default_makes_the_folders_of_a_named_file() {
    let home = Home::new();
    home.run(&["config", "default", "--config_file", "a/b/c.yaml"])
        .assert_code(0);
    assert!(home.read("a/b/c.yaml").ends_with("}\n"));
    home.run(&["config", "default", "--mixed-precision", "fp8"])
        .assert_code(2);
}

#[test]
fn update_adds_what_the_file_did_not_say() {
    let home = Home::new();
    fs::write(
        home.path("c.yaml"),
        "# mine\ncompute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nuse_cpu: true\n\
         mixed_precision: bf16\nfsdp_config: {}\nmain_process_ip: null\n",
    )
    .unwrap();
    let ended = home
        .run(&["config", "update", "--config_file", "c.yaml"])
        .assert_code(0);
    assert_eq!(ended.stdout(), "configuration updated at c.yaml\n");
    assert_eq!(
        home.read("c.yaml"),
        "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: 'NO'
downcast_bf16: false
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 1
rdzv_backend: static
same_network: false
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
"
    );
}

#[test]
fn update_leaves_a_file_that_it_cannot_read() {
    let home = Home::new();
    let text = "distributed_type: [\n";
    fs::write(home.path("c.yaml"), text).unwrap();
    let ended = home
        .run(&["config", "update", "--config_file", "c.yaml"])
        .assert_code(1);
    assert!(ended.stderr().contains("`c.yaml:"), "{}", ended.stderr());
    assert_eq!(home.read("c.yaml"), text);
    for arguments in [
        &["config", "update"][..],
        &["config", "update", "--config_file", "absent.yaml"],
    ] {
        let shown = home.run(arguments).assert_code(1).stderr();
        assert!(shown.contains("hint: run `accelerate config`"), "{shown}");
    }
}

#[test]
fn to_fsdp2_converts_into_another_file() {
    let home = Home::new();
    fs::write(
        home.path("old.yaml"),
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_backward_prefetch: BACKWARD_PRE\n  \
         fsdp_sharding_strategy: FULL_SHARD\n",
    )
    .unwrap();
    let convert =
        |more: &[&str]| home.run(&[&["to-fsdp2", "--config_file", "old.yaml"], more].concat());
    let shown = convert(&[]).assert_code(2).stderr();
    assert!(
        shown.contains("`--output_file` or `--overwrite`"),
        "{shown}"
    );
    let ended = convert(&["--output_file", "new.yaml"]).assert_code(0);
    assert!(
        ended
            .stderr()
            .contains("`fsdp_backward_prefetch` was left out"),
        "{}",
        ended.stderr()
    );
    assert_eq!(
        home.read("new.yaml"),
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: true\n  \
         fsdp_version: 2\n"
    );
    convert(&["--output-file", "new.yaml"]).assert_code(1);
    convert(&["--overwrite"]).assert_code(0);
    assert_eq!(home.read("old.yaml"), home.read("new.yaml"));
    home.run(&["to-fsdp2", "--overwrite"]).assert_code(2);
}
