//! `accelerate env` from outside: the built binary.

#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
};

use tempfile::TempDir;

/// A home folder with a Python that must not be started.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let started = home.path("python-was-started").display().to_string();
        home.program(
            "venv/bin/python3.11",
            &format!("#!/bin/sh\n: > {started}\n"),
        );
        home.program("venv/bin/python", &format!("#!/bin/sh\n: > {started}\n"));
        home.write("venv/pyvenv.cfg", "version = 3.11.7\n");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        self.write(name, text);
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// `accelerate env` with these arguments and these variables only.
    fn env(&self, arguments: &[&str], pairs: &[(&str, &str)]) -> Output {
        let output = Command::new(env!("CARGO_BIN_EXE_accelerate"))
            .arg("env")
            .args(arguments)
            .current_dir(self.0.path())
            .env_clear()
            .env("HOME", self.0.path())
            .env("VIRTUAL_ENV", self.path("venv"))
            .envs(pairs.iter().copied())
            .output()
            .unwrap();
        assert!(
            !self.path("python-was-started").exists(),
            "Python was started"
        );
        output
    }

    fn report(&self, arguments: &[&str], pairs: &[(&str, &str)]) -> String {
        let output = self.env(arguments, pairs);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn the_lines_are_those_of_the_original() {
    let report = Home::new().report(&[], &[]);
    let names: Vec<_> = report
        .lines()
        .map(|line| line.split(':').next().unwrap())
        .filter(|name| name.starts_with("- "))
        .filter(|name| !name.ends_with("type") && *name != "- Devices")
        .collect();
    assert_eq!(
        names,
        [
            "- `Accelerate` version",
            "- Platform",
            "- `accelerate` bash location",
            "- Python version",
            "- Numpy version",
            "- PyTorch version",
            "- PyTorch accelerator",
            "- System RAM",
            "- `Accelerate` default config",
        ]
    );
    assert!(report.starts_with("\nCopy-and-paste the text below in your GitHub issue\n\n- "));
    assert!(
        report.ends_with("default config:\n\tNot found\n"),
        "{report}"
    );
}

#[test]
fn python_and_its_packages_are_found_without_starting_it() {
    let home = Home::new();
    let packages = "venv/lib/python3.11/site-packages";
    // `python` is a copy without a version in its name, as on some systems.
    home.write("venv/lib/python3.11/os.py", "");
    home.write(
        &format!("{packages}/numpy-2.4.6.dist-info/METADATA"),
        "Name: numpy\nVersion: 2.4.6\n",
    );
    home.write(
        &format!("{packages}/torch/version.py"),
        "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n",
    );
    home.program("programs/accelerate", "");
    let programs = home.path("programs").display().to_string();
    let report = home.report(&[], &[("PATH", &programs)]);
    for line in [
        "- Python version: 3.11.7\n",
        "- Numpy version: 2.4.6\n",
        "- PyTorch version: 2.13.0+cpu\n",
        &format!("- `accelerate` bash location: {programs}/accelerate\n"),
    ] {
        assert!(report.contains(line), "{line} in {report}");
    }
}

#[test]
fn a_machine_without_python_is_reported_too() {
    let home = Home::new();
    fs::remove_dir_all(home.path("venv")).unwrap();
    let report = home.report(&[], &[]);
    assert!(report.contains("- Python version: Not found\n"), "{report}");
}

#[test]
fn the_libtorch_of_the_library_is_shown() {
    let home = Home::new();
    home.write(".libtorch/build-version", "2.13.0+cpu\n");
    let report = home.report(&[], &[]);
    assert!(
        report.contains("- libtorch version: 2.13.0+cpu ("),
        "{report}"
    );
    home.write("other/build-version", "2.12.0\n");
    let other = home.path("other").display().to_string();
    let report = home.report(&[], &[("LIBTORCH", &other)]);
    assert!(
        report.contains(&format!("- libtorch version: 2.12.0 ({other})\n")),
        "{report}"
    );
}

#[test]
fn a_cluster_manager_is_reported_and_a_contradiction_is_no_failure() {
    let home = Home::new();
    let step = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
    ];
    let report = home.report(&[], &step);
    assert!(
        report.contains(
            "- Cluster manager: SLURM: rank 1 of 2 (`SLURM_PROCID`, `SLURM_NTASKS`); SLURM job 7 \
             on n1, n2\n"
        ),
        "{report}"
    );
    let shell = home.report(&[], &[step[0], step[3]]);
    assert!(
        shell.contains("- Cluster manager: SLURM job 7, not in a step of several tasks\n"),
        "{shell}"
    );
    let mut contradiction = step.to_vec();
    contradiction.push(("OMPI_COMM_WORLD_SIZE", "3"));
    let report = home.report(&[], &contradiction);
    assert!(
        report.contains("`SLURM_NTASKS` (2)") && report.contains("`OMPI_COMM_WORLD_SIZE` (3)"),
        "{report}"
    );
}

#[test]
fn json_holds_the_same_facts() {
    let report = Home::new().report(&["--json"], &[]);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["accelerate_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["python"]["version"], "3.11.7");
    assert_eq!(report["numpy_version"], serde_json::Value::Null);
    assert!(report["cpu"]["usable"].as_u64().unwrap() >= 1);
    assert_eq!(report["config"], serde_json::Value::Null);
}

#[test]
fn a_wrong_flag_is_a_usage_error() {
    let output = Home::new().env(&["--yaml"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
}
