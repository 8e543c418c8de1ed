//! What lies on disk: exact counts from the headers of safetensors and torch files.
//!
//! Files know no modules, only dotted names. What belongs together is read from them:
//!
//! - A number among the parts of a name counts a repeated block: `model.layers.3.mlp.up.weight`
//!   belongs to the block `model.layers.3` (the first number decides).
//! - Any other tensor belongs to the module that holds it: `lm_head.weight` to `lm_head`.
//!
//! Some tensors cannot be loaded in another type: whole numbers of 8 or 32 bits, floats of 8 bits
//! or less (quantised or packed weights), and every tensor beside them in the same module or below
//! their name, which are the scales they need. Those keep their bytes in every row.

use std::collections::{HashMap, HashSet};

use accelerate_formats::{Dtype, Weights};
use accelerate_plan::size_text::Size;

use crate::dtype_sum::DtypeSum;

use super::{
    dtypes::{LoadDtype, Row},
    largest::Largest,
};

/// The tensors of some files.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) files: usize,
    pub(crate) tensors: Vec<StoredTensor>,
}

/// A tensor by its header.
#[derive(Debug)]
pub(crate) struct StoredTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: u64,
    pub(crate) role: Role,
}

/// What can become of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Floats that can be loaded in any type and trained.
    Weight,
    /// Quantised or packed, or a scale of such.
    Quantized,
    /// Whole numbers that are no weights: positions, counters, masks.
    Buffer,
}

impl Stored {
    /// Takes stock of opened weights. No data is read.
    pub(crate) fn new(weights: &Weights) -> Self {
        let tensors = weights.tensors().map(|tensor| StoredTensor {
            name: tensor.name().to_owned(),
            dtype: tensor.dtype(),
            shape: tensor.shape().iter().map(|&n| n as u64).collect(),
            bytes: tensor.byte_len() as u64,
            role: Role::Weight,
        });
        Self::with_roles(weights.files().len(), tensors.collect())
    }

    fn with_roles(files: usize, mut tensors: Vec<StoredTensor>) -> Self {
        let packed = tensors.iter().filter(|t| is_quantized(t));
        let mut homes = HashSet::new();
        for tensor in packed {
            homes.insert(parent(&tensor.name).to_owned());
            homes.insert(tensor.name.clone());
        }
        for tensor in &mut tensors {
            let in_module = homes.contains(parent(&tensor.name));
            tensor.role = if is_quantized(tensor) {
                Role::Quantized
            } else if !is_wide_float(tensor.dtype) {
                if in_module {
                    Role::Quantized
                } else {
                    Role::Buffer
                }
            } else if in_module {
                Role::Quantized
            } else {
                Role::Weight
            };
        }
        Self { files, tensors }
    }

