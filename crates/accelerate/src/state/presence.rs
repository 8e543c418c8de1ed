//! Who is still there: each process answers for itself as long as it lives.
//!
//! A connection that breaks tells that somebody is gone, but not who. So every rank
//! listens on a port of its own and leaves the address in the job's store. Nothing is
//! sent while all goes well; after a failure the others are asked: a process that has
//! ended refuses at once, one that is stopped does not answer, and one that lives also
//! says what it did last, to whoever knows the word that it left in the store.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use accelerate_torch::Store;

/// How long one process may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How long who asks may take to say the word.
const WORD: Duration = Duration::from_millis(500);
/// The longest word.
const LINE: usize = 64;
/// What is asked for where a process is to say what it did last.
pub(super) const CALLS: &str = "calls";
/// The longest request.
const REQUEST: u64 = 512;
/// The longest news.
const NEWS: u64 = 1 << 16;
/// How many processes are asked at the same time.
const AT_ONCE: usize = 64;
/// How long the store may take to give a value that is there.
const STORED: Duration = Duration::from_secs(1);
/// Stands for the host of the store where an address is given.
const STORE_HOST: &str = "*";

/// Answers for this process until it is dropped.
#[derive(Debug)]
pub(super) struct Presence {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Presence {
    /// Begins to answer, and tells the job where. `host` is the host of the store; `answers` are
    /// what this process says when it is asked for something.
    ///
    /// Without it everything works as well, but a rank that is gone is not named.
    pub(super) fn announce(
        store: &Store,
        rank: usize,
        (host, port): (&str, u16),
        answers: impl Fn(&str) -> Vec<u8> + Send + 'static,
    ) -> Option<Self> {
        match Self::start(store, rank, (host, port), answers) {
            Ok(presence) => Some(presence),
            Err(error) => {
                tracing::debug!(%error, "this process cannot be asked whether it is still there");
                None
            }
        }
    }

    fn start(
        store: &Store,
        rank: usize,
        (host, port): (&str, u16),
        answers: impl Fn(&str) -> Vec<u8> + Send + 'static,
    ) -> io::Result<Self> {
        let (bind, published) = reachable_at(host, port)?;
        let listener = TcpListener::bind((bind, 0))?;
        let address = listener.local_addr()?;
        let word = password(rank);
        let value = format!("{published}\n{}\n{word}", address.port());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        thread::Builder::new()
            .name("accelerate-presence".to_owned())
            .spawn(move || answer(&listener, &word, answers, &stopped))?;
        let presence = Self { address, stop };
        store
            .set(&present_key(rank), value.as_bytes())
            .and_then(|()| store.add(PRESENT, 1))
            .map_err(io::Error::other)?;
        Ok(presence)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        // Wakes the thread, which then sees that it is to end.
        drop(TcpStream::connect_timeout(&address, ANSWER));
    }
}

fn answer(
    listener: &TcpListener,
    word: &str,
    answers: impl Fn(&str) -> Vec<u8>,
    stopped: &AtomicBool,
) {
    for stream in listener.incoming() {
        if stopped.load(Ordering::Acquire) {
            return;
        }
        match stream {
            // Whoever asks may be gone by now.
            Ok(stream) => drop(tell(stream, word, &answers)),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn tell(mut stream: TcpStream, word: &str, answers: impl Fn(&str) -> Vec<u8>) -> io::Result<()> {
    stream.set_write_timeout(Some(ANSWER))?;
    stream.set_read_timeout(Some(WORD))?;
    stream.write_all(word.as_bytes())?;
    let mut said = vec![0; word.len()];
    stream.read_exact(&mut said)?;
    if said == word.as_bytes() {
        let mut request = String::new();
        BufReader::new((&stream).take(REQUEST)).read_line(&mut request)?;
        stream.write_all(&answers(request.trim_end()))?;
    }
    Ok(())
}

/// Where to listen, and the host under which others reach it.
///
/// The address by which the store is reached is one by which this machine is reached.
/// On the store's own machine that may be a loopback address; the others then use the
/// host of the store, which they have reached.
fn reachable_at(host: &str, port: u16) -> io::Result<(IpAddr, String)> {
    let target = resolve(host, port)?;
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let probe = UdpSocket::bind(any)?;
    probe.connect(target)?;
    let ip = probe.local_addr()?.ip();
    let local_job = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    Ok(match (ip.is_loopback(), local_job) {
        (true, true) => (ip, STORE_HOST.to_owned()),
        (true, false) => (any.ip(), STORE_HOST.to_owned()),
        (false, _) => (ip, ip.to_string()),
    })
}

fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    (host, port)
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))
}

/// Tells this process from another one that is given its port later.
fn password(rank: usize) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("{rank}-{}-{:x}", std::process::id(), now.as_nanos())
}

