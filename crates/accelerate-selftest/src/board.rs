//! The store of the job, in which ranks leave notes for each other.
//!
//! It is the store through which the ranks have met, seen through connections of our own: notes
//! arrive also while the ranks' group is stuck. Rank 0 (or the launcher) serves it; where that
//! process stands still, so does the board. A process by itself serves one for itself.

use std::time::Duration;

use accelerate_plan::env::{self, Environment};
use accelerate_plan::topology::Topology;
use accelerate_torch::{Store, TcpStoreOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// How long it may take to reach the store, which is there already.
const REACH: Duration = Duration::from_secs(10);

/// One connection to the board.
#[derive(Debug)]
pub(crate) struct Board {
    store: Store,
    address: TcpStoreOptions,
    prefix: String,
}

impl Board {
    /// Reaches the store of this process's job.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) fn of_job() -> Result<Self, Failure> {
        let env = Environment::from_process();
        let topology = Topology::read(&env)?;
        let mut address = TcpStoreOptions {
            host: "127.0.0.1".to_owned(),
            port: 0,
            server: true,
            workers: None,
            timeout: REACH,
        };
        if let Some(topology) = topology.filter(|topology| topology.world_size() > 1) {
            address.host.clone_from(&topology.master().addr);
            address.port = topology.master().port.get();
            address.server = false;
        }
        // A store that the launcher serves holds the notes of processes that were restarted.
        let restarts = env.get(&env::RESTART_COUNT)?.unwrap_or(0);
        let store = Store::tcp(&address)?;
        address.port = store.port()?;
        address.server = false;
        let prefix = format!("accelerate-selftest/{restarts}");
        Self::through(&store, address, prefix)
    }

    /// Another connection, for a thread that must not wait for this one.
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) fn reconnect(&self) -> Result<Self, Failure> {
        let store = Store::tcp(&self.address)?;
        Self::through(&store, self.address.clone(), self.prefix.clone())
    }

    fn through(store: &Store, address: TcpStoreOptions, prefix: String) -> Result<Self, Failure> {
        Ok(Self {
            store: store.prefixed(&prefix)?,
            address,
            prefix,
        })
    }

    /// Leaves a note for all ranks.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn post(&self, key: &str, note: &impl Serialize) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(note).map_err(|source| Failure::Note { rank: 0, source })?;
        Ok(self.store.set(key, &bytes)?)
    }

    /// Reads the note that `rank` leaves, once it is there.
    ///
    /// # Errors
    /// If it does not come within `patience`, or cannot be read.
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        key: &str,
        rank: usize,
        patience: Duration,
    ) -> Result<T, Failure> {
        let bytes = self.store.get(key, patience)?;
        serde_json::from_slice(&bytes).map_err(|source| Failure::Note { rank, source })
    }

    /// Whether a note is there.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn has(&self, key: &str) -> Result<bool, Failure> {
        Ok(self.store.contains(key)?)
    }

    /// Adds to a count that starts at 0, and returns it.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub(crate) fn count(&self, key: &str, amount: i64) -> Result<i64, Failure> {
        Ok(self.store.add(key, amount)?)
    }
}
