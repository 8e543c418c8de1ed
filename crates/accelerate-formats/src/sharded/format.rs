//! The kinds of file, and their names.

use crate::weights::{INDEX_FILE, SINGLE_FILE, TORCH_INDEX_FILE, TORCH_SINGLE_FILE};

/// The kind of file that weights are put into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardFormat {
    /// `model.safetensors`, or `model-00001-of-00003.safetensors` and so on.
    #[default]
    Safetensors,
    /// `pytorch_model.bin`, or `pytorch_model-00001-of-00003.bin` and so on, as `torch.save` writes
    /// them.
    Torch,
}

impl ShardFormat {
    /// The file of weights that are in one piece.
    pub const fn single(self) -> &'static str {
        match self {
            Self::Safetensors => SINGLE_FILE,
            Self::Torch => TORCH_SINGLE_FILE,
        }
    }

    /// The index of weights that are in several pieces.
    pub const fn index(self) -> &'static str {
        match self {
            Self::Safetensors => INDEX_FILE,
            Self::Torch => TORCH_INDEX_FILE,
        }
    }

    /// The file of the piece at `place`, counted from 0.
    pub(super) fn shard(self, place: usize, count: usize) -> String {
        if count == 1 {
            return self.single().to_owned();
        }
        let (begin, end) = self.ends();
        format!("{begin}{:05}-of-{count:05}{end}", place + 1)
    }

    const fn ends(self) -> (&'static str, &'static str) {
        match self {
            Self::Safetensors => ("model-", ".safetensors"),
            Self::Torch => ("pytorch_model-", ".bin"),
        }
    }

    /// Whether a save of this kind makes a file of this name.
    pub(super) fn makes(self, name: &str) -> bool {
        if name == self.single() || name == self.index() {
            return true;
        }
        let (begin, end) = self.ends();
        let middle = name
            .strip_prefix(begin)
            .and_then(|name| name.strip_suffix(end));
        middle
            .and_then(|middle| middle.split_once("-of-"))
            .is_some_and(|(place, count)| {
                [place, count]
                    .iter()
                    .all(|n| n.len() == 5 && n.bytes().all(|byte| byte.is_ascii_digit()))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_save_are_its_own() {
        use ShardFormat::{Safetensors, Torch};
        for (format, name) in [
            (Safetensors, "model.safetensors"),
            (Torch, "pytorch_model.bin"),
            (Safetensors, "model-00001-of-00012.safetensors"),
            (Torch, "pytorch_model-00002-of-00002.bin"),
            (Torch, "pytorch_model.bin.index.json"),
        ] {
            assert!(format.makes(name), "{name}");
            let other = if format == Torch { Safetensors } else { Torch };
            assert!(!other.makes(name), "{name}");
        }
        for name in [
            "model_1.safetensors",
            "model-1-of-2.safetensors",
            "model-00001-of-00002.bin",
            "optimizer.bin",
            "model-0000a-of-00002.safetensors",
        ] {
            assert!(!Safetensors.makes(name) && !Torch.makes(name), "{name}");
        }
        assert_eq!(Torch.shard(1, 3), "pytorch_model-00002-of-00003.bin");
    }
}
