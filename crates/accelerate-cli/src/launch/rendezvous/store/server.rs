//! The server: one thread that serves all connections.

use std::{
    collections::HashMap,
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net,
};

use super::{
    limits,
    table::{Answers, Table},
    wills::{AgentKeys, Wills},
    wire::{Bytes, MAGIC, Request},
};
use crate::launch::port::bind;

/// Number of a connection; none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Connection(u64);

/// How long a connection may take to say what it is.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// Pause before the next attempt to accept when the system has no room for a connection.
const NO_ROOM: Duration = Duration::from_millis(100);

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 2048;

/// A running server. Dropping it closes all connections and waits for the thread.
#[derive(Debug)]
pub(crate) struct StoreServer {
    port: u16,
    connections: Arc<AtomicUsize>,
    /// Closed to tell the thread to end.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Listens on a port of all addresses of both families, or of IPv4 where there is no IPv6; 0 takes
/// a free one.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    // Connections of a job that has just ended do not keep the port from the next.
    let socket = bind(port, true)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

impl StoreServer {
    /// Serves on `listener`; follows the launchers of Python that `agents` describes. The store
    /// begins with the keys of `known`, which have all prefixes.
    ///
    /// # Errors
    /// What the system says about the socket or the thread.
    pub(crate) fn start(
        listener: TcpListener,
        agents: Option<AgentKeys>,
        known: Vec<(String, String)>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let (stop, stopped) = UnixStream::pair()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let mut service = Service {
            listener,
            stopped,
            table: Table::new(Wills::new(agents), known),
            clients: HashMap::new(),
            next: 0,
            accept_after: None,
            connections: Arc::clone(&connections),
        };
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || service.run())?;
        Ok(Self {
            port,
            connections,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Service {
    listener: TcpListener,
    stopped: UnixStream,
    table: Table,
    clients: HashMap<Connection, Client>,
    next: u64,
    accept_after: Option<Instant>,
    connections: Arc<AtomicUsize>,
}

struct Client {
    stream: TcpStream,
    since: Instant,
    introduced: bool,
    input: Bytes,
    output: Bytes,
    /// How much of `output` is sent.
    sent: usize,
}

/// The connection has ended, or has to.
struct Gone;

impl Service {
    fn run(&mut self) {
        loop {
            let ready = match self.wait() {
                Ok(Some(ready)) => ready,
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Memory for the list of sockets is all it can lack.
                Err(_) => {
                    thread::sleep(NO_ROOM);
                    continue;
                }
            };
            if ready.accept {
                self.accept();
            }
            for (client, flags) in ready.clients {
                self.turn(client, flags);
            }
            self.close_the_silent();
            self.connections
                .store(self.clients.len(), Ordering::Relaxed);
        }
    }

    /// Waits until something can be done; `None` when it is time to end.
    fn wait(&mut self) -> io::Result<Option<Ready>> {
        if self.accept_after.is_some_and(|at| at <= Instant::now()) {
            self.accept_after = None;
        }
        let accepting = self.accept_after.is_none() && self.clients.len() < limits::CONNECTIONS;
        let mut polled = vec![
            PollFd::new(&self.stopped, PollFlags::IN),
            PollFd::new(
                &self.listener,
                match accepting {
                    true => PollFlags::IN,
                    false => PollFlags::empty(),
                },
            ),
        ];
        let mut numbers = Vec::with_capacity(self.clients.len());
        for (number, client) in &self.clients {
            numbers.push(*number);
            polled.push(PollFd::new(&client.stream, client.interest()));
        }
        let timeout = self
            .timeout()
            .and_then(|time| Timespec::try_from(time).ok());
        poll(&mut polled, timeout.as_ref())?;
        let mut flags = polled.iter().map(PollFd::revents);
        if flags.next().is_some_and(|stopped| !stopped.is_empty()) {
            return Ok(None);
        }
        let accept = flags.next().is_some_and(|accept| !accept.is_empty());
        let clients = numbers.into_iter().zip(flags);
        Ok(Some(Ready {
            accept,
            clients: clients.filter(|(_, flags)| !flags.is_empty()).collect(),
        }))
    }

    /// Until the next thing that no socket tells.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let strangers = self.clients.values().filter(|client| !client.introduced);
        let introductions = strangers.map(|client| client.since + INTRODUCTION);
        let next = introductions.chain(self.accept_after).min()?;
        Some(next.saturating_duration_since(now) + Duration::from_millis(1))
    }

    fn accept(&mut self) {
        while self.clients.len() < limits::CONNECTIONS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    match error.kind() {
                        io::ErrorKind::WouldBlock => return,
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                        _ => self.accept_after = Some(Instant::now() + NO_ROOM),
                    }
                    return;
                }
            };
            let _ = stream.set_nodelay(true);
            if stream.set_nonblocking(true).is_ok() {
                self.clients
                    .insert(Connection(self.next), Client::new(stream));
                self.next += 1;
            }
        }
    }

