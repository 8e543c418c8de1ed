//! Hosts and the slots that are used on each of them.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::MultinodeLauncher;
use crate::launch::hosts::{HostsError, Result};

/// Hosts in the order of the hostfile, each with the slots that get a process. A slot is the number
/// of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Pool {
    hosts: IndexMap<String, Vec<usize>>,
}

impl Pool {
    pub(super) fn insert(&mut self, host: &str, slots: Vec<usize>) {
        self.hosts.insert(host.to_owned(), slots);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Number of hosts.
    pub(super) fn len(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.hosts
            .iter()
            .map(|(host, slots)| (host.as_str(), slots.as_slice()))
    }

    pub(super) fn slots(&self, host: &str) -> Option<&[usize]> {
        self.hosts.get(host).map(Vec::as_slice)
    }

    /// The host with this number, and its slots.
    pub(super) fn host(&self, index: usize) -> Option<(&str, &[usize])> {
        self.hosts().nth(index)
    }

    /// Number of processes.
    pub(super) fn total(&self) -> usize {
        self.hosts.values().map(Vec::len).sum()
    }

    /// Number of processes of each host, in order.
    pub(super) fn counts(&self) -> Vec<usize> {
        self.hosts.values().map(Vec::len).collect()
    }

    /// The names, joined with commas.
    pub(super) fn names(&self) -> String {
        let names: Vec<_> = self.hosts.keys().map(String::as_str).collect();
        names.join(",")
    }

    /// The number of processes that every host has.
    ///
    /// # Errors
    /// [`HostsError::UnequalSlots`].
    pub(super) fn per_host(&self, backend: MultinodeLauncher) -> Result<usize> {
        let (first, expected) = self
            .host(0)
            .map_or(("", 0), |(host, slots)| (host, slots.len()));
        match self.hosts().find(|(_, slots)| slots.len() != expected) {
            None => Ok(expected),
            Some((host, slots)) => Err(HostsError::UnequalSlots {
                backend,
                first: first.to_owned(),
                host: host.to_owned(),
                expected,
                found: slots.len(),
            }),
        }
    }

    /// Checks that the slots of every host are its first ones: nothing tells the processes of an MPI
    /// which others to use.
    ///
    /// # Errors
    /// [`HostsError::ChosenSlots`].
    pub(super) fn check_first_slots(&self, backend: MultinodeLauncher) -> Result<()> {
        let is_first = |slots: &[usize]| slots.iter().copied().eq(0..slots.len());
        match self.hosts().find(|(_, slots)| !is_first(slots)) {
            None => Ok(()),
            Some((host, slots)) => Err(HostsError::ChosenSlots {
                backend,
                host: host.to_owned(),
                slots: slots.to_vec(),
            }),
        }
    }

    /// The first `count` slots of every host.
    ///
    /// # Errors
    /// [`HostsError::TooFewSlots`].
    pub(super) fn first_slots(&self, count: usize) -> Result<Self> {
        let mut pool = Self::default();
        for (host, slots) in self.hosts() {
            let first = slots.get(..count).ok_or_else(|| HostsError::TooFewSlots {
                host: host.to_owned(),
                slots: slots.len(),
                needed: count,
            })?;
            pool.insert(host, first.to_vec());
        }
        Ok(pool)
    }
}
