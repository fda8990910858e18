//! Text to [`Ddl`].

use super::parse_table as table;
use super::statement::{Ddl, GrantTarget, ObjectKind, RoleOptions, SequenceOptions};
use super::tokens::{Cursor, Name};
use crate::catalog::OnCommit;
use crate::catalog::temporary::PG_TEMP;
use crate::parse::{self, Statement};
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;
use std::sync::Arc;

/// Reads a schema change.
pub(crate) fn parse(statement: &Statement) -> SqlResult<Ddl> {
    let mut cursor = Cursor::new(&statement.text)?;
    let c = &mut cursor;
    let first = c.word().unwrap_or_default();
    let ddl = match first.as_str() {
        "create" => create(c)?,
        "alter" => alter(c)?,
        "drop" => drop_objects(c)?,
        "truncate" => truncate(c)?,
        "comment" => comment(c)?,
        "grant" => grant(c, true)?,
        "revoke" => grant(c, false)?,
        "reindex" => {
            c.advance();
            let listed = c.peek() == Some(&Token::LParen)
                && c.parenthesized()?.to_lowercase().contains("concurrently");
            for kind in ["index", "table", "schema", "database", "system"] {
                c.take(kind);
            }
            return Ok(Ddl::Reindex { concurrently: listed || c.take("concurrently") });
        }
        "refresh" => refresh(c)?,
        "security" => return Ok(Ddl::Nothing("SECURITY LABEL")),
        "reassign" => return Ok(Ddl::Unsupported("REASSIGN OWNED".into())),
        other => return Ok(Ddl::Unsupported(other.to_uppercase())),
    };
    if matches!(ddl, Ddl::Unsupported(_)) {
        return Ok(ddl);
    }
    cursor.expect_end()?;
    Ok(ddl)
}

/// Reads `SELECT … INTO …` as CREATE TABLE AS.
pub(crate) fn parse_select_into(statement: &Statement) -> SqlResult<Ddl> {
    let mut c = Cursor::new(&statement.text)?;
    let mut depth = 0;
    while let Some(token) = c.peek() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 0 && c.at_words("into") {
            let before = c.text(0, c.position());
            c.advance();
            let mut temporary = false;
            while let Some(word) = c.take_one(&["temporary", "temp", "unlogged", "table", "local", "global"])
            {
                temporary |= word.starts_with("temp");
            }
            let mut name = c.name()?;
            if temporary {
                make_temporary(&mut name)?;
            }
            let query = format!("{before} {}", c.rest());
            let query = Arc::new(parse::parse_one(&query)?);
            return Ok(Ddl::CreateTableAs {
                name,
                if_not_exists: false,
                columns: Vec::new(),
                query,
                with_data: true,
                on_commit: OnCommit::Preserve,
            });
        }
        c.advance();
    }
    Err(c.syntax_error())
}

fn unsupported(what: impl Into<String>) -> SqlResult<Ddl> {
    Ok(Ddl::Unsupported(what.into()))
}

