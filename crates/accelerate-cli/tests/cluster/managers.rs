//! What SLURM and MPI say about a process, believed or refused.

use crate::command::{Done, Folder, free_port};

type Variables<'a> = &'a [(&'a str, &'a str)];

const BODY: [&str; 3] = [
    "sh",
    "-c",
    "echo rank $RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT",
];

const OPEN_MPI: [[(&str, &str); 4]; 2] = [
    [
        ("OMPI_COMM_WORLD_RANK", "0"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ],
    [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ],
];

/// Two tasks of a SLURM step on one machine.
fn slurm(rank: &str) -> [(&str, &str); 7] {
    [
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_NNODES", "1"),
        ("SLURM_NODEID", "0"),
        ("SLURM_PROCID", rank),
        ("SLURM_LOCALID", rank),
    ]
}

/// One task of a SLURM step on each of two machines.
fn slurm_machine(rank: &str) -> [(&str, &str); 11] {
    [
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_NNODES", "2"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_NODEID", rank),
        ("SLURM_PROCID", rank),
        ("SLURM_LOCALID", "0"),
        ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
        ("SLURM_JOB_NODELIST", "n[07-08]"),
    ]
}

fn launch(variables: Variables<'_>, words: &[&str]) -> Done {
    let folder = Folder::new();
    let run = folder.launch(["--cpu"]).args(words).args(BODY);
    run.envs(variables.iter().copied()).done()
}

fn ok(variables: Variables<'_>, words: &[&str]) -> String {
    let done = launch(variables, words);
    done.assert_code(0);
    done.stdout
}

#[test]
fn each_task_of_a_manager_is_one_rank() {
    for (rank, variables) in OPEN_MPI.iter().enumerate() {
        let expected = format!("rank {rank}/2 local {rank}/2 at 127.0.0.1:29500\n");
        assert_eq!(ok(variables, &[]), expected);
        // The number of tasks may be repeated, and what else is given counts.
        let words = ["--num_processes", "2", "--main_process_port", "29511"];
        let expected = format!("rank {rank}/2 local {rank}/2 at 127.0.0.1:29511\n");
        assert_eq!(ok(variables, &words), expected);
    }
    for rank in ["0", "1"] {
        let expected = format!("rank {rank}/2 local {rank}/2 at 127.0.0.1:29500\n");
        assert_eq!(ok(&slurm(rank), &[]), expected);
    }
    let intel = [
        ("PMI_RANK", "1"),
        ("PMI_SIZE", "2"),
        ("MPI_LOCALRANKID", "1"),
        ("MPI_LOCALNRANKS", "2"),
        ("MASTER_ADDR", "10.1.2.3"),
        ("MASTER_PORT", "4000"),
    ];
    assert_eq!(ok(&intel, &[]), "rank 1/2 local 1/2 at 10.1.2.3:4000\n");
}

#[test]
fn the_place_is_said_once_with_the_variables() {
    let line = "Open MPI: rank 1 of 2 (`OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`), local rank 1 \
                of 2 (`OMPI_COMM_WORLD_LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_SIZE`)";
    let done = launch(&OPEN_MPI[1], &[]);
    assert_eq!(done.stderr.matches(line).count(), 1, "{done:#?}");
    done.assert_says("`--num_processes` was set to `2` (`OMPI_COMM_WORLD_SIZE` says so)");
    let quiet = launch(&OPEN_MPI[1], &["--quiet"]);
    assert_eq!(quiet.stderr, "");
    let dry = launch(&OPEN_MPI[1], &["--dry_run"]);
    dry.assert_prints(line).assert_prints("  RANK=1\n");
    let done = launch(&slurm("0"), &[]);
    done.assert_says("SLURM: rank 0 of 2 (`SLURM_PROCID`, `SLURM_NTASKS`)");
    done.assert_says("SLURM job 4711");
}

#[test]
fn a_file_for_other_jobs_does_not_count_processes_for_a_manager() {
    let folder = Folder::new();
    folder.write_default_config("distributed_type: MULTI_CPU\nnum_processes: 8\nuse_cpu: true\n");
    let run = folder.launch(BODY).envs(OPEN_MPI[1]);
    assert_eq!(run.done().stdout, "rank 1/2 local 1/2 at 127.0.0.1:29500\n");
    let show = folder.accelerate(["config", "show"]).envs(OPEN_MPI[1]);
    let show = show.done();
    let row = |line: &&str| line.starts_with("num_processes ");
    let row = show.stdout.lines().find(row).unwrap();
    assert!(
        row.ends_with("2              detected: `OMPI_COMM_WORLD_SIZE` says so"),
        "{row}"
    );
}

