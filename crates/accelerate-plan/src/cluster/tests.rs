use super::*;
use crate::Hint as _;

/// The second of two tasks of a SLURM step on one machine.
const STEP: [(&str, &str); 8] = [
    ("SLURM_JOB_ID", "123456"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_PROCID", "1"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NODEID", "0"),
    ("SLURM_NTASKS", "2"),
    ("SLURM_NNODES", "1"),
    ("SLURM_JOB_NODELIST", "n[07-08]"),
];

const OPEN_MPI: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
];

fn read(
    base: &[(&'static str, &'static str)],
    more: &[(&'static str, &'static str)],
) -> Result<Option<Cluster>, ClusterError> {
    let pairs = base.iter().chain(more).copied();
    Cluster::read(&Environment::from_pairs(pairs))
}

/// The text of the error, with its hint.
fn refusal(base: &[(&'static str, &'static str)], more: &[(&'static str, &'static str)]) -> String {
    let error = read(base, more).unwrap_err();
    format!("{error}\n{}", error.hint().unwrap())
}

fn value(found: Option<Found<usize>>) -> Option<usize> {
    found.map(|found| found.value)
}

#[test]
fn two_local_tasks_of_slurm_are_described_in_one_line() {
    let cluster = read(&STEP, &[]).unwrap().unwrap();
    assert_eq!(cluster.manager(), Manager::Slurm);
    assert_eq!(
        cluster.to_string(),
        "SLURM: rank 1 of 2 (`SLURM_PROCID`, `SLURM_NTASKS`), local rank 1 of 2 \
         (`SLURM_LOCALID`, `SLURM_NTASKS`), machine 0 of 1 (`SLURM_NODEID`, `SLURM_NNODES`); \
         SLURM job 123456 on n07, n08"
    );
    let rendezvous = cluster.rendezvous().unwrap();
    assert_eq!(rendezvous.to_string(), "n07:18456");
}

