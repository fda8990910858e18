//! Transactions of the past: where AS OF SYSTEM TIME leads, and what may be read there.
//!
//! # Which catalog
//!
//! Rows are read with the tables, columns, indexes and views of their time. Who may read them is decided by the roles and
//! privileges of the present. What was cleared since cannot be read: the rows of a table that was dropped, truncated or
//! rewritten ([`SNAPSHOT_TOO_OLD`]), and an index that was dropped, which is not used then.
//!
//! # Bounded staleness
//!
//! `with_max_staleness` and `with_min_timestamp` choose a time without asking anybody: [`BOUNDED_LAG`] ago, when as a rule
//! nothing is in flight any more, or the bound if that is later. CockroachDB finds the newest time that the nearest
//! replica can serve.

use super::Session;
use super::command::Modes;
use super::prepared::CachedPlan;
use super::transaction::Open;
use super::view::{SessionView, Times};
use crate::bind;
use crate::catalog::CatalogSnapshot;
use crate::exec::eval::{EvalEnv, eval};
use crate::parse::AsOf;
use kv_api::Timestamp;
use kv_api::timestamp::MAX_CLOCK_OFFSET_NS;
use kv_client::{FOLLOWER_READ_AGE, TxnOptions};
use sql_types::context::TextContext;
use sql_types::datetime::{
    UNIX_EPOCH_OFFSET, interval_negate, timestamp_to_timestamptz, timestamptz_plus_interval,
};
use sql_types::{Datum, Interval, SqlError, SqlResult, SqlState, Type, text};
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `snapshot_too_old`
pub(crate) const SNAPSHOT_TOO_OLD: SqlState = SqlState("72000");

/// How far bounded staleness goes back unless the bound is nearer.
const BOUNDED_LAG: Duration = Duration::from_secs(1);

/// Digits of a decimal timestamp behind the point: the logical part.
const LOGICAL_DIGITS: usize = 10;
/// Digits from which on a number in a string is a decimal timestamp and no date.
const LEAST_DIGITS: usize = 16;

/// A transaction's place in the past.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub timestamp: Timestamp,
    /// Any replica may answer, however near the time.
    pub any_replica: bool,
    /// What there was.
    pub catalog: Arc<CatalogSnapshot>,
}

/// A time that a clause names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chosen {
    timestamp: Timestamp,
    any_replica: bool,
}

impl Session {
    /// Where a clause leads.
    ///
    /// # Errors
    /// 22023 for a time in the future, 72000 for one of which nothing is known any more, and what is wrong with the
    /// expression.
    pub(super) async fn look_back(&self, clause: &AsOf) -> SqlResult<Past> {
        let chosen = choose(clause, &self.view, self.times(), now_ns())?;
        let Chosen { timestamp, any_replica } = chosen;
        let options = TxnOptions {
            as_of: Some(timestamp),
            follower_reads: any_replica || self.view.derived.follower_reads,
            ..TxnOptions::default()
        };
        let catalog = self.shared.engine.catalog_at(timestamp, options).await.map_err(too_old)?;
        Ok(Past { timestamp, any_replica, catalog })
    }

