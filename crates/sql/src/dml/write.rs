//! Writing rows with their index entries.

use super::violation;
use crate::exec::{ExecContext, kv};
use crate::plan::RowLock;
use crate::table::TableCodec;
use crate::table::codec::{Entry, IndexCodec};
use bytes::Bytes;
use hashbrown::HashSet;
use kv_api::LockStrength;
use kv_api::batch::WaitPolicy;
use sql_types::{Datum, Row, SqlResult};

/// An exclusive lock, waiting for others.
pub(super) const EXCLUSIVE: RowLock = RowLock { strength: LockStrength::Exclusive, wait: WaitPolicy::Block };
/// A shared lock, waiting for others.
pub(super) const SHARED: RowLock = RowLock { strength: LockStrength::Shared, wait: WaitPolicy::Block };

/// How a write makes sure that a key is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uniqueness {
    /// It was looked for before.
    Checked,
    /// The write fails if it exists, at the latest when the transaction commits.
    Conditional,
}

/// Whether the primary key is the hidden row number, which is new by construction.
pub(super) fn has_hidden_key(codec: &TableCodec) -> bool {
    codec
        .table()
        .primary()
        .columns
        .iter()
        .all(|(id, _)| codec.table().column(*id).is_some_and(|column| column.hidden))
}

/// Has the uniqueness of an entry checked later, if it is of a deferrable index.
fn note_unchecked(cx: &ExecContext<'_>, codec: &TableCodec, index: &IndexCodec, entry: &Entry) {
    let (Some(key), Some(described)) = (&entry.unchecked, codec.table().index(index.id)) else { return };
    let table = codec.table().oid;
    cx.deferred.add(table, described.oid, key.clone(), Row::new(), table);
}

/// The keys that must not exist for a row to be inserted.
pub(super) fn unique_keys(codec: &TableCodec, row: &[Datum], row_key: &Bytes) -> SqlResult<Vec<Bytes>> {
    let mut keys = Vec::with_capacity(1 + codec.secondary().len());
    if !has_hidden_key(codec) {
        keys.push(row_key.clone());
    }
    for index in codec.secondary().iter().filter(|index| index.unique && index.is_written()) {
        let entry = codec.index_entry(index, row, row_key)?;
        keys.extend(entry.filter(|entry| entry.unique).map(|entry| entry.key));
    }
    Ok(keys)
}

/// Locks keys and fails if one of them exists or is given twice.
pub(super) async fn require_absent(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    keys: &[Bytes],
) -> SqlResult<()> {
    let duplicate = |key: &[u8]| violation::duplicate(cx.host, &cx.eval.text, codec.table(), codec, key);
    if keys.len() > 1 {
        let mut seen = HashSet::with_capacity(keys.len());
        if let Some(twice) = keys.iter().find(|key| !seen.insert(*key)) {
            return Err(duplicate(twice));
        }
    }
    let found = kv::get_many(cx, keys, Some(EXCLUSIVE)).await?;
    match keys.iter().zip(found).find(|(_, value)| value.is_some()) {
        Some((key, _)) => Err(duplicate(key)),
        None => Ok(()),
    }
}

/// Writes a new row and its index entries.
pub(super) async fn insert_row(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    row: &[Datum],
    row_key: Bytes,
    uniqueness: Uniqueness,
) -> SqlResult<()> {
    for index in codec.secondary().iter().filter(|index| index.is_written()) {
        for entry in codec.index_entries(index, row, &row_key)? {
            note_unchecked(cx, codec, index, &entry);
            put(cx, codec, (entry.key, entry.value), entry.unique, uniqueness).await?;
        }
    }
    let value = codec.row_value(row)?;
    put(cx, codec, (row_key, value), !has_hidden_key(codec), uniqueness).await
}

async fn put(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    (key, value): (Bytes, Bytes),
    must_be_new: bool,
    uniqueness: Uniqueness,
) -> SqlResult<()> {
    let result = if must_be_new && uniqueness == Uniqueness::Conditional {
        kv::put_if_absent(cx, &key, value).await
    } else {
        kv::put(cx, &key, value).await
    };
    violation::write_error(cx, codec, result)
}

/// Removes entries, keys and values, that may be those of other rows: only what is as it is given.
async fn delete_own(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    entries: impl IntoIterator<Item = (Bytes, Bytes)>,
) -> SqlResult<()> {
    let (keys, values): (Vec<Bytes>, Vec<Bytes>) = entries.into_iter().unzip();
    let found = kv::get_many(cx, &keys, Some(EXCLUSIVE)).await?;
    for (key, _) in keys.iter().zip(values).zip(found).filter(|((_, own), found)| Some(own) == found.as_ref())
    {
        violation::write_error(cx, codec, kv::delete(cx, key.0).await)?;
    }
    Ok(())
}

