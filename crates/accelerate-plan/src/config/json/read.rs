//! From text to tree.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::config::yaml::{Entries, MAX_DEPTH, MAX_NODES, Node, NodeKind, Problem, SyntaxError};

/// Reads a JSON text.
///
/// # Errors
/// A [`SyntaxError`] with the place of the first mistake. A key that a map has twice is a mistake.
pub fn parse(text: &str) -> Result<Node, SyntaxError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let whole: &RawValue = serde_json::from_str(text).map_err(|error| malformed(text, &error))?;
    Document::new(text).node(whole, 0)
}

/// The message of `serde_json`, with the column in characters instead of bytes.
fn malformed(text: &str, error: &serde_json::Error) -> SyntaxError {
    let line = text
        .lines()
        .nth(error.line().saturating_sub(1))
        .unwrap_or_default();
    let before = line.get(..error.column().saturating_sub(1)).unwrap_or(line);
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
    Problem::Malformed { message }.at(error.line().max(1), before.chars().count() + 1)
}

/// The text that all pieces are cut from, and how far the pieces seen so far reach.
struct Document<'text> {
    text: &'text str,
    offset: usize,
    line: usize,
    column: usize,
    nodes: usize,
}

impl<'text> Document<'text> {
    const fn new(text: &'text str) -> Self {
        Self {
            text,
            offset: 0,
            line: 1,
            column: 1,
            nodes: 0,
        }
    }

    fn node(&mut self, raw: &'text RawValue, depth: usize) -> Result<Node, SyntaxError> {
        let (line, column) = self.place(raw);
        let piece = raw.get();
        if piece.starts_with(['[', '{']) && depth >= MAX_DEPTH {
            return Err(Problem::TooDeep.at(line, column));
        }
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Problem::TooLarge.at(line, column));
        }
        let kind = match piece.as_bytes() {
            [b'[', ..] => NodeKind::List(self.list(raw, depth + 1)?),
            [b'{', ..] => self.map(raw, depth + 1)?,
            [b'"', ..] => NodeKind::Text(self.cut(raw)?),
            b"null" => NodeKind::Null,
            b"true" => NodeKind::Bool(true),
            b"false" => NodeKind::Bool(false),
            _ => number(piece).map_err(|problem| problem.at(line, column))?,
        };
        let mut node = Node::new(kind, line, column);
        node.source = (!piece.starts_with(['[', '{', '"'])).then(|| piece.to_owned());
        Ok(node)
    }

    fn list(&mut self, raw: &'text RawValue, depth: usize) -> Result<Vec<Node>, SyntaxError> {
        let items: Vec<&RawValue> = self.cut(raw)?;
        items
            .into_iter()
            .map(|item| self.node(item, depth))
            .collect()
    }

    fn map(&mut self, raw: &'text RawValue, depth: usize) -> Result<NodeKind, SyntaxError> {
        let Pairs(pairs) = self.cut(raw)?;
        let mut entries = Entries::default();
        for (key, value) in pairs {
            entries.add(self.node(key, depth)?, self.node(value, depth)?)?;
        }
        Ok(entries.into_kind())
    }

    /// Reads one level of a piece.
    fn cut<T: Deserialize<'text>>(&mut self, raw: &'text RawValue) -> Result<T, SyntaxError> {
        serde_json::from_str(raw.get()).map_err(|error| {
            let (line, column) = self.place(raw);
            let inner = malformed(raw.get(), &error);
            match inner.line {
                1 => inner.problem.at(line, column + inner.column - 1),
                more => inner.problem.at(line + more - 1, inner.column),
            }
        })
    }

    /// Line and column at which a piece begins. Pieces come in the order of the text.
    fn place(&mut self, raw: &'text RawValue) -> (usize, usize) {
        let offset = raw.get().as_ptr() as usize - self.text.as_ptr() as usize;
        for character in self
            .text
            .get(self.offset..offset)
            .unwrap_or_default()
            .chars()
        {
            self.column += 1;
            if character == '\n' {
                (self.line, self.column) = (self.line + 1, 1);
            }
        }
        self.offset = offset;
        (self.line, self.column)
    }
}

fn number(piece: &str) -> Result<NodeKind, Problem> {
    let too_large = |_| Problem::NumberTooLarge {
        found: piece.to_owned(),
    };
    match piece.contains(['.', 'e', 'E']) {
        true => Ok(NodeKind::Float(piece.parse().unwrap_or(f64::NAN))),
        false => piece.parse().map(NodeKind::Int).map_err(too_large),
    }
}

/// The entries of a map as they stand there, the same key twice included.
struct Pairs<'text>(Vec<(&'text RawValue, &'text RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Value;

    #[test]
    fn every_value_knows_its_place() {
        let text = "{\n  \"ä\": [1,\n    -2.5e3, \"x\"],\n  \"b\": {\"c\": null}\n}\n";
        let NodeKind::Map(entries) = parse(text).unwrap().kind else {
            panic!("expected a map");
        };
        let [(first, list), (second, map)] = &entries[..] else {
            panic!("expected two entries");
        };
        assert_eq!((first.line, first.column), (2, 3));
        assert_eq!((list.line, list.column), (2, 8));
        assert_eq!((second.line, second.column), (4, 3));
        let NodeKind::List(items) = &list.kind else {
            panic!("expected a list");
        };
        let places: Vec<_> = items.iter().map(|item| (item.line, item.column)).collect();
        assert_eq!(places, [(2, 9), (3, 5), (3, 13)]);
        assert_eq!(items[1].kind, NodeKind::Float(-2500.0));
        let NodeKind::Map(inner) = &map.kind else {
            panic!("expected a map");
        };
        assert_eq!((inner[0].1.line, inner[0].1.column), (4, 14));
    }

    #[test]
    fn mistakes_have_places() {
        for (text, line, column) in [
            ("{\n  \"a\": 1,\n  \"ä\" 2\n}", 3, 7),
            ("{\"a\": 1} x", 1, 10),
            ("{\n\"a\": NaN}", 2, 6),
            ("[1,\n \"\\ud800\"]", 2, 9),
            ("[1,\n 12345678901234567890]", 2, 2),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.line, error.column), (line, column), "{error}");
        }
    }

    #[test]
    fn a_key_may_stand_only_once() {
        let error = parse("{\n\"a\": 1,\n\"\\u0061\": 2}").unwrap_err();
        assert_eq!(error.line, 3);
        let key = "a".to_owned();
        assert_eq!(error.problem, Problem::DuplicateKey { key, first_line: 2 });
    }

    #[test]
    fn nesting_has_an_end() {
        let text = "[".repeat(1000) + &"]".repeat(1000);
        assert_eq!(parse(&text).unwrap_err().problem, Problem::TooDeep);
    }

    #[test]
    fn surrogate_pairs_are_one_character() {
        let value = parse(r#"["\ud83d\ude00", -0, 1e2]"#).unwrap().to_value();
        let expected = vec![Value::from("😀"), Value::from(0_i64), Value::from(100.0)];
        assert_eq!(value, Value::List(expected));
    }
}
