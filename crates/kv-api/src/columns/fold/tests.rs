use super::*;
use crate::columns::{
    Branch, Choice, ColumnBatch, Comparison, Computation, Condition, Constant, KeyKind, Partial, Program,
    Reader,
};
use crate::encoding::encode_i64;
use crate::row::{self, tag};
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A row: an integer in the key, then one that may be NULL, a number with two decimals, and a text that may be NULL.
type TestRow = (i64, Option<i16>, i64, Option<&'static str>);

const KEY: usize = 0;
const INTEGER: usize = 1;
const NUMBER: usize = 2;
const TEXT: usize = 3;

fn encode((key, integer, number, text): &TestRow) -> (BytesMut, Vec<u8>) {
    let mut encoded = BytesMut::from(&b"p"[..]);
    encode_i64(*key, &mut encoded);
    let mut value = vec![row::ROW_FORMAT];
    if let Some(integer) = integer {
        value.extend([1, 4, tag::INTEGER | 0x20]);
        value.extend(integer.to_be_bytes());
    }
    value.extend([2, 12, tag::NUMERIC | 0x70, 0, 2]);
    value.extend(number.to_be_bytes());
    if let Some(text) = text {
        value.extend([3, text.len() as u8 + 2, tag::BYTES | (text.len() as u8) << 4]);
        value.extend(text.as_bytes());
    }
    (encoded, value)
}

fn wanted(from_key: bool, number: u32, kind: Kind, scale: u32) -> Wanted {
    Wanted { from_key, number, kind: kind as i32, scale, missing: Bytes::new() }
}

fn program(aggregation: Aggregation) -> Program {
    Program {
        prefix_len: 1,
        key: vec![KeyKind::Integer as i32],
        columns: vec![
            wanted(true, 0, Kind::Int64, 0),
            wanted(false, 1, Kind::Int16, 0),
            wanted(false, 2, Kind::Decimal, 2),
            wanted(false, 3, Kind::Bytes, 0),
        ],
        aggregation: Some(aggregation),
        ..Program::default()
    }
}

fn partial(fold: Fold, value: usize) -> Partial {
    Partial { fold: fold as i32, value: value as u32, ..Partial::default() }
}

fn computation(operation: Operation, left: usize, right: usize, kind: Kind) -> Computation {
    Computation {
        operation: operation as i32,
        left: left as u32,
        right: right as u32,
        constant: 0,
        kind: kind as i32,
    }
}

fn constant(constant: i64, kind: Kind) -> Computation {
    Computation { constant, ..computation(Operation::Constant, 0, 0, kind) }
}

fn condition(column: usize, comparison: Comparison, integer: i64) -> Condition {
    let constant = Constant { integer, ..Constant::default() };
    Condition { column: column as u32, comparison: comparison as i32, constants: vec![constant], other: None }
}

fn run(program: &Program, rows: &[TestRow]) -> ColumnBatch {
    let mut reader = Reader::new(program).unwrap();
    let unfit = rows.iter().any(|row| {
        let (key, value) = encode(row);
        reader.take(&key, &value).is_err()
    });
    reader.finish(unfit)
}

/// A value of a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Null,
    Number(i128),
    Text(Vec<u8>),
}

fn number(value: impl Into<i128>) -> Found {
    Found::Number(value.into())
}

/// The rows of a batch whose columns are of these kinds.
fn rows_of(batch: &ColumnBatch, kinds: &[Kind]) -> Vec<Vec<Found>> {
    assert_eq!(batch.columns.len(), kinds.len());
    let value = |row: usize, column: usize| {
        let (data, kind) = (&batch.columns[column], kinds[column]);
        if data.validity.get(row / 8).is_some_and(|bits| bits >> (row % 8) & 1 == 0) {
            return Found::Null;
        }
        let fixed = |width: usize| &data.values[row * width..(row + 1) * width];
        match kind {
            Kind::Int16 => number(i16::from_le_bytes(fixed(2).try_into().unwrap())),
            Kind::Int32 => number(i32::from_le_bytes(fixed(4).try_into().unwrap())),
            Kind::Int64 | Kind::Decimal => number(i64::from_le_bytes(fixed(8).try_into().unwrap())),
            Kind::WideDecimal => number(i128::from_le_bytes(fixed(16).try_into().unwrap())),
            Kind::Bytes | Kind::Trimmed | Kind::Bool => {
                let at = |index: usize| {
                    u32::from_le_bytes(data.offsets[index * 4..index * 4 + 4].try_into().unwrap()) as usize
                };
                Found::Text(data.values[at(row)..at(row + 1)].to_vec())
            }
        }
    };
    (0..batch.rows as usize).map(|row| (0..kinds.len()).map(|column| value(row, column)).collect()).collect()
}

