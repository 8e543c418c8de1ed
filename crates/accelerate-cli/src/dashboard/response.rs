//! Answers, each on a connection of its own.

use std::io::{self, Write};

use serde::Serialize;

/// What a page from here may do: talk to us, and nothing else in the world.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The status of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    /// We were reached under a name that is not ours.
    Misdirected,
    Failed,
    Busy,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::Misdirected => "421 Misdirected Request",
            Self::Failed => "500 Internal Server Error",
            Self::Busy => "503 Service Unavailable",
        }
    }
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: Status,
    kind: &'static str,
    /// The name under which a browser saves it, if it should.
    file_name: Option<&'static str>,
    pub(super) body: Vec<u8>,
}

impl Response {
    /// Something of this media type.
    pub(super) fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: Status::Ok,
            kind,
            file_name: None,
            body: body.into(),
        }
    }

    /// Something as JSON.
    pub(super) fn json(content: &impl Serialize) -> Self {
        match serde_json::to_vec(content) {
            Ok(body) => Self::new("application/json", body),
            Err(error) => Self::error(Status::Failed, &error.to_string()),
        }
    }

    /// A file to be saved.
    pub(super) fn file(name: &'static str, kind: &'static str, body: Vec<u8>) -> Self {
        Self {
            file_name: Some(name),
            ..Self::new(kind, body)
        }
    }

    /// What is wrong, in words.
    pub(super) fn error(status: Status, text: &str) -> Self {
        #[derive(Serialize)]
        struct Problem<'a> {
            error: &'a str,
        }
        let body = serde_json::to_vec(&Problem { error: text }).unwrap_or_default();
        Self {
            status,
            ..Self::new("application/json", body)
        }
    }

    /// Writes it; without the body if only the head was asked for.
    pub(super) fn write(&self, out: &mut impl Write, head_only: bool) -> io::Result<()> {
        let mut text = head(self.status, self.kind);
        text += &format!("Content-Length: {}\r\n", self.body.len());
        if self.status == Status::MethodNotAllowed {
            text += "Allow: GET, HEAD\r\n";
        }
        if let Some(name) = self.file_name {
            text += &format!("Content-Disposition: attachment; filename=\"{name}\"\r\n");
        }
        text += "\r\n";
        out.write_all(text.as_bytes())?;
        if !head_only {
            out.write_all(&self.body)?;
        }
        out.flush()
    }
}

/// Writes the head of a stream that ends when the connection does.
pub(super) fn begin_stream(out: &mut impl Write) -> io::Result<()> {
    let text = head(Status::Ok, "text/event-stream") + "\r\n";
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What every answer says, without the empty line.
fn head(status: Status, kind: &str) -> String {
    format!(
        "HTTP/1.1 {}\r\nContent-Type: {kind}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n",
        status.line()
    )
}
