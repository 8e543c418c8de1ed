//! Finding the store, or keeping it.

use std::{
    io, process,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant, SystemTime},
};

use super::{
    Backend, JoinRequest, Nodes, Tell,
    endpoint::Endpoint,
    error::{Error, Result},
    interrupt::Interrupt,
    keys,
    store::{
        client::{Dial, StoreClient, StoreError},
        server::{self, StoreServer},
        wills::AgentKeys,
    },
    waiting::{Patience, State, Waiting},
};

/// How long a store may take to answer on a port that should have been ours.
const OTHER_STORE: Duration = Duration::from_millis(700);

/// How long the way to ourselves over the address that others use may take.
const OWN_ADDRESS: Duration = Duration::from_secs(2);

impl Nodes {
    /// Finds the other nodes: keeps the store, or connects to it as soon as another node does.
    ///
    /// # Errors
    /// [`Error::PortBusy`], [`Error::Listen`], [`Error::Unreachable`], [`Error::Interrupted`].
    pub(crate) fn join(
        request: JoinRequest,
        interrupt: &Interrupt,
        tell: &mut Tell<'_>,
    ) -> Result<Self> {
        let token = token();
        let dial = Dial {
            prefix: request.run_id.clone(),
            patience: request.timing.answer,
            interrupt: Some(interrupt.clone()),
        };
        let mut server = match keeps_store(&request) {
            false => None,
            true => serve(&request, &dial, &token)?,
        };
        let (mut store, reached_at) = match &server {
            Some(server) => connect_to_own(&request, &dial, server)?,
            None => (connect(&request, &dial, tell)?, request.endpoint.clone()),
        };
        let broken = |source| Error::Store {
            endpoint: request.endpoint.to_string(),
            source,
        };
        if server.is_some() {
            let host = store.get(keys::HOST).map_err(broken)?;
            if host.as_deref() != Some(token.as_bytes()) {
                // The address is that of another machine, and all others will be there.
                server = None;
            }
        }
        if matches!(request.backend, Backend::Static { .. }) {
            store.count_in().map_err(broken)?;
        }
        Ok(Self {
            request,
            interrupt: interrupt.clone(),
            token,
            watcher: None,
            store,
            reached_at,
            current: None,
            server,
        })
    }
}

fn keeps_store(request: &JoinRequest) -> bool {
    match request.backend {
        Backend::Static { node_rank } => node_rank == 0,
        Backend::C10d { is_host } => is_host.unwrap_or_else(|| request.endpoint.is_here()),
    }
}

/// Starts the server; `None` if a store of a launcher answers on the port already.
fn serve(request: &JoinRequest, dial: &Dial, token: &str) -> Result<Option<StoreServer>> {
    let port = request.endpoint.port.get();
    let listener = match server::listen(port) {
        Ok(listener) => listener,
        Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
            return match keeps_store_here(request, dial) {
                // It will turn out whether one node is too many.
                Ok(true) => Ok(None),
                Err(StoreError::Interrupted) => Err(Error::Interrupted),
                Ok(false) | Err(_) => Err(Error::PortBusy { port, source }),
            };
        }
        Err(source) => return Err(Error::Listen { port, source }),
    };
    let whole = |key: &str| format!("/{}/{key}", request.run_id);
    let agents = AgentKeys {
        joined: whole(keys::ROLE_INFO),
        done: whole(keys::NUM_DONE),
        gone: whole(keys::AGENT_GONE),
    };
    let known = vec![(whole(keys::HOST), token.to_owned())];
    StoreServer::start(listener, Some(agents), known)
        .map(Some)
        .map_err(|source| Error::Listen { port, source })
}

/// Whether what has our port is another launcher of this job.
fn keeps_store_here(request: &JoinRequest, dial: &Dial) -> Result<bool, StoreError> {
    let here = Endpoint {
        host: "localhost".to_owned(),
        port: request.endpoint.port,
    };
    let dial = Dial {
        patience: OTHER_STORE,
        ..dial.clone()
    };
    let mut other = dial.until(&here, Instant::now() + OTHER_STORE, &mut |_| {})?;
    other.exist(&[keys::HOST])
}

/// Connects to our own store, as the others do if that is possible from here.
fn connect_to_own(
    request: &JoinRequest,
    dial: &Dial,
    server: &StoreServer,
) -> Result<(StoreClient, Endpoint)> {
    let until = Instant::now() + OWN_ADDRESS;
    match dial.until(&request.endpoint, until, &mut |_| {}) {
        Ok(store) => return Ok((store, request.endpoint.clone())),
        Err(StoreError::Interrupted) => return Err(Error::Interrupted),
        Err(_) => {}
    }
    let here = Endpoint {
        host: "127.0.0.1".to_owned(),
        port: request.endpoint.port,
    };
    let until = Instant::now() + request.timing.answer;
    let store = dial.until(&here, until, &mut |_| {});
    let store = store.map_err(|source| Error::Unreachable {
        endpoint: format!("127.0.0.1:{}", server.port()),
        waited: request.timing.answer,
        source,
    })?;
    Ok((store, here))
}

fn connect(request: &JoinRequest, dial: &Dial, tell: &mut Tell<'_>) -> Result<StoreClient> {
    let timing = request.timing;
    let mut patience = Patience::new(timing.join, timing.first_report, timing.next_report);
    let deadline = patience.deadline();
    let connected = dial.until(&request.endpoint, deadline, &mut |error| {
        if patience.is_due() {
            tell(&Waiting {
                endpoint: request.endpoint.to_string(),
                elapsed: patience.elapsed(),
                limit: patience.limit(),
                state: State::NoStore { why: chain(error) },
            });
        }
    });
    connected.map_err(|source| match source {
        StoreError::Interrupted => Error::Interrupted,
        source => Error::Unreachable {
            endpoint: request.endpoint.to_string(),
            waited: timing.join,
            source,
        },
    })
}

/// The last cause says most.
fn chain(error: &StoreError) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Something that no other launcher has.
fn token() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = since.map_or(0, |time| time.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{nanoseconds:x}-{count:x}", process::id())
}
