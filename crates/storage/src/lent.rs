//! Cursors that many short scans of one batch use in turn.
//!
//! To make a cursor costs more than to move it to a row: it looks up the files of the space and keeps them. A batch that looks
//! up a thousand short spans makes one for all of them.

use crate::engine::{Bounds, Cursor, FirstKey, Pinned, Reader, Space};
use crate::error::StorageResult;
use std::cell::RefCell;

/// Reads of another reader, whose cursors over the newest versions are used again by later scans.
///
/// A later scan sees that space as it was when the cursor was made. So this is only for reads that are about what had been
/// committed before the first of them and that need not look at intents.
pub struct Lending<'a> {
    reader: &'a dyn Reader,
    /// What all scans lie in.
    envelope: Bounds<'a>,
    /// Cursors that nobody uses now.
    kept: RefCell<Vec<Box<dyn Cursor + 'a>>>,
}

impl<'a> Lending<'a> {
    /// For scans within an envelope. Others get cursors of their own.
    pub fn new(reader: &'a dyn Reader, envelope: Bounds<'a>) -> Self {
        Lending { reader, envelope, kept: RefCell::new(Vec::new()) }
    }

    fn holds(&self, bounds: &Bounds<'_>) -> bool {
        let ends_within = match (self.envelope.upper, bounds.upper) {
            (None, _) => true,
            (Some(end), Some(upper)) => upper <= end,
            (Some(_), None) => false,
        };
        ends_within && bounds.lower >= self.envelope.lower
    }
}

impl Reader for Lending<'_> {
    fn get(&self, space: Space, key: &[u8]) -> StorageResult<Option<Pinned<'_>>> {
        self.reader.get(space, key)
    }

    fn get_many(&self, space: Space, keys: &[&[u8]]) -> StorageResult<Vec<Option<Pinned<'_>>>> {
        self.reader.get_many(space, keys)
    }

    fn cursor(&self, space: Space, bounds: Bounds<'_>) -> Box<dyn Cursor + '_> {
        if space != Space::Data || !self.holds(&bounds) {
            return self.reader.cursor(space, bounds);
        }
        let kept = self.kept.borrow_mut().pop();
        Box::new(Lent {
            cursor: Some(kept.unwrap_or_else(|| self.reader.cursor(space, self.envelope))),
            home: &self.kept,
            lower: bounds.lower.to_vec(),
            upper: bounds.upper.map(<[u8]>::to_vec),
            placed: false,
        })
    }

    fn first_key(&self, space: Space, bounds: Bounds<'_>) -> StorageResult<FirstKey> {
        self.reader.first_key(space, bounds)
    }
}

/// A cursor on loan, with bounds of its own.
struct Lent<'c, 'a> {
    /// Always there until it is given back.
    cursor: Option<Box<dyn Cursor + 'a>>,
    home: &'c RefCell<Vec<Box<dyn Cursor + 'a>>>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// Whether it is where its present user put it.
    placed: bool,
}

impl Lent<'_, '_> {
    fn go(&mut self, go: impl FnOnce(&mut dyn Cursor)) {
        self.placed = true;
        if let Some(cursor) = &mut self.cursor {
            go(&mut **cursor);
        }
    }

    fn is_within(&self, key: &[u8]) -> bool {
        key >= &self.lower[..] && self.upper.as_ref().is_none_or(|upper| key < &upper[..])
    }
}

impl Cursor for Lent<'_, '_> {
    fn seek(&mut self, key: &[u8]) {
        let lower = std::mem::take(&mut self.lower);
        self.go(|cursor| cursor.seek(key.max(&lower[..])));
        self.lower = lower;
    }

    fn seek_for_prev(&mut self, key: &[u8]) {
        if self.upper.as_ref().is_some_and(|upper| key >= &upper[..]) {
            return self.seek_to_last();
        }
        self.go(|cursor| cursor.seek_for_prev(key));
    }

    fn seek_to_first(&mut self) {
        self.seek(&[]);
    }

    fn seek_to_last(&mut self) {
        let upper = self.upper.take();
        self.go(|cursor| match &upper {
            Some(upper) => {
                cursor.seek_for_prev(upper);
                // The end is no part of the bounds.
                if cursor.item().is_some_and(|(key, _)| key == &upper[..]) {
                    cursor.prev();
                }
            }
            None => cursor.seek_to_last(),
        });
        self.upper = upper;
    }

    fn next(&mut self) {
        if self.item().is_some() {
            self.go(|cursor| cursor.next());
        }
    }

    fn prev(&mut self) {
        if self.item().is_some() {
            self.go(|cursor| cursor.prev());
        }
    }

    fn item(&self) -> Option<(&[u8], &[u8])> {
        self.cursor.as_ref().filter(|_| self.placed)?.item().filter(|(key, _)| self.is_within(key))
    }

    fn status(&self) -> StorageResult<()> {
        self.cursor.as_ref().map_or(Ok(()), |cursor| cursor.status())
    }
}

impl Drop for Lent<'_, '_> {
    fn drop(&mut self) {
        // One that met an error is of no use to anybody.
        if let Some(cursor) = self.cursor.take().filter(|cursor| cursor.status().is_ok()) {
            self.home.borrow_mut().push(cursor);
        }
    }
}
