//! SQL values: their types, their text and binary forms, their order, arithmetic and functions.
//!
//! # What it is for
//!
//! Everything PostgreSQL defines about single values lives here, once, so that the row engine, the
//! analytical engine, the wire protocol and the storage format agree on it. The crate does no I/O,
//! reads no clock and knows no tables: what depends on the session (time zone, present time) comes
//! in as an argument ([`functions::EvalContext`]), what depends on the catalog comes in as a trait
//! ([`functions::CatalogFunctions`]).
//!
//! # The parts
//!
//! * [`types`]: [`Type`], a PostgreSQL type by its OID, and what is known of it.
//! * [`datum`]: [`Datum`], one value.
//! * [`error`]: [`SqlError`], what a user sees when a statement fails.
//! * [`numeric`]: arbitrary-precision decimals.
//! * [`datetime`]: calendar, time zones, date and time arithmetic, parsing and formatting.
//! * [`json`]: the JSON parser and printer behind json and jsonb.
//! * [`mod@array`]: array values and their text form.
//! * [`text`] and [`binary`]: the two wire formats of every type.
//! * [`compare`]: order, equality and hashes.
//! * [`encoding`]: keys whose bytes order as the values do, and compact row values.
//! * [`cast`]: which type turns into which, and how.
//! * [`functions`]: functions, operators, aggregates, window functions, and overload resolution.
//! * [`context`]: the session's settings, clock and catalog, as values and traits.
//!
//! # Where the meaning differs from PostgreSQL's, on purpose
//!
//! * Text compares bytewise, as under PostgreSQL's collation "C", yet `upper`, `lower`, `initcap` and
//!   `ILIKE` know all of Unicode.
//! * Regular expressions run in linear time; look-around and back references are refused.
//! * `age` of an infinite timestamp is an error.
//! * JSON nests 512 levels deep at most.
//!
//! # Missing
//!
//! `time with time zone`, money, bit strings, geometry, network functions beyond input, output and
//! order of inet, ranges, text search, XML. Of a user's types there are enums, whose labels only the
//! catalog knows ([`context::CatalogFunctions`]), and domains, which are the business of crate `sql`: here
//! their values have the type the domain is over.

pub mod array;
pub mod assignment;
pub mod binary;
pub mod cast;
pub mod compare;
pub mod context;
pub mod datetime;
pub mod datum;
pub mod encoding;
pub mod error;
pub mod functions;
pub mod json;
pub mod jsonpath;
pub mod numeric;
pub mod text;
pub mod types;

pub use datum::{ArrayValue, Datum, EnumValue, Interval, RecordField, RecordValue, Row};
pub use error::{SqlError, SqlResult, SqlState};
pub use types::{ColumnType, Oid, Type};
