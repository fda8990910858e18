//! Row security: the policies of a table around its rows, and on rows that are written.
//!
//! A policy's conditions are bound like the text of a view: under the search path they were written with, seeing nothing
//! of the statement but the row. Their subqueries are subject to privileges and policies of the tables they read, with
//! the same role. What becomes of them is told in [`crate::plan::policy`].

use super::context::{Clause, ExprContext};
use super::from::FromItem;
use super::rows::Rows;
use super::scope::Scope;
use super::select::{OutputItem, project};
use super::{BindContext, Binder, Env, bool_const};
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::policy::{PolicyCommand, PolicyDescriptor};
use crate::parse::{self, Source};
use crate::plan::{
    Expr, Plan, PlanColumn, PlanKind, PolicyCheck, PolicyTest, RowLock, RowPolicies, ScanFence,
};
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

/// What a statement does with the rows of a table that it reads. `reads`: whether it makes use of their values.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// Reads them.
    Select,
    /// Locks them.
    Lock,
    /// Changes them.
    Update { reads: bool },
    /// Deletes them.
    Delete { reads: bool },
}

impl Access {
    /// The commands whose policies decide which rows there are.
    fn commands(self) -> &'static [PolicyCommand] {
        match self {
            Access::Select => &[PolicyCommand::Select],
            Access::Lock | Access::Update { reads: true } => &[PolicyCommand::Select, PolicyCommand::Update],
            Access::Update { reads: false } => &[PolicyCommand::Update],
            Access::Delete { reads: true } => &[PolicyCommand::Select, PolicyCommand::Delete],
            Access::Delete { reads: false } => &[PolicyCommand::Delete],
        }
    }
}

/// A condition of policies as SQL text with the policy it is of.
type Written<'t> = (&'t PolicyDescriptor, &'t str);

/// The conditions that apply to a role.
#[derive(Default)]
struct Conditions<'t> {
    /// One of them must hold.
    permissive: Vec<Written<'t>>,
    /// Each must hold.
    restrictive: Vec<Written<'t>>,
}

/// A condition of a policy as it is found to be when the policy is made.
#[derive(Debug)]
pub struct BoundPolicy {
    /// Columns of the table that it reads, by position.
    pub columns: Vec<usize>,
}

/// Binds a condition of a policy of a table, to find out whether it can be.
pub fn bind_policy(
    expr: &ast::Expr,
    source: Option<&Source>,
    table: &Arc<TableDescriptor>,
    context: &BindContext<'_>,
) -> SqlResult<BoundPolicy> {
    let binder = Binder::new(context, source, 0);
    let item = binder.bind_table(table.clone(), None, Env::default(), None)?;
    let mut expressions = ExprContext::new(&item.scope, None, Clause::Policy);
    let bound = binder.bind_condition(expr, &mut expressions, "POLICY")?;
    let mut columns = Vec::new();
    let mut rows = Rows::new(item.plan);
    rows.set_subplans(expressions.subplans);
    rows.filter(bound)?;
    // Those of the row itself, and those that subqueries see of it.
    note_columns(&mut rows.into_plan(), table.columns.len(), &mut columns);
    Ok(BoundPolicy { columns })
}

fn note_columns(plan: &mut Plan, width: usize, found: &mut Vec<usize>) {
    fn note(column: usize, width: usize, found: &mut Vec<usize>) {
        if column < width && !found.contains(&column) {
            found.push(column);
        }
    }
    plan.for_each_expr_mut(&mut |expr| expr.columns(&mut |column| note(column, width, found)));
    plan.for_each_child_mut(&mut |child, inner| {
        if inner {
            child.rewrite_outer(&mut |depth, column, _, _| {
                if depth == 0 {
                    note(column, width, found);
                }
                None
            });
        } else {
            note_columns(child, width, found);
        }
    });
}

