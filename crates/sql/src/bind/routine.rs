//! Calls of the user's own functions.
//!
//! A call waits and may change rows, so it is a sub-plan. Sub-plans do not see each other's values: a call in the
//! arguments of another is made in a derived table below it. And all sub-plans of a row are computed: where
//! only some are wanted (CASE, COALESCE), each stands in a subquery with its condition.

use super::Binder;
use super::call::marked_arguments;
use super::context::{Clause, ExprContext, Virtual};
use super::names::ident_name;
use crate::catalog::routine::RoutineDescriptor;
use crate::parse;
use crate::plan::{Expr, SetInvocation, SubPlan};
use sql_types::cast::{CastKind, can_coerce};
use sql_types::functions;
use sql_types::{SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};
use std::sync::Arc;

/// Arguments of a call, and the names of those given by name.
struct Given<'a> {
    exprs: Vec<&'a ast::Expr>,
    names: Vec<Option<String>>,
}

impl<'a> Given<'a> {
    fn of(call: &'a ast::Function) -> SqlResult<Given<'a>> {
        let mut given = Given { exprs: Vec::new(), names: Vec::new() };
        let FunctionArguments::List(list) = &call.args else { return Ok(given) };
        for arg in &list.args {
            let (name, value) = match arg {
                FunctionArg::Unnamed(value) => (None, value),
                FunctionArg::Named { name, arg, .. } => (Some(ident_name(name).into_owned()), arg),
                FunctionArg::ExprNamed { name: ast::Expr::Identifier(name), arg, .. } => {
                    (Some(ident_name(name).into_owned()), arg)
                }
                FunctionArg::ExprNamed { .. } => {
                    return Err(SqlError::unsupported("naming arguments by expressions"));
                }
            };
            let FunctionArgExpr::Expr(expr) = value else {
                return Err(SqlError::unsupported("a row of a table as argument of a user's function"));
            };
            if let ast::Expr::Function(function) = expr
                && marked_arguments(function, parse::markers::VARIADIC).is_some()
            {
                return Err(SqlError::unsupported("VARIADIC for a user's function"));
            }
            if name.is_none() && given.names.last().is_some_and(Option::is_some) {
                let message = "positional argument cannot follow named argument";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            given.exprs.push(expr);
            given.names.push(name);
        }
        Ok(given)
    }

    /// For each argument of a function the position of the one given for it; `None` if it cannot be called so.
    fn places(&self, routine: &RoutineDescriptor) -> Option<Vec<Option<usize>>> {
        let mut places = vec![None; routine.arguments.len()];
        for (position, name) in self.names.iter().enumerate() {
            let at = match name {
                None => position,
                Some(name) => {
                    routine.arguments.iter().position(|known| known.name.as_deref() == Some(name))?
                }
            };
            let place = places.get_mut(at)?;
            if place.replace(position).is_some() {
                return None;
            }
        }
        let complete = places
            .iter()
            .zip(&routine.arguments)
            .all(|(place, argument)| place.is_some() || argument.default.is_some());
        complete.then_some(places)
    }
}

/// How well a value fits an argument: 2 for its own type, `None` if not at all.
fn fit(value: Type, wanted: Type) -> Option<u32> {
    if value == wanted {
        Some(2)
    } else if value == Type::UNKNOWN {
        Some(if wanted == Type::TEXT { 2 } else { 1 })
    } else {
        can_coerce(value, wanted).then_some(0)
    }
}

impl Binder<'_> {
    /// The user's functions of a name.
    pub(super) fn routines(&self, schema: Option<&str>, name: &str) -> Vec<Arc<RoutineDescriptor>> {
        self.context.catalog.routines(schema, name, self.context.search_path)
    }

    /// Whether an expression is nothing but a call of a function that only the user has.
    fn is_routine(&self, expr: &ast::Expr) -> bool {
        let ast::Expr::Function(call) = expr else { return false };
        let Ok(name) = super::names::qualified(&call.name) else { return false };
        let known = functions::is_function(&name.name) || functions::is_aggregate(&name.name);
        let known = known && name.schema.is_none();
        !known && !self.routines(name.schema.as_deref(), &name.name).is_empty()
    }

    fn no_such_routine(&self, name: &str, types: &[Type]) -> SqlError {
        let shown = |ty: &Type| self.context.eval.catalog.type_name(*ty).unwrap_or_else(|| ty.to_string());
        let types: Vec<String> = types.iter().map(shown).collect();
        let message = format!("function {name}({}) does not exist", types.join(", "));
        SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        )
    }

    /// A call of one of the user's functions of a name, in an expression.
    pub(super) fn bind_routine(
        &self,
        written: &str,
        candidates: &[Arc<RoutineDescriptor>],
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        match self.call_routine(written, candidates, call, context)? {
            (value, Some(routine)) if routine.gives_rows() => {
                let rows = rows_of(value, &routine);
                if rows.columns.len() == 1 {
                    return self.place_set(rows, context);
                }
                Err(SqlError::unsupported("a function that gives rows of several columns outside of FROM"))
            }
            (value, _) => Ok(value),
        }
    }