fn create(c: &mut Cursor) -> SqlResult<Ddl> {
    c.advance();
    let or_replace = c.take("or replace");
    let temporary = c.take("temporary")
        || c.take("temp")
        || c.take("local temporary")
        || c.take("local temp")
        || c.take("global temporary")
        || c.take("global temp");
    c.take("unlogged");
    if c.take("table") {
        return table::create_table(c, temporary);
    }
    if c.take("function") {
        return super::parse_routine::create_function(c, or_replace);
    }
    if c.take("trigger") {
        return super::parse_routine::create_trigger(c, or_replace);
    }
    if c.take("unique index") {
        return table::create_index(c, true);
    }
    if c.take("index") {
        return table::create_index(c, false);
    }
    if c.take("view") {
        return create_view(c, or_replace, temporary);
    }
    if c.take("materialized view") {
        return create_materialized(c);
    }
    if c.take("sequence") {
        let if_not_exists = c.take("if not exists");
        let mut name = c.name()?;
        if temporary {
            make_temporary(&mut name)?;
        }
        return Ok(Ddl::CreateSequence { name, if_not_exists, options: sequence_options(c)? });
    }
    if c.take("type") {
        return super::parse_type::create_type(c);
    }
    if c.take("domain") {
        return super::parse_type::create_domain(c);
    }
    if c.take("policy") {
        return super::parse_policy::parse_create(c);
    }
    if c.take("schema") {
        let if_not_exists = c.take("if not exists");
        let name = if c.at_words("authorization") { None } else { Some(c.ident()?) };
        let owner = if c.take("authorization") { Some(c.ident()?) } else { None };
        return Ok(Ddl::CreateSchema { name, if_not_exists, owner });
    }
    if c.take("database") {
        let name = c.ident()?;
        let mut owner = None;
        c.take("with");
        while let Some(option) = c.word() {
            c.advance();
            c.take_token(&Token::Eq);
            if option == "owner" {
                owner = Some(c.ident()?);
            } else if option == "connection" {
                c.expect("limit")?;
                c.take_token(&Token::Eq);
                c.integer()?;
            } else if c.at_string() {
                c.string()?;
            } else if let Some(Token::Number(..) | Token::Minus) = c.peek() {
                c.integer()?;
            } else {
                c.ident()?;
            }
        }
        return Ok(Ddl::CreateDatabase { name, owner });
    }
    if c.take("role") || c.take("group") {
        let name = c.ident()?;
        return Ok(Ddl::CreateRole { name, options: role_options(c, RoleOptions::default())? });
    }
    if c.take("user") {
        if c.at_words("mapping") {
            return unsupported("CREATE USER MAPPING");
        }
        let name = c.ident()?;
        let options = RoleOptions { login: Some(true), ..RoleOptions::default() };
        return Ok(Ddl::CreateRole { name, options: role_options(c, options)? });
    }
    if c.take("extension") {
        let if_not_exists = c.take("if not exists");
        let name = c.ident()?;
        c.rest();
        return Ok(Ddl::CreateExtension { name, if_not_exists });
    }
    let mut words = vec!["CREATE".to_string()];
    for _ in 0..2 {
        words.extend(c.word().map(|word| word.to_uppercase()));
        if !matches!(
            words.last().map(String::as_str),
            Some("MATERIALIZED" | "EVENT" | "FOREIGN" | "TEXT" | "ACCESS" | "CONSTRAINT" | "DEFAULT")
        ) {
            break;
        }
        c.advance();
    }
    unsupported(words.join(" "))
}

/// Puts what is to be made among the temporary objects.
pub(super) fn make_temporary(name: &mut Name) -> SqlResult<()> {
    match name.schema.as_deref() {
        None | Some(PG_TEMP) => {
            name.schema = Some(PG_TEMP.to_string());
            Ok(())
        }
        Some(_) => Err(SqlError::new(
            SqlState::INVALID_TABLE_DEFINITION,
            "cannot create temporary relation in non-temporary schema",
        )),
    }
}

fn create_view(c: &mut Cursor, or_replace: bool, temporary: bool) -> SqlResult<Ddl> {
    let mut name = c.name()?;
    if temporary {
        make_temporary(&mut name)?;
    }
    let columns = if c.peek() == Some(&Token::LParen) { c.ident_list()? } else { Vec::new() };
    if c.take("with") {
        view_options(c)?;
    }
    c.expect("as")?;
    let start = c.position();
    let mut query = c.rest();
    for option in ["with local check option", "with cascaded check option", "with check option"] {
        if query.to_ascii_lowercase().trim_end().ends_with(option) {
            return unsupported(option.to_uppercase());
        }
    }
    if start == c.position() {
        return Err(c.syntax_error());
    }
    query.truncate(query.trim_end().len());
    Ok(Ddl::CreateView { name, or_replace, columns, query })
}

/// `(security_invoker = …)`: what would change what a view shows is refused.
pub(super) fn view_options(c: &mut Cursor) -> SqlResult<()> {
    let options = c.parenthesized()?.to_ascii_lowercase();
    for option in options.split(',') {
        let (key, value) = option.split_once('=').unwrap_or((option, "true"));
        let (key, value) = (key.trim(), value.trim().trim_matches('\''));
        match key {
            "security_invoker" | "security_barrier" if matches!(value, "false" | "off" | "no" | "0") => {}
            "security_invoker" | "security_barrier" | "check_option" => {
                return Err(SqlError::unsupported(format!("{key} of a view")));
            }
            _ => {
                let message = format!("unrecognized parameter \"{key}\"");
                return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
            }
        }
    }
    Ok(())
}

