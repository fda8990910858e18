//! Joins.

use super::Binder;
use super::context::{Clause, ExprContext, Virtual};
use super::from::{FromItem, Laterals};
use super::names::{ident_name, qualified};
use super::rows::Rows;
use super::scope::{Relation, Scope, ScopeColumn};
use crate::parse::markers::JOIN_ALIAS;
use crate::plan::{Expr, JoinKind, JoinMethod, Plan, PlanKind};
use sql_types::{ColumnType, SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, TableFactor};
use std::sync::Arc;

impl Binder<'_> {
    /// A table and the joins behind it.
    pub(crate) fn bind_joined<'s>(
        &self,
        item: &ast::TableWithJoins,
        laterals: Laterals<'s>,
        locks: &[ast::LockClause],
    ) -> SqlResult<FromItem<'s>> {
        let mut left = self.bind_factor(&item.relation, laterals, locks)?;
        for join in &item.joins {
            let (kind, constraint) = join_kind(&join.join_operator)?;
            left = self.bind_join(left, kind, &join.relation, constraint, laterals, locks)?;
        }
        Ok(left)
    }

    /// The next item after a comma.
    pub(crate) fn cross_join<'s>(
        &self,
        left: FromItem<'s>,
        next: &ast::TableWithJoins,
        laterals: Laterals<'s>,
        locks: &[ast::LockClause],
    ) -> SqlResult<FromItem<'s>> {
        let (plan, lateral, columns, relations) = {
            let inner = Laterals { env: laterals.env, scope: Some(&left.scope), levels: laterals.levels + 1 };
            let right = self.bind_joined(next, inner, locks)?;
            let (plan, lateral) = settle_lateral(right.plan);
            (plan, lateral, right.scope.columns, right.scope.relations)
        };
        self.join(
            left,
            Right { plan, lateral, columns, relations },
            JoinKind::Inner,
            &JoinConstraint::None,
            laterals,
        )
    }

    fn bind_join<'s>(
        &self,
        left: FromItem<'s>,
        kind: JoinKind,
        factor: &TableFactor,
        constraint: &JoinConstraint,
        laterals: Laterals<'s>,
        locks: &[ast::LockClause],
    ) -> SqlResult<FromItem<'s>> {
        let right = {
            let inner = Laterals { env: laterals.env, scope: Some(&left.scope), levels: laterals.levels + 1 };
            let right = self.bind_factor(factor, inner, locks)?;
            let (plan, lateral) = settle_lateral(right.plan);
            Right { plan, lateral, columns: right.scope.columns, relations: right.scope.relations }
        };
        if right.lateral && matches!(kind, JoinKind::Right | JoinKind::Full) {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "the combining JOIN type must be INNER or LEFT for a LATERAL reference",
            ));
        }
        self.join(left, right, kind, constraint, laterals)
    }

    /// The target of a MERGE with its source, which cannot refer to it.
    pub(crate) fn join_merged<'s>(
        &self,
        target: FromItem<'s>,
        source: &TableFactor,
        kind: JoinKind,
        on: &ast::Expr,
        laterals: Laterals<'s>,
    ) -> SqlResult<FromItem<'s>> {
        let source = self.bind_factor(source, laterals, &[])?;
        let twice = |name: &Option<Arc<str>>| {
            name.is_some() && target.scope.relations.iter().any(|relation| relation.name == *name)
        };
        if let Some(relation) = source.scope.relations.iter().find(|relation| twice(&relation.name)) {
            let name = relation.name.as_deref().unwrap_or_default();
            let message = format!("name \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message)
                .with_detail("The name is used both as MERGE target table and data source."));
        }
        let right = Right {
            plan: source.plan,
            lateral: false,
            columns: source.scope.columns,
            relations: source.scope.relations,
        };
        self.join(target, right, kind, &JoinConstraint::On(on.clone()), laterals)
    }

    fn join<'s>(
        &self,
        left: FromItem<'s>,
        right: Right,
        kind: JoinKind,
        constraint: &JoinConstraint,
        laterals: Laterals<'s>,
    ) -> SqlResult<FromItem<'s>> {
        let mut scope = left.scope;
        let width = left.plan.columns.len();
        let offset = scope.relations.len();
        for relation in &right.relations {
            let clash = relation.name.is_some()
                && scope
                    .relations
                    .iter()
                    .any(|known| known.name == relation.name && known.schema == relation.schema);
            if clash {
                return Err(SqlError::new(
                    SqlState::DUPLICATE_ALIAS,
                    format!(
                        "table name \"{}\" specified more than once",
                        relation.name.as_deref().unwrap_or_default()
                    ),
                ));
            }
        }
        scope.relations.extend(right.relations);
        let left_columns = scope.columns.len();
        scope.columns.extend(right.columns.into_iter().map(|mut column| {
            column.expr.shift_columns(width as isize);
            column.relation = column.relation.map(|relation| relation + offset);
            column
        }));
        let mut columns = left.plan.columns.clone();
        columns.extend(right.plan.columns.iter().cloned());
        let method = if right.lateral { JoinMethod::Lateral } else { JoinMethod::NestedLoop };
        let mut parts = JoinParts { kind, method, left: left.plan, right: right.plan, on: None };
        match constraint {
            JoinConstraint::None => {}
            JoinConstraint::On(condition) => {
                let mut context = ExprContext::new(&scope, laterals.env.ctes, Clause::JoinOn);
                let predicate = self.bind_condition(condition, &mut context, "JOIN/ON")?;
                if !context.subplans.is_empty() {
                    let subplans = context.subplans;
                    return subplan_condition(parts, predicate, subplans, columns, scope);
                }
                parts.on = Some(predicate);
            }
            JoinConstraint::Using(names) => {
                let (names, alias) = split_alias(names);
                let names = names
                    .iter()
                    .map(|name| Ok(qualified(name)?.name.into_owned()))
                    .collect::<SqlResult<Vec<String>>>()?;
                parts.on = self.bind_using(&names, &mut scope, left_columns, kind)?;
                if let Some(alias) = alias {
                    name_merged(&mut scope, names.len(), ident_name(alias).into())?;
                }
            }
            JoinConstraint::Natural => {
                let names = common_names(&scope.columns, left_columns);
                scope.columns.iter().for_each(|column| self.note_match(column, &scope, true));
                parts.on = self.bind_using(&names, &mut scope, left_columns, kind)?;
            }
        }
        let plan = Plan::new(parts.into_kind(), columns);
        scope.parent = laterals.scope;
        Ok(FromItem { plan, scope })
    }

    /// Merges the columns that USING names; they come first in `*`.
    fn bind_using(
        &self,
        names: &[String],
        scope: &mut Scope<'_>,
        left_columns: usize,
        kind: JoinKind,
    ) -> SqlResult<Option<Expr>> {
        let mut tests = Vec::with_capacity(names.len());
        let mut merged = Vec::with_capacity(names.len());
        for name in names {
            let left = self.using_column(&scope.columns[..left_columns], name, "left")?;
            let right = left_columns + self.using_column(&scope.columns[left_columns..], name, "right")?;
            let (l, r) = (scope.columns[left].clone(), scope.columns[right].clone());
            self.note_match(&l, scope, false);
            self.note_match(&r, scope, false);
            tests.push(self.operator("=", Some(l.expr.clone()), r.expr.clone())?);
            let (pair, common) = self.unify(vec![l.expr.clone(), r.expr.clone()], "JOIN/USING")?;
            let mut pair = pair.into_iter();
            let (Some(a), Some(b)) = (pair.next(), pair.next()) else {
                return Err(SqlError::internal("a pair of columns is incomplete"));
            };
            let same_type = l.ty == r.ty;
            let (expr, source) = match kind {
                JoinKind::Right => (b, &r),
                JoinKind::Full => (Expr::Coalesce(vec![a, b], common), &l),
                _ => (a, &l),
            };
            let passed_on = kind != JoinKind::Full;
            merged.push(ScopeColumn {
                name: Arc::from(name.as_str()),
                expr,
                ty: if same_type { l.ty } else { ColumnType::plain(common) },
                relation: None,
                visible: true,
                hidden: false,
                table_oid: if passed_on { source.table_oid } else { 0 },
                attnum: if passed_on { source.attnum } else { 0 },
                fields: None,
            });
            scope.columns[left].visible = false;
            scope.columns[right].visible = false;
        }
        merged.append(&mut scope.columns);
        scope.columns = merged;
        Ok(Expr::conjunction(tests))
    }

    fn using_column(&self, columns: &[ScopeColumn], name: &str, side: &str) -> SqlResult<usize> {
        let mut matches =
            columns.iter().enumerate().filter(|(_, column)| column.visible && *column.name == *name);
        match (matches.next(), matches.next()) {
            (Some((position, _)), None) => Ok(position),
            (None, _) => Err(SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
            )),
            _ => Err(SqlError::new(
                SqlState::AMBIGUOUS_COLUMN,
                format!("common column name \"{name}\" appears more than once in {side} table"),
            )),
        }
    }
}

