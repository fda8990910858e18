//! [`Machine`]: runs a PL/pgSQL body.

use super::ast::{Block, Handler, Into, Source, Stmt, Target, VariableType};
use super::conditions::{self, ASSERT_FAILURE, CASE_NOT_FOUND, NO_DATA_FOUND, NO_RETURN, TOO_MANY_ROWS};
use super::frame::{Fields, Frame, Holder, Place, fields_of, record};
use crate::parse::{self, StatementKind};
use crate::routine::statements::{Answer, Sql, Statements};
use futures::FutureExt;
use futures::future::BoxFuture;
use sql_types::{ColumnType, Datum, Row, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

/// Where a statement leaves its list.
#[derive(Debug)]
enum Flow {
    Next,
    /// EXIT and CONTINUE, with their labels.
    Exit(Option<String>),
    Continue(Option<String>),
    Return,
}

/// What a body is to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gives {
    /// A value of a type.
    Value(Type),
    /// Nothing: DO, and functions returning void.
    Nothing,
    /// A row, or NULL: triggers.
    Row,
}

/// A running body.
pub(crate) struct Machine<'s> {
    pub(super) statements: &'s mut dyn Statements,
    pub(crate) frame: Frame,
    found: usize,
    pub(super) row_count: u64,
    gives: Gives,
    returned: Option<Datum>,
    /// The errors being handled, the innermost last.
    pub(super) handled: Vec<SqlError>,
    steps: u32,
}

/// Steps between looks at whether the statement was cancelled.
const STEPS: u32 = 64;

