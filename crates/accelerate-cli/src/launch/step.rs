//! What it means that a cluster manager or an MPI launcher started this launcher.

use std::num::NonZeroUsize;

use accelerate_plan::{
    cluster::{Cluster, ClusterError},
    config::Value,
    env::{EnvOverlay, Environment, Found, MASTER_ADDR, MASTER_PORT},
    launch::Layout,
    settings::{
        Given, Layer, MACHINE_RANK, MAIN_PROCESS_IP, MAIN_PROCESS_PORT, NUM_MACHINES,
        NUM_PROCESSES, NUM_PROCESSES_PER_MACHINE, Origin, Settings, Sourced,
    },
    topology::{Rendezvous, Topology},
};

use crate::error::{Error, Result};

/// Which part this launcher has in what a manager started.
#[derive(Debug)]
pub(crate) enum Step {
    /// No manager started it, or it alone.
    Alone,
    /// One of several on this machine: each is one rank, as `mpirun` users have it.
    EachTaskIsARank(Box<Cluster>),
    /// The only one of this machine among several: it starts the ranks of its machine.
    OneTaskPerMachine(Box<Cluster>),
}

impl Step {
    /// Reads what managers say.
    ///
    /// # Errors
    /// If two of them contradict each other.
    pub(crate) fn read(env: &Environment) -> Result<Self, ClusterError> {
        let Some(cluster) = Cluster::read(env)? else {
            return Ok(Self::Alone);
        };
        let here = cluster.local_world_size().map(|here| here.value);
        let nodes = cluster.nodes().map(|nodes| nodes.value);
        let one_each = here == Some(1) || nodes == Some(cluster.world_size().value.get());
        Ok(match one_each {
            true => Self::OneTaskPerMachine(Box::new(cluster)),
            false => Self::EachTaskIsARank(Box::new(cluster)),
        })
    }

    /// The place among machines, where a manager knows it.
    ///
    /// # Errors
    /// Never: the values are of the right type.
    pub(crate) fn detected(&self) -> accelerate_plan::Result<Layer> {
        let mut layer = Layer::default();
        let Self::OneTaskPerMachine(cluster) = self else {
            return Ok(layer);
        };
        let by = |variable: &str| Origin::Detected(format!("`{variable}` says so"));
        let number = |number: usize| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
        let world = cluster.world_size();
        layer.give(
            &NUM_MACHINES,
            &number(world.value.get()),
            by(world.variable),
        )?;
        let rank = cluster.rank();
        layer.give(&MACHINE_RANK, &number(rank.value), by(rank.variable))?;
        if let Some(Rendezvous { addr, port }) = cluster.rendezvous() {
            let by =
                || Origin::Detected(format!("the first host of the {} job", cluster.manager()));
            layer.give(&MAIN_PROCESS_IP, &addr.into(), by())?;
            layer.give(&MAIN_PROCESS_PORT, &Value::Int(port.get().into()), by())?;
        }
        Ok(layer)
    }

    /// Sees that flags, variables and the file say of the machines what the manager says. The
    /// number of this machine in a file is another matter: all machines may have the same file.
    ///
    /// # Errors
    /// [`Error::ClusterDisagrees`].
    pub(crate) fn settle(&self, settings: &mut Settings) -> Result<()> {
        let Self::OneTaskPerMachine(cluster) = self else {
            return Ok(());
        };
        let (world, rank) = (cluster.world_size(), cluster.rank());
        if let Some(given) = settings.given(&NUM_MACHINES) {
            let given = Sourced {
                value: given.value.get(),
                origin: given.origin,
            };
            agree(
                NUM_MACHINES.name(),
                given,
                world.value.get(),
                world.variable,
            )?;
        }
        match settings.given(&MACHINE_RANK) {
            Some(given) if is_in_file(&given.origin) => {
                let value = Value::Int(i64::try_from(rank.value).unwrap_or(i64::MAX));
                let origin = Origin::Detected(format!("`{}` says so", rank.variable));
                settings.put(MACHINE_RANK.name(), Given { value, origin });
                Ok(())
            }
            Some(given) => agree(MACHINE_RANK.name(), given, rank.value, rank.variable),
            None => Ok(()),
        }
    }

