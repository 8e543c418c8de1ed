//! Whether equal inputs give equal bits in every run.
//!
//! The switches belong to the process: they hold for every thread, from the next operation
//! on.

use crate::status::check;
use crate::{Result, ffi};

/// What libtorch does where an operation has no deterministic form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithms {
    /// Takes the fastest algorithm, deterministic or not.
    #[default]
    Fastest,
    /// Takes a deterministic algorithm where there is one, and warns where there is none.
    WarnOnly,
    /// Takes a deterministic algorithm where there is one; an operation without one fails.
    Deterministic,
}

/// The switches of the process that decide between speed and repeatable bits.
///
/// # Source
/// `torch.use_deterministic_algorithms`, `torch.utils.deterministic.fill_uninitialized_memory`,
/// `torch.backends.cudnn.{deterministic, benchmark}` and `torch.backends.mkldnn.deterministic`,
/// which are one value here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Determinism {
    /// What happens where an operation has no deterministic form.
    pub algorithms: Algorithms,
    /// Whether new memory that an operation leaves without values is filled with NaN, or the
    /// largest integer, while `algorithms` are deterministic; on at start.
    pub fill_uninitialized_memory: bool,
    /// Whether convolutions of cuDNN are deterministic even where other algorithms need not be.
    pub cudnn_deterministic: bool,
    /// Whether cuDNN tries its algorithms and takes the fastest, which may be another one in
    /// the next run.
    pub cudnn_benchmark: bool,
    /// Whether matrix products and convolutions of oneDNN are deterministic.
    pub onednn_deterministic: bool,
}

impl Determinism {
    /// How the process is set.
    ///
    /// # Errors
    /// None that is known.
    pub fn current() -> Result<Self> {
        let mut now = ffi::DeterminismState::default();
        // SAFETY: the struct is alive for the call.
        unsafe { check("determinism", ffi::acc_determinism(&mut now))? };
        Ok(Self {
            algorithms: match now.algorithms {
                0 => Algorithms::Fastest,
                1 => Algorithms::WarnOnly,
                _ => Algorithms::Deterministic,
            },
            fill_uninitialized_memory: now.fill_uninitialized,
            cudnn_deterministic: now.cudnn_deterministic,
            cudnn_benchmark: now.cudnn_benchmark,
            onednn_deterministic: now.onednn_deterministic,
        })
    }

    /// Sets the process so; gives back how it was.
    ///
    /// # Errors
    /// None that is known.
    pub fn apply(self) -> Result<Self> {
        let before = Self::current()?;
        let wanted = ffi::DeterminismState {
            algorithms: match self.algorithms {
                Algorithms::Fastest => 0,
                Algorithms::WarnOnly => 1,
                Algorithms::Deterministic => 2,
            },
            fill_uninitialized: self.fill_uninitialized_memory,
            cudnn_deterministic: self.cudnn_deterministic,
            cudnn_benchmark: self.cudnn_benchmark,
            onednn_deterministic: self.onednn_deterministic,
        };
        // SAFETY: the struct is alive for the call.
        unsafe { check("determinism", ffi::acc_set_determinism(&wanted))? };
        Ok(before)
    }

    /// The same with other `algorithms`.
    #[must_use]
    pub fn with_algorithms(self, algorithms: Algorithms) -> Self {
        Self { algorithms, ..self }
    }
}
