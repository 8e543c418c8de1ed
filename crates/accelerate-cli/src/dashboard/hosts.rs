//! Under which names we may be reached.
//!
//! A page from elsewhere can give its own name our address and then read what we answer, as if we
//! were its server. The browser still says the name, in the header `Host`: numbers and `localhost`
//! can belong to no such page, other names can.

use std::net::IpAddr;

/// The names that are ours.
#[derive(Debug, Clone)]
pub(super) struct Hosts {
    /// The name that was given with `--host`.
    given: String,
}

impl Hosts {
    pub(super) fn new(given: &str) -> Self {
        Self {
            given: bare(given).to_ascii_lowercase(),
        }
    }

    /// Whether a header `Host` names us, with whatever port: it may have been forwarded.
    pub(super) fn is_ours(&self, header: Option<&str>) -> bool {
        // Only programs leave it out; browsers never do.
        let Some(header) = header else { return true };
        let name = bare(without_port(header.trim())).to_ascii_lowercase();
        name == "localhost" || name == self.given || name.parse::<IpAddr>().is_ok()
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // The colons within an address are no port.
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

/// Without the brackets around an address of version 6.
fn bare(host: &str) -> &str {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inner.unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_localhost_and_the_given_name_are_ours() {
        let hosts = Hosts::new("Trainer.lan");
        for ours in [
            "127.0.0.1:8686",
            "127.0.0.1",
            "localhost:9000",
            "LOCALHOST",
            "[::1]:8686",
            "[::1]",
            "192.168.1.7:80",
            "trainer.lan:8686",
        ] {
            assert!(hosts.is_ours(Some(ours)), "{ours}");
        }
        assert!(hosts.is_ours(None));
    }

    #[test]
    fn other_names_are_not() {
        let hosts = Hosts::new("127.0.0.1");
        for other in [
            "evil.example",
            "evil.example:8686",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "",
            "trainer.lan",
        ] {
            assert!(!hosts.is_ours(Some(other)), "{other}");
        }
    }
}
