//! A thread that looks after the other nodes while a round goes on.
//!
//! It waits for the end of the round on a connection of its own, shows that this node is alive, and
//! looks whether the next node is: nodes look after each other in a ring.

use std::{
    fmt, io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    agreement::Seat,
    interrupt::Interrupt,
    keys,
    round::{End, PeerEvent},
    store::client::{HangUp, StoreClient, StoreError},
};

/// Written in the place of a count by a node that has succeeded and does not wait for others.
pub(super) const LEFT: &[u8] = b"left";

/// How often launchers of Python are looked after: nobody writes an end for them.
const PYTHON_INTERVAL: Duration = Duration::from_secs(1);

/// How often a wait for an event looks whether it is to end.
const GLANCE: Duration = Duration::from_millis(20);

/// What a watcher has to know of its round.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) round: usize,
    /// This node.
    pub(super) node: usize,
    pub(super) seats: Vec<Seat>,
    /// How often nodes show that they are alive.
    pub(super) beat: Duration,
    /// After how many of these times without a sign a node is lost.
    pub(super) misses: u32,
    pub(super) endpoint: String,
    pub(super) keeps_store: bool,
}

/// A running watcher. Dropping it ends it.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    hang_up: Option<HangUp>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

type Deliver = Box<dyn Fn(PeerEvent) + Send>;

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    news: Mutex<News>,
    arrived: Condvar,
}

#[derive(Default)]
struct News {
    event: Option<PeerEvent>,
    deliver: Option<Deliver>,
}

impl Watcher {
    pub(super) fn start(store: StoreClient, watched: Watched) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let hang_up = store.hang_up()?;
        let mut rounds = Rounds {
            neighbour: Neighbour::of(&watched),
            store,
            watched,
            shared: Arc::clone(&shared),
        };
        let thread = thread::Builder::new()
            .name("nodes".to_owned())
            .spawn(move || rounds.run())?;
        Ok(Self {
            shared,
            hang_up: Some(hang_up),
            thread: Some(thread),
        })
    }

    /// Calls `deliver` with the event of this round: now, if there was one, or when it comes.
    pub(super) fn subscribe(&self, deliver: Deliver) {
        let mut news = self.shared.news();
        let Some(event) = news.event.clone() else {
            news.deliver = Some(deliver);
            return;
        };
        // Whoever is told may ask.
        drop(news);
        deliver(event);
    }

    /// The event of this round, if there was one.
    pub(super) fn event(&self) -> Option<PeerEvent> {
        self.shared.news().event.clone()
    }

    /// Waits for the event of this round.
    pub(super) fn wait(&self, limit: Duration, interrupt: &Interrupt) -> Option<PeerEvent> {
        let started = Instant::now();
        let mut news = self.shared.news();
        while news.event.is_none() && !interrupt.is_set() {
            let left = limit.checked_sub(started.elapsed())?;
            let waited = self.shared.arrived.wait_timeout(news, left.min(GLANCE));
            (news, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        news.event.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        drop(self.hang_up.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: PeerEvent) {
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let mut news = self.news();
        news.event = Some(event.clone());
        let deliver = news.deliver.take();
        drop(news);
        self.arrived.notify_all();
        if let Some(deliver) = deliver {
            deliver(event);
        }
    }
}

struct Rounds {
    store: StoreClient,
    watched: Watched,
    neighbour: Option<Neighbour>,
    shared: Arc<Shared>,
}

impl Rounds {
    fn run(&mut self) {
        let end = self.until_end();
        if end.is_ok() && !self.watched.keeps_store {
            // So that the store is not closed before all have heard; more it cannot do.
            let _ = self.store.add(&keys::heard(self.watched.round), 1);
        }
        let event = match end {
            // Ours. That we are lost is news, though: others have given us up.
            Ok(End::Failed { node, .. }) if node == self.watched.node => {
                return;
            }
            Ok(End::Failed {
                node,
                host,
                failure,
            }) => PeerEvent::Failed {
                node,
                host,
                failure,
            },
            Ok(End::Lost { node, host }) => PeerEvent::Lost { node, host },
            Ok(End::Done) => PeerEvent::Finished,
            Ok(End::Closed) => PeerEvent::Unwatched,
            Err(_) => PeerEvent::StoreLost {
                endpoint: self.watched.endpoint.clone(),
            },
        };
        self.shared.tell(event);
    }

    fn until_end(&mut self) -> Result<End, StoreError> {
        let end = keys::end(self.watched.round);
        let python = self.watched.seats.iter().any(|seat| seat.token.is_none());
        let mut next_beat = Instant::now();
        loop {
            if Instant::now() >= next_beat {
                self.beat()?;
                next_beat = Instant::now() + self.watched.beat;
            }
            let mut pause = next_beat.saturating_duration_since(Instant::now());
            if python {
                pause = pause.min(PYTHON_INTERVAL);
            }
            if self.store.wait(&[&end], pause)? {
                let text = self.store.get(&end)?.unwrap_or_default();
                return serde_json::from_slice(&text).map_err(|_| StoreError::Foreign);
            }
            if python && self.store.exist(&[keys::ALL_DONE])? {
                return Ok(End::Done);
            }
            if python {
                self.look_for_python()?;
            }
        }
    }

    fn beat(&mut self) -> Result<(), StoreError> {
        let seat = self.watched.seats.get(self.watched.node);
        if let Some(token) = seat.and_then(|seat| seat.token.as_deref()) {
            self.store.add(&keys::beat(token), 1)?;
        }
        let Some(neighbour) = &mut self.neighbour else {
            return Ok(());
        };
        let count = self.store.get(&keys::beat(&neighbour.token))?;
        let silence = self.watched.beat * self.watched.misses;
        if neighbour.is_lost(count, silence) {
            let node = neighbour.node;
            self.lost(node)?;
        }
        Ok(())
    }

    fn look_for_python(&mut self) -> Result<(), StoreError> {
        for node in 0..self.watched.seats.len() {
            let gone = format!("{}{node}", keys::AGENT_GONE);
            if self.watched.seats[node].token.is_none() && self.store.exist(&[&gone])? {
                self.lost(node)?;
            }
        }
        Ok(())
    }

    fn lost(&mut self, node: usize) -> Result<(), StoreError> {
        let host = self.watched.seats[node].host.clone();
        let end = serde_json::to_vec(&End::Lost { node, host });
        let end = end.map_err(|_| StoreError::Foreign)?;
        self.store
            .set_once(&keys::end(self.watched.round), &end)
            .map(drop)
    }
}

/// The next node of ours in the ring.
#[derive(Debug)]
struct Neighbour {
    node: usize,
    token: String,
    count: Option<Vec<u8>>,
    since: Instant,
}

impl Neighbour {
    fn of(watched: &Watched) -> Option<Self> {
        let nodes = watched.seats.len();
        let others = (1..nodes).map(|step| (watched.node + step) % nodes);
        let with_token = |node: usize| Some((node, watched.seats.get(node)?.token.clone()?));
        let (node, token) = others.into_iter().find_map(with_token)?;
        Some(Self {
            node,
            token,
            count: None,
            since: Instant::now(),
        })
    }

    /// Takes notice of what the neighbour has counted.
    fn is_lost(&mut self, count: Option<Vec<u8>>, silence: Duration) -> bool {
        if count != self.count || count.as_deref() == Some(LEFT) {
            self.count = count;
            self.since = Instant::now();
        }
        self.since.elapsed() > silence
    }
}
