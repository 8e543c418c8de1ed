//! The platform in one word, as Python's `platform.platform()` spells it.

use std::{env::consts, fs};

use crate::machine::Root;

/// Operating system, kernel, processor and C library, such as
/// `Linux-6.1.0-x86_64-with-glibc2.36`.
pub(super) fn describe(root: &Root) -> String {
    match consts::OS {
        "macos" => macos(root),
        _ => linux(root),
    }
}

fn linux(root: &Root) -> String {
    let kernel = |name: &str| root.text(format!("/proc/sys/kernel/{name}"));
    let system = kernel("ostype").unwrap_or_else(|| consts::OS.to_owned());
    let parts = [
        Some(system),
        kernel("osrelease"),
        Some(consts::ARCH.to_owned()),
        c_library(root).map(|library| format!("with-{library}")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    parts.join("-").replace(' ', "_")
}

/// Python names the version of the system, then the processor twice.
fn macos(root: &Root) -> String {
    let text = root.text("/System/Library/CoreServices/SystemVersion.plist");
    let version = text.as_deref().and_then(product_version).unwrap_or("0");
    let (machine, processor) = match consts::ARCH {
        "aarch64" => ("arm64", "arm"),
        other => (other, "i386"),
    };
    format!("macOS-{version}-{machine}-{processor}-64bit")
}

fn product_version(plist: &str) -> Option<&str> {
    let (_, rest) = plist.split_once("<key>ProductVersion</key>")?;
    let (_, rest) = rest.split_once("<string>")?;
    Some(rest.split_once("</string>")?.0.trim())
}

/// The C library that programs here are linked to, with its version.
fn c_library(root: &Root) -> Option<String> {
    let version = candidates(root)
        .into_iter()
        .find_map(|path| glibc_version(root, &path));
    match version {
        Some(version) => Some(format!("glibc{version}")),
        None => musl(root).then(|| "musl".to_owned()),
    }
}

/// Files that may be glibc: the one this program runs with, then the usual places.
fn candidates(root: &Root) -> Vec<String> {
    let maps = root.text("/proc/self/maps").unwrap_or_default();
    let own = maps
        .lines()
        .filter_map(|line| line.find('/').map(|start| line[start..].to_owned()))
        .find(|path| path.ends_with("/libc.so.6") || path.contains("/libc-2."));
    let triple = format!("/lib/{}-linux-gnu/libc.so.6", consts::ARCH);
    let usual = [triple.as_str(), "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
    own.into_iter().chain(usual.map(str::to_owned)).collect()
}

/// The version in the text that glibc prints when it is run as a program.
fn glibc_version(root: &Root, path: &str) -> Option<String> {
    const BEFORE: &str = "GNU C Library ";
    const VERSION: &str = "release version ";
    let bytes = fs::read(root.path(path)).ok()?;
    // Names of functions and texts are all we look for, so other bytes may be replaced.
    let text = String::from_utf8_lossy(&bytes);
    let (_, banner) = text.split_once(BEFORE)?;
    let (_, rest) = banner.split_once(VERSION)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let version = rest[..end].trim_end_matches('.');
    (!version.is_empty()).then(|| version.to_owned())
}

fn musl(root: &Root) -> bool {
    let names = root.names("/lib");
    names.iter().any(|name| name.starts_with("ld-musl-"))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::machine::pretend::Pretend;

    const KERNEL: [(&str, &str); 2] = [
        ("proc/sys/kernel/ostype", "Linux\n"),
        ("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n"),
    ];

    fn describe(files: &[(&str, &str)]) -> String {
        let machine = Pretend::with(&KERNEL);
        files
            .iter()
            .for_each(|(path, text)| machine.add(path, text));
        super::describe(&machine.root())
    }

    #[test]
    fn glibc_is_asked_for_its_version() {
        let banner = "\x7fELF\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\n";
        let expected = format!("Linux-6.1.0-13-amd64-{}-with-glibc2.36", consts::ARCH);
        let loaded = [
            (
                "proc/self/maps",
                "7f00-7f01 r--p 0 fe:01 12   /opt/sys/libc.so.6\n7f02-7f03 rw-p 0 0 0\n",
            ),
            ("opt/sys/libc.so.6", banner),
        ];
        assert_eq!(describe(&loaded), expected);
        assert_eq!(describe(&[("lib64/libc.so.6", banner)]), expected);
    }

    #[test]
    fn other_libraries_are_named_without_a_version() {
        let start = format!("Linux-6.1.0-13-amd64-{}", consts::ARCH);
        assert_eq!(describe(&[]), start);
        let musl = describe(&[("lib/ld-musl-x86_64.so.1", "")]);
        assert_eq!(musl, format!("{start}-with-musl"));
    }

    #[test]
    fn the_version_of_macos_is_read_from_its_list() {
        let plist = "<dict>\n<key>ProductVersion</key>\n\t<string>14.5</string>\n</dict>";
        assert_eq!(product_version(plist), Some("14.5"));
        assert_eq!(product_version("<dict/>"), None);
    }
}
