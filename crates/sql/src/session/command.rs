//! Statements that the session itself runs, read from their text.

use super::analyze;
use crate::ddl::statement::Ddl;
use crate::ddl::tokens::{Cursor, Name};
use crate::parse::{self, AsOf, Statement, StatementKind};
use sql_types::datetime::{self, TimeZone};
use sql_types::{Interval, SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, DataType};
use sqlparser::tokenizer::Token;
use std::sync::Arc;

/// Modes of a transaction, as far as they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modes {
    pub isolation: Option<IsolationLevel>,
    pub read_only: Option<bool>,
    pub deferrable: Option<bool>,
}

/// PostgreSQL's isolation levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IsolationLevel {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    #[default]
    Serializable,
}

impl IsolationLevel {
    pub(crate) fn name(self) -> &'static str {
        match self {
            IsolationLevel::ReadUncommitted => "read uncommitted",
            IsolationLevel::ReadCommitted => "read committed",
            IsolationLevel::RepeatableRead => "repeatable read",
            IsolationLevel::Serializable => "serializable",
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        [Self::ReadUncommitted, Self::ReadCommitted, Self::RepeatableRead, Self::Serializable]
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// How many rows FETCH wants, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward(i64),
    ForwardAll,
    Backward(i64),
    BackwardAll,
    Absolute(i64),
    Relative(i64),
}

/// What DISCARD throws away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discard {
    All,
    Plans,
    Sequences,
    Temporary,
}

/// The options of EXPLAIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExplainFlags {
    pub analyze: bool,
    pub verbose: bool,
    pub costs: Option<bool>,
    pub timing: Option<bool>,
    pub summary: Option<bool>,
    pub buffers: bool,
    pub json: bool,
}

/// A statement that the session runs.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// The binder and the engines run it.
    Planned,
    Ddl(Box<Ddl>),
    Analyze {
        targets: Vec<analyze::Target>,
        tag: &'static str,
    },
    Begin(Modes, Option<Arc<AsOf>>),
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    Set {
        local: bool,
        name: String,
        value: Option<String>,
    },
    SetTransaction {
        modes: Modes,
        as_of: Option<Arc<AsOf>>,
        session: bool,
    },
    SetConstraints {
        /// `None` for ALL.
        names: Option<Vec<Name>>,
        deferred: bool,
    },
    Show(String),
    ShowAll,
    Reset(String),
    ResetAll,
    Prepare {
        name: String,
        types: Vec<DataType>,
        statement: Arc<Statement>,
    },
    Execute {
        name: String,
        args: Vec<ast::Expr>,
    },
    Deallocate(Option<String>),
    Declare {
        name: String,
        scroll: Option<bool>,
        hold: bool,
        statement: Arc<Statement>,
    },
    Fetch {
        cursor: String,
        direction: Direction,
        is_move: bool,
    },
    Close(Option<String>),
    Listen(String),
    Unlisten(Option<String>),
    Notify {
        channel: String,
        payload: String,
    },
    Lock {
        tables: Vec<Name>,
        mode: u8,
        nowait: bool,
    },
    Discard(Discard),
    Explain {
        flags: ExplainFlags,
        statement: Arc<Statement>,
    },
    Copy,
    /// DO
    Do {
        language: Option<String>,
        body: String,
    },
    /// Does nothing but has a tag.
    Nothing(&'static str),
    Unsupported(String),
}

