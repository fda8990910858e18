//! [`Projection`]: which columns a scan wants and where each comes from.

use super::codec::{ENTRY_FORMAT, TableCodec, corrupt};
use crate::catalog::descriptor::{ColumnId, IndexId, PRIMARY_INDEX};
use kv_api::row::Columns;
use sql_types::{Datum, Row, SqlError, SqlResult, Type, encoding};

const UNWANTED: u32 = u32::MAX;

/// Where a column of the result lies.
#[derive(Clone, Copy, Debug)]
struct KeyStep {
    ty: Type,
    descending: bool,
    /// Column of the result, or [`UNWANTED`] to skip.
    slot: u32,
}

/// A program that decodes the wanted columns of a key and its value, in one pass over each.
#[derive(Clone, Debug)]
pub struct Projection {
    prefix_len: usize,
    is_primary: bool,
    /// Key columns up to the last one wanted.
    key: Vec<KeyStep>,
    /// By column id: column of the result and type; short of what is not wanted.
    value: Vec<(u32, Type)>,
    /// How many columns are wanted from the value.
    from_value: usize,
    /// What a result starts as, for columns the row lacks.
    blank: Row,
    /// Whether `blank` is all NULL.
    covering: bool,
}

impl Projection {
    /// The wanted columns from rows (`index` primary), or from entries of a secondary index. In the
    /// latter case columns the entry lacks stay NULL and [`Projection::covering`] is false.
    pub fn new(codec: &TableCodec, index: IndexId, columns: &[ColumnId]) -> SqlResult<Self> {
        let is_primary = index == PRIMARY_INDEX;
        let index = codec.index(index)?;
        let mut key: Vec<KeyStep> = Vec::with_capacity(index.columns.len());
        let mut found = vec![false; columns.len()];
        let mut wanted_from_key = |id: ColumnId, ty: Type| {
            let slot = columns.iter().position(|wanted| *wanted == id).filter(|_| encoding::key_is_exact(ty));
            slot.filter(|slot| !std::mem::replace(&mut found[*slot], true))
                .map_or(UNWANTED, |slot| slot as u32)
        };
        for column in &index.columns {
            let slot = wanted_from_key(column.id, column.ty);
            key.push(KeyStep { ty: column.ty, descending: column.descending, slot });
        }
        if !is_primary {
            // The primary key's bytes follow: in the key, or for unique indexes in the value.
            for column in &codec.primary().columns {
                let slot = wanted_from_key(column.id, column.ty);
                key.push(KeyStep { ty: column.ty, descending: column.descending, slot });
            }
        }
        let covering = is_primary || found.iter().all(|found| *found);
        let steps = key.iter().rposition(|step| step.slot != UNWANTED).map_or(0, |last| last + 1);
        if is_primary {
            key.truncate(steps);
        }
        let mut value = Vec::new();
        let mut from_value = 0;
        let mut blank = Vec::with_capacity(columns.len());
        for (slot, id) in columns.iter().enumerate() {
            let position = codec.table().position(*id).ok_or_else(|| {
                SqlError::internal(format!("table \"{}\" has no column {id}", codec.table().name))
            })?;
            let missing = if found[slot] { Datum::Null } else { codec.missing()[position].clone() };
            blank.push(missing);
            if is_primary && !found[slot] {
                let id = *id as usize;
                if value.len() <= id {
                    value.resize(id + 1, (UNWANTED, Type(0)));
                }
                value[id] = (slot as u32, codec.column_type(position).ty);
                from_value += 1;
            }
        }
        Ok(Projection { prefix_len: index.prefix.len(), is_primary, key, value, from_value, blank, covering })
    }

    /// Whether every wanted column comes out of the key and value this projection reads.
    pub fn covering(&self) -> bool {
        self.covering
    }

    /// The wanted columns of one entry.
    pub fn decode(&self, codec: &TableCodec, key: &[u8], value: &[u8]) -> SqlResult<Row> {
        let mut row = self.blank.clone();
        let rest = key.get(self.prefix_len..).ok_or_else(|| corrupt("a key that is too short"))?;
        if self.is_primary {
            self.decode_key(rest, &[], &mut row)?;
            self.decode_value(value, &mut row)?;
        } else {
            let Some((&ENTRY_FORMAT, tail)) = value.split_first() else {
                return Err(corrupt(&format!("an index entry of table \"{}\"", codec.table().name)));
            };
            self.decode_key(rest, tail, &mut row)?;
        }
        Ok(row)
    }

    /// Decodes key columns from `rest`, and from `tail` once `rest` has no more.
    fn decode_key<'k>(&self, mut rest: &'k [u8], mut tail: &'k [u8], row: &mut Row) -> SqlResult<()> {
        for step in &self.key {
            if rest.is_empty() {
                rest = std::mem::take(&mut tail);
            }
            if step.slot == UNWANTED {
                encoding::skip_key(step.ty, step.descending, &mut rest)?;
            } else {
                row[step.slot as usize] = encoding::decode_key(step.ty, step.descending, &mut rest)?;
            }
        }
        Ok(())
    }

    fn decode_value(&self, value: &[u8], row: &mut Row) -> SqlResult<()> {
        let mut columns = Columns::of(value).ok_or_else(|| corrupt("a row of an unknown format"))?;
        let mut left = self.from_value;
        while left > 0
            && let Some((id, found)) = columns.next_column().ok_or_else(|| corrupt("a row"))?
        {
            let Some(&(slot, ty)) = self.value.get(id).filter(|(slot, _)| *slot != UNWANTED) else {
                continue;
            };
            left -= 1;
            row[slot as usize] = match found {
                Some(mut bytes) => encoding::decode_value(ty, &mut bytes)?,
                None => Datum::Null,
            };
        }
        Ok(())
    }
}
