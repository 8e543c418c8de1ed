//! Where and what this process is, as services want to know.

use std::env;
use std::path::Path;

/// The name of this machine, or `localhost` if it has none.
pub(crate) fn host() -> String {
    let of_system = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = of_system()
        .or_else(|| env::var("HOSTNAME").ok())
        .or_else(|| env::var("COMPUTERNAME").ok())
        .unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// The file name of this program.
pub(crate) fn program() -> String {
    let path = env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The user of this process, or nothing if nobody says.
pub(crate) fn user() -> String {
    env::var("USER")
        .or_else(|_| env::var("USERNAME"))
        .unwrap_or_default()
}