/// Removes a row and its index entries.
pub(super) async fn delete_row(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    row: &[Datum],
    row_key: Bytes,
) -> SqlResult<()> {
    for index in codec.secondary() {
        let entries = codec.index_entries(index, row, &row_key)?;
        if index.is_disputed() {
            delete_own(cx, codec, entries.map(|entry| (entry.key, entry.value))).await?;
            continue;
        }
        for entry in entries {
            violation::write_error(cx, codec, kv::delete(cx, &entry.key).await)?;
        }
    }
    violation::write_error(cx, codec, kv::delete(cx, &row_key).await)
}

/// A row before and after an update.
pub(super) struct Change {
    /// Key before.
    pub old_key: Bytes,
    /// Full row before.
    pub old: Row,
    /// Key after.
    pub new_key: Bytes,
    /// Full row after.
    pub new: Row,
}

impl Change {
    pub fn new(codec: &TableCodec, old: Row, new: Row) -> SqlResult<Self> {
        Ok(Change { old_key: codec.row_key(&old)?, new_key: codec.row_key(&new)?, old, new })
    }

    /// Key and full row before.
    pub fn before(&self) -> (&Bytes, &[Datum]) {
        (&self.old_key, &self.old)
    }
}

/// What an update writes and removes for one row.
#[derive(Default)]
struct Steps {
    gone: Vec<Bytes>,
    /// Keys and values that go if they are there, and not others under these keys.
    own: Vec<(Bytes, Bytes)>,
    put: Vec<(Bytes, Bytes)>,
    /// Keys among `put` that must not exist.
    fresh: Vec<Bytes>,
}

/// The entries of an inverted index that go and those that come. Both sides are in the order of their keys.
fn inverted_steps(
    codec: &TableCodec,
    index: &IndexCodec,
    change: &Change,
    steps: &mut Steps,
) -> SqlResult<()> {
    let mut before = codec.index_entries(index, &change.old, &change.old_key)?.peekable();
    let written = index.is_written().then(|| codec.index_entries(index, &change.new, &change.new_key));
    for after in written.transpose()?.into_iter().flatten() {
        while let Some(gone) = before.next_if(|entry| entry.key < after.key) {
            steps.gone.push(gone.key);
        }
        if before.next_if(|entry| entry.key == after.key).is_none() {
            steps.put.push((after.key, after.value));
        }
    }
    steps.gone.extend(before.map(|entry| entry.key));
    Ok(())
}

fn steps(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    touched: &[usize],
    change: &Change,
    steps: &mut Steps,
) -> SqlResult<()> {
    let moved = change.old_key != change.new_key;
    for (position, index) in codec.secondary().iter().enumerate() {
        if !moved && !touched.contains(&position) {
            continue;
        }
        if index.inverted.is_some() {
            inverted_steps(codec, index, change, steps)?;
            continue;
        }
        let before = codec.index_entry(index, &change.old, &change.old_key)?;
        let after = codec.index_entry(index, &change.new, &change.new_key)?;
        if before == after {
            continue;
        }
        let after = after.filter(|_| index.is_written());
        let same_key = matches!((&before, &after), (Some(before), Some(after)) if before.key == after.key);
        // The key of another row may be in its place.
        let stays = same_key && !index.is_disputed();
        match before.filter(|_| !stays) {
            Some(before) if index.is_disputed() => steps.own.push((before.key, before.value)),
            Some(before) => steps.gone.push(before.key),
            None => {}
        }
        let Some(after) = after else { continue };
        note_unchecked(cx, codec, index, &after);
        if after.unique && !stays {
            steps.fresh.push(after.key.clone());
        }
        steps.put.push((after.key, after.value));
    }
    if moved {
        steps.gone.push(change.old_key.clone());
        steps.fresh.push(change.new_key.clone());
    }
    steps.put.push((change.new_key.clone(), codec.row_value(&change.new)?));
    Ok(())
}

/// Writes updated rows: all that goes, then the check of what must be new, then all that comes.
/// `touched` are the positions of the secondary indexes with a changed column.
pub(super) async fn update_rows(
    cx: &ExecContext<'_>,
    codec: &TableCodec,
    touched: &[usize],
    changes: &[Change],
) -> SqlResult<()> {
    let mut all = Steps::default();
    for change in changes {
        steps(cx, codec, touched, change, &mut all)?;
    }
    for key in all.gone {
        violation::write_error(cx, codec, kv::delete(cx, &key).await)?;
    }
    if !all.own.is_empty() {
        delete_own(cx, codec, all.own).await?;
    }
    if !all.fresh.is_empty() {
        require_absent(cx, codec, &all.fresh).await?;
    }
    for (key, value) in all.put {
        violation::write_error(cx, codec, kv::put(cx, &key, value).await)?;
    }
    Ok(())
}

/// Positions of the secondary indexes that depend on one of these columns (positions in the full row).
pub(super) fn touched_indexes(codec: &TableCodec, columns: &[usize]) -> Vec<usize> {
    let indexes = (0..).zip(codec.secondary());
    indexes.filter(|(_, index)| index.depends_on(columns)).map(|(position, _)| position).collect()
}
