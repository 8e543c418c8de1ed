//! Signs of life: every rank posts where it is, and sees where the others are.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Place, Shared, lock};
use crate::board::Board;
use crate::failure::Failure;

/// How often a sign is given.
const EVERY: Duration = Duration::from_millis(200);
/// More ranks look at each other less often: their questions go to one store.
const EVERY_FOR_EACH_RANK: Duration = Duration::from_millis(10);
/// Only a stage that takes this long makes a rank look at the others.
const LOOK_AFTER: Duration = Duration::from_millis(300);
/// How long the store may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// What a rank posts about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sign {
    /// Goes up with every sign.
    beat: u64,
    place: Place,
}

/// What is known about another rank.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) place: Place,
    beat: u64,
    /// When its last sign came that was new.
    pub(super) alive_at: Instant,
    /// When it was first seen in its place.
    pub(super) there_since: Instant,
}

impl Peer {
    /// A rank that was seen in `place` at `when`.
    #[cfg(test)]
    pub(super) fn seen(place: Place, when: Instant) -> Self {
        Self {
            place,
            beat: 1,
            alive_at: when,
            there_since: when,
        }
    }
}

/// What is known about all ranks.
#[derive(Debug)]
pub(super) struct View {
    pub(super) peers: Vec<Option<Peer>>,
    /// Since when the store owes an answer.
    pub(super) asked: Option<Instant>,
    last_words: Option<Board>,
}

impl View {
    pub(super) fn new(world: usize) -> Self {
        Self {
            peers: vec![None; world],
            asked: None,
            last_words: None,
        }
    }

    /// Gives the connection that is left for the last words.
    pub(super) fn connect(&mut self, board: Board) {
        self.last_words = Some(board);
    }

    pub(super) fn take_board(&mut self) -> Option<Board> {
        self.last_words.take()
    }

    fn see(&mut self, rank: usize, sign: Sign, now: Instant) {
        let Some(known) = self.peers.get_mut(rank) else {
            return;
        };
        match known {
            Some(peer) if peer.beat == sign.beat => {}
            Some(peer) => {
                if peer.place != sign.place {
                    peer.there_since = now;
                }
                peer.place = sign.place;
                peer.beat = sign.beat;
                peer.alive_at = now;
            }
            None => {
                *known = Some(Peer {
                    place: sign.place,
                    beat: sign.beat,
                    alive_at: now,
                    there_since: now,
                });
            }
        }
    }
}

/// Gives signs until told to stop.
pub(super) fn give(shared: &Shared, board: &Board, stopped: &Receiver<()>) {
    let ranks = u32::try_from(shared.world).unwrap_or(u32::MAX);
    let every = EVERY.max(EVERY_FOR_EACH_RANK.saturating_mul(ranks));
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        lock(&shared.view).asked = Some(Instant::now());
        // What cannot be reached now may be later; until then the view says for how long it is so.
        if post(shared, board)
            .and_then(|()| look(shared, board))
            .is_ok()
        {
            lock(&shared.view).asked = None;
        }
    }
}

/// Gives one sign.
pub(super) fn post(shared: &Shared, board: &Board) -> Result<(), Failure> {
    let sign = Sign {
        beat: shared.beats.fetch_add(1, Ordering::Relaxed),
        place: lock(&shared.here).place.clone(),
    };
    board.post(&key(shared.rank), &sign)
}

fn look(shared: &Shared, board: &Board) -> Result<(), Failure> {
    if lock(&shared.here).stage_since.elapsed() < LOOK_AFTER {
        return Ok(());
    }
    for rank in (0..shared.world).filter(|&rank| rank != shared.rank) {
        if board.has(&key(rank))? {
            let sign: Sign = board.read(&key(rank), rank, ANSWER)?;
            lock(&shared.view).see(rank, sign, Instant::now());
        }
    }
    Ok(())
}

fn key(rank: usize) -> String {
    format!("sign/{rank}")
}
