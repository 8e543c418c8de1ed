//! Starting the ranks of a launch and waiting for them.

use std::env;
use std::num::NonZeroU16;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use accelerate_plan::env::LAUNCH_CALL;
use accelerate_torch::{Store, TcpStoreOptions};

use super::LaunchOptions;
use super::failure::Tail;
use crate::{Error, Result};

/// How long the store may take to answer a rank.
const STORE_TIMEOUT: Duration = Duration::from_secs(1800);

/// Runs the ranks, again and again while they fail and may be started again.
pub(super) fn with_restarts(options: &LaunchOptions, call: &str) -> Result<()> {
    let mut restart = 0;
    loop {
        match once(options, call, restart) {
            Err(error @ Error::LaunchFailed { .. }) if restart < options.max_restarts => {
                restart += 1;
                tracing::warn!(%error, "starting again, {restart} of {}", options.max_restarts);
            }
            outcome => return outcome,
        }
    }
}

fn once(options: &LaunchOptions, call: &str, restart: usize) -> Result<()> {
    // Kept until the ranks have ended.
    let (_store, port) = meeting_point(options)?;
    let mut ranks = Vec::new();
    for local in 0..options.num_processes() {
        ranks.push(Running::start(options, call, local, port, restart)?);
    }
    wait(options, &mut ranks)
}

/// The port of the meeting point, and the store there if the launcher serves it: then no
/// other program can take the port before the ranks come.
fn meeting_point(options: &LaunchOptions) -> Result<(Option<Store>, NonZeroU16)> {
    let wanted = options.port();
    if let (false, Some(port)) = (options.serves_store(), wanted) {
        return Ok((None, port));
    }
    let store = Store::tcp(&TcpStoreOptions {
        host: accelerate_plan::topology::LOOPBACK.to_owned(),
        port: wanted.map_or(0, NonZeroU16::get),
        server: true,
        workers: None,
        timeout: STORE_TIMEOUT,
    })?;
    let port = NonZeroU16::new(store.port()?).unwrap_or(NonZeroU16::MIN);
    Ok((Some(store), port))
}

/// Waits for all ranks, or for the first that fails.
fn wait(options: &LaunchOptions, ranks: &mut [Running]) -> Result<()> {
    let begin = Instant::now();
    loop {
        for rank in ranks.iter_mut() {
            rank.look()?;
        }
        if let Some(first) = first_failed(ranks) {
            let (rank, status) = (ranks[first].rank, ranks[first].described());
            ranks.iter_mut().for_each(Running::stop);
            return Err(Error::LaunchFailed {
                rank,
                world: options.world(),
                status,
                last_lines: ranks[first].tail.text(),
            });
        }
        let running: Vec<_> = ranks
            .iter()
            .filter(|rank| rank.status.is_none())
            .map(|rank| rank.rank)
            .collect();
        if running.is_empty() {
            return Ok(());
        }
        if let Some(deadline) = options.deadline.filter(|&limit| begin.elapsed() >= limit) {
            return Err(Error::LaunchDeadline { running, deadline });
        }
        thread::sleep(options.monitor_interval);
    }
}

/// Of the ranks that failed, the one whose output ended first: the others often fail
/// because of it.
fn first_failed(ranks: &[Running]) -> Option<usize> {
    let failed = ranks
        .iter()
        .enumerate()
        .filter(|(_, rank)| rank.has_failed());
    let (first, _) =
        failed.min_by_key(|(_, rank)| (rank.tail.ended().is_none(), rank.tail.ended()))?;
    Some(first)
}

/// One rank's process. It is stopped when this is dropped.
struct Running {
    rank: usize,
    child: Child,
    status: Option<ExitStatus>,
    tail: Arc<Tail>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn start(
        options: &LaunchOptions,
        call: &str,
        local: usize,
        port: NonZeroU16,
        restart: usize,
    ) -> Result<Self> {
        let rank = options.first_rank() + local;
        let failed = |source| Error::LaunchStart { rank, source };
        let mut command = Command::new(env::current_exe().map_err(failed)?);
        match &options.arguments {
            Some(arguments) => command.args(arguments),
            None => command.args(env::args_os().skip(1)),
        };
        let shown = || match options.captured {
            true => Stdio::null(),
            false => Stdio::inherit(),
        };
        let mut child = command
            .envs(options.overlay(local, port, restart)?.iter())
            .envs(
                options
                    .environment()
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .env(LAUNCH_CALL.name(), call)
            .stdin(Stdio::piped())
            .stdout(shown())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let tail = Arc::new(Tail::default());
        let stream = child.stderr.take();
        let reader = stream.map(|stream| tail.follow(stream, options.captured));
        Ok(Self {
            rank,
            child,
            status: None,
            tail,
            reader,
        })
    }

    fn look(&mut self) -> Result<()> {
        if self.status.is_none() {
            let rank = self.rank;
            let look = self.child.try_wait();
            self.status = look.map_err(|source| Error::LaunchStart { rank, source })?;
            if self.has_failed() {
                self.read_to_the_end();
            }
        }
        Ok(())
    }

    fn has_failed(&self) -> bool {
        self.status.is_some_and(|status| !status.success())
    }

    fn described(&self) -> String {
        self.status
            .map_or_else(|| "no exit code".to_owned(), |status| status.to_string())
    }

    /// Waits for the last lines. A process of the rank's own may hold its output open, so
    /// not for ever.
    fn read_to_the_end(&mut self) {
        let end = Instant::now() + Duration::from_millis(500);
        let Some(reader) = self.reader.take() else {
            return;
        };
        while !reader.is_finished() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(&mut self) {
        if self.status.is_none() {
            let _ = self.child.kill();
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