const ROWS: &[TestRow] = &[
    (1, Some(5), 250, Some("b")),
    (2, None, -100, None),
    (3, Some(-7), 0, Some("")),
    (4, Some(5), 999, Some("b")),
];

#[test]
fn folds() {
    use Fold::*;
    // How, of what; the kind of the result, and the result over all rows.
    let cases = [
        (CountRows, 0, Kind::Int64, number(4)),
        (Count, KEY, Kind::Int64, number(4)),
        (Count, INTEGER, Kind::Int64, number(3)),
        (Count, TEXT, Kind::Int64, number(3)),
        (Sum, KEY, Kind::WideDecimal, number(10)),
        (Sum, INTEGER, Kind::WideDecimal, number(3)),
        (Sum, NUMBER, Kind::WideDecimal, number(1149)),
        (Least, INTEGER, Kind::Int16, number(-7)),
        (Greatest, INTEGER, Kind::Int16, number(5)),
        (Least, NUMBER, Kind::Decimal, number(-100)),
        (Greatest, NUMBER, Kind::Decimal, number(999)),
        (Least, TEXT, Kind::Bytes, Found::Text(b"".to_vec())),
        (Greatest, TEXT, Kind::Bytes, Found::Text(b"b".to_vec())),
        // One plus the integer, times the number; and what the integer would be if it was none.
        (Sum, 6, Kind::WideDecimal, number(6 * 250 + 6 * 999)),
        (Least, 5, Kind::Int32, number(-6)),
        (Count, 6, Kind::Int64, number(3)),
    ];
    let aggregation = Aggregation {
        computations: vec![
            constant(1, Kind::Int16),
            computation(Operation::Add, INTEGER, 4, Kind::Int32),
            computation(Operation::Multiply, 5, NUMBER, Kind::WideDecimal),
        ],
        groups: Vec::new(),
        partials: cases.iter().map(|(fold, value, ..)| partial(*fold, *value)).collect(),
    };
    let batch = run(&program(aggregation), ROWS);
    let kinds: Vec<Kind> = cases.iter().map(|case| case.2).collect();
    let wanted: Vec<Found> = cases.iter().map(|case| case.3.clone()).collect();
    assert_eq!(rows_of(&batch, &kinds), [wanted]);
    assert_eq!((batch.rows, batch.seen, batch.aggregated), (1, 4, 4));
}

#[test]
fn groups_come_in_the_order_of_their_first_rows() {
    let groups = vec![TEXT as u32, INTEGER as u32];
    let aggregation =
        Aggregation { groups, partials: vec![partial(Fold::CountRows, 0)], ..Aggregation::default() };
    let batch = run(&program(aggregation), ROWS);
    let text = |text: &str| Found::Text(text.as_bytes().to_vec());
    assert_eq!(
        rows_of(&batch, &[Kind::Bytes, Kind::Int16, Kind::Int64]),
        [
            vec![text("b"), number(5), number(2)],
            vec![Found::Null, Found::Null, number(1)],
            vec![text(""), number(-7), number(1)],
        ]
    );
    let nothing = run(&program(Aggregation { groups: vec![0], ..Aggregation::default() }), &[]);
    assert_eq!((nothing.rows, nothing.columns.len()), (0, 1));
    let only_groups =
        run(&program(Aggregation { groups: vec![TEXT as u32], ..Aggregation::default() }), ROWS);
    assert_eq!((only_groups.rows, only_groups.aggregated), (3, 4));
}

#[test]
fn conditions_select_what_is_folded() {
    let conditions = vec![condition(KEY, Comparison::Greater, 1)];
    let branch = |conditions| Branch { conditions };
    let choices = vec![Choice {
        branches: vec![
            branch(vec![condition(NUMBER, Comparison::Less, 0)]),
            branch(vec![condition(INTEGER, Comparison::Equal, 5)]),
        ],
    }];
    let aggregation = Aggregation {
        partials: vec![
            Partial { conditions, ..partial(Fold::CountRows, 0) },
            Partial { choices, ..partial(Fold::Sum, KEY) },
            partial(Fold::CountRows, 0),
        ],
        ..Aggregation::default()
    };
    let mut program = program(aggregation);
    let kinds = [Kind::Int64, Kind::WideDecimal, Kind::Int64];
    assert_eq!(rows_of(&run(&program, ROWS), &kinds), [vec![number(3), number(7), number(4)]]);
    program.conditions = vec![condition(KEY, Comparison::Less, 2)];
    let batch = run(&program, ROWS);
    assert_eq!(rows_of(&batch, &kinds), [vec![number(0), number(1), number(1)]]);
    assert_eq!((batch.seen, batch.aggregated), (4, 1));
}

