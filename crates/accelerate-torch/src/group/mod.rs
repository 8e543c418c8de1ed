//! Groups of ranks that communicate.

mod all_to_all;
mod bytes;
mod collective;
mod exchange;
mod point_to_point;
mod reduce_op;
mod rendezvous;
mod work;

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::status::{check, outcome};
use crate::store::millis;
use crate::{Error, Place, Result, Store, ffi};

pub use reduce_op::ReduceOp;
pub use rendezvous::{Rendezvous, StoreServer, Waiting};
pub use work::Work;

/// What carries the communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Gloo, for tensors on the CPU (and, slowly, on CUDA).
    Gloo,
    /// NCCL, for tensors on CUDA.
    Nccl,
    /// NCCL for tensors on CUDA and Gloo for those on the CPU.
    NcclAndGloo,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gloo => "gloo",
            Self::Nccl => "nccl",
            Self::NcclAndGloo => "cuda:nccl,cpu:gloo",
        })
    }
}

impl Backend {
    /// How long PyTorch lets an operation of this backend take.
    #[must_use]
    pub fn default_timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Gloo => 1800,
            Self::Nccl | Self::NcclAndGloo => 600,
        })
    }
}

/// How a group communicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOptions {
    /// What carries the communication.
    pub backend: Backend,
    /// How long any operation of the group may take.
    pub timeout: Duration,
    /// The network interface for Gloo; `None` chooses as PyTorch does, which reads
    /// `GLOO_SOCKET_IFNAME` and then looks the host name up.
    pub interface: Option<String>,
    /// Whether NCCL uses a stream of high priority.
    pub high_priority_stream: bool,
}

impl GroupOptions {
    /// The defaults of PyTorch for a backend.
    #[must_use]
    pub fn new(backend: Backend) -> Self {
        Self {
            backend,
            timeout: backend.default_timeout(),
            interface: None,
            high_priority_stream: false,
        }
    }

    /// With another timeout.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// With this network interface for Gloo.
    #[must_use]
    pub fn with_interface(mut self, interface: impl Into<String>) -> Self {
        self.interface = Some(interface.into());
        self
    }
}

/// A group of ranks that communicate.
///
/// Clones are handles on one group. Every rank calls the collectives of a group in the
/// same order; calls on one rank may come from one thread at a time.
#[derive(Clone, Debug)]
pub struct ProcessGroup {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: NonNull<ffi::Group>,
    place: Place,
    /// Ranks of the default group, in the order of ranks here.
    global_ranks: Vec<usize>,
    /// What sub-groups are made from, as Python does it: the store of the default group.
    base: Arc<Base>,
    options: GroupOptions,
    /// Numbers the exchanges that are made of sends and receives.
    exchanges: AtomicUsize,
    /// Set when the group is shut down.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Base {
    store: Store,
    /// The number in the name of the next sub-group.
    next: AtomicUsize,
}

// SAFETY: libtorch's process groups take their own locks; the store is `Sync` itself.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used after.
        unsafe { ffi::acc_group_free(self.handle.as_ptr()) }
    }
}

impl ProcessGroup {
    /// The default group of a job, over a store that all its ranks see.
    ///
    /// Returns when all ranks are connected. Ranks of Python that call
    /// `torch.distributed.init_process_group` with the same store may be among them.
    ///
    /// # Collective
    /// Every rank of the job calls this, once per store.
    ///
    /// # Errors
    /// [`Error::Timeout`] if a rank does not come, [`Error::Unavailable`] for NCCL
    /// without CUDA.
    ///
    /// # Source
    /// `init_process_group`: the same prefixes on the store's keys.
    pub fn new(store: &Store, rank: usize, world: usize, options: &GroupOptions) -> Result<Self> {
        if rank >= world {
            return Err(Error::Argument {
                operation: "process group",
                expected: format!("a rank below the world size {world}"),
                found: rank.to_string(),
            });
        }
        let place = Place {
            group: "0".to_owned(),
            rank,
            world,
        };
        let base = Arc::new(Base {
            store: Self::base_store(store)?,
            next: AtomicUsize::new(1),
        });
        Self::build(
            &base.store,
            place,
            (0..world).collect(),
            Arc::clone(&base),
            options.clone(),
        )
    }

    /// The part of a store that is the default group's.
    pub(crate) fn base_store(store: &Store) -> Result<Store> {
        store.prefixed("default_pg")?.prefixed("0/")
    }

    /// A group of some ranks, given by their ranks in the default group.
    ///
    /// `None` on ranks that are not in it. The order of `ranks` does not matter.
    ///
    /// # Collective
    /// Every rank of the default group calls this, in the same order as its other
    /// sub-groups, also those that are not in it: that is how the names stay equal.
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank that is listed twice or is not there.
    ///
    /// # Source
    /// `torch.distributed.new_group`, with the same names.
    pub fn subgroup(&self, ranks: &[usize]) -> Result<Option<Self>> {
        self.subgroup_with(ranks, self.inner.options.clone())
    }

    /// Like [`subgroup`](Self::subgroup), with options of its own.
    ///
    /// # Errors
    /// As [`subgroup`](Self::subgroup).
    pub fn subgroup_with(&self, ranks: &[usize], options: GroupOptions) -> Result<Option<Self>> {
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let world = self.inner.place.world;
        let too_large = self.inner.place.group == "0" && sorted.last().is_some_and(|&r| r >= world);
        if sorted.is_empty() || sorted.len() != ranks.len() || too_large {
            return Err(Error::Argument {
                operation: "sub-group",
                expected: format!("different ranks below {world}"),
                found: format!("{ranks:?}"),
            });
        }
        let name = self
            .inner
            .base
            .next
            .fetch_add(1, Ordering::Relaxed)
            .to_string();
        let Some(rank) = sorted.iter().position(|&rank| rank == self.global_rank()) else {
            return Ok(None);
        };
        let store = self.inner.base.store.prefixed(&format!("{name}/"))?;
        let place = Place {
            group: name,
            rank,
            world: sorted.len(),
        };
        Self::build(&store, place, sorted, Arc::clone(&self.inner.base), options).map(Some)
    }

