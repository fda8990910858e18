//! [`TableCodec`]: the layout of one table, compiled.

use super::{Projection, bind_generated, bound_index, index_env, literal};
use crate::catalog::descriptor::{
    ColumnId, EXPRESSION, IndexDescriptor, IndexId, IndexState, PRIMARY_INDEX, TableDescriptor,
};
use crate::exec::eval::{eval, is_true};
use crate::inverted::OperatorClass;
use crate::inverted::tokens::{Token, tokens};
use crate::optimize::fold::fold_expr;
use crate::plan::Expr;
use bytes::{BufMut, Bytes, BytesMut};
use kv_api::Span;
use kv_api::row::ROW_FORMAT;
use parking_lot::Mutex;
use sql_types::{ColumnType, Datum, Row, SqlError, SqlResult, SqlState, Type, encoding};
use std::sync::Arc;

/// First byte of an index entry's value.
pub const ENTRY_FORMAT: u8 = 1;

/// A column of an index key.
#[derive(Clone, Debug)]
pub struct KeyColumn {
    /// Position in the full row; none has that of an expression, `usize::MAX`.
    pub position: usize,
    /// Its id; [`EXPRESSION`] for an expression.
    pub id: ColumnId,
    /// The expression over the full row, if it is one.
    pub expr: Option<Expr>,
    /// Its type.
    pub ty: Type,
    /// Descending.
    pub descending: bool,
}

/// The layout of one index.
#[derive(Clone, Debug)]
pub struct IndexCodec {
    /// Its id.
    pub id: IndexId,
    /// Whether its keys are unique, NULLs aside unless they are not distinct.
    pub unique: bool,
    /// Whether NULL counts as a value where keys are unique.
    pub nulls_not_distinct: bool,
    /// Whether its values shall be unique, NULLs aside, but are checked after they are written.
    pub checked_later: bool,
    /// Whether a foreign key may refer to its columns.
    pub is_key: bool,
    /// What statements do with it.
    pub state: IndexState,
    /// What a row satisfies to be in it.
    pub predicate: Option<Expr>,
    /// What all its keys start with.
    pub prefix: Bytes,
    /// Its key columns. Those of an inverted index are one for the token.
    pub columns: Vec<KeyColumn>,
    /// What an inverted index has tokens of.
    pub inverted: Option<(OperatorClass, KeyColumn)>,
}

/// A column kept in the row's value.
#[derive(Clone, Debug)]
pub(super) struct ValueColumn {
    pub position: usize,
    pub id: ColumnId,
    pub explicit_null: bool,
}

/// The layout of one table.
#[derive(Debug)]
pub struct TableCodec {
    table: Arc<TableDescriptor>,
    indexes: Vec<IndexCodec>,
    values: Vec<ValueColumn>,
    all_columns: Vec<ColumnId>,
    /// By position in the full row: what a row without the column has.
    missing: Vec<Datum>,
    /// The columns that are computed from others: their positions in the full row, and how.
    generated: Vec<(usize, Expr)>,
    /// Projections made so far, for the plans that come again and again.
    projections: Mutex<Vec<CachedProjection>>,
}

/// A projection and what it is for.
#[derive(Debug)]
struct CachedProjection {
    index: IndexId,
    columns: Vec<ColumnId>,
    projection: Arc<Projection>,
}

/// Projections kept at most.
const CACHED_PROJECTIONS: usize = 32;

/// An index entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// Whether the key may not be there before.
    pub unique: bool,
    /// The key without what names the row, if uniqueness is to be checked once it is written.
    pub unchecked: Option<Bytes>,
}

pub(super) fn corrupt(what: &str) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("stored data is damaged: {what}"))
}

