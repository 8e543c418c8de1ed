use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use accelerate_plan::env::{self, Environment};
use accelerate_plan::topology::Topology;
use accelerate_torch::{
    Backend, GroupOptions, ProcessGroup, Rendezvous, StoreServer, Waiting, device,
};
use tch::Device;

use super::departure::{Departure, SharedDeparture};
use super::presence::Presence;
use super::{DistributedType, tear_down};
use crate::collectives::CallLog;
use crate::{Error, Result};

/// What a process asks for when its state is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateOptions {
    /// Stay on the CPU even where there is a GPU.
    pub cpu: bool,
    /// Which backend carries the communication; `None` chooses by the device.
    pub backend: Option<Backend>,
    /// How long any operation between ranks may take; `None` for the backend's default.
    pub timeout: Option<Duration>,
}

/// Rank, world, device and process group of this process: a shared handle.
///
/// There is one per process. It is read from the environment, and the ranks are
/// connected, when it is first asked for; every later handle is the same.
///
/// # Source
/// `accelerate.PartialState`. Differs: `ACCELERATE_USE_CPU` is honoured here too, and
/// a job of several processes without a GPU runs on CPUs instead of as single ones.
#[derive(Clone, Debug)]
pub struct PartialState {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    topology: Topology,
    distributed_type: DistributedType,
    device: Device,
    group: Option<ProcessGroup>,
    /// Who serves the store at which the ranks met.
    store_server: StoreServer,
    /// Answers the other ranks when they ask whether this one is still there.
    _presence: Option<Presence>,
    leaving: AtomicBool,
    /// Where the ranks leave when one of them is asked to end.
    departure: SharedDeparture,
    /// Whether a thread waits for signals that ask to end.
    attending: AtomicBool,
    debug: bool,
    calls: Arc<CallLog>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            tear_down::release(group);
        }
    }
}

static PROCESS: Mutex<Option<PartialState>> = Mutex::new(None);

impl PartialState {
    /// The state of this process, made on the first call.
    ///
    /// # Collective
    /// In a job of several processes the first call waits until all of them make it.
    ///
    /// # Errors
    /// A variable of the launcher that cannot be right; what
    /// [`Rendezvous::join`](accelerate_torch::Rendezvous::join) reports; a device that is
    /// not there.
    pub fn new() -> Result<Self> {
        Self::with_options(&StateOptions::default())
    }

    /// As [`new`](Self::new), with wishes that count only on the first call.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Argument`] if the process already has a state on
    /// another device than `cpu` asks for.
    pub fn with_options(options: &StateOptions) -> Result<Self> {
        let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = process.as_ref() {
            return state.agrees_with(options).map(|()| state.clone());
        }
        let state = Self::from_environment(&Environment::from_process(), options)?;
        *process = Some(state.clone());
        Ok(state)
    }

    /// The state of this process, if it has been made.
    #[must_use]
    pub fn current() -> Option<Self> {
        PROCESS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Forgets the state of this process, so that the next [`new`](Self::new) reads the
    /// environment again. For tests; handles that exist stay as they are.
    ///
    /// # Source
    /// `PartialState._reset_state`. Differs: a handle keeps its values, so there is no
    /// attribute that could be missing afterwards.
    pub fn reset() {
        let state = PROCESS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(state);
    }

    /// A state of its own, not the process's, read from `env`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_environment(env: &Environment, options: &StateOptions) -> Result<Self> {
        let options = StateOptions {
            cpu: options.cpu || env.get(&env::USE_CPU)?.unwrap_or(false),
            ..options.clone()
        };
        let debug = env.get(&env::DEBUG_MODE)?.unwrap_or(false);
        let topology = Topology::read(env)?;
        let gpus = if options.cpu {
            0
        } else {
            device::count(Device::Cuda(0))
        };
        let local_rank = topology.as_ref().map_or(0, Topology::local_rank);
        let device = match env.get(&env::TORCH_DEVICE)? {
            Some(name) => parse_device(&name)?,
            None if gpus > 0 => Device::Cuda(local_rank % gpus),
            None if !options.cpu && device::count(Device::Mps) > 0 && topology.is_none() => {
                Device::Mps
            }
            None => Device::Cpu,
        };
        if let Device::Cuda(_) = device {
            device::set_current(device)?;
        }
        let store_server = store_server(env)?;
        let topology = topology.unwrap_or_else(Topology::alone);
        let calls = Arc::<CallLog>::default();
        let departure = SharedDeparture::default();
        let asked = (&calls, &departure);
        let connected = connect(&topology, device, store_server, &options, asked)?;
        Ok(Self {
            shared: Arc::new(Shared {
                topology,
                distributed_type: connected.distributed_type,
                device,
                group: connected.group,
                store_server,
                _presence: connected.presence,
                leaving: AtomicBool::new(false),
                departure,
                attending: AtomicBool::new(false),
                debug,
                calls,
            }),
        })
    }