/// What is known of the process of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attendance {
    /// Its process lives.
    Here,
    /// It said that it has finished ([`PartialState::destroy_process_group`]).
    ///
    /// [`PartialState::destroy_process_group`]: crate::PartialState::destroy_process_group
    Left,
    /// Its process has ended.
    Ended,
    /// Its process does not answer: it is stopped, or its machine cannot be reached.
    Silent,
    /// It never said where it can be asked; ranks of Python do not.
    Unknown,
}

/// What one rank answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) rank: usize,
    pub(crate) attendance: Attendance,
    /// What it says of itself; empty where it does not.
    pub(crate) news: Vec<u8>,
}

impl Answer {
    pub(crate) fn without_news(rank: usize, attendance: Attendance) -> Self {
        Self {
            rank,
            attendance,
            news: Vec::new(),
        }
    }
}

/// Asks every rank but `own` for something, in one line.
pub(super) fn ask_all(
    store: &Store,
    host: &str,
    own: usize,
    world: usize,
    request: &str,
) -> accelerate_torch::Result<Vec<Answer>> {
    let mut known = Vec::new();
    let mut asked = Vec::new();
    for rank in (0..world).filter(|&rank| rank != own) {
        if store.contains(&left_key(rank))? {
            known.push(Answer::without_news(rank, Attendance::Left));
        } else if store.contains(&present_key(rank))? {
            asked.push((rank, store.get_text(&present_key(rank), STORED)?));
        } else {
            known.push(Answer::without_news(rank, Attendance::Unknown));
        }
    }
    for some in asked.chunks(AT_ONCE) {
        thread::scope(|scope| {
            let threads: Vec<_> = some
                .iter()
                .map(|(rank, value)| (*rank, scope.spawn(|| ask(value, host, request))))
                .collect();
            let answers = threads.into_iter().map(|(rank, thread)| {
                let (attendance, news) = thread
                    .join()
                    .unwrap_or_else(|_| (Attendance::Unknown, Vec::new()));
                Answer {
                    rank,
                    attendance,
                    news,
                }
            });
            known.extend(answers);
        });
    }
    known.sort_unstable_by_key(|answer| answer.rank);
    Ok(known)
}

/// Asks one process, by what it left in the store.
fn ask(value: &str, store_host: &str, request: &str) -> (Attendance, Vec<u8>) {
    let mut parts = value.split('\n');
    let (Some(host), Some(Ok(port)), Some(word)) = (
        parts.next(),
        parts.next().map(str::parse::<u16>),
        parts.next(),
    ) else {
        return (Attendance::Unknown, Vec::new());
    };
    let host = if host == STORE_HOST { store_host } else { host };
    let heard = resolve(host, port)
        .and_then(|address| TcpStream::connect_timeout(&address, ANSWER))
        .and_then(|mut stream| {
            stream.set_read_timeout(Some(ANSWER))?;
            let mut line = vec![0; LINE.min(word.len())];
            stream.read_exact(&mut line)?;
            Ok((line, stream))
        });
    match heard {
        Ok((line, stream)) if line == word.as_bytes() => {
            // That it lives is known, whatever comes of the rest.
            (
                Attendance::Here,
                hear(stream, word, request).unwrap_or_default(),
            )
        }
        // Somebody else has the port now.
        Ok(_) => (Attendance::Ended, Vec::new()),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::UnexpectedEof => (Attendance::Ended, Vec::new()),
            _ => (Attendance::Silent, Vec::new()),
        },
    }
}

/// The answer of a process, told to who knows its word.
fn hear(mut stream: TcpStream, word: &str, request: &str) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(ANSWER))?;
    stream.write_all(format!("{word}{request}\n").as_bytes())?;
    let mut news = Vec::new();
    stream.take(NEWS).read_to_end(&mut news)?;
    Ok(news)
}

/// Counts the ranks that can be asked.
pub(super) const PRESENT: &str = "accelerate/present";
/// Counts the ranks that have finished.
pub(super) const LEFT: &str = "accelerate/left";

fn present_key(rank: usize) -> String {
    format!("{PRESENT}/{rank}")
}

pub(super) fn left_key(rank: usize) -> String {
    format!("{LEFT}/{rank}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_tells_its_news_to_who_knows_its_word() -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let say = |request: &str| request.as_bytes().to_vec();
        let thread = thread::spawn(move || answer(&listener, "word", say, &stopped));
        let asked = |word: &str| ask(&format!("127.0.0.1\n{port}\n{word}"), "", CALLS);
        assert_eq!(asked("word"), (Attendance::Here, b"calls".to_vec()));
        assert_eq!(asked("draw"), (Attendance::Ended, Vec::new()));
        let mut stranger = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stranger.write_all(b"draw")?;
        let mut heard = String::new();
        stranger.read_to_string(&mut heard)?;
        assert_eq!(heard, "word");
        stop.store(true, Ordering::Release);
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?);
        assert!(thread.join().is_ok());
        assert_eq!(asked("word").0, Attendance::Ended);
        assert_eq!(ask("nonsense", "", CALLS).0, Attendance::Unknown);
        Ok(())
    }
}
