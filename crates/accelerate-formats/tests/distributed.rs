//! Folders of `torch.distributed.checkpoint`: PyTorch's and ours.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "functions that tests share may fail like tests"
)]

mod fixtures;

use std::path::Path;

use accelerate_formats::distributed::{
    ChunkToWrite, DistributedCheckpoint, DistributedWriter, PathPart, WrittenPart, flatten,
    write_description,
};
use accelerate_formats::{Dict, DistributedFault, Dtype, Error, PickleFault, Value};
use fixtures::{Expected, expected, fixture, folder_of_fixtures};
use proptest::prelude::*;

fn fault(error: Error) -> DistributedFault {
    match error {
        Error::Distributed { fault, .. } => *fault,
        other => panic!("{other:?}"),
    }
}

fn check_folder(folder: &Path) {
    let checkpoint = DistributedCheckpoint::open(folder.join("distributed")).unwrap();
    let expected = expected(folder, "distributed");
    assert_eq!(checkpoint.tensors().len(), expected.len());
    let mut bytes = Vec::new();
    for Expected {
        name,
        dtype,
        shape,
        bytes: wanted,
    } in &expected
    {
        let tensor = checkpoint.tensor(name).unwrap();
        assert_eq!(
            (tensor.dtype(), tensor.shape()),
            (*dtype, shape.as_slice()),
            "{name}"
        );
        checkpoint.read_into(name, &mut bytes).unwrap();
        assert_eq!(&bytes, wanted, "{name}");
    }
    assert_eq!(checkpoint.tensor("model.weight").unwrap().chunks().len(), 2);
    // A box across both parts: rows 2 and 3, columns 1 to 3.
    checkpoint
        .read_box("model.weight", &[2, 1], &[2, 3], &mut bytes)
        .unwrap();
    let wanted: Vec<u8> = [15.0f32, 16.0, 17.0, 22.0, 23.0, 24.0]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    assert_eq!(bytes, wanted);
    let names: Vec<&str> = checkpoint.value_names().collect();
    assert_eq!(
        names,
        [
            "optimizer.param_groups.0.lr",
            "optimizer.param_groups.0.params"
        ]
    );
    let value = checkpoint.to_value().unwrap();
    let group = &value
        .get("optimizer")
        .unwrap()
        .get("param_groups")
        .unwrap()
        .as_slice()
        .unwrap()[0];
    assert_eq!(group.get("lr").unwrap().as_f64(), Some(0.5));
    assert_eq!(
        group.get("params").unwrap().as_slice().unwrap()[0].as_str(),
        Some("weight")
    );
    let weight = value
        .get("model")
        .unwrap()
        .get("weight")
        .unwrap()
        .as_tensor()
        .unwrap();
    assert_eq!(weight.shape(), [5, 7]);
}

#[test]
fn what_two_ranks_of_pytorch_wrote_is_put_together() {
    check_folder(&folder_of_fixtures());
}

#[test]
fn parity_what_pytorch_writes_now_is_put_together_too() {
    let Some(python) = accelerate_testkit::parity_python("distributed checkpoints") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fixtures::make(&python, folder.path());
    check_folder(folder.path());
}

/// Models and optimizers that three ranks trained with FSDP 1 and 2: rows that they cannot share
/// evenly, and fewer rows than ranks.
fn check_fsdp(folder: &Path) {
    for version in ["fsdp1", "fsdp2"] {
        for (part, key) in [
            ("pytorch_model_fsdp_0", "model."),
            ("optimizer_0", "optimizer."),
        ] {
            let checkpoint = DistributedCheckpoint::open(folder.join(version).join(part)).unwrap();
            checkpoint.check_files().unwrap();
            let mut wanted = expected(folder, version);
            wanted.retain(|tensor| tensor.name.starts_with(key));
            assert_eq!(checkpoint.tensors().len(), wanted.len(), "{version} {part}");
            let mut bytes = Vec::new();
            for tensor in wanted {
                let name = &tensor.name;
                let found = checkpoint.tensor(name).unwrap();
                assert_eq!(
                    (found.dtype(), found.shape()),
                    (tensor.dtype, tensor.shape.as_slice()),
                    "{version}: {name}"
                );
                checkpoint.read_into(name, &mut bytes).unwrap();
                assert_eq!(bytes, tensor.bytes, "{version}: {name}");
            }
        }
    }
}

