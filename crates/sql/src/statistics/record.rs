//! How statistics are stored: a format byte, the version and the number of rows in 8 bytes each, big-endian, which can
//! be had without reading the rest, and JSON, in which values are written as [`sql_types::encoding::encode_value`]
//! does, in base64.

use super::{ColumnStatistics, TableStatistics};
use crate::catalog::descriptor::ColumnId;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD as BASE64;
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type, encoding};

/// First byte.
const FORMAT: u8 = 1;
/// Bytes before the JSON.
const HEADER: usize = 17;

#[derive(Serialize, Deserialize)]
struct Record {
    bytes: f64,
    #[serde(default)]
    analyzed: Option<i64>,
    #[serde(default)]
    auto_analyzed: Option<i64>,
    #[serde(default)]
    analyze_count: u64,
    #[serde(default)]
    auto_analyze_count: u64,
    columns: Vec<ColumnRecord>,
    #[serde(default)]
    groups: Vec<(Vec<ColumnId>, f64)>,
}

#[derive(Serialize, Deserialize)]
struct ColumnRecord {
    column: ColumnId,
    ty: u32,
    nulls: f64,
    distinct: f64,
    width: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    common: Vec<(String, f64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    histogram: Vec<String>,
}

fn damaged(what: impl std::fmt::Display) -> SqlError {
    SqlError::new(SqlState::DATA_CORRUPTED, format!("a record of statistics is damaged: {what}"))
}

fn write_value(value: &Datum) -> SqlResult<String> {
    let mut out = BytesMut::new();
    encoding::encode_value(value, &mut out)?;
    Ok(BASE64.encode(out))
}

fn read_value(ty: Type, text: &str) -> SqlResult<Datum> {
    let bytes = BASE64.decode(text).map_err(damaged)?;
    encoding::decode_value(ty, &mut bytes.as_slice())
}

/// Statistics as they are stored.
///
/// # Errors
/// XX000 if they cannot be written as JSON.
pub fn encode(statistics: &TableStatistics) -> SqlResult<Bytes> {
    let column = |column: &ColumnStatistics| -> SqlResult<ColumnRecord> {
        let common =
            column.most_common.iter().map(|(value, share)| Ok((write_value(value)?, rounded(*share))));
        Ok(ColumnRecord {
            column: column.column,
            ty: column.ty.0,
            nulls: rounded(column.null_fraction),
            distinct: column.distinct,
            width: rounded(column.width),
            common: common.collect::<SqlResult<_>>()?,
            histogram: column.histogram.iter().map(write_value).collect::<SqlResult<_>>()?,
        })
    };
    let record = Record {
        bytes: statistics.bytes,
        analyzed: statistics.analyzed,
        auto_analyzed: statistics.auto_analyzed,
        analyze_count: statistics.analyze_count,
        auto_analyze_count: statistics.auto_analyze_count,
        columns: statistics.columns.iter().map(column).collect::<SqlResult<_>>()?,
        groups: statistics.groups.clone(),
    };
    let mut out = BytesMut::with_capacity(4096).writer();
    out.get_mut().put_u8(FORMAT);
    out.get_mut().put_u64(statistics.version);
    out.get_mut().put_f64(statistics.rows);
    serde_json::to_writer(&mut out, &record).map_err(|error| SqlError::internal(error.to_string()))?;
    Ok(out.into_inner().freeze())
}

/// A number with six digits after the point, which is more than a sample tells.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

fn header(value: &[u8], from: usize) -> Option<[u8; 8]> {
    value.get(from..from + 8)?.try_into().ok()
}

/// The version of stored statistics; 0 for what is none.
pub fn version(value: &[u8]) -> u64 {
    header(value, 1).map_or(0, u64::from_be_bytes)
}

/// The number of rows of stored statistics; 0 for what is none.
pub fn rows(value: &[u8]) -> f64 {
    header(value, 9).map_or(0.0, f64::from_be_bytes)
}

/// Reads stored statistics.
///
/// # Errors
/// XX001 if they are damaged.
pub fn decode(value: &[u8]) -> SqlResult<TableStatistics> {
    if value.first() != Some(&FORMAT) {
        return Err(damaged("unknown format"));
    }
    let json = value.get(HEADER..).ok_or_else(|| damaged("it is too short"))?;
    let record: Record = serde_json::from_slice(json).map_err(damaged)?;
    let column = |column: ColumnRecord| -> SqlResult<ColumnStatistics> {
        let ty = Type(column.ty);
        let common = column.common.iter().map(|(value, share)| Ok((read_value(ty, value)?, *share)));
        Ok(ColumnStatistics {
            column: column.column,
            ty,
            null_fraction: column.nulls,
            distinct: column.distinct,
            width: column.width,
            most_common: common.collect::<SqlResult<_>>()?,
            histogram: column
                .histogram
                .iter()
                .map(|value| read_value(ty, value))
                .collect::<SqlResult<_>>()?,
        })
    };
    let mut columns: Vec<ColumnStatistics> =
        record.columns.into_iter().map(column).collect::<SqlResult<_>>()?;
    columns.sort_by_key(|column| column.column);
    Ok(TableStatistics {
        version: version(value),
        rows: rows(value),
        bytes: record.bytes,
        analyzed: record.analyzed,
        auto_analyzed: record.auto_analyzed,
        analyze_count: record.analyze_count,
        auto_analyze_count: record.auto_analyze_count,
        columns,
        groups: record.groups,
    })
}
