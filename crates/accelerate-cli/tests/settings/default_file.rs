//! The file that is used although nobody named it.

use crate::command::Folder;

const BODY: [&str; 3] = [
    "sh",
    "-c",
    "echo ${WORLD_SIZE:-1} $ACCELERATE_MIXED_PRECISION",
];

const DEFAULT: &str = "distributed_type: MULTI_CPU\nnum_processes: 2\nmixed_precision: bf16\n";
const OTHER: &str = "distributed_type: MULTI_CPU\nnum_processes: 1\nmixed_precision: fp16\n";

const NOTE: &str = "settings from the default config file";

#[test]
fn one_line_names_the_default_file() {
    let folder = Folder::new();
    let path = folder.write_default_config(DEFAULT);
    let line = format!("note: {NOTE} `{}`\n", path.display());
    let launch = folder.launch(["--no_prefix"]).args(BODY).done();
    assert_eq!(launch.assert_code(0).lines(), ["2 bf16", "2 bf16"]);
    assert_eq!(launch.stderr.matches(&line).count(), 1, "{launch:#?}");

    let show = folder.accelerate(["config", "show"]).done();
    assert_eq!(show.assert_code(0).stderr, line);
    show.assert_prints(&format!("{}:2", path.display()));

    let env = folder.accelerate(["env"]).done();
    env.assert_code(0).assert_prints("default config:\n");
    env.assert_prints("- mixed_precision: bf16\n");

    let quiet = folder.launch(["--quiet", "--no_prefix"]).args(BODY).done();
    assert_eq!(quiet.assert_code(0).stderr, "");
}

#[test]
fn nothing_is_said_where_there_is_no_default_file() {
    let folder = Folder::new();
    let launch = folder.launch(BODY).done();
    assert_eq!(launch.assert_code(0).stdout, "1 no\n");
    assert!(!launch.stderr.contains(NOTE), "{launch:#?}");
}

#[test]
fn the_flag_cpu_leaves_the_default_file_out_but_not_a_named_one() {
    let folder = Folder::new();
    folder.write_default_config(DEFAULT);
    folder.write("other.yaml", OTHER);
    let cpu = folder.launch(["--cpu"]).args(BODY).done();
    assert_eq!(cpu.assert_code(0).stdout, "1 no\n");
    assert!(!cpu.stderr.contains(NOTE), "{cpu:#?}");
    let named = folder.launch(["--cpu", "--config_file", "other.yaml"]);
    assert_eq!(named.args(BODY).done().assert_code(0).stdout, "1 fp16\n");
}

#[test]
fn a_named_file_is_used_instead() {
    let folder = Folder::new();
    folder.write_default_config(DEFAULT);
    folder.write("other.yaml", OTHER);
    folder.write(
        "third.json",
        r#"{"distributed_type": "NO", "mixed_precision": "no"}"#,
    );
    let flag = ["--config_file", "other.yaml"];
    let by_flag = folder.launch(flag).args(BODY).done();
    assert_eq!(by_flag.assert_code(0).stdout, "1 fp16\n");
    assert!(!by_flag.stderr.contains(NOTE), "{by_flag:#?}");

    let by_variable = folder
        .launch(BODY)
        .env("ACCELERATE_CONFIG_FILE", "other.yaml");
    assert_eq!(by_variable.done().assert_code(0).stdout, "1 fp16\n");

    // The flag is nearer than the variable.
    let both = folder.launch(flag).args(BODY);
    let both = both.env("ACCELERATE_CONFIG_FILE", "third.json").done();
    assert_eq!(both.assert_code(0).stdout, "1 fp16\n");

    let show = folder.accelerate(["config", "show"]).args(flag).done();
    assert_eq!(show.assert_code(0).stderr, "");
    show.assert_prints("other.yaml:3");
    let env = folder.accelerate(["env"]).args(flag).done();
    env.assert_code(0).assert_prints("config passed:\n");
    env.assert_prints("- mixed_precision: fp16\n");
    let env = folder
        .accelerate(["env"])
        .env("ACCELERATE_CONFIG_FILE", "other.yaml");
    let env = env.done();
    env.assert_prints("- mixed_precision: fp16\n");
    env.assert_prints("config passed:\n");
}

#[test]
fn a_named_file_that_is_not_there_is_an_error_everywhere() {
    let folder = Folder::new();
    folder.write_default_config(DEFAULT);
    for command in [
        &["launch", "--config_file", "no.yaml", "sh"][..],
        &["config", "show", "--config_file", "no.yaml"],
        &["config", "update", "--config_file", "no.yaml"],
        &["env", "--config_file", "no.yaml"],
        &["to-fsdp2", "--config_file", "no.yaml", "--overwrite"],
    ] {
        let done = folder.accelerate(command).done();
        done.assert_code(1).assert_says("`no.yaml` does not exist");
        assert_eq!(done.stdout, "", "{done:#?}");
    }
    let by_variable = folder
        .launch(["sh"])
        .env("ACCELERATE_CONFIG_FILE", "no.yaml");
    let done = by_variable.done();
    done.assert_code(1).assert_says("`no.yaml` does not exist");
    done.assert_says("ACCELERATE_CONFIG_FILE");
}

#[test]
fn what_older_versions_wrote_is_read_with_a_notice() {
    let folder = Folder::new();
    folder.write(
        "old.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: NO\nfp16: true\n",
    );
    let done = folder
        .launch(["--config_file", "old.yaml"])
        .args(BODY)
        .done();
    assert_eq!(done.assert_code(0).stdout, "1 fp16\n");
    done.assert_says("note: old.yaml:3: `fp16`: understood as `mixed_precision: fp16`");
}
