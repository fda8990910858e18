//! FROM: tables, views, subqueries, functions.

use super::context::{Clause, ExprContext};
use super::lookup::{RelationRef, SystemRef};
use super::names::{self, ident_name, qualified};
use super::policy::Access;
use super::rows::Rows;
use super::scope::{Relation, Scope, ScopeColumn};
use super::{Binder, Env};
use crate::catalog::descriptor::{PRIMARY_INDEX, TableDescriptor};
use crate::parse;
use crate::plan::{
    Expr, IndexAccess, JoinKind, JoinMethod, Plan, PlanColumn, PlanKind, ProjectSetItem, RowLock, ScanFence,
    SetInvocation,
};
use sql_types::functions;
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{
    self, FunctionArg, FunctionArgExpr, LockType, NonBlock, ObjectName, TableAlias, TableFactor,
};
use std::sync::Arc;

/// A bound FROM item: its rows and what they are called.
pub(crate) struct FromItem<'s> {
    pub plan: Plan,
    pub scope: Scope<'s>,
}

/// The rows that lateral items can see, beyond the surroundings of the query.
#[derive(Clone, Copy)]
pub(crate) struct Laterals<'s> {
    /// The surroundings of the query.
    pub env: Env<'s>,
    /// The innermost scope: the row to the left, or the surroundings.
    pub scope: Option<&'s Scope<'s>>,
    /// How many rows there are before the surroundings.
    pub levels: usize,
}

impl<'s> Laterals<'s> {
    /// What a lateral item can refer to.
    pub(crate) fn env(&self) -> Env<'s> {
        Env { outer: self.scope, ctes: self.env.ctes }
    }
}

