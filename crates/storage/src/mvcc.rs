//! Reading and writing versions.
//!
//! # Reading
//!
//! A [`View`] is what one reader sees: the versions at or below its timestamp, the intents its
//! [`IntentView`] lets it see, and the writes its own batch made so far. Where several hold a value
//! for a key, the batch's own write wins, then the transaction's own intent, then the newest version.
//!
//! No engine snapshot is taken. A commit moves a version from the data space to the history, and
//! a resolved intent from the lock space to the data space, each in one atomic batch; so a reader that
//! looks at locks, then data, then history meets every version at least once, and what is committed
//! meanwhile is above its timestamp.
//!
//! # Garbage
//!
//! A version in the history says when it was replaced. Below the engine's garbage floor
//! ([`crate::Engine::set_garbage_floors`]) nobody reads; compaction drops versions replaced below it and
//! tombstones below it. A tombstone may go before the versions it hides, which is why a reader of the
//! history looks at when a version was replaced.
//!
//! # Writing
//!
//! [`put_version`] makes a version the newest of its key and moves the one it replaces.

use crate::engine::{Bounds, Cursor, Pinned, Reader, Space, WriteBatch};
use crate::error::StorageResult;
use crate::intent::{IntentView, VisibleIntent};
use crate::key::{
    StoredVersion, decode_data_value, decode_history_version, header, history_prefix,
    inverted_timestamp_bytes, replaced_at, timestamp_bytes,
};
use bytes::{Bytes, BytesMut};
use kv_api::{Span, Timestamp};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;

/// Writes that a batch made before the present request: value, or `None` for a deletion.
pub type Overlay = BTreeMap<Bytes, Option<Bytes>>;

/// A value a reader sees, or the tombstone in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// When it was committed; [`Timestamp::MAX`] for the reader's own uncommitted write.
    pub timestamp: Timestamp,
    /// The value; `None` for a tombstone.
    pub value: Option<Bytes>,
}

/// What a reader found at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// What it sees.
    pub version: Option<Version>,
    /// Whether there may be a version above its timestamp. False is certain.
    pub may_have_newer: bool,
}

/// What one reader sees.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The engine or a snapshot of it.
    pub reader: &'a dyn Reader,
    /// Versions above this are invisible.
    pub timestamp: Timestamp,
    /// Intents to take into account.
    pub intents: &'a IntentView,
    /// The batch's own earlier writes.
    pub overlay: Option<&'a Overlay>,
}

impl<'a> View<'a> {
    /// The version of `key` this reader sees, tombstones included.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn get(&self, key: &[u8]) -> StorageResult<Option<Version>> {
        if let Some(value) = self.overlay.and_then(|overlay| overlay.get(key)) {
            return Ok(Some(Version { timestamp: Timestamp::MAX, value: value.clone() }));
        }
        let intent = if self.intents.is_empty() { None } else { self.intent(key)? };
        let version = committed_version(self.reader, key, self.timestamp)?;
        Ok(newer(intent, version))
    }

    /// The same of several keys, in their order.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn get_many(&self, keys: &[&[u8]]) -> StorageResult<Vec<Looked>> {
        if self.overlay.is_some_and(|overlay| !overlay.is_empty()) {
            let looked = |version| Looked { version, may_have_newer: true };
            return keys.iter().map(|key| self.get(key).map(looked)).collect();
        }
        // Locks before data: see the module documentation.
        let mut intents = Vec::new();
        if !self.intents.is_empty() {
            for bytes in self.reader.get_many(Space::Locks, keys)? {
                intents.push(match bytes {
                    Some(bytes) => self.intents.visible(&bytes, self.timestamp)?,
                    None => None,
                });
            }
        }
        let any_intents = !self.intents.is_empty();
        let mut intents = intents.into_iter();
        let newest = self.reader.get_many(Space::Data, keys)?;
        keys.iter()
            .zip(newest)
            .map(|(key, newest)| {
                let committed = version_at(self.reader, key, newest, self.timestamp)?;
                Ok(Looked {
                    version: newer(intents.next().flatten(), committed.version),
                    may_have_newer: any_intents || committed.may_have_newer,
                })
            })
            .collect()
    }

    fn intent(&self, key: &[u8]) -> StorageResult<Option<VisibleIntent>> {
        match self.reader.get(Space::Locks, key)? {
            Some(bytes) => self.intents.visible(&bytes, self.timestamp),
            None => Ok(None),
        }
    }

    /// The keys of `[start, end)` that exist for this reader.
    pub fn scan(&self, start: &'a [u8], end: &'a [u8], reverse: bool) -> Scanner<'a> {
        let open = |space| {
            let mut cursor = self.reader.cursor(space, Bounds::new(start, end));
            if reverse {
                cursor.seek_to_last()
            } else {
                cursor.seek_to_first()
            }
            cursor
        };
        // Locks before data: see the module documentation.
        let locks = (!self.intents.is_empty()).then(|| open(Space::Locks));
        let overlay = self.overlay.filter(|overlay| !overlay.is_empty()).map(|overlay| {
            let range =
                overlay.range::<[u8], _>((std::ops::Bound::Included(start), std::ops::Bound::Excluded(end)));
            let ordered: OverlayIter<'a> = if reverse { Box::new(range.rev()) } else { Box::new(range) };
            ordered.peekable()
        });
        let data = open(Space::Data);
        let newest = Timestamp::MIN;
        Scanner {
            view: *self,
            start,
            end,
            reverse,
            data,
            locks,
            overlay,
            history: None,
            newer: false,
            newest,
        }
    }
}