/// The columns of USING, and the name that they have together, if there is one.
fn split_alias(names: &[ObjectName]) -> (&[ObjectName], Option<&Ident>) {
    if let [columns @ .., last] = names
        && let [ObjectNamePart::Identifier(marker), ObjectNamePart::Identifier(alias)] = &last.0[..]
        && marker.value == JOIN_ALIAS
    {
        return (columns, Some(alias));
    }
    (names, None)
}

/// Makes the first columns of a scope those of a relation as well.
fn name_merged(scope: &mut Scope<'_>, count: usize, alias: Arc<str>) -> SqlResult<()> {
    if scope.relations.iter().any(|relation| relation.name.as_deref() == Some(&*alias)) {
        let message = format!("table name \"{alias}\" specified more than once");
        return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
    }
    let relation = scope.relations.len();
    scope.relations.push(Relation { name: Some(alias), schema: None, table: None, oid: 0, scalar: false });
    let named =
        |column: &ScopeColumn| ScopeColumn { relation: Some(relation), visible: false, ..column.clone() };
    let merged: Vec<ScopeColumn> = scope.columns.iter().take(count).map(named).collect();
    scope.columns.extend(merged);
    Ok(())
}

/// The right side of a join.
struct Right {
    plan: Plan,
    lateral: bool,
    columns: Vec<ScopeColumn>,
    relations: Vec<super::scope::Relation>,
}