impl IndexCodec {
    fn new(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> SqlResult<Self> {
        let bound = if index.is_plain() { None } else { bound_index(table, index.id)? };
        let mut prefix = BytesMut::new();
        kv_api::encoding::encode_u64(table.storage, &mut prefix);
        kv_api::encoding::encode_u64(u64::from(index.id), &mut prefix);
        let missing = || SqlError::internal(format!("index \"{}\" refers to a missing column", index.name));
        let mut columns = Vec::with_capacity(index.columns.len());
        for (number, (id, expression, descending)) in index.parts().enumerate() {
            let column = match expression {
                Some(expression) => {
                    let expr = bound.as_ref().and_then(|bound| bound.columns.get(number)?.clone());
                    let expr = Some(expr.ok_or_else(missing)?);
                    KeyColumn { position: usize::MAX, id: EXPRESSION, expr, ty: expression.ty, descending }
                }
                None => {
                    let position = table.position(id).ok_or_else(missing)?;
                    let ty = table.columns[position].ty.ty;
                    KeyColumn { position, id, expr: None, ty, descending }
                }
            };
            columns.push(column);
        }
        let predicate = bound.and_then(|bound| Expr::conjunction(bound.conditions.clone()));
        let inverted = match index.inverted {
            Some(class) => Some((
                class,
                std::mem::replace(&mut columns, vec![token_column()]).pop().ok_or_else(missing)?,
            )),
            None => None,
        };
        Ok(IndexCodec {
            id: index.id,
            unique: index.unique && !index.timing.deferrable,
            nulls_not_distinct: index.nulls_not_distinct,
            checked_later: index.unique && index.timing.deferrable,
            is_key: index.is_key(),
            state: index.state,
            predicate,
            prefix: prefix.freeze(),
            columns,
            inverted,
        })
    }

    /// Whether rows that are written get entries.
    pub fn is_written(&self) -> bool {
        self.state != IndexState::DeleteOnly
    }

    /// Whether an entry under the key of a row may be that of another row: rows without entries may have the same
    /// values. So it is while a unique index is built.
    pub fn is_disputed(&self) -> bool {
        self.unique && !self.state.is_public()
    }

    /// Whether a full row is in the index.
    pub fn has(&self, row: &[Datum]) -> SqlResult<bool> {
        self.predicate.as_ref().map_or(Ok(true), |predicate| is_true(predicate, row, &index_env()))
    }

    /// Whether an entry depends on one of these columns, given by their positions in the full row.
    pub fn depends_on(&self, positions: &[usize]) -> bool {
        let reads = |expr: &Expr| {
            let mut found = false;
            expr.columns(&mut |column| found |= positions.contains(&column));
            found
        };
        let columns = self.columns.iter().chain(self.inverted.iter().map(|(_, column)| column));
        self.predicate.as_ref().is_some_and(reads)
            || columns.into_iter().any(|column| match &column.expr {
                Some(expr) => reads(expr),
                None => positions.contains(&column.position),
            })
    }

    /// What the keys of the entries of a token of an inverted index begin with.
    pub fn token_prefix(&self, token: &[u8]) -> SqlResult<Bytes> {
        let mut key = BytesMut::with_capacity(self.prefix.len() + token.len() + 4);
        key.put_slice(&self.prefix);
        encoding::encode_key(&Datum::Bytea(Bytes::copy_from_slice(token)), false, &mut key)?;
        Ok(key.freeze())
    }

    /// All keys of the index.
    pub fn span(&self) -> Span {
        Span::new(self.prefix.clone(), kv_api::key::prefix_end(&self.prefix).unwrap_or_default())
    }

    /// Appends the key columns of a full row; whether one of them is NULL.
    pub fn encode_columns(&self, row: &[Datum], out: &mut BytesMut) -> SqlResult<bool> {
        let mut has_null = false;
        for column in &self.columns {
            match &column.expr {
                None => {
                    let value = &row[column.position];
                    has_null |= value.is_null();
                    encoding::encode_key(value, column.descending, out)?;
                }
                Some(expr) => {
                    let value = eval(expr, row, &index_env())?;
                    has_null |= value.is_null();
                    encoding::encode_key(&value, column.descending, out)?;
                }
            }
        }
        Ok(has_null)
    }

    /// The key columns of a row of this index, of which `key` is the full key. What follows them is
    /// returned too: the primary key's bytes, or nothing.
    pub fn decode_columns<'k>(&self, key: &'k [u8]) -> SqlResult<(Row, &'k [u8])> {
        let mut rest = key.strip_prefix(&self.prefix[..]).ok_or_else(|| corrupt("a key of another index"))?;
        let decode = |column: &KeyColumn| encoding::decode_key(column.ty, column.descending, &mut rest);
        let row = self.columns.iter().map(decode).collect::<SqlResult<Row>>()?;
        Ok((row, rest))
    }
}

