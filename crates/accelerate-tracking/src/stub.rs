//! A service that answers what a test says and keeps what it was asked.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value as Json;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let mut headers = self.headers.iter();
        let found = headers.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }
}

/// The service. It ends with the process.
pub(crate) struct Stub {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Stub {
    /// Answers each request with the status and body that `answer` gives.
    pub(crate) fn start(
        answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (Arc::clone(&requests), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                thread::spawn(move || serve(&stream, &kept, &*answer));
            }
        });
        Self { url, requests }
    }

    /// Everything that was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The bodies of those whose path ends so.
    pub(crate) fn bodies(&self, end: &str) -> Vec<Json> {
        let requests = self.requests();
        let matching = requests
            .iter()
            .filter(|request| request.path.ends_with(end));
        matching.map(Request::json).collect()
    }
}

fn serve(
    stream: &TcpStream,
    kept: &Mutex<Vec<Request>>,
    answer: &dyn Fn(&Request) -> (u16, String),
) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader) {
        kept.lock().unwrap().push(request.clone());
        let (status, body) = answer(&request);
        let text = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = stream;
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .ok()
        .filter(|bytes| *bytes > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers: Vec<(String, String)> = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => headers.push((name.to_owned(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, length)| length.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request {
        method,
        path,
        headers,
        body,
    })
}

/// The patience of tests.
pub(crate) fn quick() -> crate::delivery::Timing {
    use std::time::Duration;
    crate::delivery::Timing {
        gather: Duration::from_millis(1),
        first_retry: Duration::from_millis(5),
        longest_retry: Duration::from_millis(20),
        keep_alive: Duration::from_secs(30),
        drain: Duration::from_secs(20),
    }
}
