//! Values with the place where they stand.

use std::borrow::Cow;

use crate::config::Value;

/// Texts in messages are cut after this many characters.
const SHOWN: usize = 60;

/// A value and where it stands in its file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Node {
    /// The value.
    pub kind: NodeKind,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The characters of a value that stood there without quotes; `None` for quoted texts, lists
    /// and maps.
    pub source: Option<String>,
}

/// The value of a [`Node`].
#[derive(Debug, Clone, PartialEq)]
pub enum NodeKind {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// Values in order.
    List(Vec<Node>),
    /// Keys and values in order; no two keys have the same text.
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// A value at a place, without the characters it was written with.
    pub const fn new(kind: NodeKind, line: usize, column: usize) -> Self {
        Self {
            kind,
            line,
            column,
            source: None,
        }
    }

    /// The value without positions. Keys that are not texts become their text.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(value) => Value::Bool(*value),
            NodeKind::Int(value) => Value::Int(*value),
            NodeKind::Float(value) => Value::Float(*value),
            NodeKind::Text(text) => Value::Text(text.clone()),
            NodeKind::List(items) => Value::List(items.iter().map(Self::to_value).collect()),
            NodeKind::Map(entries) => Value::Map(
                entries
                    .iter()
                    .filter_map(|(key, value)| Some((key.text()?.into_owned(), value.to_value())))
                    .collect(),
            ),
        }
    }

    /// The text of a scalar: as it was written if it was not quoted. `None` for lists and maps.
    ///
    /// The text of an unquoted `NO` is `NO`, although its value is `false`.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        if let Some(source) = &self.source {
            return Some(source.into());
        }
        match &self.kind {
            NodeKind::Null => Some("null".into()),
            NodeKind::Bool(value) => Some(value.to_string().into()),
            NodeKind::Int(value) => Some(value.to_string().into()),
            NodeKind::Float(value) => Some(value.to_string().into()),
            NodeKind::Text(text) => Some(text.into()),
            NodeKind::List(_) | NodeKind::Map(_) => None,
        }
    }

    /// The number that an unquoted text looks like, although YAML 1.1 takes it as a text: `1e8` and
    /// `1.5e3` lack what YAML 1.1 asks of a number (a dot, and a sign after the `e`).
    pub fn unquoted_number(&self) -> Option<f64> {
        let (NodeKind::Text(text), Some(_)) = (&self.kind, &self.source) else {
            return None;
        };
        let digits = text.trim_start_matches(['+', '-', '.']);
        digits
            .starts_with(|first: char| first.is_ascii_digit())
            .then(|| text.parse().ok())?
    }

    /// The value in words, for a message: the whole number `3`, the text `many`, a list.
    pub fn describe(&self) -> String {
        let sort = match &self.kind {
            NodeKind::Null => return "nothing".to_owned(),
            NodeKind::List(_) | NodeKind::Map(_) => return self.sort().to_owned(),
            _ => self.sort(),
        };
        let text = self.text().unwrap_or_default();
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push_str("...");
        }
        format!("{sort} `{}`", shown.escape_debug())
    }

    /// What sort of value this is, with its article.
    pub(super) const fn sort(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Bool(_) => "the truth value",
            NodeKind::Int(_) => "the whole number",
            NodeKind::Float(_) => "the number",
            NodeKind::Text(_) => "the text",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }

    /// How many lists and maps are inside each other here; 0 for a scalar.
    pub(super) fn height(&self) -> usize {
        let inner = match &self.kind {
            NodeKind::List(items) => items.iter().map(Self::height).max(),
            NodeKind::Map(entries) => entries.iter().map(|(_, value)| value.height()).max(),
            _ => return 0,
        };
        1 + inner.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::parse;

    #[test]
    fn a_number_without_a_dot_stays_a_text_and_says_so() {
        for (text, number) in [
            ("1e8", 1e8),
            ("-1e-3", -1e-3),
            ("1.5e3", 1.5e3),
            ("-.5", -0.5),
        ] {
            let node = parse(text).unwrap();
            assert_eq!(node.kind, NodeKind::Text(text.to_owned()));
            assert_eq!(node.unquoted_number(), Some(number), "{text}");
        }
        for text in [
            "'1e8'", "1.0e+8", "100", "inf", "nan", "e8", "1e8x", ".", "-",
        ] {
            assert_eq!(parse(text).unwrap().unquoted_number(), None, "{text}");
        }
    }

    #[test]
    fn a_message_shows_the_value_as_it_was_written() {
        for (text, words) in [
            ("NO", "the truth value `NO`"),
            ("0x10", "the whole number `0x10`"),
            ("1.50", "the number `1.50`"),
            ("'1'", "the text `1`"),
            ("\"a\\nb\"", r"the text `a\nb`"),
            ("~", "nothing"),
            ("[1]", "a list"),
            ("{}", "a map"),
        ] {
            assert_eq!(parse(text).unwrap().describe(), words);
        }
        let long = "ä".repeat(SHOWN + 1);
        assert!(parse(&long).unwrap().describe().ends_with("ä...`"));
    }
}
