//! Where and in which type new tensors are made.

use accelerate_torch::meta;
use tch::{Device, Kind, Tensor};

use super::{Init, init_scope};
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
    without_memory: bool,
}

impl Factory {
    /// Makes parameters of `kind` on `device`.
    pub fn new(device: Device, kind: Kind) -> Self {
        Self {
            device,
            kind,
            init: Init::Layer,
            without_memory: false,
        }
    }

    /// The same factory with parameters on the meta device, which have a shape and a type but no
    /// memory; buffers have values on [`device`](Self::device) as before.
    ///
    /// [`init_empty_weights`](super::init_empty_weights) does this to every factory in its scope.
    #[must_use]
    pub fn on_meta(self) -> Self {
        Self {
            without_memory: true,
            ..self
        }
    }

    /// The same factory with other first values.
    #[must_use]
    pub fn with_init(self, init: Init) -> Self {
        Self { init, ..self }
    }

    /// Where tensors with values are made.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Whether parameters are made without memory.
    pub fn makes_meta(&self) -> bool {
        init_scope::parameters_on_meta().unwrap_or(self.without_memory)
    }

    /// The type of parameters.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Which first values parameters get; none where they have no memory.
    pub fn init(&self) -> Init {
        if self.makes_meta() {
            Init::Skip
        } else {
            self.init
        }
    }

    /// A new tensor whose values are not set.
    ///
    /// # Errors
    /// If the shape is negative, the device is absent, or memory is short.
    pub fn empty(&self, shape: &[i64]) -> Result<Tensor> {
        if self.makes_meta() {
            return Ok(meta::empty(shape, self.kind)?);
        }
        let device = init_scope::parameter_device().unwrap_or(self.device);
        Ok(Tensor::f_empty(shape, (self.kind, device))?)
    }
}

impl Default for Factory {
    fn default() -> Self {
        Self::new(Device::Cpu, Kind::Float)
    }
}
