//! Scans as programs that KV nodes run ([`kv_api::columns`]).

use super::TableCodec;
use crate::catalog::descriptor::{ColumnId, IndexId, PRIMARY_INDEX};
use bytes::{Bytes, BytesMut};
use kv_api::columns::{KeyKind, Kind, Program, Wanted};
use sql_types::{Datum, SqlResult, Type, encoding};

/// A column as it is wanted.
#[derive(Clone, Copy, Debug)]
pub struct WantedColumn {
    /// Which.
    pub id: ColumnId,
    /// What it becomes.
    pub kind: Kind,
    /// How many decimals its values have.
    pub scale: u32,
}

impl TableCodec {
    /// The program that reads columns from an index, without conditions; none if the index does not have them, or
    /// programs cannot read them.
    pub fn program(&self, index: IndexId, wanted: &[WantedColumn]) -> SqlResult<Option<Program>> {
        let is_primary = index == PRIMARY_INDEX;
        let index = self.index(index)?;
        let mut key: Vec<(ColumnId, Type, bool)> = Vec::new();
        // The primary key's bytes follow in keys of indexes, but for unique ones.
        let behind = if is_primary || index.unique { &[][..] } else { &self.primary().columns[..] };
        for column in index.columns.iter().chain(behind) {
            key.push((column.id, column.ty, column.descending));
        }
        let (mut columns, mut steps) = (Vec::with_capacity(wanted.len()), 0);
        for WantedColumn { id, kind, scale } in wanted {
            let in_key = key.iter().position(|(found, ty, _)| found == id && encoding::key_is_exact(*ty));
            let (from_key, number) = match in_key {
                Some(position) => {
                    steps = steps.max(position + 1);
                    (true, position as u32)
                }
                None if is_primary => (false, *id),
                None => return Ok(None),
            };
            let missing = if from_key { Bytes::new() } else { self.missing_value(*id)? };
            columns.push(Wanted { from_key, number, kind: *kind as i32, scale: *scale, missing });
        }
        key.truncate(steps);
        let kinds =
            key.into_iter().map(|(_, ty, descending)| key_kind(ty, descending).map(|kind| kind as i32));
        let Some(key) = kinds.collect::<Option<Vec<i32>>>() else { return Ok(None) };
        let prefix_len = index.prefix.len() as u32;
        Ok(Some(Program { prefix_len, key, columns, ..Program::default() }))
    }

    /// What a row without a column has, encoded; empty for NULL.
    fn missing_value(&self, id: ColumnId) -> SqlResult<Bytes> {
        let value = self.table().position(id).and_then(|position| self.missing().get(position));
        let mut out = BytesMut::new();
        match value {
            None | Some(Datum::Null) => {}
            Some(value) => encoding::encode_value(value, &mut out)?,
        }
        Ok(out.freeze())
    }
}

/// What a key column is to a program, which knows no descending ones.
fn key_kind(ty: Type, descending: bool) -> Option<KeyKind> {
    match ty {
        _ if descending => None,
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID | Type::DATE => Some(KeyKind::Integer),
        Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ => Some(KeyKind::Integer),
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => Some(KeyKind::Bytes),
        _ => None,
    }
}
