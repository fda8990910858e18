//! What the numeric type promises, beyond the golden files.

use super::*;
use bytes::BytesMut;
use proptest::prelude::*;

fn n(text: &str) -> Numeric {
    Numeric::parse(text).expect("a number")
}

#[test]
fn scales_of_results_are_those_of_postgresql() {
    assert_eq!(n("1").div(&n("3")).unwrap().to_string(), "0.33333333333333333333");
    assert_eq!(n("10").div(&n("3")).unwrap().to_string(), "3.3333333333333333");
    assert_eq!(n("1.10").mul(&n("2.0")).unwrap().to_string(), "2.200");
    assert_eq!(n("2").sqrt().unwrap().to_string(), "1.414213562373095");
    assert_eq!(n("1").exp().unwrap().to_string(), "2.7182818284590452");
    assert_eq!(n("2").ln().unwrap().to_string(), "0.6931471805599453");
    assert_eq!(n("2").power(&n("10")).unwrap().to_string(), "1024.0000000000000000");
}

#[test]
fn equal_values_of_different_scale_are_one_key() {
    let key = |text: &str| {
        let mut out = BytesMut::new();
        n(text).encode_key(&mut out);
        out
    };
    assert_eq!(key("1.50"), key("1.5"));
    assert_eq!(key("100"), key("1e2"));
    assert_eq!(n("-0.00"), n("0"));
}

#[test]
fn bounds_are_enforced() {
    assert_eq!(Numeric::parse("1e131072").map(drop).unwrap_err().code, SqlState::OUT_OF_RANGE);
    assert!(Numeric::parse("1e131071").is_ok());
    assert_eq!(Numeric::parse("1e-16384").unwrap_err().code, SqlState::OUT_OF_RANGE);
    assert!(n("1e131071").mul(&n("10")).is_err());
    assert_eq!(n("123.456").fit(5, 2).unwrap().to_string(), "123.46");
    assert_eq!(n("1234.5").fit(5, 2).unwrap_err().code, SqlState::OUT_OF_RANGE);
}

fn arbitrary() -> impl Strategy<Value = Numeric> {
    prop_oneof![
        "-?[0-9]{1,50}(\\.[0-9]{0,40})?".prop_map(|text| n(&text)),
        (any::<i64>(), 0u16..25).prop_map(|(value, scale)| Numeric::new(i128::from(value), scale)),
        (any::<i128>(), 0u16..40).prop_map(|(value, scale)| Numeric::new(value, scale)),
        (-20i128..20, 0u16..4).prop_map(|(value, scale)| Numeric::new(value, scale)),
        Just(Numeric::NAN),
        Just(Numeric::INFINITY),
        Just(Numeric::NEG_INFINITY),
    ]
}

proptest! {
    #[test]
    fn text_and_binary_round_trip(value in arbitrary()) {
        let again = n(&value.to_string());
        prop_assert_eq!(again.to_string(), value.to_string());
        let mut out = BytesMut::new();
        value.encode_binary(&mut out);
        prop_assert_eq!(Numeric::decode_binary(&out).unwrap().to_string(), value.to_string());
    }

    #[test]
    fn keys_order_as_values(left in arbitrary(), right in arbitrary()) {
        let (mut a, mut b) = (BytesMut::new(), BytesMut::new());
        left.encode_key(&mut a);
        right.encode_key(&mut b);
        prop_assert_eq!(a.cmp(&b), left.cmp(&right));
        let mut input = &a[..];
        prop_assert_eq!(Numeric::decode_key(&mut input).unwrap(), left);
        prop_assert!(input.is_empty());
    }

    #[test]
    fn sums_and_products_undo(left in arbitrary(), right in arbitrary()) {
        if left.is_finite() && right.is_finite() {
            prop_assert_eq!(left.add(&right).unwrap().sub(&right).unwrap(), left.clone());
            if !right.is_zero() {
                prop_assert_eq!(left.mul(&right).unwrap().div_trunc(&right).unwrap(), left.trunc(0).unwrap());
                let quotient = left.div_trunc(&right).unwrap();
                let back = quotient.mul(&right).unwrap().add(&left.rem(&right).unwrap()).unwrap();
                prop_assert_eq!(back, left);
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let _ = Numeric::decode_binary(&bytes);
        let _ = Numeric::decode_key(&mut &bytes[..]);
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = Numeric::parse(text);
        }
    }
}
