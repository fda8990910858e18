//! SELECT: stacks the operators in the order in which SQL defines them.

use super::aggregate::sort_key;
use super::context::{Clause, ExprContext};
use super::expr::span_of;
use super::names::{ident_name, qualified};
use super::operator::{check_equality, check_ordering};
use super::output_name::output_name;
use super::query::{QueryOptions, Tail, sorted};
use super::rows::Rows;
use super::scope::ScopeColumn;
use super::window::check_window_names;
use super::{Binder, Env};
use crate::plan::{Expr, Plan, PlanColumn, PlanKind, SortKey};
use sql_types::{ColumnType, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, Distinct, SelectItem, SelectItemQualifiedWildcardKind};
use sqlparser::tokenizer::Span;
use std::sync::Arc;

/// An output column.
pub(crate) struct OutputItem {
    pub expr: Expr,
    pub column: PlanColumn,
}

impl OutputItem {
    /// A column of a scope, passed on.
    pub(crate) fn of_column(column: &ScopeColumn) -> Self {
        OutputItem {
            expr: column.expr.clone(),
            column: PlanColumn {
                name: column.name.clone(),
                ty: column.ty,
                table_oid: column.table_oid,
                attnum: column.attnum,
                fields: column.fields.clone(),
            },
        }
    }
}