    /// The bytes of all tensors, as they lie on disk.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    pub(crate) fn elements(&self) -> u64 {
        let elements = self.tensors.iter().map(StoredTensor::elements);
        elements.fold(0, u64::saturating_add)
    }

    /// Whether some tensor is quantised or packed.
    pub(crate) fn is_quantized(&self) -> bool {
        self.tensors.iter().any(|t| t.role == Role::Quantized)
    }

    /// The sums by type, the largest first.
    pub(crate) fn by_dtype(&self) -> Vec<DtypeSum> {
        let tensors = self.tensors.iter();
        DtypeSum::of(tensors.map(|tensor| (tensor.dtype.name(), tensor.elements(), tensor.bytes)))
    }

    /// The largest block on disk.
    pub(crate) fn largest_layer(&self) -> Largest {
        self.largest_by(|tensor| tensor.bytes)
    }

    fn largest_by(&self, size: impl Fn(&StoredTensor) -> u64) -> Largest {
        let mut order: Vec<(&str, u64)> = Vec::new();
        let mut places = HashMap::new();
        for tensor in &self.tensors {
            let block = block(&tensor.name);
            let place = *places.entry(block).or_insert_with(|| {
                order.push((block, 0));
                order.len() - 1
            });
            order[place].1 += size(tensor);
        }
        let mut largest = Largest::default();
        for (name, bytes) in order {
            largest.offer(name, None, bytes);
        }
        largest
    }

    /// The rows of the table: as stored, then in each type.
    pub(crate) fn rows(&self, dtypes: &[LoadDtype]) -> Vec<Row> {
        let total = self.total_bytes();
        let trained = |total| (!self.is_quantized()).then_some(Size::Whole(total));
        let stored = Row {
            dtype: "stored",
            largest: Size::Whole(self.largest_layer().bytes),
            total: Size::Whole(total),
            training: trained(total.saturating_mul(4)),
        };
        let rows = dtypes.iter().map(|&dtype| self.row(dtype));
        std::iter::once(stored).chain(rows).collect()
    }

    fn row(&self, dtype: LoadDtype) -> Row {
        // Half bytes count, so that the sizes are those of the original where all is float32.
        let half_bytes = |tensor: &StoredTensor| match tensor.role {
            Role::Weight => tensor.elements().saturating_mul(8 / dtype.per_float32()),
            _ => tensor.bytes.saturating_mul(2),
        };
        let total: u64 = self.tensors.iter().map(half_bytes).sum();
        let float32 = self.tensors.iter().map(|tensor| match tensor.role {
            Role::Weight => tensor.elements().saturating_mul(4),
            _ => tensor.bytes,
        });
        let float32 = float32.sum();
        Row {
            dtype: dtype.name(),
            largest: halves(self.largest_by(half_bytes).bytes),
            total: halves(total),
            training: (!self.is_quantized()).then(|| dtype.training(float32)),
        }
    }
}

impl StoredTensor {
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |all, &n| all.saturating_mul(n))
    }
}

fn halves(half_bytes: u64) -> Size {
    if half_bytes.is_multiple_of(2) {
        Size::Whole(half_bytes / 2)
    } else {
        Size::Divided(half_bytes as f64 / 2.0)
    }
}

fn is_wide_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16)
}

/// Attention masks, positions and biases in whole numbers are no packed weights.
fn is_quantized(tensor: &StoredTensor) -> bool {
    let last = tensor.name.rsplit('.').next().unwrap_or_default();
    if last == "bias" || last.ends_with("_ids") || last.ends_with("mask") {
        return false;
    }
    matches!(
        tensor.dtype,
        Dtype::I8
            | Dtype::U8
            | Dtype::I32
            | Dtype::U32
            | Dtype::F4
            | Dtype::F6E2m3
            | Dtype::F6E3m2
            | Dtype::F8E4m3
            | Dtype::F8E5m2
            | Dtype::F8E8m0
            | Dtype::F8E4m3Fnuz
            | Dtype::F8E5m2Fnuz
    )
}

/// The name of the module that holds a tensor.
fn parent(tensor: &str) -> &str {
    tensor.rsplit_once('.').map_or("", |(module, _)| module)
}

/// The block that a tensor belongs to.
pub(crate) fn block(tensor: &str) -> &str {
    numbered_block(tensor).unwrap_or_else(|| match parent(tensor) {
        "" => tensor,
        module => module,
    })
}

