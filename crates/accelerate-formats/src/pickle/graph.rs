//! What a pickle describes: values, and calls that were not made.

use crate::error::PickleFault;

/// The number of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Id(pub(super) u32);

/// One object. Text and bytes stay where they are in the pickle.
#[derive(Debug)]
pub(crate) enum Node<'p> {
    None,
    Bool(bool),
    Int(i64),
    BigInt(Box<i128>),
    Float(f64),
    Str(&'p str),
    Bytes(&'p [u8]),
    List(Vec<Id>),
    Tuple(Box<[Id]>),
    Set(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A module and a name in it.
    Global(Box<(&'p str, &'p str)>),
    /// A call or the making of an object, with what was done to the result.
    Call(Box<Call>),
    /// Something that lies outside the pickle, by its id.
    Persistent(Id),
}

/// Something that Python would call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) callable: Id,
    pub(crate) arguments: Id,
    /// Keys that were set on the result.
    pub(crate) entries: Vec<(Id, Id)>,
    /// Items that were appended to the result.
    pub(crate) items: Vec<Id>,
    /// The state that was given to the result.
    pub(crate) state: Option<Id>,
}

/// All objects of a pickle, and the one that is its value.
#[derive(Debug)]
pub(crate) struct Graph<'p> {
    pub(super) nodes: Vec<Node<'p>>,
    pub(super) root: Id,
    /// The length of the pickle.
    pub(super) bytes: usize,
}

impl<'p> Graph<'p> {
    pub(crate) fn root(&self) -> Id {
        self.root
    }

    /// The length of the pickle.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn node(&self, id: Id) -> &Node<'p> {
        // Every id was given out for a node.
        self.nodes.get(id.0 as usize).unwrap_or(&Node::None)
    }

    pub(crate) fn nodes(&self) -> impl ExactSizeIterator<Item = &Node<'p>> {
        self.nodes.iter()
    }

    /// Module and name of a global.
    pub(crate) fn global(&self, id: Id) -> Option<(&'p str, &'p str)> {
        match self.node(id) {
            Node::Global(global) => Some(**global),
            _ => None,
        }
    }

    pub(crate) fn text(&self, id: Id) -> Option<&'p str> {
        match self.node(id) {
            Node::Str(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn int(&self, id: Id) -> Option<i128> {
        match self.node(id) {
            Node::Int(value) => Some(i128::from(*value)),
            Node::BigInt(value) => Some(**value),
            _ => None,
        }
    }

    pub(crate) fn usize(&self, id: Id) -> Option<usize> {
        self.int(id).and_then(|value| usize::try_from(value).ok())
    }

    pub(crate) fn bool(&self, id: Id) -> Option<bool> {
        match self.node(id) {
            Node::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn tuple(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The items of a list or tuple.
    pub(crate) fn items(&self, id: Id) -> Option<&[Id]> {
        match self.node(id) {
            Node::Tuple(items) => Some(items),
            Node::List(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn dict(&self, id: Id) -> Option<&[(Id, Id)]> {
        match self.node(id) {
            Node::Dict(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn call(&self, id: Id) -> Option<&Call> {
        match self.node(id) {
            Node::Call(call) => Some(call),
            _ => None,
        }
    }

    /// A call of this global, if the node is one.
    pub(crate) fn call_of(&self, id: Id, module: &str, name: &str) -> Option<&Call> {
        let call = self.call(id)?;
        (self.global(call.callable)? == (module, name)).then_some(call)
    }

    /// What stands under `key` among the entries of a dict.
    pub(crate) fn field(&self, entries: &[(Id, Id)], key: &str) -> Option<Id> {
        let mut entries = entries.iter().rev();
        entries
            .find(|(name, _)| self.text(*name) == Some(key))
            .map(|(_, value)| *value)
    }

    /// What a node is, in a word, for a message.
    pub(crate) fn kind(&self, id: Id) -> &'static str {
        match self.node(id) {
            Node::None => "None",
            Node::Bool(_) => "a bool",
            Node::Int(_) | Node::BigInt(_) => "an int",
            Node::Float(_) => "a float",
            Node::Str(_) => "a str",
            Node::Bytes(_) => "bytes",
            Node::List(_) => "a list",
            Node::Tuple(_) => "a tuple",
            Node::Set(_) => "a set",
            Node::Dict(_) => "a dict",
            Node::Global(_) => "a class or function",
            Node::Call(_) => "an object",
            Node::Persistent(_) => "a storage",
        }
    }

    pub(crate) fn unexpected(&self, expected: &'static str, id: Id) -> PickleFault {
        PickleFault::Unexpected {
            expected,
            found: self.kind(id),
        }
    }
}
