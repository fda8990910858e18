//! [`Nested`]: the statements of a function that a running statement calls.

use super::plpgsql::frame::{Frame, Holder};
use super::plpgsql::machine::{Gives, Machine};
use super::plpgsql::rows::Shape;
use super::rows;
use super::stack::{Deep, planning};
use super::statements::{Answer, Columns, Mark, Statements, without_position};
use super::{Compiled, MOST_CALLS, compiled, too_deep};
use crate::bind::{self, Variable, VariableKind, Variables};
use crate::catalog::routine::RoutineDescriptor;
use crate::exec::relation::batch_bytes;
use crate::exec::{ExecContext, MemoryBudget, Reservation, execute};
use crate::parse::{Statement, StatementKind};
use crate::session::command::Command;
use crate::session::locks::LockKey;
use crate::session::prepared::{self, CachedPlan};
use crate::session::view::{SessionView, Shared};
use crate::session::{Host, Notice, privileges};
use async_trait::async_trait;
use sql_types::cast::{self, CastKind};
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type, text};
use sqlparser::ast::DataType;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The statements of a function, within the transaction of the one that called it.
pub(crate) struct Nested<'a> {
    pub cx: ExecContext<'a>,
    pub view: &'a SessionView,
    /// Whether the function is volatile: it may change rows.
    pub volatile: bool,
}

/// A call that is running.
struct Call<'a>(&'a Shared);

/// Calls between looks at whether the statement was cancelled.
const CALLS: u32 = 32;