    fn agrees_with(&self, options: &StateOptions) -> Result<()> {
        if options.cpu && self.device() != Device::Cpu {
            return Err(Error::Argument {
                operation: "process state",
                expected: "`cpu` with the first accelerator of the process".to_owned(),
                found: format!("a process that already uses {:?}", self.device()),
            });
        }
        Ok(())
    }

    /// The number of processes in the job.
    #[must_use]
    pub fn num_processes(&self) -> usize {
        self.shared.topology.world_size()
    }

    /// This process's rank in the job.
    #[must_use]
    pub fn process_index(&self) -> usize {
        self.shared.topology.rank()
    }

    /// This process's rank on its machine.
    #[must_use]
    pub fn local_process_index(&self) -> usize {
        self.shared.topology.local_rank()
    }

    /// The device that this process computes on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.shared.device
    }

    /// How the processes work together.
    #[must_use]
    pub fn distributed_type(&self) -> DistributedType {
        self.shared.distributed_type
    }

    /// What carries the communication; none for a process by itself.
    #[must_use]
    pub fn backend(&self) -> Option<Backend> {
        self.process_group().map(ProcessGroup::backend)
    }

    /// The group of all ranks; none for a process by itself.
    #[must_use]
    pub fn process_group(&self) -> Option<&ProcessGroup> {
        self.shared.group.as_ref()
    }

    /// The host of the store at which the ranks met.
    pub(super) fn store_host(&self) -> &str {
        &self.shared.topology.master().addr
    }

    /// The other rank that serves the store, if one does.
    pub(crate) fn store_rank(&self) -> Option<usize> {
        (self.shared.store_server == StoreServer::Rank0 && self.process_index() != 0).then_some(0)
    }

    /// Marks the end of communication; answers whether it was not marked before.
    pub(super) fn begin_to_leave(&self) -> bool {
        !self.shared.leaving.swap(true, Ordering::AcqRel)
    }

    /// Where the ranks leave when one of them is asked to end.
    pub(super) fn departure(&self) -> &Departure {
        &self.shared.departure
    }

    /// Marks that signals are waited for; answers whether it was not marked before.
    pub(super) fn begin_to_attend(&self) -> bool {
        !self.shared.attending.swap(true, Ordering::AcqRel)
    }

    /// Takes the mark away again: nobody waits.
    pub(super) fn stop_attending(&self) {
        self.shared.attending.store(false, Ordering::Release);
    }

    /// This state for a thread that does not keep it alive.
    pub(super) fn downgrade(&self) -> impl Fn() -> Option<Self> + Send + 'static + use<> {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().map(|shared| Self { shared })
    }

    /// Whether ranks compare what they do before each collective (`ACCELERATE_DEBUG_MODE`).
    #[must_use]
    pub fn debug(&self) -> bool {
        self.shared.debug
    }

    /// The collectives that this process came to.
    pub(crate) fn calls(&self) -> &CallLog {
        &self.shared.calls
    }

    /// Whether there is more than one process.
    #[must_use]
    pub fn use_distributed(&self) -> bool {
        self.distributed_type() != DistributedType::No && self.num_processes() > 1
    }
}

impl fmt::Display for PartialState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Distributed environment: {}", self.distributed_type())?;
        if let Some(backend) = self.backend() {
            write!(f, "  Backend: {backend}")?;
        }
        writeln!(f, "\nNum processes: {}", self.num_processes())?;
        writeln!(f, "Process index: {}", self.process_index())?;
        writeln!(f, "Local process index: {}", self.local_process_index())?;
        writeln!(f, "Device: {}", device_name(self.device()))
    }
}

