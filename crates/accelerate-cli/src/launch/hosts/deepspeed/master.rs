//! The address at which the processes meet, when nobody gave it.

use std::process::{Command, Stdio};

use super::{MultinodeLauncher, pool::Pool};
use crate::launch::hosts::{HostsError, Machine, Result};

/// Asks the first host for its first address, as `ssh HOST hostname -I` prints it.
///
/// # Errors
/// [`HostsError::NoMasterAddress`] without a host or without `ssh`; [`HostsError::Ssh`] and
/// [`HostsError::FirstHost`] if there is no answer.
pub(super) fn first_address(
    pool: &Pool,
    backend: MultinodeLauncher,
    machine: &Machine<'_>,
) -> Result<String> {
    let ssh = machine.find(&["ssh"]);
    // `nossh` is the promise to reach no machine.
    let (Some(ssh), Some((host, _)), true) =
        (ssh, pool.host(0), backend != MultinodeLauncher::NoSsh)
    else {
        return Err(HostsError::NoMasterAddress);
    };
    let host = host.to_owned();
    let output = Command::new(ssh)
        // Never ask for a password, never wait for ever.
        .args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"])
        .args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=2"])
        .args([&host, "hostname", "-I"])
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|source| HostsError::Ssh {
        host: host.clone(),
        source,
    })?;
    let answer = String::from_utf8_lossy(&output.stdout);
    match answer.split_whitespace().next() {
        Some(address) if output.status.success() => Ok(address.to_owned()),
        _ => Err(HostsError::FirstHost {
            host,
            answer: last_words(&output.stderr, output.status.to_string()),
        }),
    }
}

fn last_words(stderr: &[u8], otherwise: String) -> String {
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    last.map_or(otherwise, |line| line.trim().to_owned())
}