/// After `CREATE MATERIALIZED VIEW`.
fn create_materialized(c: &mut Cursor) -> SqlResult<Ddl> {
    let if_not_exists = c.take("if not exists");
    let name = c.name()?;
    let columns = if c.peek() == Some(&Token::LParen) { c.ident_list()? } else { Vec::new() };
    table::storage_options(c)?;
    c.expect("as")?;
    let (query, with_data) = table::without_data_clause(c.rest());
    Ok(Ddl::CreateMaterializedView { name, if_not_exists, columns, query, with_data })
}

fn refresh(c: &mut Cursor) -> SqlResult<Ddl> {
    c.advance();
    c.expect("materialized view")?;
    let concurrently = c.take("concurrently");
    let name = c.name()?;
    let with_data = !c.take("with no data");
    c.take("with data");
    Ok(Ddl::Refresh { name, concurrently, with_data })
}

/// The options of CREATE SEQUENCE, ALTER SEQUENCE and identity columns.
pub(crate) fn sequence_options(c: &mut Cursor) -> SqlResult<SequenceOptions> {
    let mut options = SequenceOptions::default();
    loop {
        if c.take("as") {
            options.ty = Some(c.data_type()?);
        } else if c.take("increment by") || c.take("increment") {
            options.increment = Some(c.integer()?);
        } else if c.take("no minvalue") {
            options.min = Some(None);
        } else if c.take("minvalue") {
            options.min = Some(Some(c.integer()?));
        } else if c.take("no maxvalue") {
            options.max = Some(None);
        } else if c.take("maxvalue") {
            options.max = Some(Some(c.integer()?));
        } else if c.take("start with") || c.take("start") {
            options.start = Some(c.integer()?);
        } else if c.take("cache") {
            options.cache = Some(c.integer()?);
        } else if c.take("no cycle") {
            options.cycle = Some(false);
        } else if c.take("cycle") {
            options.cycle = Some(true);
        } else if c.take("restart with") {
            options.restart = Some(Some(c.integer()?));
        } else if c.take("restart") {
            let number = matches!(c.peek(), Some(Token::Number(..) | Token::Minus));
            options.restart = Some(if number { Some(c.integer()?) } else { None });
        } else if c.take("sequence name") {
            c.name()?;
        } else if c.take("owned by none") {
            options.owned_by = Some(None);
        } else if c.take("owned by") {
            let (table, column) = c.column_name()?;
            let table = table.ok_or_else(|| {
                SqlError::new(SqlState::SYNTAX_ERROR, "invalid OWNED BY option")
                    .with_hint("Specify OWNED BY table.column or OWNED BY NONE.")
            })?;
            options.owned_by = Some(Some((table, column)));
        } else {
            return Ok(options);
        }
    }
}

fn role_options(c: &mut Cursor, mut options: RoleOptions) -> SqlResult<RoleOptions> {
    c.take("with");
    while !c.is_end() {
        let flags: [(&str, &mut Option<bool>); 7] = [
            ("superuser", &mut options.superuser),
            ("createdb", &mut options.create_db),
            ("createrole", &mut options.create_role),
            ("inherit", &mut options.inherit),
            ("login", &mut options.login),
            ("replication", &mut options.replication),
            ("bypassrls", &mut options.bypass_rls),
        ];
        let word = c.word().unwrap_or_default();
        let mut found = false;
        for (name, flag) in flags {
            if word == name || word.strip_prefix("no") == Some(name) {
                *flag = Some(word == name);
                c.advance();
                found = true;
                break;
            }
        }
        if found {
        } else if c.take("connection limit") {
            let limit = c.integer()?;
            options.connection_limit = Some(i32::try_from(limit).unwrap_or(i32::MAX));
        } else if c.take("encrypted password") || c.take("password") {
            options.password = Some(if c.take("null") { None } else { Some(c.string()?) });
        } else if c.take("valid until") {
            options.valid_until = Some(c.string()?);
        } else if c.take("in role") || c.take("in group") {
            options.in_roles = idents(c)?;
        } else if c.take("role") || c.take("user") || c.take("admin") {
            options.members = idents(c)?;
        } else if c.take("sysid") {
            c.integer()?;
        } else {
            return Err(c.syntax_error());
        }
    }
    Ok(options)
}

