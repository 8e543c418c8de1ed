//! Values that are no tensors, sent as bytes.

use tch::{Device, Kind, Tensor};

use super::{ProcessGroup, ReduceOp};
use crate::Result;
use crate::storage::with_bytes;

impl ProcessGroup {
    /// The bytes of every rank, in the order of ranks. Lengths may differ.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let ranks = i64::try_from(self.size()).unwrap_or(i64::MAX);
        let lengths = int64s(self.size())?;
        let own = Tensor::from_slice(&[i64::try_from(bytes.len()).unwrap_or(i64::MAX)]);
        self.all_gather_into_tensor(&lengths, &own)?;
        let lengths: Vec<i64> = Vec::try_from(&lengths)?;
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if longest == 0 {
            return Ok(vec![Vec::new(); self.size()]);
        }
        let padded = Tensor::f_zeros([longest], (Kind::Uint8, Device::Cpu))?;
        let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        padded
            .f_narrow(0, 0, length)?
            .f_copy_(&Tensor::f_from_slice(bytes)?)?;
        let all = Tensor::f_empty([ranks * longest], (Kind::Uint8, Device::Cpu))?;
        self.all_gather_into_tensor(&all, &padded)?;
        (0i64..)
            .zip(lengths)
            .map(|(rank, length)| {
                with_bytes(&all.f_narrow(0, rank * longest, length)?, <[u8]>::to_vec)
            })
            .collect()
    }

    /// The bytes of rank `root`, on every rank; what others pass is not used.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn broadcast_bytes(&self, bytes: &[u8], root: usize) -> Result<Vec<u8>> {
        let own = if self.rank() == root { bytes } else { &[] };
        let length = Tensor::from_slice(&[i64::try_from(own.len()).unwrap_or(i64::MAX)]);
        self.broadcast(&length, root)?;
        let data = if self.rank() == root {
            Tensor::f_from_slice(own)?
        } else {
            Tensor::f_empty([length.f_int64_value(&[0])?], (Kind::Uint8, Device::Cpu))?
        };
        if data.numel() > 0 {
            self.broadcast(&data, root)?;
        }
        with_bytes(&data, <[u8]>::to_vec)
    }

    /// Whether a condition holds on at least one rank.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn any(&self, condition: bool) -> Result<bool> {
        let flag = Tensor::from_slice(&[i64::from(condition)]);
        self.all_reduce(&flag, ReduceOp::Max)?;
        Ok(flag.f_int64_value(&[0])? != 0)
    }
}

fn int64s(count: usize) -> Result<Tensor> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    Ok(Tensor::f_zeros([count], (Kind::Int64, Device::Cpu))?)
}