impl Binder<'_> {
    /// Binds a FROM clause; without one there is one row without columns.
    pub(crate) fn bind_from<'s>(
        &self,
        from: &[ast::TableWithJoins],
        env: Env<'s>,
        locks: &[ast::LockClause],
    ) -> SqlResult<(Plan, Scope<'s>)> {
        let laterals = Laterals { env, scope: env.outer, levels: 0 };
        let Some((first, rest)) = from.split_first() else {
            return Ok((Plan::one_row(), Scope { parent: env.outer, ..Scope::default() }));
        };
        let mut item = self.bind_joined(first, laterals, locks)?;
        for next in rest {
            item = self.cross_join(item, next, laterals, locks)?;
        }
        self.check_lock_names(locks, &item.scope)?;
        Ok((item.plan, item.scope))
    }

    fn check_lock_names(&self, locks: &[ast::LockClause], scope: &Scope<'_>) -> SqlResult<()> {
        for lock in locks {
            let Some(of) = &lock.of else { continue };
            let name = qualified(of)?;
            if !scope.relations.iter().any(|relation| relation.name.as_deref() == Some(&*name.name)) {
                let error = SqlError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("relation \"{}\" in FOR UPDATE clause not found in FROM clause", name.name),
                );
                return Err(self.at(error, name.span));
            }
        }
        Ok(())
    }

    pub(crate) fn bind_factor<'s>(
        &self,
        factor: &TableFactor,
        laterals: Laterals<'s>,
        locks: &[ast::LockClause],
    ) -> SqlResult<FromItem<'s>> {
        self.deeper(|| match factor {
            TableFactor::Table { name, alias, args: None, sample: None, with_ordinality: false, .. } => {
                let item = self.bind_named_relation(name, alias.as_ref(), laterals.env, locks)?;
                Ok(under(item, laterals))
            }
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                self.bind_table_function(name, &args.args, *with_ordinality, alias.as_ref(), laterals)
            }
            TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                self.bind_table_function(name, args, *with_ordinality, alias.as_ref(), laterals)
            }
            TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } => {
                let args: Vec<FunctionArg> = array_exprs
                    .iter()
                    .map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr.clone())))
                    .collect();
                let name = ObjectName::from(vec![ast::Ident::new("unnest")]);
                self.bind_table_function(&name, &args, *with_ordinality, alias.as_ref(), laterals)
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                let plan = if *lateral {
                    self.bind_query(subquery, laterals.env())?
                } else {
                    let mut plan = self.bind_query(subquery, laterals.env)?;
                    plan.shift_outer(0, laterals.levels as isize);
                    plan
                };
                self.derived(plan, alias.as_ref(), laterals)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let item = self.bind_joined(table_with_joins, laterals, locks)?;
                match alias {
                    None => Ok(item),
                    Some(alias) => self.rename_join(item, alias),
                }
            }
            other => Err(SqlError::unsupported(format_args!(
                "the FROM item {}",
                other.to_string().chars().take(60).collect::<String>()
            ))),
        })
    }

    /// A subquery as a relation.
    fn derived<'s>(
        &self,
        plan: Plan,
        alias: Option<&TableAlias>,
        laterals: Laterals<'s>,
    ) -> SqlResult<FromItem<'s>> {
        if alias.is_none() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery in FROM must have an alias")
                .with_hint("For example, FROM (SELECT ...) [AS] foo."));
        }
        let mut scope = Scope { parent: laterals.scope, ..Scope::default() };
        scope.relations.push(relation(alias.map(|alias| ident_name(&alias.name).into_owned())));
        scope.add_plan_columns(&plan.columns, Some(0), 0);
        self.apply_aliases(&mut scope.columns, alias)?;
        Ok(FromItem { plan, scope })
    }

    /// `(a JOIN b …) AS alias`: one relation with all the columns.
    fn rename_join<'s>(&self, mut item: FromItem<'s>, alias: &TableAlias) -> SqlResult<FromItem<'s>> {
        item.scope.relations = vec![relation(Some(ident_name(&alias.name).into_owned()))];
        item.scope.columns.retain(|column| column.visible);
        for column in &mut item.scope.columns {
            column.relation = Some(0);
        }
        self.apply_aliases(&mut item.scope.columns, Some(alias))?;
        Ok(item)
    }

    fn apply_aliases(&self, columns: &mut [ScopeColumn], alias: Option<&TableAlias>) -> SqlResult<()> {
        let Some(alias) = alias else { return Ok(()) };
        let available = columns.iter().filter(|column| !column.hidden).count();
        if alias.columns.len() > available {
            let error = SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!(
                    "table \"{}\" has {available} columns available but {} columns specified",
                    ident_name(&alias.name),
                    alias.columns.len()
                ),
            );
            return Err(self.at(error, alias.name.span));
        }
        for (column, name) in columns.iter_mut().filter(|column| !column.hidden).zip(&alias.columns) {
            column.name = Arc::from(&*ident_name(&name.name));
        }
        Ok(())
    }

    // Named relations.

    /// A table, view, common table expression or catalog table.
    pub(crate) fn bind_named_relation<'s>(
        &self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        env: Env<'s>,
        locks: &[ast::LockClause],
    ) -> SqlResult<FromItem<'s>> {
        let written = names::relation(name)?;
        if written.schema.is_none()
            && let Some(frame) = env.ctes.and_then(|ctes| ctes.find(&written.name))
        {
            if frame.silent {
                let message = format!("WITH query \"{}\" does not have a RETURNING clause", written.name);
                return Err(self.at(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message), written.span));
            }
            let plan = Plan::new(PlanKind::CteScan { cte: frame.number }, frame.columns.clone());
            return self.named_plan(plan, &written.name, None, alias, env);
        }
        let relation = self.find_relation(name)?;
        match &relation {
            RelationRef::Table(table) => self.note_relation(name, table.oid, alias),
            RelationRef::View(view) => self.note_relation(name, view.oid, alias),
            _ => {}
        }
        match relation {
            RelationRef::Table(table) => {
                let called = alias.map_or(written.name, |alias| ident_name(&alias.name));
                let lock = lock_for(locks, &called)?;
                if lock.is_some() && table.view.is_some() {
                    let message = format!("cannot lock rows in materialized view \"{}\"", table.name);
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
                let access = if lock.is_some() { Access::Lock } else { Access::Select };
                self.bind_accessed_table(table, alias, env, lock, access)
            }
            RelationRef::View(view) => {
                let plan = self.bind_view(&view)?;
                let mut item = self.named_plan(plan, &written.name, written.schema.as_deref(), alias, env)?;
                if let [relation] = &mut item.scope.relations[..] {
                    relation.oid = view.oid;
                }
                for (index, column) in item.scope.columns.iter_mut().enumerate() {
                    column.table_oid = view.oid;
                    column.attnum = index as i16 + 1;
                }
                Ok(item)
            }
            RelationRef::System(system) => self.bind_system(&system, &written.name, alias, env),
            RelationRef::Sequence(oid, start) => {
                let plan = self.sequence_row(oid, start)?;
                self.named_plan(plan, &written.name, written.schema.as_deref(), alias, env)
            }
            RelationRef::Other(what) => {
                let error = SqlError::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("cannot open relation \"{}\"", written.name),
                )
                .with_detail(format!("This operation is not supported for {what}."));
                Err(self.at(error, written.span))
            }
        }
    }

    /// Looks a relation up; 42P01 if there is none.
    pub(crate) fn find_relation(&self, name: &ObjectName) -> SqlResult<RelationRef> {
        let written = names::relation(name)?;
        let catalog = self.context.catalog;
        if let Some(database) = &written.database
            && **database != *catalog.database()
        {
            let error = SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!(
                    "cross-database references are not implemented: \"{database}.{}\"",
                    written.written()
                ),
            );
            return Err(self.at(error, written.span));
        }
        let found = catalog
            .relation(written.schema.as_deref(), &written.name, self.context.search_path)
            .map_err(|error| self.at(error, written.span))?;
        if let Some(found) = &found
            && written.schema.is_none()
        {
            self.spell_out_relation(found, &written);
        }
        found.ok_or_else(|| {
            let error = SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("relation \"{}\" does not exist", written.written()),
            );
            self.at(error, written.span)
        })
    }

    fn named_plan<'s>(
        &self,
        plan: Plan,
        name: &str,
        schema: Option<&str>,
        alias: Option<&TableAlias>,
        env: Env<'s>,
    ) -> SqlResult<FromItem<'s>> {
        let mut scope = Scope { parent: env.outer, ..Scope::default() };
        let mut named = relation(Some(
            alias.map_or_else(|| name.to_string(), |alias| ident_name(&alias.name).into_owned()),
        ));
        named.schema = schema.filter(|_| alias.is_none()).map(Arc::from);
        scope.relations.push(named);
        scope.add_plan_columns(&plan.columns, Some(0), 0);
        self.apply_aliases(&mut scope.columns, alias)?;
        Ok(FromItem { plan, scope })
    }

    /// All columns of a table, hidden ones included, in the order of the descriptor.
    pub(crate) fn bind_table<'s>(
        &self,
        table: Arc<TableDescriptor>,
        alias: Option<&TableAlias>,
        env: Env<'s>,
        lock: Option<RowLock>,
    ) -> SqlResult<FromItem<'s>> {
        let mut scope = Scope { parent: env.outer, ..Scope::default() };
        let called =
            alias.map_or(std::borrow::Cow::Borrowed(table.name.as_str()), |alias| ident_name(&alias.name));
        let schema = if alias.is_none() { self.context.catalog.schema_name(table.schema) } else { None };
        scope.relations.push(Relation {
            name: Some(Arc::from(&*called)),
            schema: schema.map(Arc::from),
            table: Some(table.clone()),
            oid: table.oid,
            scalar: false,
        });
        scope.columns.reserve(table.columns.len());
        let mut columns = Vec::with_capacity(table.columns.len());
        for (index, column) in table.columns.iter().enumerate() {
            let name: Arc<str> = Arc::from(column.name.as_str());
            let attnum = i16::try_from(column.id).unwrap_or(0);
            scope.columns.push(ScopeColumn {
                name: name.clone(),
                expr: Expr::Column(index, column.ty.ty),
                ty: column.ty,
                relation: Some(0),
                visible: true,
                hidden: column.hidden,
                table_oid: table.oid,
                attnum,
                fields: None,
            });
            columns.push(PlanColumn { name, ty: column.ty, table_oid: table.oid, attnum, fields: None });
        }
        self.apply_aliases(&mut scope.columns, alias)?;
        let kind = PlanKind::Scan {
            columns: table.columns.iter().map(|column| column.id).collect(),
            table,
            index: PRIMARY_INDEX,
            access: IndexAccess::default(),
            filter: None,
            reverse: false,
            lock,
            limit: None,
            fence: ScanFence::None,
        };
        Ok(FromItem { plan: Plan::new(kind, columns), scope })
    }

    fn bind_system<'s>(
        &self,
        system: &SystemRef,
        name: &str,
        alias: Option<&TableAlias>,
        env: Env<'s>,
    ) -> SqlResult<FromItem<'s>> {
        let columns = system
            .columns
            .iter()
            .enumerate()
            .map(|(index, (name, ty))| PlanColumn {
                name: Arc::from(*name),
                ty: ColumnType::plain(*ty),
                table_oid: system.oid,
                attnum: index as i16 + 1,
                fields: None,
            })
            .collect();
        let plan = Plan::new(PlanKind::SystemScan { name: system.name }, columns);
        let schema = system.name.split_once('.').map(|(schema, _)| schema);
        let mut item = self.named_plan(plan, name, schema, alias, env)?;
        if let [relation] = &mut item.scope.relations[..] {
            relation.oid = system.oid;
        }
        Ok(item)
    }

    /// A sequence read like a table.
    fn sequence_row(&self, oid: sql_types::Oid, start: i64) -> SqlResult<Plan> {
        let sequence = Expr::Const(Datum::Oid(oid), Type::OID);
        let last = self.function("pg_sequence_last_value", vec![sequence])?;
        let called = Expr::IsNull(Box::new(last.clone()), true);
        let start = Expr::Const(Datum::Int8(start), Type::INT8);
        let exprs = vec![
            Expr::Coalesce(vec![last, start], Type::INT8),
            Expr::Const(Datum::Int8(0), Type::INT8),
            called,
        ];
        let columns = vec![
            PlanColumn::new("last_value", Type::INT8),
            PlanColumn::new("log_cnt", Type::INT8),
            PlanColumn::new("is_called", Type::BOOL),
        ];
        Ok(Plan::new(PlanKind::Project { input: Box::new(Plan::one_row()), exprs }, columns))
    }

    // Functions.

    fn bind_table_function<'s>(
        &self,
        name: &ObjectName,
        args: &[FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        laterals: Laterals<'s>,
    ) -> SqlResult<FromItem<'s>> {
        let written = qualified(name)?;
        let scope = Scope { parent: laterals.scope, ..Scope::default() };
        let mut context = ExprContext::new(&scope, laterals.env.ctes, Clause::From);
        let own = self
            .bind_table_routine(name, args, &mut context)
            .map_err(|error| self.at(error, written.span))?;
        // An OUT argument names the column itself.
        let output = own.as_ref().and_then(|(_, routine)| match routine.as_ref()?.outputs.as_slice() {
            [only] => only.name.clone(),
            _ => None,
        });
        let calls = match own {
            Some((value, Some(routine))) if routine.gives_rows() => {
                vec![Source::Set(super::routine::rows_of(value, &routine))]
            }
            Some((value, _)) => vec![Source::Scalar(value)],
            None => self
                .function_calls(&written.name, args, alias, &mut context)
                .map_err(|error| self.at(error, written.span))?,
        };
        let scalar = match &calls[..] {
            [Source::Scalar(_)] => true,
            [Source::Set(call)] => call.columns.len() == 1,
            _ => false,
        };
        let mut columns: Vec<PlanColumn> = calls.iter().flat_map(Source::columns).collect();
        let called =
            alias.map_or_else(|| written.name.to_string(), |alias| ident_name(&alias.name).into_owned());
        if let ([column], true) = (&mut columns[..], scalar) {
            column.name = Arc::from(output.as_deref().unwrap_or(&called));
        }
        if ordinality {
            columns.push(PlanColumn::new("ordinality", Type::INT8));
        }
        let plan = function_plan(calls, columns, ordinality, context.subplans)?;
        let mut scope = Scope { parent: laterals.scope, ..Scope::default() };
        let mut named = relation(Some(called));
        named.scalar = scalar && !ordinality;
        scope.relations.push(named);
        scope.add_plan_columns(&plan.columns, Some(0), 0);
        self.apply_aliases(&mut scope.columns, alias)?;
        Ok(FromItem { plan, scope })
    }

    fn function_calls(
        &self,
        name: &str,
        args: &[FunctionArg],
        alias: Option<&TableAlias>,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<Source>> {
        let exprs: Vec<&ast::Expr> = args
            .iter()
            .filter_map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
                _ => None,
            })
            .collect();
        if exprs.len() != args.len() {
            return Err(SqlError::unsupported("named arguments of a function in FROM"));
        }
        if name == parse::markers::ROWS_FROM {
            let mut sources = Vec::new();
            for expr in exprs {
                let ast::Expr::Function(function) = expr else {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "ROWS FROM takes function calls"));
                };
                let ast::FunctionArguments::List(list) = &function.args else {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "ROWS FROM takes function calls"));
                };
                let inner = qualified(&function.name)?;
                sources.extend(self.function_calls(&inner.name, &list.args, None, context)?);
            }
            return Ok(sources);
        }
        if name == "unnest" && exprs.len() > 1 {
            return exprs
                .into_iter()
                .map(|expr| {
                    let bound = self.bind_expr(expr, context)?;
                    Ok(Source::Set(self.set_invocation(name, vec![bound], None)?))
                })
                .collect();
        }
        let mut bound = Vec::with_capacity(exprs.len());
        for expr in exprs {
            bound.push(self.bind_expr(expr, context)?);
        }
        if functions::is_set_function(name) {
            let definitions = self.column_definitions(alias)?;
            return Ok(vec![Source::Set(self.set_invocation(name, bound, definitions)?)]);
        }
        Ok(vec![Source::Scalar(self.function(name, bound)?)])
    }

    /// `AS x(a int, b text)`; `None` if the alias gives names only.
    fn column_definitions(&self, alias: Option<&TableAlias>) -> SqlResult<Option<Vec<(String, Type)>>> {
        let Some(alias) = alias.filter(|alias| alias.columns.iter().any(|column| column.data_type.is_some()))
        else {
            return Ok(None);
        };
        alias
            .columns
            .iter()
            .map(|column| {
                let ty = column.data_type.as_ref().ok_or_else(|| {
                    SqlError::new(SqlState::SYNTAX_ERROR, "a column definition needs a type")
                })?;
                let ty = super::types::column_type(ty, self.context)?;
                Ok((ident_name(&column.name).into_owned(), ty.ty))
            })
            .collect::<SqlResult<_>>()
            .map(Some)
    }
}

