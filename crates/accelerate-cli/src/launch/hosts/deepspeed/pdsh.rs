//! The command `pdsh`: a launcher on every host, all over `ssh`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
};

use accelerate_plan::env::{REMOTE_BIN, WORLD_INFO};

use super::{Job, node};
use crate::launch::hosts::{HostsError, Machine, Result};

/// Hosts that are reached at the same time, at least.
const FAN_OUT: usize = 1024;

/// Runs the launcher of a host and ends it when the connection ends.
///
/// `ssh` leaves programs running when it goes. `pdsh` keeps the input of `ssh` open and sends
/// nothing, so the end of the input is the end of the connection: whoever ends the command on our
/// side, however that happens, ends the whole job.
const GUARD: &str = "\
exec 3<&0; \"$@\" </dev/null 3<&- & job=$!; \
{ while read -r _; do :; done; kill -TERM $job; } <&3 >/dev/null 2>&1 & guard=$!; \
exec 3<&-; wait $job; code=$?; kill $guard 2>/dev/null; exit $code";

pub(super) fn arguments(job: &Job<'_>, machine: &Machine<'_>) -> Result<Vec<OsString>> {
    let pool = &job.hosts.pool;
    let fan_out = FAN_OUT.max(pool.len()).to_string();
    // One interrupt ends it (`-b`), and its exit code is the largest of the hosts (`-S`).
    let flags = ["-R", "ssh", "-b", "-S", "-f", &fan_out, "-w", &pool.names()];
    let mut command: Vec<_> = flags.iter().map(OsString::from).collect();
    command.push(remote(job, machine)?);
    Ok(command)
}

/// The text for the shell of each host. `pdsh` puts the number of the host in the place of `%n`.
///
/// It is written so that every common login shell understands it.
fn remote(job: &Job<'_>, machine: &Machine<'_>) -> Result<OsString> {
    let info = node::encode(&job.hosts.pool);
    let variables = job
        .exports
        .iter()
        .chain([(WORLD_INFO.name(), info.as_str())])
        .map(|(name, value)| OsString::from(format!("{name}={value}")));
    let mut before = vec!["env".into()];
    before.extend(variables);
    before.extend(["sh", "-c", GUARD, "node"].map(OsString::from));
    before.extend(launch(job, machine)?);
    before.push("--machine_rank".into());

    let mut after = job.request.node_flags.to_vec();
    after.push("--".into());
    after.extend(job.request.command.iter().cloned());

    let text = [
        b"cd ".as_slice(),
        &quoted([machine.folder.as_os_str()])?,
        b" && exec ",
        &quoted(before.iter().map(OsString::as_os_str))?,
        b" %n ",
        &quoted(after.iter().map(OsString::as_os_str))?,
    ];
    Ok(OsString::from_vec(text.concat()))
}

/// The launcher of a host and what all hosts are told by flag, up to the number of the host.
fn launch(job: &Job<'_>, machine: &Machine<'_>) -> Result<Vec<OsString>> {
    let pool = &job.hosts.pool;
    let executable = match machine.environment.get(&REMOTE_BIN)? {
        Some(chosen) => chosen.into(),
        None => machine.executable.clone().into_os_string(),
    };
    let master = job.master.as_ref().ok_or(HostsError::NoMasterAddress)?;
    let (machines, processes) = (pool.len().to_string(), pool.total().to_string());
    let port = master.port.to_string();
    let flags = [
        "launch",
        "--num_machines",
        &machines,
        "--num_processes",
        &processes,
        "--main_process_ip",
        &master.addr,
        "--main_process_port",
        &port,
        // The launcher of a host starts processes; it must not start this command again.
        "--deepspeed_multinode_launcher",
        "standard",
    ];
    let flags = flags.iter().map(OsString::from);
    Ok([executable].into_iter().chain(flags).collect())
}

/// Words as a shell reads them back, with nothing in them that `pdsh` would replace.
fn quoted<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for word in words {
        let safe = shlex::bytes::try_quote(word.as_bytes()).map_err(|_| HostsError::NullByte {
            argument: word.display().to_string(),
        })?;
        if !text.is_empty() {
            text.push(b' ');
        }
        for byte in safe.iter() {
            text.push(*byte);
            if *byte == b'%' {
                text.push(*byte);
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
