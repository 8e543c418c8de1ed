//! Where the launchers meet: `host:port`.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs as _},
    num::NonZeroU16,
};

use super::error::{Error, Result};

/// An address as the user gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// A name, or an address of either family without brackets.
    pub(crate) host: String,
    pub(crate) port: NonZeroU16,
}

impl Endpoint {
    /// Reads `host`, `host:port`, `[v6]` or `[v6]:port`; the port may be left out where there is a
    /// default.
    ///
    /// # Errors
    /// [`Error::EndpointHost`], [`Error::EndpointPort`].
    pub(crate) fn parse(text: &str, default_port: Option<NonZeroU16>) -> Result<Self> {
        let text = text.trim();
        let (host, port) = split(text);
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-' | '%');
        let is_address = host.parse::<IpAddr>().is_ok() || host.contains('%');
        let bad_colon = host.contains(':') && !is_address;
        if host.is_empty() || bad_colon || !host.chars().all(allowed) {
            return Err(Error::EndpointHost {
                endpoint: text.to_owned(),
            });
        }
        let no_port = || Error::EndpointPort {
            endpoint: text.to_owned(),
        };
        let port = match port {
            None => default_port,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok(),
            Some(_) => None,
        };
        Ok(Self {
            host: host.to_owned(),
            port: port.ok_or_else(no_port)?,
        })
    }

    /// Looks the host up, if it is a name.
    pub(crate) fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let host = self.host.as_str();
        let found: Vec<_> = (host, self.port.get()).to_socket_addrs()?.collect();
        match found.is_empty() {
            true => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the name has no address",
            )),
            false => Ok(found),
        }
    }

    /// Whether the host is this machine: one of its addresses can be bound here.
    pub(crate) fn is_here(&self) -> bool {
        let here = |address: &SocketAddr| TcpListener::bind((address.ip(), 0)).is_ok();
        self.host == "localhost" || self.resolve().is_ok_and(|found| found.iter().any(here))
    }
}

/// Splits the port off, if there is one; an address of version 6 needs brackets for that.
fn split(text: &str) -> (&str, Option<&str>) {
    if text.ends_with(']') || text.parse::<IpAddr>().is_ok() {
        return (text, None);
    }
    match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        let default = NonZeroU16::new(29400);
        match Endpoint::parse(text, default) {
            Ok(endpoint) => format!("{} {}", endpoint.host, endpoint.port),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn hosts_and_ports() {
        assert_eq!(parsed("node-1.example"), "node-1.example 29400");
        assert_eq!(parsed(" 10.0.0.1:29500 "), "10.0.0.1 29500");
        assert_eq!(parsed("[::1]:5"), "::1 5");
        assert_eq!(parsed("[fe80::1%eth0]"), "fe80::1%eth0 29400");
        assert_eq!(parsed("fe80::1"), "fe80::1 29400");
    }

    #[test]
    fn what_is_wrong_is_quoted() {
        for text in ["", ":5", "two words:5", "a:b:5", "a/b:5"] {
            assert!(parsed(text).contains("host"), "{text}: {}", parsed(text));
        }
        for text in ["a:", "a:0", "a:65536", "a:http", "a:+5"] {
            let message = parsed(text);
            assert!(
                message.contains("port") && message.contains(text),
                "{message}"
            );
        }
        assert!(Endpoint::parse("a", None).is_err());
    }

    #[test]
    fn loopback_is_here_and_a_foreign_address_is_not() {
        let here = |text: &str| Endpoint::parse(text, NonZeroU16::new(1)).unwrap().is_here();
        assert!(here("127.0.0.1"));
        assert!(here("localhost"));
        // Set aside for documentation: no machine has it.
        assert!(!here("192.0.2.1"));
    }
}