/// The column that the entries of an inverted index have.
fn token_column() -> KeyColumn {
    KeyColumn { position: usize::MAX, id: EXPRESSION, expr: None, ty: Type::BYTEA, descending: false }
}

/// The entries of a row in an index.
#[derive(Debug)]
pub enum Entries {
    /// Of an ordered index.
    One(Option<Entry>),
    /// Of an inverted one.
    Many(std::vec::IntoIter<Entry>),
}

impl Iterator for Entries {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        match self {
            Entries::One(entry) => entry.take(),
            Entries::Many(entries) => entries.next(),
        }
    }
}

impl TableCodec {
    /// Compiles a descriptor.
    pub fn new(table: Arc<TableDescriptor>) -> SqlResult<Self> {
        let indexes = table
            .indexes
            .iter()
            .map(|index| IndexCodec::new(&table, index))
            .collect::<SqlResult<Vec<_>>>()?;
        let primary = indexes
            .first()
            .filter(|index| index.id == PRIMARY_INDEX)
            .ok_or_else(|| SqlError::internal(format!("table \"{}\" has no primary index", table.name)))?;
        let in_key = |id: ColumnId| {
            primary.columns.iter().any(|column| column.id == id && encoding::key_is_exact(column.ty))
        };
        let mut values: Vec<ValueColumn> = (0..)
            .zip(&table.columns)
            .filter(|(_, column)| !in_key(column.id))
            .map(|(position, column)| ValueColumn {
                position,
                id: column.id,
                explicit_null: column.added_value.is_some(),
            })
            .collect();
        values.sort_by_key(|column| column.id);
        let missing = table
            .columns
            .iter()
            .map(|column| {
                column.added_value.as_ref().map_or(Ok(Datum::Null), |text| literal::parse(text, column.ty))
            })
            .collect::<SqlResult<_>>()?;
        let all_columns = table.columns.iter().map(|column| column.id).collect();
        let generated = (0..)
            .zip(&table.columns)
            .filter_map(|(position, column)| Some((position, column, column.generated.as_ref()?)))
            .map(|(position, column, text)| {
                let mut bound = bind_generated(text, &table, column)?;
                fold_expr(&mut bound);
                Ok((position, bound))
            })
            .collect::<SqlResult<_>>()?;
        let projections = Mutex::default();
        Ok(TableCodec { table, indexes, values, all_columns, missing, generated, projections })
    }

    /// Computes the generated columns of a full row whose other columns are there.
    ///
    /// # Errors
    /// What computing one of them fails with.
    pub fn generate(&self, row: &mut [Datum]) -> SqlResult<()> {
        for (position, expr) in &self.generated {
            row[*position] = eval(expr, row, &index_env())?;
        }
        Ok(())
    }

    /// Adds to columns that change, given by position, the generated columns that depend on them.
    pub fn add_generated(&self, changed: &mut Vec<usize>) {
        for (position, expr) in &self.generated {
            let mut depends = false;
            expr.columns(&mut |column| depends |= changed.contains(&column));
            if depends && !changed.contains(position) {
                changed.push(*position);
            }
        }
    }

    /// The table.
    pub fn table(&self) -> &Arc<TableDescriptor> {
        &self.table
    }

    /// The primary index.
    pub fn primary(&self) -> &IndexCodec {
        &self.indexes[0]
    }

    /// The secondary indexes.
    pub fn secondary(&self) -> &[IndexCodec] {
        &self.indexes[1..]
    }

    /// An index by id.
    pub fn index(&self, id: IndexId) -> SqlResult<&IndexCodec> {
        self.indexes
            .iter()
            .find(|index| index.id == id)
            .ok_or_else(|| SqlError::internal(format!("table \"{}\" has no index {id}", self.table.name)))
    }