    fn build(
        store: &Store,
        place: Place,
        global_ranks: Vec<usize>,
        base: Arc<Base>,
        options: GroupOptions,
    ) -> Result<Self> {
        let operation = "process group";
        let mut raw = ptr::null_mut();
        // SAFETY: store and name are valid for the call; on success `raw` is an owned handle.
        unsafe {
            check(
                operation,
                ffi::acc_group_new(
                    store.raw(),
                    place.group.as_ptr().cast(),
                    place.group.len(),
                    rank_number(place.rank),
                    rank_number(place.world),
                    &mut raw,
                ),
            )?;
        }
        let handle = NonNull::new(raw).ok_or(Error::Unavailable {
            operation,
            needed: "a process group",
            remedy: "libtorch returned none",
        })?;
        let exchanges = AtomicUsize::new(0);
        let group = Self {
            inner: Arc::new(Inner {
                handle,
                place,
                global_ranks,
                base,
                options,
                exchanges,
                closed: AtomicBool::new(false),
            }),
        };
        if group.backend() != Backend::Gloo {
            group.add_nccl(&store.prefixed("cuda/")?)?;
        }
        if group.backend() != Backend::Nccl {
            group.add_gloo(&store.prefixed("cpu/")?)?;
        }
        Ok(group)
    }

    fn add_gloo(&self, store: &Store) -> Result<()> {
        let options = &self.inner.options;
        let interface = options.interface.as_deref().unwrap_or_default();
        // SAFETY: all handles and the text are valid for the call.
        let added = unsafe {
            outcome(ffi::acc_group_add_gloo(
                self.raw(),
                store.raw(),
                millis(options.timeout),
                interface.as_ptr().cast(),
                interface.len(),
                options.backend == Backend::Gloo,
            ))
        };
        added.map_err(|e| e.into_place_error("connect ranks over Gloo", self.place()))
    }

    fn add_nccl(&self, store: &Store) -> Result<()> {
        let operation = "connect ranks over NCCL";
        if !crate::has_nccl() {
            return Err(Error::Unavailable {
                operation,
                needed: "a libtorch with CUDA",
                remedy: "build with `LIBTORCH_USE_PYTORCH=1` and a CUDA build of Python's torch",
            });
        }
        let options = &self.inner.options;
        let ranks: Vec<u64> = self
            .inner
            .global_ranks
            .iter()
            .map(|&rank| rank as u64)
            .collect();
        // SAFETY: all handles and the list are valid for the call.
        let added = unsafe {
            outcome(ffi::acc_group_add_nccl(
                self.raw(),
                store.raw(),
                millis(options.timeout),
                options.high_priority_stream,
                ranks.as_ptr(),
                ranks.len(),
            ))
        };
        added.map_err(|e| e.into_place_error(operation, self.place()))
    }

    /// This process's rank in the group.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.place.rank
    }

    /// The number of ranks in the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.place.world
    }

    /// The group's name: `0` for the default group, then a number for each sub-group.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.place.group
    }

    /// Who this process is in the group, for messages.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.inner.place
    }

    /// What carries the communication.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.inner.options.backend
    }

    /// How long an operation may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.inner.options.timeout
    }

    /// The members' ranks in the default group, in the order of their ranks here.
    #[must_use]
    pub fn global_ranks(&self) -> &[usize] {
        &self.inner.global_ranks
    }

    /// The store that the ranks of the default group share, for small notes between them.
    ///
    /// Keys of libtorch's own live there too: begin yours with a word of your own.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.base.store
    }

    fn global_rank(&self) -> usize {
        self.inner.global_ranks[self.inner.place.rank]
    }

    /// Ends the group's work in order; whatever is to be sent after is refused.
    ///
    /// # Errors
    /// What the backend could not finish.
    pub fn shutdown(&self) -> Result<()> {
        self.inner.closed.store(true, Ordering::Release);
        // SAFETY: the handle is alive.
        unsafe { check("shut down group", ffi::acc_group_shutdown(self.raw())) }
    }

    /// Breaks off everything under way, as after a failure; whatever is to be sent after is refused.
    ///
    /// # Errors
    /// If the backend cannot abort.
    pub fn abort(&self) -> Result<()> {
        self.inner.closed.store(true, Ordering::Release);
        // SAFETY: the handle is alive.
        unsafe { check("abort group", ffi::acc_group_abort(self.raw())) }
    }

    /// Refuses what comes after the end of the group: its other ranks no longer take part.
    fn is_open(&self, operation: &'static str) -> Result<()> {
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(Error::Argument {
                operation,
                expected: "a process group at work".to_owned(),
                found: format!("group `{}`, which was shut down", self.name()),
            });
        }
        Ok(())
    }

    pub(crate) fn raw(&self) -> *mut ffi::Group {
        self.inner.handle.as_ptr()
    }
}

/// Ranks are kept below 2^31 by the size of any job.
pub(crate) fn rank_number(rank: usize) -> c_int {
    c_int::try_from(rank).unwrap_or(c_int::MAX)
}