fn idents(c: &mut Cursor) -> SqlResult<Vec<String>> {
    let mut list = vec![c.ident()?];
    while c.take_token(&Token::Comma) {
        list.push(c.ident()?);
    }
    Ok(list)
}

fn alter(c: &mut Cursor) -> SqlResult<Ddl> {
    c.advance();
    for (word, kind) in [
        ("table", ObjectKind::Table),
        ("index", ObjectKind::Index),
        ("view", ObjectKind::View),
        ("materialized view", ObjectKind::MaterializedView),
    ] {
        if c.take(word) {
            return table::alter_table(c, kind);
        }
    }
    if c.take("sequence") {
        let start = c.position();
        let if_exists = c.take("if exists");
        let name = c.name()?;
        if c.at_words("rename") || c.at_words("owner") || c.at_words("set") {
            c.rewind(start);
            return table::alter_table(c, ObjectKind::Sequence);
        }
        return Ok(Ddl::AlterSequence { name, if_exists, options: sequence_options(c)? });
    }
    if c.take("type") {
        return super::parse_type::alter_type(c);
    }
    if c.take("domain") {
        return super::parse_type::alter_domain(c);
    }
    if c.take("function") || c.take("routine") {
        return super::parse_routine::alter_function(c);
    }
    if c.take("trigger") {
        return super::parse_routine::alter_trigger(c);
    }
    if c.take("policy") {
        return super::parse_policy::parse_alter(c);
    }
    if c.take("role") || c.take("user") || c.take("group") {
        return alter_role(c);
    }
    if c.take("schema") {
        let name = c.ident()?;
        let (rename, owner) = rename_or_owner(c)?;
        return Ok(Ddl::AlterSchema { name, rename, owner });
    }
    if c.take("database") {
        let name = c.ident()?;
        if c.at_words("set") || c.at_words("reset") {
            let (setting, value) = setting(c)?;
            return Ok(Ddl::AlterSettings { role: None, database: Some(name), name: setting, value });
        }
        if c.take("with") || c.take("connection") || c.take("allow_connections") || c.take("is_template") {
            c.rest();
            return Ok(Ddl::Nothing("ALTER DATABASE"));
        }
        let (rename, owner) = rename_or_owner(c)?;
        return Ok(Ddl::AlterDatabase { name, rename, owner });
    }
    if c.take("default privileges") {
        c.rest();
        return Ok(Ddl::Nothing("ALTER DEFAULT PRIVILEGES"));
    }
    if c.take("extension") {
        c.rest();
        return Ok(Ddl::Nothing("ALTER EXTENSION"));
    }
    if c.take("system") {
        return unsupported("ALTER SYSTEM");
    }
    let word = c.word().unwrap_or_default().to_uppercase();
    unsupported(format!("ALTER {word}"))
}

fn rename_or_owner(c: &mut Cursor) -> SqlResult<(Option<String>, Option<String>)> {
    if c.take("rename to") {
        return Ok((Some(c.ident()?), None));
    }
    c.expect("owner to")?;
    Ok((None, Some(c.ident()?)))
}

fn setting(c: &mut Cursor) -> SqlResult<(Option<String>, Option<String>)> {
    if c.take("reset all") {
        return Ok((None, None));
    }
    if c.take("reset") {
        return Ok((Some(c.ident()?), None));
    }
    c.expect("set")?;
    let name = c.ident()?;
    if !c.take_token(&Token::Eq) {
        c.expect("to")?;
    }
    if c.take("default") {
        return Ok((Some(name), None));
    }
    let mut parts = Vec::new();
    loop {
        parts.push(if c.at_string() {
            c.string()?
        } else if let Some(Token::Word(_)) = c.peek() {
            c.ident()?
        } else {
            c.number()?
        });
        if !c.take_token(&Token::Comma) {
            return Ok((Some(name), Some(parts.join(", "))));
        }
    }
}

