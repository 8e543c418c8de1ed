//! The share of one machine in the job.

use std::num::NonZeroUsize;

use accelerate_plan::{
    env::{Environment, WORLD_INFO},
    topology::Rendezvous,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE};

use super::pool::Pool;
use crate::launch::hosts::{HostsError, Result};

/// What the launcher of one machine has to start. Machines may differ in their number of processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeShare {
    /// Number of this machine, from 0.
    pub(crate) node_rank: usize,
    /// Its name in the hostfile.
    pub(crate) host: String,
    /// Its devices, one for each process, by number.
    pub(crate) slots: Vec<usize>,
    /// Number of processes of each machine.
    pub(crate) counts: Vec<usize>,
    /// Where all processes meet.
    pub(crate) master: Rendezvous,
}

impl NodeShare {
    /// # Errors
    /// [`HostsError::MachineRank`] if there are not that many hosts.
    pub(super) fn new(pool: &Pool, node_rank: usize, master: Rendezvous) -> Result<Self> {
        let (host, slots) = pool
            .host(node_rank)
            .ok_or_else(|| HostsError::MachineRank {
                rank: node_rank,
                machines: pool.len(),
            })?;
        Ok(Self {
            node_rank,
            host: host.to_owned(),
            slots: slots.to_vec(),
            counts: pool.counts(),
            master,
        })
    }

    /// The share of machine `node_rank` as the launcher that reached this machine describes it in
    /// [`WORLD_INFO`]; `None` if the variable is not set.
    ///
    /// # Errors
    /// [`HostsError::WorldInfo`], [`HostsError::MachineRank`].
    pub(crate) fn from_environment(
        environment: &Environment,
        node_rank: usize,
        master: Rendezvous,
    ) -> Result<Option<Self>> {
        match environment.get(&WORLD_INFO)? {
            None => Ok(None),
            Some(text) => Self::new(&decode(&text)?, node_rank, master).map(Some),
        }
    }

    /// Number of processes on this machine.
    pub(crate) fn num_processes(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.slots.len())
    }

    /// The devices in the form of `CUDA_VISIBLE_DEVICES` and its like.
    pub(crate) fn visible_devices(&self) -> String {
        let slots: Vec<_> = self.slots.iter().map(usize::to_string).collect();
        slots.join(",")
    }
}

/// Hosts and slots as JSON in base64, in the alphabet that no shell and no address changes.
pub(super) fn encode(pool: &Pool) -> String {
    // A map of lists of numbers has a text.
    let json = serde_json::to_string(pool).unwrap_or_default();
    URL_SAFE.encode(json)
}

fn decode(text: &str) -> Result<Pool> {
    let refused = |problem: String| HostsError::WorldInfo {
        variable: WORLD_INFO.name(),
        problem,
    };
    let json = URL_SAFE
        .decode(text.trim())
        .map_err(|error| refused(error.to_string()))?;
    let pool: Pool = serde_json::from_slice(&json).map_err(|error| refused(error.to_string()))?;
    let idle = pool.hosts().find(|(_, slots)| slots.is_empty());
    if let Some((host, _)) = idle {
        return Err(refused(format!("host `{host}` has no slot")));
    }
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        let mut pool = Pool::default();
        pool.insert("w1", vec![0, 1]);
        pool.insert("w0", vec![2, 5, 7]);
        pool
    }

    #[test]
    fn hosts_survive_the_text_in_order() {
        // `python -c 'base64.urlsafe_b64encode(json.dumps(...).encode())'` with no spaces.
        assert_eq!(encode(&pool()), "eyJ3MSI6WzAsMV0sIncwIjpbMiw1LDddfQ==");
        assert_eq!(decode(&encode(&pool())).unwrap(), pool());
        // As Python spells the same JSON.
        let spaced = URL_SAFE.encode(r#"{"w1": [0, 1], "w0": [2, 5, 7]}"#);
        assert_eq!(decode(&spaced).unwrap(), pool());
        for wrong in [
            "*",
            "eyJ3",
            &URL_SAFE.encode("[1]"),
            &URL_SAFE.encode(r#"{"a":[]}"#),
        ] {
            assert!(matches!(decode(wrong), Err(HostsError::WorldInfo { .. })));
        }
    }

    #[test]
    fn each_machine_finds_its_share() {
        let text = encode(&pool());
        let environment = Environment::from_pairs([(WORLD_INFO.name(), text)]);
        let share = |rank| NodeShare::from_environment(&environment, rank, Rendezvous::default());
        let second = share(1).unwrap().unwrap();
        assert_eq!((second.host.as_str(), second.counts.len()), ("w0", 2));
        assert_eq!(second.counts, [2, 3]);
        assert_eq!(second.num_processes(), NonZeroUsize::new(3));
        assert_eq!(second.visible_devices(), "2,5,7");
        assert!(matches!(
            share(2),
            Err(HostsError::MachineRank { machines: 2, .. })
        ));
        let nothing = Environment::from_pairs::<&str, &str>([]);
        let share = NodeShare::from_environment(&nothing, 0, Rendezvous::default());
        assert_eq!(share.unwrap(), None);
    }
}
