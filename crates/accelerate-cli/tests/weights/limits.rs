//! Memory: a few rows at a time, however large the tensors are.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{checkpoints::names, command::Folder};

/// The size of the largest tensor.
const TENSOR_BYTES: usize = 8 << 20;
/// The most private memory: less than one tensor, let alone the two that are allowed.
const MOST_BYTES: u64 = 6 << 20;

/// A safetensors file of two large tensors, written in steps.
fn large(path: &Path) {
    let header = format!(
        r#"{{"a":{{"dtype":"F32","shape":[{rows},4096],"data_offsets":[0,{TENSOR_BYTES}]}},"b":{{"dtype":"F32","shape":[{rows},4096],"data_offsets":[{TENSOR_BYTES},{end}]}}}}"#,
        rows = TENSOR_BYTES / 4 / 4096,
        end = 2 * TENSOR_BYTES
    );
    let mut file = File::create(path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    file.write_all(header.as_bytes()).unwrap();
    let block: Vec<u8> = (0..1u32 << 18)
        .flat_map(|n| ((n % 1000) as f32).to_le_bytes())
        .collect();
    for _ in 0..2 * TENSOR_BYTES / block.len() {
        file.write_all(&block).unwrap();
    }
}

/// The peak of private memory of a run, as far as looking every millisecond shows it.
fn peak(folder: &Folder, words: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_accelerate"))
        .args(words)
        .current_dir(folder.path("."))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) << 10);
        if let Some(ended) = child.try_wait().unwrap() {
            assert!(ended.success(), "{words:?}");
            return peak;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_command_holds_a_whole_tensor() {
    let folder = Folder::new();
    large(&folder.path("in.safetensors"));
    for (words, gone) in [
        (&["convert", "in.safetensors", "dcp", "--to", "dcp"][..], ""),
        (&["merge-weights", "dcp", "merged"], ""),
        (
            &["merge-weights", "dcp", "bin", "--unsafe_serialization"],
            "bin",
        ),
        (
            &["convert", "merged", "half.bin", "--dtype", "float16"],
            "half.bin",
        ),
        (&["diff", "merged", "dcp"], ""),
        (&["inspect", "dcp"], ""),
    ] {
        let found = peak(&folder, words);
        assert!(found < MOST_BYTES, "{words:?}: {} MiB", found >> 20);
        assert!(found > 0, "{words:?}: nothing was measured");
        // Disks are small too.
        let gone = folder.path(if gone.is_empty() { "nothing" } else { gone });
        drop(fs::remove_dir_all(&gone).or_else(|_| fs::remove_file(&gone)));
    }
    assert_eq!(names(&folder.path("merged")), ["model.safetensors"]);
}
