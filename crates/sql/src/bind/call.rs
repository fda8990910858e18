//! Function calls.

use super::Binder;
use super::context::{ExprContext, Virtual};
use super::hypothetical::Hypothetical;
use super::names::qualified;
use super::operator::null;
use super::special::cast_named;
use crate::plan::{Expr, SetInvocation, SubPlan};
use sql_types::cast::CastKind;
use sql_types::functions::{self, Function};
use sql_types::{SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

/// Calls that are not in the registry because they do not evaluate all arguments, or not only them.
const CONDITIONAL: &[&str] = &["coalesce", "nullif", "row", "grouping"];

impl Binder<'_> {
    pub(crate) fn bind_call(&self, call: &ast::Function, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let name = qualified(&call.name)?;
        let span = name.span;
        if !matches!(name.schema.as_deref(), None | Some("pg_catalog" | "information_schema")) {
            let routines = self.routines(name.schema.as_deref(), &name.name);
            if !routines.is_empty() {
                let bound = self.bind_routine(&name.written(), &routines, call, context);
                return bound.map_err(|error| self.at(error, span));
            }
            if let Some(schema) =
                name.schema.as_deref().filter(|schema| !self.context.catalog.schema_exists(schema))
            {
                let message = format!("schema \"{schema}\" does not exist");
                return Err(self.at(SqlError::new(SqlState::INVALID_SCHEMA, message), span));
            }
            let error = SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("function {}() does not exist", name.written()),
            );
            return Err(self.at(error, span));
        }
        self.bind_named_call(&name.name, call, context).map_err(|error| self.at(error, span))
    }

    fn bind_named_call(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if let FunctionArguments::None = call.args {
            return self.bind_value_function(name, None)?.ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))
            });
        }
        if let FunctionArguments::Subquery(query) = &call.args {
            return self.bind_call_of_subquery(name, query, context);
        }
        if let Some([element, value]) = marked_arguments(call, crate::parse::markers::ASSIGNED).as_deref() {
            return self.bind_assigned_variable(element, value, context);
        }
        let routines = self.routines(None, name);
        if !routines.is_empty() && !self.is_built_in(name, call, context) {
            return self.bind_routine(name, &routines, call, context);
        }
        if call.over.is_some() {
            return self.bind_window_call(name, call, context);
        }
        if functions::is_aggregate(name) {
            return self.bind_aggregate(name, call, context);
        }
        if !call.within_group.is_empty()
            && let Some(kind) = Hypothetical::named(name)
        {
            return self.bind_hypothetical(kind, name, call, context);
        }
        self.refuse_aggregate_syntax(name, call)?;
        if functions::is_window_function(name) {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("window function {name} requires an OVER clause"),
            ));
        }
        if CONDITIONAL.contains(&name) {
            return self.bind_conditional(name, call, context);
        }
        if let Some(precision) = self.precision_argument(name, call)? {
            return precision;
        }
        let args = self.bind_args(name, call, context)?;
        if functions::is_set_function(name) && !args.variadic {
            return self.bind_set_call(name, args.values, context);
        }
        self.bind_scalar_call(name, args, context)
    }

    /// Whether a name that a user's function has, too, is to be a function that is built in, which then comes first.
    pub(super) fn is_built_in(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> bool {
        if functions::is_aggregate(name)
            || functions::is_window_function(name)
            || functions::is_set_function(name)
            || CONDITIONAL.contains(&name)
        {
            return true;
        }
        if !functions::is_function(name) {
            return false;
        }
        let before = context.subplans.len();
        let Ok(args) = self.bind_args(name, call, context) else { return false };
        context.subplans.truncate(before);
        let types: Vec<Type> = args.values.iter().map(Expr::ty).collect();
        functions::resolve(name, &types).is_ok()
    }

    fn refuse_aggregate_syntax(&self, name: &str, call: &ast::Function) -> SqlResult<()> {
        let refuse = |what: &str| {
            Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("{what} specified, but {name} is not an aggregate function"),
            ))
        };
        if let FunctionArguments::List(list) = &call.args {
            if list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct) {
                return refuse("DISTINCT");
            }
            if list.clauses.iter().any(|clause| matches!(clause, ast::FunctionArgumentClause::OrderBy(_))) {
                return refuse("ORDER BY");
            }
        }
        if call.filter.is_some() {
            return refuse("FILTER");
        }
        if !call.within_group.is_empty() {
            return refuse("WITHIN GROUP");
        }
        Ok(())
    }

    /// `current_timestamp(3)`; `Err` inside for a bad precision.
    fn precision_argument(&self, name: &str, call: &ast::Function) -> SqlResult<Option<SqlResult<Expr>>> {
        if !matches!(name, "current_timestamp" | "localtimestamp" | "current_time" | "localtime") {
            return Ok(None);
        }
        let precision = match plain_arguments(call).as_deref() {
            Some([ast::Expr::Value(value)]) => value.value.to_string().parse::<i32>().ok(),
            _ => None,
        };
        Ok(Some(match precision {
            Some(precision) if (0..=6).contains(&precision) => self
                .bind_value_function(name, Some(precision))
                .and_then(|expr| expr.ok_or_else(|| SqlError::internal("not a value function"))),
            _ => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error in the arguments of {name}")))
            }
        }))
    }

    fn bind_conditional(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if name == "row" {
            let arguments = plain_arguments(call).unwrap_or_default();
            return self.bind_row(&arguments, context);
        }
        let before = context.subplans.len();
        let args = self.bind_args(name, call, context)?.values;
        match name {
            "coalesce" => {
                // The first one is wanted anyhow.
                let mut behind = before;
                if let Some(first) = args.first() {
                    first.visit(&mut |part| {
                        if let Expr::Column(index, _) = part
                            && let Some(Virtual::Sub(sub)) = Virtual::of(*index)
                        {
                            behind = behind.max(sub + 1);
                        }
                    });
                }
                if self.calls_routines(context, behind)
                    && let Some(exprs) = plain_arguments(call)
                {
                    context.subplans.truncate(before);
                    return self.again(&case_of_coalesce(&exprs), context);
                }
                let (args, ty) = self.unify(args, "COALESCE")?;
                if args.is_empty() {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \")\""));
                }
                Ok(Expr::Coalesce(args, ty))
            }
            "nullif" => self.bind_nullif(args),
            _ => self.bind_grouping(args, context),
        }
    }

    fn bind_nullif(&self, args: Vec<Expr>) -> SqlResult<Expr> {
        let Ok([left, right]) = <[Expr; 2]>::try_from(args) else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "NULLIF takes two arguments"));
        };
        let test = self.operator("=", Some(left.clone()), right)?;
        // The result has the type that the comparison gave its first argument.
        let left = match &test {
            Expr::Call { args, .. } => args.first().cloned().unwrap_or(left),
            _ => left,
        };
        let ty = left.ty();
        Ok(Expr::Case { branches: vec![(test, null(ty))], otherwise: Some(Box::new(left)), ty })
    }

    /// A scalar function over bound arguments.
    pub(crate) fn function(&self, name: &str, args: Vec<Expr>) -> SqlResult<Expr> {
        let types: Vec<Type> = args.iter().map(Expr::ty).collect();
        let resolved = functions::resolve(name, &types)?;
        let args = self.coerce_args(args, &resolved.arg_types)?;
        Ok(Expr::Call { function: resolved.function, args, ty: resolved.returns })
    }

    pub(crate) fn coerce_args(&self, args: Vec<Expr>, types: &[Type]) -> SqlResult<Vec<Expr>> {
        args.into_iter()
            .zip(types)
            .map(|(arg, ty)| match *ty {
                Type::ANY => self.resolve_unknown(arg),
                ty => self.coerce(arg, ty, CastKind::Implicit),
            })
            .collect()
    }

    fn bind_scalar_call(&self, name: &str, args: Args, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let types: Vec<Type> = args.values.iter().map(Expr::ty).collect();
        let resolved = if args.variadic {
            functions::resolve_variadic(name, &types)
        } else {
            functions::resolve(name, &types)
        };
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(error) if error.code == SqlState::UNDEFINED_FUNCTION => {
                return self.cast_call(name, args.values, error);
            }
            Err(error) => return Err(error),
        };
        let values = self.coerce_args(args.values, &resolved.arg_types)?;
        if resolved.function.external {
            return self.bind_external(resolved.function, values, resolved.returns, context);
        }
        Ok(Expr::Call { function: resolved.function, args: values, ty: resolved.returns })
    }

    /// `int4(x)`: a call of a function that is named like a type is a cast, if there is no function.
    fn cast_call(&self, name: &str, args: Vec<Expr>, error: SqlError) -> SqlResult<Expr> {
        match (cast_named(name), <[Expr; 1]>::try_from(args)) {
            (Some(ty), Ok([arg])) => self.explicit_cast(arg, ty.into()),
            _ => Err(error),
        }
    }

    /// A function that the executor runs itself: a sub-plan.
    fn bind_external(
        &self,
        function: &'static Function,
        args: Vec<Expr>,
        ty: Type,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let subplan = match (function.name, args.len()) {
            ("nextval", 1) => {
                SubPlan::NextVal(args.into_iter().next().unwrap_or_else(|| null(Type::REGCLASS)))
            }
            ("setval", 2 | 3) => {
                let mut args = args.into_iter();
                let mut next = |ty| args.next().unwrap_or_else(|| null(ty));
                let (sequence, value) = (next(Type::REGCLASS), next(Type::INT8));
                let called = args.next().unwrap_or_else(|| super::bool_const(true));
                SubPlan::SetVal(sequence, value, called)
            }
            _ => SubPlan::Call(function, args),
        };
        Ok(context.add_subplan(subplan, false, ty))
    }

    fn bind_set_call(&self, name: &str, args: Vec<Expr>, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let call = self.set_invocation(name, args, None)?;
        self.place_set(call, context)
    }

    /// A set-returning call in an expression.
    pub(super) fn place_set(&self, call: SetInvocation, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        if !context.clause.allows_sets() {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("set-returning functions are not allowed in {}", context.clause.name()),
            ));
        }
        if context.in_aggregate {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "aggregate function calls cannot contain set-returning function calls",
            )
            .with_hint("You might be able to move the set-returning function into a LATERAL FROM item."));
        }
        let ty = match &call.columns[..] {
            [(_, ty)] => *ty,
            _ => Type::RECORD,
        };
        context.sets.push(call);
        Ok(Virtual::Set(context.sets.len() - 1).column(ty))
    }

    /// Resolves a set-returning call; `columns` are those of a column definition list.
    pub(crate) fn set_invocation(
        &self,
        name: &str,
        args: Vec<Expr>,
        columns: Option<Vec<(String, Type)>>,
    ) -> SqlResult<SetInvocation> {
        let types: Vec<Type> = args.iter().map(Expr::ty).collect();
        let resolved = functions::resolve_set_function(name, &types)?;
        let args = self.coerce_args(args, &resolved.arg_types)?;
        let dynamic = resolved.function.dynamic_columns;
        let columns = match (columns, dynamic) {
            (Some(columns), true) => columns,
            (None, false) => resolved.columns,
            (None, true) => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "a column definition list is required for functions returning \"record\"",
                ));
            }
            (Some(_), false) => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "a column definition list is only allowed for functions returning \"record\"",
                ));
            }
        };
        Ok(SetInvocation { function: resolved.function, args, columns })
    }

    /// Binds the arguments of a call.
    pub(crate) fn bind_args(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Args> {
        let FunctionArguments::List(list) = &call.args else {
            return Ok(Args { values: Vec::new(), variadic: false });
        };
        let args = order_named(name, &list.args)?;
        let mut values = Vec::with_capacity(args.len());
        let mut variadic = false;
        for arg in args {
            let arg = match arg {
                ArgSource::Default => {
                    values.push(self.number("0")?);
                    continue;
                }
                ArgSource::Given(arg) => arg,
            };
            match arg {
                FunctionArgExpr::Expr(expr) => {
                    if let ast::Expr::Function(function) = expr
                        && let Some([inner]) =
                            marked_arguments(function, crate::parse::markers::VARIADIC).as_deref()
                    {
                        values.push(self.bind_expr(inner, context)?);
                        variadic = true;
                        continue;
                    }
                    values.push(self.bind_expr(expr, context)?);
                }
                FunctionArgExpr::QualifiedWildcard(name) => {
                    let name = qualified(name)?;
                    match context.scope.find_relation(name.schema.as_deref(), &name.name)? {
                        Some((relation, depth)) => values.push(self.whole_row(relation, depth, context)?),
                        None => {
                            return Err(self.missing_from(
                                name.schema.as_deref(),
                                &name.name,
                                name.span,
                                context,
                            ));
                        }
                    }
                }
                FunctionArgExpr::Wildcard | FunctionArgExpr::WildcardWithOptions(_) => {
                    return Err(SqlError::new(
                        SqlState::WRONG_OBJECT_TYPE,
                        format!("{name}(*) specified, but {name} is not an aggregate function"),
                    ));
                }
            }
        }
        Ok(Args { values, variadic })
    }
}

