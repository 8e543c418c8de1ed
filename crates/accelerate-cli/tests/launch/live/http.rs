//! `accelerate dashboard` as a process, and plain HTTP to it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::launcher::DEADLINE;

/// A page that is being served.
pub(super) struct Served {
    child: Child,
    /// Host and port.
    pub(super) address: String,
}

impl Served {
    /// Serves the runs below `folder`, at any free port.
    pub(super) fn of(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_accelerate"))
            .arg("dashboard")
            .arg(folder)
            .args(["--port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("http://")
            .and_then(|rest| rest.strip_suffix('/'));
        assert!(address.is_some(), "no address: {line}");
        Self {
            address: address.unwrap().to_owned(),
            child,
        }
    }

    /// The answer to a request as it goes over the wire.
    pub(super) fn raw(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let parts = text.split_once("\r\n\r\n");
        assert!(parts.is_some(), "no head: {text}");
        let (head, body) = parts.unwrap();
        Answer {
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(super) fn get(&self, target: &str) -> Answer {
        self.raw(&format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.address
        ))
    }

    /// What a successful answer says.
    pub(super) fn json(&self, target: &str) -> Value {
        let answer = self.get(target);
        assert_eq!(answer.status(), 200, "{target}: {answer:?}");
        serde_json::from_str(&answer.body).unwrap()
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        let word = self.head.split(' ').nth(1);
        word.and_then(|word| word.parse().ok()).unwrap()
    }
}
