use std::any::type_name;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use tch::Tensor;

use crate::{Error, Result};

/// A tree taken apart: its tensors and plain values, in the order of the walk.
///
/// Batches travel between ranks in this form: they are joined, cut and sent without
/// anybody knowing their type.
#[derive(Debug, Default)]
pub struct Parcel {
    pub(super) parts: VecDeque<Part>,
}

/// One part of a [`Parcel`].
#[derive(Debug)]
pub enum Part {
    /// A tensor.
    Tensor(Tensor),
    /// A list of plain values, such as one text for each sample of a batch.
    Rows(Vec<Plain>),
    /// A plain value.
    Plain(Plain),
    /// How many items follow, or which variant.
    Count(usize),
}

/// A value that is no tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Plain {
    /// A flag.
    Bool(bool),
    /// A whole number.
    Signed(i64),
    /// A whole number without sign.
    Unsigned(u64),
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(String),
}

impl Parcel {
    /// Adds a part at the end.
    pub fn push(&mut self, part: Part) {
        self.parts.push_back(part);
    }

    /// The number of parts that were not taken out yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether every part was taken out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Takes the next part, a tensor.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is something else.
    pub fn tensor(&mut self) -> Result<Tensor> {
        match self.parts.pop_front() {
            Some(Part::Tensor(tensor)) => Ok(tensor),
            other => Err(unexpected_next("a tensor", other.as_ref())),
        }
    }

    /// Takes the next part, a list of plain values.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is something else.
    pub fn rows(&mut self) -> Result<Vec<Plain>> {
        match self.parts.pop_front() {
            Some(Part::Rows(rows)) => Ok(rows),
            other => Err(unexpected_next("a list of plain values", other.as_ref())),
        }
    }

    /// Takes the next part, a plain value.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is something else.
    pub fn plain(&mut self) -> Result<Plain> {
        match self.parts.pop_front() {
            Some(Part::Plain(value)) => Ok(value),
            other => Err(unexpected_next("a plain value", other.as_ref())),
        }
    }

    /// Takes the next part, a count.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is something else.
    pub fn count(&mut self) -> Result<usize> {
        match self.parts.pop_front() {
            Some(Part::Count(count)) => Ok(count),
            other => Err(unexpected_next("a count", other.as_ref())),
        }
    }

    /// The error for a number that stands for no variant of an enum.
    #[must_use]
    pub fn unknown_variant(number: usize) -> Error {
        unexpected("the number of a variant".to_owned(), &Part::Count(number))
    }

    /// Takes the tensors out, in order, and leaves their places empty for
    /// [`refilled`](Self::refilled).
    pub(crate) fn take_tensors(&mut self) -> Vec<Tensor> {
        self.tensors_mut()
            .map(|place| std::mem::replace(place, Tensor::new()))
            .collect()
    }

    /// The same parts with these tensors in the places of others.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number of tensors.
    pub(crate) fn refilled(&self, tensors: &[Tensor]) -> Result<Self> {
        let mut left = tensors.iter();
        let mut parts = VecDeque::with_capacity(self.parts.len());
        for part in &self.parts {
            parts.push_back(match part {
                Part::Tensor(_) => match left.next() {
                    Some(tensor) => Part::Tensor(tensor.shallow_clone()),
                    None => return Err(unexpected_next("a tensor for each place", None)),
                },
                Part::Rows(rows) => Part::Rows(rows.clone()),
                Part::Plain(plain) => Part::Plain(plain.clone()),
                Part::Count(count) => Part::Count(*count),
            });
        }
        Ok(Self { parts })
    }

    /// The tensors, in order.
    pub(crate) fn tensors_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        self.parts.iter_mut().filter_map(|part| match part {
            Part::Tensor(tensor) => Some(tensor),
            _ => None,
        })
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }
}

impl Part {
    /// What the part is, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Tensor(tensor) => format!("a tensor of shape {:?}", tensor.size()),
            Self::Rows(rows) => format!("a list of {} plain values", rows.len()),
            Self::Plain(value) => format!("the value {value:?}"),
            Self::Count(count) => format!("the count {count}"),
        }
    }
}

fn unexpected_next(expected: &str, found: Option<&Part>) -> Error {
    match found {
        Some(part) => unexpected(expected.to_owned(), part),
        None => Error::Argument {
            operation: "Tree::unpack",
            expected: expected.to_owned(),
            found: "the end of the parcel".to_owned(),
        },
    }
}

pub(super) fn unexpected(expected: String, found: &Part) -> Error {
    Error::Argument {
        operation: "Tree::unpack",
        expected,
        found: found.describe(),
    }
}

/// The error of a type whose `pack` or `unpack` was left out.
pub(super) fn cannot_travel<T: ?Sized>() -> Error {
    Error::Argument {
        operation: "Tree::pack",
        expected: "a type that can be sent to other ranks: `derive(Tree)` without skipped fields, \
                   or `pack` and `unpack` of your own"
            .to_owned(),
        found: format!("`{}`", type_name::<T>()),
    }
}

macro_rules! plain_numbers {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Plain {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }

        impl TryFrom<Plain> for $type {
            type Error = Error;

            fn try_from(plain: Plain) -> Result<Self> {
                match plain {
                    Plain::$variant(value) => value.try_into().map_err(Error::data),
                    other => Err(unexpected(
                        concat!("a value of type `", stringify!($type), "`").to_owned(),
                        &Part::Plain(other),
                    )),
                }
            }
        }
    )*};
}

plain_numbers!(
    bool => Bool,
    u8 => Unsigned,
    u32 => Unsigned,
    u64 => Unsigned,
    i32 => Signed,
    i64 => Signed,
    f64 => Float,
    String => Text,
);

impl From<usize> for Plain {
    fn from(value: usize) -> Self {
        // No machine has addresses of more than 64 bits.
        Self::Unsigned(value as u64)
    }
}

impl TryFrom<Plain> for usize {
    type Error = Error;

    fn try_from(plain: Plain) -> Result<Self> {
        u64::try_from(plain)?.try_into().map_err(Error::data)
    }
}

impl From<f32> for Plain {
    fn from(value: f32) -> Self {
        Self::Float(value.into())
    }
}

impl TryFrom<Plain> for f32 {
    type Error = Error;

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value was an `f32` before it became an `f64`"
    )]
    fn try_from(plain: Plain) -> Result<Self> {
        Ok(f64::try_from(plain)? as Self)
    }
}

impl From<&'static str> for Plain {
    fn from(value: &'static str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl TryFrom<Plain> for &'static str {
    type Error = Error;

    /// Each different text is kept for the life of the process, once.
    fn try_from(plain: Plain) -> Result<Self> {
        static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        let text = String::try_from(plain)?;
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(text.as_str()) {
            return Ok(known);
        }
        let text: &'static str = text.leak();
        kept.insert(text);
        Ok(text)
    }
}
