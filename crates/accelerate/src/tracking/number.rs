//! Tensors as values.

use accelerate_tracking::Value;
use tch::{Kind, Tensor};

use crate::Result;

/// A tensor as something that can be logged: one without dimensions is a number, others are lists.
///
/// Most trackers leave lists out. Reading the value waits for the device.
///
/// ```
/// use accelerate::tch::Tensor;
/// use accelerate::tracking::{Value, number};
///
/// assert_eq!(number(&Tensor::from(0.5))?, Value::Float(0.5));
/// assert_eq!(number(&Tensor::from(3_i64))?, Value::Int(3));
/// assert_eq!(number(&Tensor::from_slice(&[1_i64]))?, Value::List(vec![Value::Int(1)]));
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Errors
/// If the tensor cannot be read, such as one without storage.
///
/// # Source
/// What `accelerate.tracking.TensorBoardTracker.log` does, for every tracker.
pub fn number(tensor: &Tensor) -> Result<Value> {
    if !tensor.size().is_empty() {
        let parts = tensor.f_unbind(0)?;
        let parts: Result<Vec<Value>> = parts.iter().map(number).collect();
        return Ok(Value::List(parts?));
    }
    Ok(match tensor.kind() {
        Kind::Bool => Value::Bool(tensor.f_int64_value(&[])? != 0),
        Kind::Uint8 | Kind::Int8 | Kind::Int16 | Kind::Int | Kind::Int64 => {
            Value::Int(tensor.f_int64_value(&[])?)
        }
        _ => Value::Float(tensor.f_double_value(&[])?),
    })
}
