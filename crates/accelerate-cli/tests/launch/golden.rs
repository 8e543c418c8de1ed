//! What a person sees at the end of a job that failed, word for word.

use crate::launcher::{Done, Folder};

/// Not a test by itself: the launcher under test runs this file as its program.
#[test]
fn as_a_rank_panic() {
    let Ok(failing) = std::env::var("PANIC_ON_RANK") else {
        return;
    };
    // A single process is told nothing about ranks.
    let rank = std::env::var("RANK").unwrap_or_else(|_| "0".to_owned());
    assert_ne!(rank, failing, "out of luck");
    std::thread::sleep(crate::launcher::DEADLINE);
}

/// The words of the launcher at the end, without what differs from run to run.
fn words(done: &Done) -> String {
    let start = done.stderr.find("error: `").unwrap();
    let mut text = String::new();
    for line in done.stderr[start..].lines() {
        // `thread 'golden::as_a_rank_panic' (123) panicked at src/file.rs:1:2:`
        let line = match line.find(" panicked at ") {
            Some(_) => "    thread panicked at PLACE",
            None => line,
        };
        text += &format!("{line}\n");
    }
    text
}

const PANIC: [&str; 3] = ["--exact", "golden::as_a_rank_panic", "--nocapture"];

fn panicking(processes: &str, failing: &str) -> String {
    let folder = Folder::new();
    // The name of this file has a number that changes.
    let program = folder.path("train");
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &program).unwrap();
    let launch = folder.launch().env("PANIC_ON_RANK", failing);
    let launch = launch.env("RUST_BACKTRACE", "0");
    let launch = launch.args(["--cpu", "--num_processes", processes]);
    let done = launch.args([program]).args(PANIC).run();
    done.assert_code(101);
    words(&done)
}

#[test]
fn a_rust_panic() {
    let last_lines = "    thread panicked at PLACE\n    assertion `left != right` failed: out of \
        luck\n      left: \"0\"\n     right: \"0\"\n    note: run with `RUST_BACKTRACE=1` \
        environment variable to display a backtrace\n";
    let cause = "  caused by: exit code 101, which is a panic in a Rust program\n";
    assert_eq!(
        panicking("1", "0"),
        format!("error: `train` failed\n{cause}  last lines of rank 0 on stderr:\n{last_lines}")
    );
    assert_eq!(
        panicking("2", "1"),
        format!(
            "error: `train` failed on rank 1 of 2\n{cause}  last lines of rank 1 on stderr:\n{}",
            last_lines.replace("\"0\"", "\"1\"")
        )
    );
}

#[test]
fn a_python_exception() {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join("python3").exists())
    });
    if !found {
        println!("skipped: there is no `python3` on the search path");
        return;
    }
    let folder = Folder::new();
    let text = "import os, time\nif os.environ.get('RANK', '1') == '1':\n    \
        raise ValueError('out of luck')\ntime.sleep(60)\n";
    std::fs::write(folder.path("train.py"), text).unwrap();
    let run = |processes| {
        let flags = ["--cpu", "--num_processes", processes, "train.py"];
        let done = folder.launch().args(flags).run();
        done.assert_code(1);
        words(&done)
    };
    let lines = |rank| {
        format!(
            "  caused by: exit code 1\n  last lines of rank {rank} on stderr:\n    Traceback (most \
             recent call last):\n      File \"./train.py\", line 3, in <module>\n        raise \
             ValueError('out of luck')\n    ValueError: out of luck\n"
        )
    };
    assert_eq!(
        without_folder(&run("1")),
        format!("error: `train.py` failed\n{}", lines(0))
    );
    assert_eq!(
        without_folder(&run("2")),
        format!("error: `train.py` failed on rank 1 of 2\n{}", lines(1))
    );
}

/// Some versions of Python name a script by its whole path.
fn without_folder(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.push(match line.find("train.py\"") {
            Some(end) => format!("      File \"./{}", &line[end..]),
            None => line.to_owned(),
        });
    }
    lines.join("\n") + "\n"
}

#[test]
fn a_kill() {
    let folder = Folder::new();
    let body = "if test ${RANK:-1} = 1; then echo last words >&2; kill -KILL $$; fi; sleep 60";
    let script = folder.script("train", body);
    let run = |processes| {
        let flags = ["--cpu", "--num_processes", processes];
        let done = folder.launch().args(flags).args([&script]).run();
        done.assert_code(128 + 9);
        words(&done)
    };
    let rest = |rank| {
        format!(
            "  caused by: killed by SIGKILL (exit code 137)\n  last lines of rank {rank} on \
             stderr:\n    last words\n\nhint: "
        )
    };
    let single = run("1");
    let expected = format!("error: `train` failed\n{}", rest(0));
    assert!(single.starts_with(&expected), "{single}");
    assert!(single.contains("memory ran out"), "{single}");
    let two = run("2");
    let expected = format!("error: `train` failed on rank 1 of 2\n{}", rest(1));
    assert!(two.starts_with(&expected), "{two}");
}

#[test]
fn the_streams_of_a_single_process_keep_their_order_in_one_file() {
    let folder = Folder::new();
    let body = r#"
        for n in 1 2 3 4 5 6 7 8 9; do echo "out $n"; printf "err $n;" >&2; done
        exit 3"#;
    let script = folder.script("train", body);
    let file = std::fs::File::create(folder.path("both")).unwrap();
    let launch = folder.launch().stdout(file.try_clone().unwrap());
    let launch = launch.stderr(file).args(["--quiet", "--cpu"]);
    launch.args([script]).run().assert_code(3);
    let text = std::fs::read_to_string(folder.path("both")).unwrap();
    let expected: String = (1..=9).map(|n| format!("out {n}\nerr {n};")).collect();
    assert_eq!(text, expected);
}