#[test]
fn what_does_not_fit_empties_the_batch() {
    let sum = || vec![partial(Fold::Sum, 5)];
    let with = |factor: i64, kind: Kind| Aggregation {
        computations: vec![constant(factor, Kind::Int64), computation(Operation::Multiply, INTEGER, 4, kind)],
        partials: sum(),
        ..Aggregation::default()
    };
    for (factor, kind, fits) in [
        (100, Kind::Int16, true),
        (6_553, Kind::Int16, true),
        (6_554, Kind::Int16, false),
        (1 << 28, Kind::Int32, true),
        (1 << 29, Kind::Int32, false),
        (1 << 60, Kind::Int64, true),
        (i64::MAX / 6, Kind::Int64, true),
        (i64::MAX / 4, Kind::Int64, false),
        (i64::MAX, Kind::WideDecimal, true),
    ] {
        // The last row is the one that counts: five times the factor.
        let batch = run(&program(with(factor, kind)), &ROWS[3..]);
        assert_eq!(batch.unfit, !fits, "{factor} {kind:?}");
        assert_eq!((batch.rows, batch.columns.len()), if fits { (1, 1) } else { (0, 0) });
    }
    // A product of four factors of 62 bits.
    let wide = Aggregation {
        computations: vec![
            constant(i64::MAX, Kind::Int64),
            computation(Operation::Multiply, 4, 4, Kind::WideDecimal),
            computation(Operation::Multiply, 5, 4, Kind::WideDecimal),
        ],
        partials: vec![partial(Fold::Sum, 6)],
        ..Aggregation::default()
    };
    assert!(run(&program(wide), ROWS).unfit);
    // And a sum that outgrows 128 bits.
    let sums = Aggregation {
        computations: vec![
            constant(i64::MAX, Kind::Int64),
            computation(Operation::Multiply, 4, 4, Kind::WideDecimal),
        ],
        partials: sum(),
        ..Aggregation::default()
    };
    assert!(!run(&program(sums.clone()), &ROWS[..2]).unfit);
    assert!(run(&program(sums), ROWS).unfit);
}

#[test]
fn aggregations_that_make_no_sense_are_refused() {
    let good = Aggregation {
        computations: vec![computation(Operation::Add, KEY, INTEGER, Kind::Int64)],
        groups: vec![TEXT as u32],
        partials: vec![partial(Fold::Sum, 4), partial(Fold::Least, TEXT)],
    };
    let with = |change: &dyn Fn(&mut Aggregation)| {
        let mut aggregation = good.clone();
        change(&mut aggregation);
        Reader::new(&program(aggregation)).map(|_| ())
    };
    assert_eq!(with(&|_| ()), Ok(()));
    let bad: [&dyn Fn(&mut Aggregation); 13] = [
        &|one| one.groups.push(4),
        &|one| one.groups = vec![0; MAX_PARTIALS + 1],
        &|one| one.partials.push(partial(Fold::Sum, TEXT)),
        &|one| one.partials.push(partial(Fold::Count, 5)),
        &|one| one.partials.push(Partial { fold: 99, ..Partial::default() }),
        &|one| one.partials[0].conditions = vec![condition(4, Comparison::Equal, 0)],
        &|one| one.partials = vec![partial(Fold::CountRows, 0); MAX_PARTIALS + 1],
        &|one| one.computations[0].right = 4,
        &|one| one.computations[0].left = TEXT as u32,
        &|one| one.computations[0].operation = 99,
        &|one| one.computations[0].kind = 99,
        &|one| one.computations[0].kind = Kind::Bytes as i32,
        &|one| one.computations = vec![constant(1, Kind::Int64); MAX_COMPUTATIONS + 1],
    ];
    for (number, change) in bad.iter().enumerate() {
        assert!(with(change).is_err(), "{number}");
    }
}

