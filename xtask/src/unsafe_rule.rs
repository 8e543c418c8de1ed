//! The rule that unsafe code lives in one crate and one file.
//!
//! The compiler does the work: the workspace's lint table denies unsafe code, and every crate root
//! but the excepted ones forbids it. What is left to check is that nobody stepped out of that.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::workspace::{Member, Workspace};

/// The crates whose root need not forbid unsafe code, and the place in each that may hold some.
const EXCEPTED: [(&str, &str); 2] = [
    ("accelerate-torch", ""),
    ("accelerate-formats", "src/mmap.rs"),
];

/// Demands the rule of all members.
pub(crate) fn check(workspace: &Workspace, members: &[Member]) -> Result<(), Failure> {
    let mut breaches = Vec::new();
    for member in members {
        breaches.extend(breaches_of(member)?);
    }
    if breaches.is_empty() {
        return Ok(());
    }
    let root = workspace.path("");
    let lines: Vec<String> = breaches
        .iter()
        .map(|(path, what)| {
            format!(
                "{}: {what}",
                path.strip_prefix(&root).unwrap_or(path).display()
            )
        })
        .collect();
    Err(
        Failure::because("unsafe code may be where it must not", lines.join("\n"))
            .hint("put what needs unsafe code into `accelerate-torch`, behind a safe function"),
    )
}

/// Where a member breaks the rule, and how.
fn breaches_of(member: &Member) -> Result<Vec<(PathBuf, &'static str)>, Failure> {
    let exception = EXCEPTED.iter().find(|(name, _)| *name == member.name);
    let mut breaches = Vec::new();
    if !inherits_lints(&read(&member.manifest)?) {
        breaches.push((member.manifest.clone(), "lacks `[lints] workspace = true`"));
    }
    if exception.is_none() {
        for root in &member.roots {
            if !read(root)?
                .lines()
                .any(|line| line.trim() == "#![forbid(unsafe_code)]")
            {
                breaches.push((root.clone(), "lacks `#![forbid(unsafe_code)]`"));
            }
        }
    }
    let folder = member.manifest.parent().unwrap_or(&member.manifest);
    let excepted = exception.map(|(_, place)| folder.join(place).to_string_lossy().into_owned());
    for file in rust_files(folder)? {
        let is_excepted = excepted
            .as_ref()
            .is_some_and(|start| file.to_string_lossy().starts_with(start));
        if !is_excepted && read(&file)?.lines().any(permits_unsafe) {
            breaches.push((file, "permits unsafe code"));
        }
    }
    Ok(breaches)
}

fn inherits_lints(manifest: &str) -> bool {
    manifest
        .split_once("[lints]")
        .and_then(|(_, table)| table.trim_start().lines().next())
        .is_some_and(|line| line.replace(' ', "") == "workspace=true")
}

/// Whether a line is part of an attribute that lifts the ban, on one line or on several.
fn permits_unsafe(line: &str) -> bool {
    let line = line.trim();
    let is_attribute = line.starts_with('#') || line.starts_with("unsafe_code");
    let keeps_it = line.contains("forbid(unsafe_code)") || line.contains("deny(unsafe_code)");
    is_attribute && line.contains("unsafe_code") && !keeps_it
}

/// All Rust files below a folder, without build output.
fn rust_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| Failure::because(format!("cannot list `{}`", folder.display()), error);
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            if entry.file_name() != "target" {
                files.extend(rust_files(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::because(format!("cannot read `{}`", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(dir: &Path, name: &str, lib: &str, mmap: &str) -> Member {
        fs::create_dir_all(dir.join("src")).unwrap();
        fs::write(
            dir.join("Cargo.toml"),
            "[package]\n\n[lints]\nworkspace = true\n",
        )
        .unwrap();
        fs::write(dir.join("src/lib.rs"), lib).unwrap();
        fs::write(dir.join("src/mmap.rs"), mmap).unwrap();
        Member {
            name: name.to_owned(),
            manifest: dir.join("Cargo.toml"),
            roots: vec![dir.join("src/lib.rs")],
        }
    }

    #[test]
    fn each_way_out_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let breaches = |name: &str, lib: &str, mmap: &str| {
            let member = member(dir.path(), name, lib, mmap);
            breaches_of(&member)
                .unwrap()
                .into_iter()
                .map(|(_, what)| what)
                .collect::<Vec<_>>()
        };
        let good = "#![forbid(unsafe_code)]\n";
        assert_eq!(breaches("accelerate-plan", good, ""), [""; 0]);
        assert_eq!(
            breaches("accelerate-plan", "", ""),
            ["lacks `#![forbid(unsafe_code)]`"]
        );
        let lifted = "#[expect(unsafe_code, reason = \"x\")]\nfn f() {}\n";
        let in_lines = "#[expect(\n    unsafe_code,\n    reason = \"x\"\n)]\nfn f() {}\n";
        for text in [lifted, in_lines] {
            assert_eq!(
                breaches("accelerate-plan", good, text),
                ["permits unsafe code"]
            );
            assert_eq!(
                breaches("accelerate-formats", text, ""),
                ["permits unsafe code"]
            );
            assert_eq!(breaches("accelerate-formats", "", text), [""; 0]);
            assert_eq!(breaches("accelerate-torch", text, text), [""; 0]);
        }
    }

    #[test]
    fn a_member_must_take_the_lint_table() {
        assert!(inherits_lints("[lints]\nworkspace = true\n"));
        assert!(!inherits_lints("[lints]\nworkspace = false\n"));
        assert!(!inherits_lints("[package]\nname = \"a\"\n"));
    }
}
