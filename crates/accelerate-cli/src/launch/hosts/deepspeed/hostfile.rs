//! The hostfile: which machines there are, and how many processes each one takes.

use std::{fs, path::Path};

use indexmap::{IndexMap, map::Entry};

use super::pool::Pool;
use crate::launch::hosts::{HostsError, Result};

/// Reads a hostfile.
///
/// # Errors
/// [`HostsError::HostfileUnreadable`], and as [`parse`].
pub(crate) fn read(path: &Path) -> Result<Pool> {
    let text = fs::read_to_string(path).map_err(|source| HostsError::HostfileUnreadable {
        path: path.to_owned(),
        source,
    })?;
    parse(&text, path)
}

/// Reads lines `host slots=N`. Empty lines and what follows a `#` do not count.
///
/// # Errors
/// [`HostsError::HostfileLine`], [`HostsError::DuplicateHost`], [`HostsError::NoHosts`].
fn parse(text: &str, path: &Path) -> Result<Pool> {
    let mut lines_of_hosts = IndexMap::new();
    let mut pool = Pool::default();
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        let content = text.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        let (host, slots) = entry(content).ok_or_else(|| HostsError::HostfileLine {
            path: path.to_owned(),
            line,
            text: text.trim().to_owned(),
        })?;
        match lines_of_hosts.entry(host.to_owned()) {
            Entry::Occupied(first) => {
                return Err(HostsError::DuplicateHost {
                    path: path.to_owned(),
                    line,
                    first: *first.get(),
                    host: host.to_owned(),
                });
            }
            Entry::Vacant(place) => place.insert(line),
        };
        pool.insert(host, (0..slots).collect());
    }
    match pool.is_empty() {
        true => Err(HostsError::NoHosts {
            path: path.to_owned(),
        }),
        false => Ok(pool),
    }
}

fn entry(content: &str) -> Option<(&str, usize)> {
    // More than any machine has: a typing error must not fill the memory.
    const MOST_SLOTS: usize = 4096;
    let mut words = content.split_whitespace();
    let host = words.next().filter(|host| is_host(host))?;
    let slots = words.next()?.strip_prefix("slots=")?.parse().ok()?;
    let is_whole = words.next().is_none() && (1..=MOST_SLOTS).contains(&slots);
    is_whole.then_some((host, slots))
}

/// A name that no launcher takes for a flag, a pattern or a list.
fn is_host(name: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
    !name.starts_with('-') && name.bytes().all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Pool> {
        super::parse(text, Path::new("hosts"))
    }

    #[test]
    fn comments_and_empty_lines_do_not_count_and_order_is_kept() {
        let text =
            "# two machines\n\n  worker-1   slots=2  # the old one\nme@worker-0.lan\tslots=3\r\n";
        let pool = parse(text).unwrap();
        let hosts: Vec<_> = pool.hosts().collect();
        assert_eq!(
            hosts,
            [
                ("worker-1", &[0, 1][..]),
                ("me@worker-0.lan", &[0, 1, 2][..])
            ]
        );
    }

    #[test]
    fn a_malformed_line_is_named_with_its_number() {
        for wrong in [
            "worker",
            "worker slots=",
            "worker slots=0",
            "worker slots=-1",
            "worker slots=two",
            "worker slots = 2",
            "worker slots=2 more",
            "worker gpus=2",
            "worker slots=99999999999",
            "-oProxyCommand=x slots=1",
            "a,b slots=1",
            "w[0-3] slots=1",
        ] {
            let error = parse(&format!("good slots=1\n{wrong}\n")).unwrap_err();
            let text =
                format!("hosts:2: expected `host slots=N` with N at least 1, found `{wrong}`");
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_host_counts_once_and_there_must_be_one() {
        let error = parse("a slots=1\nb slots=1\na slots=2").unwrap_err();
        assert_eq!(
            error.to_string(),
            "hosts:3: host `a` was listed in line 1 already"
        );
        let error = parse("# nothing\n").unwrap_err();
        assert_eq!(error.to_string(), "the hostfile `hosts` lists no host");
    }

    #[test]
    fn a_missing_file_is_an_error_with_a_cause() {
        let error = read(Path::new("/no/such/hostfile")).unwrap_err();
        assert!(matches!(error, HostsError::HostfileUnreadable { .. }));
        assert!(std::error::Error::source(&error).is_some());
    }
}
