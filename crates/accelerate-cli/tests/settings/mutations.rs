//! Damaged files through the built binary: never a crash, always the file, the line and the key.

use crate::command::{Done, Folder};

const LINES: [&str; 14] = [
    "compute_environment: LOCAL_MACHINE",
    "debug: false",
    "distributed_type: FSDP",
    "downcast_bf16: 'no'",
    "machine_rank: 0",
    "main_process_port: 29501",
    "mixed_precision: bf16",
    "num_machines: 1",
    "num_processes: 2",
    "rdzv_backend: static",
    "use_cpu: true",
    "fsdp_config:",
    "  fsdp_offload_params: false",
    "  fsdp_sharding_strategy: FULL_SHARD",
];

/// Reads the file with one line replaced.
fn with(folder: &Folder, number: usize, line: &str) -> Done {
    let mut lines = LINES.map(str::to_owned);
    lines[number] = line.to_owned();
    folder.write("job.yaml", &(lines.join("\n") + "\n"));
    let done = folder.launch(["--dry_run", "--config_file", "job.yaml", "sh"]);
    let done = done.done();
    assert!(matches!(done.code, Some(0..=2)), "{line}: {done:#?}");
    assert!(!done.stderr.contains("panicked"), "{line}: {done:#?}");
    done
}

fn key(line: &str) -> &str {
    line.trim().split(':').next().unwrap_or_default()
}

#[test]
fn the_whole_file_is_read() {
    let folder = Folder::new();
    with(&folder, 0, LINES[0]).assert_code(0);
}

#[test]
fn a_mistyped_key_is_named_with_its_line_and_the_right_one() {
    let folder = Folder::new();
    for (number, line) in LINES.iter().enumerate() {
        let right = key(line);
        let (start, end) = right.split_at(right.len() / 2);
        let wrong = format!("{start}{}", &end[1..]);
        let done = with(&folder, number, &line.replacen(right, &wrong, 1));
        done.assert_code(1).assert_says("`job.yaml`");
        done.assert_says(&format!("{wrong}` (line {})", number + 1));
        done.assert_says(&format!("did you mean `{right}` instead of"));
    }
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_key() {
    let folder = Folder::new();
    for (number, line) in LINES.iter().enumerate() {
        let right = key(line);
        let indent = &line[..line.len() - line.trim_start().len()];
        let done = with(
            &folder,
            number,
            &format!("{indent}{right}: [~, {{a: 1e99}}]"),
        );
        // What stood below a section has no parent now, and that is the first mistake then.
        if right != "fsdp_config" {
            done.assert_says(&format!("{right}`: expected "));
        }
        let line = number + 1 + usize::from(right == "fsdp_config");
        done.assert_code(1)
            .assert_says(&format!("`job.yaml:{line}"));
    }
}

#[test]
fn text_that_is_no_yaml_is_named_with_its_line() {
    let folder = Folder::new();
    for (wrong, lines) in [
        ("debug: [", 3..=3),
        ("\tdebug: false", 1..=2),
        ("debug: false: true", 2..=2),
        ("debug: *nothing", 2..=2),
        ("debug: 'open", 2..=14),
        ("compute_environment: LOCAL_MACHINE", 2..=2),
        ("debug: !!python/object:os.system x", 2..=2),
        ("debug: \"\\q\"", 2..=2),
        ("- debug", 2..=2),
    ] {
        let done = with(&folder, 1, wrong);
        done.assert_code(1);
        let at = done.stderr.split("job.yaml:").nth(1).unwrap_or_default();
        let digits: String = at.chars().take_while(char::is_ascii_digit).collect();
        let found: usize = digits.parse().unwrap_or(0);
        assert!(lines.contains(&found), "{wrong}: {done:#?}");
    }
}
