//! Random generators of libtorch.

use std::ptr::{self, NonNull};

use tch::{Device, Tensor};

use crate::device::raw_device;
use crate::status::{check, own, raw};
use crate::{Error, Result, ffi};

/// A random generator: one of our own, or a default one of libtorch.
///
/// With one seed it draws the same numbers as `torch.Generator`, and its state is
/// the same bytes.
#[derive(Debug)]
pub struct Generator {
    handle: NonNull<ffi::Generator>,
}

// SAFETY: the handle is a reference-counted pointer with an atomic count, and every
// access to the generator behind it takes the generator's own mutex, in the shim or
// in libtorch's kernels.
unsafe impl Send for Generator {}
// SAFETY: as above.
unsafe impl Sync for Generator {}

impl Drop for Generator {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used after.
        unsafe { ffi::acc_generator_free(self.handle.as_ptr()) }
    }
}

impl Generator {
    /// A new CPU generator with this seed.
    ///
    /// # Errors
    /// If memory is exhausted.
    pub fn new(seed: u64) -> Result<Self> {
        let mut out = ptr::null_mut();
        // SAFETY: on success `out` is an owned handle.
        unsafe { check("new generator", ffi::acc_generator_new(seed, &mut out))? };
        Self::from_raw("new generator", out)
    }

    /// The generator that operations on the CPU use when none is given.
    ///
    /// # Errors
    /// None that is known.
    pub fn default_cpu() -> Result<Self> {
        Self::default_of(Device::Cpu)
    }

