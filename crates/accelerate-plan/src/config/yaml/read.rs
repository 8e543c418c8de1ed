//! From the events of a parser to a tree.

use std::{borrow::Cow, collections::HashMap};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput, Tag};

use super::{
    Entries, MAX_DEPTH, MAX_NODES, Node, NodeKind, Problem, SyntaxError,
    scalar::{self, Class},
};

/// What the tags of plain data begin with.
const CORE: &str = "tag:yaml.org,2002:";

/// How the parser's message begins where a key has no colon.
const COLON_MISSED: &str = "simple key expect";

/// A text counts as one more value for each of this many bytes.
const TEXT_WEIGHT: usize = 100;

/// Reads the one document of a text. A text without a document is [`NodeKind::Null`].
///
/// # Errors
/// A [`SyntaxError`] with the place of the first mistake.
pub fn parse(text: &str) -> Result<Node, SyntaxError> {
    refuse_control_characters(text)?;
    let mut reader = Reader {
        text,
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        nodes: 0,
    };
    reader.stream()
}

/// Characters that YAML does not allow anywhere.
fn refuse_control_characters(text: &str) -> Result<(), SyntaxError> {
    let (mut line, mut column) = (1, 1);
    for character in text.chars() {
        let allowed = matches!(character, '\t' | '\n' | '\r' | '\u{85}');
        if !allowed && (character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}')) {
            return Err(Problem::ControlCharacter { character }.at(line, column));
        }
        column += 1;
        if character == '\n' {
            (line, column) = (line + 1, 1);
        }
    }
    Ok(())
}

struct Reader<'text> {
    text: &'text str,
    parser: Parser<'text, StrInput<'text>>,
    /// Finished values that have a name.
    anchors: HashMap<usize, Anchored>,
    /// How many values there are so far, those behind aliases included.
    nodes: usize,
}

struct Anchored {
    node: Node,
    nodes: usize,
    height: usize,
}

/// What came next in the text, and where.
type Found<'text> = (Event<'text>, Marker);

impl<'text> Reader<'text> {
    fn stream(&mut self) -> Result<Node, SyntaxError> {
        let nothing = Node::new(NodeKind::Null, 1, 1);
        let mut document = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(document.unwrap_or(nothing)),
                (Event::DocumentStart(_), place) if document.is_some() => {
                    return Err(at(place, Problem::SecondDocument));
                }
                (Event::DocumentStart(_), _) => {
                    let found = self.next()?;
                    document = Some(self.node(found, 0)?);
                }
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Result<Found<'text>, SyntaxError> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start)),
            Some(Err(error)) => Err(malformed(self.text, &error)),
            None => Ok((Event::StreamEnd, Marker::new(0, 1, 0))),
        }
    }

    /// Reads the value that begins with `found`, inside of `depth` lists and maps.
    fn node(&mut self, found: Found<'text>, depth: usize) -> Result<Node, SyntaxError> {
        let (event, place) = found;
        let before = self.nodes;
        let weight = match &event {
            // What the node of an alias weighs is counted where it is copied.
            Event::Alias(_) => 0,
            Event::Scalar(text, ..) => 1 + text.len() / TEXT_WEIGHT,
            _ => 1,
        };
        count(&mut self.nodes, weight, place)?;
        let (anchor, node) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, scalar_node(text, style, tag.as_deref(), place)?)
            }
            Event::SequenceStart(anchor, tag) => {
                expect_tag(tag.as_deref(), "seq", place)?;
                (anchor, positioned(self.list(depth + 1, place)?, place))
            }
            Event::MappingStart(anchor, tag) => {
                expect_tag(tag.as_deref(), "map", place)?;
                (anchor, positioned(self.map(depth + 1, place)?, place))
            }
            Event::Alias(anchor) => return self.alias(anchor, depth, place),
            _ => {
                let message = "expected a value".to_owned();
                return Err(at(place, Problem::Malformed { message }));
            }
        };
        // Ids begin at 1; 0 says that there is no anchor.
        if anchor > 0 {
            let anchored = Anchored {
                node: node.clone(),
                nodes: self.nodes - before,
                height: node.height(),
            };
            self.anchors.insert(anchor, anchored);
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize, place: Marker) -> Result<NodeKind, SyntaxError> {
        limit_depth(depth, place)?;
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(NodeKind::List(items)),
                found => items.push(self.node(found, depth)?),
            }
        }
    }

    fn map(&mut self, depth: usize, place: Marker) -> Result<NodeKind, SyntaxError> {
        limit_depth(depth, place)?;
        let mut entries = Entries::default();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(entries.into_kind()),
                found => self.node(found, depth)?,
            };
            let found = self.next()?;
            let mut value = self.node(found, depth)?;
            // A value that is left out stands nowhere: the parser gives the place of what follows.
            if value.source.as_deref() == Some("") {
                (value.line, value.column) = (key.line, key.column);
            }
            entries.add_or_merge(key, value)?;
        }
    }

    fn alias(&mut self, anchor: usize, depth: usize, place: Marker) -> Result<Node, SyntaxError> {
        // The parser knows the name already, so its value is not finished yet.
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(at(place, Problem::EndlessAlias));
        };
        limit_depth(depth + anchored.height, place)?;
        count(&mut self.nodes, anchored.nodes, place)?;
        let mut node = anchored.node.clone();
        (node.line, node.column) = (place.line(), place.col() + 1);
        Ok(node)
    }
}

