use std::collections::HashSet;

use tch::Tensor;

use crate::{Error, Result};

/// One value of a [`StateDict`].
#[derive(Debug)]
pub enum StateValue {
    /// A tensor, of which this is a handle.
    Tensor(Tensor),
    /// A number.
    Float(f64),
    /// A count.
    Int(i64),
    /// A switch.
    Bool(bool),
}

impl StateValue {
    /// The same value; of a tensor, another handle on it.
    pub(crate) fn handle(&self) -> Self {
        match self {
            Self::Tensor(tensor) => Self::Tensor(tensor.shallow_clone()),
            Self::Float(number) => Self::Float(*number),
            Self::Int(count) => Self::Int(*count),
            Self::Bool(flag) => Self::Bool(*flag),
        }
    }
}

/// Everything that has to be saved, as a plain list of names and values.
///
/// An optimizer names settings `group.<group>.<setting>` and state
/// `state.<parameter>.<kind>`, with parameters counted over all groups in order.
#[derive(Debug, Default)]
pub struct StateDict {
    entries: Vec<(String, StateValue)>,
}

impl StateDict {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a count, after the values that are there.
    pub(super) fn push_count(&mut self, name: impl Into<String>, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.push(name, StateValue::Int(count));
    }

    /// Adds all values of `other`, with `prefix` before their names.
    pub(super) fn push_all(&mut self, prefix: &str, other: Self) {
        let entries = other.entries.into_iter();
        self.entries
            .extend(entries.map(|(name, value)| (format!("{prefix}{name}"), value)));
    }

    /// The values whose names begin with `prefix`, without it.
    pub(super) fn part(&self, prefix: &str) -> Self {
        let own = |(name, value): &(String, StateValue)| {
            Some((name.strip_prefix(prefix)?.to_owned(), value.handle()))
        };
        self.entries.iter().filter_map(own).collect()
    }

    /// Adds a value, after those that are there.
    pub fn push(&mut self, name: impl Into<String>, value: StateValue) {
        self.entries.push((name.into(), value));
    }

    /// The value with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&StateValue> {
        self.entries
            .iter()
            .find(|(own, _)| own == name)
            .map(|(_, value)| value)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &StateValue)> {
        self.entries
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl FromIterator<(String, StateValue)> for StateDict {
    fn from_iter<I: IntoIterator<Item = (String, StateValue)>>(entries: I) -> Self {
        Self {
            entries: entries.into_iter().collect(),
        }
    }
}

/// Takes the expected values out of a [`StateDict`] and collects everything that does not fit.
pub(super) struct StateReader<'a> {
    values: std::collections::HashMap<&'a str, &'a StateValue>,
    used: HashSet<String>,
    problems: Vec<String>,
}

impl<'a> StateReader<'a> {
    pub(super) fn new(state: &'a StateDict) -> Self {
        Self {
            values: state.iter().collect(),
            used: HashSet::new(),
            problems: Vec::new(),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Whether a name begins with `prefix`.
    pub(super) fn has_any(&self, prefix: &str) -> bool {
        self.values.keys().any(|name| name.starts_with(prefix))
    }

    fn take<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a StateValue) -> Option<T>,
    ) -> Option<T> {
        self.used.insert(name.to_owned());
        let Some(&value) = self.values.get(name) else {
            self.problems.push(format!("`{name}` is missing"));
            return None;
        };
        let read = read(value);
        if read.is_none() {
            self.problems
                .push(format!("`{name}`: expected {expected}, found {value:?}"));
        }
        read
    }

    pub(super) fn float(&mut self, name: &str) -> Option<f64> {
        self.take(name, "a number", |value| match value {
            StateValue::Float(number) => Some(*number),
            _ => None,
        })
    }

    pub(super) fn int(&mut self, name: &str) -> Option<i64> {
        self.take(name, "a count", |value| match value {
            StateValue::Int(count) => Some(*count),
            _ => None,
        })
    }

    /// A number that cannot be below 0.
    pub(super) fn count(&mut self, name: &str) -> Option<u64> {
        let read = self.int(name)?;
        let count = u64::try_from(read).ok();
        if count.is_none() {
            self.problem(format!("`{name}`: expected a count, found {read}"));
        }
        count
    }

    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        self.take(name, "a switch", |value| match value {
            StateValue::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// A copy of the tensor `name` with shape, kind and device of `like`.
    pub(super) fn tensor(&mut self, name: &str, like: &Tensor) -> Result<Option<Tensor>> {
        let shape = like.size();
        let wanted = format!("a tensor of shape {shape:?}");
        let found = self.take(name, &wanted, |value| match value {
            StateValue::Tensor(tensor) if tensor.size() == shape => Some(tensor),
            _ => None,
        });
        let Some(found) = found else { return Ok(None) };
        let mut copy = like.f_zeros_like()?;
        tch::no_grad(|| copy.f_copy_(found))?;
        Ok(Some(copy))
    }

    /// Leaves all values whose names begin with `prefix` to others.
    pub(super) fn skip(&mut self, prefix: &str) {
        let names = self.values.keys().filter(|name| name.starts_with(prefix));
        self.used.extend(names.map(|&name| name.to_owned()));
    }

    /// Notes something that does not fit.
    pub(super) fn problem(&mut self, problem: String) {
        self.problems.push(problem);
    }

    /// # Errors
    /// [`Error::StateMismatch`] if anything did not fit, or a value was not asked for.
    pub(super) fn finish(mut self, target: &'static str) -> Result<()> {
        let mut unknown: Vec<_> = self
            .values
            .keys()
            .filter(|&&name| !self.used.contains(name))
            .collect();
        unknown.sort();
        self.problems.extend(
            unknown
                .into_iter()
                .map(|name| format!("`{name}` is unknown")),
        );
        if self.problems.is_empty() {
            return Ok(());
        }
        Err(Error::StateMismatch {
            target,
            problems: self.problems,
        })
    }
}
