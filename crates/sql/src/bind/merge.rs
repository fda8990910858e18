//! MERGE.
//!
//! The input of the operator has for each row of the source that matches a row of the target that row, then the source's
//! columns; for one that matches none, NULLs in its place. The first WHEN clause whose condition holds says what is done.

use super::context::{Clause, ExprContext};
use super::from::{FromItem, Laterals};
use super::insert::{all_columns, check_count, is_default};
use super::lookup::RelationRef;
use super::policy::Access;
use super::rows::Rows;
use super::scope::Scope;
use super::select::{OutputItem, project};
use super::update::LOCK;
use super::{Binder, Env};
use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::parse::markers::{MERGE_DEFAULTS, MERGE_NOTHING};
use crate::plan::{Expr, JoinKind, MergeAction, MergeClause, Plan, PlanColumn, PlanKind};
use sql_types::{Datum, SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, AssignmentTarget, MergeClauseKind, MergeInsertKind, TableFactor};
use std::sync::Arc;

fn syntax(message: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

impl Binder<'_> {
    pub(crate) fn bind_merge(&self, merge: &ast::Merge, env: Env<'_>) -> SqlResult<Plan> {
        if merge.output.is_some() {
            return Err(syntax("syntax error at or near \"RETURNING\""));
        }
        check_reachable(&merge.clauses)?;
        let (table, item) = self.merge_input(merge, env)?;
        let matched = item.scope;
        let unmatched = source_only(&matched, table.columns.len());
        let mut rows = Rows::new(item.plan);
        let mut clauses = Vec::with_capacity(merge.clauses.len());
        for clause in &merge.clauses {
            let matches = is_matched(clause)?;
            let scope = if matches { &matched } else { &unmatched };
            let mut context = ExprContext::new(scope, env.ctes, Clause::MergeWhen);
            let condition = match &clause.predicate {
                Some(predicate) => Some(self.bind_condition(predicate, &mut context, "WHEN")?),
                None => None,
            };
            let assigned = match &clause.action {
                ast::MergeAction::Update(update) if !is_nothing(update) => {
                    if update.update_predicate.is_some() || update.delete_predicate.is_some() {
                        return Err(syntax("syntax error at or near \"WHERE\""));
                    }
                    context.clause = Clause::UpdateSet;
                    Some(self.bind_assignments(&update.assignments, &table, &mut context)?)
                }
                _ => None,
            };
            rows.set_subplans(context.subplans);
            let condition = condition.map(|condition| rows.place(condition)).transpose()?;
            let action = match (&clause.action, assigned) {
                (_, Some(bound)) => {
                    let mut assignments = Vec::with_capacity(bound.len());
                    for (column, expr) in bound {
                        assignments.push((column, rows.place(expr)?));
                    }
                    MergeAction::Update(assignments)
                }
                (ast::MergeAction::Delete { .. }, _) => MergeAction::Delete,
                (ast::MergeAction::Insert(insert), _) => {
                    self.bind_merge_insert(insert, &table, &unmatched, env)?
                }
                (ast::MergeAction::Update(_), None) => MergeAction::Nothing,
            };
            clauses.push(MergeClause { matched: matches, condition, action });
        }
        let checks = self.checks(&table)?;
        let policies = self.merge_policies(&table)?;
        let kind = PlanKind::Merge { table, input: Box::new(rows.into_plan()), clauses, checks, policies };
        Ok(Plan::new(kind, Vec::new()))
    }

    /// The target joined with the source.
    fn merge_input<'s>(
        &self,
        merge: &ast::Merge,
        env: Env<'s>,
    ) -> SqlResult<(Arc<TableDescriptor>, FromItem<'s>)> {
        let TableFactor::Table { name, alias, args: None, .. } = &merge.table else {
            return Err(syntax("MERGE needs the name of a table"));
        };
        if let RelationRef::View(_) = self.find_relation(name)? {
            let message = format!("cannot execute MERGE on relation \"{name}\"");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_detail("This operation is not supported for views."));
        }
        let table = self.target_table(name, "execute MERGE on")?;
        let target =
            self.bind_accessed_table(table.clone(), alias.as_ref(), env, Some(LOCK), Access::Select)?;
        let inserts = merge.clauses.iter().any(|clause| is_matched(clause).is_ok_and(|matches| !matches));
        let kind = if inserts { JoinKind::Right } else { JoinKind::Inner };
        let laterals = Laterals { env, scope: env.outer, levels: 0 };
        let item = self.join_merged(target, &merge.source, kind, &merge.on, laterals)?;
        Ok((table, item))
    }

    /// INSERT: a plan that gives the values of one row, with the row of the source as its outer row.
    fn bind_merge_insert(
        &self,
        insert: &ast::MergeInsertExpr,
        table: &Arc<TableDescriptor>,
        source: &Scope<'_>,
        env: Env<'_>,
    ) -> SqlResult<MergeAction> {
        let MergeInsertKind::Values(values) = &insert.kind else {
            return Err(syntax("syntax error in INSERT"));
        };
        let [row] = &values.rows[..] else { return Err(syntax("INSERT of MERGE takes one row")) };
        if insert.insert_predicate.is_some() {
            return Err(syntax("syntax error at or near \"WHERE\""));
        }
        let first = insert.columns.first().map(ToString::to_string).unwrap_or_default();
        let first = first.trim_matches('"');
        if first == MERGE_NOTHING {
            return Ok(MergeAction::Nothing);
        }
        let scope = Scope { parent: Some(source), ..Scope::default() };
        let mut context = ExprContext::new(&scope, env.ctes, Clause::Values);
        let mut items: Vec<(ColumnId, OutputItem)> = Vec::new();
        let mut given: Vec<ColumnId> = Vec::new();
        if first != MERGE_DEFAULTS {
            let explicit = !insert.columns.is_empty();
            let mut targets = match explicit {
                true => self.named_targets(&insert.columns, table)?,
                false => all_columns(table),
            };
            check_count(row.content.len(), &mut targets, explicit)?;
            for (target, value) in targets.into_iter().zip(&row.content) {
                let column = target.column;
                if self.is_overridden(column) || (is_default(value) && target.subscripts.is_empty()) {
                    continue;
                }
                let mut expr = self.bind_for_target(value, target, &mut context)?;
                if !target.subscripts.is_empty() {
                    let before = items.iter().position(|(known, _)| *known == column.id);
                    let container = match before {
                        Some(before) => items.swap_remove(before).1.expr,
                        None => Expr::Const(Datum::Null, column.ty.ty),
                    };
                    expr = self.with_element(container, target.subscripts, expr, &mut context)?;
                }
                given.push(column.id);
                items.push((column.id, item(column, expr)));
            }
        }
        self.check_given(&given, table)?;
        for column in table.columns.iter().filter(|column| !column.hidden && !given.contains(&column.id)) {
            let expr = self.default_in(column, &mut context)?;
            if !matches!(expr, Expr::Const(Datum::Null, _)) {
                items.push((column.id, item(column, expr)));
            }
        }
        let mut rows = Rows::new(Plan::one_row());
        rows.set_subplans(context.subplans);
        let (targets, items): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        project(&mut rows, items)?;
        Ok(MergeAction::Insert { targets, row: Arc::new(rows.into_plan()) })
    }
}