#[test]
fn tasks_may_be_spread_unevenly() {
    let third = [
        ("SLURM_JOB_ID", "9"),
        ("SLURM_STEP_ID", "3"),
        ("SLURM_PROCID", "6"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "3"),
        ("SLURM_STEP_NUM_TASKS", "7"),
        ("SLURM_STEP_NUM_NODES", "4"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"),
        ("SLURM_STEP_NODELIST", "a[1-3],b"),
        // Kept from the job around the step.
        ("SLURM_NTASKS", "64"),
        ("SLURM_NNODES", "8"),
        ("SLURM_JOB_NODELIST", "a[1-7],b"),
    ];
    let cluster = read(&third, &[]).unwrap().unwrap();
    assert_eq!(value(cluster.local_world_size()), Some(1));
    assert_eq!(value(cluster.nodes()), Some(4));
    assert_eq!(cluster.world_size().variable, "SLURM_STEP_NUM_TASKS");
    let hosts = cluster.allocation().and_then(Allocation::hosts).unwrap();
    assert_eq!(hosts.value, ["a1", "a2", "a3", "b"]);
    assert_eq!(cluster.rendezvous().unwrap().to_string(), "a1:15009");
}

#[test]
fn a_shell_inside_a_job_is_no_task() {
    for step in [
        None,
        Some("batch"),
        Some("interactive"),
        Some("4294967291"),
        Some("4294967290"),
    ] {
        let step = step.map(|step| ("SLURM_STEP_ID", step));
        let pairs = STEP
            .into_iter()
            .filter(|(name, _)| *name != "SLURM_STEP_ID")
            .chain(step);
        let env = Environment::from_pairs(pairs);
        assert_eq!(Cluster::read(&env).unwrap(), None, "{step:?}");
        let job = Allocation::read(&env).unwrap().unwrap();
        assert_eq!(job.to_string(), "SLURM job 123456 on n07, n08");
    }
}

#[test]
fn one_task_is_none_of_several() {
    assert_eq!(
        read(&STEP, &[("SLURM_NTASKS", "1"), ("SLURM_PROCID", "0")]).unwrap(),
        None
    );
    assert_eq!(
        read(
            &[],
            &[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")]
        )
        .unwrap(),
        None
    );
    assert_eq!(read(&[], &[("PMIX_RANK", "1")]).unwrap(), None);
    assert_eq!(read(&[], &[]).unwrap(), None);
}

#[test]
fn mpi_launchers_are_read() {
    let cluster = read(&OPEN_MPI, &[("PMIX_RANK", "1")]).unwrap().unwrap();
    assert_eq!(cluster.manager(), Manager::OpenMpi);
    assert_eq!(value(cluster.local_rank()), Some(1));
    assert_eq!(cluster.rendezvous(), None, "no list of machines");
    assert_eq!(
        cluster.to_string(),
        "Open MPI: rank 1 of 2 (`OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`), local rank 1 of \
         2 (`OMPI_COMM_WORLD_LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_SIZE`)"
    );
    let pals = [
        ("PALS_RANKID", "5"),
        ("PALS_LOCAL_RANKID", "1"),
        ("PALS_NODEID", "1"),
        ("PMI_RANK", "5"),
        ("PMI_SIZE", "8"),
        ("PMI_LOCAL_SIZE", "4"),
    ];
    let cluster = read(&pals, &[]).unwrap().unwrap();
    assert_eq!(cluster.manager(), Manager::Pals);
    assert_eq!(cluster.world_size().variable, "PMI_SIZE");
    assert_eq!(value(cluster.local_world_size()), Some(4));
    assert_eq!(value(cluster.node_rank()), Some(1));
}

#[test]
fn an_mpi_launcher_inside_a_slurm_job_is_right_about_its_own_processes() {
    let daemons = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_PROCID", "1"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "1"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_NNODES", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
    ];
    let ranks = [
        ("OMPI_COMM_WORLD_RANK", "5"),
        ("OMPI_COMM_WORLD_SIZE", "8"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ];
    let cluster = read(&daemons, &ranks).unwrap().unwrap();
    assert_eq!(cluster.manager(), Manager::OpenMpi);
    assert_eq!(cluster.rank().value, 5);
    assert_eq!(cluster.rendezvous().unwrap().to_string(), "n1:15007");
}

#[test]
fn managers_that_agree_add_up() {
    let cluster = read(&STEP, &OPEN_MPI).unwrap().unwrap();
    assert_eq!(cluster.manager(), Manager::Slurm);
    assert_eq!(
        cluster.local_world_size().unwrap().variable,
        "OMPI_COMM_WORLD_LOCAL_SIZE"
    );
}

#[test]
fn managers_that_disagree_are_refused_with_both_variables() {
    let text = refusal(
        &STEP,
        &[("SLURM_NTASKS", "4"), ("OMPI_COMM_WORLD_SIZE", "2")],
    );
    assert!(
        text.starts_with(
            "SLURM and Open MPI disagree about the number of processes: expected `SLURM_NTASKS` \
             (4) to equal `OMPI_COMM_WORLD_SIZE` (2)"
        ),
        "{text}"
    );
    let text = refusal(&OPEN_MPI, &[("PMI_SIZE", "2"), ("PMI_RANK", "0")]);
    assert!(
        text.contains("`OMPI_COMM_WORLD_RANK` (1)") && text.contains("`PMI_RANK` (0)"),
        "{text}"
    );
    let text = refusal(&OPEN_MPI, &[("PMIX_RANK", "0")]);
    assert!(text.contains("`PMIX_RANK` (0)"), "{text}");
    let text = refusal(&OPEN_MPI, &[("PMI_SIZE", "1")]);
    assert!(text.contains("`PMI_SIZE` (1)"), "{text}");
}

#[test]
fn one_manager_must_not_contradict_itself() {
    for (more, named) in [
        (
            vec![("SLURM_PROCID", "2")],
            ["`SLURM_PROCID` (2)", "`SLURM_NTASKS` (2)"],
        ),
        (
            vec![("SLURM_NODEID", "1")],
            ["`SLURM_NODEID` (1)", "`SLURM_NNODES` (1)"],
        ),
        (
            vec![("SLURM_NNODES", "3")],
            ["`SLURM_NNODES` (3)", "`SLURM_NTASKS` (2)"],
        ),
        (
            vec![("SLURM_PROCID", "0")],
            ["`SLURM_LOCALID` (1)", "`SLURM_PROCID` (0)"],
        ),
        (
            vec![("SLURM_STEP_TASKS_PER_NODE", "3")],
            ["`SLURM_STEP_TASKS_PER_NODE`", "`SLURM_NTASKS` (2)"],
        ),
        (
            vec![("SLURM_STEP_TASKS_PER_NODE", "1(x2)")],
            ["`SLURM_STEP_TASKS_PER_NODE`", "`SLURM_NNODES` (1)"],
        ),
        (
            vec![
                ("SLURM_NNODES", "2"),
                ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
            ],
            ["`SLURM_LOCALID` (1)", "`SLURM_STEP_TASKS_PER_NODE` (1)"],
        ),
    ] {
        let text = refusal(&STEP, &more);
        assert!(named.iter().all(|name| text.contains(name)), "{text}");
    }
    let text = refusal(&OPEN_MPI, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "1")]);
    assert!(
        text.contains("`OMPI_COMM_WORLD_LOCAL_RANK` (1)")
            && text.contains("`OMPI_COMM_WORLD_LOCAL_SIZE` (1)"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_read_is_named() {
    for (more, named) in [
        (("SLURM_JOB_NODELIST", "n[1"), "`SLURM_JOB_NODELIST`"),
        (("SLURM_TASKS_PER_NODE", "2x"), "`SLURM_TASKS_PER_NODE`"),
        (("SLURM_PROCID", "one"), "`SLURM_PROCID`"),
        // Negative numbers say "not set".
        (("SLURM_PROCID", "-1"), "`SLURM_PROCID`"),
    ] {
        let text = refusal(&STEP, &[more]);
        assert!(text.contains(named), "{text}");
    }
}
