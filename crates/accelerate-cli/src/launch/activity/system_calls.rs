//! Names of the system calls in which programs wait, by their number.

/// Name, number on x86-64, number on 64-bit ARM and RISC-V (`None` if there is none).
const CALLS: [(&str, u32, Option<u32>); 38] = [
    ("read", 0, Some(63)),
    ("write", 1, Some(64)),
    ("open", 2, None),
    ("poll", 7, None),
    ("ioctl", 16, Some(29)),
    ("pread64", 17, Some(67)),
    ("pwrite64", 18, Some(68)),
    ("readv", 19, Some(65)),
    ("writev", 20, Some(66)),
    ("select", 23, None),
    ("sched_yield", 24, Some(124)),
    ("pause", 34, None),
    ("nanosleep", 35, Some(101)),
    ("sendfile", 40, Some(71)),
    ("connect", 42, Some(203)),
    ("accept", 43, Some(202)),
    ("sendto", 44, Some(206)),
    ("recvfrom", 45, Some(207)),
    ("sendmsg", 46, Some(211)),
    ("recvmsg", 47, Some(212)),
    ("wait4", 61, Some(260)),
    ("flock", 73, Some(32)),
    ("fsync", 74, Some(82)),
    ("rt_sigtimedwait", 128, Some(137)),
    ("rt_sigsuspend", 130, Some(133)),
    ("futex", 202, Some(98)),
    ("clock_nanosleep", 230, Some(115)),
    ("epoll_wait", 232, None),
    ("waitid", 247, Some(95)),
    ("openat", 257, Some(56)),
    ("pselect6", 270, Some(72)),
    ("ppoll", 271, Some(73)),
    ("epoll_pwait", 281, Some(22)),
    ("accept4", 288, Some(242)),
    ("preadv", 295, Some(69)),
    ("recvmmsg", 299, Some(243)),
    ("io_uring_enter", 426, Some(426)),
    ("epoll_pwait2", 441, Some(441)),
];

/// The call named by a line of `/proc/PID/syscall`; `None` if the process is in no call, or if the
/// system does not tell.
pub(super) fn of_line(line: &str) -> Option<String> {
    let number: u32 = line.split_ascii_whitespace().next()?.parse().ok()?;
    let is_it = |(_, x86, other): &&(&str, u32, Option<u32>)| match () {
        () if cfg!(target_arch = "x86_64") => *x86 == number,
        () if cfg!(any(target_arch = "aarch64", target_arch = "riscv64")) => *other == Some(number),
        () => false,
    };
    let name = CALLS.iter().find(is_it).map(|(name, ..)| *name);
    Some(name.map_or_else(|| format!("system call {number}"), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_call() {
        let futex = if cfg!(target_arch = "x86_64") {
            202
        } else {
            98
        };
        let line = format!("{futex} 0x7f 0x80 0x0 0x0 0x0 0x0 0x7ffe 0x7fb5\n");
        assert_eq!(of_line(&line).as_deref(), Some("futex"));
        assert_eq!(of_line("9999 0x0").as_deref(), Some("system call 9999"));
        assert_eq!(of_line("running\n"), None);
        assert_eq!(of_line("-1 0x7ffe 0x7fb5"), None);
    }
}
