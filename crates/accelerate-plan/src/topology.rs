//! Which process this is, among how many, and where they meet.

use std::num::{NonZeroU16, NonZeroUsize};

use crate::{
    Error, Result, Setting,
    env::{
        EnvOverlay, Environment, Found, LOCAL_RANK, LOCAL_RANK_SOURCES, LOCAL_WORLD_SIZE,
        LOCAL_WORLD_SIZE_SOURCES, MASTER_ADDR, MASTER_PORT, RANK, RANK_SOURCES, WORLD_SIZE,
        WORLD_SIZE_SOURCES,
    },
};

/// The address at which all processes of a job meet when nothing else is said.
pub const LOOPBACK: &str = "127.0.0.1";

const DEFAULT_PORT: NonZeroU16 = NonZeroU16::new(29500).expect("29500 is not zero");

/// Where the processes of a job meet: rank 0 serves a store there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Rendezvous {
    /// Host name or address of the machine that runs rank 0.
    pub addr: String,
    /// TCP port of the store.
    pub port: NonZeroU16,
}

impl Rendezvous {
    /// A meeting point on this machine.
    pub fn local(port: NonZeroU16) -> Self {
        Self {
            addr: LOOPBACK.to_owned(),
            port,
        }
    }

    fn is_local(&self) -> bool {
        matches!(self.addr.as_str(), LOOPBACK | "localhost" | "::1")
    }
}

impl Default for Rendezvous {
    /// Port 29500 of this machine.
    fn default() -> Self {
        Self::local(DEFAULT_PORT)
    }
}

impl std::fmt::Display for Rendezvous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.addr.contains(':') {
            true => write!(f, "[{}]:{}", self.addr, self.port),
            false => write!(f, "{}:{}", self.addr, self.port),
        }
    }
}

/// The place of one process in its job.
///
/// Always consistent: the rank is below the world size, the local rank below the local world size,
/// and the local world size at most the world size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Topology {
    rank: usize,
    world_size: NonZeroUsize,
    local_rank: usize,
    local_world_size: NonZeroUsize,
    master: Rendezvous,
}

impl Topology {
    /// The place of a process, checked.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`] and [`Error::PartAboveWhole`] if the numbers exclude each other.
    pub fn new(
        rank: usize,
        world_size: NonZeroUsize,
        local_rank: usize,
        local_world_size: NonZeroUsize,
        master: Rendezvous,
    ) -> Result<Self> {
        let setting = |variable, value| Setting {
            variable,
            value,
            given: true,
        };
        Numbers {
            rank: setting(RANK.name(), rank),
            world_size: setting(WORLD_SIZE.name(), world_size.get()),
            local_rank: setting(LOCAL_RANK.name(), local_rank),
            local_world_size: setting(LOCAL_WORLD_SIZE.name(), local_world_size.get()),
        }
        .check()?;
        Ok(Self {
            rank,
            world_size,
            local_rank,
            local_world_size,
            master,
        })
    }

    /// The one process of a job that is not distributed.
    pub fn alone() -> Self {
        Self {
            rank: 0,
            world_size: NonZeroUsize::MIN,
            local_rank: 0,
            local_world_size: NonZeroUsize::MIN,
            master: Rendezvous::default(),
        }
    }

