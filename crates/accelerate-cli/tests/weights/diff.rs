//! `accelerate diff`.

use accelerate_formats::{Dtype, Metadata, TensorData, write_file};
use serde_json::{Value, json};

use crate::{
    checkpoints::{fixture, floats, singles, tied_torch_file, two_ranks},
    command::{Done, Folder},
};

fn diff(folder: &Folder, words: &[&str]) -> Done {
    folder.accelerate(["diff"]).args(words).done()
}

fn json_of(done: &Done) -> Value {
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn the_same_weights_in_any_format_are_equal() {
    let folder = Folder::new();
    two_ranks(&folder.path("dcp"), 5, None);
    tied_torch_file(&folder.path("tied.pt"));
    let zero = fixture("zero3");
    for (source, output) in [
        ("dcp", "one.safetensors"),
        ("dcp", "one.bin"),
        ("tied.pt", "tied.safetensors"),
        (zero.to_str().unwrap(), "zero.safetensors"),
    ] {
        folder
            .accelerate(["convert", source, output])
            .done()
            .assert_code(0);
        let done = diff(&folder, &[source, output]);
        done.assert_code(0).assert_prints("equal: ");
        assert_eq!(done.stderr, "");
    }
    let done = diff(&folder, &["tied.pt", "tied.safetensors", "--json"]);
    let answer = json_of(&done);
    assert_eq!(answer["equal"], json!(true));
    assert_eq!(answer["compared"], json!(3), "tied names count");
}

#[test]
fn differences_are_told_by_kind() {
    let folder = Folder::new();
    singles(
        &folder.path("a.safetensors"),
        &[
            ("same", &[1.0]),
            ("near", &[1.0, 2.0]),
            ("gone", &[0.0]),
            ("shape", &[1.0, 2.0]),
        ],
    );
    let (near, shape, nan) = (floats(&[1.0, 2.5]), floats(&[1.0]), floats(&[f32::NAN]));
    let data = [
        TensorData::new("same", Dtype::F32, &[1], &shape),
        TensorData::new("near", Dtype::F32, &[2], &near),
        TensorData::new("shape", Dtype::F32, &[1], &shape),
        TensorData::new("new", Dtype::F32, &[1], &nan),
    ];
    write_file(folder.path("b.safetensors"), data, &Metadata::pytorch()).unwrap();
    let done = diff(&folder, &["a.safetensors", "b.safetensors"]);
    done.assert_code(1)
        .assert_prints("only in `a.safetensors`:\n  gone\n")
        .assert_prints("only in `b.safetensors`:\n  new\n")
        .assert_prints(
            "near: 1 of 2 numbers differ, at most 5.000e-1 apart (2.000e-1 of the larger)",
        )
        .assert_prints("shape: shape [2] and [1]\n")
        .assert_prints(
            "different: 2 of 3 tensors in both, 1 only in the first, 1 only in the second",
        );
    let done = diff(&folder, &["a.safetensors", "b.safetensors", "--json"]);
    let answer = json_of(done.assert_code(1));
    assert_eq!(answer["only_a"], json!(["gone"]));
    assert_eq!(answer["tensors"][0]["values"]["max_absolute"], json!(0.5));
    assert_eq!(answer["tensors"][1]["values"], Value::Null);
    // Only what fits is compared, and within a tolerance.
    let near = [
        "a.safetensors",
        "b.safetensors",
        "--filter",
        "n?ar",
        "--filter",
        "same",
    ];
    let code = |more: &[&str]| diff(&folder, &[&near[..], more].concat()).code;
    assert_eq!(code(&[]), Some(1));
    assert_eq!(code(&["--atol", "0.5"]), Some(0));
    assert_eq!(code(&["--atol", "0.4"]), Some(1));
    assert_eq!(code(&["--rtol", "0.2"]), Some(0));
    assert_eq!(code(&["--rtol", "0.19"]), Some(1));
}

#[test]
fn another_type_is_a_difference_unless_it_is_ignored() {
    let folder = Folder::new();
    singles(&folder.path("a.safetensors"), &[("w", &[0.1, 2.0])]);
    let words = [
        "convert",
        "a.safetensors",
        "b.safetensors",
        "--dtype",
        "bf16",
    ];
    folder.accelerate(words).done().assert_code(0);
    let compare = |more: &[&str]| {
        diff(
            &folder,
            &[&["a.safetensors", "b.safetensors"], more].concat(),
        )
    };
    compare(&[])
        .assert_code(1)
        .assert_prints("w: type F32 and BF16; 1 of 2 numbers differ");
    compare(&["--rtol", "0.01"]).assert_code(1);
    compare(&["--ignore_dtype"]).assert_code(1);
    compare(&["--ignore_dtype", "--rtol", "0.01"]).assert_code(0);
}

#[test]
fn what_cannot_be_compared_is_no_difference() {
    let folder = Folder::new();
    singles(&folder.path("a.safetensors"), &[("w", &[1.0])]);
    for words in [
        &["a.safetensors", "absent"][..],
        &["a.safetensors"],
        &["a.safetensors", "a.safetensors", "--rtol", "-1"],
        &["a.safetensors", "a.safetensors", "--atol", "nan"],
        &["a.safetensors", "a.safetensors", "--filter", ""],
        &["a.safetensors", "a.safetensors", "--filter", "no.such.*"],
        &["a.safetensors", "a.safetensors", "--part_a", "x"],
    ] {
        let done = diff(&folder, words);
        done.assert_code(2);
        assert!(
            done.stdout.is_empty() && !done.stderr.is_empty(),
            "{done:?}"
        );
    }
    let both = fixture("distributed");
    let both = both.to_str().unwrap();
    folder
        .accelerate(["convert", both, "m.safetensors", "--part", "model"])
        .done()
        .assert_code(0);
    diff(&folder, &[both, "m.safetensors", "--part_a", "model"]).assert_code(0);
}
