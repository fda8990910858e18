//! What evaluation needs from outside of the values: the session's settings, its clock, the catalog.

use crate::datetime::TimeZone;
use crate::datum::{Datum, EnumValue, Row};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{Oid, Type};
use std::ops::Deref;

/// The `DateStyle` output formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DateStyle {
    /// `2020-01-31 12:00:00+00`
    #[default]
    Iso,
    /// `01/31/2020 12:00:00 UTC`
    Sql,
    /// `Fri Jan 31 12:00:00 2020 UTC`
    Postgres,
    /// `31.01.2020 12:00:00 UTC`
    German,
}

/// The `DateStyle` field order, for input such as `01/02/2020`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DateOrder {
    /// month, day, year
    #[default]
    Mdy,
    /// day, month, year
    Dmy,
    /// year, month, day
    Ymd,
}

/// The `IntervalStyle` setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntervalStyle {
    /// `1 year 2 mons 3 days 04:05:06`
    #[default]
    Postgres,
    /// `@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs`
    PostgresVerbose,
    /// `+1-2 +3 +4:05:06`
    SqlStandard,
    /// `P1Y2M3DT4H5M6S`
    Iso8601,
}

/// The `bytea_output` setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteaOutput {
    /// `\x0123`
    #[default]
    Hex,
    /// `\001#`
    Escape,
}

/// What text input and output depend on.
#[derive(Clone, Copy)]
pub struct TextContext<'a> {
    /// The session's `TimeZone`.
    pub time_zone: &'a TimeZone,
    /// Output format of dates and times.
    pub date_style: DateStyle,
    /// Field order of ambiguous dates.
    pub date_order: DateOrder,
    /// Output format of intervals.
    pub interval_style: IntervalStyle,
    /// `extra_float_digits`; above 0 (the default is 1) floats print shortest-exact.
    pub extra_float_digits: i32,
    /// Output format of bytea.
    pub bytea_output: ByteaOutput,
    /// Start of the transaction in microseconds since 2000-01-01 UTC: `now`, `today`.
    pub transaction_micros: i64,
    /// The catalog, for the reg* types and enum types.
    pub catalog: &'a dyn CatalogFunctions,
}

static UTC: TimeZone = TimeZone::UTC;

impl TextContext<'static> {
    /// Default settings in UTC, at 2000-01-01, with no catalog.
    pub fn plain() -> Self {
        TextContext {
            time_zone: &UTC,
            date_style: DateStyle::Iso,
            date_order: DateOrder::Mdy,
            interval_style: IntervalStyle::Postgres,
            extra_float_digits: 1,
            bytea_output: ByteaOutput::Hex,
            transaction_micros: 0,
            catalog: &NoCatalog,
        }
    }
}

/// Where `random()` and `gen_random_uuid()` take their bits from.
pub trait Random: Send + Sync {
    /// The next 64 random bits.
    fn next_u64(&self) -> u64;
    /// `setseed()`: makes what follows repeatable.
    fn seed(&self, _seed: f64) {}
}

/// A fixed sequence: for constant folding of what is not random, and for tests.
pub struct NoRandom;

impl Random for NoRandom {
    fn next_u64(&self) -> u64 {
        0x9e37_79b9_7f4a_7c15
    }
}

/// What functions may know besides their arguments. Dereferences to its [`TextContext`].
#[derive(Clone, Copy)]
pub struct EvalContext<'a> {
    /// Settings of text input and output, time zone, transaction start, catalog.
    pub text: TextContext<'a>,
    /// Start of the statement in microseconds since 2000-01-01 UTC.
    pub statement_micros: i64,
    /// The present time in microseconds since 2000-01-01 UTC.
    pub clock: fn() -> i64,
    /// `current_user`.
    pub user: &'a str,
    /// `session_user`.
    pub session_user: &'a str,
    /// `current_database()`.
    pub database: &'a str,
    /// The effective search path without implicit schemas; the first is `current_schema()`.
    pub schemas: &'a [String],
    /// `pg_backend_pid()`.
    pub process_id: i32,
    /// Randomness.
    pub random: &'a dyn Random,
}

