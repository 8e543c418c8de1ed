//! Machines of a DeepSpeed host file, reached by stand-ins that write down what they were given.

use crate::command::{Done, Folder, free_port};

/// Writes down its words and variables, and returns 7.
const STAND_IN: &str = "\
if test \"$1\" = --version; then echo 'mpirun (Open MPI) 4.1.4'; exit; fi
printf '%s\\n' \"$@\" > words
env > variables
exit 7";

/// A stand-in for `pdsh` that runs the command of each host here. Their input stays open, as that of
/// `ssh` does, and ends with this script.
const LOCAL_PDSH: &str = r#"
while test "$1" != -w; do shift; done
number=0
mkfifo input
exec 9<>input
for host in $(echo "$2" | tr , ' '); do
    command=$(printf '%s' "$3" | sed "s/%n/$number/g; s/%%/%/g")
    sh -c "$command" <input 9>&- &
    started="$started $!"
    number=$((number + 1))
done
for one in $started; do wait "$one" || exit $?; done"#;

fn config(launcher: &str) -> String {
    format!(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nuse_cpu: true\n\
         mixed_precision: bf16\nmain_process_ip: 10.0.0.1\nmain_process_port: 29600\n\
         num_machines: 2\nnum_processes: 4\ndeepspeed_config:\n  \
         deepspeed_multinode_launcher: {launcher}\n  deepspeed_hostfile: hosts\n  zero_stage: 3\n  \
         gradient_accumulation_steps: 2\n"
    )
}

fn site(launcher: &str) -> Folder {
    let folder = Folder::new();
    folder.write("job.yaml", &config(launcher));
    folder.write("hosts", "# two machines\nw0 slots=2\nw1 slots=2\n");
    for program in ["pdsh", "mpirun", "srun"] {
        folder.program(program, STAND_IN);
    }
    folder
}

fn launch(folder: &Folder, flags: &[&str]) -> Done {
    let run = folder.launch(["--config_file", "job.yaml"]).args(flags);
    let run = run.args(["sh", "train.sh", "--name", "a b"]);
    let run = run.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    run.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").done()
}

fn words(folder: &Folder) -> Vec<String> {
    folder.read("words").lines().map(str::to_owned).collect()
}

/// The words that follow one another on a command line.
#[track_caller]
fn assert_has(found: &[String], expected: &[&str]) {
    let has = found
        .windows(expected.len())
        .any(|window| window == expected);
    assert!(has, "no {expected:?} in {found:?}");
}

#[test]
fn pdsh_starts_a_launcher_on_each_host() {
    let folder = site("pdsh");
    let done = launch(&folder, &[]);
    done.assert_code(7).assert_says("`sh through pdsh` failed");
    let found = words(&folder);
    assert_has(&found, &["-w", "w0,w1"]);
    let remote = found.last().unwrap();
    for part in [
        "launch --num_machines 2 --num_processes 4 --main_process_ip 10.0.0.1 \
         --main_process_port 29600 --deepspeed_multinode_launcher standard --machine_rank %n",
        "--zero_stage 3",
        "--gradient_accumulation_steps 2",
        "--mixed_precision bf16",
        "'ACCELERATE_USE_DEEPSPEED=true'",
        "-- sh train.sh --name 'a b'",
    ] {
        assert!(remote.contains(part), "no `{part}` in {remote}");
    }
}

#[test]
fn filters_and_numbers_choose_hosts() {
    let folder = site("pdsh");
    let hosts = |flags: &[&str]| {
        launch(&folder, flags).assert_code(7);
        let found = words(&folder);
        let place = found.iter().position(|word| word == "-w").unwrap();
        let remote = found.last().unwrap();
        let count = remote.split("--num_processes ").nth(1).unwrap();
        let count = count.split(' ').next().unwrap();
        format!("{} {count}", found[place + 1])
    };
    assert_eq!(hosts(&["--deepspeed_inclusion_filter", "w1"]), "w1 2");
    assert_eq!(
        hosts(&["--deepspeed_inclusion_filter", "w0:1@w1"]),
        "w0,w1 3"
    );
    assert_eq!(hosts(&["--deepspeed_exclusion_filter", "w0:0"]), "w0,w1 3");
    assert_eq!(hosts(&["--num_processes", "2"]), "w0,w1 2");
    // By file too.
    let filtered = format!("{}  deepspeed_exclusion_filter: w0\n", config("pdsh"));
    folder.write("job.yaml", &filtered);
    assert_eq!(hosts(&[]), "w1 2");

    for (flags, code, said) in [
        (
            ["--deepspeed_exclusion_filter", "w9"],
            1,
            "a filter names host `w9`",
        ),
        (
            ["--deepspeed_exclusion_filter", "w0:5"],
            1,
            "a filter names slot 5 of host `w0`",
        ),
        (
            ["--deepspeed_exclusion_filter", "w0@w1"],
            1,
            "the filters leave no host",
        ),
        (
            ["--deepspeed_exclusion_filter", "w0:x"],
            2,
            "cannot read `w0:x` of a filter",
        ),
        (
            ["--deepspeed_inclusion_filter", "w1"],
            2,
            "`deepspeed_exclusion_filter` is `w0`",
        ),
        (
            ["--deepspeed_hostfile", "no"],
            1,
            "cannot read the hostfile `no`",
        ),
    ] {
        launch(&folder, &flags).assert_code(code).assert_says(said);
    }
    folder.write("job.yaml", &config("pdsh"));
    for (hosts, said) in [
        (
            "w0 slots=two\nw1 slots=2\n",
            "hosts:1: expected `host slots=N`",
        ),
        (
            "w0 slots=2\nw0 slots=2\n",
            "hosts:2: host `w0` was listed in line 1 already",
        ),
        ("# none\n", "the hostfile `hosts` lists no host"),
        (
            "w0 slots=4\n",
            "the hostfile lists 1 hosts, but the job has 2 machines",
        ),
    ] {
        folder.write("hosts", hosts);
        launch(&folder, &[]).assert_code(1).assert_says(said);
    }
}

