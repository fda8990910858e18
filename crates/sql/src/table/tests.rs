//! Layout of rows and index entries: what is written is read back, and keys order as rows do.

use super::codec::split_key;
use super::*;
use crate::catalog::descriptor::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sql_types::{ColumnType, Datum, Row, Type, compare};
use std::cmp::Ordering;
use std::sync::Arc;

fn column(id: ColumnId, name: &str, ty: Type) -> ColumnDescriptor {
    ColumnDescriptor::plain(id, name, ColumnType::plain(ty))
}

fn index(id: IndexId, unique: bool, columns: &[(ColumnId, bool)]) -> IndexDescriptor {
    let mut index: IndexDescriptor = serde_json::from_value(serde_json::json!({
        "id": id, "oid": 20000 + id, "name": format!("i{id}"), "unique": unique, "constraint": unique, "columns": []
    }))
    .unwrap();
    index.columns = columns.to_vec();
    index
}

/// `t (a int4, b text, c numeric, d int8, e text default 'x' added later)`, primary key (b desc, a),
/// unique (d), index (c, b).
fn table() -> TableDescriptor {
    let mut added = column(7, "e", Type::TEXT);
    added.added_value = Some("'it''s'::text".to_string());
    TableDescriptor {
        oid: 16400,
        database: 1,
        schema: 2200,
        name: "t".to_string(),
        owner: 10,
        version: 1,
        storage: 9,
        columns: vec![
            column(1, "a", Type::INT4),
            column(2, "b", Type::TEXT),
            column(3, "c", Type::NUMERIC),
            column(5, "d", Type::INT8),
            added,
        ],
        next_column: 8,
        indexes: vec![
            index(1, true, &[(2, true), (1, false)]),
            index(2, true, &[(5, false)]),
            index(4, false, &[(3, false), (2, false)]),
        ],
        next_index: 5,
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        comment: None,
        placement: Default::default(),
        view: None,
        triggers: Vec::new(),
        security: Default::default(),
        on_commit: Default::default(),
        bound: Default::default(),
        statistics: Default::default(),
    }
}

fn codec() -> TableCodec {
    TableCodec::new(Arc::new(table())).unwrap()
}

fn numeric(text: &str) -> Datum {
    sql_types::text::parse(Type::NUMERIC.into(), text, &sql_types::context::TextContext::plain()).unwrap()
}

fn random_row(rng: &mut StdRng) -> Row {
    let texts = ["", "a", "a\0b", "ab", "ä", "zz", "\u{10ffff}"];
    let numbers = ["0", "1.0", "1.00", "-3.25", "100000000000000000000", "0.000001"];
    let mut maybe = |value: Datum| if rng.random_ratio(1, 4) { Datum::Null } else { value };
    let (c, d, e) = (maybe(Datum::Int4(0)), maybe(Datum::Int4(0)), maybe(Datum::Int4(0)));
    vec![
        Datum::Int4(rng.random_range(-300..300)),
        Datum::text(texts[rng.random_range(0..texts.len())]),
        if c.is_null() { c } else { numeric(numbers[rng.random_range(0..numbers.len())]) },
        if d.is_null() { d } else { Datum::Int8(rng.random()) },
        if e.is_null() { e } else { Datum::text("x".repeat(rng.random_range(0..300))) },
    ]
}

/// Text of a row, which also tells `1.0` from `1.00`.
fn shown(row: &[Datum]) -> String {
    format!("{row:?}")
}

#[test]
fn rows_are_read_back() {
    let (codec, mut rng) = (codec(), StdRng::seed_from_u64(1));
    for _ in 0..500 {
        let row = random_row(&mut rng);
        let (key, value) = (codec.row_key(&row).unwrap(), codec.row_value(&row).unwrap());
        assert_eq!(shown(&codec.decode_row(&key, &value).unwrap()), shown(&row));
        let some = Projection::new(&codec, PRIMARY_INDEX, &[5, 1]).unwrap();
        assert_eq!(
            shown(&some.decode(&codec, &key, &value).unwrap()),
            shown(&[row[3].clone(), row[0].clone()])
        );
    }
}

#[test]
fn keys_order_as_the_primary_key_does() {
    let (codec, mut rng) = (codec(), StdRng::seed_from_u64(2));
    for _ in 0..500 {
        let (left, right) = (random_row(&mut rng), random_row(&mut rng));
        let expected = compare::compare(&left[1], &right[1])
            .reverse()
            .then_with(|| compare::compare(&left[0], &right[0]));
        assert_eq!(codec.row_key(&left).unwrap().cmp(&codec.row_key(&right).unwrap()), expected);
    }
}