fn count(total: &mut usize, nodes: usize, place: Marker) -> Result<(), SyntaxError> {
    *total += nodes;
    match *total > MAX_NODES {
        true => Err(at(place, Problem::TooLarge)),
        false => Ok(()),
    }
}

fn at(place: Marker, problem: Problem) -> SyntaxError {
    problem.at(place.line().max(1), place.col() + 1)
}

fn malformed(text: &str, error: &ScanError) -> SyntaxError {
    let place = error.marker();
    // The parser sees that a colon is missing only when it looks for it on the next line.
    if error.info().starts_with(COLON_MISSED)
        && let Some((line, found)) = last_content(text, place.line())
    {
        let column = found.len() - found.trim_start().len() + 1;
        let found = found.trim().to_owned();
        return Problem::NoColon { found }.at(line, column);
    }
    let message = error.info().to_owned();
    // What is missed at the end of the text is missed behind its last line.
    match place.line() > text.lines().count() {
        true => {
            let (line, last) = last_content(text, usize::MAX).unwrap_or((1, ""));
            Problem::Malformed { message }.at(line, last.chars().count() + 1)
        }
        false => at(*place, Problem::Malformed { message }),
    }
}

/// The last line before line `end` that is neither empty nor a comment, and its number.
fn last_content(text: &str, end: usize) -> Option<(usize, &str)> {
    let lines = text.lines().zip(1..end).filter(|(line, _)| {
        let content = line.trim();
        !content.is_empty() && !content.starts_with('#')
    });
    lines.last().map(|(line, number)| (number, line))
}

fn positioned(kind: NodeKind, place: Marker) -> Node {
    Node::new(kind, place.line(), place.col() + 1)
}

fn limit_depth(depth: usize, place: Marker) -> Result<(), SyntaxError> {
    match depth > MAX_DEPTH {
        true => Err(at(place, Problem::TooDeep)),
        false => Ok(()),
    }
}

/// Reads a scalar: by its tag if it has one, as a text if it is quoted, else by its look.
fn scalar_node(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: Marker,
) -> Result<Node, SyntaxError> {
    let name = tag.map(tag_name);
    let plain = style == ScalarStyle::Plain;
    let kind = match name.as_deref() {
        None if !plain => Ok(NodeKind::Text(text.to_string())),
        None => scalar::value(&text, scalar::classify(&text)),
        // A lone `!` says no more than that there is a tag.
        Some("!") if plain => scalar::value(&text, scalar::classify(&text)),
        Some("!") => Ok(NodeKind::Text(text.to_string())),
        Some(name) => tagged(name, &text),
    };
    let mut node = positioned(kind.map_err(|problem| at(place, problem))?, place);
    node.source = (plain && name.is_none()).then(|| text.into_owned());
    Ok(node)
}

fn tagged(name: &str, text: &str) -> Result<NodeKind, Problem> {
    let class = match name.strip_prefix(CORE) {
        Some("str") => return Ok(NodeKind::Text(text.to_owned())),
        Some("null") => return Ok(NodeKind::Null),
        Some("bool") => Class::Bool,
        Some("int") => Class::Int,
        Some("float") => Class::Float,
        _ => {
            let tag = name.to_owned();
            return Err(Problem::UnknownTag { tag });
        }
    };
    let found = scalar::classify(text);
    match (class, scalar::value(text, found)?) {
        (Class::Float, NodeKind::Int(value)) => Ok(NodeKind::Float(value as f64)),
        (_, kind) if class == found => Ok(kind),
        _ => Err(Problem::WrongTag {
            tag: name.to_owned(),
            found: text.to_owned(),
        }),
    }
}

fn expect_tag(tag: Option<&Tag>, name: &str, place: Marker) -> Result<(), SyntaxError> {
    match tag.map(tag_name) {
        Some(tag) if tag != "!" && tag.strip_prefix(CORE) != Some(name) => {
            Err(at(place, Problem::UnknownTag { tag }))
        }
        _ => Ok(()),
    }
}

/// The whole name of a tag; `!` for the tag that has none.
fn tag_name(tag: &Tag) -> String {
    format!("{}{}", tag.handle, tag.suffix)
}

#[cfg(test)]
mod tests;
