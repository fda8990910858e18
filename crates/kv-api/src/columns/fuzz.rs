//! Programs and rows that nobody would send or store: they are refused, or read as something, and nothing worse.

use super::*;
use crate::encoding::encode_i64;
use crate::row::{self, tag};
use bytes::BytesMut;
use proptest::prelude::*;
use prost::Message;

/// Columns of the table: a key column, an integer, a number, a text, and an integer that old rows have not.
const NUMBERS: [u32; 4] = [0, 1, 2, 4];
const TEXT: u32 = 3;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(Bytes::from("a%_")), prop::collection::vec(any::<u8>(), 0..12).prop_map(Bytes::from)]
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![-3..4i64, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

fn one_of<T: Clone + std::fmt::Debug + 'static>(of: impl Into<Vec<T>>) -> impl Strategy<Value = T> {
    prop::sample::select(of.into())
}

fn some<S: Strategy>(what: S) -> impl Strategy<Value = Vec<S::Value>> {
    prop::collection::vec(what, 0..3)
}

fn columns() -> impl Strategy<Value = Vec<Wanted>> {
    let integers = || one_of([Kind::Int64, Kind::Int64, Kind::Int32, Kind::Int16, Kind::Bool]);
    let decimals = one_of([Kind::Decimal, Kind::Decimal, Kind::WideDecimal]);
    let kinds = (
        one_of([Kind::Int64, Kind::Int16]),
        integers(),
        decimals,
        one_of([Kind::Bytes, Kind::Trimmed]),
        integers(),
    );
    kinds.prop_map(|(key, integer, decimal, text, late)| {
        let column = |number, kind: Kind, scale| Wanted {
            from_key: number == 0,
            number,
            kind: kind as i32,
            scale,
            missing: Bytes::new(),
        };
        vec![
            column(0, key, 0),
            column(1, integer, 0),
            column(2, decimal, 2),
            column(TEXT, text, 0),
            column(4, late, 0),
        ]
    })
}

fn condition() -> impl Strategy<Value = Condition> {
    let simple = (0..5u32, 0..8i32, prop::option::weighted(0.1, one_of([1, 4])));
    let pattern = (Just(TEXT), 8..10i32, Just(None));
    let constants = prop::collection::vec(
        (integer(), bytes()).prop_map(|(integer, bytes)| Constant { integer, bytes }),
        1,
    );
    (prop_oneof![3 => simple, 1 => pattern], constants).prop_map(
        |((column, comparison, other), constants)| Condition { column, comparison, constants, other },
    )
}

fn choice() -> impl Strategy<Value = Choice> {
    some(some(condition()).prop_map(|conditions| Branch { conditions }))
        .prop_map(|branches| Choice { branches })
}

fn aggregation() -> impl Strategy<Value = Aggregation> {
    let kinds = [Kind::Int16, Kind::Int32, Kind::Int64, Kind::WideDecimal].map(|kind| kind as i32);
    let computation = (0..4i32, one_of([0u32, 2]), one_of(NUMBERS), integer(), one_of(kinds)).prop_map(
        |(operation, left, right, constant, kind)| Computation { operation, left, right, constant, kind },
    );
    let of_number = (0..5i32, one_of([0u32, 2]));
    let of_text = (one_of([0i32, 1, 3, 4]), Just(TEXT));
    let partial = (prop_oneof![of_number, of_text], some(condition()), some(choice()))
        .prop_map(|((fold, value), conditions, choices)| Partial { fold, value, conditions, choices });
    (some(computation), some(0..5u32), some(partial))
        .prop_map(|(computations, groups, partials)| Aggregation { computations, groups, partials })
}

/// A program as one may be sent, and one byte of it changed at times.
pub(super) fn program() -> impl Strategy<Value = Option<Program>> {
    let parts = (
        prop_oneof![1 => Just(0u32), 9 => Just(1)],
        columns(),
        some(condition()),
        some(choice()),
        prop::option::of(aggregation()),
    );
    let change = prop::option::of((any::<prop::sample::Index>(), any::<u8>()));
    (parts, change).prop_map(|((prefix_len, columns, conditions, choices, aggregation), change)| {
        let key = vec![KeyKind::Integer as i32];
        let mut sent = Program { prefix_len, key, columns, conditions, choices, aggregation }.encode_to_vec();
        if let Some((at, byte)) = change {
            let at = at.index(sent.len());
            sent[at] = byte;
        }
        Program::decode(&sent[..]).ok()
    })
}

/// A row that may be one, with some of its bytes changed at times.
pub(super) fn row() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let digits = prop_oneof![3 => 0..300i64, 1 => integer()];
    let columns = prop::collection::vec(prop::option::weighted(0.9, digits), 4);
    let key = prop_oneof![3 => 0..9i64, 1 => integer()];
    let change = (any::<prop::sample::Index>(), any::<u8>());
    (key, columns, prop::option::weighted(0.1, change), prop::collection::vec(any::<u8>(), 0..2)).prop_map(
        |(key, columns, change, behind)| {
            let mut encoded = BytesMut::from(&b"p"[..]);
            encode_i64(key, &mut encoded);
            let mut value = vec![row::ROW_FORMAT];
            for (number, digits) in (1..5).zip(columns) {
                let Some(digits) = digits else { continue };
                let (kind, scale): (u8, &[u8]) = match number {
                    2 => (tag::NUMERIC, &[0, 2]),
                    3 => (tag::BYTES, &[]),
                    _ => (tag::INTEGER, &[]),
                };
                let digits = digits.to_be_bytes();
                // Texts and integers may be shorter than eight bytes.
                let length = if scale.is_empty() { 1 + usize::from(digits[7]) % 4 } else { 8 };
                let high = if scale.is_empty() { length } else { length - 1 };
                let head = kind | (high as u8) << 4;
                value.extend([number, (scale.len() + length + 2) as u8, head]);
                value.extend(scale);
                value.extend(&digits[..length]);
            }
            if let Some((at, byte)) = change {
                let at = at.index(value.len());
                value[at] = byte;
            }
            encoded.extend(behind);
            (encoded.to_vec(), value)
        },
    )
}

proptest! {
    #[test]
    fn no_program_and_no_row_panics(program in program(), rows in prop::collection::vec(row(), 0..8)) {
        let Some(program) = program else { return Ok(()) };
        let Ok(mut reader) = Reader::new(&program) else { return Ok(()) };
        let mut unfit = false;
        for (key, value) in &rows {
            unfit |= reader.take(key, value).is_err();
        }
        let (rows, groups) = (reader.rows(), program.aggregation.is_some());
        let batch = reader.finish(unfit);
        if !groups {
            prop_assert_eq!(batch.rows, rows);
        }
        let columns = match &program.aggregation {
            Some(aggregation) => aggregation.groups.len() + aggregation.partials.len(),
            None => program.columns.len(),
        };
        prop_assert!(batch.columns.len() == columns || groups && unfit);
    }

    #[test]
    fn no_bytes_panic(sent in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(program) = Program::decode(&sent[..])
            && let Ok(mut reader) = Reader::new(&program)
        {
            let _ = reader.take(&sent, &sent);
            reader.finish(false);
        }
    }
}