#[test]
fn index_entries_lead_to_their_rows() {
    let (codec, mut rng) = (codec(), StdRng::seed_from_u64(3));
    for _ in 0..500 {
        let row = random_row(&mut rng);
        let key = codec.row_key(&row).unwrap();
        for index in codec.secondary() {
            let entry = codec.index_entry(index, &row, &key).unwrap().unwrap();
            let primary = codec.entry_primary_bytes(index, &entry.key, &entry.value).unwrap();
            assert_eq!(codec.row_key_of(&primary), key);
            assert_eq!(split_key(&entry.key).map(|(storage, id, _)| (storage, id)), Some((9, index.id)));
        }
        // The unique index holds the primary key too, so these columns need no look-up.
        let unique = codec.index(2).unwrap();
        let entry = codec.index_entry(unique, &row, &key).unwrap().unwrap();
        let covering = Projection::new(&codec, 2, &[1, 5, 2]).unwrap();
        assert!(covering.covering());
        let expected = [row[0].clone(), row[3].clone(), row[1].clone()];
        assert_eq!(shown(&covering.decode(&codec, &entry.key, &entry.value).unwrap()), shown(&expected));
    }
    // numeric does not come back exactly from a key.
    assert!(!Projection::new(&codec, 4, &[3]).unwrap().covering());
    assert!(!Projection::new(&codec, 2, &[7]).unwrap().covering());
}

#[test]
fn null_does_not_make_unique_entries_collide() {
    let codec = codec();
    let row = |a: i32, d: Datum| vec![Datum::Int4(a), Datum::text("b"), Datum::Null, d, Datum::Null];
    let key = |row: &Row| {
        codec.index_entry(codec.index(2).unwrap(), row, &codec.row_key(row).unwrap()).unwrap().unwrap().key
    };
    assert_ne!(key(&row(1, Datum::Null)), key(&row(2, Datum::Null)));
    assert_eq!(key(&row(1, Datum::Int8(5))), key(&row(2, Datum::Int8(5))));
    assert_eq!(key(&row(1, Datum::Int8(5))).cmp(&key(&row(1, Datum::Int8(6)))), Ordering::Less);
}

#[test]
fn older_rows_have_the_value_a_column_was_added_with() {
    let new = codec();
    let mut older = table();
    older.columns.retain(|column| column.id != 7);
    let older = TableCodec::new(Arc::new(older)).unwrap();
    let row = vec![Datum::Int4(1), Datum::text("b"), numeric("2.50"), Datum::Int8(3)];
    let (key, value) = (older.row_key(&row).unwrap(), older.row_value(&row).unwrap());
    let read = new.decode_row(&key, &value).unwrap();
    assert!(matches!(&read[4], Datum::Text(text) if &**text == "it's"), "{read:?}");
    // An explicit NULL written since stays NULL.
    let mut with_null = row.clone();
    with_null.push(Datum::Null);
    let value = new.row_value(&with_null).unwrap();
    assert!(new.decode_row(&key, &value).unwrap()[4].is_null());
    // Values of dropped columns are stepped over.
    let value = new.row_value(&[row, vec![Datum::text("gone")]].concat()).unwrap();
    assert_eq!(older.decode_row(&key, &value).unwrap().len(), 4);
}

#[test]
fn damaged_data_is_an_error() {
    let codec = codec();
    let row = random_row(&mut StdRng::seed_from_u64(4));
    let (key, value) = (codec.row_key(&row).unwrap(), codec.row_value(&row).unwrap());
    for end in 0..key.len() {
        assert!(codec.decode_row(&key[..end], &value).is_err(), "key cut at {end}");
    }
    assert!(codec.decode_row(&key, b"").is_err());
    assert!(codec.decode_row(&key, b"\xff").is_err());
    let mut rng = StdRng::seed_from_u64(5);
    for _ in 0..2000 {
        let mut bytes = value.to_vec();
        let at = rng.random_range(1..bytes.len());
        bytes[at] = rng.random();
        // Must not panic; damage to a value alone need not show.
        let _ = codec.decode_row(&key, &bytes);
    }
}

#[test]
fn keys_too_long_for_the_store_are_refused() {
    let codec = codec();
    let long = vec![Datum::Int4(1), Datum::text("x".repeat(20_000)), Datum::Null, Datum::Null, Datum::Null];
    assert_eq!(codec.row_key(&long).unwrap_err().code.as_str(), "54000");
}