impl<'a> Deref for EvalContext<'a> {
    type Target = TextContext<'a>;
    fn deref(&self) -> &TextContext<'a> {
        &self.text
    }
}

impl EvalContext<'static> {
    /// Default settings, no catalog, time standing still: for tests and for folding constants of
    /// immutable functions.
    pub fn plain() -> Self {
        EvalContext {
            text: TextContext::plain(),
            statement_micros: 0,
            clock: || 0,
            user: "",
            session_user: "",
            database: "",
            schemas: &[],
            process_id: 0,
            random: &NoRandom,
        }
    }
}

/// Kinds of catalog objects the reg* types name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegKind {
    /// regclass
    Class,
    /// regtype
    Type,
    /// regnamespace
    Namespace,
    /// regrole
    Role,
    /// regproc
    Proc,
    /// regprocedure
    Procedure,
}

impl RegKind {
    /// The kind a reg* type names.
    pub fn of(ty: Type) -> Option<RegKind> {
        Some(match ty {
            Type::REGCLASS => RegKind::Class,
            Type::REGTYPE => RegKind::Type,
            Type::REGNAMESPACE => RegKind::Namespace,
            Type::REGROLE => RegKind::Role,
            Type::REGPROC => RegKind::Proc,
            Type::REGPROCEDURE => RegKind::Procedure,
            _ => return None,
        })
    }
}

/// What functions and the reg* types ask the catalog and the session. Every method has a default,
/// which knows nothing beyond the built-in types.
pub trait CatalogFunctions: Send + Sync {
    /// The OID of an object by its (possibly quoted and qualified) name; `None` if there is none.
    /// Numbers never come here. Built-in type names are resolved before asking.
    fn reg_in(&self, _kind: RegKind, _name: &str) -> SqlResult<Option<Oid>> {
        Ok(None)
    }

    /// The name of an object as its reg* type prints it: qualified only where the search path needs
    /// it. `None` prints the number. Built-in types are printed before asking.
    fn reg_out(&self, _kind: RegKind, _oid: Oid) -> Option<String> {
        None
    }

    /// The name of a user-defined type, as `format_type` prints it.
    fn type_name(&self, _ty: Type) -> Option<String> {
        None
    }

    /// Appends the label of a value of an enum type. A catalog that does not know it appends the rank.
    fn enum_label(&self, value: EnumValue, out: &mut String) {
        out.push_str(&value.rank.to_string());
    }

    /// The value that a label of an enum type stands for; `None` if there is none. A catalog that does not
    /// know labels takes ranks, as [`CatalogFunctions::enum_label`] shows them.
    fn enum_value(&self, ty: Type, label: &str) -> Option<EnumValue> {
        Some(EnumValue { ty, rank: label.parse().ok()? })
    }

    /// All values of an enum type, in order.
    fn enum_values(&self, _ty: Type) -> Vec<EnumValue> {
        Vec::new()
    }

    /// The value of a setting, `None` if there is no such setting.
    fn current_setting(&self, _name: &str) -> Option<String> {
        None
    }

    /// `set_config`: sets a setting and returns its new value.
    fn set_config(&self, name: &str, _value: Option<&str>, _local: bool) -> SqlResult<String> {
        Err(SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("unrecognized configuration parameter \"{name}\""),
        ))
    }

    /// Every other function that needs the catalog or the session, by name
    /// ([`crate::functions::CATALOG_FUNCTIONS`] lists them with their signatures). Arguments have
    /// the signature's types; strict functions are not called with NULL.
    fn call(&self, name: &str, _args: &[Datum], _context: &EvalContext<'_>) -> SqlResult<Datum> {
        Err(SqlError::unsupported(format_args!("function {name}")))
    }

    /// The same for set-returning functions (`pg_show_all_settings`, …).
    fn rows(&self, name: &str, _args: &[Datum], _context: &EvalContext<'_>) -> SqlResult<Vec<Row>> {
        Err(SqlError::unsupported(format_args!("function {name}")))
    }
}

/// A catalog that knows nothing.
pub struct NoCatalog;

impl CatalogFunctions for NoCatalog {}