impl<'a> Call<'a> {
    async fn enter(shared: &'a Shared, cx: &ExecContext<'_>) -> SqlResult<Call<'a>> {
        let call = Call(shared);
        if shared.calls.fetch_add(1, Ordering::Relaxed) >= MOST_CALLS {
            return Err(too_deep());
        }
        if shared.called.fetch_add(1, Ordering::Relaxed).is_multiple_of(CALLS) {
            cx.pause().await?;
        }
        Ok(call)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls a function, with the rights and the search path of the host's view.
pub(crate) async fn call(
    host: &Host<'_>,
    routine: &Arc<RoutineDescriptor>,
    args: Vec<Datum>,
    cx: &ExecContext<'_>,
) -> SqlResult<Datum> {
    let body = compiled(routine)?;
    let add = |frame: &mut Frame| {
        for (number, declared) in routine.declared().iter().enumerate() {
            let value = declared.input.and_then(|at| args.get(at)).cloned().unwrap_or_default();
            let unnamed = format!("${}", number + 1);
            let holder = Holder::Value(ColumnType::plain(declared.ty), value);
            frame.add(Some(&routine.name), declared.name.unwrap_or(&unnamed), holder);
        }
    };
    match &*body {
        Compiled::Sql(statements) => Deep::new(run_sql(host, routine, statements, args, cx)).await,
        Compiled::PlPgSql(_) if routine.set || !routine.outputs.is_empty() => {
            run(host, routine, Gives::Rows(Arc::new(Shape::of(routine))), cx, add).await
        }
        Compiled::PlPgSql(_) if routine.returns == Type::VOID => {
            // Nothing is the empty text here, and NULL in SQL.
            run(host, routine, Gives::Nothing, cx, add).await.map(|_| Datum::text(""))
        }
        Compiled::PlPgSql(_) => run(host, routine, Gives::Value(routine.returns), cx, add).await,
    }
}

/// Runs the PL/pgSQL body of a function, with what `add` puts into its frame.
pub(super) async fn run(
    host: &Host<'_>,
    routine: &RoutineDescriptor,
    gives: Gives,
    cx: &ExecContext<'_>,
    add: impl FnOnce(&mut Frame) + Send,
) -> SqlResult<Datum> {
    let body = compiled(routine)?;
    let Compiled::PlPgSql(block) = &*body else { return Err(SqlError::internal("not PL/pgSQL")) };
    let _call = Call::enter(&host.view.shared, cx).await?;
    let mut nested = Nested { cx: *cx, view: host.view, volatile: !routine.is_stable() };
    let mut machine = Machine::new(&mut nested, gives);
    add(&mut machine.frame);
    Deep::new(machine.run(block)).await
}

/// The names of a function's arguments in its statements.
pub(crate) fn argument_variables(routine: &RoutineDescriptor) -> Variables {
    let mut key = format!("sql\u{1}{}", routine.name);
    let mut list = Vec::new();
    for (position, argument) in routine.arguments.iter().enumerate() {
        let Some(name) = &argument.name else { continue };
        key.push('\u{1}');
        key.push_str(name);
        key.push_str(&position.to_string());
        list.push(Variable {
            block: Some(routine.name.as_str().into()),
            name: name.as_str().into(),
            kind: VariableKind::Value(position, argument.ty),
        });
    }
    Variables { list, types: routine.argument_types().collect(), columns_first: true, key: key.into() }
}

async fn run_sql(
    host: &Host<'_>,
    routine: &RoutineDescriptor,
    statements: &[Arc<Statement>],
    args: Vec<Datum>,
    cx: &ExecContext<'_>,
) -> SqlResult<Datum> {
    let _call = Call::enter(&host.view.shared, cx).await?;
    let variables = Arc::new(argument_variables(routine));
    let mut nested = Nested { cx: *cx, view: host.view, volatile: !routine.is_stable() };
    let mut value = Datum::Null;
    for (position, statement) in statements.iter().enumerate() {
        let last = position + 1 == statements.len();
        let most = usize::from(last && !routine.set);
        let answer = nested.run(statement, &variables, args.clone(), most).await?;
        if !last || (routine.returns == Type::VOID && !routine.set) {
            continue;
        }
        if routine.gives_rows() {
            value = nested.rows(routine, answer)?;
            continue;
        }
        let ty = match answer.columns.as_deref() {
            Some([column]) => column.ty.ty,
            _ => return Err(mismatch(routine, "Final statement must return exactly one column.")),
        };
        let first = answer.rows.into_iter().next().and_then(|row| row.into_iter().next());
        value = nested.convert(first.unwrap_or_default(), ty, routine.column_type())?;
    }
    Ok(value)
}

/// `42P13`: the body does not give what is declared.
pub(crate) fn mismatch(routine: &RoutineDescriptor, detail: &str) -> SqlError {
    let message = format!("return type mismatch in function declared to return {}", routine.returns);
    SqlError::new(SqlState("42P13"), message).with_detail(detail)
}

/// 0A000 for what is no query and no change of rows.
pub(crate) fn not_here(statement: &Statement) -> SqlError {
    let words = statement.text.split_whitespace().take(2).collect::<Vec<_>>().join(" ").to_uppercase();
    SqlError::unsupported(format!("{words} in a function"))
}

impl Nested<'_> {
    /// What a function in SQL gives for rows.
    fn rows(&self, routine: &RoutineDescriptor, answer: Answer) -> SqlResult<Datum> {
        let wanted = routine.columns();
        let columns = answer.columns.as_deref().unwrap_or_default();
        if columns.len() != wanted.len() {
            return Err(mismatch(routine, "Final statement returns another number of columns."));
        }
        let mut given = Vec::with_capacity(answer.rows.len());
        for row in answer.rows {
            let values = row.into_iter().zip(columns.iter().zip(&wanted));
            let values = values
                .map(|(value, (column, (_, ty)))| self.convert(value, column.ty.ty, ColumnType::plain(*ty)));
            given.push(rows::row(values.collect::<SqlResult<_>>()?));
        }
        if given.is_empty() && !routine.set {
            given.push(rows::row(vec![Datum::Null; wanted.len()]));
        }
        Ok(rows::value(given))
    }

    /// Makes everything ready for a plan: its locks, privileges and modes.
    async fn admit(&self, plan: &CachedPlan) -> SqlResult<()> {
        let shared = &self.view.shared;
        for (table, mode) in &plan.locks {
            shared.lock(LockKey::Table(*table), *mode).await?;
        }
        // The calling statement keeps the catalog it began with: what changed meanwhile cannot be read by it.
        if let Some(now) = shared.engine.cached_catalog().filter(|_| !self.cx.read_only) {
            for (table, _) in &plan.locks {
                let version = |catalog: &crate::catalog::CatalogSnapshot| {
                    catalog.table(*table).map(|table| table.version)
                };
                let stale = self.view.base.table(*table).is_some()
                    && now.version() > self.view.base.version()
                    && version(&now) != version(&self.view.base);
                if stale {
                    let message = "could not serialize access: a table changed while the statement ran";
                    return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message));
                }
            }
        }
        if !self.view.is_superuser() {
            privileges::check(self.view.snapshot(), self.view.user, &plan.needed)?;
        }
        let what = match plan.kind {
            StatementKind::Update => "UPDATE",
            StatementKind::Delete => "DELETE",
            StatementKind::Merge => "MERGE",
            _ => "INSERT",
        };
        if !self.volatile && !plan.changed.is_empty() {
            let message = format!("{what} is not allowed in a non-volatile function");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let changes = plan.changed.iter().any(|table| table.schema != crate::catalog::oids::PG_TEMP);
        if changes && self.cx.read_only {
            let message = format!("cannot execute {what} in a read-only transaction");
            return Err(SqlError::new(SqlState::READ_ONLY_TRANSACTION, message));
        }
        plan.check_populated()
    }

    async fn answer(&self, plan: &CachedPlan, values: &[Datum], most: usize) -> SqlResult<Answer> {
        if !plan.changed.is_empty() {
            self.view.shared.changes.fetch_add(1, Ordering::Relaxed);
        }
        let cx = ExecContext { params: values, before: None, implicit_commit: false, stats: None, ..self.cx };
        let mut stream = execute(&plan.plan, &cx)?;
        let most = if plan.changed.is_empty() { most } else { 0 };
        let (mut rows, mut memory) = (Vec::new(), Reservation::default());
        while most == 0 || rows.len() < most {
            let want = if most == 0 { 0 } else { most - rows.len() };
            let Some(batch) = stream.next_batch(&cx, want).await? else { break };
            memory.grow(cx.memory, batch_bytes(&batch))?;
            rows.extend(batch);
        }
        let affected = stream.affected().unwrap_or(rows.len() as u64);
        if affected > 0 && !plan.changed.is_empty() && self.view.derived.auto_analyze {
            self.view.shared.engine.note_changes(&plan.changed, affected);
        }
        Ok(Answer { columns: plan.columns.clone(), rows, affected, kind: plan.kind, memory })
    }
}

