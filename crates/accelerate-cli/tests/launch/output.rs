//! Output of several ranks: whole lines, told apart, on the right stream.

use std::{collections::HashMap, fs, path::Path};

use crate::launcher::{Folder, wait_until};

const LINES: usize = 10_000;

/// A long line with carriage returns in it, as progress bars write them.
fn long_line(rank: usize, number: usize) -> String {
    let text = "abcdefghij".repeat(20 + number % 13);
    format!("<{rank}:{number}:\r{text}\r{text}>")
}

/// Not a test by itself: the launcher under test runs this file as its program.
#[test]
fn as_a_rank_print_long_lines() {
    use std::io::Write as _;
    let Ok(rank) = std::env::var("PRINT_LINES_AS_RANK").and_then(|_| std::env::var("RANK")) else {
        return;
    };
    let rank = rank.parse().unwrap();
    let out = std::io::stdout();
    let mut out = std::io::LineWriter::with_capacity(8192, out.lock());
    for number in 0..LINES {
        writeln!(out, "{}", long_line(rank, number)).unwrap();
        if number % 100 == 0 {
            eprintln!("<err:{rank}:{number}>");
        }
    }
}

#[test]
fn no_line_of_four_ranks_is_torn() {
    let folder = Folder::new();
    let program = std::env::current_exe().unwrap();
    let flags = ["--quiet", "--num_processes=4"];
    let test = [
        "--exact",
        "output::as_a_rank_print_long_lines",
        "--nocapture",
    ];
    let running = folder
        .launch()
        .env("PRINT_LINES_AS_RANK", "1")
        .args(flags)
        .args([program]);
    let done = running.args(test).run();
    done.assert_code(0);
    let mut next: HashMap<usize, usize> = HashMap::new();
    for line in done
        .stdout
        .split('\n')
        .filter(|line| line.contains(['<', '>']))
    {
        let (prefix, rest) = line.split_once(' ').unwrap();
        let rank: usize = prefix.strip_prefix("0:").unwrap().parse().unwrap();
        let number = next.entry(rank).or_default();
        // The test harness prints the name of the test before the first line.
        let rest = &rest[rest.find('<').unwrap()..];
        assert_eq!(rest, long_line(rank, *number));
        *number += 1;
    }
    assert_eq!(next, (0..4).map(|rank| (rank, LINES)).collect());
    let errors = done
        .stderr
        .lines()
        .filter(|line| line.contains("<err:"))
        .count();
    assert_eq!(errors, 4 * LINES / 100);
}

#[test]
fn each_line_carries_node_and_rank_unless_switched_off() {
    let folder = Folder::new();
    let script = folder.script("rank", "echo out; echo err >&2");
    let run = |flags: &[&str]| {
        folder
            .launch()
            .args(["--quiet"])
            .args(flags)
            .args([&script])
            .run()
    };
    let done = run(&["--num_processes=2"]);
    assert_eq!(done.lines(), ["0:0 out", "0:1 out"]);
    assert_eq!(
        done.stderr
            .lines()
            .filter(|line| line.ends_with(" err"))
            .count(),
        2
    );
    let done = run(&["--num_processes=2", "--no-prefix"]);
    assert_eq!(done.lines(), ["out", "out"]);
    let done = run(&["--num_processes=1"]);
    assert_eq!(
        (done.stdout.as_str(), done.stderr.as_str()),
        ("out\n", "err\n")
    );
}

#[test]
fn a_filter_hides_other_ranks_but_not_their_failure() {
    let folder = Folder::new();
    let body = "echo out $RANK; echo err $RANK >&2; test $RANK = 2 && exit 6; exec sleep 600";
    let script = folder.script("rank", body);
    let flags = ["--num_processes=3", "--local_ranks_filter=0,1"];
    let done = folder.launch().args(flags).args([script]).run();
    done.assert_code(6);
    assert!(!done.stdout.contains("out 2"), "{}", done.stdout);
    let report = &done.stderr[done.stderr.find("error:").unwrap()..];
    assert!(
        report.contains("last lines of rank 2 on stderr:\n    err 2\n"),
        "{report}"
    );
    assert_eq!(done.stderr.matches("err 2").count(), 1);
}

#[test]
fn the_end_of_the_output_is_not_lost() {
    let folder = Folder::new();
    let script = folder.script("rank", "printf 'no newline'; printf '\\r 50%%\\r100%%' >&2");
    let flags = ["--quiet", "--num_processes=2"];
    let done = folder.launch().args(flags).args([script]).run();
    assert_eq!(done.lines(), ["0:0 no newline", "0:1 no newline"]);
    assert_eq!(done.stderr, "\r 50%\r100%\n".repeat(2));
}