fn newer(intent: Option<VisibleIntent>, version: Option<Version>) -> Option<Version> {
    match (intent, version) {
        (Some(intent), Some(version)) if version.timestamp >= intent.timestamp => Some(version),
        (Some(intent), _) => Some(Version { timestamp: intent.timestamp, value: intent.value }),
        (None, version) => version,
    }
}

/// The committed version of `key` at `timestamp`, tombstones included, intents aside.
fn committed_version(
    reader: &dyn Reader,
    key: &[u8],
    timestamp: Timestamp,
) -> StorageResult<Option<Version>> {
    Ok(version_at(reader, key, reader.get(Space::Data, key)?, timestamp)?.version)
}

/// The same, where the data space's value of the key has been read.
fn version_at(
    reader: &dyn Reader,
    key: &[u8],
    newest: Option<Pinned<'_>>,
    timestamp: Timestamp,
) -> StorageResult<Looked> {
    let Some(bytes) = newest else { return Ok(Looked { version: None, may_have_newer: false }) };
    let newest = decode_data_value(&bytes)?;
    if newest.timestamp <= timestamp {
        let value = newest.value.map(Bytes::copy_from_slice);
        let version = Some(Version { timestamp: newest.timestamp, value });
        return Ok(Looked { version, may_have_newer: false });
    }
    let prefix = history_prefix(key);
    let upper = history_prefix_end(&prefix);
    let mut cursor = reader.cursor(Space::History, Bounds::new(&prefix, &upper));
    let version = older_version(&mut *cursor, &prefix, timestamp)?;
    Ok(Looked { version, may_have_newer: true })
}

/// All history keys with `prefix` are below this.
fn history_prefix_end(prefix: &[u8]) -> Vec<u8> {
    // A prefix ends with the terminator 00 01, which no other prefix continues.
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn older_version(
    cursor: &mut dyn Cursor,
    prefix: &[u8],
    timestamp: Timestamp,
) -> StorageResult<Option<Version>> {
    let mut target = prefix.to_vec();
    target.extend_from_slice(&inverted_timestamp_bytes(timestamp));
    cursor.seek(&target);
    match cursor.item() {
        Some((key, value)) if key.starts_with(prefix) => {
            let found = decode_history_version(key, value)?;
            if replaced_at(value).is_some_and(|replaced| replaced <= timestamp) {
                // By a tombstone that garbage collection has removed since.
                return Ok(None);
            }
            Ok(Some(Version { timestamp: found.timestamp, value: found.value.map(Bytes::copy_from_slice) }))
        }
        _ => cursor.status().map(|()| None),
    }
}

type OverlayIter<'a> = Box<dyn Iterator<Item = (&'a Bytes, &'a Option<Bytes>)> + 'a>;

/// Where a row was appended to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowMark {
    /// Where its key begins.
    pub start: usize,
    /// Where its key ends and its value begins.
    pub middle: usize,
    /// Where its value ends.
    pub end: usize,
    /// When it was committed; [`Timestamp::MAX`] for the reader's own uncommitted write.
    pub timestamp: Timestamp,
}

