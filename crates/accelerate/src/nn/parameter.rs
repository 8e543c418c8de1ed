//! Tensors that are trained.

use std::fmt;

use accelerate_torch::{autograd, storage};
use tch::{Device, Kind, Tensor};

use crate::Result;

/// A tensor that a module trains.
///
/// A parameter is a handle: a clone shares the values, the gradient and the
/// [identity](Self::identity), and that is how weights are tied. How the values are kept is the
/// parameter's own matter, so layers use the operations here ([`linear`](Self::linear),
/// [`embedding`](Self::embedding)) or ask for the [dense](Self::dense) value; a parameter can
/// then be quantised or cut over ranks under an unchanged layer.
pub struct Parameter {
    form: Form,
}

/// How the values are kept.
enum Form {
    /// All values, in one tensor of the parameter's shape.
    Dense(Tensor),
}

impl Parameter {
    /// A parameter with these values; floating-point values are trained, others are not.
    ///
    /// The tensor is used as it is, not copied. It must not be the result of an operation that
    /// records gradients.
    ///
    /// # Errors
    /// If the tensor has a history in the gradient graph.
    pub fn new(tensor: Tensor) -> Result<Self> {
        let trained = is_floating(tensor.f_kind()?);
        let parameter = Self::from_tensor(tensor);
        parameter.set_requires_grad(trained)?;
        Ok(parameter)
    }

    /// A parameter on this tensor, which keeps its gradient settings.
    pub fn from_tensor(tensor: Tensor) -> Self {
        Self {
            form: Form::Dense(tensor),
        }
    }

    /// The tensor that is trained, saved, sharded and moved.
    ///
    /// For computing use [`linear`](Self::linear), [`embedding`](Self::embedding) or
    /// [`dense`](Self::dense), which also work where this tensor holds quantised values.
    pub fn tensor(&self) -> &Tensor {
        match &self.form {
            Form::Dense(tensor) => tensor,
        }
    }

    /// The value as one tensor of the parameter's shape. Without a copy where it is kept so.
    ///
    /// # Errors
    /// If the value has to be computed and that fails.
    pub fn dense(&self) -> Result<Tensor> {
        match &self.form {
            Form::Dense(tensor) => Ok(tensor.shallow_clone()),
        }
    }

    /// `x · weightᵀ + bias`, with this parameter as weight.
    ///
    /// # Shapes
    /// - this parameter: `[out, in]`, `bias`: `[out]`
    /// - `input`: `[.., in]`, output: `[.., out]`
    ///
    /// # Errors
    /// If the shapes, types or devices do not fit.
    pub fn linear(&self, input: &Tensor, bias: Option<&Self>) -> Result<Tensor> {
        let bias = bias.map(Self::dense).transpose()?;
        match &self.form {
            Form::Dense(weight) => Ok(input.f_linear(weight, bias.as_ref())?),
        }
    }

    /// The rows of this parameter that `ids` name.
    ///
    /// The row `padding_idx` gets no gradient.
    ///
    /// # Shapes
    /// - this parameter: `[rows, width]`
    /// - `ids`: `[..]` of int64 or int32, output: `[.., width]`
    ///
    /// # Errors
    /// If an id is out of range, or types or devices do not fit.
    pub fn embedding(&self, ids: &Tensor, padding_idx: Option<i64>) -> Result<Tensor> {
        // libtorch takes -1 for "no padding row".
        let padding_idx = padding_idx.unwrap_or(-1);
        match &self.form {
            Form::Dense(weight) => Ok(Tensor::f_embedding(weight, ids, padding_idx, false, false)?),
        }
    }

    /// The shape of the value, whatever the form it is kept in.
    pub fn shape(&self) -> Vec<i64> {
        self.tensor().size()
    }

    /// The number of values.
    pub fn numel(&self) -> usize {
        self.tensor().numel()
    }

    /// The same number for two parameters exactly where they are tied.
    pub fn identity(&self) -> usize {
        storage::identity(self.tensor())
    }

    /// Whether the parameter is trained.
    pub fn requires_grad(&self) -> bool {
        self.tensor().requires_grad()
    }

    /// Trains the parameter from now on, or freezes it.
    ///
    /// # Errors
    /// If it is to be trained and its values are no floating-point numbers.
    pub fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        let _same = self.tensor().f_set_requires_grad(requires_grad)?;
        Ok(())
    }

    /// Moves the values and the gradient; every handle sees the move.
    ///
    /// # Errors
    /// If the device is absent or out of memory.
    pub fn to_device(&self, device: Device) -> Result<()> {
        let tensor = self.tensor();
        if tensor.device() == device {
            return Ok(());
        }
        let gradient = autograd::grad(tensor)?
            .map(|gradient| gradient.f_to_device(device))
            .transpose()?;
        // A gradient has to be where its parameter is, so it leaves before the parameter moves.
        autograd::set_grad(tensor, None)?;
        move_in_place(tensor, device)?;
        Ok(autograd::set_grad(tensor, gradient.as_ref())?)
    }
}

impl Clone for Parameter {
    fn clone(&self) -> Self {
        match &self.form {
            Form::Dense(tensor) => Self::from_tensor(tensor.shallow_clone()),
        }
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Parameter");
        shown
            .field("shape", &self.shape())
            .field("kind", &self.tensor().f_kind());
        shown.field("requires_grad", &self.requires_grad()).finish()
    }
}

/// Puts a tensor's values onto a device; every handle sees them there.
pub(super) fn move_in_place(tensor: &Tensor, device: Device) -> Result<()> {
    let moved = tch::no_grad(|| tensor.f_to_device(device))?;
    Ok(storage::alias(tensor, &moved)?)
}

/// Whether values of this kind can have gradients.
fn is_floating(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Half
            | Kind::Float
            | Kind::Double
            | Kind::BFloat16
            | Kind::ComplexHalf
            | Kind::ComplexFloat
            | Kind::ComplexDouble
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_tied() -> Result<()> {
        let parameter = Parameter::new(Tensor::from_slice(&[1.0f32, 2.0]))?;
        let tied = parameter.clone();
        assert_eq!(parameter.identity(), tied.identity());
        let _same = tch::no_grad(|| tied.tensor().shallow_clone().f_fill_(7.0))?;
        assert_eq!(parameter.dense()?.double_value(&[0]), 7.0);
        tied.set_requires_grad(false)?;
        assert!(!parameter.requires_grad());
        Ok(())
    }

    #[test]
    fn only_floating_values_are_trained() -> Result<()> {
        assert!(Parameter::new(Tensor::from(1.0f32))?.requires_grad());
        let count = Parameter::new(Tensor::from(1i64))?;
        assert!(!count.requires_grad());
        assert!(count.set_requires_grad(true).is_err());
        Ok(())
    }
}