    /// Makes ready for a statement: its transaction is open, and the view shows what the statement is to see.
    ///
    /// # Errors
    /// 0A000 if the transaction reads at another time, and see [`Session::look_back`].
    pub(super) async fn enter(&mut self, clause: Option<&Arc<AsOf>>) -> SqlResult<()> {
        match clause {
            Some(clause) => {
                let past = self.look_back(clause).await?;
                match &self.transaction {
                    Some(open) if open.is_at(past.timestamp) => {}
                    Some(open) if open.explicit || open.used => {
                        return Err(inconsistent(clause, open, &past));
                    }
                    _ => self.start(false, Modes::default(), Some(past)),
                }
            }
            None if self.is_past() && !self.in_block() => {
                let message = "a statement without AS OF SYSTEM TIME must wait for the end of one with it";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            None => self.ensure_transaction(),
        }
        self.refresh_view().await
    }

    /// Makes the view show what a statement that reads the past will see, before it runs.
    pub(super) async fn preview(&mut self, clause: &AsOf) -> SqlResult<()> {
        if !self.is_past() {
            let past = self.look_back(clause).await?;
            self.view = Arc::new(SessionView::new(self.shared.clone(), past.catalog)?);
        }
        Ok(())
    }

    /// Whether the transaction reads the past.
    pub(super) fn is_past(&self) -> bool {
        self.transaction.as_ref().is_some_and(|open| open.past.is_some())
    }

    /// Fails unless a plan may run in a transaction of the past, and everything it reads is still there. Its table
    /// locks keep it there.
    ///
    /// # Errors
    /// 25006 for a plan that locks rows, 72000 if rows are gone.
    pub(super) async fn check_kept(&self, plan: &CachedPlan) -> SqlResult<()> {
        if plan.locking {
            return Err(super::run::read_only("SELECT FOR UPDATE"));
        }
        let (then, now) = (self.view.snapshot(), self.shared.engine.catalog().await?);
        if then.id() == now.id() {
            return Ok(());
        }
        for (table, _) in &plan.locks {
            let Some(table) = then.table(*table) else { continue };
            if !now.table(table.oid).is_some_and(|now| now.holds(table)) {
                let message = format!("the rows that \"{}\" had then are not there any more", table.name);
                return Err(SqlError::new(SNAPSHOT_TOO_OLD, message).with_detail(
                    "Since then it was dropped, truncated or rewritten, which clears its history.",
                ));
            }
        }
        Ok(())
    }

    /// An error as the client is told it.
    pub(super) fn told(&self, error: SqlError) -> SqlError {
        let error = self.view.with_named_types(error);
        if self.is_past() { too_old(error) } else { error }
    }
}

impl Open {
    fn is_at(&self, timestamp: Timestamp) -> bool {
        self.past.as_ref().is_some_and(|past| past.timestamp == timestamp)
    }
}

fn inconsistent(clause: &AsOf, open: &Open, past: &Past) -> SqlError {
    let expected = match &open.past {
        Some(past) => decimal(past.timestamp),
        None => "the present".into(),
    };
    let got = decimal(past.timestamp);
    let message = format!("inconsistent AS OF SYSTEM TIME timestamp; expected: {expected}, got: {got}");
    clause
        .error(SqlState::FEATURE_NOT_SUPPORTED, message)
        .with_hint("Try BEGIN AS OF SYSTEM TIME, or SET TRANSACTION AS OF SYSTEM TIME.")
}

/// A transaction of the past conflicts with nobody: if it must start over, its snapshot is not kept any more.
fn too_old(error: SqlError) -> SqlError {
    if error.code != SqlState::SERIALIZATION_FAILURE {
        return error;
    }
    SqlError::new(SNAPSHOT_TOO_OLD, "snapshot too old")
        .with_detail("What was there at that time is not kept any more.")
        .with_hint("Read a later time. dormouse tenant set --gc-ttl keeps history for longer from now on.")
}

/// Nanoseconds since 1970, by the wall clock.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The time that a clause names at a present of `now_ns`.
fn choose(clause: &AsOf, view: &SessionView, times: Times, now_ns: u64) -> SqlResult<Chosen> {
    let session = view.eval(times);
    let value = |expr: &Expr| {
        let bound = bind::bind_scalar(expr, &view.bind_context(&session, &[]))?;
        eval(&bound, &[], &EvalEnv { eval: &session, params: &[], outer: None })
    };
    let invalid =
        |message: String| clause.error(SqlState::INVALID_PARAMETER, format!("AS OF SYSTEM TIME: {message}"));
    let chosen = match call(&clause.expr) {
        Some((name, args)) => {
            let args = args.into_iter().map(value).collect::<SqlResult<Vec<_>>>()?;
            called(&name, &args, &session.text, now_ns)
        }
        None => {
            let at = instant(&value(&clause.expr)?, &session.text, now_ns);
            at.map(|timestamp| Chosen { timestamp, any_replica: false })
        }
    };
    let chosen = chosen.map_err(invalid)?;
    // Other clocks may be ahead: what they showed is not the future yet.
    if chosen.timestamp.wall_ns > now_ns.saturating_add(MAX_CLOCK_OFFSET_NS) {
        let (at, now) = (decimal(chosen.timestamp), decimal(Timestamp::new(now_ns, 0)));
        return Err(invalid(format!("cannot specify timestamp in the future ({at} > {now})")));
    }
    Ok(chosen)
}

/// Name and arguments of a function that means something here only.
fn call(expr: &Expr) -> Option<(String, Vec<&Expr>)> {
    let Expr::Function(function) = expr else { return None };
    let name = function.name.to_string().to_ascii_lowercase();
    if !matches!(&*name, "follower_read_timestamp" | "with_max_staleness" | "with_min_timestamp") {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return Some((name, Vec::new())) };
    let args = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    Some((name, args.collect::<Option<_>>()?))
}

/// The time that one of these functions chooses.
fn called(name: &str, args: &[Datum], context: &TextContext<'_>, now_ns: u64) -> Result<Chosen, String> {
    let ago = |time: Duration| Timestamp::new(now_ns.saturating_sub(nanos(time)), 0);
    let oldest = match (name, args) {
        ("follower_read_timestamp", []) => {
            return Ok(Chosen { timestamp: ago(FOLLOWER_READ_AGE), any_replica: true });
        }
        ("with_max_staleness", [staleness]) => {
            let staleness = match staleness {
                Datum::Interval(interval) => *interval,
                Datum::Text(given) => match text::parse(Type::INTERVAL.into(), given, context) {
                    Ok(Datum::Interval(interval)) => interval,
                    _ => return Err(format!("\"{given}\" is not an interval")),
                },
                _ => return Err("with_max_staleness takes an interval".into()),
            };
            let oldest = before(staleness, context, now_ns)?;
            if oldest.wall_ns > now_ns {
                return Err("the staleness must not be negative".into());
            }
            oldest
        }
        ("with_min_timestamp", [least]) => instant(least, context, now_ns)?,
        _ => return Err(format!("{name} is called with other arguments")),
    };
    Ok(Chosen { timestamp: oldest.max(ago(BOUNDED_LAG)), any_replica: true })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The time that a value names.
fn instant(value: &Datum, context: &TextContext<'_>, now_ns: u64) -> Result<Timestamp, String> {
    match value {
        Datum::Text(given) => named(given, context, now_ns),
        Datum::Timestamptz(micros) => from_micros(*micros),
        Datum::Timestamp(micros) => {
            let utc = timestamp_to_timestamptz(*micros, context.time_zone).map_err(|error| error.message)?;
            from_micros(utc)
        }
        Datum::Interval(interval) => past_only(after(*interval, context, now_ns)?, now_ns),
        Datum::Int4(_) | Datum::Int8(_) | Datum::Numeric(_) => {
            let text = text::to_string(value, type_of_number(value), context);
            from_decimal(&text)
                .ok_or_else(|| format!("\"{text}\" is not a timestamp in nanoseconds since 1970"))
        }
        _ => Err("expected timestamp, decimal, or interval".into()),
    }
}

fn type_of_number(value: &Datum) -> Type {
    match value {
        Datum::Int4(_) => Type::INT4,
        Datum::Int8(_) => Type::INT8,
        _ => Type::NUMERIC,
    }
}

fn named(given: &str, context: &TextContext<'_>, now_ns: u64) -> Result<Timestamp, String> {
    let given = given.trim();
    let digits = given.bytes().take_while(u8::is_ascii_digit).count();
    if digits >= LEAST_DIGITS
        && let Some(timestamp) = from_decimal(given)
    {
        return Ok(timestamp);
    }
    if let Ok(Datum::Timestamptz(micros)) = text::parse(Type::TIMESTAMPTZ.into(), given, context) {
        return from_micros(micros);
    }
    match text::parse(Type::INTERVAL.into(), given, context) {
        Ok(Datum::Interval(interval)) => past_only(after(interval, context, now_ns)?, now_ns),
        _ => Err("value is neither timestamp, decimal, nor interval".into()),
    }
}

/// An interval is counted from this clock, so what lies ahead of it is the future.
fn past_only(timestamp: Timestamp, now_ns: u64) -> Result<Timestamp, String> {
    if timestamp.wall_ns > now_ns {
        return Err("cannot specify timestamp in the future: the interval must be negative".into());
    }
    Ok(timestamp)
}

fn after(interval: Interval, context: &TextContext<'_>, now_ns: u64) -> Result<Timestamp, String> {
    let micros = i64::try_from(now_ns / 1000).unwrap_or(i64::MAX) - UNIX_EPOCH_OFFSET;
    let at = timestamptz_plus_interval(micros, interval, context.time_zone).map_err(|error| error.message)?;
    from_micros(at)
}

fn before(interval: Interval, context: &TextContext<'_>, now_ns: u64) -> Result<Timestamp, String> {
    let negative = interval_negate(interval).map_err(|error| error.message)?;
    after(negative, context, now_ns)
}

/// From microseconds since 2000.
fn from_micros(micros: i64) -> Result<Timestamp, String> {
    let since_1970 = micros.saturating_add(UNIX_EPOCH_OFFSET);
    match u64::try_from(since_1970) {
        Ok(micros) => Ok(Timestamp::new(micros.saturating_mul(1000), 0)),
        Err(_) => Err("timestamp before 1970-01-01T00:00:00Z is invalid".into()),
    }
}

/// A timestamp as a decimal number: nanoseconds since 1970 and, behind the point, ten digits for the logical part.
pub(crate) fn decimal(timestamp: Timestamp) -> String {
    format!("{}.{:0width$}", timestamp.wall_ns, timestamp.logical, width = LOGICAL_DIGITS)
}

/// The timestamp that a decimal number stands for.
fn from_decimal(text: &str) -> Option<Timestamp> {
    let (wall, logical) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(wall) || !is_digits(logical) || logical.len() > LOGICAL_DIGITS {
        return None;
    }
    let logical = format!("{logical:0<width$}", width = LOGICAL_DIGITS);
    Some(Timestamp::new(wall.parse().ok()?, logical.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01 00:00 UTC.
    const NOW: u64 = 1_767_225_600_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn at(text: &str) -> Result<Timestamp, String> {
        named(text, &TextContext::plain(), NOW)
    }

    #[test]
    fn a_string_is_a_timestamp_a_decimal_or_an_interval() {
        let wall = |wall_ns| Ok(Timestamp::new(wall_ns, 0));
        assert_eq!(at("-10s"), wall(NOW - 10 * SECOND));
        assert_eq!(at(" -1 day "), wall(NOW - 86_400 * SECOND));
        assert_eq!(at("2025-12-31 23:59:58+00"), wall(NOW - 2 * SECOND));
        assert_eq!(at("2026-01-01 01:59:58+02"), wall(NOW - 2 * SECOND));
        assert_eq!(at("1767225600000000000.0000000007"), Ok(Timestamp::new(NOW, 7)));
        assert_eq!(at("1767225600000000000"), wall(NOW));
        assert_eq!(at("20251231"), wall(NOW - 86_400 * SECOND), "a date");
        assert!(at("10s").unwrap_err().contains("future"));
        assert!(at("1969-01-01").unwrap_err().contains("1970"));
        assert!(at("-infinity").unwrap_err().contains("1970"));
        assert!(at("yes").unwrap_err().contains("neither"));
    }

    #[test]
    fn decimals_are_read_as_they_are_written() {
        for timestamp in [Timestamp::new(5, 0), Timestamp::new(NOW, 12), Timestamp::MAX] {
            assert_eq!(from_decimal(&decimal(timestamp)), Some(timestamp));
        }
        assert_eq!(from_decimal("12.05"), Some(Timestamp::new(12, 500_000_000)));
        for bad in ["", ".", "-1", "1e5", "1.00000000001", "NaN", "99999999999999999999"] {
            assert_eq!(from_decimal(bad), None, "{bad}");
        }
    }

    #[test]
    fn bounded_staleness_reads_as_new_as_it_may() {
        let context = TextContext::plain();
        let of = |name: &str, arg: Datum| {
            called(name, &[arg], &context, NOW).map(|chosen| NOW - chosen.timestamp.wall_ns)
        };
        assert_eq!(of("with_max_staleness", Datum::text("10s")), Ok(SECOND));
        assert_eq!(of("with_max_staleness", Datum::text("200ms")), Ok(SECOND / 5));
        assert!(of("with_max_staleness", Datum::text("-10s")).is_err());
        assert!(of("with_max_staleness", Datum::Bool(true)).is_err());
        assert_eq!(of("with_min_timestamp", Datum::text("-1h")), Ok(SECOND));
        assert_eq!(of("with_min_timestamp", Datum::text("-300ms")), Ok(3 * SECOND / 10));
        let follower = called("follower_read_timestamp", &[], &context, NOW).unwrap();
        assert_eq!((NOW - follower.timestamp.wall_ns, follower.any_replica), (5 * SECOND, true));
    }
}
