//! Assignments to elements: what `SET a[1] = …` and `SET j['key'] = …` make of the value that was there.

mod array;
mod json;

pub use array::{Ends, element, slice};
pub use json::{MAX_GAP, Step, json};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArrayValue, Datum, SqlState, Type};
    use serde_json::json as value;

    #[test]
    fn gaps_are_bounded() {
        let numbers = || ArrayValue::one_dimension(Type::INT4, vec![Datum::Int4(1)]);
        for at in [100_000_000, -100_000_000] {
            assert_eq!(element(numbers(), &[at], Datum::Null).unwrap_err().code, SqlState::PROGRAM_LIMIT);
            let slice = slice(numbers(), &[(Some(at), Some(at))], &numbers());
            assert_eq!(slice.unwrap_err().code, SqlState::PROGRAM_LIMIT);
        }
        let ends = [Step::Index(i32::MAX), Step::Index(MAX_GAP as i32 + 1)];
        for end in ends {
            let behind = json(None, std::slice::from_ref(&end), value!(1));
            assert_eq!(behind.unwrap_err().code, SqlState::PROGRAM_LIMIT);
            let within = json(None, &[Step::Key("a".into()), end], value!(1));
            assert_eq!(within.unwrap_err().code, SqlState::PROGRAM_LIMIT);
        }
    }

    #[test]
    fn the_last_subscript_is_an_integer() {
        let numbers = || ArrayValue::one_dimension(Type::INT4, Vec::new());
        let last = element(numbers(), &[i32::MAX - 1], Datum::Int4(1)).unwrap();
        assert_eq!(last.dimensions, [(1, i32::MAX - 1)]);
        assert_eq!(element(last, &[i32::MAX], Datum::Null).unwrap_err().code, SqlState::PROGRAM_LIMIT);
        assert_eq!(element(numbers(), &[i32::MAX], Datum::Null).unwrap_err().code, SqlState::PROGRAM_LIMIT);
    }

    #[test]
    fn negative_subscripts_of_jsonb_count_from_the_end() {
        let put = |index| json(Some(value!([1, 2, 3])), &[Step::Index(index)], value!(9));
        assert_eq!(put(-1).unwrap(), value!([1, 2, 9]));
        assert_eq!(put(-3).unwrap(), value!([9, 2, 3]));
        assert_eq!(put(-4).unwrap_err().code, SqlState::INVALID_PARAMETER);
        assert_eq!(put(4).unwrap(), value!([1, 2, 3, null, 9]));
    }
}
