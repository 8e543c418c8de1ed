//! Arrays and numbers of numpy among the values.

use std::sync::Arc;

use super::decode::{Decoder, Result};
use crate::dtype::Dtype;
use crate::pickle::{Call, Id};
use crate::tensor::{Storage, StoredTensor};
use crate::value::Value;

impl Decoder<'_, '_> {
    /// An array of numpy: made empty, then given version, shape, type, order and bytes.
    pub(super) fn array(&mut self, call: &Call, depth: usize) -> Result<Option<Value>> {
        let state = call.state.and_then(|state| self.graph.tuple(state));
        let Some(&[_version, shape, dtype, fortran, data]) = state else {
            return Ok(None);
        };
        let shape = self.sizes(shape)?;
        let (Some((dtype, big_endian)), Some(fortran)) =
            (self.array_dtype(dtype), self.graph.bool(fortran))
        else {
            return Ok(None);
        };
        let Some(mut bytes) = self.raw_bytes(data, depth)? else {
            return Ok(None);
        };
        if big_endian {
            bytes
                .chunks_exact_mut(dtype.component_bytes())
                .for_each(<[u8]>::reverse);
        }
        let storage = Arc::new(Storage::new(bytes));
        let mut strides = Vec::with_capacity(shape.len());
        if fortran {
            let mut step = 1usize;
            for &length in &shape {
                strides.push(step);
                step = step.saturating_mul(length.max(1));
            }
            let array = StoredTensor::strided(dtype, shape, strides, 0, storage)?;
            return Ok(Some(Value::Array(Box::new(array))));
        }
        let array = StoredTensor::contiguous(dtype, shape, storage)?;
        Ok(Some(Value::Array(Box::new(array))))
    }

    /// One number of numpy's becomes one of Python's.
    pub(super) fn scalar(&mut self, arguments: &[Id], depth: usize) -> Result<Option<Value>> {
        let &[dtype, data] = arguments else {
            return Ok(None);
        };
        let Some((dtype, big_endian)) = self.array_dtype(dtype) else {
            return Ok(None);
        };
        let Some(mut bytes) = self.raw_bytes(data, depth)? else {
            return Ok(None);
        };
        if big_endian {
            bytes.reverse();
        }
        Ok(scalar_value(dtype, &bytes))
    }

    fn raw_bytes(&mut self, id: Id, depth: usize) -> Result<Option<Vec<u8>>> {
        Ok(match self.value(id, depth)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// A `numpy.dtype`: its name, and its byte order in the state.
    fn array_dtype(&self, id: Id) -> Option<(Dtype, bool)> {
        let graph = self.graph;
        let call = graph.call_of(id, "numpy", "dtype")?;
        let name = graph.text(*graph.tuple(call.arguments)?.first()?)?;
        let order = call.state.and_then(|state| graph.tuple(state));
        let order = order.and_then(|state| graph.text(*state.get(1)?));
        let dtype = match name {
            "b1" => Dtype::Bool,
            "u1" => Dtype::U8,
            "u2" => Dtype::U16,
            "u4" => Dtype::U32,
            "u8" => Dtype::U64,
            "i1" => Dtype::I8,
            "i2" => Dtype::I16,
            "i4" => Dtype::I32,
            "i8" => Dtype::I64,
            "f2" => Dtype::F16,
            "f4" => Dtype::F32,
            "f8" => Dtype::F64,
            "c8" => Dtype::C64,
            "c16" => Dtype::C128,
            _ => return None,
        };
        Some((dtype, order == Some(">")))
    }
}

fn scalar_value(dtype: Dtype, bytes: &[u8]) -> Option<Value> {
    Some(match dtype {
        Dtype::Bool => Value::Bool(bytes.first()? != &0),
        Dtype::U8 => Value::Int((*bytes.first()?).into()),
        Dtype::I32 => Value::Int(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        Dtype::U32 => Value::Int(u32::from_le_bytes(bytes.try_into().ok()?).into()),
        Dtype::I64 => Value::Int(i64::from_le_bytes(bytes.try_into().ok()?).into()),
        Dtype::U64 => Value::Int(u64::from_le_bytes(bytes.try_into().ok()?).into()),
        Dtype::F32 => Value::Float(f32::from_le_bytes(bytes.try_into().ok()?).into()),
        Dtype::F64 => Value::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
        _ => return None,
    })
}
