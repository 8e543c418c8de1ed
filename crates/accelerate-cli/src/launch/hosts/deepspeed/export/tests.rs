use std::{num::NonZeroUsize, os::unix::fs::PermissionsExt as _};

use accelerate_plan::{
    MixedPrecision,
    env::{MIXED_PRECISION, OMP_NUM_THREADS},
};

use super::*;
use crate::launch::hosts::stand_in::Site;

fn overlay() -> EnvOverlay {
    let mut overlay = EnvOverlay::new();
    overlay.set(&MIXED_PRECISION, &MixedPrecision::Bf16);
    overlay.set(&OMP_NUM_THREADS, &NonZeroUsize::MIN);
    overlay
}

fn collect(site: &Site, variables: &[(&str, &str)]) -> Exports {
    let environment = site.environment(variables);
    Exports::collect(&site.machine(&environment), &overlay(), None).unwrap()
}

fn env_file(site: &Site, variables: &[(&str, &str)]) -> (Option<EnvFile>, Vec<String>) {
    let environment = site.environment(variables);
    EnvFile::new(&site.machine(&environment), &overlay(), None).unwrap()
}

fn value<'a>(exports: &'a Exports, name: &str) -> Option<&'a str> {
    exports.pairs.get(name).map(String::as_str)
}

#[test]
fn only_what_concerns_the_job_is_passed_on() {
    let site = Site::new();
    let exports = collect(
        &site,
        &[
            ("NCCL_DEBUG", "INFO"),
            ("MV2_USE_CUDA", "0"),
            ("ACCELERATE_LOG_LEVEL", "info"),
            ("ACCELERATE_MIXED_PRECISION", "fp16"),
            ("ACCELERATE_REMOTE_BIN", "/opt/accelerate"),
            ("NCCL_EMPTY", ""),
            ("HOME", "/home/me"),
            ("RANK", "3"),
            ("CUDA_VISIBLE_DEVICES", "1"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
        ],
    );
    let names: Vec<_> = exports.pairs.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "ACCELERATE_LOG_LEVEL",
            "MV2_USE_CUDA",
            "NCCL_DEBUG",
            "PYTHONPATH",
            "ACCELERATE_MIXED_PRECISION",
            "OMP_NUM_THREADS",
        ]
    );
    assert_eq!(value(&exports, "ACCELERATE_MIXED_PRECISION"), Some("bf16"));
    assert!(exports.notes.is_empty(), "{:?}", exports.notes);
}

#[test]
fn secrets_stay_here_and_the_user_is_told() {
    let site = Site::new();
    site.file("work/.deepspeed_env", "MY_PASSWORD=hidden\n");
    let exports = collect(&site, &[("HF_TOKEN", "hidden"), ("HF_HOME", "/models")]);
    assert_eq!(value(&exports, "HF_HOME"), Some("/models"));
    assert_eq!(value(&exports, "HF_TOKEN"), None);
    assert_eq!(value(&exports, "MY_PASSWORD"), None);
    assert_eq!(exports.notes.len(), 2);
    assert!(exports.notes[0].starts_with("`HF_TOKEN` is not passed on"));
    let all = format!("{exports:?}");
    assert!(!all.contains("hidden"), "{all}");
}

#[test]
fn files_add_variables_and_the_job_has_the_last_word() {
    let site = Site::new();
    site.file("home/.deepspeed_env", "A=home\nB=home\nNCCL_DEBUG=WARN\n");
    let here = "# mine\n\nB=here=and more\nACCELERATE_MIXED_PRECISION=fp16\nACCELERATE_OLD=1\n\
                RANK=2\nnonsense\n1X=2\n";
    site.file("work/.deepspeed_env", here);
    let exports = collect(&site, &[("NCCL_DEBUG", "INFO"), ("PYTHONPATH", "/lib/a")]);
    assert_eq!(value(&exports, "A"), Some("home"));
    assert_eq!(value(&exports, "B"), Some("here=and more"));
    assert_eq!(value(&exports, "NCCL_DEBUG"), Some("WARN"));
    assert_eq!(value(&exports, "ACCELERATE_MIXED_PRECISION"), Some("bf16"));
    assert_eq!(value(&exports, "ACCELERATE_OLD"), None);
    assert_eq!(value(&exports, "RANK"), None);
    let path = format!("{}:/lib/a", site.path("work").display());
    assert_eq!(value(&exports, "PYTHONPATH"), Some(path.as_str()));
    assert_eq!(exports.notes.len(), 2, "{:?}", exports.notes);
}

#[test]
fn another_file_can_be_named() {
    let site = Site::new();
    site.file("work/.deepspeed_env", "A=1\n");
    let other = site.file("other", "B=2\n").display().to_string();
    let exports = collect(&site, &[("DS_ENV_FILE", &other)]);
    assert_eq!(
        (value(&exports, "A"), value(&exports, "B")),
        (None, Some("2"))
    );
    let (file, _) = env_file(&site, &[("DS_ENV_FILE", &other)]);
    assert_eq!(file.unwrap().path, Path::new(&other));
}

#[test]
fn an_interpreter_that_the_user_chose_comes_before_ours() {
    let site = Site::new();
    let environment = site.environment(&[("PYTHON_EXEC", "/opt/python")]);
    let python = Some(Path::new("/usr/bin/python"));
    let exports = Exports::collect(&site.machine(&environment), &overlay(), python).unwrap();
    assert_eq!(value(&exports, "PYTHON_EXEC"), Some("/opt/python"));
    let environment = site.environment(&[]);
    let exports = Exports::collect(&site.machine(&environment), &overlay(), python).unwrap();
    assert_eq!(value(&exports, "PYTHON_EXEC"), Some("/usr/bin/python"));
}

#[test]
fn the_file_is_written_anew_and_keeps_the_lines_of_others() {
    let site = Site::new();
    site.file(
        "work/.deepspeed_env",
        "# mine\nMINE=1\nACCELERATE_OLD=1\nOMP_NUM_THREADS=8\nNCCL_DEBUG=WARN\n",
    );
    let variables = [
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_NAMES", "a b"),
        ("HF_TOKEN", "x"),
    ];
    let folder = site.path("work");
    let expected = format!(
        "# mine\nMINE=1\nNCCL_DEBUG=INFO\nPYTHONPATH={}\nACCELERATE_MIXED_PRECISION=bf16\n\
         OMP_NUM_THREADS=1\n",
        folder.display()
    );
    for _ in 0..2 {
        let (file, notes) = env_file(&site, &variables);
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].starts_with("`NCCL_NAMES` is not written to `"),
            "{notes:?}"
        );
        file.unwrap().write().unwrap();
        assert_eq!(site.read("work/.deepspeed_env"), expected);
    }
    let path = site.path("work/.deepspeed_env");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(folder).unwrap().count(),
        1,
        "nothing is left over"
    );
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let site = Site::new();
    let file = EnvFile {
        path: site.path("missing/.deepspeed_env"),
        text: String::new(),
    };
    let error = file.write().unwrap_err();
    assert!(matches!(error, HostsError::EnvFileUnwritable { .. }));
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let site = Site::new();
    fs::write(site.path("work/.deepspeed_env"), b"A=\xff\n").unwrap();
    let environment = site.environment(&[]);
    let collected = Exports::collect(&site.machine(&environment), &overlay(), None);
    assert!(matches!(
        collected,
        Err(HostsError::EnvFileUnreadable { .. })
    ));
}
