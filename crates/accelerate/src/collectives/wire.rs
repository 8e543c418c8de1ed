//! How values travel that the backend does not carry as they are.

use accelerate_torch::storage::with_bytes;
use accelerate_torch::{Backend, ProcessGroup};
use tch::{Device, Kind, Tensor};

use super::objects::MAX_OBJECT_BYTES;
use crate::state::PartialState;
use crate::{Error, Result};

/// Stands for a message that a rank could not make.
const NONE: i64 = -1;

/// Where small values travel.
pub(super) fn device(group: &ProcessGroup, state: &PartialState) -> Device {
    match group.backend() {
        Backend::Nccl => state.device(),
        _ => Device::Cpu,
    }
}

pub(super) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A contiguous tensor as its bytes where the backend does not know the kind.
pub(super) fn carried(tensor: &Tensor) -> Result<Tensor> {
    let known = matches!(
        tensor.f_kind()?,
        Kind::Float
            | Kind::Double
            | Kind::Half
            | Kind::BFloat16
            | Kind::Uint8
            | Kind::Int8
            | Kind::Int
            | Kind::Int64
            | Kind::Bool
    );
    if known || tensor.numel() == 0 {
        return Ok(tensor.shallow_clone());
    }
    Ok(tensor.f_view([-1])?.f_view_dtype(Kind::Uint8)?)
}

/// The messages of all ranks, in rank order; their lengths may differ.
pub(super) fn gather_messages(
    group: &ProcessGroup,
    device: Device,
    own: &[u8],
) -> Result<Vec<Vec<u8>>> {
    gather_results(group, device, Ok(own))
}

/// As [`gather_messages`], where a rank may have failed to make its message: every rank
/// then fails with [`Error::ObjectOfOtherRank`].
pub(super) fn gather_results(
    group: &ProcessGroup,
    device: Device,
    own: Result<&[u8], ()>,
) -> Result<Vec<Vec<u8>>> {
    let length = own.map_or(NONE, |own| count(own.len()));
    let own = own.unwrap_or_default();
    let lengths = gather_flat(group, &Tensor::from_slice(&[length]).f_to_device(device)?)?;
    let lengths: Vec<i64> = Vec::try_from(&lengths.f_to_device(Device::Cpu)?)?;
    accept("gather_object", &lengths)?;
    let (longest, total) = (
        lengths.iter().copied().max().unwrap_or(0),
        lengths.iter().sum::<i64>(),
    );
    if longest == 0 {
        return Ok(vec![Vec::new(); group.size()]);
    }
    // Filling up all messages to the longest is quick, unless one is much longer.
    if longest * count(group.size()) > 2 * total + MANY {
        return (0..group.size())
            .zip(lengths)
            .map(|(rank, length)| send_bytes(group, device, own, rank, length))
            .collect();
    }
    let padded = Tensor::f_zeros([longest], (Kind::Uint8, Device::Cpu))?;
    padded
        .f_narrow(0, 0, length)?
        .f_copy_(&Tensor::f_from_slice(own)?)?;
    let all = gather_flat(group, &padded.f_to_device(device)?)?.f_to_device(Device::Cpu)?;
    (0..)
        .zip(lengths)
        .map(|(rank, length)| bytes(&all.f_narrow(0, rank * longest, length)?))
        .collect()
}

/// Bytes that may be wasted on filling up.
const MANY: i64 = 1 << 20;

/// The message of rank `root`, on every rank; it may have failed to make it.
pub(super) fn broadcast_result(
    group: &ProcessGroup,
    device: Device,
    own: Result<&[u8], ()>,
    root: usize,
) -> Result<Vec<u8>> {
    let length = own.map_or(NONE, |own| count(own.len()));
    let own = own.unwrap_or_default();
    let length = Tensor::from_slice(&[length]).f_to_device(device)?;
    group.broadcast(&length, root)?;
    let length = length.f_int64_value(&[0])?;
    let mut lengths = vec![0; group.size()];
    lengths[root] = length;
    accept("broadcast_object_list", &lengths)?;
    send_bytes(group, device, own, root, length)
}

/// `length` bytes of rank `root`, on every rank.
fn send_bytes(
    group: &ProcessGroup,
    device: Device,
    own: &[u8],
    root: usize,
    length: i64,
) -> Result<Vec<u8>> {
    if length == 0 {
        return Ok(Vec::new());
    }
    let data = if group.rank() == root {
        Tensor::f_from_slice(own)?.f_to_device(device)?
    } else {
        Tensor::f_empty([length], (Kind::Uint8, device))?
    };
    group.broadcast(&data, root)?;
    bytes(&data.f_to_device(Device::Cpu)?)
}

/// Whether all lengths can be sent; fails on every rank alike.
fn accept(operation: &'static str, lengths: &[i64]) -> Result<()> {
    for (rank, &length) in lengths.iter().enumerate() {
        if length == NONE {
            return Err(Error::ObjectOfOtherRank { operation, rank });
        }
        if usize::try_from(length).unwrap_or(usize::MAX) > MAX_OBJECT_BYTES {
            return Err(Error::ObjectTooLarge {
                operation,
                rank,
                bytes: length,
                limit: MAX_OBJECT_BYTES,
            });
        }
    }
    Ok(())
}

/// The tensors of all ranks, one after the other.
fn gather_flat(group: &ProcessGroup, own: &Tensor) -> Result<Tensor> {
    let length = own.size().iter().product::<i64>() * count(group.size());
    let all = Tensor::f_empty([length], (own.f_kind()?, own.device()))?;
    group.all_gather_into_tensor(&all, own)?;
    Ok(all)
}

fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    if tensor.numel() == 0 {
        return Ok(Vec::new());
    }
    Ok(with_bytes(tensor, <[u8]>::to_vec)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_too_long_is_named_with_its_rank() {
        let long = count(MAX_OBJECT_BYTES) + 1;
        let error = accept("gather_object", &[3, long]).unwrap_err();
        assert!(
            matches!(error, Error::ObjectTooLarge { rank: 1, bytes, .. } if bytes == long),
            "{error}"
        );
        assert!(accept("gather_object", &[0, long - 1]).is_ok());
    }
}