struct JoinParts {
    kind: JoinKind,
    method: JoinMethod,
    left: Plan,
    right: Plan,
    on: Option<Expr>,
}

impl JoinParts {
    fn into_kind(self) -> PlanKind {
        PlanKind::Join {
            kind: self.kind,
            method: self.method,
            left: Box::new(self.left),
            right: Box::new(self.right),
            on: self.on,
        }
    }
}

/// Whether the right side reads the left row; if not, it is taken out from below it.
fn settle_lateral(mut plan: Plan) -> (Plan, bool) {
    let lateral = plan.reads_outer(&mut |depth, _| depth == 0);
    if !lateral {
        plan.shift_outer(1, -1);
    }
    (plan, lateral)
}

/// A condition with subqueries: above an inner join it is a filter. Those of a left join are computed beside its left
/// rows, which are all that they may read.
fn subplan_condition<'s>(
    parts: JoinParts,
    predicate: Expr,
    subplans: Vec<(crate::plan::SubPlan, bool)>,
    columns: Vec<crate::plan::PlanColumn>,
    scope: Scope<'s>,
) -> SqlResult<FromItem<'s>> {
    if parts.kind == JoinKind::Left {
        return left_subplan_condition(parts, predicate, subplans, columns, scope);
    }
    if parts.kind != JoinKind::Inner {
        return Err(SqlError::unsupported("a subquery in the condition of an outer join"));
    }
    let mut rows = Rows::new(Plan::new(parts.into_kind(), columns.clone()));
    rows.set_subplans(subplans);
    rows.filter(predicate)?;
    let exprs = columns.iter().enumerate().map(|(index, column)| Expr::Column(index, column.ty.ty)).collect();
    rows.stack(columns, |input| PlanKind::Project { input, exprs });
    Ok(FromItem { plan: rows.into_plan(), scope })
}

fn left_subplan_condition<'s>(
    mut parts: JoinParts,
    mut predicate: Expr,
    mut subplans: Vec<(crate::plan::SubPlan, bool)>,
    columns: Vec<crate::plan::PlanColumn>,
    scope: Scope<'s>,
) -> SqlResult<FromItem<'s>> {
    let width = parts.left.columns.len();
    let mut of_right = false;
    for (subplan, _) in &mut subplans {
        if let Some(plan) = subplan.plan() {
            of_right |= (**plan).clone().reads_outer(&mut |depth, index| depth == 0 && index >= width);
        }
        subplan.for_each_expr_mut(&mut |expr| {
            expr.columns(&mut |index| of_right |= index >= width && Virtual::of(index).is_none());
        });
    }
    if of_right {
        return Err(SqlError::unsupported("a subquery of the right side in the condition of an outer join"));
    }
    let mut rows = Rows::new(parts.left);
    rows.set_subplans(subplans);
    // What is computed stands between the columns of the two sides.
    rows.place(predicate.clone())?;
    let more = rows.width() - width;
    let moved = |index: usize| if index < width { index } else { index + more };
    predicate.replace(&mut |part| match part {
        Expr::Column(index, ty) if Virtual::of(*index).is_none() => Some(Expr::Column(moved(*index), *ty)),
        _ => None,
    });
    parts.on = Some(rows.place(predicate)?);
    parts.left = rows.into_plan();
    let mut joined = parts.left.columns.clone();
    joined.extend(parts.right.columns.iter().cloned());
    let mut rows = Rows::new(Plan::new(parts.into_kind(), joined));
    let exprs =
        columns.iter().enumerate().map(|(index, column)| Expr::Column(moved(index), column.ty.ty)).collect();
    rows.stack(columns, |input| PlanKind::Project { input, exprs });
    Ok(FromItem { plan: rows.into_plan(), scope })
}

fn common_names(columns: &[ScopeColumn], left_columns: usize) -> Vec<String> {
    let (left, right) = columns.split_at(left_columns);
    let usable = |column: &&ScopeColumn| column.visible && !column.hidden;
    let mut names: Vec<String> = Vec::new();
    for column in left.iter().filter(usable) {
        if right.iter().filter(usable).any(|other| other.name == column.name)
            && !names.iter().any(|name| *name == *column.name)
        {
            names.push(column.name.to_string());
        }
    }
    names
}

fn join_kind(operator: &JoinOperator) -> SqlResult<(JoinKind, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
            if matches!(constraint, JoinConstraint::None) {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "a join needs ON or USING"));
            }
            (JoinKind::Inner, constraint)
        }
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (JoinKind::Left, constraint),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            (JoinKind::Right, constraint)
        }
        JoinOperator::FullOuter(constraint) => (JoinKind::Full, constraint),
        JoinOperator::CrossJoin(constraint) => (JoinKind::Inner, constraint),
        _ => return Err(SqlError::new(SqlState::SYNTAX_ERROR, "this kind of join does not exist")),
    })
}
