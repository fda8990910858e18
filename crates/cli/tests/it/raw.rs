//! Binary forms of types the driver has no Rust type for.

use bytes::BytesMut;
use std::error::Error;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// A numeric or an interval as it travels.
#[derive(Debug, PartialEq)]
pub struct Raw(Vec<u8>);

impl Raw {
    /// Sign of a numeric below zero.
    pub const NEGATIVE: u16 = 0x4000;
    /// Sign of the numeric that is not a number.
    pub const NAN: u16 = 0xc000;

    /// A numeric of digits to the base 10000, the first of which counts `10000^weight`.
    pub fn numeric(digits: &[i16], weight: i16, sign: u16, scale: u16) -> Raw {
        let count = i16::try_from(digits.len()).unwrap();
        let head = [count.to_be_bytes(), weight.to_be_bytes(), sign.to_be_bytes(), scale.to_be_bytes()];
        Raw(head.into_iter().chain(digits.iter().map(|digit| digit.to_be_bytes())).flatten().collect())
    }

    /// An interval.
    pub fn interval(microseconds: i64, days: i32, months: i32) -> Raw {
        Raw([&microseconds.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat())
    }
}

impl ToSql for Raw {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(NUMERIC, INTERVAL);
    to_sql_checked!();
}

impl FromSql<'_> for Raw {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Raw(raw.to_vec()))
    }

    accepts!(NUMERIC, INTERVAL);
}