    /// Processes of the job on this machine, if a manager started several of them.
    pub(crate) fn tasks_here(&self) -> Option<NonZeroUsize> {
        match self {
            Self::EachTaskIsARank(cluster) => NonZeroUsize::new(cluster.local_world_size()?.value),
            Self::Alone | Self::OneTaskPerMachine(_) => None,
        }
    }

    /// What was found, in one line.
    pub(crate) fn describe(&self) -> Option<String> {
        match self {
            Self::Alone => None,
            Self::EachTaskIsARank(cluster) | Self::OneTaskPerMachine(cluster) => {
                Some(cluster.to_string())
            }
        }
    }
}

/// One process, if nobody asked for another number of processes or machines, or for another place.
///
/// # Errors
/// [`Error::ClusterDisagrees`].
pub(crate) fn one_of_many(settings: &Settings, cluster: &Cluster) -> Result<Layout> {
    let world = cluster.world_size();
    let size = |key| {
        let given = settings.given(key)?;
        Some(Sourced {
            value: NonZeroUsize::get(given.value),
            origin: given.origin,
        })
    };
    let processes = Found {
        variable: world.variable,
        value: world.value.get(),
    };
    let claims = [
        (&NUM_PROCESSES, Some(processes)),
        (&NUM_MACHINES, cluster.nodes()),
        (&NUM_PROCESSES_PER_MACHINE, cluster.local_world_size()),
    ];
    for (key, found) in claims {
        agree_if_known(key.name(), size(key), found)?;
    }
    let rank = settings.given(&MACHINE_RANK);
    agree_if_known(MACHINE_RANK.name(), rank, cluster.node_rank())?;
    Ok(Layout {
        local: NonZeroUsize::MIN,
        origin: Origin::Variable(world.variable),
        num_machines: NonZeroUsize::MIN,
        machine_rank: Some(0),
        total: None,
    })
}

/// What a file says is for jobs that no manager started.
fn agree_if_known(
    name: &'static str,
    given: Option<Sourced<usize>>,
    found: Option<Found<usize>>,
) -> Result<()> {
    match (given, found) {
        (Some(given), Some(found)) if !is_in_file(&given.origin) => {
            agree(name, given, found.value, found.variable)
        }
        _ => Ok(()),
    }
}

fn is_in_file(origin: &Origin) -> bool {
    matches!(origin, Origin::File { .. })
}

fn agree(
    name: &'static str,
    given: Sourced<usize>,
    expected: usize,
    variable: &'static str,
) -> Result<()> {
    match given.value == expected {
        true => Ok(()),
        false => Err(Error::ClusterDisagrees {
            name,
            found: given.value,
            origin: given.origin,
            variable,
            expected,
        }),
    }
}

/// What the one process is told about its place, in the words that every program understands.
pub(crate) fn place(
    cluster: &Cluster,
    settings: &Settings,
    env: &Environment,
) -> Result<EnvOverlay> {
    let local = |found: Option<Found<usize>>| found.map(|found| found.value);
    let nodes = cluster.nodes().map_or(1, |nodes| nodes.value);
    let told = cluster.rendezvous().filter(|_| nodes > 1);
    let default = told.unwrap_or_default();
    let address = settings.get(&MAIN_PROCESS_IP).or(env.get(&MASTER_ADDR)?);
    let port = settings
        .get(&MAIN_PROCESS_PORT)
        .and_then(std::num::NonZeroU16::new);
    let master = Rendezvous {
        addr: address.unwrap_or(default.addr),
        port: port.or(env.get(&MASTER_PORT)?).unwrap_or(default.port),
    };
    let rank = cluster.rank().value;
    let local_rank = local(cluster.local_rank()).unwrap_or(rank);
    let here = local(cluster.local_world_size()).and_then(NonZeroUsize::new);
    let here = here.unwrap_or(match nodes {
        1 => cluster.world_size().value,
        _ => NonZeroUsize::MIN.saturating_add(local_rank),
    });
    let topology = Topology::new(rank, cluster.world_size().value, local_rank, here, master)?;
    Ok(topology.overlay())
}
