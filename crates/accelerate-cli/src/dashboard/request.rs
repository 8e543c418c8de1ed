//! The head of a request: what is wanted, and under which name we were reached.

use std::{
    borrow::Cow,
    io::{self, Read},
};

/// Longer heads are refused; a request for hundreds of runs has room.
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;

/// A request that reads: nothing here changes anything, so bodies are never read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Without the question mark and what follows it.
    pub(super) path: String,
    /// The parameters in their order, decoded.
    pub(super) query: Vec<(String, String)>,
    /// What the client believes us to be.
    pub(super) host: Option<String>,
}

/// Why a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadRequest {
    #[error("the request is no HTTP")]
    Malformed(#[from] httparse::Error),
    #[error("the head of the request is too long")]
    TooLong,
    #[error("the request ended within its head")]
    Cut(#[source] io::Error),
    #[error("the request names more than one host")]
    ManyHosts,
}

impl Request {
    /// Reads a head; `None` if the client closed the connection without a word.
    ///
    /// # Errors
    /// [`BadRequest`] for what is no head, or none that is taken.
    pub(super) fn read(source: &mut impl Read) -> Result<Option<Self>, BadRequest> {
        let mut head = Vec::with_capacity(2048);
        let mut chunk = [0; 2048];
        loop {
            match source.read(&mut chunk) {
                Ok(0) if head.is_empty() => return Ok(None),
                Ok(0) => return Err(BadRequest::Cut(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => head.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(BadRequest::Cut(error)),
            }
            if let Some(request) = Self::parse(&head)? {
                return Ok(Some(request));
            }
            if head.len() > LONGEST_HEAD {
                return Err(BadRequest::TooLong);
            }
        }
    }

    /// `None` while the head is not whole.
    fn parse(head: &[u8]) -> Result<Option<Self>, BadRequest> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        if parsed.parse(head)?.is_partial() {
            return Ok(None);
        }
        let target = parsed.path.unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let hosts = parsed.headers.iter();
        let mut hosts = hosts.filter(|header| header.name.eq_ignore_ascii_case("host"));
        let host = hosts.next().map(|header| header.value);
        if hosts.next().is_some() {
            return Err(BadRequest::ManyHosts);
        }
        Ok(Some(Self {
            method: parsed.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: form_urlencoded::parse(query.as_bytes())
                .map(|(name, value)| (owned(name), owned(value)))
                .collect(),
            host: host.map(|value| String::from_utf8_lossy(value).into_owned()),
        }))
    }

    /// The first parameter of this name.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters(name).next()
    }

    /// All parameters of this name.
    pub(super) fn parameters<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let pairs = self.query.iter().filter(move |(key, _)| key == name);
        pairs.map(|(_, value)| value.as_str())
    }
}

fn owned(text: Cow<'_, str>) -> String {
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Request>, BadRequest> {
        Request::read(&mut text.as_bytes())
    }

    #[test]
    fn a_head_is_taken_apart() {
        let text = "GET /api/curves?metric=loss%2Ftrain&run=a+b&run=c HTTP/1.1\r\nHost: localhost:1\r\n\r\n";
        let request = read(text).unwrap().unwrap();
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("GET", "/api/curves")
        );
        assert_eq!(request.parameter("metric"), Some("loss/train"));
        assert_eq!(request.parameters("run").collect::<Vec<_>>(), ["a b", "c"]);
        assert_eq!(request.parameter("points"), None);
        assert_eq!(request.host.as_deref(), Some("localhost:1"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert_eq!(read("").unwrap(), None);
        assert!(matches!(read("GET / HT"), Err(BadRequest::Cut(_))));
        assert!(matches!(
            read("\u{0}\u{1}\r\n\r\n"),
            Err(BadRequest::Malformed(_))
        ));
        let two = "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n";
        assert!(matches!(read(two), Err(BadRequest::ManyHosts)));
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(LONGEST_HEAD));
        assert!(matches!(read(&long), Err(BadRequest::TooLong)));
    }
}
