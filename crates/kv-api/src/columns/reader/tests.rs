use super::*;
use crate::columns::{Branch, Choice, Comparison, Condition, Constant, sought};
use crate::encoding::{encode_bytes, encode_i64};
use bytes::BytesMut;

/// A key of two columns behind a prefix of two bytes.
fn key(number: i64, name: &[u8]) -> BytesMut {
    let mut key = BytesMut::from(&b"pp"[..]);
    encode_i64(number, &mut key);
    encode_bytes(name, &mut key);
    key
}

/// A row of an integer (3), a number with two decimals (5) and a text (7).
fn row(integer: Option<i8>, digits: i16, text: &str) -> Vec<u8> {
    let mut row = vec![row::ROW_FORMAT];
    if let Some(integer) = integer {
        row.extend([3, 3, tag::INTEGER | 0x10, integer as u8]);
    }
    row.extend([5, 6, tag::NUMERIC | 0x10, 0, 2]);
    row.extend(digits.to_be_bytes());
    row.extend([7, text.len() as u8 + 2, tag::BYTES | (text.len() as u8) << 4]);
    row.extend(text.as_bytes());
    row
}

fn wanted(from_key: bool, number: u32, kind: Kind, scale: u32) -> Wanted {
    Wanted { from_key, number, kind: kind as i32, scale, missing: Bytes::new() }
}

fn program(conditions: Vec<Condition>) -> Program {
    Program {
        prefix_len: 2,
        key: vec![KeyKind::Integer as i32, KeyKind::Bytes as i32],
        columns: vec![
            wanted(false, 7, Kind::Trimmed, 0),
            wanted(true, 1, Kind::Bytes, 0),
            wanted(false, 3, Kind::Int32, 0),
            wanted(false, 5, Kind::Decimal, 2),
        ],
        conditions,
        choices: Vec::new(),
        aggregation: None,
    }
}

fn condition(column: u32, comparison: Comparison, constants: Vec<Constant>) -> Condition {
    Condition { column, comparison: comparison as i32, constants, other: None }
}

fn number(integer: i64) -> Constant {
    Constant { integer, ..Constant::default() }
}

fn filter(values: &[i64]) -> Constant {
    Constant { bytes: sought(values).unwrap(), ..Constant::default() }
}

fn text(text: &'static str) -> Constant {
    Constant { bytes: text.into(), ..Constant::default() }
}

