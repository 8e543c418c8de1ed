//! Files and programs that cannot be used: one message each, and the right exit code.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::command::Folder;

/// Files of mode 000 are no obstacle for root.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn with_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// What is said about a config file, from the first word on.
fn said_about(folder: &Folder, file: &str) -> String {
    let done = folder.launch(["--config_file", file, "sh"]).done();
    done.assert_code(1);
    assert_eq!(done.stdout, "");
    done.stderr
}

#[test]
fn config_files_that_cannot_be_used() {
    let folder = Folder::new();
    folder.write("empty.yaml", "");
    folder.write("comment.yaml", "# later\n");
    folder.write("list.yaml", "- a\n- b\n");
    folder.write("open.yaml", "debug: [1\n");
    folder.write("open.json", "{\"debug\": true,\n");
    folder.write("key.yaml", "distributed_type: NO\nmixed_precison: fp16\n");
    folder.write(
        "value.yaml",
        "distributed_type: NO\nmixed_precision: fp61\n",
    );
    folder.write(
        "twice.yaml",
        "debug: true\ndistributed_type: NO\ndebug: false\n",
    );
    folder.write(
        "inner.yaml",
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_ofload_params: true\n",
    );
    fs::write(folder.path("latin.yaml"), b"debug: caf\xe9\n").unwrap();
    let hint = "hint: write a config file with `accelerate config`\n";
    for (file, expected) in [
        ("empty.yaml", format!("config file `empty.yaml` is empty\n\n{hint}")),
        ("comment.yaml", format!("config file `comment.yaml` is empty\n\n{hint}")),
        (
            "list.yaml",
            format!("config file `list.yaml`: expected `key: value` lines, found a list\n\n{hint}"),
        ),
        (
            "key.yaml",
            "config file `key.yaml` has unknown keys: `mixed_precison` (line 2)\n\nhint: did you \
             mean `mixed_precision` instead of `mixed_precison`?\n"
                .to_owned(),
        ),
        (
            "value.yaml",
            "`value.yaml:2`: `mixed_precision`: expected one of `no`, `fp16`, `bf16`, `fp8`, found \
             the text `fp61`\n\nhint: did you mean `fp16`?\n"
                .to_owned(),
        ),
        (
            "twice.yaml",
            "`twice.yaml:3`: key `debug` stands there already in line 1\n\nhint: delete one of \
             them, such as line 3
"
                .to_owned(),
        ),
        (
            "inner.yaml",
            "config file `inner.yaml` has unknown keys: `fsdp_config.fsdp_ofload_params` (line \
             3)\n\nhint: did you mean `fsdp_offload_params` instead of \
             `fsdp_config.fsdp_ofload_params`?\n"
                .to_owned(),
        ),
    ] {
        let said = said_about(&folder, file);
        let first = "error: cannot use the config file (flag `--config_file`)\n  caused by: ";
        assert_eq!(said, format!("{first}{expected}"));
    }
    for (file, part) in [
        ("open.yaml", "`open.yaml:1`, column "),
        ("open.json", "`open.json:2`, column "),
        ("latin.yaml", "latin.yaml"),
    ] {
        let said = said_about(&folder, file);
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_folder_is_no_config_file() {
    let folder = Folder::new();
    let said = said_about(&folder, "hf");
    assert!(
        said.contains("`hf`") && said.contains("directory"),
        "{said}"
    );
    // As the default file, a folder is as good as nothing.
    fs::create_dir(folder.path("hf/accelerate/default_config.yaml")).unwrap();
    folder.launch(["sh", "-c", "true"]).done().assert_code(0);
}

#[test]
fn a_config_file_that_may_not_be_read() {
    if is_root() {
        return;
    }
    let folder = Folder::new();
    with_mode(&folder.write("job.yaml", "distributed_type: NO\n"), 0o000);
    let said = said_about(&folder, "job.yaml");
    assert!(
        said.contains("cannot read config file `job.yaml`"),
        "{said}"
    );
    assert!(said.contains("Permission denied"), "{said}");
}

#[test]
fn programs_that_cannot_be_run() {
    let folder = Folder::new();
    folder.write("text", "just words\n");
    fs::write(folder.path("elf"), b"\x7fELF\0\0\0\0").unwrap();
    fs::create_dir(folder.path("folder")).unwrap();
    let here = fs::canonicalize(folder.path(".")).unwrap();
    for (words, said) in [
        (
            &["nothing.py"][..],
            format!("error: no program `nothing.py` in `{}` or on the search path\n", here.display()),
        ),
        (
            &["no/such/program"],
            format!("error: no program `no/such/program` in `{}`", here.display()),
        ),
        (
            &["--no_python", "text"],
            "error: `./text` is a program, but it is not executable\n\nhint: run `chmod +x ./text`\n"
                .to_owned(),
        ),
        (
            &["./elf"],
            "error: `./elf` is a program, but it is not executable\n\nhint: run `chmod +x ./elf`\n"
                .to_owned(),
        ),
    ] {
        let done = folder.launch(["--quiet", "--cpu"]).args(words).done();
        done.assert_code(1);
        assert!(done.stderr.starts_with(&said), "{said}\n{done:#?}");
    }
    // It may be executed, but is nothing that the system knows.
    with_mode(&folder.path("elf"), 0o755);
    let done = folder.launch(["--quiet", "--cpu", "./elf"]).done();
    assert!(matches!(done.code, Some(1 | 126)), "{done:#?}");
    done.assert_says("elf");
    let done = folder
        .launch(["--quiet", "--cpu", "--no_python", "folder"])
        .done();
    assert!(matches!(done.code, Some(1)), "{done:#?}");
}

#[test]
fn a_python_program_without_python() {
    let folder = Folder::new();
    folder.write("train.py", "print('hello')\n");
    let bin = folder.path("bin");
    let done = folder
        .launch(["--cpu", "train.py"])
        .env("PATH", &bin)
        .done();
    done.assert_code(1)
        .assert_says("no Python interpreter for `train.py`");
    let chosen = folder.launch(["--cpu", "train.py"]);
    let chosen = chosen.env("PYTHON_EXEC", "/no/python").done();
    done.assert_code(1);
    chosen.assert_code(1).assert_says("/no/python");
    chosen.assert_says("PYTHON_EXEC");
}

#[test]
fn folders_that_cannot_be_written() {
    let folder = Folder::new();
    folder.write("file", "");
    for log_dir in ["file", "file/below", "/proc/nothing"] {
        let words = [
            "--cpu",
            "--quiet",
            "--log_dir",
            log_dir,
            "sh",
            "-c",
            "touch started",
        ];
        let done = folder.launch(words).done();
        let said = format!("error: cannot write log files into `{log_dir}");
        done.assert_code(1).assert_says(&said);
        done.assert_says("hint: name a folder that can be written with `--log_dir`");
        assert!(!folder.path("started").exists());
    }
    for report in ["file/below.json", "/proc/nothing/x.json", "hf"] {
        let words = [
            "--cpu",
            "--quiet",
            "--report",
            report,
            "sh",
            "-c",
            "touch started",
        ];
        let done = folder.launch(words).done();
        done.assert_code(1)
            .assert_says(&format!("error: cannot write the report `{report}`"));
        assert!(!folder.path("started").exists());
    }
    let man = folder.accelerate(["man", "file"]).done();
    man.assert_code(1)
        .assert_says("cannot write man pages into `file`");
}

#[test]
fn kinds_of_job_that_come_later() {
    let folder = Folder::new();
    folder.write("tpu.yaml", "distributed_type: XLA\ntpu_use_cluster: true\n");
    folder.write(
        "aws.yaml",
        "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\n\
         ec2_instance_type: ml.p3.2xlarge\niam_role_name: role\n",
    );
    for (words, said) in [
        (
            &["--tpu"][..],
            "error: launching on TPUs is not supported yet (flag `--tpu`)\n",
        ),
        (
            &["--config_file", "tpu.yaml"],
            "error: launching on TPUs is not supported yet (tpu.yaml:1)\n",
        ),
        (
            &["--config_file", "aws.yaml"],
            "error: launching on Amazon SageMaker is not supported yet (aws.yaml:1)\n",
        ),
    ] {
        let done = folder
            .launch(words)
            .args(["sh", "-c", "touch started"])
            .done();
        done.assert_code(2).assert_says(said);
        assert!(!folder.path("started").exists());
    }
    // A flag for another kind of job is enough to use such a file.
    let words = [
        "--quiet",
        "--config_file",
        "tpu.yaml",
        "--use_fsdp",
        "--num_processes",
        "1",
    ];
    folder
        .launch(words)
        .args(["sh", "-c", "true"])
        .done()
        .assert_code(0);
}