/// Bound arguments.
pub(crate) struct Args {
    pub values: Vec<Expr>,
    /// Whether the last one was marked VARIADIC.
    pub variadic: bool,
}

enum ArgSource<'a> {
    Given(&'a FunctionArgExpr),
    Default,
}

/// Parameter names of the functions that are usually called by name.
const NAMED: &[(&str, &[&str])] = &[
    ("make_interval", &["years", "months", "weeks", "days", "hours", "mins", "secs"]),
    ("make_date", &["year", "month", "day"]),
    ("make_time", &["hour", "min", "sec"]),
    ("make_timestamp", &["year", "month", "mday", "hour", "min", "sec"]),
    ("make_timestamptz", &["year", "month", "mday", "hour", "min", "sec", "timezone"]),
    ("jsonb_set", &["jsonb_in", "path", "replacement", "create_if_missing"]),
];

/// Puts arguments given by name (`days => 3`) into their places.
fn order_named<'a>(function: &str, args: &'a [FunctionArg]) -> SqlResult<Vec<ArgSource<'a>>> {
    let mut ordered: Vec<Option<&FunctionArgExpr>> = Vec::with_capacity(args.len());
    let mut named = false;
    for given in args {
        match given {
            FunctionArg::Unnamed(expr) => ordered.push(Some(expr)),
            FunctionArg::Named { arg, .. } | FunctionArg::ExprNamed { arg, .. } => {
                named = true;
                let name = match arg_name(given) {
                    Some(name) => name,
                    None => return Err(SqlError::unsupported("naming arguments by expressions")),
                };
                let place = NAMED
                    .iter()
                    .find(|(known, _)| *known == function)
                    .and_then(|(_, names)| {
                        names.iter().position(|known| name.value.eq_ignore_ascii_case(known))
                    })
                    .ok_or_else(|| {
                        SqlError::new(
                            SqlState::UNDEFINED_FUNCTION,
                            format!("function {function} has no parameter named \"{}\"", name.value),
                        )
                    })?;
                if ordered.len() <= place {
                    ordered.resize(place + 1, None);
                }
                ordered[place] = Some(arg);
            }
        }
    }
    if named && function == "make_interval" {
        ordered.resize(7, None);
    }
    Ok(ordered.into_iter().map(|arg| arg.map_or(ArgSource::Default, ArgSource::Given)).collect())
}

