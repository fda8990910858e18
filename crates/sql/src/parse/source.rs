//! Positions: from the parser's lines and columns to characters.

use sqlparser::tokenizer::{Location, Span, TokenWithSpan};
use std::sync::Arc;

/// A query string, to which positions in errors refer.
#[derive(Clone, Debug)]
pub struct Source(Arc<str>);

impl Source {
    /// A query string.
    pub fn new(text: &str) -> Self {
        Source(Arc::from(text))
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The position of a location in characters from 1; `None` if the location is unknown.
    pub fn position(&self, location: Location) -> Option<u32> {
        let start = self.byte(location)?;
        let characters = self.0.get(..start)?.chars().count();
        u32::try_from(characters).ok()?.checked_add(1)
    }

    /// The text between two locations.
    pub fn between(&self, start: Location, end: Location) -> Option<&str> {
        self.0.get(self.byte(start)?..self.byte(end)?)
    }

    /// The text before a part of it, and behind it.
    pub fn around(&self, part: Span) -> Option<(&str, &str)> {
        let (start, end) = (self.byte(part.start)?, self.byte(part.end)?);
        Some((self.0.get(..start)?, self.0.get(end..).filter(|_| start <= end)?))
    }

    fn byte(&self, location: Location) -> Option<usize> {
        Cursor::new(self).byte(location)
    }
}

/// Finds locations one after the other, so that many cost no more than one pass over the text.
pub(super) struct Cursor<'s> {
    source: &'s Source,
    byte: usize,
    line: u64,
    column: u64,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(source: &'s Source) -> Self {
        Cursor { source, byte: 0, line: 1, column: 1 }
    }

    /// The byte of a location that is not before the last one asked for.
    pub(super) fn byte(&mut self, location: Location) -> Option<usize> {
        if location.line == 0 {
            return None;
        }
        for character in self.source.0[self.byte..].chars() {
            if self.line == location.line && self.column == location.column {
                break;
            }
            self.byte += character.len_utf8();
            if character == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        (self.line == location.line && self.column == location.column).then_some(self.byte)
    }

    /// The text from the first to the last of these tokens.
    pub(super) fn slice(&mut self, tokens: &[TokenWithSpan]) -> Arc<str> {
        let text = &self.source.0;
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Arc::from("") };
        let range = (self.byte(first.span.start), self.byte(last.span.end));
        let (Some(start), Some(end)) = range else { return text.clone() };
        match text.get(start..end) {
            Some(slice) if slice.len() < text.len() => Arc::from(slice),
            _ => text.clone(),
        }
    }
}
