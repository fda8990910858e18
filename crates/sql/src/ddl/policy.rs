//! CREATE, ALTER and DROP POLICY, and what else of a table depends on its policies.

use super::DdlContext;
use super::constraint::bare;
use super::drop_object::dependents;
use super::tokens::Name;
use super::view::Noting;
use crate::bind::{self, BindContext};
use crate::catalog::Relation;
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::policy::{PolicyCommand, PolicyDescriptor};
use crate::parse;
use crate::session::locks::mode;
use sql_types::{Oid, SqlError, SqlResult, SqlState};
use sqlparser::ast;
use std::sync::Arc;

/// A statement about a policy.
#[derive(Clone, Debug)]
pub(crate) struct PolicyChange {
    pub name: String,
    pub table: Name,
    pub action: PolicyAction,
}

/// What is done with a policy.
#[derive(Clone, Debug)]
pub(crate) enum PolicyAction {
    Create { permissive: bool, command: PolicyCommand, parts: PolicyParts },
    Alter(PolicyParts),
    Rename(String),
    Drop { if_exists: bool },
}

/// What CREATE and ALTER POLICY can both give.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyParts {
    pub roles: Option<Vec<String>>,
    pub using: Option<String>,
    pub check: Option<String>,
}

impl PolicyChange {
    /// The command tag.
    pub(crate) fn tag(&self) -> &'static str {
        match self.action {
            PolicyAction::Create { .. } => "CREATE POLICY",
            PolicyAction::Alter(_) | PolicyAction::Rename(_) => "ALTER POLICY",
            PolicyAction::Drop { .. } => "DROP POLICY",
        }
    }
}