impl<'s> Machine<'s> {
    /// A machine; arguments are to be added to its frame.
    pub(crate) fn new(statements: &'s mut dyn Statements, gives: Gives) -> Machine<'s> {
        Machine {
            statements,
            frame: Frame::default(),
            found: 0,
            row_count: 0,
            gives,
            returned: None,
            handled: Vec::new(),
            steps: 0,
        }
    }

    /// Runs the body. The value it returns.
    pub(crate) async fn run(mut self, block: &Block) -> SqlResult<Datum> {
        let no = Holder::Value(ColumnType::plain(Type::BOOL), Datum::Bool(false));
        self.found = self.frame.add(None, "found", no);
        match self.block(block).await? {
            Flow::Return => Ok(self.returned.unwrap_or_default()),
            Flow::Next if self.gives == Gives::Nothing => Ok(Datum::Null),
            Flow::Next => {
                let what = if self.gives == Gives::Row { "trigger procedure" } else { "function" };
                let message = format!("control reached end of {what} without RETURN");
                Err(SqlError::new(NO_RETURN, message))
            }
            Flow::Exit(_) => Err(misplaced("EXIT")),
            Flow::Continue(_) => Err(misplaced("CONTINUE")),
        }
    }

    async fn step(&mut self) -> SqlResult<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) {
            self.statements.pause().await?;
        }
        Ok(())
    }

    fn block<'a>(&'a mut self, block: &'a Block) -> BoxFuture<'a, SqlResult<Flow>> {
        async move {
            let depth = self.frame.depth();
            self.declare(block).await?;
            let flow = if block.handlers.is_empty() {
                self.list(&block.body).await
            } else {
                self.guarded(block).await
            };
            self.frame.leave(depth);
            match flow? {
                Flow::Exit(Some(label)) if block.label.as_ref() == Some(&label) => Ok(Flow::Next),
                flow => Ok(flow),
            }
        }
        .boxed()
    }

    /// A block with EXCEPTION: what fails in it is undone and handled.
    async fn guarded(&mut self, block: &Block) -> SqlResult<Flow> {
        let mark = self.statements.mark()?;
        let depth = self.frame.depth();
        let error = match self.list(&block.body).await {
            Err(error) => error,
            done => return done,
        };
        let Some(handler) = block.handlers.iter().find(|handler| catches(handler, &error)) else {
            return Err(error);
        };
        self.statements.back_to(&mark);
        self.frame.leave(depth);
        let text = |value: &str| Holder::Value(ColumnType::plain(Type::TEXT), Datum::text(value));
        self.frame.add(None, "sqlstate", text(error.code.0));
        self.frame.add(None, "sqlerrm", text(&error.message));
        self.handled.push(error);
        let flow = self.list(&handler.body).await;
        self.handled.pop();
        self.frame.leave(depth);
        flow
    }

    async fn declare(&mut self, block: &Block) -> SqlResult<()> {
        for declaration in &block.declarations {
            let label = block.label.as_deref();
            let holder = match &declaration.ty {
                VariableType::Alias(of) => {
                    let slot = match of.strip_prefix('$').and_then(|number| number.parse::<usize>().ok()) {
                        Some(number) => number.checked_sub(1),
                        None => self.frame.named(of),
                    };
                    let Some(slot) = slot.filter(|slot| self.frame.holder(*slot).is_some()) else {
                        let message = format!("variable \"{of}\" does not exist");
                        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                    };
                    self.frame.alias(label, &declaration.name, slot);
                    continue;
                }
                VariableType::Record => Holder::Unassigned,
                VariableType::Row(name) => row_of(self.relation(name)?.into()),
                VariableType::Like(name) => self.like(name)?,
                VariableType::Named(ty) => match self.statements.named_type(ty) {
                    Ok(ty) => Holder::Value(ty, Datum::Null),
                    // The name of a table is that of its row type.
                    Err(error) => match self.named_row(&ty.to_string())? {
                        Some(fields) => row_of(fields),
                        None => return Err(error),
                    },
                },
            };
            let value = match &declaration.default {
                Some(default) => Some(self.value(default).await?),
                None => None,
            };
            let slot = self.frame.add(label, &declaration.name, holder);
            if let Some((value, ty)) = value {
                if declaration.not_null && value.is_null() {
                    let message = format!(
                        "null value cannot be assigned to variable \"{}\" declared NOT NULL",
                        declaration.name
                    );
                    return Err(SqlError::new(conditions::NULL_NOT_ALLOWED, message));
                }
                self.put(&Place { slot, field: None }, value, ty)?;
            }
            if let Some(slot) = self.frame.slot_mut(slot) {
                (slot.constant, slot.not_null) = (declaration.constant, declaration.not_null);
            }
        }
        Ok(())
    }

    fn named_row(&self, name: &str) -> SqlResult<Option<Fields>> {
        let parts: Vec<String> = name.split('.').map(|part| part.trim_matches('"').to_string()).collect();
        let found = match parts.as_slice() {
            [name] => self.statements.relation(None, name)?,
            [schema, name] => self.statements.relation(Some(schema), name)?,
            _ => None,
        };
        Ok(found.map(Fields::from))
    }

    fn relation(&self, name: &[String]) -> SqlResult<Vec<(Arc<str>, ColumnType)>> {
        let found = match name {
            [name] => self.statements.relation(None, name)?,
            [schema, name] => self.statements.relation(Some(schema), name)?,
            _ => None,
        };
        found.ok_or_else(|| {
            let message = format!("relation \"{}\" does not exist", name.join("."));
            SqlError::new(SqlState::UNDEFINED_TABLE, message)
        })
    }

    /// `name%TYPE`
    fn like(&self, name: &[String]) -> SqlResult<Holder> {
        if let Ok(place) = self.frame.place(&Target(name.to_vec())) {
            let holder = self.frame.holder(place.slot);
            match (holder, place.field) {
                (Some(Holder::Value(ty, _)), _) => return Ok(Holder::Value(*ty, Datum::Null)),
                (Some(Holder::Row { fields, .. }), Some(field)) => {
                    let ty = fields.get(field).map_or(ColumnType::plain(Type::TEXT), |(_, ty)| *ty);
                    return Ok(Holder::Value(ty, Datum::Null));
                }
                (Some(Holder::Row { fields, fixed: true, .. }), None) => return Ok(row_of(fields.clone())),
                _ => return Ok(Holder::Unassigned),
            }
        }
        let Some((column, relation)) = name.split_last().filter(|(_, relation)| !relation.is_empty()) else {
            let message = format!("variable \"{}\" does not exist", name.join("."));
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        let found = self.relation(relation)?.into_iter().find(|(known, _)| **known == **column);
        found.map(|(_, ty)| Holder::Value(ty, Datum::Null)).ok_or_else(|| {
            let message =
                format!("column \"{column}\" of relation \"{}\" does not exist", relation.join("."));
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })
    }

    fn list<'a>(&'a mut self, list: &'a [Stmt]) -> BoxFuture<'a, SqlResult<Flow>> {
        async move {
            for statement in list {
                match self.statement(statement).await? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                }
            }
            Ok(Flow::Next)
        }
        .boxed()
    }

    async fn statement(&mut self, statement: &Stmt) -> SqlResult<Flow> {
        self.step().await?;
        match statement {
            Stmt::Null => {}
            Stmt::Block(block) => return self.block(block).await,
            Stmt::Assign(target, value) => {
                let (value, ty) = self.value(value).await?;
                let place = self.frame.place(target)?;
                self.put(&place, value, ty)?;
            }
            Stmt::If(branches, otherwise) => {
                for (condition, body) in branches {
                    if self.holds(condition).await? {
                        return self.list(body).await;
                    }
                }
                return self.list(otherwise).await;
            }
            Stmt::Case { operand, branches, otherwise } => {
                return self.case(operand.as_ref(), branches, otherwise.as_deref()).await;
            }
            Stmt::Loop(label, body) => loop {
                self.step().await?;
                let flow = self.list(body).await?;
                if let Some(flow) = after(flow, label.as_deref()) {
                    return Ok(flow);
                }
            },
            Stmt::While(label, condition, body) => {
                while self.holds(condition).await? {
                    self.step().await?;
                    let flow = self.list(body).await?;
                    if let Some(flow) = after(flow, label.as_deref()) {
                        return Ok(flow);
                    }
                }
            }
            Stmt::ForInteger { label, variable, from, to, by, reverse, body } => {
                let range = [Some(from), Some(to), by.as_ref()];
                return self.count(label.as_deref(), variable, range, *reverse, body).await;
            }
            Stmt::ForRows { label, targets, source, body } => {
                let answer = match source {
                    Source::Query(query) => self.answer(query, 0).await?,
                    Source::Execute(query, using) => self.execute(query, using, 0).await?,
                };
                return self.each_row(label.as_deref(), targets, answer, body).await;
            }
            Stmt::ForEach { label, target, array, body } => {
                return self.each(label.as_deref(), target, array, body).await;
            }
            Stmt::Leave { exit, label, when } => {
                if let Some(when) = when
                    && !self.holds(when).await?
                {
                    return Ok(Flow::Next);
                }
                let label = label.clone();
                return Ok(if *exit { Flow::Exit(label) } else { Flow::Continue(label) });
            }
            Stmt::Return(value) => {
                self.returned = self.result(value.as_ref()).await?;
                return Ok(Flow::Return);
            }
            Stmt::Raise(raise) => self.raise(raise).await?,
            Stmt::RaiseAgain => {
                return Err(self.handled.last().cloned().unwrap_or_else(|| {
                    let message = "RAISE without parameters cannot be used outside an exception handler";
                    SqlError::new(SqlState("0Z002"), message)
                }));
            }
            Stmt::Assert(condition, message) => {
                if !self.holds(condition).await? {
                    let text = match message {
                        Some(message) => self.text(message).await?,
                        None => None,
                    };
                    let text = text.unwrap_or_else(|| "assertion failed".into());
                    return Err(SqlError::new(ASSERT_FAILURE, text));
                }
            }
            Stmt::Sql(sql, into) => {
                let most = match into {
                    // One more than wanted, to know of it.
                    Some(into) => 1 + usize::from(into.strict),
                    None => 0,
                };
                let answer = self.answer(sql, most).await?;
                let rows_wanted = into.is_some();
                if answer.columns.is_some() && !rows_wanted && answer.kind == StatementKind::Query {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        "query has no destination for result data",
                    )
                    .with_hint("If you want to discard the results of a SELECT, use PERFORM instead."));
                }
                self.note(&answer);
                if let Some(into) = into {
                    self.into(into, answer)?;
                }
            }
            Stmt::Perform(sql) => {
                let answer = self.answer(sql, 0).await?;
                self.note(&answer);
            }
            Stmt::Execute { query, into, using } => {
                let most = into.as_ref().map_or(0, |into| 1 + usize::from(into.strict));
                let answer = self.execute(query, using, most).await?;
                self.row_count = answer.affected;
                if let Some(into) = into {
                    self.into(into, answer)?;
                }
            }
            Stmt::Diagnostics(items) => {
                for (target, item) in items {
                    let value = self.diagnostic(item);
                    let ty = if item == "row_count" { Type::INT8 } else { Type::TEXT };
                    let place = self.frame.place(target)?;
                    self.put(&place, value, ty)?;
                }
            }
        }
        Ok(Flow::Next)
    }

    /// FOUND and ROW_COUNT after a statement.
    fn note(&mut self, answer: &Answer) {
        self.row_count = answer.affected;
        self.set_found(answer.affected > 0);
    }

    fn set_found(&mut self, found: bool) {
        if let Some(slot) = self.frame.slot_mut(self.found) {
            slot.holder = Holder::Value(ColumnType::plain(Type::BOOL), Datum::Bool(found));
        }
    }

    fn put(&mut self, place: &Place, value: Datum, ty: Type) -> SqlResult<()> {
        let statements = &*self.statements;
        self.frame.assign(place, value, ty, &|value, from, to| statements.convert(value, from, to))
    }

    async fn answer(&mut self, sql: &Sql, most: usize) -> SqlResult<Answer> {
        let variables = self.frame.variables();
        let values = self.frame.values();
        self.statements.run(&sql.statement, &variables, values, most).await
    }

    /// The value of an expression, and its type.
    async fn value(&mut self, sql: &Sql) -> SqlResult<(Datum, Type)> {
        if let Some(slot) = sql.name.as_deref().and_then(|name| self.frame.named(name)) {
            match self.frame.holder(slot) {
                Some(Holder::Value(ty, value)) => return Ok((value.clone(), ty.ty)),
                Some(Holder::Row { fields, values, .. }) if values.len() == fields.len() => {
                    return Ok((record(fields, values), Type::RECORD));
                }
                Some(Holder::Row { .. }) => return Ok((Datum::Null, Type::RECORD)),
                _ => {}
            }
        }
        let answer = self.answer(sql, 2).await?;
        let columns = answer.columns.as_deref().unwrap_or_default();
        if columns.len() != 1 {
            let message = format!("query returned {} columns", columns.len());
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        if answer.rows.len() > 1 {
            let message = "query returned more than one row";
            return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message));
        }
        let ty = columns.first().map_or(Type::TEXT, |column| column.ty.ty);
        let value = answer.rows.into_iter().next().and_then(|row| row.into_iter().next());
        Ok((value.unwrap_or_default(), ty))
    }

    async fn holds(&mut self, sql: &Sql) -> SqlResult<bool> {
        let (value, ty) = self.value(sql).await?;
        let value = self.statements.convert(value, ty, ColumnType::plain(Type::BOOL))?;
        Ok(matches!(value, Datum::Bool(true)))
    }

    /// The value of an expression as text; `None` for NULL.
    pub(super) async fn text(&mut self, sql: &Sql) -> SqlResult<Option<String>> {
        let (value, ty) = self.value(sql).await?;
        Ok((!value.is_null()).then(|| self.statements.show(&value, ty)))
    }

    async fn execute(&mut self, query: &Sql, using: &[Sql], most: usize) -> SqlResult<Answer> {
        let Some(text) = self.text(query).await? else {
            let message = "query string argument of EXECUTE is null";
            return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
        };
        let mut variables = crate::bind::Variables::default();
        let mut values = Vec::with_capacity(using.len());
        for value in using {
            let (value, ty) = self.value(value).await?;
            values.push(value);
            variables.types.push(ty);
        }
        let mut statements = parse::parse(&text).map_err(super::super::statements::without_position)?;
        let Some(last) = statements.pop() else {
            return Ok(Answer { columns: None, rows: Vec::new(), affected: 0, kind: StatementKind::Query });
        };
        let variables = Arc::new(variables);
        for statement in statements {
            self.statements.run(&Arc::new(statement), &variables, values.clone(), 0).await?;
        }
        self.statements.run(&Arc::new(last), &variables, values, most).await
    }

    /// Puts the row of a statement where INTO says.
    fn into(&mut self, into: &Into, answer: Answer) -> SqlResult<()> {
        let Some(columns) = &answer.columns else {
            let message = "INTO used with a command that cannot return data";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        let change = answer.kind != StatementKind::Query;
        if answer.rows.len() > 1 && (into.strict || change) {
            let error = SqlError::new(TOO_MANY_ROWS, "query returned more than one row");
            return Err(error.with_hint("Make sure the query returns a single row, or use LIMIT 1."));
        }
        let fields = fields_of(columns);
        match answer.rows.into_iter().next() {
            None if into.strict => Err(SqlError::new(NO_DATA_FOUND, "query returned no rows")),
            None => self.distribute(&into.targets, &fields, vec![Datum::Null; fields.len()]),
            Some(row) => self.distribute(&into.targets, &fields, row),
        }
    }

    /// A row to one record, or column by column.
    fn distribute(&mut self, targets: &[Target], fields: &Fields, row: Row) -> SqlResult<()> {
        if let [target] = targets {
            let place = self.frame.place(target)?;
            let is_record = !matches!(self.frame.holder(place.slot), Some(Holder::Value(..)));
            if place.field.is_none() && is_record {
                let statements = &*self.statements;
                let convert = |value, from, to| statements.convert(value, from, to);
                return self.frame.assign_row(place.slot, fields, row, &convert);
            }
        }
        let mut row = row.into_iter();
        for (position, target) in targets.iter().enumerate() {
            let place = self.frame.place(target)?;
            let ty = fields.get(position).map_or(Type::TEXT, |(_, ty)| ty.ty);
            self.put(&place, row.next().unwrap_or_default(), ty)?;
        }
        Ok(())
    }

    async fn result(&mut self, value: Option<&Sql>) -> SqlResult<Option<Datum>> {
        match (self.gives, value) {
            (Gives::Nothing, None) => Ok(None),
            (Gives::Nothing, Some(_)) => {
                let message = "RETURN cannot have a parameter in function returning void";
                Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
            }
            (_, None) => Err(SqlError::new(SqlState::SYNTAX_ERROR, "missing expression at or near \";\"")),
            (Gives::Value(to), Some(value)) => {
                let (value, ty) = self.value(value).await?;
                self.statements.convert(value, ty, ColumnType::plain(to)).map(Some)
            }
            (Gives::Row, Some(value)) => match self.value(value).await? {
                (value @ (Datum::Null | Datum::Record(_)), _) => Ok(Some(value)),
                _ => {
                    let message = "cannot return non-composite value from function returning composite type";
                    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
                }
            },
        }
    }

    async fn case(
        &mut self,
        operand: Option<&Sql>,
        branches: &[(Vec<Sql>, Vec<Stmt>)],
        otherwise: Option<&[Stmt]>,
    ) -> SqlResult<Flow> {
        let operand = match operand {
            Some(operand) => Some(self.value(operand).await?),
            None => None,
        };
        for (tests, body) in branches {
            for test in tests {
                let holds = match &operand {
                    None => self.holds(test).await?,
                    Some((value, ty)) => {
                        let (other, other_ty) = self.value(test).await?;
                        self.equal((value.clone(), *ty), (other, other_ty)).await?
                    }
                };
                if holds {
                    return self.list(body).await;
                }
            }
        }
        match otherwise {
            Some(body) => self.list(body).await,
            None => Err(SqlError::new(CASE_NOT_FOUND, "case not found")
                .with_hint("CASE statement is missing ELSE part.")),
        }
    }

    async fn equal(&mut self, left: (Datum, Type), right: (Datum, Type)) -> SqlResult<bool> {
        let variables = crate::bind::Variables { types: vec![left.1, right.1], ..Default::default() };
        let test = Sql::expression("$1 = $2")?;
        let values = vec![left.0, right.0];
        let answer = self.statements.run(&test.statement, &Arc::new(variables), values, 1).await?;
        Ok(matches!(answer.rows.first().and_then(|row| row.first()), Some(Datum::Bool(true))))
    }

    async fn bound(&mut self, sql: &Sql, what: &str) -> SqlResult<i64> {
        let (value, ty) = self.value(sql).await?;
        match self.statements.convert(value, ty, ColumnType::plain(Type::INT4))? {
            Datum::Int4(bound) => Ok(i64::from(bound)),
            _ => {
                let message = format!("{what} of FOR loop cannot be null");
                Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message))
            }
        }
    }

    async fn count(
        &mut self,
        label: Option<&str>,
        variable: &str,
        [from, to, by]: [Option<&Sql>; 3],
        reverse: bool,
        body: &[Stmt],
    ) -> SqlResult<Flow> {
        let missing = || SqlError::internal("a range without bounds");
        let from = self.bound(from.ok_or_else(missing)?, "lower bound").await?;
        let to = self.bound(to.ok_or_else(missing)?, "upper bound").await?;
        let by = match by {
            Some(by) => self.bound(by, "BY value").await?,
            None => 1,
        };
        if by <= 0 {
            let message = "BY value of FOR loop must be greater than zero";
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
        }
        let depth = self.frame.depth();
        let ty = ColumnType::plain(Type::INT4);
        let slot = self.frame.add(label, variable, Holder::Value(ty, Datum::Null));
        let mut next = from;
        let mut ran = false;
        while if reverse { next >= to } else { next <= to } {
            ran = true;
            self.step().await?;
            let Ok(number) = i32::try_from(next) else { break };
            if let Some(slot) = self.frame.slot_mut(slot) {
                slot.holder = Holder::Value(ty, Datum::Int4(number));
            }
            let flow = self.list(body).await?;
            if let Some(flow) = after(flow, label) {
                self.frame.leave(depth);
                self.set_found(true);
                return Ok(flow);
            }
            next = if reverse { next - by } else { next + by };
        }
        self.frame.leave(depth);
        self.set_found(ran);
        Ok(Flow::Next)
    }

    async fn each_row(
        &mut self,
        label: Option<&str>,
        targets: &[Target],
        answer: Answer,
        body: &[Stmt],
    ) -> SqlResult<Flow> {
        let Some(columns) = &answer.columns else {
            let message = "cannot open a statement that returns no rows as cursor";
            return Err(SqlError::new(SqlState("42P11"), message));
        };
        let fields = fields_of(columns);
        let ran = !answer.rows.is_empty();
        if !ran {
            self.distribute(targets, &fields, vec![Datum::Null; fields.len()])?;
        }
        for row in answer.rows {
            self.step().await?;
            self.distribute(targets, &fields, row)?;
            let flow = self.list(body).await?;
            if let Some(flow) = after(flow, label) {
                self.set_found(true);
                return Ok(flow);
            }
        }
        self.set_found(ran);
        Ok(Flow::Next)
    }

    async fn each(
        &mut self,
        label: Option<&str>,
        target: &Target,
        array: &Sql,
        body: &[Stmt],
    ) -> SqlResult<Flow> {
        let array = match self.value(array).await?.0 {
            Datum::Array(array) => array,
            Datum::Null => {
                let message = "FOREACH expression must not be null";
                return Err(SqlError::new(SqlState::NULL_NOT_ALLOWED, message));
            }
            _ => {
                let message = "FOREACH expression must yield an array";
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
            }
        };
        for value in &array.values {
            self.step().await?;
            let place = self.frame.place(target)?;
            self.put(&place, value.clone(), array.element)?;
            let flow = self.list(body).await?;
            if let Some(flow) = after(flow, label) {
                self.set_found(true);
                return Ok(flow);
            }
        }
        self.set_found(!array.values.is_empty());
        Ok(Flow::Next)
    }
}