#[async_trait]
impl Statements for Nested<'_> {
    async fn run(
        &mut self,
        statement: &Arc<Statement>,
        variables: &Arc<Variables>,
        values: Vec<Datum>,
        most: usize,
    ) -> SqlResult<Answer> {
        if !matches!(*prepared::command_of(statement)?, Command::Planned) || statement.as_of.is_some() {
            return Err(not_here(statement));
        }
        let plan = planning(|| prepared::plan_within(self.view, statement, variables));
        let plan = plan.map_err(without_position)?;
        self.admit(&plan).await?;
        self.answer(&plan, &values, most).await
    }

    fn convert(&self, value: Datum, from: Type, to: ColumnType) -> SqlResult<Datum> {
        convert(value, from, to, &self.cx)
    }

    fn show(&self, value: &Datum, ty: Type) -> String {
        text::to_string(value, ty, &self.cx.eval.text)
    }

    fn named_type(&self, ty: &DataType) -> SqlResult<ColumnType> {
        let found = bind::declared_type(ty, &self.view.bind_context(self.cx.eval, &[]))?;
        if found.ty.is_domain() {
            return Err(SqlError::unsupported("a variable of a domain"));
        }
        Ok(found)
    }

    fn relation(&self, schema: Option<&str>, name: &str) -> SqlResult<Option<Columns>> {
        use crate::bind::{CatalogLookup, RelationRef};
        let found = self.view.catalog.relation(schema, name, &self.view.path)?;
        Ok(found.and_then(|found| match found {
            RelationRef::Table(table) => Some(super::trigger::fields(&table)),
            RelationRef::View(view) => {
                Some(view.columns.iter().map(|(name, ty)| (name.as_str().into(), *ty)).collect())
            }
            _ => None,
        }))
    }

    fn notice(&self, notice: Notice) {
        self.view.shared.notice(notice);
    }

    fn memory(&self) -> &MemoryBudget {
        self.cx.memory
    }

    fn mark(&mut self) -> SqlResult<Mark> {
        Ok(Mark { kv: self.cx.txn.savepoint(), deferred: self.cx.deferred.mark(), session: None })
    }

    fn back_to(&mut self, mark: &Mark) {
        self.cx.txn.rollback_to(mark.kv);
        self.cx.deferred.rollback_to(&mark.deferred);
    }

    async fn pause(&self) -> SqlResult<()> {
        self.cx.pause().await
    }
}

/// A value in another type: by a cast that assignments make, or else by way of its text.
pub(super) fn convert(value: Datum, from: Type, to: ColumnType, cx: &ExecContext<'_>) -> SqlResult<Datum> {
    if value.is_null() || (from == to.ty && to.typmod < 0) {
        return Ok(value);
    }
    let castable =
        from == to.ty || cast::cast_kind(from, to.ty).is_some_and(|kind| kind != CastKind::Explicit);
    if castable {
        return cast::cast(&value, from, to, false, cx.eval);
    }
    let shown = text::to_string(&value, from, &cx.eval.text);
    let read = text::parse(to, &shown, &cx.eval.text)?;
    cast::apply_typmod(read, to, false)
}