pub(super) fn syntax(message: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

/// CREATE, ALTER and DROP POLICY.
pub(super) async fn change(cx: &mut DdlContext<'_>, written: &PolicyChange) -> SqlResult<()> {
    let oid = match cx.find(&written.table) {
        Some(Relation::Table(oid)) => oid,
        Some(_) => {
            let message = format!("\"{}\" is not a table", written.table.name);
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        None if matches!(written.action, PolicyAction::Drop { if_exists: true }) => {
            cx.notice(format!("relation \"{}\" does not exist, skipping", written.table.name));
            return Ok(());
        }
        None => return Err(cx.undefined("relation", &written.table)),
    };
    let table = cx.table_by_oid(oid)?;
    cx.check_owner("table", &table.name, table.owner)?;
    cx.lock(oid, mode::ACCESS_EXCLUSIVE).await?;
    let table = cx.table_by_oid(oid)?;
    let name = &written.name;
    let mut changed = (*table).clone();
    if let PolicyAction::Create { permissive, command, parts } = &written.action {
        check_free(&table, name)?;
        let mut policy = PolicyDescriptor {
            oid: cx.new_oid().await?,
            name: name.clone(),
            command: *command,
            permissive: *permissive,
            roles: vec![0],
            using: None,
            check: None,
            search_path: cx.view.path.to_vec(),
            depends_on: Vec::new(),
        };
        set_parts(cx, &table, &mut policy, parts)?;
        changed.security.policies.push(policy);
    } else {
        let Some(at) = table.security.policies.iter().position(|policy| policy.name == *name) else {
            if matches!(written.action, PolicyAction::Drop { if_exists: true }) {
                cx.notice(format!(
                    "policy \"{name}\" for relation \"{}\" does not exist, skipping",
                    table.name
                ));
                return Ok(());
            }
            let message = format!("policy \"{name}\" for table \"{}\" does not exist", table.name);
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        let mut policy = changed.security.policies.remove(at);
        match &written.action {
            PolicyAction::Alter(parts) => {
                check_parts(policy.command, parts)?;
                policy.search_path = cx.view.path.to_vec();
                set_parts(cx, &table, &mut policy, parts)?;
                changed.security.policies.push(policy);
            }
            PolicyAction::Rename(to) => {
                check_free(&table, to)?;
                policy.name.clone_from(to);
                changed.security.policies.push(policy);
            }
            PolicyAction::Drop { .. } | PolicyAction::Create { .. } => {}
        }
    }
    changed.security.policies.sort_by(|a, b| a.name.cmp(&b.name));
    cx.put_table(changed).map(|_| ())
}

fn check_free(table: &TableDescriptor, name: &str) -> SqlResult<()> {
    if table.security.policy(name).is_none() {
        return Ok(());
    }
    let message = format!("policy \"{name}\" for table \"{}\" already exists", table.name);
    Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message))
}

fn check_parts(command: PolicyCommand, parts: &PolicyParts) -> SqlResult<()> {
    match command {
        PolicyCommand::Select | PolicyCommand::Delete if parts.check.is_some() => {
            Err(syntax("only USING expression allowed for SELECT, DELETE"))
        }
        PolicyCommand::Insert if parts.using.is_some() => {
            Err(syntax("only WITH CHECK expression allowed for INSERT"))
        }
        _ => Ok(()),
    }
}

fn set_parts(
    cx: &DdlContext<'_>,
    table: &Arc<TableDescriptor>,
    policy: &mut PolicyDescriptor,
    parts: &PolicyParts,
) -> SqlResult<()> {
    if let Some(roles) = &parts.roles {
        policy.roles = role_oids(cx, roles)?;
    }
    if let Some(using) = &parts.using {
        policy.using = Some(using.clone());
    }
    if let Some(check) = &parts.check {
        policy.check = Some(check.clone());
    }
    policy.depends_on.clear();
    for condition in [&mut policy.using, &mut policy.check].into_iter().flatten() {
        let (text, depends_on) = stored(cx, table, condition)?;
        *condition = text;
        policy.depends_on.extend(depends_on);
    }
    policy.depends_on.sort_unstable();
    policy.depends_on.dedup();
    Ok(())
}

fn role_oids(cx: &DdlContext<'_>, names: &[String]) -> SqlResult<Vec<Oid>> {
    if names.iter().any(|name| name == "public") {
        if names.len() > 1 {
            cx.notice("ignoring specified roles other than PUBLIC");
        }
        return Ok(vec![0]);
    }
    let mut roles =
        names.iter().map(|name| cx.role(name).map(|role| role.oid)).collect::<SqlResult<Vec<_>>>()?;
    roles.sort_unstable();
    roles.dedup();
    Ok(roles)
}

/// A condition as it is kept, and the relations and types it names.
fn stored(cx: &DdlContext<'_>, table: &Arc<TableDescriptor>, expr: &str) -> SqlResult<(String, Vec<Oid>)> {
    /// Makes a statement of the expression, whose text can be spelled out like that of a view.
    const BEFORE: &str = "SELECT ";
    let statement = parse::parse_one(&format!("{BEFORE}{}", bare(expr)?))?;
    if statement.parameters > 0 {
        return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
    }
    let condition = match statement.sql()? {
        ast::Statement::Query(query) => match query.body.as_ref() {
            ast::SetExpr::Select(select) => match &select.projection[..] {
                [ast::SelectItem::UnnamedExpr(expr)] => Some(expr),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    let condition = condition.ok_or_else(|| syntax("syntax error in the expression of a policy"))?;
    let view = cx.working_view()?;
    let eval = view.eval(cx.times);
    let noting = Noting::new(&view);
    let context = BindContext { catalog: &noting, ..view.bind_context(&eval, &[]) };
    bind::bind_policy(condition, Some(&statement.source), table, &context).map_err(|mut error| {
        // It would be one in the statement made here.
        error.extra_mut().position = None;
        error
    })?;
    let text = noting.spelled_out(&statement.source);
    let text = text.strip_prefix(BEFORE).unwrap_or(&text);
    Ok((cx.stable_types(text)?, noting.into_found()))
}

impl DdlContext<'_> {
    /// Positions of the columns of its table that a policy reads.
    fn policy_columns(
        &self,
        table: &Arc<TableDescriptor>,
        policy: &PolicyDescriptor,
    ) -> SqlResult<Vec<usize>> {
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        let path = &policy.search_path;
        let context = BindContext { search_path: path, ..view.bind_context(&eval, &[]) };
        let mut columns = Vec::new();
        for text in policy.conditions() {
            columns.extend(bind::bind_policy(&parse::parse_expr(text)?, None, table, &context)?.columns);
        }
        Ok(columns)
    }

    /// The policies of a table that read one of its columns, by name.
    fn policies_of_column(&self, table: &Arc<TableDescriptor>, at: usize) -> SqlResult<Vec<String>> {
        let mut found = Vec::new();
        for policy in &table.security.policies {
            if self.policy_columns(table, policy)?.contains(&at) {
                found.push(policy.name.clone());
            }
        }
        Ok(found)
    }

    /// Before a column goes: its policies go with it (`cascade`), or it is refused.
    pub(super) fn release_column_policies(
        &mut self,
        table: &Arc<TableDescriptor>,
        at: usize,
        cascade: bool,
        what: &str,
    ) -> SqlResult<()> {
        for name in self.policies_of_column(table, at)? {
            self.release_policy(table.oid, &name, cascade, what)?;
        }
        Ok(())
    }

    /// Before a relation or type goes that policies of other tables name.
    pub(super) fn release_policies(
        &mut self,
        oid: Oid,
        cascade: bool,
        what: &str,
        together: &[Oid],
    ) -> SqlResult<()> {
        for (table, name) in self.catalog.policies_reading(oid) {
            if !together.contains(&table.oid) {
                self.release_policy(table.oid, &name, cascade, what)?;
            }
        }
        Ok(())
    }

    fn release_policy(&mut self, table: Oid, name: &str, cascade: bool, what: &str) -> SqlResult<()> {
        let table = self.table_by_oid(table)?;
        let described = format!("policy {name} on table {}", table.name);
        if !cascade {
            return Err(dependents(what, format!("{described} depends on {what}")));
        }
        self.notice(format!("drop cascades to {described}"));
        let mut changed = (*table).clone();
        changed.security.policies.retain(|policy| policy.name != name);
        self.put_table(changed).map(|_| ())
    }

    /// Refuses to give another type to a column that policies read.
    pub(super) fn refuse_retyping(&self, table: &Arc<TableDescriptor>, at: usize) -> SqlResult<()> {
        let Some(policy) = self.policies_of_column(table, at)?.into_iter().next() else { return Ok(()) };
        let column = table.columns.get(at).map_or("", |column| &column.name);
        let message = "cannot alter type of a column used in a policy definition";
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_detail(format!("policy {policy} on table {} depends on column \"{column}\"", table.name)))
    }

    /// Gives a column its new name in the policies of its table, by `rename`. One with a subquery, whose tables may have
    /// columns of that name, is refused.
    pub(super) fn rename_in_policies(
        &self,
        table: &Arc<TableDescriptor>,
        changed: &mut TableDescriptor,
        at: usize,
        rename: impl Fn(&str) -> String,
    ) -> SqlResult<()> {
        for name in self.policies_of_column(table, at)? {
            for policy in changed.security.policies.iter_mut().filter(|policy| policy.name == name) {
                let relation = |oid: &Oid| self.catalog.user_type(sql_types::Type(*oid)).is_none();
                if policy.depends_on.iter().any(relation) {
                    let what = format!("to rename a column that policy \"{name}\" with a subquery reads");
                    return Err(SqlError::unsupported(what)
                        .with_hint("Drop the policy, make the change, and create the policy again."));
                }
                for condition in [&mut policy.using, &mut policy.check].into_iter().flatten() {
                    *condition = rename(condition);
                }
            }
        }
        Ok(())
    }

    /// Refuses a table that its own policies no longer fit, such as one with another name.
    pub(super) fn check_policies(&self, changed: &TableDescriptor) -> SqlResult<()> {
        let table = Arc::new(changed.clone());
        for policy in &changed.security.policies {
            self.policy_columns(&table, policy).map_err(|_| {
                SqlError::unsupported(format!("to change what policy \"{}\" is written with", policy.name))
                    .with_hint("Drop the policy, make the change, and create the policy again.")
            })?;
        }
        Ok(())
    }

    /// Refuses a change of a relation that policies of other tables name, as `what` says.
    pub(super) fn refuse_policies_of(&self, relation: Oid, what: &str) -> SqlResult<()> {
        match self.catalog.policies_reading(relation).first() {
            None => Ok(()),
            Some((table, policy)) => {
                let message =
                    format!("to {what} while policy \"{policy}\" of table \"{}\" reads it", table.name);
                Err(SqlError::unsupported(message)
                    .with_hint("Drop the policy, make the change, and create the policy again."))
            }
        }
    }
}
