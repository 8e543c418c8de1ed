//! How ranks tell each other how far they are with a checkpoint.

use std::thread;
use std::time::{Duration, Instant};

use accelerate_torch::{ProcessGroup, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::collectives::gather_object;
use crate::state::{Attendance, PartialState};
use crate::{Error, Result};

/// How long a key is waited for before the rank that is to set it is asked whether it lives.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a rank that can be asked may not answer before it counts as lost.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a rank that cannot be asked may take, where the process group does not say.
const UNKNOWN: Duration = Duration::from_secs(30 * 60);
/// How often a key is looked for: soon at first, then less often.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);

/// The two ways to agree.
pub(super) enum Agreement<'a> {
    /// By collectives on the training's group, on the training's own thread.
    Collectives(&'a PartialState),
    /// By keys of the job's store, on any thread.
    Keys(Keys),
}

impl Agreement<'_> {
    /// What every rank brings, in the order of ranks.
    ///
    /// # Collective
    /// Every rank calls this.
    pub(super) fn gather<T: Serialize + DeserializeOwned>(&mut self, own: T) -> Result<Vec<T>> {
        match self {
            Self::Collectives(state) => gather_object(state, vec![own]),
            Self::Keys(keys) => keys.gather(&own),
        }
    }

    /// Tells ranks that still wait for this one that nothing more comes, as far as that goes:
    /// collectives fail by themselves.
    pub(super) fn give_up(&self) {
        if let Self::Keys(keys) = self {
            keys.give_up();
        }
    }

    /// An error of one rank is an error of all.
    ///
    /// # Collective
    /// Every rank calls this.
    pub(super) fn together<T>(&mut self, own: Result<T>) -> Result<T> {
        let fine = self.gather(own.is_ok())?;
        first_failure(own, &fine)
    }
}

/// An error of one rank is an error of all, told by collectives.
///
/// # Collective
/// Every rank calls this.
pub(crate) fn together<T>(state: &PartialState, own: Result<T>) -> Result<T> {
    Agreement::Collectives(state).together(own)
}

/// This rank's own result, or that another one failed.
pub(super) fn first_failure<T>(own: Result<T>, fine: &[bool]) -> Result<T> {
    match (own, fine.iter().position(|fine| !fine)) {
        (Ok(_), Some(rank)) => Err(Error::OtherRankFailed { rank }),
        (own, _) => own,
    }
}

/// Values that ranks leave for each other in the job's store, over a connection of their own.
///
/// No process group takes part, so nothing here can come between the training's collectives,
/// whichever of them runs meanwhile. A rank that has ended, or does not answer for long, is noticed
/// and fails the rest.
pub(super) struct Keys {
    state: PartialState,
    /// None for a process by itself.
    store: Option<Store>,
    /// The number of the save, the same on all ranks.
    save: u64,
    step: u32,
}

impl Keys {
    /// Opens a connection for the `save`-th save, and takes away what this rank left for an
    /// `earlier` one.
    ///
    /// Every rank has read that by then: it is a save of the same accelerator, which all of them
    /// have settled before they came to this one. One of another accelerator may be under way.
    pub(super) fn open(state: &PartialState, save: u64, earlier: Option<u64>) -> Result<Self> {
        let store = match state.process_group() {
            Some(group) => Some(group.store().reconnect()?),
            None => None,
        };
        let keys = Self {
            state: state.clone(),
            store,
            save,
            step: 0,
        };
        if let (Some(store), Some(earlier)) = (&keys.store, earlier) {
            for step in 0.. {
                if !store.delete(&key(earlier, step, state.process_index()))? {
                    break;
                }
            }
            store.delete(&given_up(earlier, state.process_index()))?;
        }
        Ok(keys)
    }

    fn gather<T: Serialize + DeserializeOwned>(&mut self, own: &T) -> Result<Vec<T>> {
        let encoded = serde_json::to_vec(own).map_err(Error::data)?;
        let decoded = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(Error::data);
        let step = self.step;
        self.step += 1;
        let Some(store) = &self.store else {
            return Ok(vec![decoded(&encoded)?]);
        };
        let of_rank = |rank| key(self.save, step, rank);
        store.set(&of_rank(self.state.process_index()), &encoded)?;
        let ranks = 0..self.state.num_processes();
        ranks
            .map(|rank| decoded(&self.value(store, &of_rank(rank), rank)?))
            .collect()
    }

