//! What a running statement asks of its session: [`ExecHost`].

use super::api::CancelHandle;
use super::locks::{LockKey, Scope, mode};
use super::privileges;
use super::sequences;
use super::view::{SessionView, Times};
use crate::bind;
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::routine::{RoutineDescriptor, TriggerDescriptor};
use crate::exec::{ExecContext, ExecHost};
use crate::plan::{Checks, Expr};
use crate::routine;
use crate::routine::trigger::TriggerCall;
use crate::system;
use async_trait::async_trait;
use sql_types::functions::{CatalogFunctions, EvalContext, Function};
use sql_types::{Datum, Oid, Row, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The session as its statements see it.
pub(crate) struct Host<'a> {
    pub view: &'a SessionView,
    pub times: Times,
}

#[async_trait]
impl ExecHost for Host<'_> {
    async fn system_rows(&self, name: &'static str) -> SqlResult<Vec<Row>> {
        system::rows(name, self.view).await
    }

    fn count_analytic_part(&self) {
        self.view.shared.engine.count_analytic_part();
    }

    fn count_partial_aggregate(&self) {
        self.view.shared.engine.count_partial_aggregate();
    }

    fn secures(&self, table: &TableDescriptor) -> bool {
        self.view.snapshot().secures(table, self.view.user)
    }

    async fn next_value(&self, sequence: Oid) -> SqlResult<i64> {
        sequences::next_value(self.view, sequence).await
    }

    async fn set_value(&self, sequence: Oid, value: i64, is_called: bool) -> SqlResult<i64> {
        sequences::set_value(self.view, sequence, value, is_called).await
    }

    async fn call_external(
        &self,
        function: &Function,
        args: &[Datum],
        eval: &EvalContext<'_>,
    ) -> SqlResult<Datum> {
        match function.name {
            "pg_sleep" => {
                let seconds = match args.first() {
                    Some(Datum::Float8(seconds)) if seconds.is_finite() => seconds.clamp(0.0, 1e9),
                    _ => 0.0,
                };
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                Ok(Datum::text(""))
            }
            "pg_sleep_until" => {
                let until = match args.first() {
                    Some(Datum::Timestamptz(until)) => *until,
                    _ => 0,
                };
                let micros = until.saturating_sub((eval.clock)()).max(0) as u64;
                tokio::time::sleep(Duration::from_micros(micros)).await;
                Ok(Datum::text(""))
            }
            "pg_sleep_for" => {
                let micros = match args.first() {
                    Some(Datum::Interval(i)) => {
                        let days = i64::from(i.months) * 30 + i64::from(i.days);
                        i.micros.saturating_add(days.saturating_mul(sql_types::datetime::DAY))
                    }
                    _ => 0,
                };
                tokio::time::sleep(Duration::from_micros(micros.max(0) as u64)).await;
                Ok(Datum::text(""))
            }
            "pg_blocking_pids" => match args.first() {
                Some(Datum::Int4(pid)) => system::blocking_pids(self.view, *pid).await,
                _ => Ok(Datum::Null),
            },
            "nextval" => {
                let Some(Datum::Oid(oid)) = args.first() else { return Ok(Datum::Null) };
                sequences::next_value(self.view, *oid).await.map(Datum::Int8)
            }
            "setval" => match args {
                [Datum::Oid(oid), Datum::Int8(value), rest @ ..] => {
                    let called = !matches!(rest.first(), Some(Datum::Bool(false)));
                    sequences::set_value(self.view, *oid, *value, called).await.map(Datum::Int8)
                }
                _ => Ok(Datum::Null),
            },
            name if name.starts_with("pg_advisory") || name.starts_with("pg_try_advisory") => {
                self.advisory(name, args).await
            }
            name => self.view.call(name, args, eval),
        }
    }

    async fn call_routine(
        &self,
        routine: &Arc<RoutineDescriptor>,
        args: Vec<Datum>,
        cx: &ExecContext<'_>,
    ) -> SqlResult<Datum> {
        if !self.view.snapshot().may_execute(self.view.user, routine) {
            return Err(privileges::denied("function", &routine.name));
        }
        let Some(view) = self.view.within(routine)? else {
            return routine::nested::call(self, routine, args, cx).await;
        };
        let (host, eval) = (Host { view: &view, times: self.times }, view.eval(self.times));
        let cx = ExecContext { host: &host, eval: &eval, ..*cx };
        routine::nested::call(&host, routine, args, &cx).await
    }

    fn trigger_condition(
        &self,
        table: &Arc<TableDescriptor>,
        trigger: &TriggerDescriptor,
    ) -> SqlResult<Option<Expr>> {
        routine::trigger::condition(self, table, trigger)
    }

    async fn call_trigger(&self, call: &TriggerCall<'_>, cx: &ExecContext<'_>) -> SqlResult<Option<Row>> {
        let Some(function) = self.view.snapshot().routines.get(&call.trigger.routine).cloned() else {
            return Err(SqlError::internal("the function of a trigger is gone"));
        };
        let Some(view) = self.view.within(&function)? else {
            return routine::trigger::call(self, &function, call, cx).await;
        };
        let (host, eval) = (Host { view: &view, times: self.times }, view.eval(self.times));
        let cx = ExecContext { host: &host, eval: &eval, ..*cx };
        routine::trigger::call(&host, &function, call, &cx).await
    }

    fn changes_by_functions(&self) -> u64 {
        self.view.shared.changes.load(Ordering::Relaxed)
    }

    fn table(&self, oid: Oid) -> Option<Arc<TableDescriptor>> {
        self.view.snapshot().table(oid).cloned()
    }

    fn referencing(&self, oid: Oid) -> Vec<(Arc<TableDescriptor>, usize)> {
        self.view.snapshot().referencing(oid)
    }

    fn schema_name(&self, oid: Oid) -> Option<String> {
        self.view.snapshot().schema_name(self.view.catalog.database, oid).map(str::to_string)
    }

    fn checks(&self, table: &Arc<TableDescriptor>) -> SqlResult<Checks> {
        let eval = self.view.eval(self.times);
        bind::bind_checks(table, &self.view.bind_context(&eval, &[]))
    }

    fn column_default(&self, table: &Arc<TableDescriptor>, column: u32) -> SqlResult<Expr> {
        let column = table.column(column).ok_or_else(|| SqlError::internal("no such column"))?;
        let eval = self.view.eval(self.times);
        let context = self.view.bind_context(&eval, &[]);
        match bind::default_of(column, &context) {
            None => Ok(Expr::Const(Datum::Null, column.ty.ty)),
            Some(text) => bind::bind_default(&text, column, &context),
        }
    }
}

