//! What is written is read back, here and by the `safetensors` crate.

use std::collections::BTreeMap;

use accelerate_formats::{Dtype, Metadata, SafetensorsFile, TensorData, write_file};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let shape = prop::collection::vec(0usize..5, 0..4);
    let whole = (prop::sample::select(Dtype::ALL.to_vec()), shape).prop_filter_map(
        "ends within a byte",
        |(dtype, shape)| {
            let bits = dtype.bits_of(&shape)?;
            (bits % 8 == 0).then_some((dtype, shape, bits / 8))
        },
    );
    whole.prop_flat_map(|(dtype, shape, length)| {
        prop::collection::vec(any::<u8>(), length).prop_map(move |bytes| Tensor {
            dtype,
            shape: shape.clone(),
            bytes,
        })
    })
}

fn name() -> impl Strategy<Value = String> {
    any::<String>().prop_filter("reserved", |name| name != "__metadata__")
}

proptest! {
    #[test]
    fn tensors_and_metadata_come_back(
        tensors in prop::collection::btree_map(name(), tensor(), 0..8),
        pairs in prop::collection::btree_map(any::<String>(), any::<String>(), 0..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let metadata: Metadata = pairs.clone().into_iter().collect();
        let given = tensors.iter().map(|(name, t)| TensorData::new(name, t.dtype, &t.shape, &t.bytes));
        write_file(&path, given, &metadata).unwrap();

        let file = SafetensorsFile::open(&path).unwrap();
        prop_assert_eq!(file.metadata(), &metadata);
        prop_assert_eq!(file.len(), tensors.len());
        prop_assert_eq!(file.total_bytes(), tensors.values().map(|t| t.bytes.len() as u64).sum::<u64>());
        for (name, expected) in &tensors {
            let read = file.tensor(name).unwrap();
            prop_assert_eq!((read.dtype(), read.shape(), read.bytes()), (expected.dtype, &expected.shape[..], &expected.bytes[..]));
            let kept = read.to_mapped();
            prop_assert_eq!(&kept[..], &expected.bytes[..]);
            prop_assert!(kept.is_empty() || kept.is_aligned_to(expected.dtype.alignment()));
        }
        let ends: Vec<usize> = file.tensors().map(|t| t.range().end).collect();
        prop_assert!(ends.is_sorted());

        let whole = std::fs::read(&path).unwrap();
        let reference = safetensors::SafeTensors::deserialize(&whole).unwrap();
        let theirs: BTreeMap<String, Vec<u8>> =
            reference.iter().map(|(name, view)| (name.to_owned(), view.data().to_vec())).collect();
        let ours = tensors.into_iter().map(|(name, tensor)| (name, tensor.bytes)).collect();
        prop_assert_eq!(theirs, ours);
    }
}
