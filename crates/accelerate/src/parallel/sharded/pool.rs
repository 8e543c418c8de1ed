//! Memory that units lend each other.

use std::collections::HashMap;

use accelerate_torch::storage;
use tch::Tensor;

use crate::Result;

/// Blocks of memory that are free, and handles that hold none.
///
/// A unit's whole parameters and whole gradients live only for the time of their use. Giving their
/// memory back to the system and faulting it in again costs more than sending its content, so a
/// block goes from one to the next, and a step allocates nothing once all blocks are there.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// By size in bytes.
    free: HashMap<usize, Vec<Tensor>>,
    hollow: Vec<Tensor>,
}

impl Pool {
    /// Gives `tensor`, if its memory was taken, `bytes` bytes of undefined content.
    pub(super) fn fill(&mut self, tensor: &Tensor, bytes: usize) -> Result<()> {
        if storage::storage_bytes(tensor)? == bytes {
            return Ok(());
        }
        match self.free.get_mut(&bytes).and_then(Vec::pop) {
            Some(spare) => {
                storage::swap(tensor, &spare)?;
                self.hollow.push(spare);
            }
            None => storage::refill(tensor, bytes)?,
        }
        Ok(())
    }

    /// Takes the memory of `tensor`; it and its views must not be read until they are filled again.
    pub(super) fn drain(&mut self, tensor: &Tensor) -> Result<()> {
        let bytes = storage::storage_bytes(tensor)?;
        if bytes == 0 {
            return Ok(());
        }
        let spare = match self.hollow.pop() {
            Some(spare) => spare,
            None => Tensor::f_empty([0i64], (tensor.f_kind()?, tensor.device()))?,
        };
        storage::swap(tensor, &spare)?;
        self.free.entry(bytes).or_default().push(spare);
        Ok(())
    }

    /// Gives all free memory back.
    pub(super) fn clear(&mut self) {
        self.free.clear();
        self.hollow.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind};

    #[test]
    fn memory_goes_from_one_to_the_next() -> Result<()> {
        let mut pool = Pool::default();
        let first = Tensor::from_slice(&[1f32, 2.0]);
        let view = first.f_narrow(0, 1, 1)?;
        let address = first.data_ptr();
        pool.drain(&first)?;
        assert_eq!(storage::storage_bytes(&view)?, 0);
        let second = Tensor::f_zeros([2], (Kind::Float, Device::Cpu))?;
        storage::release(&second)?;
        pool.fill(&second, 8)?;
        assert_eq!(second.data_ptr(), address);
        // Nothing of that size is left.
        pool.fill(&first, 8)?;
        assert_ne!(first.data_ptr(), address);
        assert_eq!(storage::storage_bytes(&view)?, 8);
        pool.drain(&first)?;
        pool.drain(&first)?;
        pool.clear();
        pool.fill(&first, 8)?;
        let _ = first.shallow_clone().f_fill_(3.0)?;
        assert_eq!(view.double_value(&[0]), 3.0);
        Ok(())
    }
}