impl Host<'_> {
    /// The advisory lock functions: session or transaction, exclusive or shared, waiting or not.
    async fn advisory(&self, name: &str, args: &[Datum]) -> SqlResult<Datum> {
        let shared = &self.view.shared;
        if name == "pg_advisory_unlock_all" {
            shared.release_session_locks();
            return Ok(Datum::text(""));
        }
        let key = match args {
            [Datum::Int8(key)] => LockKey::Advisory(shared.database, *key, false),
            [Datum::Int4(high), Datum::Int4(low)] => {
                let key = i64::from(*high) << 32 | i64::from(*low as u32);
                LockKey::Advisory(shared.database, key, true)
            }
            _ => return Err(SqlError::internal("an advisory lock takes one or two numbers")),
        };
        let strength = if name.ends_with("_shared") { mode::SHARE } else { mode::ACCESS_EXCLUSIVE };
        if name.contains("_unlock") {
            let released = shared.unlock_advisory(key, strength);
            if !released {
                let kind = mode::NAMES[if strength == mode::SHARE { 4 } else { 6 }];
                shared.notice(super::api::Notice::warning(
                    SqlState::WARNING,
                    format!("you don't own a lock of type {kind}"),
                ));
            }
            return Ok(Datum::Bool(released));
        }
        let scope = if name.contains("_xact_") { Scope::Transaction } else { Scope::Session };
        let tries = name.starts_with("pg_try");
        let timeout = self.view.derived.lock_timeout;
        let granted = shared.lock_advisory(key, strength, scope, (!tries, timeout)).await?;
        Ok(if tries { Datum::Bool(granted) } else { Datum::text("") })
    }
}

/// Runs something of a statement until it ends, is cancelled or takes too long.
pub(crate) async fn guarded<T>(
    cancel: &CancelHandle,
    deadline: Option<tokio::time::Instant>,
    running: impl Future<Output = SqlResult<T>>,
) -> SqlResult<T> {
    let wake = cancel.0.wake.notified();
    tokio::pin!(wake);
    wake.as_mut().enable();
    cancel.0.flag.check()?;
    let stopped = |flag: &crate::exec::CancelFlag| {
        flag.check().err().unwrap_or_else(|| SqlError::new(SqlState::QUERY_CANCELED, "canceling statement"))
    };
    match deadline {
        None => tokio::select! {
            biased;
            result = running => result,
            () = wake => Err(stopped(&cancel.0.flag)),
        },
        Some(deadline) => tokio::select! {
            biased;
            result = running => result,
            () = wake => Err(stopped(&cancel.0.flag)),
            () = tokio::time::sleep_until(deadline) => {
                cancel.0.flag.time_out();
                Err(stopped(&cancel.0.flag))
            }
        },
    }
}

/// Types given by their OIDs; 0 leaves a type open.
pub(crate) fn types_of(oids: &[Oid]) -> Vec<Type> {
    oids.iter().map(|oid| if *oid == 0 { Type::UNKNOWN } else { Type(*oid) }).collect()
}