    /// The generator that operations on `device` use when none is given.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn default_of(device: Device) -> Result<Self> {
        let (device_type, index) = raw_device(device)?;
        let mut out = ptr::null_mut();
        // SAFETY: on success `out` is an owned handle.
        unsafe {
            check(
                "default generator",
                ffi::acc_generator_default(device_type, index, &mut out),
            )?;
        }
        Self::from_raw("default generator", out)
    }

    fn from_raw(operation: &'static str, raw: *mut ffi::Generator) -> Result<Self> {
        NonNull::new(raw)
            .map(|handle| Self { handle })
            .ok_or(Error::Unavailable {
                operation,
                needed: "a generator",
                remedy: "libtorch returned none",
            })
    }

    /// Starts the sequence of `seed` from its beginning.
    ///
    /// # Errors
    /// None that is known.
    pub fn manual_seed(&self, seed: u64) -> Result<()> {
        // SAFETY: the handle is alive.
        unsafe {
            check(
                "seed generator",
                ffi::acc_generator_manual_seed(self.handle.as_ptr(), seed),
            )
        }
    }

    /// The seed that the running sequence started from.
    ///
    /// # Errors
    /// None that is known.
    pub fn initial_seed(&self) -> Result<u64> {
        let mut seed = 0;
        // SAFETY: the handle is alive and the seed is written before it is read.
        unsafe {
            check(
                "generator seed",
                ffi::acc_generator_initial_seed(self.handle.as_ptr(), &mut seed),
            )?;
        }
        Ok(seed)
    }

    /// Where the sequence is, as bytes in a tensor.
    ///
    /// # Shapes
    /// - output: `[bytes]` of kind `Uint8`, on the CPU
    ///
    /// # Errors
    /// None that is known.
    pub fn state(&self) -> Result<Tensor> {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is alive; the shim gives the tensor up.
        unsafe {
            check(
                "generator state",
                ffi::acc_generator_state(self.handle.as_ptr(), &mut out),
            )?;
            Ok(own(out))
        }
    }

    /// Continues the sequence from a [`state`](Self::state).
    ///
    /// # Errors
    /// If the bytes are no state of this kind of generator.
    pub fn set_state(&self, state: &Tensor) -> Result<()> {
        // SAFETY: handle and tensor are alive.
        unsafe {
            check(
                "set generator state",
                ffi::acc_generator_set_state(self.handle.as_ptr(), raw(state)),
            )
        }
    }

    /// A random order of `0..n`, as `torch.randperm(n, generator=self)` draws it.
    ///
    /// # Shapes
    /// - output: `[n]` of kind `Int64`
    ///
    /// # Errors
    /// If `n` is negative.
    pub fn randperm(&self, n: i64) -> Result<Tensor> {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is alive; the shim gives the tensor up.
        unsafe {
            check(
                "random permutation",
                ffi::acc_generator_randperm(self.handle.as_ptr(), n, &mut out),
            )?;
            Ok(own(out))
        }
    }

    /// One number, as `torch.empty((), dtype=torch.int64).random_(generator=self)` draws it.
    ///
    /// # Errors
    /// None that is known.
    pub fn random_i64(&self) -> Result<i64> {
        let mut out = 0;
        // SAFETY: the handle is alive and the number is written before it is read.
        unsafe {
            check(
                "random number",
                ffi::acc_generator_random(self.handle.as_ptr(), &mut out),
            )?;
        }
        Ok(out)
    }

    /// `n` numbers below `high`, as `torch.randint(high, (n,), generator=self)` draws them.
    ///
    /// # Shapes
    /// - output: `[n]` of kind `Int64`
    ///
    /// # Errors
    /// If `high` is not positive or `n` is negative.
    pub fn randint(&self, high: i64, n: i64) -> Result<Tensor> {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is alive; the shim gives the tensor up.
        unsafe {
            check(
                "random integers",
                ffi::acc_generator_randint(self.handle.as_ptr(), high, n, &mut out),
            )?;
            Ok(own(out))
        }
    }

    /// `n` indices drawn by weight, as `torch.multinomial(weights, n, replacement, generator=self)`.
    ///
    /// # Shapes
    /// - weights: `[choices]` or `[rows, choices]`, not negative
    /// - output: `[n]` or `[rows, n]` of kind `Int64`
    ///
    /// # Errors
    /// If a weight is negative or not finite, or too few choices remain without replacement.
    pub fn multinomial(&self, weights: &Tensor, n: i64, replacement: bool) -> Result<Tensor> {
        let mut out = ptr::null_mut();
        // SAFETY: handle and tensor are alive; the shim gives the new tensor up.
        unsafe {
            check(
                "weighted draw",
                ffi::acc_generator_multinomial(
                    self.handle.as_ptr(),
                    raw(weights),
                    n,
                    replacement,
                    &mut out,
                ),
            )?;
            Ok(own(out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(generator: &Generator, n: i64) -> Result<Vec<i64>> {
        Ok(Vec::try_from(generator.randperm(n)?)?)
    }

    #[test]
    fn draws_what_torch_draws() -> Result<()> {
        // `torch.Generator().manual_seed(42)`, torch 2.13 on CPU.
        let generator = Generator::new(42)?;
        assert_eq!(generator.random_i64()?, 6_909_045_637_428_952_499);
        generator.manual_seed(42)?;
        assert_eq!(order(&generator, 10)?, [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
        Ok(())
    }

    #[test]
    fn a_state_brings_the_sequence_back() -> Result<()> {
        let generator = Generator::new(7)?;
        assert_eq!(generator.initial_seed()?, 7);
        order(&generator, 5)?;
        let state = generator.state()?;
        let first = order(&generator, 20)?;
        generator.set_state(&state)?;
        assert_eq!(order(&generator, 20)?, first);
        assert!(generator.set_state(&Tensor::from_slice(&[1u8])).is_err());
        Ok(())
    }

    #[test]
    fn weights_decide_the_draw() -> Result<()> {
        let generator = Generator::new(0)?;
        let weights = Tensor::from_slice(&[0f32, 1.0, 0.0]);
        let drawn = generator.multinomial(&weights, 4, true)?;
        assert_eq!(Vec::<i64>::try_from(drawn)?, [1, 1, 1, 1]);
        let small = generator.randint(3, 100)?;
        assert!(small.int64_value(&[0]) < 3 && small.size() == [100]);
        assert!(generator.randint(0, 1).is_err());
        Ok(())
    }
}
