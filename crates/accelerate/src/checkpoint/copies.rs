//! Memory for copies of what is being trained, while it is written.

use tch::{Device, Tensor};

use crate::Result;

/// CPU tensors that one save after another copies into, since memory that is new to the process
/// costs more than copying.
#[derive(Debug, Default)]
pub(crate) struct CopyBuffers {
    tensors: Vec<Tensor>,
    used: usize,
}

impl CopyBuffers {
    /// A copy in CPU memory: in the buffer that had this place in the last save, if it fits.
    ///
    /// Nobody may still read what that save copied.
    pub(super) fn copy(&mut self, source: &Tensor) -> Result<Tensor> {
        let kind = source.f_kind()?;
        let fits = |buffer: &&Tensor| buffer.kind() == kind && buffer.size() == source.size();
        let mut buffer = match self.tensors.get(self.used).filter(fits) {
            Some(buffer) => buffer.shallow_clone(),
            None => Tensor::f_empty(source.size(), (kind, Device::Cpu))?,
        };
        tch::no_grad(|| buffer.f_copy_(source))?;
        let kept = buffer.shallow_clone();
        match self.tensors.get_mut(self.used) {
            Some(place) => *place = kept,
            None => self.tensors.push(kept),
        }
        self.used += 1;
        Ok(buffer)
    }

    /// Begins again with the first buffer, and forgets those that were not used last time.
    pub(super) fn rewind(&mut self) {
        self.tensors.truncate(self.used);
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_where_it_fits() {
        let mut buffers = CopyBuffers::default();
        let source = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0]).view([2, 2]);
        let first = buffers.copy(&source.tr()).unwrap();
        assert_eq!(first, source.tr());
        assert!(first.is_contiguous());
        let other = buffers.copy(&source).unwrap();
        assert_ne!(first.data_ptr(), other.data_ptr());
        buffers.rewind();
        let again = buffers.copy(&source).unwrap();
        assert_eq!(again.data_ptr(), first.data_ptr());
        assert_eq!(again, source);
        buffers.rewind();
        assert_eq!(buffers.tensors.len(), 1);
        let another = buffers.copy(&Tensor::from_slice(&[1i64])).unwrap();
        assert_eq!(another, Tensor::from_slice(&[1i64]));
    }
}
