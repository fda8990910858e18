//! Text to schema changes of types: enum types and domains.

use super::statement::{CreateDomain, Ddl, DomainAction, TypeAction};
use super::tokens::Cursor;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

/// `CREATE TYPE`, behind these words.
pub(super) fn create_type(c: &mut Cursor) -> SqlResult<Ddl> {
    let name = c.name()?;
    if c.is_end() {
        return Ok(Ddl::Unsupported("CREATE TYPE of a shell type".into()));
    }
    if c.peek() == Some(&Token::LParen) {
        return Ok(Ddl::Unsupported("CREATE TYPE of a base type".into()));
    }
    c.expect("as")?;
    if c.take("range") {
        return Ok(Ddl::Unsupported("CREATE TYPE AS RANGE".into()));
    }
    if c.peek() == Some(&Token::LParen) {
        return Ok(Ddl::Unsupported("CREATE TYPE of a composite type".into()));
    }
    c.expect("enum")?;
    c.expect_token(&Token::LParen)?;
    let mut labels = Vec::new();
    if !c.take_token(&Token::RParen) {
        labels.push(c.string()?);
        while c.take_token(&Token::Comma) {
            labels.push(c.string()?);
        }
        c.expect_token(&Token::RParen)?;
    }
    Ok(Ddl::CreateEnum { name, labels })
}

/// `ALTER TYPE`, behind these words.
pub(super) fn alter_type(c: &mut Cursor) -> SqlResult<Ddl> {
    let name = c.name()?;
    let action = if c.take("add value") {
        let if_not_exists = c.take("if not exists");
        let label = c.string()?;
        let beside = match c.take_one(&["before", "after"]) {
            Some(word) => Some((word == "before", c.string()?)),
            None => None,
        };
        TypeAction::AddValue { label, if_not_exists, beside }
    } else if c.take("rename value") {
        let from = c.string()?;
        c.expect("to")?;
        TypeAction::RenameValue { from, to: c.string()? }
    } else if c.at_words("rename attribute")
        || c.at_words("add attribute")
        || c.at_words("drop attribute")
        || c.at_words("alter attribute")
        || c.at_words("set (")
    {
        return Ok(Ddl::Unsupported("ALTER TYPE of a composite type".into()));
    } else {
        common_action(c)?
    };
    Ok(Ddl::AlterType { name, domain: false, action })
}

fn common_action(c: &mut Cursor) -> SqlResult<TypeAction> {
    if c.take("rename to") {
        return Ok(TypeAction::Rename(c.ident()?));
    }
    if c.take("set schema") {
        return Ok(TypeAction::SetSchema(c.ident()?));
    }
    c.expect("owner to")?;
    Ok(TypeAction::Owner(c.ident()?))
}

/// `CREATE DOMAIN`, behind these words.
pub(super) fn create_domain(c: &mut Cursor) -> SqlResult<Ddl> {
    let name = c.name()?;
    c.take("as");
    let ty = c.data_type()?;
    let mut domain = CreateDomain { name, ty, default: None, not_null: None, checks: Vec::new() };
    while !c.is_end() {
        if c.take("collate") {
            c.name()?;
        } else if c.take("default") {
            domain.default = Some(c.default_expr()?);
        } else {
            let constraint = if c.take("constraint") { Some(c.ident()?) } else { None };
            let not_null = if c.take("not null") {
                Some(true)
            } else if c.take("null") {
                Some(false)
            } else {
                None
            };
            if let Some(not_null) = not_null {
                if domain.not_null.is_some_and(|known| known != not_null) {
                    let message = "conflicting NULL/NOT NULL constraints";
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
                domain.not_null = Some(not_null);
            } else {
                c.expect("check")?;
                domain.checks.push((constraint, c.parenthesized()?));
            }
        }
    }
    Ok(Ddl::CreateDomain(domain))
}

/// `ALTER DOMAIN`, behind these words.
pub(super) fn alter_domain(c: &mut Cursor) -> SqlResult<Ddl> {
    let name = c.name()?;
    let action = if c.take("set default") {
        DomainAction::SetDefault(Some(c.expr()?))
    } else if c.take("drop default") {
        DomainAction::SetDefault(None)
    } else if c.take("set not null") {
        DomainAction::SetNotNull(true)
    } else if c.take("drop not null") {
        DomainAction::SetNotNull(false)
    } else if c.take("add") {
        let constraint = if c.take("constraint") { Some(c.ident()?) } else { None };
        c.expect("check")?;
        let expr = c.parenthesized()?;
        let not_valid = c.take("not valid");
        DomainAction::AddCheck { name: constraint, expr, not_valid }
    } else if c.take("drop constraint") {
        let if_exists = c.take("if exists");
        let constraint = c.ident()?;
        let _ = c.take("cascade") || c.take("restrict");
        DomainAction::DropConstraint { name: constraint, if_exists }
    } else if c.take("rename constraint") {
        let from = c.ident()?;
        c.expect("to")?;
        DomainAction::RenameConstraint { name: from, to: c.ident()? }
    } else if c.take("validate constraint") {
        c.ident()?;
        DomainAction::Nothing
    } else {
        return Ok(Ddl::AlterType { name, domain: true, action: common_action(c)? });
    };
    Ok(Ddl::AlterType { name, domain: true, action: TypeAction::Domain(action) })
}
