//! Positions: from the parser's lines and columns to characters.

use sqlparser::tokenizer::{Location, TokenWithSpan};
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

    /// The text from the first to the last of these tokens.
    pub(super) fn slice(&self, tokens: &[TokenWithSpan]) -> Arc<str> {
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Arc::from("") };
        match self.between(first.span.start, last.span.end) {
            Some(text) if text.len() == self.0.len() => self.0.clone(),
            Some(text) => Arc::from(text),
            None => self.0.clone(),
        }
    }

    fn byte(&self, location: Location) -> Option<usize> {
        if location.line == 0 {
            return None;
        }
        let (mut line, mut column) = (1, 1);
        for (byte, character) in self.0.char_indices() {
            if line == location.line && column == location.column {
                return Some(byte);
            }
            if character == '\n' {
                line += 1;
                column = 1;
            } else {
                column += 1;
            }
        }
        (line == location.line && column == location.column).then_some(self.0.len())
    }
}
