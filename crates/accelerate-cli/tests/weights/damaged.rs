//! Files that are cut, changed, contradictory or not all there: an error that names them, and no output.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    checkpoints::{contents, copy, fixture, floats, names, singles, two_ranks},
    command::{Done, Folder},
};

fn merge(folder: &Folder, input: &str) -> Done {
    let done = folder.accelerate(["merge-weights", input, "out"]).done();
    done.assert_code(1);
    assert!(!folder.path("out").exists(), "{done:?}");
    done
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn distributed_checkpoints() {
    let folder = Folder::new();
    let make = |name: &str| -> PathBuf {
        two_ranks(&folder.path(name), 5, None);
        folder.path(name)
    };
    let cut = make("cut");
    change(&cut.join("__1_0.distcp"), |bytes| {
        bytes.truncate(bytes.len() - 9)
    });
    merge(&folder, "cut").assert_says("`__1_0.distcp` has ");
    let lost = make("lost");
    fs::remove_file(lost.join("__0_0.distcp")).unwrap();
    fs::remove_file(lost.join("__1_0.distcp")).unwrap();
    merge(&folder, "lost")
        .assert_says("2 of its 2 files are missing: `__0_0.distcp`, `__1_0.distcp`");
    let swapped = make("swapped");
    fs::copy(swapped.join("__0_0.distcp"), swapped.join("__1_0.distcp")).unwrap();
    merge(&folder, "swapped").assert_says("`__1_0.distcp`");
    let flipped = make("flipped");
    change(&flipped.join("__0_0.distcp"), |bytes| {
        // The directory of the first stream begins with `PK\x01\x02`.
        let place = bytes
            .windows(4)
            .position(|four| four == b"PK\x01\x02")
            .unwrap();
        bytes[place + 1] ^= 0x20;
    });
    merge(&folder, "flipped").assert_says("in `__0_0.distcp` cannot be read");
    let evil = make("evil");
    fs::write(evil.join(".metadata"), b"cos\nsystem\n(S'touch ran'\ntR.").unwrap();
    merge(&folder, "evil").assert_says("`os.system`, which is not read");
    assert!(!folder.path("ran").exists());
    // Shards of another job with more rows: they neither fit nor fill.
    let other = make("other");
    two_ranks(&folder.path("longer"), 9, None);
    fs::copy(
        folder.path("longer/__1_0.distcp"),
        other.join("__1_0.distcp"),
    )
    .unwrap();
    merge(&folder, "other").assert_says("`__1_0.distcp`");
}

#[test]
fn folders_of_deepspeed() {
    let folder = Folder::new();
    let make = |name: &str, stage: &str| -> PathBuf {
        copy(&fixture(stage), &folder.path(name));
        folder.path(name).join("pytorch_model")
    };
    let rank = |rank| format!("bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt");
    let lost = make("lost", "zero2");
    fs::remove_file(lost.join(rank(0))).unwrap();
    merge(&folder, "lost")
        .assert_says("2 ranks wrote this checkpoint, but 1 files `*_optim_states.pt` are there")
        .assert_says("rank 0");
    let model = make("model", "zero3");
    fs::remove_file(model.join("zero_pp_rank_1_mp_rank_00_model_states.pt")).unwrap();
    merge(&folder, "model")
        .assert_says("`*_model_states.pt`")
        .assert_says("rank 1");
    let more = make("more", "zero3");
    fs::copy(more.join(rank(1)), more.join(rank(2))).unwrap();
    merge(&folder, "more").assert_says("those of another checkpoint");
    let mixed = make("mixed", "zero2");
    fs::copy(
        fixture("zero3/pytorch_model").join(rank(1)),
        mixed.join(rank(1)),
    )
    .unwrap();
    merge(&folder, "mixed").assert_says("not of one checkpoint");
    let cut = make("cut", "zero3");
    change(&cut.join(rank(1)), |bytes| bytes.truncate(400));
    merge(&folder, "cut").assert_says(&format!("`{}` cannot be read", rank(1)));
    make("tag", "zero2");
    folder.write("tag/latest", "global_step7");
    merge(&folder, "tag").assert_says("global_step7");
    folder.write("tag/latest", "../zero2");
    merge(&folder, "tag");
}

#[test]
fn safetensors_files_and_indexes() {
    let folder = Folder::new();
    let path = folder.path("model.safetensors");
    let whole = |change_it: &dyn Fn(&mut Vec<u8>)| {
        singles(&path, &[("a", &[1.0, 2.0]), ("b", &[3.0])]);
        change(&path, change_it);
        let done = folder
            .accelerate(["convert", "model.safetensors", "out"])
            .done();
        done.assert_code(1).assert_says("`model.safetensors`");
        assert!(!folder.path("out").exists());
        done
    };
    whole(&|bytes| bytes.truncate(bytes.len() - 1))
        .assert_says("expected 12 bytes of data, found 11");
    whole(&|bytes| bytes.push(0));
    whole(&|bytes| bytes[3] = 0xff).assert_says("header");
    let text = |from: &'static str, to: &'static str| {
        move |bytes: &mut Vec<u8>| {
            let place = bytes
                .windows(from.len())
                .position(|part| part == from.as_bytes());
            bytes[place.unwrap()..][..to.len()].copy_from_slice(to.as_bytes());
        }
    };
    whole(&text("[8,12]", "[4, 8]")).assert_says("overlap");
    whole(&text("\"F32\"", "\"F99\"")).assert_says("unknown data type `F99`");
    // An index whose shard is gone, or holds something else.
    singles(&path, &[("a", &[1.0; 4]), ("b", &[2.0; 4])]);
    let words = [
        "convert",
        "model.safetensors",
        "shards",
        "--max_shard_size",
        "0.02KB",
    ];
    folder.accelerate(words).done().assert_code(0);
    let index = "shards/model.safetensors.index.json";
    let fails = || folder.accelerate(["convert", index, "out"]).done();
    let shard = "model-00002-of-00002.safetensors";
    fs::copy(
        folder.path("shards/model-00001-of-00002.safetensors"),
        folder.path("shards").join(shard),
    )
    .unwrap();
    fails().assert_code(1).assert_says("`b`").assert_says(shard);
    fs::remove_file(folder.path("shards").join(shard)).unwrap();
    fails().assert_code(1).assert_says(shard);
    assert!(!folder.path("out").exists());
}

#[test]
fn files_of_torch() {
    let folder = Folder::new();
    let convert = |file: &Path| {
        let done = folder
            .accelerate(["convert", file.to_str().unwrap(), "out.safetensors"])
            .done();
        done.assert_code(1);
        assert!(!folder.path("out.safetensors").exists());
        done
    };
    convert(&fixture("stranger.pt"))
        .assert_says("it uses `__main__.Stranger`, which is not read")
        .assert_says("hint: if you trust the file");
    convert(&fixture("stranger_legacy.pt")).assert_says("`__main__.Stranger`");
    let cut = folder.path("cut.bin");
    fs::copy(fixture("optimizer.bin"), &cut).unwrap();
    change(&cut, |bytes| bytes.truncate(bytes.len() / 2));
    convert(&cut).assert_says("`").assert_says("cut.bin");
    convert(&fixture("optimizer.bin")).assert_says("expected a dict from name to tensor");
}

#[test]
fn a_folder_that_cannot_be_written_stays_as_it_was() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    two_ranks(&folder.path("in"), 5, None);
    fs::create_dir(folder.path("out")).unwrap();
    fs::write(folder.path("out/model.safetensors"), b"old").unwrap();
    let set =
        |mode| fs::set_permissions(folder.path("out"), fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    // Nothing holds root back, but for what is no disk.
    let done = folder.accelerate(["merge-weights", "in", "/proc"]).done();
    done.assert_code(1)
        .assert_says("cannot write `/proc/model.safetensors`");
    if !rustix::process::geteuid().is_root() {
        let done = folder.accelerate(["merge-weights", "in", "out"]).done();
        done.assert_code(1)
            .assert_says("cannot write `out/model.safetensors`");
    }
    set(0o755);
    assert_eq!(
        contents(&folder.path("out")),
        [("model.safetensors".to_owned(), b"old".to_vec())]
    );
}

#[test]
fn a_full_disk_changes_nothing_and_names_the_tensor() {
    let folder = Folder::new();
    let large = vec![1.0f32; 600_000];
    singles(
        &folder.path("in.safetensors"),
        &[("a.small", &[1.0]), ("b.large", &large)],
    );
    fs::create_dir(folder.path("out")).unwrap();
    singles(&folder.path("out/model.safetensors"), &[("old", &[1.0])]);
    let before = contents(&folder.path("out"));
    // No file may have more than 1 MB; the error is that of a full disk in all but its number.
    let shell = |words: &str| {
        let script = format!(
            "trap '' XFSZ; ulimit -f 1024; exec {} {words}",
            env!("CARGO_BIN_EXE_accelerate")
        );
        folder.run_as(Path::new("bash"), ["-c", &script]).done()
    };
    for (words, file, offset) in [
        ("convert in.safetensors out", "out/model.safetensors", true),
        (
            "convert in.safetensors out --to torch",
            "out/pytorch_model.bin",
            true,
        ),
        (
            "convert in.safetensors out --max_shard_size 1MB",
            "out/model-00001-of-00002",
            true,
        ),
        (
            "convert in.safetensors new --to dcp",
            "new/__0_0.distcp",
            false,
        ),
    ] {
        let done = shell(words);
        done.assert_code(1)
            .assert_says(&format!("cannot write `{file}"));
        done.assert_says(if offset {
            "tensor `b.large`"
        } else {
            "tensor `model.b.large`"
        });
        done.assert_says("begins at byte ")
            .assert_says("File too large");
        assert_eq!(contents(&folder.path("out")), before, "{words}");
    }
    assert!(!folder.path("new").exists());
    let left: Vec<String> = names(&folder.path("."));
    assert!(
        !left.iter().any(|name| name.contains("partial")),
        "{left:?}"
    );
    assert_eq!(floats(&[1.0]).len(), 4);
}