/// Reads a statement.
pub(crate) fn read(statement: &Statement) -> SqlResult<Command> {
    use StatementKind as Kind;
    if statement.kind.is_planned() {
        if is_select_into(statement) {
            if let Some(clause) = &statement.as_of {
                let message = "AS OF SYSTEM TIME is for queries only";
                return Err(clause.error(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            return crate::ddl::parse_select_into(statement).map(|ddl| Command::Ddl(Box::new(ddl)));
        }
        return Ok(Command::Planned);
    }
    let mut cursor = Cursor::new(&statement.text)?;
    let c = &mut cursor;
    let command = match statement.kind {
        Kind::Ddl => {
            return crate::ddl::parse(statement).map(|ddl| Command::Ddl(Box::new(ddl)));
        }
        Kind::Analyze => {
            c.advance();
            if c.peek() == Some(&Token::LParen) {
                c.parenthesized()?;
            }
            c.take("verbose");
            Command::Analyze { targets: analyze::read_targets(c)?, tag: "ANALYZE" }
        }
        Kind::Vacuum => return vacuum(c),
        Kind::Copy => return Ok(Command::Copy),
        Kind::Begin => {
            c.advance();
            c.take_one(&["transaction", "work"]);
            let (modes, as_of) = modes(c)?;
            Command::Begin(modes, as_of)
        }
        Kind::Commit => {
            c.advance();
            if c.take("prepared") {
                return Ok(Command::Unsupported("COMMIT PREPARED".into()));
            }
            c.take_one(&["transaction", "work"]);
            Command::Commit { chain: chain(c)? }
        }
        Kind::Rollback => rollback(c)?,
        Kind::Savepoint => {
            c.advance();
            Command::Savepoint(c.ident()?)
        }
        Kind::Release => {
            c.advance();
            c.take("savepoint");
            Command::Release(c.ident()?)
        }
        Kind::Set => return set(c),
        Kind::Show => show(c)?,
        Kind::Reset => {
            c.advance();
            if c.take("all") {
                Command::ResetAll
            } else if c.take("session authorization") {
                Command::Reset("session_authorization".into())
            } else if c.take("time zone") {
                Command::Reset("timezone".into())
            } else if c.take("transaction isolation level") {
                Command::Reset("transaction_isolation".into())
            } else {
                Command::Reset(setting_name(c)?)
            }
        }
        Kind::Explain => explain(c)?,
        Kind::Prepare => prepare(c)?,
        Kind::Execute => {
            c.advance();
            let name = c.ident()?;
            let mut args = Vec::new();
            if c.take_token(&Token::LParen) && !c.take_token(&Token::RParen) {
                args.push(parse::parse_expr(&c.expr()?)?);
                while c.take_token(&Token::Comma) {
                    args.push(parse::parse_expr(&c.expr()?)?);
                }
                c.expect_token(&Token::RParen)?;
            }
            Command::Execute { name, args }
        }
        Kind::Deallocate => {
            c.advance();
            c.take("prepare");
            if c.take("all") { Command::Deallocate(None) } else { Command::Deallocate(Some(c.ident()?)) }
        }
        Kind::Declare => declare(c)?,
        Kind::Fetch | Kind::Move => fetch(c, statement.kind == Kind::Move)?,
        Kind::Close => {
            c.advance();
            if c.take("all") { Command::Close(None) } else { Command::Close(Some(c.ident()?)) }
        }
        Kind::Listen => {
            c.advance();
            Command::Listen(c.ident()?)
        }
        Kind::Unlisten => {
            c.advance();
            if c.take_token(&Token::Mul) {
                Command::Unlisten(None)
            } else {
                Command::Unlisten(Some(c.ident()?))
            }
        }
        Kind::Notify => {
            c.advance();
            let channel = c.ident()?;
            let payload = if c.take_token(&Token::Comma) { c.string()? } else { String::new() };
            Command::Notify { channel, payload }
        }
        Kind::Lock => lock(c)?,
        Kind::Discard => {
            c.advance();
            Command::Discard(match c.take_one(&["all", "plans", "sequences", "temp", "temporary"]) {
                Some("all") => Discard::All,
                Some("plans") => Discard::Plans,
                Some("sequences") => Discard::Sequences,
                Some(_) => Discard::Temporary,
                None => return Err(c.syntax_error()),
            })
        }
        Kind::Do => {
            c.advance();
            let (mut language, mut body) = (None, None);
            while !c.is_end() {
                if language.is_none() && c.take("language") {
                    language = Some(if c.at_string() { c.string()? } else { c.ident()? });
                } else if body.is_none() {
                    body = Some(c.string()?);
                } else {
                    return Err(c.syntax_error());
                }
            }
            Command::Do { language, body: body.ok_or_else(|| c.syntax_error())? }
        }
        Kind::Call => return Ok(Command::Unsupported("CALL".into())),
        Kind::Utility => match c.take_one(&["checkpoint", "load", "cluster"]) {
            Some("checkpoint") => return Ok(Command::Nothing("CHECKPOINT")),
            Some("cluster") => return Ok(Command::Nothing("CLUSTER")),
            _ if c.at_words("prepare transaction") => {
                return Ok(Command::Unsupported("PREPARE TRANSACTION".into()));
            }
            _ => return Ok(Command::Unsupported("LOAD".into())),
        },
        Kind::Query | Kind::Insert | Kind::Update | Kind::Delete | Kind::Merge => Command::Planned,
    };
    cursor.expect_end()?;
    Ok(command)
}

/// Nothing is to be vacuumed: what is left of VACUUM is its ANALYZE.
fn vacuum(c: &mut Cursor) -> SqlResult<Command> {
    c.advance();
    let mut analyzes = false;
    if c.peek() == Some(&Token::LParen) {
        analyzes = c.parenthesized()?.to_ascii_lowercase().contains("analyze");
    }
    while let Some(word) = c.take_one(&["full", "freeze", "verbose", "analyze", "analyse"]) {
        analyzes |= word.starts_with("analy");
    }
    let targets = analyze::read_targets(c)?;
    c.expect_end()?;
    let tag = "VACUUM";
    Ok(if analyzes { Command::Analyze { targets, tag } } else { Command::Nothing(tag) })
}

fn is_select_into(statement: &Statement) -> bool {
    use sqlparser::ast;
    let Ok(ast::Statement::Query(query)) = statement.sql() else { return false };
    matches!(&*query.body, ast::SetExpr::Select(select) if select.into.is_some())
}

/// The modes of a transaction, and when it reads.
fn modes(c: &mut Cursor) -> SqlResult<(Modes, Option<Arc<AsOf>>)> {
    let (mut modes, mut as_of) = (Modes::default(), None);
    loop {
        if c.take("isolation level") {
            modes.isolation = Some(if c.take("serializable") {
                IsolationLevel::Serializable
            } else if c.take("repeatable read") {
                IsolationLevel::RepeatableRead
            } else if c.take("read committed") {
                IsolationLevel::ReadCommitted
            } else if c.take("read uncommitted") {
                IsolationLevel::ReadUncommitted
            } else {
                return Err(c.syntax_error());
            });
        } else if c.take("read only") {
            modes.read_only = Some(true);
        } else if c.take("read write") {
            modes.read_only = Some(false);
        } else if c.take("not deferrable") {
            modes.deferrable = Some(false);
        } else if c.take("deferrable") {
            modes.deferrable = Some(true);
        } else if as_of.is_none() && c.take("as of system time") {
            let position = c.here();
            as_of = Some(Arc::new(AsOf { expr: parse::parse_expr(&c.expr()?)?, position }));
        } else if c.is_end() {
            return Ok((modes, as_of));
        } else {
            return Err(c.syntax_error());
        }
        c.take_token(&Token::Comma);
    }
}

fn chain(c: &mut Cursor) -> SqlResult<bool> {
    if c.take("and chain") {
        return Ok(true);
    }
    c.take("and no chain");
    Ok(false)
}

fn rollback(c: &mut Cursor) -> SqlResult<Command> {
    c.advance();
    if c.take("prepared") {
        c.string()?;
        return Ok(Command::Unsupported("ROLLBACK PREPARED".into()));
    }
    c.take_one(&["transaction", "work"]);
    if c.take("to") {
        c.take("savepoint");
        return Ok(Command::RollbackTo(c.ident()?));
    }
    Ok(Command::Rollback { chain: chain(c)? })
}

fn setting_name(c: &mut Cursor) -> SqlResult<String> {
    let mut name = c.ident()?;
    while c.take_token(&Token::Period) {
        name = format!("{name}.{}", c.ident()?);
    }
    Ok(name)
}

/// Words with meanings of their own in a value.
/// The zone that lies an interval east of Greenwich, which in a zone's name lies west.
fn zone_of_interval(text: &str) -> SqlResult<String> {
    let interval = datetime::parse_interval(text, -1)?;
    let refused = match interval {
        Interval { months, .. } if months != 0 => Some("months"),
        Interval { days, .. } if days != 0 => Some("days"),
        _ => None,
    };
    if let Some(field) = refused {
        let message = format!("invalid value for parameter \"TimeZone\": \"INTERVAL '{text}'\"");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message)
            .with_detail(format!("Cannot specify {field} in time zone interval.")));
    }
    let seconds = interval.micros / datetime::SECOND;
    let zone = i32::try_from(seconds).ok().map(TimeZone::fixed);
    let zone =
        zone.ok_or_else(|| SqlError::new(SqlState::INVALID_PARAMETER, "time zone interval out of range"))?;
    Ok(zone.name().to_string())
}

fn setting_value(c: &mut Cursor) -> SqlResult<Option<String>> {
    if c.take("default") {
        return Ok(None);
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
            break;
        }
    }
    if parts.len() == 1 {
        return Ok(parts.pop());
    }
    // A list of names (search_path) keeps what needs quotes in quotes.
    let quoted = parts
        .iter()
        .map(|part| if part.is_empty() { "\"\"".into() } else { crate::ddl::tokens::quote_ident(part) });
    Ok(Some(quoted.collect::<Vec<_>>().join(", ")))
}

