use std::{ffi::OsString, process::Command};

use accelerate_plan::{
    Hint as _, MixedPrecision,
    env::{Environment, MIXED_PRECISION, OMP_NUM_THREADS},
};

use super::*;
use crate::launch::hosts::stand_in::{self, Site, line, script};

const OPEN_MPI: &str = "mpirun (Open MPI) 4.1.4";
const INTEL_MPI: &str = "Intel(R) MPI Library for Linux* OS, Version 2021.13";

fn overlay() -> EnvOverlay {
    let mut overlay = EnvOverlay::new();
    overlay.set(&MIXED_PRECISION, &MixedPrecision::Bf16);
    overlay.set(&OMP_NUM_THREADS, &NonZeroUsize::MIN);
    overlay
}

fn build(site: &Site, processes: Option<usize>, machines: usize) -> Result<Outer> {
    build_with(site, processes, machines, &[], false)
}

fn build_with(
    site: &Site,
    processes: Option<usize>,
    machines: usize,
    variables: &[(&str, &str)],
    is_root: bool,
) -> Result<Outer> {
    let environment = site.environment(variables);
    let request = Request {
        hostfile: &site.path("hosts"),
        num_processes: processes.and_then(NonZeroUsize::new),
        num_machines: NonZeroUsize::new(machines).unwrap(),
        program: &script(),
        overlay: &overlay(),
    };
    let machine = Machine {
        is_root,
        ..site.machine(&environment)
    };
    command(&request, &machine)
}

fn site(version: &str) -> Site {
    let site = Site::new();
    site.file("hosts", "localhost slots=2\n");
    site.launcher("mpirun", version);
    site
}

#[test]
fn open_mpi_is_told_which_variables_to_pass_on() {
    let site = site(OPEN_MPI);
    let outer = build(&site, Some(16), 4).unwrap();
    let hosts = site.path("hosts").display().to_string();
    assert_eq!(
        line(&outer),
        format!(
            "--hostfile {hosts} --npernode 4 -n 16 --bind-to socket \
             -x ACCELERATE_MIXED_PRECISION -x OMP_NUM_THREADS python -u train.py --name=a b"
        )
    );
    assert_eq!(outer.program.executable, site.path("bin").join("mpirun"));
    assert_eq!(outer.program.name, "train.py through mpirun");
    assert_eq!(outer.overlay, overlay());
}

#[test]
fn other_mpis_pass_on_everything() {
    for version in [INTEL_MPI, "HYDRA build details:", "MVAPICH2 2.3", "?"] {
        let site = site(version);
        let hosts = site.path("hosts").display().to_string();
        let outer = build(&site, Some(16), 4).unwrap();
        let expected = format!("-f {hosts} -ppn 4 -n 16 python -u train.py --name=a b");
        assert_eq!(line(&outer), expected);
        let outer = build(&site, None, 4).unwrap();
        let expected = format!("-f {hosts} -ppn 1 python -u train.py --name=a b");
        assert_eq!(line(&outer), expected);
    }
}

#[test]
fn processes_that_do_not_divide_all_find_a_place() {
    let outer = build(&site(OPEN_MPI), Some(5), 2).unwrap();
    assert!(line(&outer).contains("--npernode 3 -n 5"), "{outer:?}");
}

#[test]
fn mpiexec_serves_where_there_is_no_mpirun_and_without_both_the_choices_are_named() {
    let site = Site::new();
    site.file("hosts", "localhost\n");
    let error = build(&site, Some(2), 1).unwrap_err();
    assert!(matches!(error, HostsError::MpiMissing));
    let hint = error.hint().unwrap();
    for name in ["Open MPI", "Intel MPI", "MVAPICH"] {
        assert!(hint.contains(name), "{hint}");
    }
    site.launcher("mpiexec", OPEN_MPI);
    let outer = build(&site, Some(2), 1).unwrap();
    assert_eq!(outer.program.executable, site.path("bin").join("mpiexec"));
}

#[test]
fn a_missing_hostfile_is_found_before_anything_starts() {
    let site = site(OPEN_MPI);
    std::fs::remove_file(site.path("hosts")).unwrap();
    let error = build(&site, Some(2), 1).unwrap_err();
    assert!(matches!(error, HostsError::HostfileUnreadable { .. }));
}

#[test]
fn a_broken_mpi_is_an_error_with_its_cause() {
    let site = Site::new();
    site.file("hosts", "");
    let path = site.program("mpirun", "");
    std::fs::write(&path, "#!/no/such/shell\n").unwrap();
    let error = build(&site, Some(2), 1).unwrap_err();
    assert!(
        matches!(error, HostsError::VersionUnknown { .. }),
        "{error:?}"
    );
}

#[test]
fn root_must_allow_open_mpi_itself() {
    let site = site(OPEN_MPI);
    let allow = ("OMPI_ALLOW_RUN_AS_ROOT", "1");
    let confirm = ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    for variables in [&[][..], &[allow], &[confirm]] {
        let error = build_with(&site, Some(2), 1, variables, true).unwrap_err();
        assert!(matches!(error, HostsError::RootRefused { .. }));
        assert!(error.hint().unwrap().contains("OMPI_ALLOW_RUN_AS_ROOT=1"));
    }
    build_with(&site, Some(2), 1, &[allow, confirm], true).unwrap();
    let intel = self::site(INTEL_MPI);
    build_with(&intel, Some(2), 1, &[], true).unwrap();
}

#[test]
fn the_command_runs_as_it_was_built() {
    let site = site(INTEL_MPI);
    let (program, overlay) =
        crate::launch::hosts::outer_program(build(&site, Some(4), 2).unwrap()).unwrap();
    let status = Command::new(&program.executable)
        .args(&program.arguments)
        .envs(overlay.iter())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(7));
    assert!(
        site.read("arguments")
            .ends_with("\n-u\ntrain.py\n--name=a b\n")
    );
    let environment = site.read("environment");
    assert!(environment.contains("\nACCELERATE_MIXED_PRECISION=bf16\n"));
}

#[test]
fn real_open_mpi_starts_ranks_that_know_their_place() {
    let Some(mpirun) = stand_in::installed("mpirun") else {
        return;
    };
    let allow = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ];
    let allow = allow.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let environment = Environment::from_pairs(std::env::vars_os().chain(allow.clone()));
    let site = Site::new();
    let rank = site.program(
        "rank",
        "echo \"$OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK \
         $ACCELERATE_MIXED_PRECISION $1\"\ntest \"$OMPI_COMM_WORLD_RANK\" = 0 || exit 5",
    );
    let program = Program {
        name: "rank".to_owned(),
        executable: rank,
        arguments: vec!["a b".into()],
    };
    let request = Request {
        hostfile: &site.file("hosts", "localhost slots=2\n"),
        num_processes: NonZeroUsize::new(2),
        num_machines: NonZeroUsize::MIN,
        program: &program,
        overlay: &overlay(),
    };
    let outer = command(&request, &Machine::here(&environment).unwrap()).unwrap();
    if !line(&outer).contains("--bind-to") {
        eprintln!("skipped: `{}` is not Open MPI", mpirun.display());
        return;
    }
    let mut ranks = stand_in::command(&outer);
    ranks.envs(allow);
    let output = stand_in::output(ranks);
    let stdout = stand_in::text(&output.stdout);
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 2 0 bf16 a b", "1 2 1 bf16 a b"], "{output:?}");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}
