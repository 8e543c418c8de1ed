//! Help, completions and man pages.

use std::fs;

use crate::command::Folder;

const SUBCOMMANDS: [&str; 16] = [
    "config",
    "estimate-memory",
    "plan",
    "env",
    "launch",
    "merge-weights",
    "convert",
    "inspect",
    "diff",
    "watch",
    "dashboard",
    "test",
    "verify-resume",
    "to-fsdp2",
    "completions",
    "man",
];

/// What a command prints; it says nothing on stderr.
fn printed(words: &[&str], code: i32) -> String {
    let done = Folder::new().accelerate(words).done();
    done.assert_code(code);
    assert_eq!(done.stderr, "", "{words:?}");
    done.stdout
}

#[test]
fn the_command_alone_prints_what_there_is_and_fails() {
    let alone = printed(&[], 1);
    assert_eq!(alone, printed(&["-h"], 0));
    assert_eq!(alone, printed(&["--help"], 0));
    let mut places: Vec<_> = SUBCOMMANDS
        .iter()
        .map(|name| alone.find(&format!("\n  {name} ")))
        .collect();
    assert!(places.iter().all(Option::is_some), "{alone}");
    let listed = places.clone();
    places.sort_unstable();
    assert_eq!(listed, places, "in this order: {alone}");
    assert!(printed(&["--version"], 0).starts_with("accelerate "));
}

#[test]
fn every_subcommand_has_help() {
    for name in SUBCOMMANDS {
        let usage = format!("Usage: accelerate {name}");
        for words in [&[name, "-h"][..], &[name, "--help"], &["help", name]] {
            let help = printed(words, 0);
            assert!(help.contains(&usage), "{words:?}: {help}");
        }
    }
    for name in ["default", "update", "show"] {
        let help = printed(&["config", name, "--help"], 0);
        assert!(
            help.contains(&format!("Usage: accelerate config {name}")),
            "{help}"
        );
    }
}

const ALWAYS: [&str; 6] = [
    "Hardware:",
    "Processes:",
    "Sharding:",
    "Several machines and restarts:",
    "Output and ends:",
    "Program:",
];

const ON_DEMAND: [(&str, &str); 9] = [
    ("Compilation:", "--dynamo_backend=inductor"),
    (
        "Mesh, with --use_parallelism_config:",
        "--use_parallelism_config",
    ),
    ("FSDP, with --use_fsdp:", "--use_fsdp"),
    ("DeepSpeed, with --use_deepspeed:", "--use-deepspeed"),
    ("Megatron-LM, with --use_megatron_lm:", "--use_megatron_lm"),
    ("FP8, with --mixed_precision fp8:", "--fp8_backend=te"),
    ("MPI:", "--mpirun_hostfile=hosts"),
    ("TPU, with --tpu:", "--tpu"),
    ("Amazon SageMaker:", "--aws_access_key_id=x"),
];

/// The titles of the groups of a page.
fn titles(page: &str) -> Vec<&str> {
    let is_title = |line: &&str| line.ends_with(':') && !line.starts_with(' ');
    page.lines().filter(is_title).collect()
}

#[test]
fn the_short_page_has_the_groups_for_everyone_and_those_asked_for() {
    let short = printed(&["launch", "-h"], 0);
    let expected = [&["Arguments:", "Options:"][..], &ALWAYS].concat();
    assert_eq!(titles(&short), expected, "{short}");
    for (title, flag) in ON_DEMAND {
        let page = printed(&["launch", flag, "-h"], 0);
        let found = titles(&page);
        assert_eq!(found.len(), expected.len() + 1, "{flag}: {found:?}");
        assert!(found.contains(&title), "{flag}: {found:?}");
    }
    let by_precision = printed(&["launch", "--mixed_precision=fp8", "-h"], 0);
    assert!(by_precision.contains("--fp8_margin"), "{by_precision}");
    let two = printed(&["launch", "--use_fsdp", "--fp8_backend=te", "-h"], 0);
    assert!(
        two.contains("--fp8_margin") && two.contains("--fsdp_version"),
        "{two}"
    );
}

#[test]
fn the_long_page_has_every_group_and_no_flag_twice() {
    let long = printed(&["launch", "--help"], 0);
    let found = titles(&long);
    for title in ALWAYS.into_iter().chain(ON_DEMAND.map(|(title, _)| title)) {
        assert_eq!(
            found.iter().filter(|found| **found == title).count(),
            1,
            "{title}"
        );
    }
    // Flags are shown in one spelling.
    let flags = long
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--"));
    for flag in flags {
        let name = flag.split([' ', '\n']).next().unwrap_or_default();
        assert!(!name.contains('-'), "{name}");
    }
}

#[test]
fn completions_are_what_shells_understand() {
    for (shell, parts) in [
        ("bash", ["complete -F _accelerate", "--num_processes"]),
        ("zsh", ["#compdef accelerate", "--num_processes"]),
        ("fish", ["complete -c accelerate", "num_processes"]),
    ] {
        let script = printed(&["completions", shell], 0);
        for part in parts {
            assert!(script.contains(part), "{shell}: no `{part}`");
        }
        let folder = Folder::new();
        folder.write("script", &script);
        // The shell itself has the last word, where it is installed.
        if let Ok(status) = std::process::Command::new(shell)
            .arg("-n")
            .arg(folder.path("script"))
            .status()
        {
            assert!(status.success(), "{shell}");
        }
    }
    let wrong = Folder::new().accelerate(["completions", "dos"]).done();
    wrong.assert_code(2).assert_says("'dos'");
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let folder = Folder::new();
    folder
        .accelerate(["man", "pages/man1"])
        .done()
        .assert_code(0);
    let pages = fs::read_dir(folder.path("pages/man1")).unwrap();
    let mut pages: Vec<_> = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    pages.sort_unstable();
    for name in SUBCOMMANDS {
        assert!(pages.contains(&format!("accelerate-{name}.1")), "{pages:?}");
    }
    assert!(pages.contains(&"accelerate.1".to_owned()), "{pages:?}");
    let page = folder.read("pages/man1/accelerate-launch.1");
    assert!(
        page.contains(".TH accelerate") && page.contains("num_processes"),
        "{page}"
    );
    let main = printed(&["man"], 0);
    assert!(main.contains(".TH accelerate"), "{main}");
}