fn set(c: &mut Cursor) -> SqlResult<Command> {
    c.advance();
    let local = c.take("local");
    if c.take("constraints") {
        return set_constraints(c);
    }
    if c.take("session characteristics as transaction") {
        let (modes, as_of) = modes(c)?;
        if let Some(clause) = as_of {
            let message = "AS OF SYSTEM TIME is for single transactions";
            return Err(clause.error(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        return Ok(Command::SetTransaction { modes, as_of, session: true });
    }
    if c.take("transaction snapshot") {
        return Ok(Command::Unsupported("SET TRANSACTION SNAPSHOT".into()));
    }
    if c.at_words("transaction isolation")
        || c.at_words("transaction read")
        || c.at_words("transaction not")
        || c.at_words("transaction deferrable")
        || c.at_words("transaction as of")
    {
        c.advance();
        let (modes, as_of) = modes(c)?;
        return Ok(Command::SetTransaction { modes, as_of, session: false });
    }
    if !local && !c.at_words("session authorization") {
        c.take("session");
    }
    let command = if c.take("time zone") {
        let value = if c.take("local") {
            None
        } else if c.take("interval") {
            let text = c.string()?;
            let _unit = c.take("hour to minute") || c.take("hour");
            Some(zone_of_interval(&text)?)
        } else {
            setting_value(c)?
        };
        Command::Set { local, name: "timezone".into(), value }
    } else if c.take("session authorization") {
        Command::Set { local, name: "session_authorization".into(), value: setting_value(c)? }
    } else if c.take("names") {
        Command::Set { local, name: "client_encoding".into(), value: setting_value(c)? }
    } else if c.take("schema") {
        Command::Set { local, name: "search_path".into(), value: setting_value(c)? }
    } else if c.at_words("role") && !matches!(c_second(c), Some(Token::Eq)) && !c.at_words("role to") {
        c.advance();
        let value = if c.take("none") { None } else { setting_value(c)? };
        Command::Set { local, name: "role".into(), value }
    } else if c.take("xml option") {
        c.rest();
        return Ok(Command::Nothing("SET"));
    } else {
        let name = setting_name(c)?;
        if !c.take_token(&Token::Eq) {
            c.expect("to")?;
        }
        Command::Set { local, name, value: setting_value(c)? }
    };
    c.expect_end()?;
    Ok(command)
}

/// After SET CONSTRAINTS.
fn set_constraints(c: &mut Cursor) -> SqlResult<Command> {
    let names = if c.take("all") {
        None
    } else {
        let mut names = vec![c.name()?];
        while c.take_token(&Token::Comma) {
            names.push(c.name()?);
        }
        Some(names)
    };
    let deferred = match c.take_one(&["deferred", "immediate"]) {
        Some(word) => word == "deferred",
        None => return Err(c.syntax_error()),
    };
    c.expect_end()?;
    Ok(Command::SetConstraints { names, deferred })
}

fn c_second(c: &mut Cursor) -> Option<Token> {
    let at = c.position();
    c.advance();
    let token = c.peek().cloned();
    c.rewind(at);
    token
}

fn show(c: &mut Cursor) -> SqlResult<Command> {
    c.advance();
    if c.take("all") {
        return Ok(Command::ShowAll);
    }
    Ok(Command::Show(if c.take("time zone") {
        "timezone".into()
    } else if c.take("transaction isolation level") {
        "transaction_isolation".into()
    } else if c.take("session authorization") {
        "session_authorization".into()
    } else {
        setting_name(c)?
    }))
}

fn boolean(c: &mut Cursor) -> SqlResult<bool> {
    if c.take_one(&["on", "true"]).is_some() {
        return Ok(true);
    }
    if c.take_one(&["off", "false"]).is_some() {
        return Ok(false);
    }
    if let Some(Token::Number(text, _)) = c.peek() {
        let value = text != "0";
        c.advance();
        return Ok(value);
    }
    Ok(true)
}

fn explain(c: &mut Cursor) -> SqlResult<Command> {
    c.advance();
    let mut flags = ExplainFlags::default();
    if c.take_token(&Token::LParen) {
        loop {
            let option = c.ident()?;
            match option.as_str() {
                "analyze" | "analyse" => flags.analyze = boolean(c)?,
                "verbose" => flags.verbose = boolean(c)?,
                "costs" => flags.costs = Some(boolean(c)?),
                "timing" => flags.timing = Some(boolean(c)?),
                "summary" => flags.summary = Some(boolean(c)?),
                "buffers" => flags.buffers = boolean(c)?,
                "settings" | "wal" | "generic_plan" => drop(boolean(c)?),
                "format" => match c.take_one(&["text", "json", "xml", "yaml"]) {
                    Some("text") => flags.json = false,
                    Some("json") => flags.json = true,
                    Some(other) => {
                        return Ok(Command::Unsupported(format!(
                            "EXPLAIN (FORMAT {})",
                            other.to_uppercase()
                        )));
                    }
                    None => return Err(c.syntax_error()),
                },
                other => {
                    let message = format!("unrecognized EXPLAIN option \"{other}\"");
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
                }
            }
            if !c.take_token(&Token::Comma) {
                break;
            }
        }
        c.expect_token(&Token::RParen)?;
    } else {
        flags.analyze = c.take("analyze") || c.take("analyse");
        flags.verbose = c.take("verbose");
    }
    Ok(Command::Explain { flags, statement: inner(c)? })
}

/// The statement that the rest of the text is.
fn inner(c: &mut Cursor) -> SqlResult<Arc<Statement>> {
    if c.is_end() {
        return Err(c.syntax_error());
    }
    parse::parse_one(&c.rest()).map(Arc::new)
}

fn prepare(c: &mut Cursor) -> SqlResult<Command> {
    c.advance();
    if c.take("transaction") {
        c.string()?;
        return Ok(Command::Unsupported("PREPARE TRANSACTION".into()));
    }
    let name = c.ident()?;
    let mut types = Vec::new();
    if c.take_token(&Token::LParen) {
        types.push(c.data_type()?);
        while c.take_token(&Token::Comma) {
            types.push(c.data_type()?);
        }
        c.expect_token(&Token::RParen)?;
    }
    c.expect("as")?;
    Ok(Command::Prepare { name, types, statement: inner(c)? })
}

fn declare(c: &mut Cursor) -> SqlResult<Command> {
    c.advance();
    let name = c.ident()?;
    let mut scroll = None;
    loop {
        if c.take("no scroll") {
            scroll = Some(false);
        } else if c.take("scroll") {
            scroll = Some(true);
        } else if c.take_one(&["binary", "insensitive", "asensitive"]).is_none() {
            break;
        }
    }
    c.expect("cursor")?;
    let hold = c.take("with hold");
    c.take("without hold");
    c.expect("for")?;
    Ok(Command::Declare { name, scroll, hold, statement: inner(c)? })
}

fn fetch(c: &mut Cursor, is_move: bool) -> SqlResult<Command> {
    c.advance();
    let direction = if c.take("next") {
        Direction::Forward(1)
    } else if c.take("prior") {
        Direction::Backward(1)
    } else if c.take("first") {
        Direction::Absolute(1)
    } else if c.take("last") {
        Direction::Absolute(-1)
    } else if c.take("absolute") {
        Direction::Absolute(c.integer()?)
    } else if c.take("relative") {
        Direction::Relative(c.integer()?)
    } else if c.take("all") || c.take("forward all") {
        Direction::ForwardAll
    } else if c.take("backward all") {
        Direction::BackwardAll
    } else if c.take("forward") {
        Direction::Forward(count(c)?)
    } else if c.take("backward") {
        Direction::Backward(count(c)?)
    } else {
        match count(c)? {
            n if n < 0 => Direction::Backward(n.saturating_neg()),
            n => Direction::Forward(n),
        }
    };
    c.take_one(&["from", "in"]);
    Ok(Command::Fetch { cursor: c.ident()?, direction, is_move })
}

fn count(c: &mut Cursor) -> SqlResult<i64> {
    match c.peek() {
        Some(Token::Number(..) | Token::Minus | Token::Plus) => c.integer(),
        _ => Ok(1),
    }
}

fn lock(c: &mut Cursor) -> SqlResult<Command> {
    c.advance();
    c.take("table");
    c.take("only");
    let mut tables = vec![c.name()?];
    c.take_token(&Token::Mul);
    while c.take_token(&Token::Comma) {
        c.take("only");
        tables.push(c.name()?);
        c.take_token(&Token::Mul);
    }
    let mut mode = 7;
    if c.take("in") {
        let modes = [
            "access share",
            "row share",
            "row exclusive",
            "share update exclusive",
            "share row exclusive",
            "share",
            "exclusive",
            "access exclusive",
        ];
        mode = match modes.iter().position(|mode| c.take(mode)) {
            // The order above lets longer names win.
            Some(4) => 5,
            Some(5) => 4,
            Some(position) => position as u8,
            None => return Err(c.syntax_error()),
        };
        c.expect("mode")?;
    }
    Ok(Command::Lock { tables, mode, nowait: c.take("nowait") })
}
