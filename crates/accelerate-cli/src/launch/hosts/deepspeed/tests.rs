use std::ffi::OsString;

use accelerate_plan::{
    Hint as _, MixedPrecision,
    env::{Environment, MIXED_PRECISION},
};

use super::*;
use crate::launch::hosts::stand_in::{self, Site, line, script, words};

const OPEN_MPI: &str = "mpirun (Open MPI) 4.1.4";
const MPICH: &str = "HYDRA build details:";
const HOSTS: &str = "h1 slots=2\nh2 slots=2\n";

/// A job of two machines with a hostfile, to be changed by each test.
struct Case {
    site: Site,
    program: Program,
    command: Vec<OsString>,
    overlay: EnvOverlay,
    hostfile: PathBuf,
}

impl Case {
    fn new(hosts: &str) -> Self {
        let site = Site::new();
        let hostfile = site.file("hosts", hosts);
        let mut overlay = EnvOverlay::new();
        overlay.set(&MIXED_PRECISION, &MixedPrecision::Bf16);
        Self {
            site,
            program: script(),
            command: words(["train.py", "--name=a b"]),
            overlay,
            hostfile,
        }
    }

    fn request(&self, backend: MultinodeLauncher) -> Request<'_> {
        Request {
            backend,
            hostfile: Some(&self.hostfile),
            include: None,
            exclude: None,
            num_machines: NonZeroUsize::new(2).unwrap(),
            num_processes: None,
            machine_rank: None,
            master_addr: Some("10.0.0.1"),
            master_port: NonZeroU16::new(29500).unwrap(),
            cpu: false,
            program: &self.program,
            command: &self.command,
            node_flags: &[],
            python: None,
            overlay: &self.overlay,
        }
    }

    fn environment(&self) -> Environment {
        self.site.environment(&[("NCCL_DEBUG", "INFO")])
    }

    fn route(&self, request: &Request<'_>) -> Result<Route> {
        let environment = self.environment();
        route(request, &self.site.machine(&environment))
    }

    fn outer(&self, request: &Request<'_>) -> Outer {
        match self.route(request).unwrap() {
            Route::Outer(outer) => outer,
            other => panic!("expected a command, found {other:?}"),
        }
    }

    fn error(&self, request: &Request<'_>) -> HostsError {
        self.route(request).unwrap_err()
    }

    /// What every command passes on, each name after `flag`.
    fn exports(&self, flag: &str) -> String {
        format!(
            "{flag} NCCL_DEBUG=INFO {flag} PYTHONPATH={} {flag} ACCELERATE_MIXED_PRECISION=bf16",
            self.site.path("work").display()
        )
    }
}

fn count(number: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(number)
}

#[test]
fn one_machine_and_standard_are_work_for_our_launcher() {
    let case = Case::new("nonsense");
    let request = case.request(MultinodeLauncher::Standard);
    assert_eq!(case.route(&request).unwrap(), Route::Agent);
    let request = Request {
        num_machines: NonZeroUsize::MIN,
        ..case.request(MultinodeLauncher::Pdsh)
    };
    assert_eq!(case.route(&request).unwrap(), Route::Agent);
}

#[test]
fn open_mpi_takes_the_hostfile_as_it_is() {
    let case = Case::new("h1 slots=2\nh2 slots=4\n");
    case.site.launcher("mpirun", OPEN_MPI);
    let outer = case.outer(&case.request(MultinodeLauncher::OpenMpi));
    assert_eq!(
        line(&outer),
        format!(
            "-n 6 -hostfile {} --mca btl ^openib --mca btl_tcp_if_include eth0 {} \
             -x MASTER_ADDR=10.0.0.1 -x MASTER_PORT=29500 -x UCX_TLS=tcp python -u train.py \
             --name=a b",
            case.hostfile.display(),
            case.exports("-x")
        )
    );
    assert_eq!(outer.program.name, "train.py through mpirun");
    assert_eq!(
        stand_in::output(stand_in::command(&outer)).status.code(),
        Some(7)
    );
    assert!(
        case.site
            .read("arguments")
            .ends_with("\ntrain.py\n--name=a b\n")
    );
    let environment = case.site.read("environment");
    assert!(
        environment.contains("\nMASTER_ADDR=10.0.0.1\n"),
        "{environment}"
    );
}

