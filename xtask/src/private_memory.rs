//! How much memory of its own a program has: what is mapped from files is not counted.

use std::fs;
use std::io;
use std::process::Child;
use std::thread;
use std::time::Duration;

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Waits for the end of a process, and tells how much memory of its own it was seen with.
pub(crate) fn watch(child: &mut Child) -> io::Result<f64> {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0f64;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        peak = peak.max(private_bytes(&text));
        if let Some(ended) = child.try_wait()? {
            return match ended.success() {
                true => Ok(peak),
                false => Err(io::Error::other(ended.to_string())),
            };
        }
        thread::sleep(LOOK);
    }
}

/// The anonymous memory in a `/proc/PID/status`.
fn private_bytes(status: &str) -> f64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_read_from_the_status() {
        let text = "VmHWM:\t  900 kB\nRssAnon:\t     128 kB\nRssFile:\t  5 kB\n";
        assert_eq!(private_bytes(text), 131_072.0);
        assert_eq!(private_bytes(""), 0.0);
    }
}
