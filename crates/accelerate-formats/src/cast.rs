//! Numbers of one type as single-precision floats.

use half::{bf16, f16};

use crate::dtype::Dtype;

/// Turns little-endian numbers of `dtype` into 32-bit floats, or answers that this type is not known.
pub(crate) fn to_f32(dtype: Dtype, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    match dtype {
        Dtype::F32 => out.extend_from_slice(bytes),
        Dtype::F16 => each(bytes, out, |n| f16::from_le_bytes(n).to_f32()),
        Dtype::Bf16 => each(bytes, out, |n| bf16::from_le_bytes(n).to_f32()),
        Dtype::F64 => each(bytes, out, |n| f64::from_le_bytes(n) as f32),
        Dtype::Bool => each(bytes, out, |[n]| f32::from(u8::from(n != 0))),
        Dtype::U8 => each(bytes, out, |[n]| f32::from(n)),
        Dtype::I8 => each(bytes, out, |n| f32::from(i8::from_le_bytes(n))),
        Dtype::I16 => each(bytes, out, |n| f32::from(i16::from_le_bytes(n))),
        Dtype::U16 => each(bytes, out, |n| f32::from(u16::from_le_bytes(n))),
        Dtype::I32 => each(bytes, out, |n| i32::from_le_bytes(n) as f32),
        Dtype::U32 => each(bytes, out, |n| u32::from_le_bytes(n) as f32),
        Dtype::I64 => each(bytes, out, |n| i64::from_le_bytes(n) as f32),
        Dtype::U64 => each(bytes, out, |n| u64::from_le_bytes(n) as f32),
        _ => return None,
    }
    Some(())
}

fn each<const N: usize>(bytes: &[u8], out: &mut Vec<u8>, number: impl Fn([u8; N]) -> f32) {
    let (numbers, _) = bytes.as_chunks::<N>();
    out.extend(numbers.iter().flat_map(|&n| number(n).to_le_bytes()));
}
