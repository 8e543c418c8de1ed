//! A hundred launches in a row, each hit by a signal at a random moment: nothing stays behind.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use rustix::{
    net::{self, AddressFamily, SocketType},
    process::{Pid, Signal, kill_process},
};

use crate::launcher::{Folder, Running, wait_until};

const LAUNCHES: usize = 100;

/// A rank with a child and a grandchild that has left its session. Some refuse to end politely.
const RANK: &str = r#"
    echo $$ >> "pids-$ROUND"
    echo "$MASTER_PORT" > "port-$ROUND-$RANK"
    case $RANK in 2) trap '' TERM INT HUP;; esac
    sleep 600 &
    (setsid sh -c 'test $RANK = 3 && trap "" TERM; sleep 600' &)
    echo "line of $RANK"
    wait"#;

/// Random numbers that a seed decides (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// `STRESS_SEED` repeats a run.
fn seed() -> u64 {
    let given = std::env::var("STRESS_SEED").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        u64::from(now.unwrap().subsec_nanos())
    })
}

#[test]
fn a_hundred_launches_with_a_random_kill_leave_nothing_behind() {
    let seed = seed();
    println!("STRESS_SEED={seed}");
    let folder = Folder::new();
    let script = folder.script("rank", RANK);
    let temporary = folder.path("temporary");
    fs::create_dir(&temporary).unwrap();
    let mut random = Random(seed);
    for round in 0..LAUNCHES {
        // A mark that all processes of this launch inherit.
        let round = format!("{seed}-{}-{round}", std::process::id());
        let running = folder
            .launch()
            .env("ROUND", &round)
            .env("TMPDIR", &temporary.display().to_string())
            .args([
                "--num_processes=4",
                "--grace_period=0.05",
                "--max_restarts=1",
            ])
            .args([&script])
            .start();
        thread::sleep(Duration::from_millis(random.below(150)));
        let what = hit(&folder, &round, &running, &mut random);
        let launcher = running.pid();
        running.wait();
        let what = format!("{what} in round {round}");
        let ranks = numbers(&folder.path(&format!("pids-{round}")));
        no_process(&round, &what);
        no_port(&folder, &round, &what);
        no_shared_memory(
            ranks.into_iter().chain([launcher.as_raw_nonzero().get()]),
            &what,
        );
        let left: Vec<_> = fs::read_dir(&temporary).unwrap().flatten().collect();
        assert!(left.is_empty(), "{what}: {left:?}");
    }
}

/// Sends a signal to the launcher or to a rank. Without a rank yet, the launcher has it.
fn hit(folder: &Folder, round: &str, running: &Running, random: &mut Random) -> String {
    let ranks = numbers(&folder.path(&format!("pids-{round}")));
    let choice = random.below(6);
    let (signal, name) = match choice {
        0 => (Signal::INT, "SIGINT"),
        1 => (Signal::TERM, "SIGTERM"),
        2 | 3 => (Signal::KILL, "SIGKILL"),
        4 => (Signal::SEGV, "SIGSEGV"),
        _ => (Signal::KILL, "SIGKILL"),
    };
    let index = usize::try_from(random.below(4)).unwrap();
    // A launcher that starts no rank yet may not listen yet, and have been told to ignore SIGINT, as
    // a shell tells what it starts in the background.
    let (signal, name) = match ranks.is_empty() && signal == Signal::INT {
        true => (Signal::TERM, "SIGTERM"),
        false => (signal, name),
    };
    match ranks.get(index).and_then(|pid| Pid::from_raw(*pid)) {
        Some(rank) if choice > 3 => {
            let _ = kill_process(rank, signal);
            // The failed job is started again, and ends somewhere on the way.
            thread::sleep(Duration::from_millis(random.below(150)));
            running.signal([Signal::TERM, Signal::KILL][usize::from(signal == Signal::KILL)]);
            format!("{name} for rank process {index}")
        }
        _ => {
            let signal = if choice > 3 { Signal::TERM } else { signal };
            running.signal(signal);
            format!("{name} for the launcher")
        }
    }
}

fn numbers(path: &Path) -> Vec<i32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// No process has the mark of this launch.
fn no_process(round: &str, what: &str) {
    let mark = format!("ROUND={round}");
    wait_until(&format!("all processes to end after {what}"), || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        !processes
            .filter_map(|process| fs::read(process.path().join("environ")).ok())
            .any(|environment| {
                let mut variables = environment.split(|byte| *byte == 0);
                variables.any(|variable| variable == mark.as_bytes())
            })
    });
}

/// The ports that the ranks were told are free, and nobody guards them.
fn no_port(folder: &Folder, round: &str, what: &str) {
    let ports: BTreeSet<u16> = (0..4)
        .filter_map(|rank| fs::read_to_string(folder.path(&format!("port-{round}-{rank}"))).ok())
        .filter_map(|text| text.trim().parse().ok())
        .collect();
    for port in ports {
        // A stranger may have the port for a moment.
        wait_until(&format!("port {port} after {what}"), || {
            let socket = net::socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
            let address = std::net::SocketAddrV6::new(std::net::Ipv6Addr::UNSPECIFIED, port, 0, 0);
            let guards = fs::read_to_string("/proc/net/unix").unwrap_or_default();
            let name = format!("accelerate-launch/port/{port}");
            net::bind(&socket, &address).is_ok()
                && !guards.lines().any(|line| line.ends_with(&name))
        });
    }
}

/// No segment of shared memory carries the number of one of our processes, as those of PyTorch and
/// NCCL do.
fn no_shared_memory(pids: impl IntoIterator<Item = i32>, what: &str) {
    let Ok(segments) = fs::read_dir("/dev/shm") else {
        return;
    };
    let names: Vec<String> = segments
        .flatten()
        .map(|segment| segment.file_name().to_string_lossy().into_owned())
        .collect();
    for pid in pids {
        let pid = pid.to_string();
        let ours = names.iter().find(|name| {
            let mut numbers = name.split(|character: char| !character.is_ascii_digit());
            numbers.any(|number| number == pid)
        });
        assert_eq!(ours, None, "{what}");
    }
}
