//! What keys and row values promise.

use super::*;
use crate::compare::{compare, equal};
use proptest::prelude::*;

fn datum() -> impl Strategy<Value = (Type, Datum)> {
    let numeric = (any::<i64>(), 0u16..9).prop_map(|(value, scale)| Numeric::new(i128::from(value), scale));
    prop_oneof![
        any::<bool>().prop_map(|v| (Type::BOOL, Datum::Bool(v))),
        any::<i16>().prop_map(|v| (Type::INT2, Datum::Int2(v))),
        any::<i32>().prop_map(|v| (Type::INT4, Datum::Int4(v))),
        any::<i64>().prop_map(|v| (Type::INT8, Datum::Int8(v))),
        any::<u32>().prop_map(|v| (Type::OID, Datum::Oid(v))),
        any::<f32>().prop_map(|v| (Type::FLOAT4, Datum::Float4(v))),
        any::<f64>().prop_map(|v| (Type::FLOAT8, Datum::Float8(v))),
        numeric.prop_map(|v| (Type::NUMERIC, Datum::Numeric(v))),
        "[a\\x00\\x01\u{ff}b]{0,20}".prop_map(|v| (Type::TEXT, Datum::text(v))),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|v| (Type::BYTEA, Datum::Bytea(v.into()))),
        any::<i32>().prop_map(|v| (Type::DATE, Datum::Date(v))),
        any::<i64>().prop_map(|v| (Type::TIMESTAMP, Datum::Timestamp(v))),
        any::<i64>().prop_map(|v| (Type::TIMESTAMPTZ, Datum::Timestamptz(v))),
        (any::<i32>(), any::<i32>(), any::<i64>()).prop_map(|(months, days, micros)| (
            Type::INTERVAL,
            Datum::Interval(Interval { months, days, micros })
        )),
        any::<[u8; 16]>().prop_map(|v| (Type::UUID, Datum::Uuid(v))),
        proptest::collection::vec(proptest::option::of(-3i32..3), 0..5).prop_map(|v| {
            let values = v.into_iter().map(|v| v.map_or(Datum::Null, Datum::Int4)).collect();
            (Type::INT4_ARRAY, Datum::array(Type::INT4, values))
        }),
        proptest::collection::vec("[ab\\x00]{0,3}", 0..4).prop_map(|v| {
            (Type::TEXT_ARRAY, Datum::array(Type::TEXT, v.into_iter().map(Datum::text).collect()))
        }),
    ]
}

fn pair() -> impl Strategy<Value = (Type, Datum, Datum)> {
    (datum(), proptest::collection::vec(datum(), 40), any::<bool>()).prop_map(|((ty, left), others, null)| {
        let right = others.into_iter().find(|(other, _)| *other == ty).map(|(_, value)| value);
        let right = if null { right.unwrap_or(Datum::Null) } else { right.unwrap_or_else(|| left.clone()) };
        (ty, left, right)
    })
}

fn key(value: &Datum, descending: bool) -> BytesMut {
    let mut out = BytesMut::new();
    encode_key(value, descending, &mut out).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn keys_order_as_values((ty, left, right) in pair(), descending: bool) {
        let expected = compare(&left, &right);
        let expected = if descending { expected.reverse() } else { expected };
        prop_assert_eq!(key(&left, descending).cmp(&key(&right, descending)), expected, "{:?} {:?}", left, right);
        let bytes = [key(&left, descending), key(&right, descending)].concat();
        let mut input = &bytes[..];
        if ty != Type::INTERVAL {
            prop_assert!(equal(&decode_key(ty, descending, &mut input).unwrap(), &left));
            prop_assert!(equal(&decode_key(ty, descending, &mut input).unwrap(), &right));
            prop_assert!(input.is_empty());
        }
    }

    #[test]
    fn values_round_trip(values in proptest::collection::vec(datum(), 0..10)) {
        let mut out = BytesMut::new();
        for (_, value) in &values {
            encode_value(value, &mut out).unwrap();
        }
        let (mut decoded, mut skipped) = (&out[..], &out[..]);
        for (ty, value) in &values {
            prop_assert!(equal(&decode_value(*ty, &mut decoded).unwrap(), value));
            skip_value(&mut skipped).unwrap();
            prop_assert_eq!(decoded.len(), skipped.len());
        }
        prop_assert!(decoded.is_empty());
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        for info in crate::types::BUILT_IN {
            let _ = decode_key(info.ty, false, &mut &bytes[..]);
            let _ = decode_key(info.ty, true, &mut &bytes[..]);
            let _ = decode_value(info.ty, &mut &bytes[..]);
        }
        let _ = skip_value(&mut &bytes[..]);
    }
}

#[test]
fn values_are_compact() {
    let length = |value: Datum| {
        let mut out = BytesMut::new();
        encode_value(&value, &mut out).unwrap();
        out.len()
    };
    assert_eq!(length(Datum::Int4(0)), 1);
    assert_eq!(length(Datum::Int4(-5)), 2);
    assert_eq!(length(Datum::Int8(1_000_000)), 4);
    assert_eq!(length(Datum::text("abc")), 4);
    assert_eq!(length(Datum::Numeric(Numeric::new(150, 2))), 5);
}

#[test]
fn numeric_keeps_its_scale_in_rows_and_not_in_keys() {
    let value = Datum::Numeric(Numeric::new(150, 2));
    assert!(!key_is_exact(Type::NUMERIC));
    let mut out = BytesMut::new();
    encode_value(&value, &mut out).unwrap();
    let again = decode_value(Type::NUMERIC, &mut &out[..]).unwrap();
    assert_eq!(format!("{again:?}"), "Numeric(1.50)");
}
