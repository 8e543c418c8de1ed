//! Parcels between ranks: everything but the content of tensors as bytes. The tensors travel by
//! themselves after it.

use tch::{Device, Kind, Tensor};

use super::{KINDS, Parcel, Part, Plain};
use crate::{Error, Result};

/// Writes numbers and texts one after another, little-endian.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter {
    bytes: Vec<u8>,
}

impl MessageWriter {
    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn number(&mut self, value: u64) {
        self.bytes.extend(value.to_le_bytes());
    }

    pub(crate) fn size(&mut self, value: usize) {
        self.number(value as u64);
    }

    pub(crate) fn block(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.bytes.extend(bytes);
    }

    /// Everything of a parcel but the content of its tensors.
    pub(crate) fn outline(&mut self, parcel: &Parcel) -> Result<()> {
        self.size(parcel.len());
        for part in parcel.parts() {
            match part {
                Part::Tensor(tensor) => {
                    self.byte(0);
                    self.byte(kind_number(tensor.f_kind()?)?);
                    let shape = tensor.size();
                    self.size(shape.len());
                    for length in shape {
                        self.number(length.cast_unsigned());
                    }
                }
                Part::Rows(rows) => {
                    self.byte(1);
                    self.size(rows.len());
                    rows.iter().for_each(|value| self.plain(value));
                }
                Part::Plain(value) => {
                    self.byte(2);
                    self.plain(value);
                }
                Part::Count(count) => {
                    self.byte(3);
                    self.size(*count);
                }
            }
        }
        Ok(())
    }

    fn plain(&mut self, value: &Plain) {
        match value {
            Plain::Bool(value) => {
                self.byte(0);
                self.byte(u8::from(*value));
            }
            Plain::Signed(value) => {
                self.byte(1);
                self.number(value.cast_unsigned());
            }
            Plain::Unsigned(value) => {
                self.byte(2);
                self.number(*value);
            }
            Plain::Float(value) => {
                self.byte(3);
                self.number(value.to_bits());
            }
            Plain::Text(value) => {
                self.byte(4);
                self.block(value.as_bytes());
            }
        }
    }
}

/// Reads what a [`MessageWriter`] wrote.
#[derive(Debug)]
pub(crate) struct MessageReader<'a> {
    bytes: &'a [u8],
}

impl<'a> MessageReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or_else(|| {
            damaged(
                &format!("{count} more bytes"),
                format!("{}", self.bytes.len()),
            )
        })?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?.iter().copied().next().unwrap_or_default())
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let bytes = self.take(8)?.try_into().map_err(Error::data)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn size(&mut self) -> Result<usize> {
        self.number()?.try_into().map_err(Error::data)
    }

    pub(crate) fn block(&mut self) -> Result<&'a [u8]> {
        let length = self.size()?;
        self.take(length)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.block()?.to_vec()).map_err(Error::data)
    }

    /// The parcel, with room on `device` for its tensors.
    pub(crate) fn outline(&mut self, device: Device) -> Result<Parcel> {
        let mut parcel = Parcel::default();
        for _ in 0..self.size()? {
            let part = match self.byte()? {
                0 => Part::Tensor(self.room(device)?),
                1 => {
                    let count = self.size()?;
                    Part::Rows((0..count).map(|_| self.plain()).collect::<Result<_>>()?)
                }
                2 => Part::Plain(self.plain()?),
                3 => Part::Count(self.size()?),
                other => return Err(damaged("a part", format!("byte {other}"))),
            };
            parcel.push(part);
        }
        Ok(parcel)
    }

    fn room(&mut self, device: Device) -> Result<Tensor> {
        let number = self.byte()?;
        let kind = *KINDS
            .get(usize::from(number))
            .ok_or_else(|| damaged("a kind of tensor", format!("byte {number}")))?;
        let dims = self.size()?;
        let shape = (0..dims)
            .map(|_| Ok(self.number()?.cast_signed()))
            .collect::<Result<Vec<_>>>()?;
        Ok(Tensor::f_empty(&shape, (kind, device))?)
    }

    fn plain(&mut self) -> Result<Plain> {
        Ok(match self.byte()? {
            0 => Plain::Bool(self.byte()? != 0),
            1 => Plain::Signed(self.number()?.cast_signed()),
            2 => Plain::Unsigned(self.number()?),
            3 => Plain::Float(f64::from_bits(self.number()?)),
            4 => Plain::Text(self.text()?),
            other => return Err(damaged("a plain value", format!("byte {other}"))),
        })
    }
}

/// A contiguous tensor as its bytes, which every backend carries: a view.
pub(crate) fn as_bytes(tensor: &Tensor) -> Result<Tensor> {
    let flat = tensor.f_view([-1])?;
    Ok(if tensor.f_kind()? == Kind::Uint8 {
        flat
    } else {
        flat.f_view_dtype(Kind::Uint8)?
    })
}

fn kind_number(kind: Kind) -> Result<u8> {
    (0u8..)
        .zip(KINDS)
        .find_map(|(number, known)| (known == kind).then_some(number))
        .ok_or_else(|| Error::Argument {
            operation: "message between ranks",
            expected: "tensors of plain numbers".to_owned(),
            found: format!("{kind:?}"),
        })
}

fn damaged(expected: &str, found: String) -> Error {
    Error::Argument {
        operation: "message between ranks",
        expected: format!("{expected} in what another rank sends; run one version on every rank"),
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    type Batch = (Tensor, Vec<String>, Option<(f64, bool)>, i64, u64, Tensor);

    #[test]
    fn an_outline_is_read_as_it_was_written() -> Result<()> {
        let batch: Batch = (
            Tensor::f_zeros([2, 3], (Kind::BFloat16, Device::Cpu))?,
            vec!["ä".into(), String::new()],
            Some((0.1, true)),
            -1,
            u64::MAX,
            Tensor::from(true),
        );
        let mut parcel = Parcel::default();
        batch.pack(&mut parcel)?;
        let mut writer = MessageWriter::default();
        writer.outline(&parcel)?;
        let bytes = writer.finish();
        let mut reader = MessageReader::new(&bytes);
        let again = Batch::unpack(&mut reader.outline(Device::Cpu)?)?;
        assert!(reader.bytes.is_empty());
        assert_eq!(
            (again.0.size(), again.0.kind()),
            (vec![2, 3], Kind::BFloat16)
        );
        assert_eq!(
            (again.1, again.2, again.3, again.4),
            (batch.1, batch.2, -1, u64::MAX)
        );
        assert_eq!((again.5.size(), again.5.kind()), (vec![], Kind::Bool));
        for end in 0..bytes.len() {
            assert!(
                MessageReader::new(&bytes[..end])
                    .outline(Device::Cpu)
                    .is_err(),
                "{end}"
            );
        }
        Ok(())
    }
}