/// Iterates over the keys of a span that exist for a reader.
pub struct Scanner<'a> {
    view: View<'a>,
    start: &'a [u8],
    end: &'a [u8],
    reverse: bool,
    data: Box<dyn Cursor + 'a>,
    locks: Option<Box<dyn Cursor + 'a>>,
    overlay: Option<Peekable<OverlayIter<'a>>>,
    history: Option<Box<dyn Cursor + 'a>>,
    newer: bool,
    newest: Timestamp,
}

impl Scanner<'_> {
    /// No version of the keys that were passed is above this, those of deleted keys included. Only of meaning while
    /// [`Scanner::may_have_newer`] says no.
    pub fn newest(&self) -> Timestamp {
        self.newest
    }

    /// Whether there may be a version above the reader's timestamp among the keys that were passed, those that have been
    /// deleted included. False is certain.
    pub fn may_have_newer(&self) -> bool {
        self.newer
    }

    /// Appends the next row's key and value to `out` and says where; `None` at the end of the span.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn next(&mut self, out: &mut BytesMut) -> StorageResult<Option<RowMark>> {
        let start = out.len();
        loop {
            let found = if self.locks.is_none() && self.overlay.is_none() {
                self.step_data(out)
            } else {
                self.step_merge(out)
            };
            match found? {
                Step::Row { middle, timestamp } => {
                    return Ok(Some(RowMark { start, middle, end: out.len(), timestamp }));
                }
                Step::Nothing => out.truncate(start),
                Step::End => return Ok(None),
            }
        }
    }

    /// Gives the next row's key and value to `take` where they lie, and returns what it returns; `None` at the end of the
    /// span. `scratch` is used, and emptied, for rows that do not lie in one piece.
    ///
    /// # Errors
    /// I/O errors and damage.
    pub fn visit<T>(
        &mut self,
        scratch: &mut BytesMut,
        take: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> StorageResult<Option<T>> {
        if self.locks.is_none()
            && self.overlay.is_none()
            && let Some((key, value)) = self.data.item()
            && let StoredVersion { timestamp, value: Some(value) } = decode_data_value(value)?
            && timestamp <= self.view.timestamp
        {
            let taken = take(key, value);
            self.newest = self.newest.max(timestamp);
            advance(&mut *self.data, self.reverse);
            return Ok(Some(taken));
        }
        scratch.clear();
        let Some(mark) = self.next(scratch)? else { return Ok(None) };
        Ok(Some(take(&scratch[mark.start..mark.middle], &scratch[mark.middle..mark.end])))
    }

    /// Whether the scan has certainly come to the end of its span.
    ///
    /// # Errors
    /// What ended it, if that was not the end.
    pub fn is_exhausted(&mut self) -> StorageResult<bool> {
        self.data.status()?;
        self.locks.as_ref().map_or(Ok(()), |locks| locks.status())?;
        Ok(self.data.item().is_none()
            && self.locks.as_ref().is_none_or(|locks| locks.item().is_none())
            && self.overlay.as_mut().is_none_or(|overlay| overlay.peek().is_none()))
    }

    /// One key of the data space, with nothing to merge.
    fn step_data(&mut self, out: &mut BytesMut) -> StorageResult<Step> {
        let Some((key, value)) = self.data.item() else {
            return self.data.status().map(|()| Step::End);
        };
        let newest = decode_data_value(value)?;
        self.newer |= newest.timestamp > self.view.timestamp;
        self.newest = self.newest.max(newest.timestamp);
        let mut step = Step::Nothing;
        if newest.timestamp <= self.view.timestamp {
            if let Some(value) = newest.value {
                out.extend_from_slice(key);
                let middle = out.len();
                out.extend_from_slice(value);
                step = Step::Row { middle, timestamp: newest.timestamp };
            }
        } else if let Some(older) = older_in(&mut self.history, self.view, (self.start, self.end), key)?
            && let Some(value) = older.value
        {
            out.extend_from_slice(key);
            let middle = out.len();
            out.extend_from_slice(&value);
            step = Step::Row { middle, timestamp: older.timestamp };
        }
        advance(&mut *self.data, self.reverse);
        Ok(step)
    }

    /// One key of whichever of data, locks and overlay comes first.
    fn step_merge(&mut self, out: &mut BytesMut) -> StorageResult<Step> {
        self.newer = true;
        let start = out.len();
        let mut pick: Option<&[u8]> = None;
        let data = self.data.item();
        let lock = self.locks.as_ref().and_then(|locks| locks.item());
        let own = self.overlay.as_mut().and_then(|overlay| overlay.peek().copied());
        for key in [data.map(|item| item.0), lock.map(|item| item.0), own.map(|item| &item.0[..])]
            .into_iter()
            .flatten()
        {
            let before = if self.reverse { Ordering::Greater } else { Ordering::Less };
            if pick.is_none_or(|picked| key.cmp(picked) == before) {
                pick = Some(key);
            }
        }
        let Some(key) = pick else {
            self.data.status()?;
            return self.locks.as_ref().map_or(Ok(()), |locks| locks.status()).map(|()| Step::End);
        };
        out.extend_from_slice(key);
        let middle = out.len();
        let (at_data, at_lock, at_own) = (
            data.filter(|item| item.0 == key),
            lock.filter(|item| item.0 == key),
            own.filter(|item| &item.0[..] == key),
        );
        let version = match (at_own, at_data) {
            (Some((_, value)), _) => Some(Version { timestamp: Timestamp::MAX, value: value.clone() }),
            (None, at_data) => {
                let intent = match at_lock {
                    Some((_, bytes)) => self.view.intents.visible(bytes, self.view.timestamp)?,
                    None => None,
                };
                let committed = match at_data {
                    Some((key, value)) => {
                        let newest = decode_data_value(value)?;
                        if newest.timestamp <= self.view.timestamp {
                            let value = newest.value.map(Bytes::copy_from_slice);
                            Some(Version { timestamp: newest.timestamp, value })
                        } else {
                            older_in(&mut self.history, self.view, (self.start, self.end), key)?
                        }
                    }
                    None => None,
                };
                newer(intent, committed)
            }
        };
        let (move_data, move_lock, move_own) = (at_data.is_some(), at_lock.is_some(), at_own.is_some());
        if move_data {
            advance(&mut *self.data, self.reverse);
        }
        if let (true, Some(locks)) = (move_lock, &mut self.locks) {
            advance(&mut **locks, self.reverse);
        }
        if let (true, Some(overlay)) = (move_own, &mut self.overlay) {
            overlay.next();
        }
        match version {
            Some(Version { timestamp, value: Some(value) }) => {
                out.extend_from_slice(&value);
                Ok(Step::Row { middle, timestamp })
            }
            _ => {
                out.truncate(start);
                Ok(Step::Nothing)
            }
        }
    }
}