/// A function in FROM.
enum Source {
    Set(SetInvocation),
    Scalar(Expr),
}

impl Source {
    fn columns(&self) -> Vec<PlanColumn> {
        match self {
            Source::Set(call) => {
                call.columns.iter().map(|(name, ty)| PlanColumn::new(name.as_str(), *ty)).collect()
            }
            Source::Scalar(expr) => {
                let name = match expr {
                    Expr::Call { function, .. } => function.name,
                    _ => "?column?",
                };
                vec![PlanColumn::new(name, expr.ty())]
            }
        }
    }
}

fn function_plan(
    calls: Vec<Source>,
    columns: Vec<PlanColumn>,
    ordinality: bool,
    subplans: Vec<(crate::plan::SubPlan, bool)>,
) -> SqlResult<Plan> {
    let all_sets = calls.iter().all(|call| matches!(call, Source::Set(_)));
    if all_sets && subplans.is_empty() {
        let functions = calls
            .into_iter()
            .filter_map(|call| match call {
                Source::Set(call) => Some(call),
                Source::Scalar(_) => None,
            })
            .collect();
        return Ok(Plan::new(PlanKind::FunctionScan { functions, ordinality }, columns));
    }
    if all_sets {
        return functions_over_subqueries(calls, columns, ordinality, subplans);
    }
    let multiple = calls.iter().any(|call| matches!(call, Source::Set(call) if call.columns.len() != 1));
    if ordinality || multiple {
        return Err(SqlError::unsupported("this combination of functions in FROM"));
    }
    let mut rows = Rows::new(Plan::one_row());
    rows.set_subplans(subplans);
    let mut items = Vec::with_capacity(calls.len());
    for call in calls {
        items.push(match call {
            Source::Scalar(expr) => ProjectSetItem::Scalar(rows.place(expr)?),
            Source::Set(mut call) => {
                let args = std::mem::take(&mut call.args);
                call.args = args.into_iter().map(|arg| rows.place(arg)).collect::<SqlResult<_>>()?;
                ProjectSetItem::Set(call)
            }
        });
    }
    if items.iter().any(|item| matches!(item, ProjectSetItem::Set(_))) {
        rows.stack(columns, |input| PlanKind::ProjectSet { input, exprs: items });
    } else {
        let exprs = items
            .into_iter()
            .filter_map(|item| match item {
                ProjectSetItem::Scalar(expr) => Some(expr),
                ProjectSetItem::Set(_) => None,
            })
            .collect();
        rows.stack(columns, |input| PlanKind::Project { input, exprs });
    }
    Ok(rows.into_plan())
}

