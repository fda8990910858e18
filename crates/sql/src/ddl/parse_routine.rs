//! Text to [`Ddl`]: functions and triggers.

use super::statement::{
    Argument, CreateRoutine, CreateTrigger, Ddl, ReturnType, RoutineAction, RoutineName, RoutineOptions,
};
use super::tokens::Cursor;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

fn unsupported<T>(what: &str) -> SqlResult<T> {
    Err(SqlError::unsupported(what))
}

/// After `CREATE [OR REPLACE] FUNCTION`.
pub(super) fn create_function(c: &mut Cursor, or_replace: bool) -> SqlResult<Ddl> {
    let name = c.name()?;
    let arguments = arguments(c)?;
    let returns = if c.take("returns") { return_type(c)? } else { ReturnType::Outputs };
    let (mut language, mut body) = (None, None);
    let mut options = RoutineOptions::default();
    while !c.is_end() {
        if c.take("language") {
            language = Some(if c.at_string() { c.string()?.to_ascii_lowercase() } else { c.ident()? });
        } else if c.take("as") {
            body = Some(c.string()?);
            if c.peek() == Some(&Token::Comma) {
                return unsupported("a function in an object file");
            }
        } else if c.at_words("begin atomic") || c.at_words("return") {
            return unsupported("an SQL-standard function body");
        } else if !option(c, &mut options)? {
            return Err(c.syntax_error());
        }
    }
    Ok(Ddl::CreateRoutine(CreateRoutine { name, or_replace, arguments, returns, language, body, options }))
}

