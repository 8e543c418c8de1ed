//! Protocol buffer messages, field by field, as TensorBoard and Weights & Biases read them.

/// A message that is being put together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

/// How the bytes of a field are to be read.
#[derive(Clone, Copy)]
enum Wire {
    Varint = 0,
    Eight = 1,
    Length = 2,
    Four = 5,
}

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The finished message.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A field of type `int32`, `int64`, `bool` or an enumeration.
    pub(crate) fn int(mut self, field: u32, value: i64) -> Self {
        self.key(field, Wire::Varint);
        // Negative numbers take ten bytes, as their 64 bits.
        self.varint(u64::from_le_bytes(value.to_le_bytes()));
        self
    }

    /// A field of type `double`.
    pub(crate) fn double(mut self, field: u32, value: f64) -> Self {
        self.key(field, Wire::Eight);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A field of type `float`.
    pub(crate) fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, Wire::Four);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A field of type `bytes`.
    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, Wire::Length);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    /// A field of type `string`.
    pub(crate) fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    /// A field that is a message.
    pub(crate) fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.bytes)
    }

    /// A repeated field of type `double`, packed.
    pub(crate) fn doubles(self, field: u32, values: &[f64]) -> Self {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.bytes(field, &bytes)
    }

    fn key(&mut self, field: u32, wire: Wire) {
        self.varint((u64::from(field) << 3) | wire as u64);
    }

    fn varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.bytes.push(low & 0x7f);
                return;
            }
            self.bytes.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_format_says() {
        let inner = Message::new().text(1, "ab");
        let message = Message::new()
            .int(1, 300)
            .int(2, -1)
            .double(3, 1.0)
            .float(4, 0.5)
            .message(16, &inner)
            .doubles(5, &[1.0]);
        let expected = [
            &[0x08, 0xac, 0x02][..],
            &[
                0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
            ],
            &[0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
            &[0x25, 0, 0, 0, 0x3f],
            &[0x82, 0x01, 4, 0x0a, 2, b'a', b'b'],
            &[0x2a, 8, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ]
        .concat();
        assert_eq!(message.into_bytes(), expected);
    }
}