#[test]
fn so_many_groups_are_enough() {
    let aggregation = Aggregation { groups: vec![KEY as u32], ..Aggregation::default() };
    let mut reader = Reader::new(&program(aggregation)).unwrap();
    for row in 0..MAX_GROUPS as i64 {
        assert!(!reader.is_full());
        let (key, value) = encode(&(row, None, 0, None));
        reader.take(&key, &value).unwrap();
    }
    assert!(reader.is_full() && reader.bytes() > MAX_GROUPS * 64);
}

/// What is known of a group, found in the plainest way.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plain {
    rows: i128,
    texts: i128,
    sum: Option<i128>,
    least: Option<i16>,
    greatest: Option<&'static str>,
}

fn plainly(rows: &[TestRow]) -> BTreeMap<(Option<&'static str>, i64), Plain> {
    let mut groups: BTreeMap<_, Plain> = BTreeMap::new();
    for (_, integer, number, text) in rows {
        let group = groups.entry((*text, *number)).or_default();
        group.rows += 1;
        group.texts += i128::from(text.is_some());
        if let Some(integer) = integer {
            let product = i128::from(*integer) * i128::from(*number) - i128::from(*integer);
            group.sum = Some(group.sum.unwrap_or_default() + product);
            group.least = Some(group.least.map_or(*integer, |least| least.min(*integer)));
        }
        group.greatest = group.greatest.max(*text);
    }
    groups
}

fn of_program(rows: &[TestRow]) -> Vec<Vec<Found>> {
    let aggregation = Aggregation {
        computations: vec![
            computation(Operation::Multiply, INTEGER, NUMBER, Kind::WideDecimal),
            computation(Operation::Subtract, 4, INTEGER, Kind::WideDecimal),
        ],
        groups: vec![TEXT as u32, NUMBER as u32],
        partials: vec![
            partial(Fold::CountRows, 0),
            partial(Fold::Count, TEXT),
            partial(Fold::Sum, 5),
            partial(Fold::Least, INTEGER),
            partial(Fold::Greatest, TEXT),
        ],
    };
    let batch = run(&program(aggregation), rows);
    assert!(!batch.unfit);
    let kinds =
        [Kind::Bytes, Kind::Decimal, Kind::Int64, Kind::Int64, Kind::WideDecimal, Kind::Int16, Kind::Bytes];
    rows_of(&batch, &kinds)
}

fn found<T: Into<i128>>(value: Option<T>) -> Found {
    value.map_or(Found::Null, |value| Found::Number(value.into()))
}

fn found_text(text: Option<&str>) -> Found {
    text.map_or(Found::Null, |text| Found::Text(text.as_bytes().to_vec()))
}

/// Merges the groups of two batches as a client does.
fn merged(first: Vec<Vec<Found>>, second: Vec<Vec<Found>>) -> Vec<Vec<Found>> {
    let mut groups: BTreeMap<Vec<Found>, Vec<Found>> = BTreeMap::new();
    for mut row in first.into_iter().chain(second) {
        let states = row.split_off(2);
        let Some(known) = groups.get_mut(&row) else {
            groups.insert(row, states);
            continue;
        };
        for (position, (known, new)) in known.iter_mut().zip(states).enumerate() {
            *known = match (known.clone(), new) {
                (value, Found::Null) | (Found::Null, value) => value,
                (Found::Number(a), Found::Number(b)) if position < 3 => Found::Number(a + b),
                (a, b) if position == 3 => a.min(b),
                (a, b) => a.max(b),
            };
        }
    }
    groups.into_iter().map(|(key, states)| [key, states].concat()).collect()
}

proptest! {
    #[test]
    fn groups_are_those_of_a_plain_fold_wherever_batches_end(
        rows in prop::collection::vec((
            any::<i64>(),
            prop::option::of(any::<i16>()),
            prop::sample::select(vec![0, 1, -1, 12_345, i64::MAX, i64::MIN]),
            prop::option::of(prop::sample::select(vec!["", "a", "ab", "b", "ä"])),
        ), 0..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut wanted: Vec<Vec<Found>> = plainly(&rows).into_iter().map(|((text, digits), group)| vec![
            found_text(text),
            number(digits),
            number(group.rows),
            number(group.texts),
            found(group.sum),
            found(group.least),
            found_text(group.greatest),
        ]).collect();
        wanted.sort();
        let mut whole = of_program(&rows);
        whole.sort();
        prop_assert_eq!(&whole, &wanted);
        let cut = cut.index(rows.len() + 1);
        let mut parts = merged(of_program(&rows[..cut]), of_program(&rows[cut..]));
        parts.sort();
        prop_assert_eq!(parts, wanted);
    }
}
