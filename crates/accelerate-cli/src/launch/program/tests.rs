use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn env(&self) -> Environment {
        Environment::from_pairs([("PATH", self.0.path())])
    }

    fn locate(&self, command: &[&OsStr], kind: Kind, piped: bool) -> Result<Program> {
        let command: Vec<_> = command.iter().map(|word| word.to_os_string()).collect();
        locate(&command, kind, &self.env(), piped).map(|located| located.program)
    }
}

#[test]
fn a_binary_and_a_shell_script_run_by_themselves() {
    let folder = Folder::new();
    for content in [b"\x7fELF...".as_slice(), b"#!/bin/sh\n"] {
        let path = folder.file("train", content, 0o755);
        let program = folder
            .locate(&[path.as_os_str(), OsStr::new("-u")], Kind::Recognise, true)
            .unwrap();
        assert_eq!(
            program,
            Program {
                name: "train".to_owned(),
                executable: path,
                arguments: vec!["-u".into()]
            }
        );
    }
}

#[test]
fn a_script_is_given_to_python() {
    let folder = Folder::new();
    let python = folder.file("python3", b"#!/bin/sh\n", 0o755);
    let script = folder.file("train.py", b"#!/usr/bin/env python\n", 0o755);
    let command = [script.as_os_str(), OsStr::new("--lr")];
    let program = folder.locate(&command, Kind::Recognise, true).unwrap();
    assert_eq!(program.name, "train.py");
    assert_eq!(program.executable, python);
    assert_eq!(
        program.arguments,
        [OsStr::new("-u"), script.as_os_str(), OsStr::new("--lr")]
    );
    let program = folder.locate(&command, Kind::Recognise, false).unwrap();
    assert_eq!(program.arguments, [script.as_os_str(), OsStr::new("--lr")]);
    let program = folder.locate(&command, Kind::AsIs, false).unwrap();
    assert_eq!(program.executable, script);
}

#[test]
fn a_module_is_given_to_python_by_name() {
    let folder = Folder::new();
    folder.file("python", b"#!/bin/sh\n", 0o755);
    let program = folder
        .locate(&[OsStr::new("pkg.train")], Kind::PythonModule, false)
        .unwrap();
    assert_eq!(program.arguments, ["-m", "pkg.train"]);
}

#[test]
fn the_active_environment_goes_before_the_search_path() {
    let folder = Folder::new();
    folder.file("python", b"#!/bin/sh\n", 0o755);
    let active = folder.file("venv/bin/python", b"#!/bin/sh\n", 0o755);
    let env = Environment::from_pairs([
        ("PATH", folder.0.path().to_path_buf()),
        ("VIRTUAL_ENV", folder.0.path().join("venv")),
    ]);
    let program = locate(&["m".into()], Kind::PythonModule, &env, false).unwrap();
    assert_eq!(program.program.executable, active);
}

#[test]
fn what_cannot_run_is_named() {
    let folder = Folder::new();
    let binary = folder.file("train", b"\x7fELF...", 0o644);
    let error = folder
        .locate(&[binary.as_os_str()], Kind::Recognise, false)
        .unwrap_err();
    assert!(matches!(error, Error::ProgramNotExecutable { path } if path == binary));

    let missing = OsStr::new("no-such-program");
    let error = folder
        .locate(&[missing], Kind::Recognise, false)
        .unwrap_err();
    assert!(matches!(error, Error::ProgramMissing { .. }), "{error}");

    let script = folder.file("train.py", b"", 0o644);
    let error = folder
        .locate(&[script.as_os_str()], Kind::Recognise, false)
        .unwrap_err();
    assert!(matches!(error, Error::PythonMissing { .. }), "{error}");
}

#[test]
fn a_program_on_the_search_path_is_found() {
    let folder = Folder::new();
    let path = folder.file("my-trainer", b"\x7fELF...", 0o755);
    let program = folder
        .locate(&[OsStr::new("my-trainer")], Kind::Recognise, false)
        .unwrap();
    assert_eq!(program.executable, path);
}

#[test]
fn the_first_line_of_a_script_decides_who_runs_it() {
    let folder = Folder::new();
    let python = folder.file("python3", b"#!/bin/sh\n", 0o755);
    let executed = |content: &[u8], mode| {
        let path = folder.file("train", content, mode);
        let located = locate(&[path.clone().into()], Kind::Recognise, &folder.env(), true);
        located.map(|located| {
            let is_itself = located.program.executable == path;
            assert!(is_itself || located.program.executable == python);
            (is_itself, located.needs_unbuffered)
        })
    };
    let by_itself = |unbuffered| (true, unbuffered);
    let by_python = (false, false);
    assert_eq!(executed(b"#!/bin/sh\n", 0o755).unwrap(), by_itself(false));
    assert!(executed(b"#!/bin/sh\npython", 0o644).is_err());
    let script = b"#!/usr/bin/env python3\n";
    assert_eq!(executed(script, 0o755).unwrap(), by_itself(true));
    assert_eq!(executed(script, 0o644).unwrap(), by_python);
    assert_eq!(executed(b"print()", 0o755).unwrap(), by_python);
}