    fn turn(&mut self, number: Connection, flags: PollFlags) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        let mut open = client.move_bytes(flags).unwrap_or(false);
        // What came before the end counts.
        loop {
            match self.serve_one(number) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Gone) => {
                    open = false;
                    break;
                }
            }
        }
        if !open {
            let mut answers = Answers::new();
            self.clients.remove(&number);
            self.table.closed(number, &mut answers);
            self.send(answers);
        }
    }

    /// Answers the next request of a client; `false` if there is none, or if it does not read.
    fn serve_one(&mut self, number: Connection) -> Result<bool, Gone> {
        let Some(client) = self.clients.get_mut(&number) else {
            return Ok(false);
        };
        let Some(request) = client.request()? else {
            return Ok(false);
        };
        let mut answers = Answers::new();
        let served = self.table.serve(number, request, &mut answers);
        self.send(answers);
        served.map(|()| true).map_err(|_| Gone)
    }

    /// Sends answers; who is gone leaves a will, which may be an answer for others.
    fn send(&mut self, mut answers: Answers) {
        while !answers.is_empty() {
            let mut more = Answers::new();
            for (number, bytes) in answers {
                let Some(client) = self.clients.get_mut(&number) else {
                    continue;
                };
                client.output.extend(bytes);
                if client.unread() > limits::ANSWER || client.flush().is_err() {
                    self.clients.remove(&number);
                    self.table.closed(number, &mut more);
                }
            }
            answers = more;
        }
    }

    /// Closes connections that did not say in time what they are.
    fn close_the_silent(&mut self) {
        self.clients
            .retain(|_, client| client.introduced || client.since.elapsed() < INTRODUCTION);
    }
}

struct Ready {
    accept: bool,
    clients: Vec<(Connection, PollFlags)>,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            since: Instant::now(),
            introduced: false,
            input: Bytes::new(),
            output: Bytes::new(),
            sent: 0,
        }
    }

    fn unread(&self) -> usize {
        self.output.len() - self.sent
    }

    fn interest(&self) -> PollFlags {
        match self.unread() {
            0 => PollFlags::IN,
            unread if unread < limits::UNREAD => PollFlags::IN | PollFlags::OUT,
            _ => PollFlags::OUT,
        }
    }

    /// Sends and receives what is possible; `false` if nothing more will come.
    fn move_bytes(&mut self, flags: PollFlags) -> Result<bool, Gone> {
        if flags.contains(PollFlags::OUT) {
            self.flush()?;
        }
        match flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            true => self.receive(),
            false => Ok(true),
        }
    }

    /// Takes what has arrived; `false` if nothing more will come.
    fn receive(&mut self) -> Result<bool, Gone> {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    self.input.extend_from_slice(&chunk[..length]);
                    if length < chunk.len() || self.input.len() > limits::request::BYTES {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    /// The next request that is all there.
    fn request(&mut self) -> Result<Option<Request>, Gone> {
        if self.unread() >= limits::UNREAD {
            return Ok(None);
        }
        let Some((request, length)) = Request::read(&self.input).map_err(|_| Gone)? else {
            return Ok(None);
        };
        self.input.drain(..length);
        if self.introduced {
            return Ok(Some(request));
        }
        if request != (Request::Validate { magic: MAGIC }) {
            return Err(Gone);
        }
        self.introduced = true;
        self.request()
    }

    fn flush(&mut self) -> Result<(), Gone> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(Gone),
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.sent > self.output.len() / 2 {
                        self.output.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Gone),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }
}
