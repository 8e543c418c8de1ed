//! The clock: what happens when a stage takes too long, or a rank waits in vain.

use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use signal_hook::low_level;

use super::signs::{Peer, View};
use super::{Here, Place, Shared, lock};
use crate::failure::{FAILED, TIMED_OUT, seconds};
use crate::probe::Finding;
use crate::report;

const LOOK_EVERY: Duration = Duration::from_millis(25);
/// For how long a rank may have been gone from a stage that others are still in.
const IN_VAIN: Duration = Duration::from_secs(2);
/// Who has not given a sign for so long stands still.
const SILENCE: Duration = Duration::from_millis(1200);
/// The other ranks too get to tell where they are, and the launcher to read what is told.
const FAREWELL: Duration = Duration::from_millis(700);

/// How a stage ended on one rank: what it posts for the verdict.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) findings: Vec<Finding>,
    pub(crate) notes: Vec<String>,
    pub(crate) checks: usize,
    /// Whether this rank is stuck, so that nothing more can be tried.
    pub(crate) is_lost: bool,
}

impl Ended {
    /// Under which key rank `rank` posts the end of stage number `stage`.
    pub(crate) fn key(stage: usize, rank: usize) -> String {
        format!("ended/{stage}/{rank}")
    }
}

/// Looks at the clock until told to stop.
pub(super) fn watch(shared: &Shared, stopped: &Receiver<()>) {
    while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let here = lock(&shared.here).clone();
        let Some(limit) = here.limit else { continue };
        if here.stage_since.elapsed() > limit {
            give_up(shared, &here, limit);
        }
        let gone = gone(&lock(&shared.view), &here.place);
        if let Some((rank, error)) = gone {
            end_in_vain(shared, &here, rank, &error);
        }
    }
}

/// The time is over.
fn give_up(shared: &Shared, here: &Here, limit: Duration) -> ! {
    report::complain(&describe(shared, here, limit));
    lock(&shared.report).timed_out(&here.place.stage_name, here.stage_since.elapsed());
    leave(TIMED_OUT)
}

/// This rank waits for one that has left the stage with an error.
fn end_in_vain(shared: &Shared, here: &Here, rank: usize, error: &str) -> ! {
    let place = &here.place;
    let finding = Finding {
        rank: shared.rank,
        step: place.step_name.clone(),
        what: "the work of all ranks".to_owned(),
        expected: format!("rank {rank} to take part"),
        found: format!("that it had left the stage: {error}"),
    };
    report::complain(&format!(
        "rank {} of {}: waits in vain in stage `{}` at {}: rank {rank} has failed there: {error}",
        shared.rank,
        shared.world,
        place.stage_name,
        step(place),
    ));
    if shared.rank == 0 {
        let elapsed = here.stage_since.elapsed();
        lock(&shared.report).broken_off(&place.stage_name, elapsed, &[finding]);
    } else if let Some(board) = lock(&shared.view).take_board() {
        let ended = Ended {
            findings: vec![finding],
            is_lost: true,
            ..Ended::default()
        };
        // If rank 0 cannot be told, its own time will be over.
        let _ = board.post(&Ended::key(place.stage, shared.rank), &ended);
    }
    leave(FAILED)
}

/// Ends the process without waiting for the thread that is stuck.
fn leave(code: u8) -> ! {
    thread::sleep(FAREWELL);
    low_level::exit(i32::from(code))
}

/// A rank that has left the stage with an error some time ago, while this one is still in it.
fn gone(view: &View, place: &Place) -> Option<(usize, String)> {
    if place.step == place.steps {
        return None;
    }
    view.peers.iter().enumerate().find_map(|(rank, peer)| {
        let peer = peer.as_ref()?;
        let is_gone = peer.place.stage == place.stage && peer.there_since.elapsed() > IN_VAIN;
        peer.place
            .error
            .clone()
            .filter(|_| is_gone)
            .map(|error| (rank, error))
    })
}

/// Where this rank is, and for whom it waits.
fn describe(shared: &Shared, here: &Here, limit: Duration) -> String {
    let Shared { rank, world, .. } = shared;
    let place = &here.place;
    let mut text = format!(
        "rank {rank} of {world}: stage `{}` has not ended within {}\n  {} for {}\n",
        place.stage_name,
        seconds(limit),
        whereabouts(place),
        seconds(here.step_since.elapsed()),
    );
    let view = lock(&shared.view);
    let now = Instant::now();
    if let Some(asked) = view.asked.filter(|asked| now - *asked > SILENCE) {
        let _ = writeln!(
            text,
            "  the store of the job, which rank 0 or the launcher serves, has not answered for {}: \
             that process stands still, or its machine cannot be reached",
            seconds(now - asked)
        );
    } else if *world > 1 {
        text += &waited_for(&view, place, *rank, now);
    }
    text.truncate(text.trim_end().len());
    text
}

/// A line for each rank that is behind this one or stands still.
fn waited_for(view: &View, place: &Place, own: usize, now: Instant) -> String {
    let mut text = String::new();
    for (rank, peer) in view
        .peers
        .iter()
        .enumerate()
        .filter(|(rank, _)| *rank != own)
    {
        let Some(peer) = peer else {
            let _ = writeln!(
                text,
                "  waiting for rank {rank}, which has given no sign at all"
            );
            continue;
        };
        let quiet = now - peer.alive_at;
        let is_behind = (peer.place.stage, peer.place.step) < (place.stage, place.step);
        if quiet > SILENCE {
            let _ = writeln!(
                text,
                "  waiting for rank {rank}, last seen in {}; it has given no sign of life for {}: \
                 it stands still, or its machine cannot be reached",
                peer_place(peer, place),
                seconds(quiet)
            );
        } else if is_behind {
            let _ = writeln!(
                text,
                "  waiting for rank {rank}, which is still in {} for {} and gives signs of life",
                peer_place(peer, place),
                seconds(now - peer.there_since)
            );
        }
    }
    if text.is_empty() {
        text += "  no rank is behind: the ranks wait for each other, or the machine is slow\n";
    }
    text
}

fn peer_place(peer: &Peer, own: &Place) -> String {
    if peer.place.stage == own.stage {
        return step(&peer.place);
    }
    format!("stage `{}` at {}", peer.place.stage_name, step(&peer.place))
}

fn whereabouts(place: &Place) -> String {
    match place.step == place.steps {
        true => "done with it, waiting for the others".to_owned(),
        false => format!("in {}", step(place)),
    }
}

fn step(place: &Place) -> String {
    match place.step == place.steps {
        true => "the agreement on the result".to_owned(),
        false => format!(
            "`{}`, {} of {}",
            place.step_name,
            place.step + 1,
            place.steps
        ),
    }
}

#[cfg(test)]
mod tests;
