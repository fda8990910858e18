//! GROUP BY: grouping sets, and lifting expressions above the aggregation.

use super::Binder;
use super::context::{Clause, ExprContext, Virtual};
use super::expr::span_of;
use super::names::ident_name;
use super::operator::strip;
use super::rows::Rows;
use super::scope::Scope;
use super::select::OutputItem;
use crate::parse::markers::GROUP_DISTINCT;
use crate::plan::{AggregateCall, Expr, PlanColumn, PlanKind, SubPlan, WindowCall};
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, GroupByExpr, GroupByWithModifier};

/// Most grouping sets that a CUBE may make.
const MAX_SETS: usize = 4096;

/// The group expressions and the sets of them.
#[derive(Default)]
pub(crate) struct Grouping {
    exprs: Vec<Expr>,
    sets: Vec<Vec<usize>>,
}

impl Grouping {
    fn add(&mut self, expr: Expr) -> usize {
        match self.exprs.iter().position(|known| known.same(&expr)) {
            Some(position) => position,
            None => {
                self.exprs.push(expr);
                self.exprs.len() - 1
            }
        }
    }
}

impl Binder<'_> {
    /// The GROUP BY clause; `None` if there is none.
    pub(crate) fn bind_group_by(
        &self,
        select: &ast::Select,
        items: &[OutputItem],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Option<Grouping>> {
        let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"ALL\""));
        };
        if exprs.is_empty() && modifiers.is_empty() {
            return Ok(None);
        }
        let clause = std::mem::replace(&mut context.clause, Clause::GroupBy);
        let result = self.bind_groups(exprs, modifiers, items, context);
        context.clause = clause;
        result.map(Some)
    }

    fn bind_groups(
        &self,
        exprs: &[ast::Expr],
        modifiers: &[GroupByWithModifier],
        items: &[OutputItem],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Grouping> {
        let mut grouping = Grouping { exprs: Vec::new(), sets: vec![Vec::new()] };
        let modified = modifiers.iter().map(|modifier| match modifier {
            GroupByWithModifier::GroupingSets(expr) => Ok(expr),
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"WITH\"")),
        });
        let distinct =
            matches!(exprs.first(), Some(ast::Expr::Identifier(ident)) if ident.value == GROUP_DISTINCT);
        let exprs = if distinct { exprs.get(1..).unwrap_or_default() } else { exprs };
        let all: Vec<&ast::Expr> = exprs.iter().map(Ok).chain(modified).collect::<SqlResult<_>>()?;
        for expr in all {
            let alternatives = match expr {
                ast::Expr::GroupingSets(sets) => sets
                    .iter()
                    .map(|set| self.group_set(set, &mut grouping, items, context))
                    .collect::<SqlResult<_>>()?,
                ast::Expr::Rollup(parts) => {
                    let parts = self.group_parts(parts, &mut grouping, items, context)?;
                    (0..=parts.len()).rev().map(|count| parts[..count].concat()).collect()
                }
                ast::Expr::Cube(parts) => cube(self.group_parts(parts, &mut grouping, items, context)?)?,
                ast::Expr::Tuple(parts) if parts.is_empty() => vec![Vec::new()],
                ast::Expr::Tuple(parts) => vec![self.group_set(parts, &mut grouping, items, context)?],
                expr => vec![vec![self.group_item(expr, &mut grouping, items, context)?]],
            };
            grouping.sets = product(&grouping.sets, &alternatives)?;
        }
        for set in &mut grouping.sets {
            set.sort_unstable();
            set.dedup();
        }
        if distinct {
            let mut seen: Vec<Vec<usize>> = Vec::with_capacity(grouping.sets.len());
            for set in std::mem::take(&mut grouping.sets) {
                if !seen.contains(&set) {
                    seen.push(set);
                }
            }
            grouping.sets = seen;
        }
        Ok(grouping)
    }

    fn group_parts(
        &self,
        parts: &[Vec<ast::Expr>],
        grouping: &mut Grouping,
        items: &[OutputItem],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<Vec<usize>>> {
        parts.iter().map(|part| self.group_set(part, grouping, items, context)).collect()
    }

    fn group_set(
        &self,
        set: &[ast::Expr],
        grouping: &mut Grouping,
        items: &[OutputItem],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<usize>> {
        set.iter().map(|expr| self.group_item(expr, grouping, items, context)).collect()
    }

    /// A group expression: a number, a column of the input, a name of the output, or an expression.
    fn group_item(
        &self,
        expr: &ast::Expr,
        grouping: &mut Grouping,
        items: &[OutputItem],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<usize> {
        let expr = strip(expr);
        let input = match expr {
            ast::Expr::Identifier(ident) => context
                .scope
                .find(&ident_name(ident))
                .map_err(|error| self.at(error, ident.span))?
                .is_some_and(|found| found.depth == 0),
            _ => false,
        };
        let bound = match self.named_item(expr, items, "GROUP BY", !input)? {
            Some(position) => items[position].expr.clone(),
            None => {
                let bound = self.bind_expr(expr, context)?;
                self.resolve_unknown(bound)?
            }
        };
        let is_set = |part: &Expr| matches!(part, Expr::Column(index, _) if matches!(Virtual::of(*index), Some(Virtual::Set(_))));
        if bound.any(&mut |part| is_set(part)) {
            return Err(self.at(SqlError::unsupported("a set-returning function in GROUP BY"), span_of(expr)));
        }
        let refused = bound.any(&mut |part| match part {
            Expr::Column(index, _) => matches!(
                Virtual::of(*index),
                Some(Virtual::Aggregate(_) | Virtual::Window(_) | Virtual::Set(_))
            ),
            _ => false,
        });
        if refused {
            let error =
                SqlError::new(SqlState::GROUPING_ERROR, "aggregate functions are not allowed in GROUP BY");
            return Err(self.at(error, span_of(expr)));
        }
        super::operator::check_equality(bound.ty())?;
        Ok(grouping.add(bound))
    }

    /// `GROUPING(a, b)`: resolved when the expression is lifted, where the groups are known.
    pub(crate) fn bind_grouping(&self, args: Vec<Expr>, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        context.uses_grouping = true;
        // A record of the mask and the arguments marks the call until then.
        let mut values = vec![Virtual::GroupingMask.column(Type::INT4)];
        values.extend(args);
        Ok(Expr::Field(Box::new(Expr::Record(values, None)), 0, Type::INT4))
    }
}

fn product(left: &[Vec<usize>], right: &[Vec<usize>]) -> SqlResult<Vec<Vec<usize>>> {
    if left.len() * right.len() > MAX_SETS {
        return Err(too_many());
    }
    Ok(left.iter().flat_map(|left| right.iter().map(move |right| [&left[..], &right[..]].concat())).collect())
}

fn cube(parts: Vec<Vec<usize>>) -> SqlResult<Vec<Vec<usize>>> {
    if parts.len() > 12 {
        return Err(too_many());
    }
    let sets = (0..1usize << parts.len()).rev().map(|mask| {
        let chosen = parts.iter().enumerate().filter(|(bit, _)| mask >> (parts.len() - 1 - bit) & 1 == 1);
        chosen.flat_map(|(_, part)| part.clone()).collect()
    });
    Ok(sets.collect())
}

fn too_many() -> SqlError {
    SqlError::new(SqlState::TOO_COMPLEX, format!("too many grouping sets present (maximum {MAX_SETS})"))
}

/// Lifts expressions above the aggregation: group expressions become columns of its result.
pub(crate) struct Aggregation<'s> {
    grouping: Grouping,
    scope: &'s Scope<'s>,
    /// Sub-plans lifted already.
    lifted: Vec<usize>,
}

impl<'s> Aggregation<'s> {
    pub(crate) fn new(mut grouping: Grouping, scope: &'s Scope<'s>) -> Self {
        if grouping.sets.is_empty() {
            grouping.sets.push(Vec::new());
        }
        Aggregation { grouping, scope, lifted: Vec::new() }
    }

    /// Rewrites an expression over the input into one over groups and aggregates.
    pub(crate) fn lift(
        &mut self,
        expr: &mut Expr,
        subplans: &mut Vec<Option<(SubPlan, bool)>>,
    ) -> SqlResult<()> {
        if let Some(position) = self.grouping.exprs.iter().position(|group| group.same(expr)) {
            *expr = Virtual::Group(position).column(expr.ty());
            return Ok(());
        }
        if let Some(bits) = self.grouping_call(expr)? {
            *expr = bits;
            return Ok(());
        }
        match expr {
            Expr::Column(index, ty) => match Virtual::of(*index) {
                None => {
                    let position = self.dependent(*index, *ty)?;
                    *expr = Virtual::Group(position).column(*ty);
                }
                Some(Virtual::Sub(sub)) => self.lift_subplan(sub, subplans)?,
                Some(_) => {}
            },
            other => {
                let mut failure = None;
                other.for_each_child_mut(&mut |child| {
                    if failure.is_none() {
                        failure = self.lift(child, subplans).err();
                    }
                });
                if let Some(error) = failure {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// A column that the groups determine: one of a table whose primary key is grouped by.
    fn dependent(&mut self, index: usize, ty: Type) -> SqlResult<usize> {
        let column = self.scope.columns.iter().find(|column| {
            column.relation.is_some() && matches!(column.expr, Expr::Column(own, _) if own == index)
        });
        let relation = column.and_then(|column| column.relation);
        let table = relation.and_then(|relation| self.scope.relations.get(relation)?.table.clone());
        if let (Some(relation), Some(table), [_]) = (relation, table, &self.grouping.sets[..]) {
            let key = &table.primary().columns;
            let hidden = key.iter().any(|(id, _)| table.column(*id).is_some_and(|column| column.hidden));
            let grouped = |id: u32| {
                self.scope.columns.iter().any(|column| {
                    column.relation == Some(relation)
                        && column.attnum as u32 == id
                        && self.grouping.exprs.iter().any(|group| group.same(&column.expr))
                })
            };
            if !hidden && key.iter().all(|(id, _)| grouped(*id)) {
                let position = self.grouping.add(Expr::Column(index, ty));
                if let [set] = &mut self.grouping.sets[..]
                    && !set.contains(&position)
                {
                    set.push(position);
                }
                return Ok(position);
            }
        }
        let name = column.map_or_else(
            || "?column?".to_string(),
            |column| {
                let relation = relation.and_then(|relation| self.scope.relations.get(relation)?.name.clone());
                relation
                    .map_or_else(|| column.name.to_string(), |relation| format!("{relation}.{}", column.name))
            },
        );
        Err(SqlError::new(
            SqlState::GROUPING_ERROR,
            format!(
                "column \"{name}\" must appear in the GROUP BY clause or be used in an aggregate function"
            ),
        ))
    }

    fn lift_subplan(&mut self, sub: usize, subplans: &mut Vec<Option<(SubPlan, bool)>>) -> SqlResult<()> {
        if self.lifted.contains(&sub) {
            return Ok(());
        }
        self.lifted.push(sub);
        let Some((mut subplan, cached)) = subplans.get_mut(sub).and_then(Option::take) else { return Ok(()) };
        let mut failure = None;
        subplan.for_each_expr_mut(&mut |expr| {
            if failure.is_none() {
                failure = self.lift(expr, subplans).err();
            }
        });
        if let Some(plan) = subplan.plan_mut() {
            plan.rewrite_outer(&mut |depth, index, ty, level| {
                if depth > 0 || failure.is_some() {
                    return None;
                }
                let grouped = self
                    .grouping
                    .exprs
                    .iter()
                    .position(|group| matches!(group, Expr::Column(own, _) if *own == index));
                match grouped.map_or_else(|| self.dependent(index, ty), Ok) {
                    Ok(position) => Some(Expr::Outer { depth: level, index: position, ty }),
                    Err(error) => {
                        failure = Some(ungrouped_in_subquery(error));
                        None
                    }
                }
            });
        }
        if let Some(error) = failure {
            return Err(error);
        }
        subplans[sub] = Some((subplan, cached));
        Ok(())
    }

    pub(crate) fn lift_window(
        &mut self,
        call: &mut WindowCall,
        subplans: &mut Vec<Option<(SubPlan, bool)>>,
    ) -> SqlResult<()> {
        let mut failure = None;
        call.for_each_expr_mut(&mut |expr| {
            if failure.is_none() {
                failure = self.lift(expr, subplans).err();
            }
        });
        failure.map_or(Ok(()), Err)
    }

    /// The bits of a marked GROUPING call, as an expression over the mask.
    fn grouping_call(&self, expr: &Expr) -> SqlResult<Option<Expr>> {
        let Expr::Field(record, 0, _) = expr else { return Ok(None) };
        let Expr::Record(values, None) = record.as_ref() else { return Ok(None) };
        let Some((Expr::Column(mask, _), args)) = values.split_first() else { return Ok(None) };
        if Virtual::of(*mask) != Some(Virtual::GroupingMask) {
            return Ok(None);
        }
        let mut shifts = Vec::with_capacity(args.len());
        for arg in args {
            let position = self.grouping.exprs.iter().position(|group| group.same(arg)).ok_or_else(|| {
                SqlError::new(
                    SqlState::GROUPING_ERROR,
                    "arguments to GROUPING must be grouping expressions of the associated query level",
                )
            })?;
            shifts.push(position);
        }
        if self.grouping.sets.len() == 1 {
            return Ok(Some(Expr::Const(Datum::Int4(0), Type::INT4)));
        }
        grouping_bits(&shifts, self.grouping.exprs.len()).map(Some)
    }

    /// Stacks the aggregation.
    pub(crate) fn stack(self, rows: &mut Rows, aggregates: Vec<AggregateCall>) -> SqlResult<()> {
        let mut groups = Vec::with_capacity(self.grouping.exprs.len());
        let mut columns = Vec::new();
        for group in self.grouping.exprs {
            columns.push(PlanColumn::new(group_name(&group, self.scope), group.ty()));
            groups.push(rows.place(group)?);
        }
        let mut calls = Vec::with_capacity(aggregates.len());
        for mut call in aggregates {
            let mut failure = None;
            call.for_each_expr_mut(&mut |expr| match rows
                .place(std::mem::replace(expr, super::bool_const(false)))
            {
                Ok(placed) => *expr = placed,
                Err(error) => failure = Some(error),
            });
            if let Some(error) = failure {
                return Err(error);
            }
            columns.push(PlanColumn::new(call.function.name, call.ty));
            calls.push(call);
        }
        let sets = self.grouping.sets;
        let mask = (sets.len() > 1).then_some(columns.len());
        if mask.is_some() {
            columns.push(PlanColumn::new("grouping", Type::INT4));
        }
        rows.set_aggregation(groups.len(), mask);
        rows.stack(columns, |input| PlanKind::Aggregate { input, groups, sets, aggregates: calls });
        Ok(())
    }
}

/// The bits of the given groups out of the mask over all groups, in which the last group has the
/// lowest bit.
fn grouping_bits(positions: &[usize], groups: usize) -> SqlResult<Expr> {
    let int = |value: usize| Expr::Const(Datum::Int4(value as i32), Type::INT4);
    let call = |symbol: &str, left: Expr, right: Expr| -> SqlResult<Expr> {
        let resolved = sql_types::functions::resolve_operator(symbol, Some(Type::INT4), Type::INT4)?;
        Ok(Expr::Call { function: resolved.function, args: vec![left, right], ty: resolved.returns })
    };
    let mut result: Option<Expr> = None;
    for position in positions {
        let mask = Virtual::GroupingMask.column(Type::INT4);
        let bit = call("&", call(">>", mask, int(groups - 1 - position))?, int(1))?;
        result = Some(match result {
            None => bit,
            Some(bits) => call("|", call("<<", bits, int(1))?, bit)?,
        });
    }
    Ok(result.unwrap_or_else(|| int(0)))
}

/// The name of a group in EXPLAIN.
fn group_name(group: &Expr, scope: &Scope<'_>) -> std::sync::Arc<str> {
    let named = scope.columns.iter().find(|column| column.expr.same(group)).map(|column| column.name.clone());
    named.unwrap_or_else(|| std::sync::Arc::from("group"))
}

fn ungrouped_in_subquery(error: SqlError) -> SqlError {
    match error.message.split('"').nth(1) {
        Some(name) => SqlError::new(
            SqlState::GROUPING_ERROR,
            format!("subquery uses ungrouped column \"{name}\" from outer query"),
        ),
        None => error,
    }
}
