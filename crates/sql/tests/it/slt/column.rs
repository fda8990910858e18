//! How the suites name the types of columns: one letter each.

use sql_types::{Oid, Type};
use sqllogictest::ColumnType;

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column(char);

/// The letters; every type that is not here is `?`, every array is `A`.
const LETTERS: &[(Type, char)] = &[
    (Type::BOOL, 'B'),
    (Type::INT2, 'H'),
    (Type::INT4, 'I'),
    (Type::INT8, 'L'),
    (Type::FLOAT4, 'F'),
    (Type::FLOAT8, 'R'),
    (Type::NUMERIC, 'N'),
    (Type::TEXT, 'T'),
    (Type::VARCHAR, 'V'),
    (Type::BPCHAR, 'C'),
    (Type::DATE, 'D'),
    (Type::TIME, 'M'),
    (Type::TIMESTAMP, 'S'),
    (Type::TIMESTAMPTZ, 'Z'),
    (Type::INTERVAL, 'P'),
    (Type::JSON, 'J'),
    (Type::JSONB, 'K'),
    (Type::UUID, 'U'),
    (Type::BYTEA, 'X'),
    (Type::OID, 'O'),
    (Type::NAME, 'Y'),
    (Type::RECORD, 'W'),
];

impl Column {
    /// Of a type as a row description has it. Types of the user's own are `?` whatever they are.
    pub fn of(oid: Oid) -> Column {
        let ty = Type(oid);
        let known = LETTERS.iter().find(|(known, _)| *known == ty).map(|(_, letter)| *letter);
        let array = || ty.info().filter(|_| ty.is_plain_array()).map(|_| 'A');
        Column(known.or_else(array).unwrap_or('?'))
    }
}

impl ColumnType for Column {
    fn from_char(letter: char) -> Option<Self> {
        Some(Column(letter))
    }
    fn to_char(&self) -> char {
        self.0
    }
}