fn item(column: &crate::catalog::descriptor::ColumnDescriptor, expr: Expr) -> OutputItem {
    OutputItem { expr, column: PlanColumn::new(column.name.as_str(), column.ty) }
}

fn is_matched(clause: &ast::MergeClause) -> SqlResult<bool> {
    match clause.clause_kind {
        MergeClauseKind::Matched => Ok(true),
        MergeClauseKind::NotMatched => Ok(false),
        _ => Err(syntax("syntax error at or near \"BY\"")),
    }
}

/// `DO NOTHING`, as the tokens' rewriting wrote it.
fn is_nothing(update: &ast::MergeUpdateExpr) -> bool {
    match &update.assignments[..] {
        [ast::Assignment { target: AssignmentTarget::ColumnName(name), .. }] => {
            name.to_string().trim_matches('"') == MERGE_NOTHING
        }
        _ => false,
    }
}

/// Refuses a clause behind one of its kind that always applies.
fn check_reachable(clauses: &[ast::MergeClause]) -> SqlResult<()> {
    if clauses.is_empty() {
        return Err(syntax("syntax error at end of input"));
    }
    let mut ended = [false; 2];
    for clause in clauses {
        let ended = &mut ended[usize::from(is_matched(clause)?)];
        if *ended {
            return Err(syntax("unreachable WHEN clause specified after unconditional WHEN clause"));
        }
        *ended = clause.predicate.is_none();
    }
    Ok(())
}

/// The scope of WHEN NOT MATCHED: the columns of the source.
fn source_only<'s>(joined: &Scope<'s>, width: usize) -> Scope<'s> {
    let mut scope = Scope { parent: joined.parent, ..Scope::default() };
    scope.relations = joined.relations.clone();
    if let Some(target) = scope.relations.first_mut() {
        target.name = None;
    }
    scope.columns = joined.columns.iter().skip(width).cloned().collect();
    scope
}