#[test]
fn mpi_and_slurm_start_the_ranks_themselves() {
    let folder = site("openmpi");
    launch(&folder, &[]).assert_code(7);
    let found = words(&folder);
    assert_has(&found, &["-n", "4", "-hostfile", "hosts"]);
    assert_has(&found, &["train.sh", "--name", "a b"]);
    let folder = site("slurm");
    launch(&folder, &[]).assert_code(7);
    assert_has(&words(&folder), &["-n", "4"]);
    let folder = site("mpich");
    let done = launch(&folder, &[]);
    done.assert_code(1)
        .assert_says("is of Open MPI: expected MPICH or Intel MPI");
}

#[test]
fn a_dry_run_shows_the_command_and_writes_nothing() {
    for (launcher, program) in [("pdsh", "pdsh"), ("openmpi", "mpirun"), ("slurm", "srun")] {
        let folder = site(launcher);
        let done = launch(&folder, &["--dry_run"]);
        done.assert_code(0);
        done.assert_prints(&format!(
            "deepspeed_multinode_launcher = {launcher}  (job.yaml:10)"
        ));
        done.assert_prints(&format!("/bin/{program} "));
        done.assert_prints("started and numbered by `");
        for name in ["words", ".deepspeed_env"] {
            assert!(!folder.path(name).exists(), "{launcher}: {name}");
        }
    }
}

#[test]
fn nossh_and_standard_are_work_for_the_launcher_of_each_machine() {
    for launcher in ["nossh", "standard"] {
        let folder = site(launcher);
        folder.write("hosts", "w0 slots=1\nw1 slots=2\n");
        let port = free_port().to_string();
        let run = |rank| {
            let flags = [
                "--config_file",
                "job.yaml",
                "--no_prefix",
                "--machine_rank",
                rank,
            ];
            let run = folder.launch(flags).args(["--num_processes", "3"]);
            let run = run.args(["--main_process_ip", "127.0.0.1"]);
            let run = run.args(["--main_process_port", &port]);
            let body = "echo $RANK/$WORLD_SIZE on $GROUP_RANK zero \
                        $ACCELERATE_DEEPSPEED_ZERO_STAGE $ACCELERATE_USE_DEEPSPEED";
            run.args(["sh", "-c", body]).start()
        };
        let all = [run("0"), run("1")].map(crate::command::Running::done);
        let mut lines: Vec<_> = all.iter().flat_map(Done::lines).collect();
        lines.sort_unstable();
        // The file says 1 + 2; without it, the first machine has one more.
        let machines = match launcher {
            "nossh" => [0, 1, 1],
            _ => [0, 0, 1],
        };
        for done in &all {
            done.assert_code(0);
        }
        let expected = machines
            .iter()
            .enumerate()
            .map(|(rank, machine)| format!("{rank}/3 on {machine} zero 3 true"));
        assert_eq!(lines, expected.collect::<Vec<_>>(), "{launcher}");
    }
    let folder = site("nossh");
    let done = launch(&folder, &[]);
    done.assert_code(2)
        .assert_says("the launcher `nossh` needs the number of this machine");
    let done = launch(&folder, &["--machine_rank", "1", "--dry_run"]);
    done.assert_code(0)
        .assert_prints("machines: 2, which meet at 10.0.0.1:29600");
}

#[test]
fn the_launchers_that_pdsh_starts_do_the_job() {
    let folder = site("pdsh");
    folder.program("pdsh", LOCAL_PDSH);
    folder.write("hosts", "w0 slots=1\nw1 slots=2\n");
    let port = free_port().to_string();
    let flags = [
        "--config_file",
        "job.yaml",
        "--num_processes",
        "3",
        "--main_process_ip",
    ];
    let run = folder
        .launch(flags)
        .args(["127.0.0.1", "--main_process_port", &port]);
    let body = "echo \"rank $RANK of $WORLD_SIZE: $ACCELERATE_DEEPSPEED_ZERO_STAGE \
                $ACCELERATE_MIXED_PRECISION $ACCELERATE_CONFIG_DS_FIELDS 100%\"";
    let done = run.args(["sh", "-c", body]).done();
    done.assert_code(0);
    let fields = "deepspeed_multinode_launcher,deepspeed_hostfile,zero_stage,\
                  gradient_accumulation_steps,mixed_precision";
    for rank in 0..3 {
        done.assert_prints(&format!("rank {rank} of 3: 3 bf16 {fields} 100%\n"));
    }
}