/// Functions that return rows, and whose arguments have subqueries: one row of the arguments, and laterally the functions.
fn functions_over_subqueries(
    calls: Vec<Source>,
    columns: Vec<PlanColumn>,
    ordinality: bool,
    subplans: Vec<(crate::plan::SubPlan, bool)>,
) -> SqlResult<Plan> {
    let mut rows = Rows::new(Plan::one_row());
    rows.set_subplans(subplans);
    let (mut functions, mut exprs) = (Vec::with_capacity(calls.len()), Vec::new());
    for call in calls {
        let Source::Set(mut call) = call else { continue };
        for arg in &mut call.args {
            let placed = rows.place(arg.clone())?;
            *arg = Expr::Outer { depth: 0, index: exprs.len(), ty: placed.ty() };
            exprs.push(placed);
        }
        functions.push(call);
    }
    let given: Vec<_> = exprs.iter().map(|expr| PlanColumn::new("?column?", expr.ty())).collect();
    rows.stack(given.clone(), |input| PlanKind::Project { input, exprs });
    let called = Plan::new(PlanKind::FunctionScan { functions, ordinality }, columns.clone());
    let first = given.len();
    let both = given.into_iter().chain(columns.clone()).collect();
    rows.stack(both, |left| PlanKind::Join {
        kind: JoinKind::Inner,
        method: JoinMethod::Lateral,
        left,
        right: Box::new(called),
        on: None,
    });
    let exprs =
        columns.iter().enumerate().map(|(at, column)| Expr::Column(first + at, column.ty.ty)).collect();
    rows.stack(columns, |input| PlanKind::Project { input, exprs });
    Ok(rows.into_plan())
}

