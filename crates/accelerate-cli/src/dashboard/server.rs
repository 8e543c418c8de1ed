//! A small server: one thread for each connection, one answer on each, nothing that writes.

use std::{
    convert::Infallible,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::{
    api::Api,
    events,
    hosts::Hosts,
    page,
    request::{BadRequest, Request},
    response::{Response, Status},
};

/// How long a client may take to say or to hear something.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time. A browser keeps six.
const MOST_CONNECTIONS: usize = 64;
/// How long to wait where the system gives no connection, for want of files.
const PAUSE: Duration = Duration::from_millis(100);

/// The server of one folder.
#[derive(Debug)]
pub(super) struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    api: Api,
    hosts: Hosts,
    connections: AtomicUsize,
}

impl Server {
    /// Listens at `host` and `port`; port 0 is any free one.
    ///
    /// # Errors
    /// If the system refuses that.
    pub(super) fn bind(host: &str, port: u16, api: Api) -> io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind((host, port))?,
            shared: Arc::new(Shared {
                api,
                hosts: Hosts::new(host),
                connections: AtomicUsize::new(0),
            }),
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until the process ends.
    ///
    /// # Errors
    /// If the system gives no connections any more.
    pub(super) fn serve(&self) -> io::Result<Infallible> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) if is_passing(&error) => thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&self, stream: TcpStream) {
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new()
            .name("connection".to_owned())
            .spawn(move || {
                // A client that has gone needs no answer.
                let _ = shared.answer(stream);
            });
        // Without a thread the connection closes, and the client tries again.
        drop(started);
    }
}

/// Whether the next connection may well be given.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let out_of_files = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    ) || Errno::from_io_error(error).is_some_and(|errno| out_of_files.contains(&errno))
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let _one = Counted::new(&self.connections);
        let request = match Request::read(&mut stream) {
            Ok(Some(request)) => request,
            Ok(None) | Err(BadRequest::Cut(_)) => return Ok(()),
            Err(problem) => {
                let response = Response::error(Status::BadRequest, &problem.to_string());
                return finish(stream, &response, false);
            }
        };
        let head_only = request.method == "HEAD";
        match self.refusal(&request) {
            Some(refusal) => finish(stream, &refusal, head_only),
            None if request.path == "/api/events" && !head_only => {
                events::stream(&self.api, &mut stream)
            }
            None => finish(stream, &self.respond(&request), head_only),
        }
    }

    /// Why nothing is said at all.
    fn refusal(&self, request: &Request) -> Option<Response> {
        let (status, text) = if self.connections.load(Ordering::Relaxed) > MOST_CONNECTIONS {
            (Status::Busy, "too many connections at a time")
        } else if !self.hosts.is_ours(request.host.as_deref()) {
            (
                Status::Misdirected,
                "this server does not have that name: use its address, `localhost`, or start it \
                 with `--host` and the name",
            )
        } else if !matches!(request.method.as_str(), "GET" | "HEAD") {
            (Status::MethodNotAllowed, "this server can only be read")
        } else {
            return None;
        };
        Some(Response::error(status, text))
    }

    fn respond(&self, request: &Request) -> Response {
        page::file(&request.path)
            .or_else(|| self.api.respond(request))
            .unwrap_or_else(|| {
                let text = format!("nothing at `{}`", request.path);
                Response::error(Status::NotFound, &text)
            })
    }
}

/// Sends the answer and closes the connection in the order that loses nothing: what the client still
/// says is read first.
fn finish(mut stream: TcpStream, response: &Response, head_only: bool) -> io::Result<()> {
    response.write(&mut stream, head_only)?;
    stream.flush()?;
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(PAUSE))?;
    let mut rest = (&stream).take(1 << 20);
    io::copy(&mut rest, &mut io::sink())?;
    Ok(())
}

/// One connection more, as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
