use std::{
    num::{NonZeroU16, NonZeroUsize},
    path::Path,
    process::Command,
};

use accelerate_plan::{
    MixedPrecision,
    env::{EnvOverlay, Environment, MIXED_PRECISION},
    topology::Rendezvous,
};
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::launch::hosts::{
    Outer,
    deepspeed::{MultinodeLauncher, Request, Route, node::NodeShare, route},
    stand_in::{self, Site, installed, script, words},
};

/// Runs the text for each host in a shell of this machine, as `pdsh` over `ssh` does elsewhere: the
/// input stays open and empty, and the largest exit code is passed on.
const PDSH: &str = r#"
while test $# -gt 1; do
    if test "$1" = -w; then hosts=$2; fi
    shift
done
fifo=$(mktemp -u)
mkfifo "$fifo"
exec 9<>"$fifo"
exec 8<"$fifo"
rm "$fifo"
mark=$(printf '\001')
number=0
children=
for host in $(echo "$hosts" | tr , ' '); do
    text=$(printf '%s' "$1" | sed "s/%%/$mark/g; s/%n/$number/g; s/$mark/%/g")
    sh -c "$text" <&8 8<&- 9>&- &
    children="$children $!"
    number=$((number + 1))
done
largest=0
for child in $children; do
    wait "$child"
    code=$?
    if test $code -gt $largest; then largest=$code; fi
done
exit $largest"#;

/// What the real `pdsh` calls: `ssh OPTIONS HOST TEXT`. Programs on another machine have no part in
/// the signals that `pdsh` blocks.
const SSH: &str = r#"
while test $# -gt 1; do shift; done
exec env --default-signal sh -c "$1""#;

/// Every `pdsh` there is: ours, and the real one if this machine has it.
fn each_pdsh(check: impl Fn(&Site)) {
    let site = Site::new();
    site.program("pdsh", PDSH);
    check(&site);
    if let Some(real) = installed("pdsh") {
        let site = Site::new();
        site.program("ssh", SSH);
        site.program("pdsh", &format!("exec {} \"$@\"", real.display()));
        check(&site);
    }
}

fn outer(site: &Site, environment: &Environment, command: &[OsString]) -> Outer {
    let mut overlay = EnvOverlay::new();
    overlay.set(&MIXED_PRECISION, &MixedPrecision::Bf16);
    let request = Request {
        backend: MultinodeLauncher::Pdsh,
        hostfile: Some(&site.file("hosts", "h1 slots=2\nh2 slots=4\n")),
        include: Some("h1:1@h2"),
        exclude: None,
        num_machines: NonZeroUsize::new(2).unwrap(),
        num_processes: None,
        machine_rank: None,
        master_addr: Some("10.0.0.1"),
        master_port: NonZeroU16::new(29500).unwrap(),
        cpu: false,
        program: &script(),
        command,
        node_flags: &words(["--zero_stage", "2", "--debug"]),
        python: Some(Path::new("/usr/bin/python3")),
        overlay: &overlay,
    };
    match route(&request, &site.machine(environment)).unwrap() {
        Route::Outer(outer) => outer,
        other => panic!("expected a command, found {other:?}"),
    }
}

/// The command with our programs in front of those of the system.
fn command(site: &Site, outer: &Outer) -> Command {
    let system = std::env::var_os("PATH").unwrap_or_default();
    let mut path = site.path("bin").into_os_string();
    path.push(":");
    path.push(system);
    let mut command = stand_in::command(outer);
    command.env("PATH", path);
    command
}

#[test]
fn the_flags_come_before_the_hosts_and_the_text_after_them() {
    let site = Site::new();
    site.program("pdsh", "");
    let environment = site.environment(&[]);
    let outer = outer(&site, &environment, &words(["train.py"]));
    let line = stand_in::line(&outer);
    let start = format!(
        "-R ssh -b -S -f 1024 -w h1,h2 cd {} && exec env ",
        site.path("work").display()
    );
    assert!(line.starts_with(&start), "{line}");
    assert!(
        line.ends_with(" --machine_rank %n --zero_stage 2 --debug -- train.py"),
        "{line}"
    );
    assert!(line.contains(" PYTHON_EXEC=/usr/bin/python3 ") || line.contains("'PYTHON_EXEC=/usr"));
}

#[test]
fn each_host_gets_its_number_and_the_words_as_they_were() {
    each_pdsh(|site| {
        let folder = site.path("work").display().to_string();
        let node = site.program(
            "node",
            &format!(
                "while test \"$1\" != --machine_rank; do shift; done\n\
                 {{ pwd; echo \"$VALUE|$ACCELERATE_MIXED_PRECISION|$ACCELERATE_WORLD_INFO\"; \
                 printf '[%s]\\n' \"$@\"; echo; }} > {folder}/node-$2\nexit $((3 + $2))"
            ),
        );
        let value = "a \"b\" $HOME 'c' %h %n 100%; `x` \\";
        site.file("work/.deepspeed_env", &format!("VALUE={value}\n"));
        let environment = site.environment(&[("ACCELERATE_REMOTE_BIN", node.to_str().unwrap())]);
        let odd = words([
            "train.py",
            "two words",
            "",
            "%n %% $x",
            "it's \"odd\"\nline",
            "--debug",
        ]);
        let outer = outer(site, &environment, &odd);
        let output = stand_in::output(command(site, &outer));
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        for rank in 0..2 {
            let text = site.read(&format!("work/node-{rank}"));
            let info = text.lines().nth(1).unwrap().rsplit('|').next().unwrap();
            let expected = format!(
                "{folder}\n{value}|bf16|{info}\n[--machine_rank]\n[{rank}]\n[--zero_stage]\n[2]\n\
                 [--debug]\n[--]\n[train.py]\n[two words]\n[]\n[%n %% $x]\n[it's \"odd\"\nline]\n\
                 [--debug]\n\n"
            );
            assert_eq!(text, expected);
            let told = Environment::from_pairs([(WORLD_INFO.name(), info)]);
            let share = NodeShare::from_environment(&told, rank, Rendezvous::default());
            let share = share.unwrap().unwrap();
            let slots = [vec![1], vec![0, 1, 2, 3]];
            assert_eq!(
                (share.slots, share.counts),
                (slots[rank].clone(), vec![1, 4])
            );
        }
    });
}

#[test]
fn the_launchers_of_the_hosts_end_when_the_command_is_killed() {
    each_pdsh(|site| {
        let folder = site.path("work").display().to_string();
        let node = site.program(
            "node",
            &format!(
                "while test \"$1\" != --machine_rank; do shift; done\n\
                 trap 'echo ended > {folder}/ended-'$2'; exit' TERM\n\
                 echo here > {folder}/started-$2\nwhile :; do sleep 0.02; done"
            ),
        );
        let environment = site.environment(&[("ACCELERATE_REMOTE_BIN", node.to_str().unwrap())]);
        let outer = outer(site, &environment, &words(["train.py"]));
        let mut child = command(site, &outer).spawn().unwrap();
        for rank in 0..2 {
            site.wait_for(&format!("work/started-{rank}"));
        }
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        for rank in 0..2 {
            assert_eq!(site.wait_for(&format!("work/ended-{rank}")), "ended\n");
        }
    });
}