fn device_name(device: Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(index) => format!("cuda:{index}"),
        Device::Mps => "mps".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A device as PyTorch spells it.
fn parse_device(name: &str) -> Result<Device> {
    let unknown = || Error::Argument {
        operation: "process state",
        expected: format!(
            "`cpu`, `cuda`, `cuda:N` or `mps` in `{}`",
            env::TORCH_DEVICE.name()
        ),
        found: format!("`{name}`"),
    };
    match name.split_once(':') {
        None if name == "cpu" => Ok(Device::Cpu),
        None if name == "mps" => Ok(Device::Mps),
        None if name == "cuda" => Ok(Device::Cuda(0)),
        Some(("cuda", index)) => index.parse().map(Device::Cuda).map_err(|_| unknown()),
        Some(("cpu", "0")) => Ok(Device::Cpu),
        _ => Err(unknown()),
    }
}

/// Who serves the store: rank 0, unless the launcher says that it does.
fn store_server(env: &Environment) -> Result<StoreServer> {
    Ok(match env.get(&env::USE_AGENT_STORE)? {
        Some(true) => StoreServer::Launcher,
        _ => StoreServer::Rank0,
    })
}

/// What became of the ranks of the job.
struct Connected {
    distributed_type: DistributedType,
    group: Option<ProcessGroup>,
    presence: Option<Presence>,
}

/// Brings the ranks of the job together.
fn connect(
    topology: &Topology,
    device: Device,
    server: StoreServer,
    options: &StateOptions,
    (calls, departure): (&Arc<CallLog>, &SharedDeparture),
) -> Result<Connected> {
    if topology.world_size() == 1 {
        return Ok(Connected {
            distributed_type: DistributedType::No,
            group: None,
            presence: None,
        });
    }
    let (distributed_type, backend) = match device {
        Device::Cuda(_) => (
            DistributedType::MultiGpu,
            options.backend.unwrap_or(Backend::NcclAndGloo),
        ),
        _ => (
            DistributedType::MultiCpu,
            options.backend.unwrap_or(Backend::Gloo),
        ),
    };
    let mut group_options = GroupOptions::new(backend);
    if let Some(timeout) = options.timeout {
        group_options = group_options.with_timeout(timeout);
    }
    let rendezvous = Rendezvous {
        host: topology.master().addr.clone(),
        port: topology.master().port.get(),
        rank: topology.rank(),
        world: topology.world_size(),
        server,
    };
    let mut presence = None;
    let group = rendezvous.join_greeting(&group_options, report_waiting, |store| {
        let (calls, departure) = (Arc::clone(calls), Arc::clone(departure));
        let at = (&*rendezvous.host, rendezvous.port);
        presence = Presence::announce(store, rendezvous.rank, at, move |request| {
            departure.answer(request).unwrap_or_else(|| calls.note())
        });
        Ok(())
    })?;
    Ok(Connected {
        distributed_type,
        group: Some(group),
        presence,
    })
}

/// Start-up that hangs says what it waits for.
fn report_waiting(waiting: &Waiting) {
    tracing::warn!(
        rank = waiting.rank,
        address = waiting.address,
        joined = ?waiting.joined,
        missing = ?waiting.missing,
        "waiting for {} of {} ranks at {} for {} s",
        waiting.missing.len(),
        waiting.world,
        waiting.address,
        waiting.waited.as_secs(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pairs: &[(&str, &str)]) -> Result<PartialState> {
        PartialState::from_environment(
            &Environment::from_pairs(pairs.iter().copied()),
            &StateOptions::default(),
        )
    }

    #[test]
    fn a_process_by_itself_is_rank_0_of_1() -> Result<()> {
        let state = state(&[
            ("ACCELERATE_USE_CPU", "yes"),
            ("ACCELERATE_DEBUG_MODE", "1"),
        ])?;
        assert_eq!((state.num_processes(), state.process_index()), (1, 0));
        assert_eq!(state.distributed_type(), DistributedType::No);
        assert!(!state.use_distributed() && state.debug() && state.is_main_process());
        assert_eq!(
            state.to_string(),
            "Distributed environment: DistributedType.NO\nNum processes: 1\nProcess index: 0\n\
             Local process index: 0\nDevice: cpu\n"
        );
        Ok(())
    }

    #[test]
    fn a_device_that_is_no_device_is_an_error_that_names_the_variable() {
        let error = state(&[("ACCELERATE_TORCH_DEVICE", "gpu")]).unwrap_err();
        assert!(
            error.to_string().contains("ACCELERATE_TORCH_DEVICE"),
            "{error}"
        );
        assert!(error.to_string().contains("`gpu`"), "{error}");
    }

    #[test]
    fn devices_are_spelt_as_in_pytorch() -> Result<()> {
        assert_eq!(parse_device("cuda:3")?, Device::Cuda(3));
        assert_eq!(parse_device("cpu")?, Device::Cpu);
        assert!(parse_device("cuda:x").is_err());
        Ok(())
    }
}