    /// Tells the other ranks that this one sets no more keys. Where the store is lost they notice
    /// that themselves.
    fn give_up(&self) {
        let Some(store) = &self.store else { return };
        let key = given_up(self.save, self.state.process_index());
        // The connection may be what failed; another one is tried once.
        let told = store.set(&key, b"1");
        let told = told.or_else(|_| store.reconnect()?.set(&key, b"1"));
        if let Err(error) = told {
            tracing::debug!(%error, "the other ranks are not told that a save was given up here");
        }
    }

    /// The value that `rank` sets, unless it is lost before.
    ///
    /// Looks for it now and then: libtorch logs a warning for each wait that runs into its timeout.
    fn value(&self, store: &Store, key: &str, rank: usize) -> Result<Vec<u8>> {
        let mut pause = FIRST_LOOK;
        let mut asked = Instant::now();
        let group = self.state.process_group();
        let mut absence = Absence::new(group.map_or(UNKNOWN, ProcessGroup::timeout));
        let given_up = given_up(self.save, rank);
        while !store.contains(key)? {
            if store.contains(&given_up)? {
                // It may have set this key just before.
                if store.contains(key)? {
                    break;
                }
                return Err(Error::OtherRankFailed { rank });
            }
            thread::sleep(pause);
            pause = LAST_LOOK.min(2 * pause);
            if asked.elapsed() >= PATIENCE {
                let attendance = self.state.attendance(store, rank)?;
                if absence.is_loss(attendance, Instant::now()) && !store.contains(key)? {
                    return Err(Error::OtherRankFailed { rank });
                }
                asked = Instant::now();
            }
        }
        Ok(store.get(key, PATIENCE)?)
    }
}

fn key(save: u64, step: u32, rank: usize) -> String {
    format!("accelerate/checkpoint/{save}/{step}/{rank}")
}

fn given_up(save: u64, rank: usize) -> String {
    format!("accelerate/checkpoint/{save}/given_up/{rank}")
}

/// For how long a rank has shown no life.
struct Absence {
    /// How long one that cannot be asked may take.
    unknown: Duration,
    since: Option<(Attendance, Instant)>,
}

impl Absence {
    fn new(unknown: Duration) -> Self {
        Self {
            unknown,
            since: None,
        }
    }

    /// Whether the rank is lost, by what was found of it `now`.
    fn is_loss(&mut self, found: Attendance, now: Instant) -> bool {
        let limit = match found {
            Attendance::Here => {
                self.since = None;
                return false;
            }
            Attendance::Ended | Attendance::Left => return true,
            Attendance::Silent => SILENCE,
            Attendance::Unknown => self.unknown,
        };
        let same = self.since.filter(|(before, _)| *before == found);
        let (_, since) = *self.since.insert(same.unwrap_or((found, now)));
        now.duration_since(since) > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_borne_for_a_while() {
        let mut absence = Absence::new(2 * SILENCE);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!absence.is_loss(Attendance::Silent, at(0)));
        assert!(!absence.is_loss(Attendance::Silent, at(59)));
        assert!(!absence.is_loss(Attendance::Here, at(60)));
        assert!(!absence.is_loss(Attendance::Silent, at(61)));
        assert!(!absence.is_loss(Attendance::Silent, at(121)));
        assert!(absence.is_loss(Attendance::Silent, at(122)));
        assert!(!absence.is_loss(Attendance::Unknown, at(130)));
        assert!(!absence.is_loss(Attendance::Unknown, at(250)));
        assert!(absence.is_loss(Attendance::Unknown, at(251)));
    }

    #[test]
    fn who_has_ended_or_left_is_lost_at_once() {
        for gone in [Attendance::Ended, Attendance::Left] {
            assert!(Absence::new(UNKNOWN).is_loss(gone, Instant::now()));
        }
    }
}