    /// Type of the column at a position of the full row.
    pub fn column_type(&self, position: usize) -> ColumnType {
        self.table.columns[position].ty
    }

    pub(super) fn missing(&self) -> &[Datum] {
        &self.missing
    }

    /// The key of a full row.
    pub fn row_key(&self, row: &[Datum]) -> SqlResult<Bytes> {
        let primary = self.primary();
        let mut key = BytesMut::with_capacity(primary.prefix.len() + 12 * primary.columns.len());
        key.put_slice(&primary.prefix);
        primary.encode_columns(row, &mut key)?;
        check_key(key.freeze(), &self.table.name)
    }

    /// The key of the row whose primary key columns have these bytes (the end of an index entry).
    pub fn row_key_of(&self, primary_bytes: &[u8]) -> Bytes {
        let prefix = &self.primary().prefix;
        let mut key = BytesMut::with_capacity(prefix.len() + primary_bytes.len());
        key.put_slice(prefix);
        key.put_slice(primary_bytes);
        key.freeze()
    }

    /// The bytes of the primary key columns within a row's key.
    pub fn primary_bytes<'k>(&self, row_key: &'k [u8]) -> &'k [u8] {
        row_key.get(self.primary().prefix.len()..).unwrap_or_default()
    }

    /// The value of a full row.
    pub fn row_value(&self, row: &[Datum]) -> SqlResult<Bytes> {
        let mut out = BytesMut::with_capacity(8 + 12 * self.values.len());
        out.put_u8(ROW_FORMAT);
        for column in &self.values {
            match &row[column.position] {
                Datum::Null if !column.explicit_null => {}
                Datum::Null => {
                    put_varint(column.id as usize, &mut out);
                    out.put_u8(0);
                }
                value => {
                    put_varint(column.id as usize, &mut out);
                    put_sized(value, &mut out)?;
                }
            }
        }
        Ok(out.freeze())
    }

    /// The entry of a full row in an ordered secondary index, if it has one. `row_key` is the row's own key.
    pub fn index_entry(&self, index: &IndexCodec, row: &[Datum], row_key: &[u8]) -> SqlResult<Option<Entry>> {
        if !index.has(row)? {
            return Ok(None);
        }
        let primary_bytes = self.primary_bytes(row_key);
        let mut key =
            BytesMut::with_capacity(index.prefix.len() + 12 * index.columns.len() + primary_bytes.len());
        key.put_slice(&index.prefix);
        let has_null = index.encode_columns(row, &mut key)? && !index.nulls_not_distinct;
        let values_end = key.len();
        if !index.unique || has_null {
            key.put_slice(primary_bytes);
        }
        let mut value = BytesMut::with_capacity(1 + if index.unique { primary_bytes.len() } else { 0 });
        value.put_u8(ENTRY_FORMAT);
        if index.unique {
            value.put_slice(primary_bytes);
        }
        let key = check_key(key.freeze(), &self.table.name)?;
        let unchecked = (index.checked_later && !has_null).then(|| key.slice(..values_end));
        Ok(Some(Entry { key, value: value.freeze(), unique: index.unique && !has_null, unchecked }))
    }

    /// The entries of a full row in a secondary index; those of an inverted one in ascending order of their keys.
    ///
    /// # Errors
    /// What computing an expression of the index fails with; 54000 for a key that is too long.
    pub fn index_entries(&self, index: &IndexCodec, row: &[Datum], row_key: &[u8]) -> SqlResult<Entries> {
        let Some((class, column)) = &index.inverted else {
            return self.index_entry(index, row, row_key).map(Entries::One);
        };
        if !index.has(row)? {
            return Ok(Entries::One(None));
        }
        let tokens = match &column.expr {
            None => tokens(*class, row.get(column.position).unwrap_or(&Datum::Null))?,
            Some(expr) => tokens(*class, &eval(expr, row, &index_env())?)?,
        };
        let primary_bytes = self.primary_bytes(row_key);
        let entry = |token: Token| {
            let mut key = BytesMut::from(index.token_prefix(&token)?);
            key.put_slice(primary_bytes);
            let key = check_key(key.freeze(), &self.table.name)?;
            let value = Bytes::from_static(&[ENTRY_FORMAT]);
            Ok(Entry { key, value, unique: false, unchecked: None })
        };
        let entries = tokens.into_iter().map(entry).collect::<SqlResult<Vec<_>>>()?;
        Ok(Entries::Many(entries.into_iter()))
    }

    /// The bytes of the primary key columns that an entry of a secondary index holds.
    pub fn entry_primary_bytes(&self, index: &IndexCodec, key: &[u8], value: &[u8]) -> SqlResult<Bytes> {
        if index.unique {
            return match value.split_first() {
                Some((&ENTRY_FORMAT, bytes)) => Ok(Bytes::copy_from_slice(bytes)),
                _ => Err(corrupt("an index entry of an unknown format")),
            };
        }
        let (_, rest) = index.decode_columns(key)?;
        Ok(Bytes::copy_from_slice(rest))
    }

    /// The projection of an index to some columns.
    pub fn projection(&self, index: IndexId, columns: &[ColumnId]) -> SqlResult<Arc<Projection>> {
        let mut cached = self.projections.lock();
        if let Some(found) = cached.iter().find(|entry| entry.index == index && entry.columns == columns) {
            return Ok(found.projection.clone());
        }
        let projection = Arc::new(Projection::new(self, index, columns)?);
        if cached.len() >= CACHED_PROJECTIONS {
            cached.remove(0);
        }
        cached.push(CachedProjection { index, columns: columns.to_vec(), projection: projection.clone() });
        Ok(projection)
    }

    /// The projection of rows to all columns.
    pub fn full_projection(&self) -> SqlResult<Arc<Projection>> {
        self.projection(PRIMARY_INDEX, &self.all_columns)
    }

    /// The full row under a key.
    pub fn decode_row(&self, key: &[u8], value: &[u8]) -> SqlResult<Row> {
        self.full_projection()?.decode(self, key, value)
    }

    /// All keys of the table: rows and all indexes.
    pub fn span(&self) -> Span {
        storage_span(self.table.storage)
    }
}