    /// Reads the place of this process; `None` if no variable says anything about it.
    ///
    /// Each number is looked for in several variables in turn: those of our own launcher and
    /// `torchrun` first, then those of MPI launchers. A number that nobody states has its default:
    /// rank 0, one process, local rank 0. Without a local world size, a job that meets on this
    /// machine is taken to run on this machine only; otherwise the processes known to be here are
    /// counted, which is the local rank plus one.
    ///
    /// # Errors
    /// - [`Error::InvalidVariable`], [`Error::NotText`]: a variable cannot be read.
    /// - [`Error::IndexOutOfRange`], [`Error::PartAboveWhole`]: two variables contradict each other.
    /// - [`Error::MissingMasterAddress`]: several machines, but no `MASTER_ADDR`.
    pub fn read(env: &Environment) -> Result<Option<Self>> {
        let rank = env.first(&RANK_SOURCES)?;
        let world_size = env.first(&WORLD_SIZE_SOURCES)?;
        let local_rank = env.first(&LOCAL_RANK_SOURCES)?;
        let local_world_size = env.first(&LOCAL_WORLD_SIZE_SOURCES)?;
        if rank.is_none()
            && world_size.is_none()
            && local_rank.is_none()
            && local_world_size.is_none()
        {
            return Ok(None);
        }

        let address = env.get(&MASTER_ADDR)?;
        let mut numbers = Numbers {
            rank: setting(RANK.name(), rank, 0),
            world_size: setting(WORLD_SIZE.name(), world_size.map(plain), 1),
            local_rank: setting(LOCAL_RANK.name(), local_rank, 0),
            local_world_size: setting(LOCAL_WORLD_SIZE.name(), local_world_size.map(plain), 1),
        };
        let master = Rendezvous {
            addr: address.clone().unwrap_or_else(|| LOOPBACK.to_owned()),
            port: env.get(&MASTER_PORT)?.unwrap_or(DEFAULT_PORT),
        };
        if !numbers.local_world_size.given && address.is_some() {
            numbers.local_world_size.value = match master.is_local() {
                true => numbers.world_size.value,
                false => numbers.local_rank.value + 1,
            };
        }
        numbers.check()?;
        if address.is_none() && numbers.local_world_size.value != numbers.world_size.value {
            return Err(Error::MissingMasterAddress {
                world_size: numbers.world_size.value,
                local_world_size: numbers.local_world_size.value,
            });
        }
        Ok(Some(numbers.into_topology(master)))
    }

    /// The variables that tell a child process that this is its place. [`Topology::read`] gives the
    /// same place back.
    pub fn overlay(&self) -> EnvOverlay {
        let mut overlay = EnvOverlay::new();
        overlay.set(&RANK, &self.rank);
        overlay.set(&WORLD_SIZE, &self.world_size);
        overlay.set(&LOCAL_RANK, &self.local_rank);
        overlay.set(&LOCAL_WORLD_SIZE, &self.local_world_size);
        overlay.set(&MASTER_ADDR, &self.master.addr);
        overlay.set(&MASTER_PORT, &self.master.port);
        overlay
    }

    /// Number of this process among all processes of the job, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes in the job, at least 1.
    pub fn world_size(&self) -> usize {
        self.world_size.get()
    }

    /// Number of this process among those on its machine, from 0.
    pub fn local_rank(&self) -> usize {
        self.local_rank
    }

    /// Number of processes on this machine, at least 1.
    pub fn local_world_size(&self) -> usize {
        self.local_world_size.get()
    }

    /// Where the processes meet.
    pub fn master(&self) -> &Rendezvous {
        &self.master
    }
}

/// The four numbers with the variables they came from.
struct Numbers {
    rank: Setting,
    world_size: Setting,
    local_rank: Setting,
    local_world_size: Setting,
}

impl Numbers {
    fn check(&self) -> Result<()> {
        below(self.rank, self.world_size)?;
        below(self.local_rank, self.local_world_size)?;
        match self.local_world_size.value <= self.world_size.value {
            true => Ok(()),
            false => Err(Error::PartAboveWhole {
                part: self.local_world_size,
                whole: self.world_size,
            }),
        }
    }

    fn into_topology(self, master: Rendezvous) -> Topology {
        let size = |setting: Setting| NonZeroUsize::new(setting.value).unwrap_or(NonZeroUsize::MIN);
        Topology {
            rank: self.rank.value,
            world_size: size(self.world_size),
            local_rank: self.local_rank.value,
            local_world_size: size(self.local_world_size),
            master,
        }
    }
}

fn below(index: Setting, count: Setting) -> Result<()> {
    match index.value < count.value {
        true => Ok(()),
        false => Err(Error::IndexOutOfRange { index, count }),
    }
}

fn plain(found: Found<NonZeroUsize>) -> Found<usize> {
    Found {
        variable: found.variable,
        value: found.value.get(),
    }
}

fn setting(name: &'static str, found: Option<Found<usize>>, default: usize) -> Setting {
    match found {
        Some(Found { variable, value }) => Setting {
            variable,
            value,
            given: true,
        },
        None => Setting {
            variable: name,
            value: default,
            given: false,
        },
    }
}
