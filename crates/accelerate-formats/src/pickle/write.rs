//! Writing a pickle of protocol 2, which every reader of `torch.load` takes.

use super::opcode;

/// Appends operations to a pickle, value by value.
///
/// Nothing is put aside for a second mention (no memo): values that stand twice are written twice.
#[derive(Debug)]
pub(crate) struct PickleWriter {
    bytes: Vec<u8>,
}

impl PickleWriter {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![opcode::PROTO, 2],
        }
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(opcode::STOP);
        self.bytes
    }

    pub(crate) fn none(&mut self) {
        self.bytes.push(opcode::NONE);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.bytes.push(if value {
            opcode::NEWTRUE
        } else {
            opcode::NEWFALSE
        });
    }

    pub(crate) fn int(&mut self, value: i128) {
        if let Ok(value) = u8::try_from(value) {
            self.bytes.extend([opcode::BININT1, value]);
        } else if let Ok(value) = u16::try_from(value) {
            self.bytes.push(opcode::BININT2);
            self.bytes.extend(value.to_le_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.bytes.push(opcode::BININT);
            self.bytes.extend(value.to_le_bytes());
        } else {
            let wide = value.to_le_bytes();
            let length = wide.len() - redundant(&wide);
            self.bytes.extend([opcode::LONG1, length as u8]);
            self.bytes.extend(&wide[..length]);
        }
    }

    pub(crate) fn usize(&mut self, value: usize) {
        self.int(value as i128);
    }

    pub(crate) fn float(&mut self, value: f64) {
        self.bytes.push(opcode::BINFLOAT);
        self.bytes.extend(value.to_be_bytes());
    }

    pub(crate) fn text(&mut self, value: &str) {
        if let Ok(length) = u32::try_from(value.len()) {
            self.bytes.push(opcode::BINUNICODE);
            self.bytes.extend(length.to_le_bytes());
        } else {
            self.bytes.push(opcode::BINUNICODE8);
            self.bytes.extend((value.len() as u64).to_le_bytes());
        }
        self.bytes.extend(value.as_bytes());
    }

    /// As Python writes bytes in this protocol: text that is to be encoded.
    pub(crate) fn byte_string(&mut self, value: &[u8]) {
        self.global("_codecs", "encode");
        let text: String = value.iter().map(|&byte| char::from(byte)).collect();
        self.text(&text);
        self.text("latin1");
        self.tuple_of(2);
        self.reduce();
    }

    pub(crate) fn global(&mut self, module: &str, name: &str) {
        self.bytes.push(opcode::GLOBAL);
        for part in [module, name] {
            self.bytes.extend(part.as_bytes());
            self.bytes.push(b'\n');
        }
    }

    pub(crate) fn mark(&mut self) {
        self.bytes.push(opcode::MARK);
    }

    /// A tuple of everything since the mark.
    pub(crate) fn tuple(&mut self) {
        self.bytes.push(opcode::TUPLE);
    }

    /// A tuple of the last 0 to 3 values.
    pub(crate) fn tuple_of(&mut self, items: u8) {
        self.bytes.push(match items {
            0 => opcode::EMPTY_TUPLE,
            1 => opcode::TUPLE1,
            2 => opcode::TUPLE2,
            _ => opcode::TUPLE3,
        });
    }

    pub(crate) fn sizes(&mut self, values: &[usize]) {
        self.mark();
        values.iter().for_each(|&value| self.usize(value));
        self.tuple();
    }

    pub(crate) fn empty_list(&mut self) {
        self.bytes.push(opcode::EMPTY_LIST);
    }

    /// Appends everything since the mark to the list below it.
    pub(crate) fn appends(&mut self) {
        self.bytes.push(opcode::APPENDS);
    }

    pub(crate) fn empty_dict(&mut self) {
        self.bytes.push(opcode::EMPTY_DICT);
    }

    /// Sets the keys and values since the mark on the dict below it.
    pub(crate) fn set_items(&mut self) {
        self.bytes.push(opcode::SETITEMS);
    }

    pub(crate) fn reduce(&mut self) {
        self.bytes.push(opcode::REDUCE);
    }

    pub(crate) fn new_object(&mut self) {
        self.bytes.push(opcode::NEWOBJ);
    }

    pub(crate) fn build(&mut self) {
        self.bytes.push(opcode::BUILD);
    }

    pub(crate) fn persistent(&mut self) {
        self.bytes.push(opcode::BINPERSID);
    }
}

/// How many of the last bytes only repeat the sign.
fn redundant(wide: &[u8]) -> usize {
    wide.windows(2)
        .rev()
        .take_while(|pair| {
            let sign = if pair[0] >= 0x80 { 0xff } else { 0 };
            pair[1] == sign
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_shortest_form() {
        let written = |value| {
            let mut writer = PickleWriter::new();
            writer.int(value);
            writer.finish()[2..].to_vec()
        };
        assert_eq!(written(255), [b'K', 255, b'.']);
        assert_eq!(written(256), [b'M', 0, 1, b'.']);
        assert_eq!(written(-1), [b'J', 255, 255, 255, 255, b'.']);
        assert_eq!(written(1 << 31), [0x8a, 5, 0, 0, 0, 128, 0, b'.']);
        assert_eq!(
            written(-(1 << 31) - 1),
            [0x8a, 5, 255, 255, 255, 127, 255, b'.']
        );
        for value in [i128::MIN, i128::MAX, 1 << 70, -(1 << 63), u64::MAX.into()] {
            let bytes = written(value);
            let (graph, _) = super::super::read(&bytes, &|_, _| false).unwrap();
            assert_eq!(graph.int(graph.root()), Some(value));
        }
    }
}
