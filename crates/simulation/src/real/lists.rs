//! How lists are stored: as rows, so that they can be read as columns too.
//!
//! A list is a row of two columns ([`kv_api::row`]): which list it is, and its numbers as bytes.

use bytes::Bytes;
use kv_api::columns::{ColumnBatch, Kind, Program, Wanted};
use kv_api::row::{Columns, ROW_FORMAT, integer, tag, take_payload};
use std::collections::BTreeMap;

/// The column with the number of the list.
const KEY: u8 = 1;
/// The column with its numbers.
const NUMBERS: u8 = 2;
/// A tag says so of bytes whose length follows.
const LENGTH_FOLLOWS: u8 = 15 << 4;

/// A list as a row.
pub fn encode(key: u64, numbers: &[u64]) -> Bytes {
    let key = key.to_be_bytes();
    let key = [&[tag::INTEGER | (key.len() as u8) << 4], &key[..]].concat();
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    let mut value = vec![tag::BYTES | LENGTH_FOLLOWS];
    put_length(numbers.len(), &mut value);
    value.extend(numbers);
    let mut row = vec![ROW_FORMAT];
    for (number, value) in [(KEY, key), (NUMBERS, value)] {
        row.push(number);
        put_length(value.len() + 1, &mut row);
        row.extend(value);
    }
    row.into()
}

/// The numbers of a list; none if they are torn.
pub fn decode(row: &[u8]) -> Option<Vec<u64>> {
    let mut columns = Columns::of(row)?;
    while let Some((number, value)) = columns.next_column()? {
        if number == usize::from(NUMBERS) {
            let (_, payload) = take_payload(&mut value?)?;
            return numbers(payload);
        }
    }
    None
}

/// What reads lists as columns.
pub fn program() -> Program {
    let wanted =
        |number: u8, kind: Kind| Wanted { number: number.into(), kind: kind as i32, ..Wanted::default() };
    Program { columns: vec![wanted(KEY, Kind::Int64), wanted(NUMBERS, Kind::Bytes)], ..Program::default() }
}

/// The lists that such columns are; none if they are torn.
pub fn of_columns(batch: &ColumnBatch) -> Option<BTreeMap<u64, Vec<u64>>> {
    let [keys, lists] = &batch.columns[..] else { return (batch.rows == 0).then(BTreeMap::new) };
    let (keys, rest) = keys.values.as_chunks::<8>();
    let (offsets, others) = lists.offsets.as_chunks::<4>();
    let rows = usize::try_from(batch.rows).ok()?;
    if batch.unfit
        || !rest.is_empty()
        || !others.is_empty()
        || keys.len() != rows
        || offsets.len() != rows + 1
    {
        return None;
    }
    let offset = |at: &[u8; 4]| usize::try_from(u32::from_le_bytes(*at)).ok();
    let mut found = BTreeMap::new();
    for (key, ends) in keys.iter().zip(offsets.windows(2)) {
        let bytes = lists.values.get(offset(&ends[0])?..offset(&ends[1])?)?;
        found.insert(u64::from_le_bytes(*key), numbers(bytes)?);
    }
    (found.len() == rows).then_some(found)
}

fn numbers(bytes: &[u8]) -> Option<Vec<u64>> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    rest.is_empty().then(|| numbers.iter().map(|number| integer(number) as u64).collect())
}

fn put_length(mut length: usize, into: &mut Vec<u8>) {
    while length >= 0x80 {
        into.push(length as u8 | 0x80);
        length >>= 7;
    }
    into.push(length as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv_api::columns::Reader;

    #[test]
    fn lists_are_read_as_rows_and_as_columns() {
        let lists: BTreeMap<u64, Vec<u64>> =
            [(0, vec![]), (3, vec![u64::MAX, 7]), (9, (0..1000).collect())].into();
        let mut reader = Reader::new(&program()).unwrap();
        for (key, numbers) in &lists {
            let row = encode(*key, numbers);
            assert_eq!(decode(&row).as_ref(), Some(numbers));
            assert_eq!(decode(&row[..row.len() - 1]), None);
            assert!(reader.take(b"", &row).is_ok());
        }
        assert_eq!(of_columns(&reader.finish(false)), Some(lists));
        assert_eq!(of_columns(&ColumnBatch { unfit: true, ..ColumnBatch::default() }), Some(BTreeMap::new()));
    }
}
