use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::rank::{Rank, TEST};

/// How long a test of several processes may take before it fails.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often running ranks are looked at.
const TICK: Duration = Duration::from_millis(5);

/// What one rank left behind.
#[derive(Debug)]
pub struct RankOutput {
    /// Its number.
    pub rank: usize,
    /// How it ended; `None` if it was ended at the deadline or because another rank failed.
    pub status: Option<ExitStatus>,
    /// What it wrote, standard output first.
    pub text: String,
}

/// Runs `body` on real ranks, once for every number of processes in `worlds`.
///
/// To be called first thing in a test, on the test's own thread. Rank 0, which serves the store that
/// all others ask, leaves when these have ended, however early its `body` is through; a test of a
/// rank 0 that leaves before the others calls [`std::process::exit`].
///
/// # Panics
/// If a rank fails or the minute is over, as tests report failures.
pub fn ranks<E: Into<Box<dyn Error>>>(worlds: &[usize], body: impl FnOnce(Rank) -> Result<(), E>) {
    ranks_within(DEADLINE, worlds, body);
}

/// Like [`ranks`], with another deadline for each number of processes.
///
/// # Panics
/// As [`ranks`].
pub fn ranks_within<E: Into<Box<dyn Error>>>(
    deadline: Duration,
    worlds: &[usize],
    body: impl FnOnce(Rank) -> Result<(), E>,
) {
    let test = test_name();
    if let Some(rank) = Rank::of_this_process(&test) {
        if let Err(error) = body(rank) {
            fail(&chain(&*error.into()));
        }
        if rank.index() == 0 {
            // Closed by the test's own process when the others have ended.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
        }
        return;
    }
    for &world in worlds {
        let outputs = run(world, deadline, Leave::LastIfFirst, |rank| {
            same_test(&test, rank)
        })
        .unwrap_or_else(|error| fail(&format!("cannot start {world} ranks: {error}")));
        if outputs
            .iter()
            .any(|output| !output.status.is_some_and(|s| s.success()))
        {
            fail(&report(world, deadline, &outputs));
        }
    }
}

/// Starts one command per rank and waits for all of them.
///
/// When one fails the others have a second to end by themselves. Gives back what each
/// left, in order of rank.
///
/// # Errors
/// If a command cannot be started or waited for.
pub fn start_ranks(
    world: usize,
    deadline: Duration,
    command: impl Fn(Rank) -> Command,
) -> io::Result<Vec<RankOutput>> {
    run(world, deadline, Leave::AtWill, command)
}

/// When a rank that is through may leave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leave {
    AtWill,
    /// Rank 0 after all others, told by the end of its standard input.
    LastIfFirst,
}

fn run(
    world: usize,
    deadline: Duration,
    leave: Leave,
    command: impl Fn(Rank) -> Command,
) -> io::Result<Vec<RankOutput>> {
    let (_held, port) = held_port()?;
    let mut running = (0..world)
        .map(|index| {
            let leave = if index == 0 { leave } else { Leave::AtWill };
            Running::start(index, leave, command(Rank::new(index, world, port)))
        })
        .collect::<io::Result<Vec<_>>>()?;
    let mut end = Instant::now() + deadline;
    let mut failed = false;
    loop {
        for rank in &mut running {
            rank.look()?;
        }
        if running.iter().all(|rank| rank.status.is_some()) {
            break;
        }
        if let [first, others @ ..] = &mut running[..]
            && others.iter().all(|rank| rank.status.is_some())
        {
            first.held = None;
        }
        if !failed
            && running
                .iter()
                .any(|rank| rank.status.is_some_and(|s| !s.success()))
        {
            failed = true;
            end = end.min(Instant::now() + Duration::from_secs(1));
        }
        if Instant::now() > end {
            break;
        }
        thread::sleep(TICK);
    }
    Ok(running.into_iter().map(Running::finish).collect())
}

/// A rank's process with threads that read what it writes.
struct Running {
    rank: usize,
    child: Child,
    status: Option<ExitStatus>,
    /// Keeps a rank that is through from leaving.
    held: Option<ChildStdin>,
    readers: [thread::JoinHandle<Vec<u8>>; 2],
}

impl Running {
    fn start(rank: usize, leave: Leave, mut command: Command) -> io::Result<Self> {
        let stdin = match leave {
            Leave::AtWill => Stdio::null(),
            Leave::LastIfFirst => Stdio::piped(),
        };
        let mut child = command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let readers = [read_all(child.stdout.take()), read_all(child.stderr.take())];
        Ok(Self {
            rank,
            held: child.stdin.take(),
            child,
            status: None,
            readers,
        })
    }

    fn look(&mut self) -> io::Result<()> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(())
    }

    fn finish(mut self) -> RankOutput {
        drop(self.held.take());
        if self.status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let text = self
            .readers
            .into_iter()
            .flat_map(|reader| reader.join().unwrap_or_default())
            .collect::<Vec<u8>>();
        let text = String::from_utf8_lossy(&text).into_owned();
        RankOutput {
            rank: self.rank,
            status: self.status,
            text,
        }
    }
}

fn read_all(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut all);
        }
        all
    })
}

/// The name that the test harness runs this test by.
fn test_name() -> String {
    match thread::current().name() {
        Some("main") | None => fail("`ranks` has to be called on the test's own thread"),
        Some(name) => name.to_owned(),
    }
}

fn same_test(test: &str, rank: Rank) -> Command {
    let program =
        env::current_exe().unwrap_or_else(|error| fail(&format!("no path to this test: {error}")));
    let mut command = Command::new(program);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(TEST, test)
        .envs(rank.environment());
    command
}

/// A port that nobody else is given while the socket exists. Rank 0 can still listen on it: both
/// sockets allow sharing, and this one does not listen.
fn held_port() -> io::Result<(OwnedFd, u16)> {
    // Of both families; of IPv4 where there is no IPv6.
    hold(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))
        .or_else(|_| hold(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))))
}

fn hold(address: SocketAddr) -> io::Result<(OwnedFd, u16)> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    net::bind(&socket, &address)?;
    // Not before: the system is to pick a port that nobody has.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    let port = SocketAddr::try_from(net::getsockname(&socket)?)?.port();
    Ok((socket, port))
}

fn report(world: usize, deadline: Duration, outputs: &[RankOutput]) -> String {
    let mut text = format!("a run with {world} ranks failed (deadline {deadline:?})\n");
    for output in outputs {
        let status = output.status.map_or_else(
            || "ended by the test".to_owned(),
            |status| status.to_string(),
        );
        let _ = writeln!(
            text,
            "--- rank {}: {status}\n{}",
            output.rank,
            output.text.trim_end()
        );
    }
    text
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let _ = write!(text, "\n  caused by: {cause}");
        next = cause.source();
    }
    text
}

#[expect(clippy::panic, reason = "a test reports its failure by panicking")]
fn fail(message: &str) -> ! {
    panic!("{message}")
}
