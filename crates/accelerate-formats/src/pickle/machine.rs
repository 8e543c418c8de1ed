//! The stack machine, which builds a graph and calls nothing.

use std::collections::HashMap;

use super::graph::{Call, Graph, Id, Node};
use super::{Allow, MAX_OPERATIONS, MAX_PICKLE_BYTES, opcode};
use crate::error::PickleFault;

type Result<T> = std::result::Result<T, PickleFault>;

/// Reads the pickle at the start of `bytes`, and tells how many bytes it has.
///
/// # Errors
/// [`PickleFault`]: also if the pickle mentions a name that `allow` does not let pass.
pub(crate) fn read<'p>(bytes: &'p [u8], allow: &Allow<'_>) -> Result<(Graph<'p>, usize)> {
    // Longer input may follow, as in PyTorch's old format.
    let bytes = bytes.get(..MAX_PICKLE_BYTES).unwrap_or(bytes);
    let mut machine = Machine {
        bytes,
        at: 0,
        begin: 0,
        allow,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    let root = machine.run()?;
    let read = machine.at;
    Ok((
        Graph {
            nodes: machine.nodes,
            root,
            bytes: read,
        },
        read,
    ))
}

struct Machine<'p, 'a> {
    bytes: &'p [u8],
    /// The next byte.
    at: usize,
    /// Where the current operation begins.
    begin: usize,
    allow: &'a Allow<'a>,
    nodes: Vec<Node<'p>>,
    stack: Vec<Id>,
    /// Lengths of the stack at the open marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
}

impl<'p> Machine<'p, '_> {
    fn run(&mut self) -> Result<Id> {
        for _ in 0..MAX_OPERATIONS {
            self.begin = self.at;
            let operation = self.byte()?;
            if operation == opcode::STOP {
                return self.pop();
            }
            self.step(operation)?;
        }
        Err(PickleFault::TooManyObjects {
            limit: MAX_OPERATIONS,
        })
    }

    /// Makes one operation. Each family answers whether the operation is one of its own.
    fn step(&mut self, operation: u8) -> Result<()> {
        let known = self.number(operation)?
            || self.text(operation)?
            || self.container(operation)?
            || self.object(operation)?
            || self.bookkeeping(operation)?;
        if known {
            return Ok(());
        }
        Err(PickleFault::UnknownOperation {
            opcode: operation,
            at: self.begin,
        })
    }

    fn number(&mut self, operation: u8) -> Result<bool> {
        let node = match operation {
            opcode::NONE => Node::None,
            opcode::NEWTRUE => Node::Bool(true),
            opcode::NEWFALSE => Node::Bool(false),
            opcode::BININT => Node::Int(i64::from(i32::from_le_bytes(self.array()?))),
            opcode::BININT1 => Node::Int(i64::from(self.byte()?)),
            opcode::BININT2 => Node::Int(i64::from(u16::from_le_bytes(self.array()?))),
            opcode::LONG1 => {
                let length = usize::from(self.byte()?);
                self.long(length)?
            }
            opcode::LONG4 => {
                let length = self.length4()?;
                self.long(length)?
            }
            opcode::BINFLOAT => Node::Float(f64::from_be_bytes(self.array()?)),
            _ => return Ok(false),
        };
        self.push(node)?;
        Ok(true)
    }

    /// A whole number in two's complement, little-endian.
    fn long(&mut self, length: usize) -> Result<Node<'p>> {
        let bytes = self.take(length)?;
        if length > size_of::<i128>() {
            return Err(PickleFault::NumberTooLong {
                at: self.begin,
                bytes: length,
            });
        }
        let negative = bytes.last().is_some_and(|&last| last >= 0x80);
        let mut wide = [if negative { 0xff } else { 0 }; size_of::<i128>()];
        wide.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        let value = i128::from_le_bytes(wide);
        Ok(i64::try_from(value).map_or_else(|_| Node::BigInt(Box::new(value)), Node::Int))
    }

    fn text(&mut self, operation: u8) -> Result<bool> {
        let length = match operation {
            opcode::SHORT_BINUNICODE | opcode::SHORT_BINBYTES | opcode::SHORT_BINSTRING => {
                usize::from(self.byte()?)
            }
            opcode::BINUNICODE | opcode::BINBYTES | opcode::BINSTRING => self.length4()?,
            opcode::BINUNICODE8 | opcode::BINBYTES8 | opcode::BYTEARRAY8 => self.length8()?,
            _ => return Ok(false),
        };
        let bytes = self.take(length)?;
        let node = match operation {
            opcode::SHORT_BINBYTES | opcode::BINBYTES | opcode::BINBYTES8 | opcode::BYTEARRAY8 => {
                Node::Bytes(bytes)
            }
            // What Python 2 called a string is either.
            opcode::SHORT_BINSTRING | opcode::BINSTRING => {
                std::str::from_utf8(bytes).map_or(Node::Bytes(bytes), Node::Str)
            }
            _ => Node::Str(self.utf8(bytes)?),
        };
        self.push(node)?;
        Ok(true)
    }

    fn container(&mut self, operation: u8) -> Result<bool> {
        match operation {
            opcode::EMPTY_LIST => self.push(Node::List(Vec::new()))?,
            opcode::EMPTY_DICT => self.push(Node::Dict(Vec::new()))?,
            opcode::EMPTY_SET => self.push(Node::Set(Vec::new()))?,
            opcode::EMPTY_TUPLE => self.push(Node::Tuple([].into()))?,
            opcode::TUPLE1 => self.tuple(1)?,
            opcode::TUPLE2 => self.tuple(2)?,
            opcode::TUPLE3 => self.tuple(3)?,
            opcode::TUPLE => {
                let items = self.pop_to_mark()?;
                self.push(Node::Tuple(items.into()))?;
            }
            opcode::FROZENSET => {
                let items = self.pop_to_mark()?;
                self.push(Node::Set(items))?;
            }
            opcode::APPEND => {
                let item = self.pop()?;
                self.extend(vec![item])?;
            }
            opcode::APPENDS | opcode::ADDITEMS => {
                let items = self.pop_to_mark()?;
                self.extend(items)?;
            }
            opcode::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(&[key, value])?;
            }
            opcode::SETITEMS => {
                let items = self.pop_to_mark()?;
                self.set(&items)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn tuple(&mut self, length: usize) -> Result<()> {
        let begin = self.stack.len().checked_sub(length);
        let begin = begin.filter(|&begin| self.marks.last().is_none_or(|&mark| begin >= mark));
        let begin = begin.ok_or_else(|| self.lacks("as many values as the tuple has items"))?;
        let items = self.stack.split_off(begin);
        self.push(Node::Tuple(items.into()))
    }

    /// Appends to the list, set or object on top of the stack.
    fn extend(&mut self, items: Vec<Id>) -> Result<()> {
        let fault = self.lacks("a list, a set or an object below");
        match self.top_mut()? {
            Node::List(list) | Node::Set(list) => list.extend(items),
            Node::Call(call) => call.items.extend(items),
            _ => return Err(fault),
        }
        Ok(())
    }

    /// Sets keys of the dict or object on top of the stack.
    fn set(&mut self, items: &[Id]) -> Result<()> {
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(self.lacks("a value for each key"));
        }
        let pairs = pairs.iter().map(|&[key, value]| (key, value));
        let fault = self.lacks("a dict or an object below");
        match self.top_mut()? {
            Node::Dict(dict) => dict.extend(pairs),
            Node::Call(call) => call.entries.extend(pairs),
            _ => return Err(fault),
        }
        Ok(())
    }

    fn object(&mut self, operation: u8) -> Result<bool> {
        match operation {
            opcode::GLOBAL => {
                let module = self.line()?;
                let name = self.line()?;
                self.global(module, name)?;
            }
            opcode::STACK_GLOBAL => {
                let (name, module) = (self.pop()?, self.pop()?);
                let texts = (self.text_of(module), self.text_of(name));
                let (Some(module), Some(name)) = texts else {
                    return Err(self.lacks("a module and a name"));
                };
                self.global(module, name)?;
            }
            opcode::REDUCE | opcode::NEWOBJ => {
                let (arguments, callable) = (self.pop()?, self.pop()?);
                self.call(callable, arguments)?;
            }
            opcode::NEWOBJ_EX => {
                let keywords = self.pop()?;
                let (arguments, callable) = (self.pop()?, self.pop()?);
                if !matches!(self.node(keywords), Some(Node::Dict(entries)) if entries.is_empty()) {
                    return Err(self.lacks("no arguments by name"));
                }
                self.call(callable, arguments)?;
            }
            opcode::BUILD => {
                let state = self.pop()?;
                let fault = self.lacks("an object below");
                match self.top_mut()? {
                    Node::Call(call) => call.state = Some(state),
                    _ => return Err(fault),
                }
            }
            opcode::BINPERSID => {
                let id = self.pop()?;
                self.push(Node::Persistent(id))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn global(&mut self, module: &'p str, name: &'p str) -> Result<()> {
        if !(self.allow)(module, name) {
            return Err(PickleFault::Refused {
                name: format!("{module}.{name}"),
            });
        }
        self.push(Node::Global(Box::new((module, name))))
    }

    fn call(&mut self, callable: Id, arguments: Id) -> Result<()> {
        let sound = matches!(self.node(callable), Some(Node::Global(_)))
            && matches!(self.node(arguments), Some(Node::Tuple(_)));
        if !sound {
            return Err(self.lacks("a class or function, and a tuple of arguments"));
        }
        self.push(Node::Call(Box::new(Call {
            callable,
            arguments,
            entries: Vec::new(),
            items: Vec::new(),
            state: None,
        })))
    }

    fn bookkeeping(&mut self, operation: u8) -> Result<bool> {
        match operation {
            // Later protocols have the same operations and more; unknown ones are told as such.
            opcode::PROTO => {
                self.byte()?;
            }
            opcode::FRAME => {
                self.length8()?;
            }
            opcode::MARK => self.marks.push(self.stack.len()),
            opcode::POP => {
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop()?;
                }
            }
            opcode::POP_MARK => {
                self.pop_to_mark()?;
            }
            opcode::DUP => {
                let top = self.top()?;
                self.stack.push(top);
            }
            opcode::BINPUT => {
                let index = u32::from(self.byte()?);
                self.memoize(index)?;
            }
            opcode::LONG_BINPUT => {
                let index = u32::from_le_bytes(self.array()?);
                self.memoize(index)?;
            }
            opcode::MEMOIZE => {
                // At most one entry for each operation, so that it fits.
                let index = self.memo.len() as u32;
                self.memoize(index)?;
            }
            opcode::BINGET => {
                let index = u32::from(self.byte()?);
                self.recall(index)?;
            }
            opcode::LONG_BINGET => {
                let index = u32::from_le_bytes(self.array()?);
                self.recall(index)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn memoize(&mut self, index: u32) -> Result<()> {
        let top = self.top()?;
        self.memo.insert(index, top);
        Ok(())
    }

    fn recall(&mut self, index: u32) -> Result<()> {
        let known = self.memo.get(&index).copied();
        let known = known.ok_or_else(|| self.lacks("an object that was put aside before"))?;
        self.stack.push(known);
        Ok(())
    }

    fn push(&mut self, node: Node<'p>) -> Result<()> {
        // At most one node for each operation, so that the number fits.
        let id = Id(self.nodes.len() as u32);
        self.nodes.push(node);
        self.stack.push(id);
        Ok(())
    }

    fn pop(&mut self) -> Result<Id> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn top(&self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let above = self.stack.get(floor..).unwrap_or_default();
        let top = above.last().copied();
        top.ok_or_else(|| self.lacks("a value on the stack"))
    }

    fn top_mut(&mut self) -> Result<&mut Node<'p>> {
        let top = self.top()?;
        let fault = self.lacks("a value on the stack");
        self.nodes.get_mut(top.0 as usize).ok_or(fault)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop();
        let mark = mark.ok_or_else(|| self.lacks("an open mark"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn node(&self, id: Id) -> Option<&Node<'p>> {
        self.nodes.get(id.0 as usize)
    }

    fn text_of(&self, id: Id) -> Option<&'p str> {
        match self.node(id) {
            Some(Node::Str(text)) => Some(text),
            _ => None,
        }
    }

    fn lacks(&self, expected: &'static str) -> PickleFault {
        PickleFault::Operand {
            at: self.begin,
            expected,
        }
    }

    fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let found = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk);
        let found = *found.ok_or(PickleFault::Truncated { at: self.begin })?;
        self.at += N;
        Ok(found)
    }

    fn length4(&mut self) -> Result<usize> {
        let length = u32::from_le_bytes(self.array()?);
        Ok(length as usize)
    }

    fn length8(&mut self) -> Result<usize> {
        let length = u64::from_le_bytes(self.array()?);
        usize::try_from(length).map_err(|_| PickleFault::Truncated { at: self.begin })
    }

    fn take(&mut self, length: usize) -> Result<&'p [u8]> {
        let end = self.at.checked_add(length);
        let found = end.and_then(|end| self.bytes.get(self.at..end));
        let found = found.ok_or(PickleFault::Truncated { at: self.begin })?;
        self.at += length;
        Ok(found)
    }

    /// Text up to the end of the line.
    fn line(&mut self) -> Result<&'p str> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|&byte| byte == b'\n');
        let length = length.ok_or(PickleFault::Truncated { at: self.begin })?;
        let line = self.take(length)?;
        self.at += 1;
        self.utf8(line)
    }

    fn utf8(&self, bytes: &'p [u8]) -> Result<&'p str> {
        std::str::from_utf8(bytes).map_err(|_| PickleFault::NotUtf8 { at: self.begin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(module: &str, _name: &str) -> bool {
        module != "os"
    }

    fn fault(bytes: &[u8]) -> PickleFault {
        read(bytes, &allow).unwrap_err()
    }

    #[test]
    fn a_node_is_small() {
        assert!(size_of::<Node<'_>>() <= 32);
    }

    #[test]
    fn values_of_both_protocols_are_read() {
        // {"a": [1, -2, 2**70], "b": (None, True, 1.5)}, protocol 2 and, framed, protocol 4.
        let old = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xff\
            \x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@eX\x01\x00\x00\x00bq\x03N\x88G?\xf8\x00\x00\
            \x00\x00\x00\x00\x87q\x04u.rest";
        let new = b"\x80\x04\x95\x2f\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\
            \xff\xff\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@e\x8c\x01b\x94N\x88G?\xf8\x00\x00\x00\x00\
            \x00\x00\x87\x94u.";
        for (bytes, rest) in [(&old[..], 4), (&new[..], 0)] {
            let (graph, read) = read(bytes, &allow).unwrap();
            assert_eq!(read, bytes.len() - rest);
            let entries = graph.dict(graph.root()).unwrap();
            let a = graph.items(graph.field(entries, "a").unwrap()).unwrap();
            let a: Vec<i128> = a.iter().map(|&id| graph.int(id).unwrap()).collect();
            assert_eq!(a, [1, -2, 1 << 70]);
            let b = graph.tuple(graph.field(entries, "b").unwrap()).unwrap();
            assert!(matches!(graph.node(b[0]), Node::None));
            assert_eq!(graph.bool(b[1]), Some(true));
            assert!(matches!(graph.node(b[2]), Node::Float(1.5)));
        }
    }

    #[test]
    fn a_name_that_is_not_allowed_is_refused_even_unused() {
        for bytes in [
            &b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."[..],
            b"\x80\x02cos\nsystem\n0N.",
            b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        ] {
            let fault = fault(bytes);
            assert!(
                matches!(&fault, PickleFault::Refused { name } if name == "os.system"),
                "{fault}"
            );
        }
    }

    #[test]
    fn damage_is_told_by_its_place() {
        assert_eq!(fault(b""), PickleFault::Truncated { at: 0 });
        assert_eq!(
            fault(b"\x80\x02X\xff\xff\xff\xffab"),
            PickleFault::Truncated { at: 2 }
        );
        assert_eq!(
            fault(b"N\xf0"),
            PickleFault::UnknownOperation {
                opcode: 0xf0,
                at: 1
            }
        );
        assert_eq!(
            fault(b"X\x01\x00\x00\x00\xff."),
            PickleFault::NotUtf8 { at: 0 }
        );
        let long = fault(&[&[opcode::LONG1, 17][..], &[1; 17]].concat());
        assert_eq!(long, PickleFault::NumberTooLong { at: 0, bytes: 17 });
        for bytes in [
            &b"."[..],
            b"R",
            b"NNR",
            b"t",
            b"N(\x85",
            b"N(0b",
            b"h\x05",
            b"]N\x86s",
            b"}(Nu",
            b"Na",
            b"NNb",
            b"NN\x93",
            b"(.",
        ] {
            let fault = fault(bytes);
            assert!(
                matches!(fault, PickleFault::Operand { .. }),
                "{bytes:?}: {fault}"
            );
        }
    }
}
