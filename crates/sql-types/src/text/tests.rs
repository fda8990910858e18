//! What text input and output promise, beyond the golden files.

use super::*;
use crate::datum::Datum;
use crate::types::{BUILT_IN, ColumnType, Type};
use proptest::prelude::*;

fn shown(value: f64) -> String {
    let mut out = String::new();
    format_float8(value, 1, &mut out);
    out
}

#[test]
fn floats_print_shortest() {
    assert_eq!(shown(0.1), "0.1");
    assert_eq!(shown(1e15), "1e+15");
    assert_eq!(shown(123456789012345.0), "123456789012345");
    assert_eq!(shown(1e-5), "1e-05");
    assert_eq!(shown(-0.0001), "-0.0001");
    assert_eq!(shown(-0.0), "-0");
}

#[test]
fn types_have_many_names() {
    assert_eq!(built_in_type_by_name("INTEGER"), Some(Type::INT4));
    assert_eq!(built_in_type_by_name("pg_catalog.int4[]"), Some(Type::INT4_ARRAY));
    assert_eq!(built_in_type_by_name("timestamp(3) with time zone"), Some(Type::TIMESTAMPTZ));
    assert_eq!(built_in_type_by_name("character varying(10)"), Some(Type::VARCHAR));
    assert_eq!(built_in_type_by_name("nothing"), None);
}

proptest! {
    #[test]
    fn no_input_panics(text in "\\PC{0,24}|[-{}\\[\\]\",\\\\0-9a-fnullx:=. ]{0,24}") {
        let context = TextContext::plain();
        for info in BUILT_IN.iter().filter(|info| info.ty.0 != 0) {
            if let Ok(value) = parse(ColumnType::plain(info.ty), &text, &context) {
                let mut out = String::new();
                format(&value, info.ty, &context, &mut out);
            }
        }
    }

    #[test]
    fn text_arrays_round_trip(values in proptest::collection::vec(proptest::option::of("\\PC{0,8}"), 0..6)) {
        let values = values.into_iter().map(|v| v.map_or(Datum::Null, Datum::text)).collect();
        let array = Datum::array(Type::TEXT, values);
        let context = TextContext::plain();
        let text = to_string(&array, Type::TEXT_ARRAY, &context);
        let again = parse(Type::TEXT_ARRAY.into(), &text, &context).unwrap();
        prop_assert!(crate::compare::equal(&array, &again), "{}", text);
    }

    #[test]
    fn floats_round_trip(value: f64) {
        prop_assume!(!value.is_nan());
        prop_assert_eq!(parse_float8(&shown(value)).unwrap(), value);
    }
}
