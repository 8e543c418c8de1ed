use std::env;

/// Set in a rank's process to the name of the test it belongs to.
pub(crate) const TEST: &str = "ACCELERATE_TESTKIT_TEST";

/// Who a process is within a multi-process test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    index: usize,
    world: usize,
    port: u16,
}

impl Rank {
    /// A rank by its numbers.
    #[must_use]
    pub fn new(index: usize, world: usize, port: u16) -> Self {
        Self { index, world, port }
    }

    /// The rank this process was started as by `test`, if it was.
    pub(crate) fn of_this_process(test: &str) -> Option<Self> {
        if env::var(TEST).ok()? != test {
            return None;
        }
        let number = |name: &str| env::var(name).ok()?.parse().ok();
        Some(Self {
            index: number("RANK")?,
            world: number("WORLD_SIZE")?,
            port: u16::try_from(number("MASTER_PORT")?).ok()?,
        })
    }

    /// Its number, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.index
    }

    /// The number of ranks.
    #[must_use]
    pub fn world(self) -> usize {
        self.world
    }

    /// A port on this machine for the ranks to meet at.
    #[must_use]
    pub fn port(self) -> u16 {
        self.port
    }

    /// The variables that tell a process it is this rank.
    #[must_use]
    pub fn environment(self) -> [(&'static str, String); 8] {
        [
            ("RANK", self.index.to_string()),
            ("LOCAL_RANK", self.index.to_string()),
            ("WORLD_SIZE", self.world.to_string()),
            ("LOCAL_WORLD_SIZE", self.world.to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", self.port.to_string()),
            ("ACCELERATE_USE_CPU", "true".to_owned()),
            ("OMP_NUM_THREADS", "1".to_owned()),
        ]
    }
}