fn row_of(fields: Fields) -> Holder {
    Holder::Row { fields, values: Vec::new(), fixed: true }
}

fn misplaced(what: &str) -> SqlError {
    let message = format!("{what} cannot be used outside a loop, unless it has a label");
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

/// How a loop goes on after its body: `None` for another round.
fn after(flow: Flow, label: Option<&str>) -> Option<Flow> {
    match flow {
        Flow::Next | Flow::Continue(None) => None,
        Flow::Continue(Some(to)) if Some(to.as_str()) == label => None,
        Flow::Exit(None) => Some(Flow::Next),
        Flow::Exit(Some(to)) if Some(to.as_str()) == label => Some(Flow::Next),
        flow => Some(flow),
    }
}

/// Whether a handler is for an error. What ended the transaction, or is to end the statement, none is for.
fn catches(handler: &Handler, error: &SqlError) -> bool {
    let ends = [
        SqlState::SERIALIZATION_FAILURE,
        SqlState::DEADLOCK,
        SqlState::COMPLETION_UNKNOWN,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::QUERY_CANCELED,
    ];
    if ends.contains(&error.code) {
        return false;
    }
    handler.conditions.iter().any(|condition| match condition {
        None => error.code != ASSERT_FAILURE,
        Some(condition) => conditions::matches(*condition, error.code),
    })
}