fn alter_role(c: &mut Cursor) -> SqlResult<Ddl> {
    let name = c.ident()?;
    if c.take("rename to") {
        return Ok(Ddl::RenameRole { name, to: c.ident()? });
    }
    let database = if c.take("in database") { Some(c.ident()?) } else { None };
    if c.at_words("set") || c.at_words("reset") {
        let (setting, value) = setting(c)?;
        if database.is_some() {
            return unsupported("ALTER ROLE IN DATABASE");
        }
        return Ok(Ddl::AlterSettings { role: Some(name), database, name: setting, value });
    }
    Ok(Ddl::AlterRole { name, options: role_options(c, RoleOptions::default())? })
}

fn drop_objects(c: &mut Cursor) -> SqlResult<Ddl> {
    c.advance();
    if c.take("function") || c.take("routine") {
        return super::parse_routine::drop_function(c);
    }
    if c.take("trigger") {
        return super::parse_routine::drop_trigger(c);
    }
    if c.take("policy") {
        return super::parse_policy::parse_drop(c);
    }
    let kinds = [
        ("table", ObjectKind::Table),
        ("view", ObjectKind::View),
        ("sequence", ObjectKind::Sequence),
        ("index", ObjectKind::Index),
        ("schema", ObjectKind::Schema),
        ("database", ObjectKind::Database),
        ("role", ObjectKind::Role),
        ("user", ObjectKind::Role),
        ("group", ObjectKind::Role),
        ("extension", ObjectKind::Extension),
        ("materialized view", ObjectKind::MaterializedView),
        ("foreign table", ObjectKind::Other("foreign table")),
        ("type", ObjectKind::Type),
        ("domain", ObjectKind::Domain),
        ("procedure", ObjectKind::Other("procedure")),
        ("aggregate", ObjectKind::Other("aggregate")),
        ("collation", ObjectKind::Other("collation")),
        ("publication", ObjectKind::Other("publication")),
        ("subscription", ObjectKind::Other("subscription")),
        ("statistics", ObjectKind::Other("statistics object")),
        ("rule", ObjectKind::Other("rule")),
        ("event trigger", ObjectKind::Other("event trigger")),
    ];
    let Some((_, kind)) = kinds.iter().find(|(words, _)| c.take(words)) else {
        let word = c.word().unwrap_or_default().to_uppercase();
        if word == "OWNED" {
            return unsupported("DROP OWNED");
        }
        return Err(c.syntax_error());
    };
    let concurrently = *kind == ObjectKind::Index && c.take("concurrently");
    let if_exists = c.take("if exists");
    let mut names = vec![drop_name(c)?];
    while c.take_token(&Token::Comma) {
        names.push(drop_name(c)?);
    }
    if matches!(kind, ObjectKind::Other(_)) && c.take("on") {
        c.name()?;
    }
    if c.take("with") {
        c.parenthesized()?;
    }
    let cascade = c.take("cascade");
    if !cascade {
        c.take("restrict");
    }
    Ok(Ddl::Drop { kind: *kind, names, if_exists, cascade, concurrently })
}

fn drop_name(c: &mut Cursor) -> SqlResult<Name> {
    let name = c.name()?;
    if c.peek() == Some(&Token::LParen) {
        c.parenthesized()?;
    }
    Ok(name)
}

fn truncate(c: &mut Cursor) -> SqlResult<Ddl> {
    c.advance();
    c.take("table");
    let mut tables = Vec::new();
    loop {
        c.take("only");
        tables.push(c.name()?);
        c.take_token(&Token::Mul);
        if !c.take_token(&Token::Comma) {
            break;
        }
    }
    let restart = c.take("restart identity");
    c.take("continue identity");
    let cascade = c.take("cascade");
    c.take("restrict");
    Ok(Ddl::Truncate { tables, restart, cascade })
}