    /// A call of one of the user's functions in FROM: its value, and the function if the call is none within a subquery.
    pub(super) fn bind_table_routine(
        &self,
        name: &ast::ObjectName,
        args: &[FunctionArg],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Option<(Expr, Option<Arc<RoutineDescriptor>>)>> {
        let qualified = super::names::qualified(name)?;
        let schema = qualified.schema.as_deref();
        if matches!(schema, Some("pg_catalog" | "information_schema")) {
            return Ok(None);
        }
        let candidates = self.routines(schema, &qualified.name);
        if candidates.is_empty() {
            return Ok(None);
        }
        let mut call = some_call()?;
        call.name = name.clone();
        if let FunctionArguments::List(list) = &mut call.args {
            list.args = args.to_vec();
        }
        if schema.is_none() && self.is_built_in(&qualified.name, &call, context) {
            return Ok(None);
        }
        self.call_routine(&qualified.written(), &candidates, &call, context).map(Some)
    }

    /// A call: its value, and the function if the call is none within a subquery.
    fn call_routine(
        &self,
        written: &str,
        candidates: &[Arc<RoutineDescriptor>],
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<(Expr, Option<Arc<RoutineDescriptor>>)> {
        if call.over.is_some() {
            let message =
                format!("OVER specified, but {written} is not a window function nor an aggregate function");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        let given = Given::of(call)?;
        let before = context.subplans.len();
        let mut bound = Vec::with_capacity(given.exprs.len());
        let mut nested: Vec<usize> =
            (0..).zip(&given.exprs).filter(|(_, expr)| self.is_routine(expr)).map(|(at, _)| at).collect();
        let refuse_rows = || match candidates.iter().any(|candidate| candidate.gives_rows()) {
            true => Err(SqlError::unsupported(
                "a subquery or such a call as argument of a function that gives rows",
            )),
            false => Ok(()),
        };
        if !nested.is_empty() {
            refuse_rows()?;
            let rewritten = call_over_subquery(call, &given, &nested)?;
            return Ok((self.bind_expr(&rewritten, context)?, None));
        }
        for (position, expr) in given.exprs.iter().enumerate() {
            let value = self.bind_expr(expr, context)?;
            if value.any(&mut |part| matches!(part, Expr::Column(index, _) if matches!(Virtual::of(*index), Some(Virtual::Sub(_)))))
            {
                nested.push(position);
            }
            bound.push(value);
        }
        if !nested.is_empty() {
            refuse_rows()?;
            context.subplans.truncate(before);
            let rewritten = call_over_subquery(call, &given, &nested)?;
            return Ok((self.again(&rewritten, context)?, None));
        }
        let types: Vec<Type> = bound.iter().map(Expr::ty).collect();
        let (routine, places) = self.choose(written, candidates, &given, &types)?;
        if !context.clause.allows_routines() {
            let what = format!("a user's function in {}", context.clause.name());
            return Err(SqlError::unsupported(what));
        }
        if routine.returns == Type::TRIGGER {
            let message = "trigger functions can only be called as triggers";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let mut args = Vec::with_capacity(places.len());
        for (place, argument) in places.iter().zip(&routine.arguments) {
            let value = match (place.and_then(|at| bound.get(at)), &argument.default) {
                (Some(value), _) => value.clone(),
                (None, Some(default)) => self.default_argument(default)?,
                (None, None) => return Err(SqlError::internal("an argument is missing")),
            };
            args.push(self.coerce(value, argument.ty, CastKind::Implicit)?);
        }
        let constant = routine.is_stable()
            && !args
                .iter()
                .any(|arg| arg.any(&mut |part| matches!(part, Expr::Column(..) | Expr::Outer { .. })));
        self.context.catalog.routine_called(routine.oid);
        let ty = routine.value_type();
        let value = context.add_subplan(SubPlan::Routine(routine.clone(), args), constant, ty);
        Ok((value, Some(routine)))
    }

    fn default_argument(&self, text: &str) -> SqlResult<Expr> {
        let scope = super::scope::Scope::default();
        let mut context = ExprContext::new(&scope, None, Clause::Default);
        let bound = self.bind_expr(&parse::parse_expr(text)?, &mut context)?;
        if context.subplans.is_empty() {
            return Ok(bound);
        }
        Err(SqlError::unsupported("a default of an argument that calls such a function"))
    }

    fn choose(
        &self,
        written: &str,
        candidates: &[Arc<RoutineDescriptor>],
        given: &Given<'_>,
        types: &[Type],
    ) -> SqlResult<(Arc<RoutineDescriptor>, Vec<Option<usize>>)> {
        let mut best: Option<(u32, Arc<RoutineDescriptor>, Vec<Option<usize>>)> = None;
        let mut several = false;
        for routine in candidates {
            let Some(places) = given.places(routine) else { continue };
            let mut score = Some(0);
            for (place, argument) in places.iter().zip(&routine.arguments) {
                let Some(value) = place.and_then(|at| types.get(at)) else { continue };
                score = score.zip(fit(*value, argument.ty)).map(|(all, one)| all + one);
            }
            let Some(score) = score else { continue };
            match &best {
                Some((known, ..)) if *known > score => {}
                Some((known, ..)) if *known == score => several = true,
                _ => {
                    best = Some((score, routine.clone(), places));
                    several = false;
                }
            }
        }
        match best {
            Some((_, routine, places)) if !several => Ok((routine, places)),
            Some(_) => {
                let mut error = self.no_such_routine(written, types);
                error.code = SqlState::AMBIGUOUS_FUNCTION;
                error.message = error.message.replace(" does not exist", " is not unique");
                Err(error.with_hint(
                    "Could not choose a best candidate function. You might need to add explicit type casts.",
                ))
            }
            None => Err(self.no_such_routine(written, types)),
        }
    }

    /// Whether sub-plans from a position on may call functions that change something.
    pub(super) fn calls_volatile(&self, context: &ExprContext<'_>, from: usize) -> bool {
        let added = context.subplans.get(from..).unwrap_or_default();
        added.iter().any(|(subplan, _)| match subplan {
            SubPlan::Routine(routine, _) => !routine.is_stable(),
            other => other.plan().is_some_and(|plan| plan.calls_routines()),
        })
    }

    /// Whether sub-plans from a position on call functions of the user's.
    pub(super) fn calls_routines(&self, context: &ExprContext<'_>, from: usize) -> bool {
        let added = context.subplans.get(from..).unwrap_or_default();
        added.iter().any(|(subplan, _)| matches!(subplan, SubPlan::Routine(..)))
    }
}

/// The rows that a call gives.
pub(super) fn rows_of(value: Expr, routine: &RoutineDescriptor) -> SetInvocation {
    SetInvocation { function: &crate::routine::rows::ROWS, args: vec![value], columns: routine.columns() }
}

/// A call of something without arguments, to be made another.
fn some_call() -> SqlResult<ast::Function> {
    let parse::Ast::Sql(parsed) = parse::parse_one("SELECT f()")?.ast else {
        return Err(SqlError::internal("not a query"));
    };
    if let ast::Statement::Query(query) = *parsed
        && let ast::SetExpr::Select(select) = *query.body
        && let Some(ast::SelectItem::UnnamedExpr(ast::Expr::Function(call))) =
            select.projection.into_iter().next()
    {
        return Ok(call);
    }
    Err(SqlError::internal("not a call"))
}

/// `(SELECT f(a, s.c1) FROM (SELECT g(b)) AS s(c1))` for `f(a, g(b))`.
fn call_over_subquery(call: &ast::Function, given: &Given<'_>, nested: &[usize]) -> SqlResult<ast::Expr> {
    // Names that nobody writes: they cannot hide another.
    let items: Vec<String> =
        nested.iter().filter_map(|at| given.exprs.get(*at)).map(ToString::to_string).collect();
    let names: Vec<String> = nested.iter().map(|at| format!("\"\u{1}argument {at}\"")).collect();
    let text =
        format!("SELECT 1 FROM (SELECT {}) AS \"\u{1}arguments\"({})", items.join(", "), names.join(", "));
    let statement = parse::parse_one(&text)?;
    let parse::Ast::Sql(parsed) = statement.ast else { return Err(SqlError::internal("not a query")) };
    let ast::Statement::Query(mut query) = *parsed else { return Err(SqlError::internal("not a query")) };
    let mut call = call.clone();
    if let FunctionArguments::List(list) = &mut call.args {
        for (at, arg) in list.args.iter_mut().enumerate() {
            if !nested.contains(&at) {
                continue;
            }
            let column = ast::Expr::CompoundIdentifier(vec![
                ast::Ident::with_quote('"', "\u{1}arguments"),
                ast::Ident::with_quote('"', format!("\u{1}argument {at}")),
            ]);
            let value = FunctionArgExpr::Expr(column);
            match arg {
                FunctionArg::Unnamed(old)
                | FunctionArg::Named { arg: old, .. }
                | FunctionArg::ExprNamed { arg: old, .. } => *old = value,
            }
        }
    }
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![ast::SelectItem::UnnamedExpr(ast::Expr::Function(call))];
    }
    Ok(ast::Expr::Subquery(query))
}

/// `(SELECT value WHERE condition)`; a literal as it is, whose type the others may decide.
pub(super) fn guarded(value: &ast::Expr, condition: ast::Expr) -> SqlResult<ast::Expr> {
    if matches!(value, ast::Expr::Value(_)) {
        return Ok(value.clone());
    }
    let statement = parse::parse_one("SELECT 1 WHERE true")?;
    let parse::Ast::Sql(parsed) = statement.ast else { return Err(SqlError::internal("not a query")) };
    let ast::Statement::Query(mut query) = *parsed else { return Err(SqlError::internal("not a query")) };
    if let ast::SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![ast::SelectItem::UnnamedExpr(value.clone())];
        select.selection = Some(condition);
    }
    Ok(ast::Expr::Subquery(query))
}
