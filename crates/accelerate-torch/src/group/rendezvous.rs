//! How the ranks of a job come together.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::{GroupOptions, ProcessGroup};
use crate::{Error, Result, Store, store::TcpStoreOptions};

/// Where and as whom a process joins its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendezvous {
    /// The host of rank 0.
    pub host: String,
    /// The port of the store.
    pub port: u16,
    /// This process.
    pub rank: usize,
    /// All processes.
    pub world: usize,
    /// Who serves the store.
    pub server: StoreServer,
}

/// Who serves the store at which the ranks meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreServer {
    /// Rank 0.
    #[default]
    Rank0,
    /// A launcher, so that rank 0 too is a client. Python's `torchrun` does this.
    Launcher,
}

/// What is known while ranks are awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Who is waiting.
    pub rank: usize,
    /// How many ranks are expected.
    pub world: usize,
    /// Host and port of the store.
    pub address: String,
    /// The ranks that have come.
    pub joined: Vec<usize>,
    /// Those that have not. Ranks of Python do not say that they come; they are counted
    /// here until the group is up.
    pub missing: Vec<usize>,
    /// For how long.
    pub waited: Duration,
}

/// How long ranks are awaited before the first report, and between two.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// How often a rank asks whether rank 0 is there.
const PROBE_EVERY: Duration = Duration::from_millis(2);
/// How long the store may take to answer a question about who has come.
const ANSWER: Duration = Duration::from_secs(1);

impl Rendezvous {
    /// Joins the job and connects its ranks.
    ///
    /// After ten seconds, and every ten after, `report` is called with who is missing,
    /// from another thread.
    ///
    /// # Collective
    /// Every rank of the job calls this, or `init_process_group` in Python.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] and [`Error::Unreachable`] name the address;
    /// [`Error::RanksMissing`] names the ranks that did not come within the timeout.
    pub fn join(
        &self,
        options: &GroupOptions,
        report: impl FnMut(&Waiting) + Send + 'static,
    ) -> Result<ProcessGroup> {
        self.join_greeting(options, report, |_| Ok(()))
    }

    /// Like [`join`](Self::join); `greet` leaves something in the store of the group that
    /// every rank finds there as soon as it has joined.
    ///
    /// # Errors
    /// As [`join`](Self::join), and that of `greet`.
    pub fn join_greeting(
        &self,
        options: &GroupOptions,
        report: impl FnMut(&Waiting) + Send + 'static,
        greet: impl FnOnce(&Store) -> Result<()>,
    ) -> Result<ProcessGroup> {
        self.join_reporting(options, REPORT_EVERY, report, greet)
    }

    fn join_reporting(
        &self,
        options: &GroupOptions,
        every: Duration,
        mut report: impl FnMut(&Waiting) + Send + 'static,
        greet: impl FnOnce(&Store) -> Result<()>,
    ) -> Result<ProcessGroup> {
        let start = Instant::now();
        let serves = self.rank == 0 && self.server == StoreServer::Rank0;
        if !serves {
            self.await_server(start, options.timeout, every, &mut report)?;
        }
        let store = Store::tcp(&TcpStoreOptions {
            host: self.host.clone(),
            port: self.port,
            server: serves,
            workers: Some(self.world),
            timeout: options.timeout,
        })?;
        greet(&ProcessGroup::base_store(&store)?)?;
        store.set(&joined_key(self.rank), b"1")?;
        let watch = Watch::start(self.clone(), store.reconnect()?, every, report);
        let joined = store
            .wait_for_workers()
            .and_then(|()| ProcessGroup::new(&store, self.rank, self.world, options));
        drop(watch);
        joined.map_err(|error| self.explain(error, &store, start, options.timeout))
    }

    /// Waits until the store is served.
    ///
    /// libtorch's own client tries again only after half a second or more; asking often
    /// brings ranks together as soon as they can be, and lets them say what they wait for.
    fn await_server(
        &self,
        start: Instant,
        timeout: Duration,
        every: Duration,
        report: &mut impl FnMut(&Waiting),
    ) -> Result<()> {
        let mut next_report = every;
        while !self.server_answers() {
            let waited = start.elapsed();
            if waited >= timeout {
                return Err(Error::RanksMissing {
                    address: self.address(),
                    world: self.world,
                    missing: vec![0],
                    timeout,
                });
            }
            if waited >= next_report {
                next_report += every;
                report(&Waiting {
                    rank: self.rank,
                    world: self.world,
                    address: self.address(),
                    joined: vec![self.rank],
                    missing: vec![0],
                    waited,
                });
            }
            thread::sleep(PROBE_EVERY);
        }
        Ok(())
    }

    /// Whether somebody listens at the address.
    fn server_answers(&self) -> bool {
        let Ok(mut addresses) = (self.host.as_str(), self.port).to_socket_addrs() else {
            return false;
        };
        addresses.any(|address| TcpStream::connect_timeout(&address, ANSWER).is_ok())
    }

    fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// A timeout while ranks are missing is about them.
    fn explain(&self, error: Error, store: &Store, start: Instant, timeout: Duration) -> Error {
        if start.elapsed() + Duration::from_millis(500) < timeout {
            return error;
        }
        match self.waiting(store, start) {
            Ok(Waiting { missing, .. }) if !missing.is_empty() => Error::RanksMissing {
                address: self.address(),
                world: self.world,
                missing,
                timeout,
            },
            _ => error,
        }
    }

    fn waiting(&self, store: &Store, start: Instant) -> Result<Waiting> {
        let (mut joined, mut missing) = (Vec::new(), Vec::new());
        for rank in 0..self.world {
            let there = store.contains(&joined_key(rank))?;
            if there { &mut joined } else { &mut missing }.push(rank);
        }
        Ok(Waiting {
            rank: self.rank,
            world: self.world,
            address: self.address(),
            joined,
            missing,
            waited: start.elapsed(),
        })
    }
}

fn joined_key(rank: usize) -> String {
    format!("accelerate/joined/{rank}")
}

/// A thread that reports who is missing until it is dropped.
struct Watch {
    stop: mpsc::Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Watch {
    fn start(
        rendezvous: Rendezvous,
        store: Store,
        every: Duration,
        mut report: impl FnMut(&Waiting) + Send + 'static,
    ) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if let Ok(waiting) = rendezvous.waiting(&store, start) {
                    report(&waiting);
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        // The thread may be asking a store that no longer answers; it ends by itself then.
        let Some(thread) = self.thread.take() else {
            return;
        };
        let limit = Instant::now() + ANSWER;
        while !thread.is_finished() && Instant::now() < limit {
            thread::sleep(Duration::from_micros(200));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Backend;
    use std::net::TcpListener;

    #[test]
    fn missing_ranks_are_reported_while_they_are_awaited() {
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let first = Rendezvous {
            host: "127.0.0.1".to_owned(),
            port,
            rank: 0,
            world: 3,
            server: StoreServer::Rank0,
        };
        let options = GroupOptions::new(Backend::Gloo).with_timeout(Duration::from_secs(1));
        let (tell, told) = mpsc::channel();
        let every = Duration::from_millis(100);
        let error = first
            .join_reporting(
                &options,
                every,
                move |waiting| drop(tell.send(waiting.clone())),
                |_| Ok(()),
            )
            .unwrap_err();
        assert!(
            matches!(&error, Error::RanksMissing { world: 3, missing, .. } if *missing == [1, 2]),
            "{error}"
        );
        let reports: Vec<_> = told.iter().collect();
        assert!(reports.len() >= 2, "{reports:?}");
        for report in &reports {
            assert_eq!((report.rank, report.world), (0, 3));
            assert_eq!(
                (&report.joined[..], &report.missing[..]),
                (&[0][..], &[1, 2][..])
            );
            assert_eq!(report.address, format!("127.0.0.1:{port}"));
        }
        assert!(reports.iter().is_sorted_by_key(|report| report.waited));
    }

    #[test]
    fn rank_0_is_a_client_where_the_launcher_serves_the_store() -> Result<()> {
        let timeout = Duration::from_secs(20);
        let launcher = Store::tcp(&TcpStoreOptions {
            host: "127.0.0.1".to_owned(),
            port: 0,
            server: true,
            workers: None,
            timeout,
        })?;
        let rendezvous = Rendezvous {
            host: "127.0.0.1".to_owned(),
            port: launcher.port()?,
            rank: 0,
            world: 1,
            server: StoreServer::Launcher,
        };
        let options = GroupOptions::new(Backend::Gloo).with_timeout(timeout);
        let group = rendezvous.join(&options, |_| {})?;
        group.barrier()?;
        assert!(launcher.contains(&joined_key(0))?);
        Ok(())
    }

    #[test]
    fn a_rank_whose_server_never_comes_says_so_and_gives_up_in_time() {
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let second = Rendezvous {
            host: "127.0.0.1".to_owned(),
            port,
            rank: 1,
            world: 2,
            server: StoreServer::Rank0,
        };
        let options = GroupOptions::new(Backend::Gloo).with_timeout(Duration::from_millis(500));
        let (tell, told) = mpsc::channel();
        let error = second
            .join_reporting(
                &options,
                Duration::from_millis(100),
                move |waiting| drop(tell.send(waiting.clone())),
                |_| Ok(()),
            )
            .unwrap_err();
        assert!(
            matches!(&error, Error::RanksMissing { missing, .. } if *missing == [0]),
            "{error}"
        );
        let report = told.iter().next().unwrap();
        assert_eq!((report.rank, &report.missing[..]), (1, &[0][..]));
    }
}