/// Refuses keys longer than the key-value store takes.
fn check_key(key: Bytes, table: &str) -> SqlResult<Bytes> {
    const LONGEST: usize = kv_api::key::MAX_KEY_LEN - kv_api::key::TENANT_PREFIX_LEN;
    if key.len() <= LONGEST {
        return Ok(key);
    }
    let message = format!("index row size {} exceeds maximum {LONGEST} for table \"{table}\"", key.len());
    Err(SqlError::new(SqlState::PROGRAM_LIMIT, message)
        .with_hint("Index a shorter value, for example its md5."))
}

/// All keys under one storage number.
pub fn storage_span(storage: u64) -> Span {
    let mut prefix = BytesMut::new();
    kv_api::encoding::encode_u64(storage, &mut prefix);
    let end = kv_api::key::prefix_end(&prefix).unwrap_or_default();
    Span::new(prefix.freeze(), end)
}

/// The storage number and index a key belongs to, and the rest of the key.
pub fn split_key(key: &[u8]) -> Option<(u64, IndexId, &[u8])> {
    let mut rest = key;
    let storage = kv_api::encoding::decode_u64(&mut rest)?;
    let index = u32::try_from(kv_api::encoding::decode_u64(&mut rest)?).ok()?;
    Some((storage, index, rest))
}

fn put_varint(mut value: usize, out: &mut BytesMut) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Length plus one, then the value. The length is written after the value is: mostly it takes one
/// byte, which is left free.
fn put_sized(value: &Datum, out: &mut BytesMut) -> SqlResult<()> {
    let start = out.len();
    out.put_u8(0);
    encoding::encode_value(value, out)?;
    let len = out.len() - start;
    if len < 0x80 {
        out[start] = len as u8;
        return Ok(());
    }
    let bytes = out.split_off(start + 1);
    out.truncate(start);
    put_varint(len, out);
    out.unsplit(bytes);
    Ok(())
}