#[test]
fn what_three_ranks_wrote_with_fsdp_is_put_together() {
    check_fsdp(&fixture("fsdp"));
}

#[test]
fn parity_what_fsdp_writes_now_is_put_together_too() {
    let Some(python) = accelerate_testkit::parity_python("checkpoints of FSDP") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fixtures::make_fsdp(&python, folder.path());
    check_fsdp(&folder.path().join("fsdp"));
}

#[test]
fn folders_that_are_no_checkpoint_say_what_to_give() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("pytorch_model_fsdp_0")).unwrap();
    let open = || DistributedCheckpoint::open(folder.path()).unwrap_err();
    assert!(
        fault(open())
            .to_string()
            .ends_with("`.distcp` files alone cannot be read")
    );
    std::fs::write(folder.path().join("pytorch_model_fsdp_0/.metadata"), b"").unwrap();
    assert!(
        fault(open())
            .to_string()
            .ends_with("give one of the folders in it: `pytorch_model_fsdp_0`")
    );
    std::fs::write(folder.path().join(".metadata"), b"cos\nsystem\n.").unwrap();
    let fault = fault(open());
    assert!(
        matches!(&fault, DistributedFault::Metadata { source: PickleFault::Refused { name } } if name == "os.system"),
        "{fault}"
    );
}

#[test]
fn a_rank_whose_file_is_cut_short_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for name in [".metadata", "__0_0.distcp"] {
        std::fs::copy(fixture("distributed").join(name), folder.path().join(name)).unwrap();
    }
    std::fs::write(folder.path().join("__1_0.distcp"), b"short").unwrap();
    let checkpoint = DistributedCheckpoint::open(folder.path()).unwrap();
    let error = checkpoint
        .read_into("model.weight", &mut Vec::new())
        .unwrap_err();
    let fault = fault(error);
    assert!(
        matches!(&fault, DistributedFault::PastEnd { file, file_bytes: 5, .. } if file == "__1_0.distcp"),
        "{fault}"
    );
    assert!(matches!(
        checkpoint.tensor("weight"),
        Err(Error::TensorNotFound {
            nearest: Some(_),
            ..
        })
    ));
}

fn numbers(count: usize) -> Vec<u8> {
    (0..count as i32).flat_map(i32::to_le_bytes).collect()
}

fn keys(name: &str) -> Vec<PathPart> {
    name.split('.')
        .map(|key| PathPart::Key(key.to_owned()))
        .collect()
}