enum Step {
    Row { middle: usize, timestamp: Timestamp },
    Nothing,
    End,
}

fn advance(cursor: &mut dyn Cursor, reverse: bool) {
    if reverse { cursor.prev() } else { cursor.next() }
}

/// An older version of `key`, through a history cursor that serves the whole scan.
fn older_in<'a>(
    history: &mut Option<Box<dyn Cursor + 'a>>,
    view: View<'a>,
    (start, end): (&[u8], &[u8]),
    key: &[u8],
) -> StorageResult<Option<Version>> {
    let cursor = history.get_or_insert_with(|| {
        view.reader.cursor(Space::History, Bounds::new(&history_prefix(start), &history_prefix(end)))
    });
    older_version(&mut **cursor, &history_prefix(key), view.timestamp)
}

/// The first key of `span` found with a version in `(after, upto]`, of transactions other than the
/// reader's own.
///
/// # Errors
/// I/O errors and damage.
pub fn changed(
    reader: &dyn Reader,
    span: &Span,
    after: Timestamp,
    upto: Timestamp,
    intents: &IntentView,
) -> StorageResult<Option<Bytes>> {
    if after >= upto {
        return Ok(None);
    }
    let found = if span.is_point() {
        changed_point(reader, &span.start, after, upto, intents)?.then(|| span.start.clone())
    } else {
        changed_range(reader, span, after, upto, intents)?
    };
    Ok(found)
}

