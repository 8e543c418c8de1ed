//! What the server writes for a client that is gone without a goodbye.
//!
//! A client signs a will by setting a key below [`PLACE`] to a [`Will`], and takes it back by
//! deleting that key. A server of PyTorch keeps such keys as it keeps any other.
//!
//! Python's launcher signs nothing. It is known by the key that says which ranks it has
//! ([`AgentKeys`]), and it says goodbye by counting itself among those that are done.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{server::Connection, wire::Bytes};

/// Part of the key of every will.
pub(crate) const PLACE: &str = "/accelerate/will/";

/// To be written if its client is gone, unless the key exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Will {
    /// With all prefixes.
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The keys by which a launcher of Python is followed, with all prefixes.
#[derive(Debug, Clone)]
pub(crate) struct AgentKeys {
    /// Before the number of the node, set when it has joined.
    pub(crate) joined: String,
    /// The counter of those that are done.
    pub(crate) done: String,
    /// Before the number of the node, set by the server when the launcher is gone.
    pub(crate) gone: String,
}

#[derive(Debug, Default)]
pub(super) struct Wills {
    signed: HashMap<Bytes, (Connection, Will)>,
    /// Connections that have ever signed one.
    ours: HashSet<Connection>,
    /// Launchers of Python, with the key that tells they are gone.
    agents: HashMap<Connection, Bytes>,
    agent_keys: Option<AgentKeys>,
}

impl Wills {
    pub(super) fn new(agent_keys: Option<AgentKeys>) -> Self {
        Self {
            agent_keys,
            ..Self::default()
        }
    }

    /// Takes notice of a key that a client has set; returns one that has to go for it.
    pub(super) fn set(&mut self, client: Connection, key: &[u8], value: &[u8]) -> Option<Bytes> {
        if is_will(key) {
            if let Ok(will) = serde_json::from_slice(value) {
                self.ours.insert(client);
                self.agents.remove(&client);
                self.signed.insert(key.to_vec(), (client, will));
            }
            return None;
        }
        let keys = self.agent_keys.as_ref()?;
        let node = key.strip_prefix(keys.joined.as_bytes())?;
        if self.ours.contains(&client) {
            return None;
        }
        let gone = [keys.gone.as_bytes(), node].concat();
        self.agents.insert(client, gone.clone());
        Some(gone)
    }

    /// Takes notice of a counter that a client has changed.
    pub(super) fn added(&mut self, client: Connection, key: &[u8]) {
        let done = self.agent_keys.as_ref().map(|keys| keys.done.as_bytes());
        if done == Some(key) {
            self.agents.remove(&client);
        }
    }

    /// Takes notice of a key that was deleted.
    pub(super) fn deleted(&mut self, key: &[u8]) {
        if is_will(key) {
            self.signed.remove(key);
        }
    }

    /// What to write for a client that is gone, unless the keys exist.
    pub(super) fn closed(&mut self, client: Connection) -> Vec<(Bytes, Bytes)> {
        self.ours.remove(&client);
        let gone = self.agents.remove(&client).map(|key| (key, b"1".to_vec()));
        let left = self
            .signed
            .extract_if(|_, (signer, _)| *signer == client)
            .map(|(_, (_, will))| (will.key.into_bytes(), will.value.into_bytes()));
        left.chain(gone).collect()
    }
}

fn is_will(key: &[u8]) -> bool {
    let place = PLACE.as_bytes();
    key.windows(place.len()).any(|part| part == place)
}