/// A matrix of increasing numbers, cut into row blocks of these heights, one rank each.
fn write_rows(folder: &Path, heights: &[usize], width: usize) {
    let shape = [heights.iter().sum(), width];
    let path = keys("model.w");
    let mut first = 0;
    let parts = heights.iter().enumerate().map(|(rank, &height)| {
        let mut writer = DistributedWriter::create(folder, rank).unwrap();
        if rank == 0 {
            let group = Dict::new()
                .with("lr", 0.25)
                .with("params", vec!["w".into()]);
            let optimizer = Dict::new().with("groups", vec![Value::from(group)]);
            let value = Dict::new().with("optimizer", optimizer).into();
            flatten(&value, |flat| {
                writer.write_value(&flat.name(), flat.path(), flat.value())
            })
            .unwrap();
        }
        let all = numbers(shape[0] * width);
        let chunk = ChunkToWrite {
            name: "model.w",
            path: &path,
            dtype: Dtype::I32,
            shape: &shape,
            offsets: &[first, 0],
            sizes: &[height, width],
        };
        let bytes = &all[first * width * 4..(first + height) * width * 4];
        writer.write_chunk(chunk, bytes).unwrap();
        first += height;
        // As sent from rank to rank.
        let part = serde_json::to_string(&writer.finish().unwrap()).unwrap();
        serde_json::from_str(&part).unwrap()
    });
    let parts: Vec<WrittenPart> = parts.collect();
    write_description(folder, &parts).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_box_of_what_any_ranks_wrote_is_read(
        heights in prop::collection::vec(0usize..4, 1..5),
        width in 1usize..5,
        corner in (0usize..8, 0usize..4),
        size in (0usize..8, 0usize..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        // Parts without rows all begin at one place, which FSDP makes only once.
        let heights: Vec<usize> = heights.into_iter().enumerate().filter(|&(rank, height)| rank == 0 || height > 0).map(|(_, height)| height).collect();
        prop_assume!(heights[0] > 0 || heights.len() == 1);
        write_rows(folder.path(), &heights, width);
        let checkpoint = DistributedCheckpoint::open(folder.path()).unwrap();
        let rows: usize = heights.iter().sum();
        let (top, left) = (corner.0.min(rows), corner.1.min(width));
        let (height, across) = (size.0.min(rows - top), size.1.min(width - left));
        let mut bytes = vec![7];
        checkpoint.read_box("model.w", &[top, left], &[height, across], &mut bytes).unwrap();
        let wanted = (top..top + height).flat_map(|row| (left..left + across).map(move |column| (row * width + column) as i32));
        let wanted: Vec<u8> = wanted.flat_map(i32::to_le_bytes).collect();
        prop_assert_eq!(bytes, wanted);
    }
}

#[test]
fn parts_that_do_not_fit_are_refused_before_the_description_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = keys("w");
    let chunk = ChunkToWrite {
        name: "w",
        path: &path,
        dtype: Dtype::U8,
        shape: &[4],
        offsets: &[0],
        sizes: &[2],
    };
    let mut writer = DistributedWriter::create(folder.path(), 0).unwrap();
    assert!(matches!(
        fault(writer.write_chunk(chunk, &[1]).unwrap_err()),
        DistributedFault::WrongSize { .. }
    ));
    let outside = ChunkToWrite {
        offsets: &[3],
        ..chunk
    };
    assert!(matches!(
        fault(writer.write_chunk(outside, &[1, 2]).unwrap_err()),
        DistributedFault::ChunkOutside { .. }
    ));
    writer.write_chunk(chunk, &[1, 2]).unwrap();
    let part = writer.finish().unwrap();
    let gap = fault(write_description(folder.path(), std::slice::from_ref(&part)).unwrap_err());
    assert!(
        matches!(
            gap,
            DistributedFault::Gap {
                expected: 4,
                found: 2,
                ..
            }
        ),
        "{gap}"
    );
    let twice = fault(write_description(folder.path(), &[part.clone(), part]).unwrap_err());
    assert!(
        matches!(twice, DistributedFault::Conflict { .. }),
        "{twice}"
    );
    assert!(!folder.path().join(".metadata").exists());
}

const READ_OURS: &str = r#"
import sys, torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
state = {"model": {"w": torch.zeros(5, 3, dtype=torch.int32)}}
dcp.load(state, checkpoint_id=sys.argv[1])
assert torch.equal(state["model"]["w"], torch.arange(15, dtype=torch.int32).reshape(5, 3))
dcp_to_torch_save(sys.argv[1], sys.argv[2])
whole = torch.load(sys.argv[2], weights_only=True)
assert torch.equal(whole["model"]["w"], state["model"]["w"])
assert whole["optimizer"]["groups"] == [{"lr": 0.25, "params": ["w"]}], whole
"#;

#[test]
fn parity_pytorch_reads_what_we_wrote() {
    let Some(python) = accelerate_testkit::parity_python("distributed checkpoints") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    write_rows(folder.path(), &[2, 3], 3);
    let out = folder.path().join("out.pt");
    fixtures::run(
        &python,
        &[
            "-c",
            READ_OURS,
            folder.path().to_str().unwrap(),
            out.to_str().unwrap(),
        ],
    );
}
