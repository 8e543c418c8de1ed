//! Files mapped so that their weights can be trained.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;

use accelerate_formats::{MappedBytes, StoredTensor};
use accelerate_torch::storage;
use tch::{Device, Kind, Tensor};

use crate::Result;
use crate::checkpoint::stored_type;

/// Files mapped privately: a page is the file's until it is written to, and the process's own from
/// then on. So weights need no memory and no copy, and can still be changed like any others.
#[derive(Debug, Default)]
pub(super) struct PrivateMaps {
    /// The bytes of each file; none for one that the system does not map like that.
    files: HashMap<PathBuf, Option<Tensor>>,
    /// What was mapped, in order.
    parts: Vec<MappedBytes>,
}

impl PrivateMaps {
    /// A tensor over the bytes of a weight that lies in a row in its file; none where it does not, or
    /// the system does not map the file.
    pub(super) fn tensor(&mut self, name: &str, stored: &StoredTensor) -> Result<Option<Tensor>> {
        let Some(bytes) = stored.storage().mapped() else {
            return Ok(None);
        };
        let (kind, shape) = stored_type(name, stored)?;
        let size = kind.elt_size_in_bytes();
        let begin = bytes.range().start + stored.offset() * size;
        if stored.byte_len() == 0 || !begin.is_multiple_of(size) {
            return Ok(None);
        }
        let file = bytes.file();
        let Some(base) = self.base(file.path(), file.len()) else {
            return Ok(None);
        };
        let tensor = storage::part_of_bytes(base, begin, kind, &shape)?;
        self.parts.push(bytes.clone());
        Ok(Some(tensor))
    }

    fn base(&mut self, path: &Path, length: usize) -> Option<&Tensor> {
        let map = |path: &Path| {
            let text = path.to_str()?;
            let length = i64::try_from(length).ok()?;
            // Refused where the system would have to promise memory for all of it.
            Tensor::f_from_file(text, false, length, (Kind::Uint8, Device::Cpu)).ok()
        };
        let known = self.files.entry(path.to_owned());
        known.or_insert_with(|| map(path)).as_ref()
    }

    /// Lets the system read everything from disk on a thread, from front to back, while the program
    /// goes on.
    pub(super) fn read_ahead(&mut self) {
        let parts = std::mem::take(&mut self.parts);
        if parts.is_empty() {
            return;
        }
        // Advice: a thread that cannot be started costs no more than time.
        let _thread = thread::Builder::new()
            .name("read-ahead".to_owned())
            .spawn(move || parts.iter().for_each(MappedBytes::will_need));
    }
}

#[cfg(test)]
mod tests {
    use accelerate_formats::{Dtype, Metadata, TensorData, Weights, write_file};

    use super::*;

    #[test]
    fn a_weight_can_be_changed_and_the_file_stays() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let values = [1f32, 2.0, 3.0].map(f32::to_le_bytes).concat();
        let tensors = [TensorData::new("w", Dtype::F32, &[3], &values)];
        write_file(&path, tensors, &Metadata::pytorch())?;
        let before = std::fs::read(&path).unwrap();

        let weights = Weights::open(&path)?;
        let mut files = PrivateMaps::default();
        let tensor = files.tensor("w", weights.get("w")?.stored())?.unwrap();
        files.read_ahead();
        drop(files);
        assert_eq!(tensor, Tensor::from_slice(&[1f32, 2.0, 3.0]));
        let _changed = tensor.shallow_clone().f_fill_(7.0)?;
        assert_eq!(tensor.double_value(&[1]), 7.0);
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(storage::storage_bytes(&tensor)?, 12);
        Ok(())
    }
}
