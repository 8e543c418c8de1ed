//! Where and in which type new tensors are made.

use tch::{Device, Kind, Tensor};

use super::Init;
use crate::Result;

/// How the parameters of a new module are made: device, type and first values.
///
/// The default is what PyTorch does: float32 on the CPU, each layer with its own initialisation.
///
/// # Source
/// The `device` and `dtype` arguments of PyTorch's layers, and `torch.nn.utils.skip_init`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factory {
    device: Device,
    kind: Kind,
    init: Init,
}

impl Factory {
    /// Makes parameters of `kind` on `device`.
    pub fn new(device: Device, kind: Kind) -> Self {
        Self {
            device,
            kind,
            init: Init::Layer,
        }
    }

    /// The same factory with other first values.
    #[must_use]
    pub fn with_init(self, init: Init) -> Self {
        Self { init, ..self }
    }

    /// Where tensors are made.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The type of parameters.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Which first values parameters get.
    pub fn init(&self) -> Init {
        self.init
    }

    /// A new tensor whose values are not set.
    ///
    /// # Errors
    /// If the shape is negative, the device is absent, or memory is short.
    pub fn empty(&self, shape: &[i64]) -> Result<Tensor> {
        Ok(Tensor::f_empty(shape, (self.kind, self.device))?)
    }
}

impl Default for Factory {
    fn default() -> Self {
        Self::new(Device::Cpu, Kind::Float)
    }
}
