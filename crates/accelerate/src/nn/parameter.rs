//! Tensors that are trained.

use std::fmt;

use accelerate_torch::{autograd, meta, storage};
use tch::{Device, Kind, Tensor};

use super::init_scope;
use crate::{Error, Result};

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
    ///
    /// Within an [`InitScope`](super::InitScope) the parameter is where the scope says instead.
    pub fn from_tensor(tensor: Tensor) -> Self {
        Self::on(init_scope::parameter(tensor))
    }

    /// A parameter on exactly this tensor.
    fn on(tensor: Tensor) -> Self {
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
    /// [`Error::OnMeta`] if there are no values, outside of [`shapes_only`](super::shapes_only).
    /// If the value has to be computed and that fails.
    pub fn dense(&self) -> Result<Tensor> {
        if !init_scope::computes_shapes() {
            self.require_values("Parameter::dense")?;
        }
        self.whole()
    }

    /// The value as one tensor, which may be on the meta device.
    fn whole(&self) -> Result<Tensor> {
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
    /// [`Error::OnMeta`] if this parameter has no values and the input has. If the shapes, types
    /// or devices do not fit.
    pub fn linear(&self, input: &Tensor, bias: Option<&Self>) -> Result<Tensor> {
        self.require_values_for(input, "Parameter::linear")?;
        let bias = bias.map(Self::whole).transpose()?;
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
    /// [`Error::OnMeta`] if this parameter has no values and the ids have. If an id is out of
    /// range, or types or devices do not fit.
    pub fn embedding(&self, ids: &Tensor, padding_idx: Option<i64>) -> Result<Tensor> {
        self.require_values_for(ids, "Parameter::embedding")?;
        // libtorch takes -1 for "no padding row".
        let padding_idx = padding_idx.unwrap_or(-1);
        if meta::is_meta(ids)? {
            let mut shape = ids.size();
            shape.extend(self.shape().last());
            return Ok(meta::empty(&shape, self.tensor().f_kind()?)?);
        }
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

    /// Whether the parameter has a shape and a type but no values.
    ///
    /// # Errors
    /// None that is known.
    pub fn is_meta(&self) -> Result<bool> {
        Ok(meta::is_meta(self.tensor())?)
    }

    /// Takes the gradient away, which frees its memory.
    ///
    /// # Errors
    /// None that is known.
    pub fn zero_grad(&self) -> Result<()> {
        Ok(autograd::set_grad(self.tensor(), None)?)
    }

    /// Moves the values and the gradient; every handle sees the move.
    ///
    /// # Errors
    /// [`Error::OnMeta`] if there are no values. If the device is absent or out of memory.
    pub fn to_device(&self, device: Device) -> Result<()> {
        self.require_values("Parameter::to_device")?;
        if self.tensor().device() == device {
            return Ok(());
        }
        self.convert(|tensor| tensor.f_to_device(device))
    }

    /// Converts the values and the gradient to another type; every handle sees the change.
    ///
    /// # Errors
    /// If memory is short, or values that are trained are to become integers.
    pub fn to_kind(&self, kind: Kind) -> Result<()> {
        if self.tensor().f_kind()? == kind {
            return Ok(());
        }
        if self.requires_grad() && !is_floating(kind) {
            return Err(Error::Argument {
                operation: "Parameter::to_kind",
                expected: "a floating-point type for a parameter that is trained".to_owned(),
                found: format!("`{kind:?}`"),
            });
        }
        self.convert(|tensor| tensor.f_to_kind(kind))
    }

    /// A parameter with memory of undefined content in the place of this one.
    pub(super) fn materialized(&self, device: Device) -> Result<Self> {
        let new = Self::on(empty_like(self.tensor(), device)?);
        new.set_requires_grad(self.requires_grad())?;
        Ok(new)
    }

    fn convert(&self, convert: impl Fn(&Tensor) -> Result<Tensor, tch::TchError>) -> Result<()> {
        let tensor = self.tensor();
        let gradient = autograd::grad(tensor)?;
        // Both before either changes: where memory is short, all stays as it was.
        let (values, gradient) = tch::no_grad(|| -> Result<_> {
            let gradient = gradient.as_ref().map(&convert).transpose()?;
            Ok((convert(tensor)?, gradient))
        })?;
        // A gradient has to be like its parameter, so it leaves before the parameter changes.
        autograd::set_grad(tensor, None)?;
        storage::alias(tensor, &values)?;
        Ok(autograd::set_grad(tensor, gradient.as_ref())?)
    }

    /// An error where an operation would compute with values that are not there.
    fn require_values(&self, operation: &'static str) -> Result<()> {
        if self.is_meta()? {
            return Err(self.without_values(operation));
        }
        Ok(())
    }

    /// As [`require_values`](Self::require_values), unless the input has none either: then the
    /// operation computes shapes.
    fn require_values_for(&self, input: &Tensor, operation: &'static str) -> Result<()> {
        if self.is_meta()? && !meta::is_meta(input)? {
            return Err(self.without_values(operation));
        }
        Ok(())
    }

    fn without_values(&self, operation: &'static str) -> Error {
        Error::OnMeta {
            operation,
            tensors: vec![format!("a parameter of shape {:?}", self.shape())],
        }
    }
}

impl Clone for Parameter {
    fn clone(&self) -> Self {
        match &self.form {
            Form::Dense(tensor) => Self::on(tensor.shallow_clone()),
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

/// A tensor of the same shape and type with memory of undefined content.
pub(super) fn empty_like(tensor: &Tensor, device: Device) -> Result<Tensor> {
    Ok(Tensor::f_empty(tensor.size(), (tensor.f_kind()?, device))?)
}

/// Whether values of this kind are real numbers with a fraction.
pub(super) fn is_real(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Half
            | Kind::Float
            | Kind::Double
            | Kind::BFloat16
            | Kind::Float8e5m2
            | Kind::Float8e4m3fn
            | Kind::Float8e5m2fnuz
            | Kind::Float8e4m3fnuz
    )
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