#[test]
fn columns_come_from_keys_and_values() {
    let mut reader = Reader::new(&program(Vec::new())).unwrap();
    assert_eq!(reader.take(&key(1, b"a\0b"), &row(Some(-4), 250, "xy  ")), Ok(Taken::Kept));
    assert_eq!(reader.take(&key(-9, b""), &row(None, -1, "z")), Ok(Taken::Kept));
    let batch = reader.finish(false);
    assert_eq!((batch.rows, batch.unfit), (2, false));
    let [texts, names, integers, numbers] = &batch.columns[..] else { panic!() };
    assert_eq!((&texts.values[..], &names.values[..]), (&b"xyz"[..], &b"a\0b"[..]));
    assert_eq!(&texts.offsets[..], [0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(&integers.values[..4], (-4i32).to_le_bytes());
    assert_eq!((&integers.validity[..], &numbers.validity[..]), (&[1u8][..], &[][..]));
    assert_eq!(numbers.values[..], [250i64.to_le_bytes(), (-1i64).to_le_bytes()].concat());
}

#[test]
fn conditions_select_rows() {
    use Comparison::*;
    let kept = |conditions: Vec<Condition>| {
        let mut reader = Reader::new(&program(conditions)).unwrap();
        let rows = [(Some(1), 100, "ab"), (Some(2), 200, "b  "), (None, 300, "äc")];
        rows.map(|(integer, digits, text)| {
            u8::from(reader.take(&key(0, b""), &row(integer, digits, text)) == Ok(Taken::Kept))
        })
    };
    for (test, wanted) in [
        (condition(2, Equal, vec![number(2)]), [0, 1, 0]),
        (condition(2, NotEqual, vec![number(2)]), [1, 0, 0]),
        (condition(3, LessOrEqual, vec![number(200)]), [1, 1, 0]),
        (condition(3, Greater, vec![number(200)]), [0, 0, 1]),
        (condition(0, Equal, vec![text("b")]), [0, 1, 0]),
        (condition(0, GreaterOrEqual, vec![text("b")]), [0, 1, 1]),
        (condition(0, In, vec![text("äc"), text("ab")]), [1, 0, 1]),
        (condition(2, NotIn, vec![number(5), number(1)]), [0, 1, 0]),
        (condition(0, Like, vec![text("_b")]), [1, 0, 0]),
        (condition(0, NotLike, vec![text("%c")]), [1, 1, 0]),
        (condition(2, Sought, vec![filter(&[2, 77])]), [0, 1, 0]),
        (condition(2, Sought, vec![filter(&[])]), [0, 0, 0]),
    ] {
        assert_eq!(kept(vec![test.clone()]), wanted, "{test:?}");
    }
    let both = vec![condition(2, Equal, vec![number(2)]), condition(3, Less, vec![number(200)])];
    assert_eq!(kept(both), [0, 0, 0]);
}

#[test]
fn of_a_choice_one_alternative_must_hold() {
    use Comparison::*;
    let branch = |conditions| Branch { conditions };
    let mut program = program(vec![condition(3, Less, vec![number(300)])]);
    program.choices = vec![Choice {
        branches: vec![
            branch(vec![condition(2, Equal, vec![number(1)]), condition(0, Equal, vec![text("ab")])]),
            branch(vec![condition(2, GreaterOrEqual, vec![number(2)])]),
        ],
    }];
    let mut reader = Reader::new(&program).unwrap();
    let mut take =
        |integer, digits, text| reader.take(&key(0, b""), &row(integer, digits, text)) == Ok(Taken::Kept);
    assert_eq!([take(Some(1), 1, "ab"), take(Some(2), 1, ""), take(Some(3), 299, "")], [true; 3]);
    assert_eq!([take(Some(1), 1, "b"), take(None, 1, "ab"), take(Some(3), 300, "")], [false; 3]);
    assert_eq!((reader.rows(), reader.seen()), (3, 6));
    program.choices[0].branches.clear();
    let mut reader = Reader::new(&program).unwrap();
    assert_eq!(reader.take(&key(0, b""), &row(None, 0, "")), Ok(Taken::Dropped));
}

#[test]
fn columns_are_compared_with_each_other() {
    let mut program = program(Vec::new());
    program.columns[2] = wanted(true, 0, Kind::Int32, 0);
    program.columns[3] = wanted(false, 3, Kind::Int32, 0);
    program.conditions = vec![Condition {
        column: 2,
        comparison: Comparison::Less as i32,
        constants: Vec::new(),
        other: Some(3),
    }];
    let mut reader = Reader::new(&program).unwrap();
    let mut take = |first, second| reader.take(&key(first, b""), &row(second, 0, "")).unwrap();
    assert_eq!(
        [take(1, Some(2)), take(2, Some(2)), take(1, None)],
        [Taken::Kept, Taken::Dropped, Taken::Dropped]
    );
}

#[test]
fn rows_without_a_column_have_its_missing_value() {
    let mut program = program(vec![condition(2, Comparison::Equal, vec![number(7)])]);
    program.columns[2].missing = Bytes::from_static(&[tag::INTEGER | 0x10, 7]);
    let mut reader = Reader::new(&program).unwrap();
    assert_eq!(reader.take(&key(1, b""), &row(None, 0, "")), Ok(Taken::Kept));
    assert_eq!(reader.take(&key(1, b""), &row(Some(6), 0, "")), Ok(Taken::Dropped));
    program.columns[2].missing = Bytes::from_static(&[tag::TRUE, 1, 2]);
    assert!(Reader::new(&program).is_ok_and(|reader| reader.rows() == 0));
    program.columns[2].missing = Bytes::from_static(&[tag::UUID]);
    assert!(Reader::new(&program).is_err());
}

#[test]
fn what_does_not_fit_is_not_taken() {
    let mut reader = Reader::new(&program(Vec::new())).unwrap();
    let mut other_scale = row(Some(1), 100, "a");
    other_scale[9] = 3;
    let whole = row(Some(1), 100, "a");
    for bad in [&other_scale[..], &[9], &[], &whole[..whole.len() - 1]] {
        assert_eq!(reader.take(&key(1, b""), bad), Err(Unfit), "{bad:?}");
    }
    for bad in [&b""[..], b"p", b"pp", b"pp\x81"] {
        assert_eq!(reader.take(bad, &whole), Err(Unfit), "{bad:?}");
    }
    assert_eq!((reader.rows(), reader.bytes()), (0, 8));
}

#[test]
fn programs_that_make_no_sense_are_refused() {
    let good = program(Vec::new());
    let with = |change: &dyn Fn(&mut Program)| {
        let mut program = good.clone();
        change(&mut program);
        Reader::new(&program).map(|_| ())
    };
    assert_eq!(with(&|_| ()), Ok(()));
    let bad: [&dyn Fn(&mut Program); 11] = [
        &|program| program.key = vec![99],
        &|program| program.columns[1].number = 2,
        &|program| program.columns[0].kind = 99,
        &|program| program.columns[0].number = 3,
        &|program| program.columns[0].number = 1 << 20,
        &|program| program.columns = vec![Wanted::default(); MAX_COLUMNS + 1],
        &|program| program.conditions = vec![condition(9, Comparison::Equal, vec![number(1)])],
        &|program| program.conditions = vec![condition(2, Comparison::Equal, Vec::new())],
        &|program| program.conditions = vec![condition(2, Comparison::Like, vec![number(1)])],
        &|program| program.conditions = vec![condition(2, Comparison::Sought, vec![number(1)])],
        &|program| program.conditions = vec![condition(0, Comparison::Sought, vec![filter(&[1])])],
    ];
    for (number, change) in bad.iter().enumerate() {
        assert!(with(change).is_err(), "{number}");
    }
    let unlike = Condition { other: Some(3), ..condition(2, Comparison::Less, Vec::new()) };
    assert!(Reader::new(&program(vec![unlike])).is_err());
}