fn arg_name(arg: &FunctionArg) -> Option<&ast::Ident> {
    match arg {
        FunctionArg::Named { name, .. }
        | FunctionArg::ExprNamed { name: ast::Expr::Identifier(name), .. } => Some(name),
        _ => None,
    }
}

/// The arguments of a call, if they are plain expressions.
pub(crate) fn plain_arguments(call: &ast::Function) -> Option<Vec<ast::Expr>> {
    let FunctionArguments::List(list) = &call.args else { return None };
    list.args
        .iter()
        .map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                Some(ast::Expr::QualifiedWildcard(
                    name.clone(),
                    ast::helpers::attached_token::AttachedToken::empty(),
                ))
            }
            _ => None,
        })
        .collect()
}

/// The arguments of a call that stands for a marker put into the tokens.
pub(crate) fn marked_arguments(call: &ast::Function, marker: &str) -> Option<Vec<ast::Expr>> {
    match call.name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(ident)] if ident.value == marker && ident.quote_style.is_some() => {
            plain_arguments(call)
        }
        _ => None,
    }
}

/// `CASE WHEN a IS NOT NULL THEN a … ELSE z END` for `coalesce(a, …, z)`, where later ones are to be computed only if
/// they are wanted.
fn case_of_coalesce(exprs: &[ast::Expr]) -> ast::Expr {
    let token = ast::helpers::attached_token::AttachedToken::empty;
    let (last, first) = match exprs {
        [first @ .., last] => (Some(Box::new(last.clone())), first),
        [] => (None, exprs),
    };
    let conditions = first
        .iter()
        .map(|expr| ast::CaseWhen {
            condition: ast::Expr::IsNotNull(Box::new(ast::Expr::Nested(Box::new(expr.clone())))),
            result: expr.clone(),
        })
        .collect();
    ast::Expr::Case { case_token: token(), end_token: token(), operand: None, conditions, else_result: last }
}
