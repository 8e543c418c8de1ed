//! Which tensor goes into which file.

use super::ShardSize;
use crate::safetensors::TensorHeader;

/// Deals tensors to files in their order: a tensor that does not fit begins the next file, and one
/// that fits no file gets its own at once.
///
/// # Source
/// `split_torch_state_dict_into_shards`.
pub(crate) fn plan(
    tensors: impl IntoIterator<Item = TensorHeader>,
    limit: ShardSize,
) -> Vec<Vec<TensorHeader>> {
    let mut shards = Vec::new();
    let mut current = Vec::new();
    let mut filled = 0u64;
    for tensor in tensors {
        let bytes = bytes(&tensor);
        if bytes > limit.bytes() {
            shards.push(vec![tensor]);
            continue;
        }
        if filled.saturating_add(bytes) > limit.bytes() {
            shards.push(std::mem::take(&mut current));
            filled = 0;
        }
        filled += bytes;
        current.push(tensor);
    }
    if !current.is_empty() || shards.is_empty() {
        shards.push(current);
    }
    shards
}

pub(super) fn bytes(tensor: &TensorHeader) -> u64 {
    let bits = tensor.dtype.bits_of(&tensor.shape);
    // A tensor of no possible size is refused when its file is begun.
    bits.map_or(0, |bits| bits as u64 / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    fn sizes(tensors: &[usize], limit: u64) -> Vec<Vec<usize>> {
        let headers = tensors.iter().map(|&length| TensorHeader {
            name: length.to_string(),
            dtype: Dtype::U8,
            shape: vec![length],
        });
        let limit = ShardSize::from_bytes(limit.try_into().unwrap());
        let shards = plan(headers, limit).into_iter();
        shards
            .map(|shard| shard.iter().map(|t| t.shape[0]).collect())
            .collect()
    }

    #[test]
    fn tensors_keep_their_order_and_large_ones_stand_alone() {
        // The original's worked example: 48, 16, 16, 16 | 16, 16, 8 | 80, 20 with 100.
        let example = [48, 16, 16, 16, 16, 16, 8, 80, 20];
        assert_eq!(
            sizes(&example, 100),
            [vec![48, 16, 16, 16], vec![16, 16, 8], vec![80, 20]]
        );
        assert_eq!(sizes(&[3, 20, 4], 10), [vec![20], vec![3, 4]]);
        assert_eq!(sizes(&[10, 10], 10), [[10], [10]]);
        assert_eq!(sizes(&[], 10), [Vec::<usize>::new()]);
    }
}