fn relation(name: Option<String>) -> Relation {
    Relation { name: name.map(Arc::from), schema: None, table: None, oid: 0, scalar: false }
}

/// Puts an item that sees only the surroundings of the query below the lateral rows.
fn under<'s>(mut item: FromItem<'s>, laterals: Laterals<'s>) -> FromItem<'s> {
    item.plan.shift_outer(0, laterals.levels as isize);
    item.scope.parent = laterals.scope;
    item
}

/// The lock that FOR UPDATE or FOR SHARE asks for on a relation.
fn lock_for(locks: &[ast::LockClause], name: &str) -> SqlResult<Option<RowLock>> {
    let mut found: Option<RowLock> = None;
    for lock in locks {
        if let Some(of) = &lock.of
            && *qualified(of)?.name != *name
        {
            continue;
        }
        let strength = match lock.lock_type {
            LockType::Share => kv_api::LockStrength::Shared,
            LockType::Update => kv_api::LockStrength::Exclusive,
        };
        let wait = match lock.nonblock {
            None => kv_api::batch::WaitPolicy::Block,
            Some(NonBlock::Nowait) => kv_api::batch::WaitPolicy::Error,
            Some(NonBlock::SkipLocked) => kv_api::batch::WaitPolicy::Skip,
        };
        if found.is_none_or(|known| known.strength < strength) {
            found = Some(RowLock { strength, wait });
        }
    }
    Ok(found)
}
