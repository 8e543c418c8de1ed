//! Short texts that stand for values: equal for equal bits, and for no others.

use accelerate_formats::step_records::Digests;
use accelerate_torch::Generator;
use tch::{Device, Tensor};

use crate::Result;
use crate::checkpoint::with_plain_bytes;
use crate::random::cuda_devices;

/// How much of a hash is kept: two different values of some thousands get one text with a
/// probability of about 10^-12.
const DIGITS: usize = 16;

/// Kind, shape and bits of a tensor.
pub(super) fn tensor(tensor: &Tensor) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    add(&mut hasher, tensor)?;
    Ok(text(&hasher))
}

/// Each row of some tensors with as many rows; or all of them together, where they differ in that.
pub(super) fn rows(tensors: &[Tensor]) -> Result<Vec<String>> {
    let first = tensors
        .first()
        .and_then(|tensor| tensor.size().first().copied());
    let alike = |rows: i64| {
        let mut all = tensors.iter();
        all.all(|tensor| tensor.size().first() == Some(&rows))
    };
    let Some(rows) = first.filter(|&rows| alike(rows)) else {
        let mut hasher = blake3::Hasher::new();
        for tensor in tensors {
            add(&mut hasher, tensor)?;
        }
        return Ok(vec![text(&hasher)]);
    };
    let row = |row| {
        let mut hasher = blake3::Hasher::new();
        for tensor in tensors {
            add(&mut hasher, &tensor.f_select(0, row)?)?;
        }
        Ok(text(&hasher))
    };
    (0..rows).map(row).collect()
}

/// The random generators of the CPU and of every GPU.
pub(super) fn generators() -> Result<Digests> {
    let state = |device: Device| {
        let name = match device {
            Device::Cuda(index) => format!("cuda:{index}"),
            _ => "cpu".to_owned(),
        };
        Ok((name, tensor(&Generator::default_of(device)?.state()?)?))
    };
    let gpus = cuda_devices().into_iter();
    [Device::Cpu].into_iter().chain(gpus).map(state).collect()
}

fn add(hasher: &mut blake3::Hasher, tensor: &Tensor) -> Result<()> {
    hasher.update(format!("{:?} {:?} ", tensor.f_kind()?, tensor.size()).as_bytes());
    with_plain_bytes(tensor, |bytes| {
        hasher.update(bytes);
    })
}

fn text(hasher: &blake3::Hasher) -> String {
    let mut text = hasher.finalize().to_hex().to_string();
    text.truncate(DIGITS);
    text
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    #[test]
    fn equal_bits_have_one_text() -> Result<()> {
        let ramp = Tensor::f_arange(6, (Kind::Float, Device::Cpu))?.f_reshape([2, 3])?;
        let same = tensor(&ramp)?;
        assert_eq!(same.len(), DIGITS);
        assert_eq!(
            tensor(&ramp.f_transpose(0, 1)?.f_contiguous()?.f_transpose(0, 1)?)?,
            same,
            "whatever the strides"
        );
        for other in [
            ramp.f_reshape([3, 2])?,
            ramp.f_to_kind(Kind::Double)?,
            ramp.f_mul_scalar(-1.0)?
                .f_mul_scalar(-1.0)?
                .f_add_scalar(1e-6)?,
        ] {
            assert_ne!(tensor(&other)?, same);
        }
        for kind in [Kind::Bool, Kind::Half, Kind::BFloat16, Kind::Int64] {
            tensor(&ramp.f_to_kind(kind)?)?;
            tensor(&Tensor::f_zeros([0i64; 0], (kind, Device::Cpu))?)?;
            tensor(&Tensor::f_zeros([0, 2], (kind, Device::Cpu))?)?;
        }
        Ok(())
    }

    #[test]
    fn rows_stand_for_samples() -> Result<()> {
        let (ids, labels) = (
            Tensor::from_slice(&[1i64, 2, 1]),
            Tensor::from_slice(&[5i64, 5, 5]),
        );
        let both = [ids.f_unsqueeze(1)?, labels];
        let found = rows(&both)?;
        assert_eq!(found.len(), 3);
        assert!(found[0] == found[2] && found[0] != found[1]);
        let [ids, labels] = both;
        assert_eq!(rows(&[ids, labels.f_narrow(0, 0, 2)?])?.len(), 1);
        assert_eq!(rows(&[])?.len(), 1);
        Ok(())
    }
}
