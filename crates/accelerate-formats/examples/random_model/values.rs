//! Weights that follow from the names of their tensors.

use std::fmt;
use std::ops::Range;

use accelerate_formats::{Dtype, Error, Pieces, Result, TensorBytes, TensorHeader, TensorSource};
use half::bf16;

/// How many values are made at a time.
const BLOCK: usize = 1 << 18;

/// The standard deviation of weights.
const STD: f32 = 0.02;

/// The standard deviation of the sum of four numbers below 2^16.
const SUM_STD: f32 = 37_837.227;

/// The mean of that sum.
const SUM_MEAN: i32 = 2 * 65_535;

/// What the values are kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WeightType {
    Float32,
    Bfloat16,
}

impl WeightType {
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        match name {
            "float32" => Ok(Self::Float32),
            "bfloat16" => Ok(Self::Bfloat16),
            other => Err(format!("expected `float32` or `bfloat16`, found `{other}`")),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Bfloat16 => "bfloat16",
        }
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::Float32 => Dtype::F32,
            Self::Bfloat16 => Dtype::Bf16,
        }
    }
}

/// Tensors whose values are made when they are asked for.
pub(crate) struct RandomWeights {
    tensors: Vec<TensorHeader>,
    kind: WeightType,
}

impl RandomWeights {
    pub(crate) fn new(tensors: Vec<(String, Vec<usize>)>, kind: WeightType) -> Self {
        let tensors = tensors.into_iter().map(|(name, shape)| TensorHeader {
            name,
            dtype: kind.dtype(),
            shape,
        });
        Self {
            tensors: tensors.collect(),
            kind,
        }
    }

    pub(crate) fn parameters(&self) -> usize {
        let counts = self
            .tensors
            .iter()
            .map(|tensor| tensor.shape.iter().product::<usize>());
        counts.sum()
    }
}

impl fmt::Debug for RandomWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomWeights")
            .field("tensors", &self.tensors.len())
            .field("kind", &self.kind)
            .finish()
    }
}

impl TensorSource for RandomWeights {
    fn headers(&self) -> Vec<TensorHeader> {
        self.tensors.clone()
    }

    fn aliases(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        let found = self.tensors.iter().find(|tensor| tensor.name == name);
        let tensor = found.ok_or_else(|| absent(name))?;
        let (kind, values) = (self.kind, Values::of(name));
        let count = tensor.shape.iter().product::<usize>();
        let blocks = (0..count).step_by(BLOCK).map(move |begin| {
            let end = count.min(begin + BLOCK);
            Ok(TensorBytes::from(values.bytes(begin..end, kind)))
        });
        Ok(Box::new(blocks))
    }
}

/// The values of one tensor.
#[derive(Debug, Clone, Copy)]
struct Values {
    seed: u64,
    /// 1 for what scales a normalised state.
    mean: f32,
}

impl Values {
    fn of(name: &str) -> Self {
        let is_norm = ["ln_1.weight", "ln_2.weight", "ln_f.weight", "norm.weight"]
            .iter()
            .any(|end| name.ends_with(end));
        // FNV-1a.
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            seed,
            mean: if is_norm { 1.0 } else { 0.0 },
        }
    }

    /// Nearly normal: the sum of four even numbers, which are the parts of a mixed counter
    /// (SplitMix64).
    fn at(self, index: usize) -> f32 {
        let mut bits = self
            .seed
            .wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let part = |shift: u32| ((bits >> shift) & 0xffff) as i32;
        let sum = part(0) + part(16) + part(32) + part(48) - SUM_MEAN;
        self.mean + sum as f32 * (STD / SUM_STD)
    }

    fn bytes(self, range: Range<usize>, kind: WeightType) -> Vec<u8> {
        let values = range.clone().map(|index| self.at(index));
        match kind {
            WeightType::Float32 => {
                let mut bytes = vec![0; 4 * range.len()];
                for (place, value) in bytes.chunks_exact_mut(4).zip(values) {
                    place.copy_from_slice(&value.to_le_bytes());
                }
                bytes
            }
            WeightType::Bfloat16 => {
                let mut bytes = vec![0; 2 * range.len()];
                for (place, value) in bytes.chunks_exact_mut(2).zip(values) {
                    place.copy_from_slice(&bf16::from_f32(value).to_le_bytes());
                }
                bytes
            }
        }
    }
}

fn absent(name: &str) -> Error {
    Error::TensorNotFound {
        path: "a random model".into(),
        tensor: name.to_owned(),
        nearest: None,
    }
}