#[test]
fn open_mpi_is_given_a_choice_of_hosts_by_name() {
    let case = Case::new(HOSTS);
    case.site.launcher("mpirun", OPEN_MPI);
    let request = Request {
        include: Some("h2@h1:0"),
        num_processes: count(4),
        ..case.request(MultinodeLauncher::OpenMpi)
    };
    let outer = case.outer(&request);
    assert!(
        line(&outer).starts_with("-n 3 --host h1:1,h2:2 --mca"),
        "{outer:?}"
    );
    let note = "the filters choose 3 slots, so `num_processes` (4) has no effect";
    assert!(outer.notes.iter().any(|line| line == note), "{outer:?}");
    let request = Request {
        num_processes: count(2),
        ..case.request(MultinodeLauncher::OpenMpi)
    };
    let line = line(&case.outer(&request));
    assert!(line.starts_with("-n 2 --host h1:1,h2:1 --mca"), "{line}");
    let request = Request {
        include: Some("h1@h2:1"),
        ..request
    };
    assert!(matches!(
        case.error(&request),
        HostsError::ChosenSlots { .. }
    ));
}

#[test]
fn mpich_ranks_are_given_the_names_that_pytorch_looks_for() {
    let case = Case::new(HOSTS);
    case.site.launcher("mpirun", MPICH);
    let outer = case.outer(&case.request(MultinodeLauncher::Mpich));
    let line = line(&outer);
    let start = format!(
        "-n 4 -ppn 2 {} -genv MASTER_ADDR 10.0.0.1 -genv MASTER_PORT 29500 -genv WORLD_SIZE 4 \
         -genv LOCAL_SIZE 2 -genv LOCAL_WORLD_SIZE 2 -hosts h1,h2 sh -c ",
        case.exports("-genv")
    );
    assert!(line.starts_with(&start), "{line}");
    assert!(
        line.ends_with(" rank python -u train.py --name=a b"),
        "{line}"
    );
    let rank = |variables: &[(&str, &str)]| {
        let arguments = &outer.program.arguments;
        let at = arguments.iter().position(|word| word == "sh").unwrap();
        let output = std::process::Command::new("sh")
            .args(&arguments[at + 1..at + 4])
            .args(["sh", "-c", "echo $RANK $LOCAL_RANK $1", "-", "a b"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(variables.iter().copied())
            .output();
        stand_in::text(&output.unwrap().stdout)
    };
    let hydra = [("PMI_RANK", "3"), ("MPI_LOCALRANKID", "1")];
    assert_eq!(rank(&hydra), "3 1 a b\n");
    let pals = [
        ("PMIX_RANK", "5"),
        ("PALS_LOCAL_RANKID", "2"),
        ("PMI_RANK", "3"),
    ];
    assert_eq!(rank(&pals), "5 2 a b\n");
    assert_eq!(rank(&[]), "", "no rank, no run");
}

#[test]
fn mvapich_is_tuned_unless_the_user_did() {
    let case = Case::new(HOSTS);
    case.site.launcher("mpirun", "MVAPICH2 2.3.7");
    case.site.file("work/.deepspeed_env", "MV2_USE_CUDA=0\n");
    let line = line(&case.outer(&case.request(MultinodeLauncher::Mvapich)));
    let start = "-np 4 -ppn 2 -hosts h1,h2 -env NCCL_DEBUG=INFO -env MV2_USE_CUDA=0";
    assert!(line.starts_with(start), "{line}");
    assert!(line.contains(" -env MASTER_ADDR=10.0.0.1 "), "{line}");
    assert!(line.contains(" -env MV2_SUPPORT_DL=1 "), "{line}");
    assert!(!line.contains("MV2_USE_CUDA=1"), "{line}");
    assert!(line.ends_with(" python -u train.py --name=a b"), "{line}");
}

#[test]
fn equal_slots_are_needed_where_mpi_counts_per_host() {
    let case = Case::new("h1 slots=2\nh2 slots=4\n");
    case.site.launcher("mpirun", MPICH);
    case.site.launcher("srun", "");
    for backend in [
        MultinodeLauncher::Mpich,
        MultinodeLauncher::Mvapich,
        MultinodeLauncher::Slurm,
    ] {
        let error = case.error(&case.request(backend));
        let text = format!(
            "the launcher `{backend}` starts equally many processes on each host: expected 2 on \
             `h2` as on `h1`, found 4"
        );
        assert_eq!(error.to_string(), text);
        assert!(error.hint().unwrap().contains("pdsh"));
        let request = Request {
            num_processes: count(4),
            ..case.request(backend)
        };
        case.outer(&request);
    }
}

#[test]
fn the_mpi_must_be_the_one_that_was_named() {
    let case = Case::new(HOSTS);
    case.site.launcher("mpirun", OPEN_MPI);
    let error = case.error(&case.request(MultinodeLauncher::Mpich));
    assert!(
        error.to_string().contains("is of Open MPI: expected MPICH"),
        "{error}"
    );
    case.site.launcher("mpirun", MPICH);
    let error = case.error(&case.request(MultinodeLauncher::OpenMpi));
    assert!(matches!(error, HostsError::WrongMpi { .. }));
}

#[test]
fn slurm_is_asked_for_the_hosts_or_left_to_choose() {
    let case = Case::new(HOSTS);
    case.site.launcher("srun", "");
    case.site.file("work/.deepspeed_env", "LIST=a,b\nX=1\n");
    let request = case.request(MultinodeLauncher::Slurm);
    let outer = case.outer(&request);
    let line_of_hosts = line(&outer);
    let start = format!(
        "-n 4 --nodelist h1,h2 --nodes 2 --ntasks-per-node 2 --gpus-per-node 2 \
         --export=ALL,NCCL_DEBUG=INFO,X=1,PYTHONPATH={},ACCELERATE_MIXED_PRECISION=bf16,\
         MASTER_ADDR=10.0.0.1,MASTER_PORT=29500 sh -c ",
        case.site.path("work").display()
    );
    assert!(line_of_hosts.starts_with(&start), "{line_of_hosts}");
    let note = outer.notes.iter().find(|note| note.contains("`LIST`"));
    assert!(note.unwrap().contains("comma"), "{outer:?}");

    let request = Request {
        hostfile: None,
        num_processes: count(6),
        master_addr: None,
        cpu: true,
        ..request
    };
    let outer = case.outer(&request);
    let line = line(&outer);
    assert!(
        line.starts_with("-n 6 --nodes 2 --ntasks-per-node 3 --export=ALL,"),
        "{line}"
    );
    assert!(!line.contains("MASTER_ADDR=1"), "{line}");
    let odd = Request {
        num_processes: count(5),
        ..request
    };
    assert!(matches!(case.error(&odd), HostsError::Uneven { .. }));
    let open = Request {
        num_processes: None,
        ..request
    };
    assert!(matches!(case.error(&open), HostsError::NoProcessCount));
}

#[test]
fn a_task_of_slurm_learns_its_rank_and_the_first_host() {
    let case = Case::new(HOSTS);
    case.site.launcher("srun", "");
    case.site.program("scontrol", "echo \"$3\" | tr , '\\n'");
    let request = Request {
        master_addr: None,
        ..case.request(MultinodeLauncher::Slurm)
    };
    let outer = case.outer(&request);
    let arguments = &outer.program.arguments;
    let at = arguments.iter().position(|word| word == "sh").unwrap();
    let path = [
        case.site.path("bin").into_os_string(),
        "/usr/bin:/bin".into(),
    ];
    let names = "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR";
    let output = std::process::Command::new("sh")
        .args(&arguments[at + 1..at + 4])
        .args(["sh", "-c", names])
        .env_clear()
        .env("PATH", path.join(":".as_ref()))
        .envs([
            ("SLURM_PROCID", "3"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_NODELIST", "n7,n8"),
        ])
        .output()
        .unwrap();
    assert_eq!(stand_in::text(&output.stdout), "3 1 4 2 n7\n", "{output:?}");
}

#[test]
fn nossh_is_the_share_of_this_machine() {
    let case = Case::new("h1 slots=2\nh2 slots=4\n");
    let request = Request {
        machine_rank: Some(1),
        ..case.request(MultinodeLauncher::NoSsh)
    };
    let Route::Node(share) = case.route(&request).unwrap() else {
        panic!("expected a share");
    };
    assert_eq!((share.host.as_str(), share.counts[0]), ("h2", 2));
    assert_eq!(
        (share.visible_devices(), share.counts),
        ("0,1,2,3".to_owned(), vec![2, 4])
    );
    assert_eq!(share.master.to_string(), "10.0.0.1:29500");
    let without_rank = Request {
        machine_rank: None,
        ..request
    };
    assert!(matches!(
        case.error(&without_rank),
        HostsError::NoMachineRank
    ));
    let too_high = Request {
        machine_rank: Some(2),
        ..request
    };
    assert!(matches!(
        case.error(&too_high),
        HostsError::MachineRank { .. }
    ));
    case.site.program("ssh", "echo 10.1.1.1");
    let without_address = Request {
        master_addr: None,
        ..request
    };
    assert!(matches!(
        case.error(&without_address),
        HostsError::NoMasterAddress
    ));
}

#[test]
fn numbers_that_do_not_fit_the_hostfile_are_refused() {
    let case = Case::new("h1 slots=2\nh2 slots=4\n");
    let request = case.request(MultinodeLauncher::Pdsh);
    let with = |number| Request {
        num_processes: count(number),
        ..request
    };
    assert!(matches!(case.error(&with(5)), HostsError::Uneven { .. }));
    let error = case.error(&with(8));
    assert_eq!(
        error.to_string(),
        "host `h1` has 2 slots: expected at least 4, one for each process"
    );
    let more_machines = Request {
        num_machines: NonZeroUsize::new(3).unwrap(),
        ..request
    };
    assert!(matches!(
        case.error(&more_machines),
        HostsError::MachineCount {
            hosts: 2,
            machines: 3
        }
    ));
    let no_file = Request {
        hostfile: None,
        ..request
    };
    assert!(matches!(
        case.error(&no_file),
        HostsError::NoHostfile { .. }
    ));
    let both = Request {
        include: Some("h1"),
        exclude: Some("h2"),
        ..request
    };
    let error = case.error(&both);
    assert!(matches!(error, HostsError::BothFilters));
    assert_eq!(error.exit_code(), std::process::ExitCode::from(2));
}

#[test]
fn a_program_that_is_missing_is_named() {
    let case = Case::new(HOSTS);
    for (backend, program) in [
        (MultinodeLauncher::Pdsh, "pdsh"),
        (MultinodeLauncher::Slurm, "srun"),
    ] {
        let error = case.error(&case.request(backend));
        assert!(
            error.to_string().contains(&format!("`{program}`")),
            "{error}"
        );
        assert!(error.hint().unwrap().contains("standard"));
    }
    let error = case.error(&case.request(MultinodeLauncher::OpenMpi));
    assert!(matches!(error, HostsError::MpiMissing));
}

#[test]
fn the_first_host_is_asked_for_its_address() {
    let case = Case::new(HOSTS);
    case.site.launcher("mpirun", MPICH);
    let request = Request {
        master_addr: None,
        ..case.request(MultinodeLauncher::Mpich)
    };
    assert!(matches!(case.error(&request), HostsError::NoMasterAddress));
    let answers = |body: &str| case.site.program("ssh", body);
    answers("case \"$*\" in *BatchMode=yes*' h1 hostname -I') echo '10.9.8.7 fe80::1';; esac");
    assert!(line(&case.outer(&request)).contains("-genv MASTER_ADDR 10.9.8.7 "));
    answers("echo 'h1: Permission denied (publickey).' >&2; exit 255");
    let error = case.error(&request);
    assert!(
        error
            .to_string()
            .ends_with("`ssh h1 hostname -I`: h1: Permission denied (publickey)."),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("--main_process_ip"));
    answers("exit 0");
    assert!(matches!(case.error(&request), HostsError::FirstHost { .. }));
}