fn comment(c: &mut Cursor) -> SqlResult<Ddl> {
    c.advance();
    c.expect("on")?;
    if c.take("function") || c.take("routine") {
        let name = super::parse_routine::routine_name(c)?;
        c.expect("is")?;
        let text = if c.take("null") { None } else { Some(c.string()?) };
        return Ok(Ddl::CommentRoutine { name, text });
    }
    let kinds = [
        ("table", ObjectKind::Table),
        ("column", ObjectKind::Column),
        ("index", ObjectKind::Index),
        ("sequence", ObjectKind::Sequence),
        ("view", ObjectKind::View),
        ("materialized view", ObjectKind::MaterializedView),
        ("schema", ObjectKind::Schema),
        ("database", ObjectKind::Database),
        ("role", ObjectKind::Role),
        ("constraint", ObjectKind::Constraint),
        ("extension", ObjectKind::Extension),
        ("type", ObjectKind::Type),
        ("domain", ObjectKind::Domain),
    ];
    let Some((_, kind)) = kinds.iter().find(|(word, _)| c.take(word)) else {
        return unsupported(format!("COMMENT ON {}", c.word().unwrap_or_default().to_uppercase()));
    };
    let (name, of) = match kind {
        ObjectKind::Column => {
            let mut parts = vec![c.ident()?];
            while c.take_token(&Token::Period) {
                parts.push(c.ident()?);
            }
            let column = parts.pop().unwrap_or_default();
            let table = parts
                .pop()
                .ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, "column name must be qualified"))?;
            (Name { schema: parts.pop(), name: table, position: None }, Some(column))
        }
        ObjectKind::Constraint => {
            let constraint = c.ident()?;
            c.expect("on")?;
            (c.name()?, Some(constraint))
        }
        _ => (c.name()?, None),
    };
    c.expect("is")?;
    let text = if c.take("null") { None } else { Some(c.string()?) };
    Ok(Ddl::Comment { kind: *kind, name, of, text })
}

fn grant(c: &mut Cursor, is_grant: bool) -> SqlResult<Ddl> {
    c.advance();
    if !is_grant {
        c.take("grant option for");
        c.take("admin option for");
    }
    let to = if is_grant { "to" } else { "from" };
    let mut words = Vec::new();
    let mut column_grant = false;
    while !c.at_words("on") && !c.at_words(to) {
        if c.is_end() {
            return Err(c.syntax_error());
        }
        if c.peek() == Some(&Token::LParen) {
            c.parenthesized()?;
            column_grant = true;
            continue;
        }
        if c.take_token(&Token::Comma) {
            continue;
        }
        let mut word = c.ident()?;
        if word == "all" {
            c.take("privileges");
            word = "all".into();
        }
        words.push(word);
    }
    if c.take(to) {
        let roles = grantees(c)?;
        return Ok(Ddl::Grant {
            grant: is_grant,
            privileges: None,
            target: GrantTarget::Roles(words),
            roles,
        });
    }
    c.expect("on")?;
    let target = if c.take("all tables in schema") {
        GrantTarget::AllIn { schemas: idents(c)?, sequences: false }
    } else if c.take("all sequences in schema") {
        GrantTarget::AllIn { schemas: idents(c)?, sequences: true }
    } else if c.take("sequence") {
        GrantTarget::Sequences(c.names()?)
    } else if c.take("schema") {
        GrantTarget::Schemas(idents(c)?)
    } else if c.take("database") {
        GrantTarget::Databases(idents(c)?)
    } else if c.take("all functions in schema") || c.take("all routines in schema") {
        GrantTarget::AllRoutinesIn(idents(c)?)
    } else if c.take("function") || c.take("routine") {
        GrantTarget::Routines(super::parse_routine::routine_names(c)?)
    } else if [
        "all",
        "procedure",
        "language",
        "type",
        "domain",
        "tablespace",
        "parameter",
        "large",
        "foreign",
    ]
    .iter()
    .any(|word| c.at_words(word))
    {
        while !c.is_end() && !c.at_words(to) {
            c.advance();
        }
        GrantTarget::Nothing
    } else {
        c.take("table");
        GrantTarget::Tables(c.names()?)
    };
    c.expect(to)?;
    let roles = grantees(c)?;
    let target = if column_grant { GrantTarget::Nothing } else { target };
    Ok(Ddl::Grant { grant: is_grant, privileges: Some(words), target, roles })
}

fn grantees(c: &mut Cursor) -> SqlResult<Vec<String>> {
    let mut roles = Vec::new();
    loop {
        c.take("group");
        roles.push(c.ident()?);
        if !c.take_token(&Token::Comma) {
            break;
        }
    }
    c.take("with grant option");
    c.take("with admin option");
    if c.take("granted by") {
        c.ident()?;
    }
    c.take("cascade");
    c.take("restrict");
    Ok(roles)
}