#[test]
fn output_appears_while_ranks_run() {
    let folder = Folder::new();
    let script = folder.script(
        "rank",
        "echo ready; while ! test -e go; do sleep 0.01; done",
    );
    let running = folder
        .launch()
        .args(["--quiet", "--num_processes=2"])
        .args([script])
        .start();
    wait_until("the first lines", || {
        fs::read_to_string(folder.path("stdout-1"))
            .unwrap()
            .lines()
            .count()
            == 2
    });
    fs::write(folder.path("go"), "").unwrap();
    running.wait().assert_code(0);
}

#[test]
fn a_folder_gets_the_output_of_each_rank() {
    let folder = Folder::new();
    let script = folder.script("rank", "echo out $RANK; echo err $RANK >&2");
    for processes in ["1", "2"] {
        let flags = [
            "--quiet",
            "--log_dir",
            "deep/logs",
            "--num_processes",
            processes,
        ];
        folder
            .launch()
            .args(flags)
            .args([&script])
            .run()
            .assert_code(0);
    }
    let mut found = Vec::new();
    collect(&folder.path("deep/logs"), &mut found);
    let read = |end: &str| {
        let mut texts: Vec<_> = found.iter().filter(|path| path.ends_with(end)).collect();
        texts.sort();
        texts
            .iter()
            .map(|path| fs::read_to_string(path).unwrap())
            .collect::<String>()
    };
    assert_eq!(found.len(), 2 + 4, "{found:?}");
    assert_eq!(read("attempt_0/1/stdout.log"), "out 1\n");
    assert_eq!(read("attempt_0/1/stderr.log"), "err 1\n");
    assert!(read("attempt_0/0/stdout.log").contains("out 0\n"));

    fs::write(folder.path("file"), "").unwrap();
    let done = folder.launch().args(["--log_dir", "file", "true"]).run();
    done.assert_code(1);
    assert!(
        done.stderr.contains("cannot write log files into `file`"),
        "{}",
        done.stderr
    );
}

fn collect(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => collect(&path, found),
            path => found.push(path.display().to_string()),
        }
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_job() {
    let folder = Folder::new();
    let script = folder.script("rank", "while echo line; do :; done");
    let (reader, writer) = std::io::pipe().unwrap();
    let flags = ["--quiet", "--num_processes=2"];
    let running = folder
        .launch()
        .stdout(writer)
        .args(flags)
        .args([script])
        .start();
    drop(reader);
    // 128 + SIGPIPE
    running.wait().assert_code(141);
}

/// A pseudo terminal: our end, and as many of the other as needed.
struct Terminal {
    ours: fs::File,
    name: String,
}

impl Terminal {
    fn new() -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        Self {
            ours: ours.into(),
            name,
        }
    }

    fn open(&self) -> fs::File {
        fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.name)
            .unwrap()
    }
}

#[test]
fn a_single_process_has_the_terminal_to_itself() {
    let folder = Folder::new();
    let terminal = Terminal::new();
    let body = "test -t 0 && echo in >> seen; test -t 1 && echo out >> seen; true";
    let script = folder.script("rank", body);
    for processes in ["1", "2"] {
        let launch = folder
            .launch()
            .stdin(terminal.open())
            .stdout(terminal.open());
        let flags = ["--quiet", "--num_processes", processes];
        launch.args(flags).args([&script]).run().assert_code(0);
    }
    let seen = fs::read_to_string(folder.path("seen")).unwrap();
    assert_eq!(seen, "in\nout\n", "only the single process sees a terminal");
}

#[test]
fn progress_bars_of_the_first_rank_reach_the_terminal_intact() {
    let folder = Folder::new();
    let mut terminal = Terminal::new();
    let body = r"
        test -t 2 || exit 0
        stty -F /dev/stderr size > size
        printf '\r  0%%' >&2; sleep 0.3; printf '\r 50%%' >&2; printf '\r100%%\n' >&2";
    let script = folder.script("rank", body);
    rustix::termios::tcsetwinsize(&terminal.ours, WINDOW).unwrap();
    let user_side = terminal.open();
    let flags = ["--quiet", "--num_processes=2"];
    let launch = folder
        .launch()
        .stderr(terminal.open())
        .args(flags)
        .args([script]);
    launch.run().assert_code(0);
    drop(user_side);
    // The terminal ends with an error once its last user is gone.
    let mut screen = Vec::new();
    let _ = std::io::Read::read_to_end(&mut terminal.ours, &mut screen);
    assert_eq!(String::from_utf8_lossy(&screen), "\r  0%\r 50%\r100%\r\n");
    assert_eq!(fs::read_to_string(folder.path("size")).unwrap(), "33 77\n");
}

const WINDOW: rustix::termios::Winsize = rustix::termios::Winsize {
    ws_row: 33,
    ws_col: 77,
    ws_xpixel: 0,
    ws_ypixel: 0,
};