impl Binder<'_> {
    /// Whether the policies of a table apply to what is bound; 42501 if they would but must not.
    pub(crate) fn is_secured(&self, table: &TableDescriptor) -> SqlResult<bool> {
        let catalog = self.context.catalog;
        let role = self.role();
        if !table.security.enabled || !catalog.secures(table, role) {
            return Ok(false);
        }
        if self.context.row_security {
            return Ok(true);
        }
        let message =
            format!("query would be affected by row-level security policy for table \"{}\"", table.name);
        let error = SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
        if !catalog.is_member(role, table.owner) {
            return Err(error);
        }
        Err(error.with_hint(
            "To disable the policy for the table's owner, use ALTER TABLE NO FORCE ROW LEVEL SECURITY.",
        ))
    }

    /// The role whose rights count.
    fn role(&self) -> Oid {
        self.owner.unwrap_or(self.context.user)
    }

    /// A table as a statement may use it: the rows that policies let through.
    pub(crate) fn bind_accessed_table<'s>(
        &self,
        table: Arc<TableDescriptor>,
        alias: Option<&ast::TableAlias>,
        env: Env<'s>,
        lock: Option<RowLock>,
        access: Access,
    ) -> SqlResult<FromItem<'s>> {
        self.reads(table.oid);
        let mut item = self.bind_table(table.clone(), alias, env, lock)?;
        if self.is_secured(&table)? {
            item.plan = self.fenced(item.plan, &table, access)?;
        }
        Ok(item)
    }

    fn fenced(&self, scan: Plan, table: &Arc<TableDescriptor>, access: Access) -> SqlResult<Plan> {
        let columns = scan.columns.clone();
        let described = self.bind_table(table.clone(), None, Env::default(), None)?;
        let mut context = ExprContext::new(&described.scope, None, Clause::Policy);
        let mut conjuncts = Vec::new();
        for command in access.commands() {
            let conditions = self.conditions(table, *command, true);
            for written in conditions.restrictive {
                conjuncts.push(self.policy_condition(written, table, &mut context)?);
            }
            conjuncts.push(self.any_of(&conditions.permissive, table, &mut context)?);
        }
        let mut rows = Rows::new(scan);
        let whole = context.subplans.is_empty();
        rows.set_subplans(context.subplans);
        for conjunct in conjuncts {
            rows.filter(conjunct)?;
        }
        if rows.width() > columns.len() {
            let exprs = columns.iter().enumerate();
            let exprs = exprs.map(|(index, column)| Expr::Column(index, column.ty.ty)).collect();
            rows.stack(columns.clone(), |input| PlanKind::Project { input, exprs });
        }
        let mut plan = rows.into_plan();
        mark(&mut plan, if whole { ScanFence::Whole } else { ScanFence::Part });
        Ok(Plan::new(PlanKind::Fence { input: Box::new(plan) }, columns))
    }

    /// The conditions for a command that apply to the role. `using`: those of USING even where there is WITH CHECK.
    fn conditions<'t>(
        &self,
        table: &'t TableDescriptor,
        command: PolicyCommand,
        using: bool,
    ) -> Conditions<'t> {
        let role = self.role();
        let member = |group: &Oid| *group == 0 || self.context.catalog.is_member(role, *group);
        let mut found = Conditions::default();
        for policy in &table.security.policies {
            if (policy.command != command && policy.command != PolicyCommand::All)
                || !policy.roles.iter().any(member)
            {
                continue;
            }
            let check = policy.check.as_ref().filter(|_| !using);
            let Some(text) = check.or(policy.using.as_ref()) else { continue };
            match policy.permissive {
                true => found.permissive.push((policy, text)),
                false => found.restrictive.push((policy, text)),
            }
        }
        found
    }

    /// That one of the permissive policies allows it: nothing is allowed without one.
    fn any_of(
        &self,
        permissive: &[Written<'_>],
        table: &Arc<TableDescriptor>,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let mut alternatives = Vec::with_capacity(permissive.len());
        for written in permissive {
            alternatives.push(self.policy_condition(*written, table, context)?);
        }
        Ok(match alternatives.len() {
            0 => bool_const(false),
            1 => alternatives.swap_remove(0),
            _ => Expr::Or(alternatives),
        })
    }

    fn policy_condition(
        &self,
        (policy, text): Written<'_>,
        table: &Arc<TableDescriptor>,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if self.guarded.contains(&table.oid) {
            let message = format!("infinite recursion detected in policy for relation \"{}\"", table.name);
            return Err(SqlError::new(SqlState::INVALID_OBJECT_DEFINITION, message));
        }
        let within = BindContext {
            search_path: &policy.search_path,
            param_types: &[],
            variables: None,
            ..*self.context
        };
        let mut inner = self.within(&within);
        inner.guarded.push(table.oid);
        let bound = inner.bind_condition(&parse::parse_expr(text)?, context, "POLICY")?;
        self.absorb(inner);
        Ok(bound)
    }

    // Rows that are written.

    /// What policies ask of rows that INSERT writes. `reads`: whether it shows or looks for rows of the table;
    /// `updates`: ON CONFLICT DO UPDATE.
    pub(crate) fn insert_policies(
        &self,
        table: &Arc<TableDescriptor>,
        reads: bool,
        updates: bool,
    ) -> SqlResult<Option<Box<RowPolicies>>> {
        if !self.is_secured(table)? {
            return Ok(None);
        }
        let mut policies = RowPolicies::default();
        self.add_checks(table, PolicyCommand::Insert, false, &mut policies.inserted)?;
        if reads {
            self.add_checks(table, PolicyCommand::Select, true, &mut policies.inserted)?;
        }
        if updates {
            self.add_checks(table, PolicyCommand::Update, true, &mut policies.replaced)?;
            self.add_checks(table, PolicyCommand::Update, false, &mut policies.updated)?;
            if reads {
                self.add_checks(table, PolicyCommand::Select, true, &mut policies.replaced)?;
                self.add_checks(table, PolicyCommand::Select, true, &mut policies.updated)?;
            }
        }
        Ok(Some(Box::new(policies)))
    }

    /// What policies ask of the new rows of UPDATE.
    pub(crate) fn update_policies(
        &self,
        table: &Arc<TableDescriptor>,
        reads: bool,
    ) -> SqlResult<Option<Box<RowPolicies>>> {
        if !self.is_secured(table)? {
            return Ok(None);
        }
        let mut policies = RowPolicies::default();
        self.add_checks(table, PolicyCommand::Update, false, &mut policies.updated)?;
        if reads {
            self.add_checks(table, PolicyCommand::Select, true, &mut policies.updated)?;
        }
        Ok(Some(Box::new(policies)))
    }

    /// What policies ask of the rows that MERGE writes, and of those it would change or delete.
    pub(crate) fn merge_policies(&self, table: &Arc<TableDescriptor>) -> SqlResult<Option<Box<RowPolicies>>> {
        if !self.is_secured(table)? {
            return Ok(None);
        }
        let mut policies = RowPolicies::default();
        self.add_checks(table, PolicyCommand::Insert, false, &mut policies.inserted)?;
        self.add_checks(table, PolicyCommand::Update, true, &mut policies.replaced)?;
        self.add_checks(table, PolicyCommand::Delete, true, &mut policies.deleted)?;
        self.add_checks(table, PolicyCommand::Update, false, &mut policies.updated)?;
        self.add_checks(table, PolicyCommand::Select, true, &mut policies.updated)?;
        Ok(Some(Box::new(policies)))
    }

    fn add_checks(
        &self,
        table: &Arc<TableDescriptor>,
        command: PolicyCommand,
        using: bool,
        checks: &mut Vec<PolicyCheck>,
    ) -> SqlResult<()> {
        let conditions = self.conditions(table, command, using);
        let test = self.row_test(table, |context| self.any_of(&conditions.permissive, table, context))?;
        let forbids = conditions.permissive.is_empty();
        checks.push(PolicyCheck { policy: None, test });
        if forbids {
            return Ok(());
        }
        for written in conditions.restrictive {
            let test = self.row_test(table, |context| self.policy_condition(written, table, context))?;
            checks.push(PolicyCheck { policy: Some(Arc::from(written.0.name.as_str())), test });
        }
        Ok(())
    }

    /// A condition on a row that is not read from the table.
    fn row_test(
        &self,
        table: &Arc<TableDescriptor>,
        bind: impl Fn(&mut ExprContext<'_>) -> SqlResult<Expr>,
    ) -> SqlResult<PolicyTest> {
        let described = self.bind_table(table.clone(), None, Env::default(), None)?;
        let mut context = ExprContext::new(&described.scope, None, Clause::Policy);
        let bound = bind(&mut context)?;
        if context.subplans.is_empty() {
            return Ok(PolicyTest::Row(bound));
        }
        // A subquery needs a plan around it, for which the row is an outer one.
        let scope = Scope { parent: Some(&described.scope), ..Scope::default() };
        let mut context = ExprContext::new(&scope, None, Clause::Policy);
        let expr = bind(&mut context)?;
        let mut rows = Rows::new(Plan::one_row());
        rows.set_subplans(context.subplans);
        project(&mut rows, vec![OutputItem { expr, column: PlanColumn::new("?column?", Type::BOOL) }])?;
        Ok(PolicyTest::Query(Arc::new(rows.into_plan())))
    }
}

/// Marks the scan of a table whose rows policies decide on.
fn mark(plan: &mut Plan, whole: ScanFence) {
    match &mut plan.kind {
        PlanKind::Scan { fence, .. } => *fence = whole,
        PlanKind::Filter { input, .. } | PlanKind::Project { input, .. } | PlanKind::Apply { input, .. } => {
            mark(input, whole);
        }
        _ => {}
    }
}
