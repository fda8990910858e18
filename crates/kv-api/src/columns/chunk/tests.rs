use super::*;
use crate::columns::fuzz::{program, row};
use crate::columns::{Reader, Unfit, sought};
use proptest::prelude::*;

/// A program run row by row, and over chunks of so many rows. Where a row cannot be read both stop before it.
fn both_ways(
    program: &Program,
    rows: &[(Vec<u8>, Vec<u8>)],
    size: usize,
) -> Option<[super::super::ColumnBatch; 2]> {
    let (mut one, mut other) = (Reader::new(program).ok()?, Reader::new(program).ok()?);
    let unfit = rows.iter().any(|(key, value)| one.take(key, value).is_err());
    let mut chunks = Vec::new();
    let mut other_unfit = false;
    for (key, value) in rows {
        if other.gather(key, value).is_err() {
            other_unfit = true;
            break;
        }
        if other.gathered().0 == size {
            chunks.push(other.take_gathered());
        }
    }
    chunks.push(other.take_gathered());
    for chunk in &chunks {
        other_unfit |= other.take_chunk(chunk) == Err(Unfit);
    }
    Some([one.finish(unfit), other.finish(other_unfit)])
}

/// Without bits of columns that have a value in every row, and what it says of rows behind the last one.
fn plain(mut batch: super::super::ColumnBatch) -> super::super::ColumnBatch {
    for column in &mut batch.columns {
        let rows = batch.rows as usize;
        if (0..rows).all(|row| column.validity.get(row / 8).is_none_or(|bits| bits >> (row % 8) & 1 == 1)) {
            column.validity = Bytes::new();
        }
    }
    batch
}

proptest! {
    #[test]
    fn chunks_give_what_rows_give(
        program in program(),
        rows in prop::collection::vec(row(), 0..20),
        size in 1..9usize,
    ) {
        let Some(program) = program else { return Ok(()) };
        if let Some([rows, chunks]) = both_ways(&program, &rows, size) {
            // An aggregation that fails has looked at more rows of the chunk.
            if program.aggregation.is_none() || !rows.unfit {
                prop_assert_eq!(plain(rows), plain(chunks));
            } else {
                prop_assert!(chunks.unfit && chunks.rows == 0);
            }
        }
    }
}

#[test]
fn integers_are_found_in_columns_of_every_width() {
    let filter = crate::columns::Constant { bytes: sought(&[7]).unwrap(), ..Default::default() };
    for (kind, values) in [
        (Kind::Int16, [7i16, -3].map(i16::to_le_bytes).concat()),
        (Kind::Int32, [7i32, -3].map(i32::to_le_bytes).concat()),
        (Kind::Int64, [7i64, -3].map(i64::to_le_bytes).concat()),
    ] {
        let wanted = super::super::Wanted { kind: kind as i32, number: 1, ..Default::default() };
        let condition = super::super::Condition {
            column: 0,
            comparison: super::super::Comparison::Sought as i32,
            constants: vec![filter.clone()],
            other: None,
        };
        let program = Program { columns: vec![wanted], conditions: vec![condition], ..Default::default() };
        let mut reader = Reader::new(&program).unwrap();
        let data = ColumnData { values: values.into(), ..Default::default() };
        reader.take_chunk(&Chunk { rows: 2, columns: vec![data.clone()] }).unwrap();
        assert_eq!((reader.rows(), reader.seen()), (1, 2), "{kind:?}");
        // A chunk of something else.
        assert_eq!(reader.take_chunk(&Chunk { rows: 3, columns: vec![data] }), Err(Unfit));
        assert_eq!(reader.take_chunk(&Chunk { rows: 2, columns: Vec::new() }), Err(Unfit));
    }
}

#[test]
fn columns_are_the_same_for_programs_that_read_them_alike() {
    let column = |from_key, number| super::super::Wanted { from_key, number, ..Default::default() };
    let program = |prefix_len, key: &[i32]| Program {
        prefix_len,
        key: key.to_vec(),
        columns: vec![column(true, 0), column(false, 4)],
        ..Default::default()
    };
    let (one, longer, elsewhere) = (program(2, &[0]), program(2, &[0, 1]), program(3, &[0]));
    assert_eq!(one.origins(), longer.origins());
    assert_ne!(one.origins()[0], elsewhere.origins()[0]);
    assert_eq!(one.origins()[1], elsewhere.origins()[1]);
    assert_ne!(one.origins()[0], one.origins()[1]);
}