/// The name up to its first number, if it has one before its last part.
pub(crate) fn numbered_block(tensor: &str) -> Option<&str> {
    let mut end = 0;
    for part in tensor.split('.') {
        end += part.len();
        if end == tensor.len() {
            return None;
        }
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            return tensor.get(..end);
        }
        end += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, dtype: Dtype, shape: &[u64]) -> StoredTensor {
        let elements: u64 = shape.iter().product();
        StoredTensor {
            name: name.to_owned(),
            dtype,
            shape: shape.to_vec(),
            bytes: elements * dtype.size_in_bits() as u64 / 8,
            role: Role::Weight,
        }
    }

    #[test]
    fn blocks_are_read_from_names() {
        assert_eq!(block("model.layers.3.mlp.up.weight"), "model.layers.3");
        assert_eq!(block("h.0.experts.7.w1"), "h.0");
        assert_eq!(block("lm_head.weight"), "lm_head");
        assert_eq!(
            block("bert.embeddings.LayerNorm.bias"),
            "bert.embeddings.LayerNorm"
        );
        assert_eq!(block("scale"), "scale");
        assert_eq!(
            block("features.0"),
            "features",
            "the last part is the tensor itself"
        );
        assert_eq!(block("layer1.0.bn1.weight"), "layer1.0");
    }

    #[test]
    fn scales_stay_with_what_they_scale() {
        let stored = Stored::with_roles(
            1,
            vec![
                tensor("a.weight", Dtype::I8, &[4, 4]),
                tensor("a.weight_scale", Dtype::F32, &[4]),
                tensor("b.weight", Dtype::U8, &[8]),
                tensor("b.weight.absmax", Dtype::F32, &[2]),
                tensor("bn.weight", Dtype::F32, &[4]),
                tensor("bn.num_batches_tracked", Dtype::I64, &[]),
                tensor("c.qweight", Dtype::I32, &[2, 2]),
                tensor("c.scales", Dtype::F16, &[2]),
            ],
        );
        let roles: Vec<Role> = stored.tensors.iter().map(|t| t.role).collect();
        use Role::{Buffer, Quantized, Weight};
        assert_eq!(
            roles,
            [
                Quantized, Quantized, Quantized, Quantized, Weight, Buffer, Quantized, Quantized
            ]
        );
        assert!(stored.is_quantized());
        let kept = 16 + 16 + 8 + 8 + 8 + 16 + 4;
        assert_eq!(stored.total_bytes(), kept + 16);
        let rows = stored.rows(&[LoadDtype::Float16, LoadDtype::Int4]);
        assert_eq!(rows[0].total, Size::Whole(kept + 16));
        assert_eq!(rows[1].total, Size::Whole(kept + 8));
        assert_eq!(rows[2].total, Size::Whole(kept + 2));
        assert!(rows.iter().all(|row| row.training.is_none()));
    }

    #[test]
    fn masks_in_small_numbers_are_no_packed_weights() {
        let tensors = vec![
            tensor("h.0.attn.bias", Dtype::U8, &[1, 1, 8, 8]),
            tensor("h.0.attn.c_attn.weight", Dtype::F32, &[4]),
            tensor("embeddings.position_ids", Dtype::I32, &[1, 8]),
        ];
        let stored = Stored::with_roles(1, tensors);
        assert!(!stored.is_quantized());
        assert_eq!(stored.tensors[0].role, Role::Buffer);
    }

    #[test]
    fn plain_floats_are_counted_as_a_built_model_is() {
        let stored = Stored::with_roles(
            1,
            vec![
                tensor("layers.0.w", Dtype::Bf16, &[100]),
                tensor("layers.0.v", Dtype::Bf16, &[5]),
                tensor("layers.1.w", Dtype::Bf16, &[100]),
                tensor("head", Dtype::Bf16, &[101]),
            ],
        );
        let rows = stored.rows(&[LoadDtype::Float32, LoadDtype::Int4]);
        assert_eq!(rows[0].total, Size::Whole(612));
        assert_eq!(rows[1].total, Size::Whole(306 * 4));
        assert_eq!(rows[1].largest, Size::Whole(105 * 4));
        assert_eq!(rows[1].training, Some(Size::Whole(306 * 16)));
        assert_eq!(rows[2].total, Size::Whole(153));
        assert_eq!(rows[2].largest, Size::Divided(52.5));
        assert_eq!(stored.largest_layer().layers[0].name, "layers.0");
    }

    #[test]
    fn sums_are_by_type() {
        let stored = Stored::with_roles(
            1,
            vec![
                tensor("a", Dtype::F32, &[2]),
                tensor("b", Dtype::I64, &[9]),
                tensor("c", Dtype::F32, &[3]),
            ],
        );
        let sums = stored.by_dtype();
        assert_eq!((sums[0].dtype, sums[0].bytes), ("I64", 72));
        assert_eq!(
            (sums[1].tensors, sums[1].elements, sums[1].bytes),
            (2, 5, 20)
        );
    }
}