fn changed_point(
    reader: &dyn Reader,
    key: &[u8],
    after: Timestamp,
    upto: Timestamp,
    intents: &IntentView,
) -> StorageResult<bool> {
    if intents.has_others()
        && let Some(bytes) = reader.get(Space::Locks, key)?
        && intent_changed(&bytes, after, upto, intents)?
    {
        return Ok(true);
    }
    match reader.get(Space::Data, key)? {
        Some(bytes) => version_changed(reader, key, &bytes, after, upto),
        None => Ok(false),
    }
}

fn changed_range(
    reader: &dyn Reader,
    span: &Span,
    after: Timestamp,
    upto: Timestamp,
    intents: &IntentView,
) -> StorageResult<Option<Bytes>> {
    let bounds = Bounds::new(&span.start, &span.end);
    if intents.has_others() {
        let mut locks = reader.cursor(Space::Locks, bounds);
        locks.seek_to_first();
        while let Some((key, bytes)) = locks.item() {
            if intent_changed(bytes, after, upto, intents)? {
                return Ok(Some(Bytes::copy_from_slice(key)));
            }
            locks.next();
        }
        locks.status()?;
    }
    let mut data = reader.cursor(Space::Data, bounds);
    data.seek_to_first();
    while let Some((key, bytes)) = data.item() {
        if version_changed(reader, key, bytes, after, upto)? {
            return Ok(Some(Bytes::copy_from_slice(key)));
        }
        data.next();
    }
    data.status()?;
    Ok(None)
}

fn intent_changed(
    bytes: &[u8],
    after: Timestamp,
    upto: Timestamp,
    intents: &IntentView,
) -> StorageResult<bool> {
    let visible = intents.visible(bytes, upto)?;
    Ok(visible.is_some_and(|intent| intent.timestamp > after && intent.timestamp <= upto))
}

fn version_changed(
    reader: &dyn Reader,
    key: &[u8],
    newest: &[u8],
    after: Timestamp,
    upto: Timestamp,
) -> StorageResult<bool> {
    let newest = decode_data_value(newest)?.timestamp;
    if newest <= after {
        return Ok(false);
    }
    if newest <= upto {
        return Ok(true);
    }
    let older = committed_version(reader, key, upto)?;
    Ok(older.is_some_and(|version| version.timestamp > after))
}

/// Makes `value` (`None`: a tombstone) the newest version of `key`. `replaced` is what the data space
/// holds for the key now, as read under the latch that protects this write.
///
/// # Errors
/// Damage in `replaced`.
pub fn put_version(
    batch: &mut WriteBatch,
    key: &[u8],
    timestamp: Timestamp,
    value: Option<&[u8]>,
    replaced: Option<&[u8]>,
) -> StorageResult<()> {
    if let Some(replaced) = replaced {
        let old = decode_data_value(replaced)?;
        batch.put_parts(
            Space::History,
            &[&history_prefix(key), &inverted_timestamp_bytes(old.timestamp)],
            &[&[header(old.value.is_some())], &timestamp_bytes(timestamp), old.value.unwrap_or_default()],
        );
    }
    let head = [header(value.is_some())];
    batch.put_parts(Space::Data, &[key], &[&head, &timestamp_bytes(timestamp), value.unwrap_or_default()]);
    Ok(())
}

/// Removes every version and intent of the keys of `[start, end)`.
pub fn clear_range(batch: &mut WriteBatch, start: &[u8], end: &[u8]) {
    batch.delete_range(Space::Data, start, end);
    batch.delete_range(Space::History, &history_prefix(start), &history_prefix(end));
    batch.delete_range(Space::Locks, start, end);
}

#[cfg(test)]
mod tests;