#[test]
fn contradictions_are_refused() {
    let with = |extra: &[(&'static str, &'static str)]| [&OPEN_MPI[0][..], extra].concat();
    for (variables, words, code, said) in [
        (
            with(&[]),
            &["--num_processes", "3"][..],
            2,
            "`num_processes` is `3` (flag `--num_processes`): expected `2`, because \
             `OMPI_COMM_WORLD_SIZE` says so",
        ),
        (
            with(&[("ACCELERATE_NUM_PROCESSES", "4")]),
            &[],
            2,
            "`num_processes` is `4` (variable `ACCELERATE_NUM_PROCESSES`): expected `2`",
        ),
        (
            with(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]),
            &[],
            1,
            "Open MPI and PMI disagree about the rank: expected `OMPI_COMM_WORLD_RANK` (0) to \
             equal `PMI_RANK` (1)",
        ),
        (
            with(&[("MV2_COMM_WORLD_RANK", "0"), ("MV2_COMM_WORLD_SIZE", "3")]),
            &[],
            1,
            "Open MPI and MVAPICH disagree about the number of processes",
        ),
        (
            with(&[("OMPI_COMM_WORLD_RANK", "5")]),
            &[],
            1,
            "expected `OMPI_COMM_WORLD_RANK` (5) to be below `OMPI_COMM_WORLD_SIZE` (2)",
        ),
        (
            with(&[("OMPI_COMM_WORLD_RANK", "one")]),
            &[],
            1,
            "environment variable `OMPI_COMM_WORLD_RANK` holds `one`",
        ),
        (
            vec![("PMI_SIZE", "2")],
            &[],
            1,
            "`PMI_SIZE` (2) tells of several processes, but `PMI_RANK` is not set",
        ),
        (
            [&slurm("0")[..], &[("SLURM_NNODES", "3")]].concat(),
            &[],
            1,
            "`SLURM_NNODES` (3)",
        ),
        (
            [&slurm_machine("1")[..], &[("SLURM_JOB_NODELIST", "n[7-")]].concat(),
            &[],
            1,
            "environment variable `SLURM_JOB_NODELIST` holds `n[7-`",
        ),
        (
            slurm_machine("1").to_vec(),
            &["--num_machines", "3", "--num_processes", "3"],
            2,
            "`num_machines` is `3` (flag `--num_machines`): expected `2`, because \
             `SLURM_STEP_NUM_TASKS` says so",
        ),
        (
            slurm_machine("1").to_vec(),
            &["--machine_rank", "0", "--num_processes", "2"],
            2,
            "`machine_rank` is `0` (flag `--machine_rank`): expected `1`, because `SLURM_PROCID` \
             says so",
        ),
    ] {
        let done = launch(&variables, words);
        done.assert_code(code)
            .assert_says(said)
            .assert_says("hint: ");
        assert_eq!(done.stdout, "");
    }
}

#[test]
fn a_task_on_each_machine_starts_the_ranks_of_its_machine() {
    let dry = launch(&slurm_machine("1"), &["--num_processes", "4", "--dry_run"]);
    dry.assert_code(0);
    for line in [
        "num_machines = 2  (detected: `SLURM_STEP_NUM_TASKS` says so)",
        "machine_rank = 1  (detected: `SLURM_PROCID` says so)",
        "main_process_ip = n07  (detected: the first host of the SLURM job)",
        "main_process_port = ",
        "SLURM: rank 1 of 2 (`SLURM_PROCID`, `SLURM_STEP_NUM_TASKS`)",
        "SLURM job 4711 on n07, n08",
        "processes on this machine: 2",
        "machines: 2, which meet at n07:",
    ] {
        dry.assert_prints(line);
    }
}

#[test]
fn tasks_on_two_machines_meet_and_a_file_for_all_of_them_may_number_one() {
    let folder = Folder::new();
    folder.write(
        "job.yaml",
        "distributed_type: MULTI_CPU\nuse_cpu: true\nmachine_rank: 0\nnum_machines: 2\n\
         num_processes: 2\nmain_process_ip: 127.0.0.1\n",
    );
    let port = free_port().to_string();
    let run = |rank| {
        let run = folder.launch(["--config_file", "job.yaml", "--no_prefix"]);
        let run = run.args(["--main_process_port", &port]);
        let body = "echo rank $RANK/$WORLD_SIZE machine $GROUP_RANK/$GROUP_WORLD_SIZE";
        run.args(["sh", "-c", body])
            .envs(slurm_machine(rank))
            .start()
    };
    for (rank, running) in [run("0"), run("1")].into_iter().enumerate() {
        let done = running.done();
        done.assert_code(0);
        assert_eq!(done.stdout, format!("rank {rank}/2 machine {rank}/2\n"));
        done.assert_says(&format!(
            "`--machine_rank` was set to `{rank}` (`SLURM_PROCID` says so)"
        ));
    }
}

#[test]
fn a_script_of_slurm_that_is_no_task_starts_what_it_is_told() {
    // A batch script has the variables of the job, but is not one of its tasks.
    let batch = [
        ("SLURM_JOB_ID", "4711"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_PROCID", "0"),
    ];
    let stdout = ok(&batch, &["--num_processes", "2", "--no_prefix"]);
    assert_eq!(stdout.lines().count(), 2, "{stdout}");
    assert!(stdout.contains("rank 1/2"), "{stdout}");
}

#[test]
fn every_number_of_a_task_that_is_a_rank_may_be_repeated_but_not_changed() {
    let variables = slurm("1");
    for (flag, right, wrong) in [
        ("--num_processes", "2", "3"),
        ("--num_machines", "1", "2"),
        ("--machine_rank", "0", "1"),
    ] {
        assert_eq!(launch(&variables, &[flag, right]).code, Some(0), "{flag}");
        let done = launch(&variables, &[flag, wrong]);
        let name = flag.trim_start_matches("--");
        done.assert_code(2);
        done.assert_says(&format!(
            "`{name}` is `{wrong}` (flag `{flag}`): expected `{right}`"
        ));
    }
    let flag = "--num_processes_per_machine";
    assert_eq!(launch(&OPEN_MPI[1], &[flag, "2"]).code, Some(0));
    launch(&OPEN_MPI[1], &[flag, "1"])
        .assert_code(2)
        .assert_says("expected `2`, because `OMPI_COMM_WORLD_LOCAL_SIZE` says so");
}
