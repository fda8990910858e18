//! Text of CREATE, ALTER and DROP POLICY to [`Ddl`].

use super::policy::{PolicyAction, PolicyChange, PolicyParts, syntax};
use super::statement::Ddl;
use super::tokens::{Cursor, Name};
use crate::catalog::policy::PolicyCommand;
use sql_types::SqlResult;
use sqlparser::tokenizer::Token;

fn on(c: &mut Cursor) -> SqlResult<(String, Name)> {
    let name = c.ident()?;
    c.expect("on")?;
    Ok((name, c.name()?))
}

/// After `CREATE POLICY`.
pub(super) fn parse_create(c: &mut Cursor) -> SqlResult<Ddl> {
    let (name, table) = on(c)?;
    let mut permissive = true;
    if c.take("as") {
        let kind = c.ident()?;
        permissive = match kind.as_str() {
            "permissive" => true,
            "restrictive" => false,
            _ => {
                return Err(syntax(&format!("unrecognized row security option \"{kind}\""))
                    .with_hint("Only PERMISSIVE or RESTRICTIVE policies are supported currently."));
            }
        };
    }
    let mut command = PolicyCommand::All;
    if c.take("for") {
        command = match c.word().unwrap_or_default().as_str() {
            "all" => PolicyCommand::All,
            "select" => PolicyCommand::Select,
            "insert" => PolicyCommand::Insert,
            "update" => PolicyCommand::Update,
            "delete" => PolicyCommand::Delete,
            _ => return Err(c.syntax_error()),
        };
        c.advance();
    }
    let parts = parts(c)?;
    if matches!(command, PolicyCommand::Select | PolicyCommand::Delete) && parts.check.is_some() {
        return Err(syntax("WITH CHECK cannot be applied to SELECT or DELETE"));
    }
    if command == PolicyCommand::Insert && parts.using.is_some() {
        return Err(syntax("only WITH CHECK expression allowed for INSERT"));
    }
    let action = PolicyAction::Create { permissive, command, parts };
    Ok(Ddl::Policy(PolicyChange { name, table, action }))
}

/// After `ALTER POLICY`.
pub(super) fn parse_alter(c: &mut Cursor) -> SqlResult<Ddl> {
    let (name, table) = on(c)?;
    let action = match c.take("rename to") {
        true => PolicyAction::Rename(c.ident()?),
        false => PolicyAction::Alter(parts(c)?),
    };
    Ok(Ddl::Policy(PolicyChange { name, table, action }))
}

/// After `DROP POLICY`.
pub(super) fn parse_drop(c: &mut Cursor) -> SqlResult<Ddl> {
    let if_exists = c.take("if exists");
    let (name, table) = on(c)?;
    if !c.take("cascade") {
        c.take("restrict");
    }
    Ok(Ddl::Policy(PolicyChange { name, table, action: PolicyAction::Drop { if_exists } }))
}

fn parts(c: &mut Cursor) -> SqlResult<PolicyParts> {
    let mut parts = PolicyParts::default();
    if c.take("to") {
        let mut roles = vec![c.ident()?];
        while c.take_token(&Token::Comma) {
            roles.push(c.ident()?);
        }
        parts.roles = Some(roles);
    }
    if c.take("using") {
        parts.using = Some(c.parenthesized()?);
    }
    if c.take("with check") {
        parts.check = Some(c.parenthesized()?);
    }
    Ok(parts)
}
