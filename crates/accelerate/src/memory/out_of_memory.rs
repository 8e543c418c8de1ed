use std::error::Error;

use accelerate_torch::ExceptionKind;

/// What libtorch writes when memory is exhausted, on the devices it knows.
const SIGNS: [&str; 5] = [
    " out of memory.",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed",
];

/// Whether an error, or one that caused it, says that memory is exhausted.
///
/// # Source
/// `accelerate.utils.memory.should_reduce_batch_size`, with the texts it looks for.
#[must_use]
pub fn is_out_of_memory(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let by_kind = matches!(
            error.downcast_ref(),
            Some(accelerate_torch::Error::Libtorch {
                kind: ExceptionKind::OutOfMemory,
                ..
            })
        );
        if by_kind || says_so(&error.to_string()) {
            return true;
        }
        next = error.source();
    }
    false
}

/// As [`is_out_of_memory`], for the text of a panic.
pub(super) fn says_so(message: &str) -> bool {
    SIGNS.iter().any(|sign| message.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    #[test]
    fn a_real_allocation_that_cannot_be_is_recognised_wherever_it_is_wrapped() {
        let too_much = Tensor::f_empty([1i64 << 46], (Kind::Double, Device::Cpu)).unwrap_err();
        let error = crate::Error::from(too_much);
        assert!(is_out_of_memory(&error), "{error:?}");
        let wrapped = crate::Error::Sample {
            index: 3,
            source: Box::new(error),
        };
        assert!(is_out_of_memory(&wrapped));
    }

    #[test]
    fn other_errors_are_not() {
        let error = Tensor::from_slice(&[1f32, 2.0])
            .f_add(&Tensor::from_slice(&[1f32, 2.0, 3.0]))
            .unwrap_err();
        assert!(!is_out_of_memory(&crate::Error::from(error)));
        assert!(!says_so("out of memories"));
    }
}