/// One of the options that CREATE and ALTER FUNCTION have; false if there is none.
fn option(c: &mut Cursor, options: &mut RoutineOptions) -> SqlResult<bool> {
    if let Some(word) = c.take_one(&["immutable", "stable", "volatile"]) {
        options.volatility = word.chars().next();
    } else if c.take("called on null input") {
        options.strict = Some(false);
    } else if c.take("returns null on null input") || c.take("strict") {
        options.strict = Some(true);
    } else if c.take("external security invoker") || c.take("security invoker") {
        options.definer = Some(false);
    } else if c.take("external security definer") || c.take("security definer") {
        options.definer = Some(true);
    } else if c.take("not leakproof") {
    } else if c.take("leakproof") {
        return unsupported("LEAKPROOF");
    } else if c.take("parallel") {
        options.parallel = Some(match c.ident()?.as_str() {
            "safe" => 's',
            "restricted" => 'r',
            "unsafe" => 'u',
            _ => {
                let message = "parameter \"parallel\" must be SAFE, RESTRICTED, or UNSAFE";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        });
    } else if c.take("cost") {
        let cost = c.integer()?;
        let Some(cost) = u32::try_from(cost).ok().filter(|cost| *cost > 0) else {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, "COST must be positive"));
        };
        options.cost = Some(cost);
    } else if c.take("rows") {
        options.rows = true;
        c.integer()?;
    } else if c.take("set search_path") {
        options.search_path = Some(search_path(c)?);
    } else if c.take("reset search_path") || c.take("reset all") {
        options.search_path = Some(None);
    } else if c.at_words("set") || c.at_words("reset") {
        return unsupported("SET of another setting than search_path for a function");
    } else if c.at_words("window") || c.at_words("support") || c.at_words("transform") {
        return unsupported(&format!("{} for a function", c.word().unwrap_or_default().to_uppercase()));
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// After `SET search_path`: the schemas; `None` for DEFAULT.
fn search_path(c: &mut Cursor) -> SqlResult<Option<Vec<String>>> {
    if c.take("from current") {
        return unsupported("SET search_path FROM CURRENT for a function");
    }
    if !c.take_token(&Token::Eq) {
        c.expect("to")?;
    }
    if c.take("default") {
        return Ok(None);
    }
    let mut names = Vec::new();
    loop {
        let name = if c.at_string() { c.string()? } else { c.ident()? };
        if !name.is_empty() {
            names.push(name);
        }
        if !c.take_token(&Token::Comma) {
            return Ok(Some(names));
        }
    }
}

/// `( [mode] [name] type [DEFAULT expression], … )`
fn arguments(c: &mut Cursor) -> SqlResult<Vec<Argument>> {
    let mut list = Vec::new();
    c.expect_token(&Token::LParen)?;
    if c.take_token(&Token::RParen) {
        return Ok(list);
    }
    loop {
        let mode = match c.take_one(&["in out", "inout", "out", "in", "variadic"]) {
            Some("variadic") => return unsupported("VARIADIC arguments"),
            Some("out") => 'o',
            Some("in out" | "inout") => 'b',
            _ => 'i',
        };
        let (name, ty) = named_type(c)?;
        let default = if c.take("default") || c.take_token(&Token::Eq) { Some(c.expr()?) } else { None };
        list.push(Argument { mode, name, ty, default });
        if !c.take_token(&Token::Comma) {
            break;
        }
    }
    c.expect_token(&Token::RParen)?;
    Ok(list)
}

/// `[name] type`: what is a type up to its end is one.
fn named_type(c: &mut Cursor) -> SqlResult<(Option<String>, sqlparser::ast::DataType)> {
    let start = c.position();
    if let Ok(ty) = c.data_type() {
        let ends =
            matches!(c.peek(), Some(Token::Comma | Token::RParen | Token::Eq)) || c.at_words("default");
        if ends {
            return Ok((None, ty));
        }
    }
    c.rewind(start);
    let name = c.column_ident()?;
    let ty = c.data_type()?;
    if c.peek() == Some(&Token::Mod) {
        return unsupported("%TYPE of an argument");
    }
    Ok((Some(name), ty))
}

fn return_type(c: &mut Cursor) -> SqlResult<ReturnType> {
    if c.take("table") {
        let columns = arguments(c)?;
        let named = |column: Argument| match (column.name, column.mode, column.default) {
            (Some(name), 'i', None) => Ok((name, column.ty)),
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in the columns of RETURNS TABLE")),
        };
        return columns.into_iter().map(named).collect::<SqlResult<_>>().map(ReturnType::Table);
    }
    let set = c.take("setof");
    if c.take("record") {
        return Ok(ReturnType::Record(set));
    }
    if set {
        return Ok(ReturnType::Set(c.data_type()?));
    }
    if c.take("void") {
        return Ok(ReturnType::Void);
    }
    if c.take("trigger") {
        return Ok(ReturnType::Trigger);
    }
    if c.at_words("event_trigger") {
        return unsupported("an event trigger");
    }
    Ok(ReturnType::Type(c.data_type()?))
}

/// `name [(types)]`
pub(super) fn routine_name(c: &mut Cursor) -> SqlResult<RoutineName> {
    let name = c.name()?;
    if c.peek() != Some(&Token::LParen) {
        return Ok(RoutineName { name, arguments: None });
    }
    let inputs = arguments(c)?.into_iter().filter(|argument| argument.mode != 'o');
    let arguments = inputs.map(|argument| argument.ty).collect();
    Ok(RoutineName { name, arguments: Some(arguments) })
}

/// Names of functions separated by commas.
pub(super) fn routine_names(c: &mut Cursor) -> SqlResult<Vec<RoutineName>> {
    let mut names = vec![routine_name(c)?];
    while c.take_token(&Token::Comma) {
        names.push(routine_name(c)?);
    }
    Ok(names)
}

fn cascade(c: &mut Cursor) -> bool {
    let cascade = c.take("cascade");
    c.take("restrict");
    cascade
}

/// After `DROP FUNCTION`.
pub(super) fn drop_function(c: &mut Cursor) -> SqlResult<Ddl> {
    let if_exists = c.take("if exists");
    let names = routine_names(c)?;
    Ok(Ddl::DropRoutine { names, if_exists, cascade: cascade(c) })
}

/// After `ALTER FUNCTION`.
pub(super) fn alter_function(c: &mut Cursor) -> SqlResult<Ddl> {
    let name = routine_name(c)?;
    let action = if c.take("rename to") {
        RoutineAction::Rename(c.ident()?)
    } else if c.take("owner to") {
        RoutineAction::Owner(c.ident()?)
    } else if c.take("set schema") {
        RoutineAction::SetSchema(c.ident()?)
    } else if c.at_words("depends on") || c.at_words("no depends on") {
        return unsupported("DEPENDS ON EXTENSION");
    } else {
        let mut options = RoutineOptions::default();
        while option(c, &mut options)? {}
        c.take("restrict");
        RoutineAction::Options(options)
    };
    Ok(Ddl::AlterRoutine { name, action })
}

/// After `CREATE [OR REPLACE] TRIGGER`.
pub(super) fn create_trigger(c: &mut Cursor, or_replace: bool) -> SqlResult<Ddl> {
    let name = c.ident()?;
    let before = match c.take_one(&["before", "after", "instead of"]) {
        Some("before") => true,
        Some("after") => false,
        Some(_) => return unsupported("an INSTEAD OF trigger"),
        None => return Err(c.syntax_error()),
    };
    let (mut insert, mut update, mut delete, mut columns) = (false, false, false, Vec::new());
    loop {
        let twice = match c.take_one(&["insert", "update", "delete", "truncate"]) {
            Some("insert") => std::mem::replace(&mut insert, true),
            Some("delete") => std::mem::replace(&mut delete, true),
            Some("update") => {
                if c.take("of") {
                    columns.push(c.column_ident()?);
                    while c.take_token(&Token::Comma) {
                        columns.push(c.column_ident()?);
                    }
                }
                std::mem::replace(&mut update, true)
            }
            Some(_) => return unsupported("a TRUNCATE trigger"),
            None => return Err(c.syntax_error()),
        };
        if twice {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "duplicate trigger events specified"));
        }
        if !c.take("or") {
            break;
        }
    }
    c.expect("on")?;
    let table = c.name()?;
    if c.at_words("from")
        || c.at_words("deferrable")
        || c.at_words("not deferrable")
        || c.at_words("initially")
    {
        return unsupported("a constraint trigger");
    }
    if c.at_words("referencing") {
        return unsupported("REFERENCING of a trigger");
    }
    let mut for_row = false;
    if c.take("for") {
        c.take("each");
        for_row = match c.take_one(&["row", "statement"]) {
            Some(word) => word == "row",
            None => return Err(c.syntax_error()),
        };
    }
    let when = if c.take("when") { Some(bare(c.parenthesized()?)?) } else { None };
    c.expect("execute")?;
    if c.take_one(&["function", "procedure"]).is_none() {
        return Err(c.syntax_error());
    }
    let routine = c.name()?;
    let mut arguments = Vec::new();
    c.expect_token(&Token::LParen)?;
    while !c.take_token(&Token::RParen) {
        arguments.push(if c.at_string() {
            c.string()?
        } else if matches!(c.peek(), Some(Token::Word(_))) {
            c.column_ident()?
        } else {
            c.number()?
        });
        if !c.take_token(&Token::Comma) && c.peek() != Some(&Token::RParen) {
            return Err(c.syntax_error());
        }
    }
    Ok(Ddl::CreateTrigger(CreateTrigger {
        name,
        or_replace,
        table,
        before,
        for_row,
        insert,
        update,
        delete,
        columns,
        when,
        routine,
        arguments,
    }))
}

/// After `DROP TRIGGER`.
pub(super) fn drop_trigger(c: &mut Cursor) -> SqlResult<Ddl> {
    let if_exists = c.take("if exists");
    let name = c.ident()?;
    c.expect("on")?;
    let table = c.name()?;
    cascade(c);
    Ok(Ddl::DropTrigger { name, table, if_exists })
}

/// After `ALTER TRIGGER`.
pub(super) fn alter_trigger(c: &mut Cursor) -> SqlResult<Ddl> {
    let name = c.ident()?;
    c.expect("on")?;
    let table = c.name()?;
    if !c.take("rename to") {
        return unsupported("ALTER TRIGGER … DEPENDS ON EXTENSION");
    }
    Ok(Ddl::RenameTrigger { name, table, to: c.ident()? })
}

/// Most parentheses that are taken off.
const MOST_BARED: usize = 64;

/// An expression without parentheses around all of it: it is dumped with them, and must not gain some each time.
fn bare(mut text: String) -> SqlResult<String> {
    for _ in 0..MOST_BARED {
        let mut cursor = Cursor::new(&text)?;
        match cursor.parenthesized() {
            Ok(inner) if cursor.is_end() => text = inner,
            _ => break,
        }
    }
    Ok(text)
}