impl Binder<'_> {
    pub(crate) fn bind_select(
        &self,
        select: &ast::Select,
        tail: &Tail<'_>,
        env: Env<'_>,
        options: QueryOptions,
    ) -> SqlResult<Plan> {
        self.refuse_foreign_select(select)?;
        let (plan, scope) = self.bind_from(&select.from, env, tail.locks)?;
        let mut rows = Rows::new(plan);
        if let Some(selection) = &select.selection {
            let mut context = ExprContext::new(&scope, env.ctes, Clause::Where);
            let predicate = self.bind_condition(selection, &mut context, "WHERE")?;
            rows.set_subplans(context.subplans);
            rows.filter(predicate)?;
        }
        let mut context = ExprContext::new(&scope, env.ctes, Clause::Select);
        check_window_names(&select.named_window)?;
        context.windows_by_name = &select.named_window;
        let mut items = self.bind_items(&select.projection, &mut context, options)?;
        let mut order = self.bind_order(tail.order, &items, &mut context)?;
        let mut distinct_on = self.bind_distinct_on(select.distinct.as_ref(), &items, &mut context)?;
        let grouping = self.bind_group_by(select, &items, &mut context)?;
        let mut having = match &select.having {
            Some(having) => {
                context.clause = Clause::Having;
                Some(self.bind_condition(having, &mut context, "HAVING")?)
            }
            None => None,
        };
        self.check_locks(select, tail, &context, grouping.is_some())?;
        if context.uses_grouping && grouping.is_none() {
            return Err(SqlError::new(
                SqlState::GROUPING_ERROR,
                "arguments to GROUPING must be grouping expressions of the associated query level",
            ));
        }
        let ExprContext { aggregates, mut windows, subplans, mut sets, .. } = context;
        rows.set_subplans(subplans);
        if grouping.is_some() || !aggregates.is_empty() || having.is_some() {
            let mut aggregation = super::group::Aggregation::new(grouping.unwrap_or_default(), &scope);
            {
                let subplans = rows.waiting_mut();
                for item in &mut items {
                    aggregation.lift(&mut item.expr, subplans)?;
                }
                for expr in order.iter_mut().filter_map(OrderItem::expr_mut) {
                    aggregation.lift(expr, subplans)?;
                }
                for expr in &mut distinct_on {
                    aggregation.lift(expr, subplans)?;
                }
                if let Some(having) = &mut having {
                    aggregation.lift(having, subplans)?;
                }
                for call in &mut windows {
                    aggregation.lift_window(call, subplans)?;
                }
                for call in &mut sets {
                    for arg in &mut call.args {
                        aggregation.lift(arg, subplans)?;
                    }
                }
            }
            aggregation.stack(&mut rows, aggregates)?;
        }
        if let Some(having) = having {
            rows.filter(having)?;
        }
        rows.window(windows)?;
        rows.sets(sets)?;
        let plan =
            self.finish_select(rows, items, order, (distinct_on, select.distinct.as_ref()), tail, env)?;
        self.bind_limit(plan, tail, env)
    }

    fn refuse_foreign_select(&self, select: &ast::Select) -> SqlResult<()> {
        if select.into.is_some() {
            return Err(SqlError::unsupported("SELECT INTO").with_hint("Use CREATE TABLE AS."));
        }
        let foreign = select.top.is_some()
            || !select.lateral_views.is_empty()
            || select.prewhere.is_some()
            || !select.connect_by.is_empty()
            || !select.cluster_by.is_empty()
            || !select.distribute_by.is_empty()
            || !select.sort_by.is_empty()
            || select.qualify.is_some()
            || select.value_table_mode.is_some()
            || select.exclude.is_some()
            || select.flavor != ast::SelectFlavor::Standard;
        if foreign {
            let error = SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in SELECT");
            return Err(self.at(error, select.select_token.0.span));
        }
        Ok(())
    }

    fn check_locks(
        &self,
        select: &ast::Select,
        tail: &Tail<'_>,
        context: &ExprContext<'_>,
        grouped: bool,
    ) -> SqlResult<()> {
        if tail.locks.is_empty() {
            return Ok(());
        }
        let what = if matches!(select.distinct, Some(Distinct::Distinct | Distinct::On(_))) {
            "DISTINCT clause"
        } else if grouped {
            "GROUP BY clause"
        } else if select.having.is_some() {
            "HAVING clause"
        } else if !context.aggregates.is_empty() {
            "aggregate functions"
        } else if !context.windows.is_empty() {
            "window functions"
        } else if !context.sets.is_empty() {
            "set-returning functions in the target list"
        } else {
            return Ok(());
        };
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("FOR UPDATE is not allowed with {what}")))
    }

    // The select list.

    pub(crate) fn bind_items(
        &self,
        projection: &[SelectItem],
        context: &mut ExprContext<'_>,
        options: QueryOptions,
    ) -> SqlResult<Vec<OutputItem>> {
        let mut items = Vec::with_capacity(projection.len());
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    self.note_item(expr);
                    items.push(self.bind_item(expr, Arc::from(output_name(expr)), context, options)?);
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    items.push(self.bind_item(expr, Arc::from(&*ident_name(alias)), context, options)?);
                }
                SelectItem::Wildcard(options) => {
                    if context.scope.relations.is_empty() {
                        return Err(SqlError::new(
                            SqlState::SYNTAX_ERROR,
                            "SELECT * with no tables specified is not valid",
                        ));
                    }
                    let columns =
                        || context.scope.columns.iter().filter(|column| column.visible && !column.hidden);
                    self.spell_out_columns(options.wildcard_token.0.span, context.scope, &columns);
                    items.extend(columns().map(OutputItem::of_column));
                }
                SelectItem::QualifiedWildcard(kind, options) => {
                    let star = options.wildcard_token.0.span;
                    self.bind_wildcard(kind, star, &mut items, context)?;
                }
                SelectItem::ExprWithAliases { .. } => {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in the select list"));
                }
            }
        }
        Ok(items)
    }

    fn bind_item(
        &self,
        expr: &ast::Expr,
        name: Arc<str>,
        context: &mut ExprContext<'_>,
        options: QueryOptions,
    ) -> SqlResult<OutputItem> {
        let bound = self.bind_expr(expr, context)?;
        if let Expr::Array(elements, Type::UNKNOWN) = &bound
            && elements.is_empty()
        {
            let error =
                SqlError::new(SqlState::INDETERMINATE_DATATYPE, "cannot determine type of empty array")
                    .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].");
            return Err(self.at(error, span_of(expr)));
        }
        let bound = if options.settle_types { self.resolve_unknown(bound)? } else { bound };
        let mut column = self.output_column(name, &bound, context);
        if column.ty.typmod < 0 {
            column.ty.typmod = self.written_modifier(expr, column.ty.ty)?;
        }
        Ok(OutputItem { expr: bound, column })
    }

    /// The modifier in a cast to this type, which a constant does not keep.
    fn written_modifier(&self, expr: &ast::Expr, ty: Type) -> SqlResult<i32> {
        let written = match expr {
            ast::Expr::Nested(inner) => return self.written_modifier(inner, ty),
            ast::Expr::Cast { data_type, .. } => data_type,
            ast::Expr::TypedString(typed) => &typed.data_type,
            _ => return Ok(-1),
        };
        let declared = super::types::declared_type(written, self.context)?;
        Ok(if declared.ty == ty { declared.typmod } else { -1 })
    }

    /// What is known of an output column: its modifier and the table column it passes on.
    pub(crate) fn output_column(&self, name: Arc<str>, expr: &Expr, context: &ExprContext<'_>) -> PlanColumn {
        let mut column = PlanColumn::new(name, ColumnType { ty: expr.ty(), typmod: typmod(expr) });
        if let Expr::Column(index, _) = expr
            && let Some(source) = context
                .scope
                .columns
                .iter()
                .find(|known| matches!(&known.expr, Expr::Column(own, _) if own == index))
        {
            column.ty = source.ty;
            column.table_oid = source.table_oid;
            column.attnum = source.attnum;
            column.fields = source.fields.clone();
        } else if expr.ty() == Type::RECORD {
            column.fields = self.fields_of(expr, context);
        }
        column
    }

    /// `relation.*` or `(record).*`.
    fn bind_wildcard(
        &self,
        kind: &SelectItemQualifiedWildcardKind,
        star: Span,
        items: &mut Vec<OutputItem>,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<()> {
        match kind {
            SelectItemQualifiedWildcardKind::ObjectName(name) => {
                self.spell_out_relation_columns(name, star, context)?;
                for (column, expr) in self.expand_relation(name, context)? {
                    items.push(OutputItem { expr, column });
                }
            }
            SelectItemQualifiedWildcardKind::Expr(expr) => {
                let record = self.bind_expr(expr, context)?;
                let Some(fields) = self.fields_of(&record, context) else {
                    let error = SqlError::new(
                        SqlState::WRONG_OBJECT_TYPE,
                        format!("type {} is not composite", record.ty()),
                    );
                    return Err(self.at(error, span_of(expr)));
                };
                for (position, field) in fields.iter().enumerate() {
                    let value = match &record {
                        Expr::Record(values, _) => values[position].clone(),
                        other => Expr::Field(Box::new(other.clone()), position, field.ty),
                    };
                    items.push(OutputItem {
                        expr: value,
                        column: PlanColumn::new(field.name.as_str(), field.ty),
                    });
                }
            }
        }
        Ok(())
    }

    /// The columns of a relation that `name.*` stands for.
    pub(crate) fn expand_relation(
        &self,
        name: &ast::ObjectName,
        context: &ExprContext<'_>,
    ) -> SqlResult<Vec<(PlanColumn, Expr)>> {
        let name = qualified(name)?;
        let found = context
            .scope
            .find_relation(name.schema.as_deref(), &name.name)
            .map_err(|error| self.at(error, name.span))?;
        let Some((relation, depth)) = found else {
            if name.schema.is_none()
                && let Some(Expr::Record(values, Some(fields))) = self.variable(&name.name, false)?
            {
                let columns = fields.iter().map(|field| PlanColumn::new(field.name.as_str(), field.ty));
                return Ok(columns.zip(values).collect());
            }
            return Err(self.missing_from(name.schema.as_deref(), &name.name, name.span, context));
        };
        let Some(scope) = context.scope.ancestor(depth) else { return Ok(Vec::new()) };
        Ok(scope
            .relation_columns(relation)
            .map(|column| {
                let item = OutputItem::of_column(column);
                (item.column, super::scope::outward(item.expr, depth))
            })
            .collect())
    }

    // ORDER BY and DISTINCT.

    fn bind_order(
        &self,
        order: &[ast::OrderByExpr],
        items: &[OutputItem],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<OrderItem>> {
        let mut bound = Vec::with_capacity(order.len());
        for item in order {
            let target = match self.named_item(&item.expr, items, "ORDER BY", true)? {
                Some(position) => OrderTarget::Output(position),
                None => {
                    context.clause = Clause::OrderBy;
                    let expr = self.bind_expr(&item.expr, context)?;
                    let expr = self.resolve_unknown(expr)?;
                    match items.iter().position(|item| item.expr.same(&expr)) {
                        Some(position) => OrderTarget::Output(position),
                        None => OrderTarget::Expr(expr, Arc::from(output_name(&item.expr))),
                    }
                }
            };
            bound.push(OrderItem { target, options: item.options });
        }
        context.clause = Clause::Select;
        Ok(bound)
    }

    /// The output column that an item of ORDER BY, GROUP BY or DISTINCT ON names by number or, if
    /// `by_name`, by its name.
    pub(crate) fn named_item(
        &self,
        item: &ast::Expr,
        items: &[OutputItem],
        clause: &str,
        by_name: bool,
    ) -> SqlResult<Option<usize>> {
        if let Some(ordinal) = self.ordinal(item, clause)? {
            return self.checked_ordinal(ordinal, items.len(), clause, item).map(Some);
        }
        let ast::Expr::Identifier(ident) = item else { return Ok(None) };
        if !by_name {
            return Ok(None);
        }
        let name = ident_name(ident);
        let mut matches = items.iter().enumerate().filter(|(_, item)| *item.column.name == *name);
        let Some((first, item)) = matches.next() else { return Ok(None) };
        if matches.any(|(_, other)| !other.expr.same(&item.expr)) {
            let error =
                SqlError::new(SqlState::AMBIGUOUS_COLUMN, format!("{clause} \"{name}\" is ambiguous"));
            return Err(self.at(error, ident.span));
        }
        Ok(Some(first))
    }

    fn bind_distinct_on(
        &self,
        distinct: Option<&Distinct>,
        items: &[OutputItem],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<Expr>> {
        let Some(Distinct::On(exprs)) = distinct else { return Ok(Vec::new()) };
        let mut bound = Vec::with_capacity(exprs.len());
        for expr in exprs {
            bound.push(match self.named_item(expr, items, "DISTINCT ON", true)? {
                Some(position) => items[position].expr.clone(),
                None => {
                    context.clause = Clause::OrderBy;
                    let expr = self.bind_expr(expr, context)?;
                    self.resolve_unknown(expr)?
                }
            });
        }
        context.clause = Clause::Select;
        Ok(bound)
    }

    /// Projection, DISTINCT and ORDER BY.
    fn finish_select(
        &self,
        mut rows: Rows,
        items: Vec<OutputItem>,
        order: Vec<OrderItem>,
        (distinct_on, distinct): (Vec<Expr>, Option<&Distinct>),
        tail: &Tail<'_>,
        env: Env<'_>,
    ) -> SqlResult<Plan> {
        let visible = items.len();
        let all_distinct = matches!(distinct, Some(Distinct::Distinct));
        let mut items = items;
        let mut keys = Vec::with_capacity(order.len());
        for item in order {
            let position = match item.target {
                OrderTarget::Output(position) => position,
                OrderTarget::Expr(..) if all_distinct => {
                    return Err(SqlError::new(
                        SqlState::INVALID_COLUMN_REFERENCE,
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                    ));
                }
                OrderTarget::Expr(expr, name) => hidden_item(&mut items, expr, name),
            };
            keys.push((position, item.options));
        }
        let on: Vec<usize> = distinct_on
            .into_iter()
            .map(|expr| hidden_item(&mut items, expr, Arc::from("?column?")))
            .collect();
        let types: Vec<_> = items.iter().map(|item| item.expr.ty()).collect();
        let column = |position: usize| Expr::Column(position, types[position]);
        let mut keys: Vec<SortKey> =
            keys.into_iter().map(|(position, options)| sort_key(column(position), &options)).collect();
        if !on.is_empty() {
            sort_for_distinct_on(&mut keys, &on, column)?;
        }
        project(&mut rows, items)?;
        let mut plan = rows.into_plan();
        if all_distinct {
            plan.columns.iter().try_for_each(|column| check_equality(column.ty.ty))?;
            let columns = plan.columns.clone();
            plan = Plan::new(PlanKind::Distinct { input: Box::new(plan), on: Vec::new() }, columns);
        }
        if !keys.is_empty() {
            keys.iter().try_for_each(|key| check_ordering(key.expr.ty()))?;
            plan = sorted(plan, keys.clone());
        }
        if !on.is_empty() {
            let columns = plan.columns.clone();
            let on = on.into_iter().map(column).collect();
            plan = Plan::new(PlanKind::Distinct { input: Box::new(plan), on }, columns);
        }
        if tail.ties {
            plan = self.with_ties(plan, keys, tail, env)?;
        }
        if plan.columns.len() > visible {
            let columns: Vec<PlanColumn> = plan.columns[..visible].to_vec();
            let exprs =
                columns.iter().enumerate().map(|(index, column)| Expr::Column(index, column.ty.ty)).collect();
            plan = Plan::new(PlanKind::Project { input: Box::new(plan), exprs }, columns);
        }
        Ok(plan)
    }
}

/// The position of an expression among the items, to which it is added if it is not there.
fn hidden_item(items: &mut Vec<OutputItem>, expr: Expr, name: Arc<str>) -> usize {
    if let Some(position) = items.iter().position(|item| item.expr.same(&expr)) {
        return position;
    }
    let column = PlanColumn::new(name, expr.ty());
    items.push(OutputItem { expr, column });
    items.len() - 1
}

/// `DISTINCT ON` wants the input sorted by its expressions first.
fn sort_for_distinct_on(
    keys: &mut Vec<SortKey>,
    on: &[usize],
    column: impl Fn(usize) -> Expr,
) -> SqlResult<()> {
    let is_on = |key: &SortKey| matches!(key.expr, Expr::Column(position, _) if on.contains(&position));
    let leading = keys.iter().take_while(|key| is_on(key)).count();
    let covered = |position: &usize| {
        keys[..leading].iter().any(|key| matches!(key.expr, Expr::Column(own, _) if own == *position))
    };
    let missing: Vec<usize> = on.iter().filter(|position| !covered(position)).copied().collect();
    if !missing.is_empty() && leading < keys.len() {
        return Err(SqlError::new(
            SqlState::INVALID_COLUMN_REFERENCE,
            "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
        ));
    }
    for position in missing {
        keys.push(SortKey { expr: column(position), descending: false, nulls_first: false });
    }
    Ok(())
}

/// Stacks the projection of the items.
pub(crate) fn project(rows: &mut Rows, items: Vec<OutputItem>) -> SqlResult<()> {
    let mut exprs = Vec::with_capacity(items.len());
    let mut columns = Vec::with_capacity(items.len());
    for item in items {
        exprs.push(rows.place(item.expr)?);
        columns.push(item.column);
    }
    rows.stack(columns, |input| PlanKind::Project { input, exprs });
    Ok(())
}

/// The modifier of an expression's type.
fn typmod(expr: &Expr) -> i32 {
    match expr {
        Expr::Cast { to, .. } => to.typmod,
        _ => -1,
    }
}

/// An ORDER BY item.
pub(crate) struct OrderItem {
    target: OrderTarget,
    options: ast::OrderByOptions,
}

enum OrderTarget {
    Output(usize),
    Expr(Expr, Arc<str>),
}

impl OrderItem {
    fn expr_mut(&mut self) -> Option<&mut Expr> {
        match &mut self.target {
            OrderTarget::Output(_) => None,
            OrderTarget::Expr(expr, _) => Some(expr),
        }
    }
}
