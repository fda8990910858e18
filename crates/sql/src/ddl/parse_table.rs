//! CREATE TABLE, CREATE INDEX, ALTER TABLE.

use super::parse::sequence_options;
use super::placement;
use super::statement::{
    AlterAction, ColumnDef, Constraint, ConstraintKind, CreateIndex, CreateTable, Ddl, ForeignKey, IndexKey,
    IndexPart, Like, ObjectKind, SequenceOptions,
};
use super::tokens::Cursor;
use crate::catalog::OnCommit;
use crate::catalog::descriptor::Timing;
use crate::catalog::temporary::PG_TEMP;
use crate::parse;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::DataType;
use sqlparser::tokenizer::Token;
use std::sync::Arc;

/// After `CREATE TABLE`.
pub(super) fn create_table(c: &mut Cursor, temporary: bool) -> SqlResult<Ddl> {
    let if_not_exists = c.take("if not exists");
    let mut name = c.name()?;
    if temporary {
        super::parse::make_temporary(&mut name)?;
    }
    if c.at_words("partition of") {
        return Ok(Ddl::Unsupported("PARTITION OF".into()));
    }
    if c.at_words("of") {
        return Ok(Ddl::Unsupported("CREATE TABLE OF a type".into()));
    }
    // `(a, b) AS query` names columns; anything with types is a definition.
    if let Some(ddl) = create_as(c, &name, if_not_exists)? {
        return Ok(ddl);
    }
    let mut table = CreateTable { name: Some(name), if_not_exists, ..CreateTable::default() };
    c.expect_token(&Token::LParen)?;
    if !c.take_token(&Token::RParen) {
        loop {
            element(c, &mut table)?;
            if !c.take_token(&Token::Comma) {
                break;
            }
        }
        c.expect_token(&Token::RParen)?;
    }
    if c.at_words("inherits") {
        return Ok(Ddl::Unsupported("table inheritance".into()));
    }
    if c.at_words("partition") {
        return Ok(Ddl::Unsupported("PARTITION BY".into()));
    }
    table.on_commit = storage_options(c)?;
    if table.name.as_ref().is_some_and(|name| name.schema.as_deref() != Some(PG_TEMP)) {
        refuse_on_commit(table.on_commit)?;
    }
    Ok(Ddl::CreateTable(table))
}

/// ON COMMIT is for temporary tables.
fn refuse_on_commit(on_commit: OnCommit) -> SqlResult<()> {
    if on_commit == OnCommit::Preserve {
        return Ok(());
    }
    let message = "ON COMMIT can only be used on temporary tables";
    Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message))
}

/// `USING heap`, `WITH (…)`, `ON COMMIT …`, `TABLESPACE …`.
pub(super) fn storage_options(c: &mut Cursor) -> SqlResult<OnCommit> {
    let mut on_commit = OnCommit::Preserve;
    loop {
        if c.take("using") || c.take("tablespace") {
            c.ident()?;
        } else if c.at_words("with data") || c.at_words("with no") {
            return Ok(on_commit);
        } else if c.take("with") {
            c.parenthesized()?;
        } else if c.take("on commit delete rows") {
            on_commit = OnCommit::Delete;
        } else if c.take("on commit drop") {
            on_commit = OnCommit::Drop;
        } else if c.take("without oids") || c.take("on commit preserve rows") {
        } else {
            return Ok(on_commit);
        }
    }
}

fn create_as(c: &mut Cursor, name: &super::tokens::Name, if_not_exists: bool) -> SqlResult<Option<Ddl>> {
    let start = c.position();
    let mut columns = Vec::new();
    if c.peek() == Some(&Token::LParen) {
        match c.ident_list() {
            Ok(list) => columns = list,
            Err(_) => {
                c.rewind(start);
                return Ok(None);
            }
        }
    }
    let on_commit = storage_options(c)?;
    if !c.take("as") {
        c.rewind(start);
        return Ok(None);
    }
    if name.schema.as_deref() != Some(PG_TEMP) {
        refuse_on_commit(on_commit)?;
    }
    let (text, with_data) = without_data_clause(c.rest());
    let query = Arc::new(parse::parse_one(&text)?);
    let name = name.clone();
    Ok(Some(Ddl::CreateTableAs { name, if_not_exists, columns, query, with_data, on_commit }))
}

/// Takes `WITH [NO] DATA` from the end of a query; whether there is to be data.
pub(super) fn without_data_clause(mut text: String) -> (String, bool) {
    let lower = text.to_ascii_lowercase();
    for (ending, data) in [("with no data", false), ("with data", true)] {
        if lower.trim_end().ends_with(ending) {
            text.truncate(lower.trim_end().len() - ending.len());
            return (text, data);
        }
    }
    (text, true)
}

fn element(c: &mut Cursor, table: &mut CreateTable) -> SqlResult<()> {
    if c.take("like") {
        table.likes.push((table.columns.len(), like(c)?));
        return Ok(());
    }
    if let Some(constraint) = table_constraint(c)? {
        table.constraints.push(constraint);
        return Ok(());
    }
    let (column, constraints) = column(c)?;
    table.columns.push(column);
    table.constraints.extend(constraints);
    Ok(())
}

fn like(c: &mut Cursor) -> SqlResult<Like> {
    let table = c.name()?;
    let mut like = Like {
        table,
        defaults: false,
        constraints: false,
        indexes: false,
        identity: false,
        generated: false,
        comments: false,
    };
    loop {
        let on = if c.take("including") {
            true
        } else if c.take("excluding") {
            false
        } else {
            return Ok(like);
        };
        match c.ident()?.as_str() {
            "all" => {
                (like.defaults, like.constraints, like.indexes) = (on, on, on);
                (like.identity, like.generated, like.comments) = (on, on, on);
            }
            "defaults" => like.defaults = on,
            "constraints" => like.constraints = on,
            "indexes" => like.indexes = on,
            "identity" => like.identity = on,
            "generated" => like.generated = on,
            "comments" => like.comments = on,
            _ => {}
        }
    }
}

fn serial(ty: &DataType) -> Option<u8> {
    let DataType::Custom(name, _) = ty else { return None };
    match name.to_string().to_ascii_lowercase().as_str() {
        "smallserial" | "serial2" => Some(2),
        "serial" | "serial4" => Some(4),
        "bigserial" | "serial8" => Some(8),
        _ => None,
    }
}

/// A column with its constraints.
pub(super) fn column(c: &mut Cursor) -> SqlResult<(ColumnDef, Vec<Constraint>)> {
    let name = c.column_ident()?;
    let ty = c.data_type()?;
    let mut column = ColumnDef {
        name,
        serial: serial(&ty),
        ty,
        nullable: None,
        default: None,
        identity: None,
        generated: None,
    };
    let mut constraints = Vec::new();
    loop {
        if c.take("collate") {
            c.name()?;
            continue;
        }
        if c.take_one(&["storage", "compression"]).is_some() {
            c.ident()?;
            continue;
        }
        let name = if c.take("constraint") { Some(c.ident()?) } else { None };
        let key = || vec![(column.name.clone(), false)];
        let mut nulls_not_distinct = false;
        let nullable = if c.take("not null") { Some(false) } else { c.take("null").then_some(true) };
        let kind = if nullable.is_some() {
            if column.nullable.is_some() && column.nullable != nullable {
                let message =
                    format!("conflicting NULL/NOT NULL declarations for column \"{}\"", column.name);
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            column.nullable = nullable;
            None
        } else if c.take("default") {
            if column.default.is_some() {
                let message = format!("multiple default values specified for column \"{}\"", column.name);
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            column.default = Some(c.default_expr()?);
            None
        } else if c.take("primary key") {
            index_parameters(c)?;
            Some(ConstraintKind::Primary(key()))
        } else if c.take("unique") {
            nulls_not_distinct = nulls_distinction(c);
            index_parameters(c)?;
            Some(ConstraintKind::Unique(key()))
        } else if c.take("check") {
            let expr = c.parenthesized()?;
            c.take("no inherit");
            Some(ConstraintKind::Check(expr))
        } else if c.take("references") {
            Some(ConstraintKind::Foreign(vec![column.name.clone()], references(c)?))
        } else if c.take("generated") {
            generated(c, &mut column)?;
            None
        } else if name.is_some() {
            return Err(c.syntax_error());
        } else {
            return Ok((column, constraints));
        };
        if let Some(kind) = kind {
            let timing = timing(c, Some(&kind).filter(|kind| !matches!(kind, ConstraintKind::Check(_))))?;
            constraints.push(Constraint {
                name,
                kind,
                not_valid: false,
                timing,
                included: Vec::new(),
                nulls_not_distinct,
            });
        } else {
            timing(c, None)?;
        }
    }
}

fn generated(c: &mut Cursor, column: &mut ColumnDef) -> SqlResult<()> {
    let always = c.take("always");
    if !always {
        c.expect("by default")?;
    }
    c.expect("as")?;
    if !c.take("identity") {
        if c.peek() != Some(&Token::LParen) {
            return Err(c.syntax_error());
        }
        let expr = c.parenthesized()?;
        c.expect("stored")?;
        if !always {
            let message = "for a generated column, GENERATED ALWAYS must be specified";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        if column.generated.replace(expr).is_some() {
            let message = format!("multiple generation clauses specified for column \"{}\"", column.name);
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        return Ok(());
    }
    column.identity = Some((if always { 'a' } else { 'd' }, identity_options(c)?));
    Ok(())
}

fn identity_options(c: &mut Cursor) -> SqlResult<SequenceOptions> {
    if !c.take_token(&Token::LParen) {
        return Ok(SequenceOptions::default());
    }
    let options = sequence_options(c)?;
    c.expect_token(&Token::RParen)?;
    Ok(options)
}

/// `NULLS NOT DISTINCT` is true, `NULLS DISTINCT` and nothing are false.
fn nulls_distinction(c: &mut Cursor) -> bool {
    let not_distinct = c.take("nulls not distinct");
    if !not_distinct {
        c.take("nulls distinct");
    }
    not_distinct
}

/// `INCLUDE (…)`, `WITH (…)`, `USING INDEX TABLESPACE`: the columns included.
fn index_parameters(c: &mut Cursor) -> SqlResult<Vec<String>> {
    let included = if c.take("include") { c.ident_list()? } else { Vec::new() };
    if c.take("with") {
        c.parenthesized()?;
    }
    if c.take("using index tablespace") {
        c.ident()?;
    }
    Ok(included)
}

/// `[NOT] DEFERRABLE` and `INITIALLY …` of a constraint.
fn written_timing(c: &mut Cursor) -> SqlResult<Timing> {
    let (mut deferrable, mut deferred): (Option<bool>, Option<bool>) = (None, None);
    loop {
        let (twice, what) = if c.take("not deferrable") {
            (deferrable.replace(false), "DEFERRABLE/NOT DEFERRABLE")
        } else if c.take("deferrable") {
            (deferrable.replace(true), "DEFERRABLE/NOT DEFERRABLE")
        } else if c.take("initially immediate") {
            (deferred.replace(false), "INITIALLY IMMEDIATE/DEFERRED")
        } else if c.take("initially deferred") {
            (deferred.replace(true), "INITIALLY IMMEDIATE/DEFERRED")
        } else {
            break;
        };
        if twice.is_some() {
            let message = format!("multiple {what} clauses not allowed");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
    }
    if deferrable == Some(false) && deferred == Some(true) {
        let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    let deferred = deferred == Some(true);
    Ok(Timing { deferrable: deferrable == Some(true) || deferred, deferred })
}

/// The same of a constraint that may not take it; `None` stands for NOT NULL, a default and the like.
fn timing(c: &mut Cursor, kind: Option<&ConstraintKind>) -> SqlResult<Timing> {
    let timing = written_timing(c)?;
    match kind {
        None if timing.deferrable => {
            Err(SqlError::new(SqlState::SYNTAX_ERROR, "misplaced DEFERRABLE clause"))
        }
        Some(ConstraintKind::Check(_)) if timing.deferrable => Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "CHECK constraints cannot be marked DEFERRABLE",
        )),
        Some(ConstraintKind::Primary(_) | ConstraintKind::UsingIndex(..)) if timing.deferrable => {
            Err(SqlError::unsupported("a deferrable primary key, or a deferrable constraint USING INDEX"))
        }
        _ => Ok(timing),
    }
}

fn references(c: &mut Cursor) -> SqlResult<ForeignKey> {
    let table = c.name()?;
    let columns = if c.peek() == Some(&Token::LParen) { c.ident_list()? } else { Vec::new() };
    let mut key = ForeignKey { table, columns, on_delete: 'a', on_update: 'a' };
    loop {
        if c.take("match full") || c.take("match partial") {
            return Err(SqlError::unsupported("MATCH FULL and MATCH PARTIAL"));
        } else if c.take("match simple") {
        } else if c.take("on delete") {
            key.on_delete = action(c)?;
        } else if c.take("on update") {
            key.on_update = action(c)?;
        } else {
            return Ok(key);
        }
    }
}

fn action(c: &mut Cursor) -> SqlResult<char> {
    for (words, letter) in
        [("no action", 'a'), ("restrict", 'r'), ("cascade", 'c'), ("set null", 'n'), ("set default", 'd')]
    {
        if c.take(words) {
            if c.peek() == Some(&Token::LParen) {
                return Err(SqlError::unsupported("a column list in ON DELETE SET"));
            }
            return Ok(letter);
        }
    }
    Err(c.syntax_error())
}

/// `(a, b DESC)` without expressions.
fn key_columns(c: &mut Cursor) -> SqlResult<Vec<(String, bool)>> {
    Ok(c.ident_list()?.into_iter().map(|name| (name, false)).collect())
}

/// A constraint of the table, if one starts here.
fn table_constraint(c: &mut Cursor) -> SqlResult<Option<Constraint>> {
    let start = c.position();
    let name = if c.take("constraint") { Some(c.ident()?) } else { None };
    let mut nulls_not_distinct = false;
    let kind = if c.take("primary key") {
        if c.take("using index") {
            ConstraintKind::UsingIndex(c.ident()?, true)
        } else {
            ConstraintKind::Primary(key_columns(c)?)
        }
    } else if c.at_words("unique") && name.is_none() && !unique_follows(c) {
        c.rewind(start);
        return Ok(None);
    } else if c.take("unique") {
        nulls_not_distinct = nulls_distinction(c);
        if c.take("using index") {
            ConstraintKind::UsingIndex(c.ident()?, false)
        } else {
            ConstraintKind::Unique(key_columns(c)?)
        }
    } else if c.take("check") {
        let expr = c.parenthesized()?;
        c.take("no inherit");
        ConstraintKind::Check(expr)
    } else if c.take("foreign key") {
        let columns = c.ident_list()?;
        c.expect("references")?;
        ConstraintKind::Foreign(columns, references(c)?)
    } else if c.at_words("exclude") {
        return Err(SqlError::unsupported("an exclusion constraint"));
    } else if name.is_some() {
        return Err(c.syntax_error());
    } else {
        return Ok(None);
    };
    let included = index_parameters(c)?;
    let not_valid = c.take("not valid");
    let timing = timing(c, Some(&kind))?;
    let not_valid = not_valid || c.take("not valid");
    Ok(Some(Constraint { name, kind, not_valid, timing, included, nulls_not_distinct }))
}

fn unique_follows(c: &mut Cursor) -> bool {
    let start = c.position();
    c.advance();
    let follows = c.peek() == Some(&Token::LParen) || c.at_words("using") || c.at_words("nulls");
    c.rewind(start);
    follows
}

/// After `CREATE [UNIQUE] INDEX`.
pub(super) fn create_index(c: &mut Cursor, unique: bool) -> SqlResult<Ddl> {
    let concurrently = c.take("concurrently");
    let if_not_exists = c.take("if not exists");
    let name = if c.at_words("on") { None } else { Some(c.name()?) };
    c.expect("on")?;
    c.take("only");
    let table = c.name()?;
    let method = if c.take("using") { c.ident()? } else { "btree".to_string() };
    match method.as_str() {
        "btree" | "gin" => {}
        "hash" | "gist" | "spgist" | "brin" => {
            return Ok(Ddl::Unsupported(format!("index method \"{method}\"")));
        }
        _ => {
            let message = format!("access method \"{method}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        }
    }
    let inverted = method == "gin";
    c.expect_token(&Token::LParen)?;
    let mut columns = Vec::new();
    loop {
        let part = index_part(c)?;
        if part.order == Some(ODD_NULLS) && !inverted {
            return Ok(Ddl::Unsupported("NULLS FIRST or LAST other than the default in an index".into()));
        }
        columns.push(part);
        if !c.take_token(&Token::Comma) {
            break;
        }
    }
    c.expect_token(&Token::RParen)?;
    let included = if c.take("include") { c.ident_list()? } else { Vec::new() };
    let nulls_not_distinct = nulls_distinction(c);
    storage_options(c)?;
    let predicate = if c.take("where") { Some(c.expr()?) } else { None };
    Ok(Ddl::CreateIndex(CreateIndex {
        concurrently,
        name,
        table,
        if_not_exists,
        unique,
        inverted,
        columns,
        included,
        nulls_not_distinct,
        predicate,
    }))
}

/// What PostgreSQL calls the order that an index may be given.
pub(super) const DIRECTION: &str = "ASC/DESC";
const NULLS: &str = "NULLS FIRST/LAST";
/// As [`NULLS`], where the order is another than the direction implies.
const ODD_NULLS: &str = "NULLS LAST/FIRST";

/// A key column of an index, with its collation, operator class and order.
fn index_part(c: &mut Cursor) -> SqlResult<IndexPart> {
    let mut part = IndexPart { what: index_key(c)?, descending: false, class: None, order: None };
    if c.take("collate") {
        c.name()?;
    }
    while let Some(word) = c.word() {
        match word.as_str() {
            "asc" => part.order = Some(DIRECTION),
            "desc" => (part.descending, part.order) = (true, Some(DIRECTION)),
            "nulls" => {
                c.advance();
                let usual = c.at_words("first") == part.descending;
                part.order = part.order.filter(|_| usual).or(Some(if usual { NULLS } else { ODD_NULLS }));
            }
            // An operator class such as text_pattern_ops: the order of an ordered index is bytewise in any case.
            _ => {
                part.class = Some(c.name()?.name);
                continue;
            }
        }
        c.advance();
    }
    Ok(part)
}

/// A column, a call of a function, or an expression in parentheses.
fn index_key(c: &mut Cursor) -> SqlResult<IndexKey> {
    if c.peek() == Some(&Token::LParen) {
        return Ok(IndexKey::Expression(c.parenthesized()?));
    }
    let start = c.position();
    let column = c.ident()?;
    while c.take_token(&Token::Period) {
        c.ident()?;
    }
    if c.peek() != Some(&Token::LParen) {
        return Ok(IndexKey::Column(column));
    }
    c.parenthesized()?;
    Ok(IndexKey::Expression(c.text(start, c.position())))
}

/// After `ALTER TABLE` and its kin.
pub(super) fn alter_table(c: &mut Cursor, kind: ObjectKind) -> SqlResult<Ddl> {
    let if_exists = c.take("if exists");
    c.take("only");
    let name = c.name()?;
    c.take_token(&Token::Mul);
    let mut actions = Vec::new();
    loop {
        let start = c.position();
        if kind == ObjectKind::View && c.take("set") && c.peek() == Some(&Token::LParen) {
            super::parse::view_options(c)?;
            actions.push(AlterAction::Nothing);
        } else {
            c.rewind(start);
            actions.push(alter_action(c)?);
        }
        if !c.take_token(&Token::Comma) {
            break;
        }
    }
    if let Some(AlterAction::Unsupported(what)) =
        actions.iter().find(|action| matches!(action, AlterAction::Unsupported(_)))
    {
        return Ok(Ddl::Unsupported(what.clone()));
    }
    Ok(Ddl::AlterTable { name, if_exists, kind, actions })
}

fn cascade(c: &mut Cursor) -> bool {
    let cascade = c.take("cascade");
    if !cascade {
        c.take("restrict");
    }
    cascade
}

fn alter_action(c: &mut Cursor) -> SqlResult<AlterAction> {
    if c.take("add") {
        let start = c.position();
        if !c.take("column")
            && !c.at_words("if not exists")
            && let Some(constraint) = table_constraint(c)?
        {
            return Ok(AlterAction::AddConstraint(constraint));
        }
        c.rewind(start);
        c.take("column");
        let if_not_exists = c.take("if not exists");
        let (column, constraints) = column(c)?;
        return Ok(AlterAction::AddColumn { column: Box::new(column), constraints, if_not_exists });
    }
    if c.take("drop") {
        if c.take("constraint") {
            let if_exists = c.take("if exists");
            let name = c.ident()?;
            return Ok(AlterAction::DropConstraint { name, if_exists, cascade: cascade(c) });
        }
        c.take("column");
        let if_exists = c.take("if exists");
        let name = c.ident()?;
        return Ok(AlterAction::DropColumn { name, if_exists, cascade: cascade(c) });
    }
    if c.take("rename") {
        return rename(c);
    }
    if c.take("owner to") {
        return Ok(AlterAction::Owner(c.ident()?));
    }
    if c.take("set schema") {
        return Ok(AlterAction::SetSchema(c.ident()?));
    }
    if c.take("alter constraint") {
        let name = c.ident()?;
        return Ok(AlterAction::AlterConstraint(name, written_timing(c)?));
    }
    if c.take("alter column") || c.take("alter") {
        return alter_column(c);
    }
    if c.take("validate constraint") {
        return Ok(AlterAction::ValidateConstraint(c.ident()?));
    }
    if c.take("set") || c.take("reset") {
        if c.peek() == Some(&Token::LParen) {
            let changes = placement::changes(c)?;
            return Ok(if changes.is_empty() { AlterAction::Nothing } else { AlterAction::Place(changes) });
        }
        if c.take_one(&["logged", "unlogged"]).is_some()
            || c.take("without cluster")
            || c.take("without oids")
        {
            return Ok(AlterAction::Nothing);
        }
        if c.take_one(&["tablespace", "access"]).is_some() {
            c.take("method");
            c.ident()?;
            return Ok(AlterAction::Nothing);
        }
    }
    if c.take("cluster on") {
        c.ident()?;
        return Ok(AlterAction::Nothing);
    }
    if c.take("replica identity") {
        c.take("using index");
        c.ident()?;
        return Ok(AlterAction::Nothing);
    }
    for enable in [true, false] {
        if c.take(if enable { "enable row level security" } else { "disable row level security" }) {
            return Ok(AlterAction::RowSecurity(enable));
        }
        if c.take(if enable { "force row level security" } else { "no force row level security" }) {
            return Ok(AlterAction::ForceRowSecurity(enable));
        }
    }
    if c.at_words("enable always") || c.at_words("enable replica") {
        return Ok(AlterAction::Unsupported("a trigger for replication".into()));
    }
    if let Some(words) = c.take_one(&["enable trigger", "disable trigger"]) {
        let name = if c.take("all") || c.take("user") { None } else { Some(c.ident()?) };
        return Ok(AlterAction::EnableTrigger(name, words.starts_with("enable")));
    }
    for word in ["inherit", "attach", "detach", "of", "no", "enable", "disable"] {
        if c.at_words(word) {
            return Ok(AlterAction::Unsupported(format!("ALTER TABLE … {}", word.to_uppercase())));
        }
    }
    Err(c.syntax_error())
}

fn rename(c: &mut Cursor) -> SqlResult<AlterAction> {
    if c.take("to") {
        return Ok(AlterAction::Rename(c.column_ident()?));
    }
    if c.take("constraint") {
        let name = c.ident()?;
        c.expect("to")?;
        return Ok(AlterAction::RenameConstraint { name, to: c.ident()? });
    }
    c.take("column");
    let name = c.ident()?;
    c.expect("to")?;
    Ok(AlterAction::RenameColumn { name, to: c.column_ident()? })
}

fn alter_column(c: &mut Cursor) -> SqlResult<AlterAction> {
    let column = c.ident()?;
    if c.take("set default") {
        return Ok(AlterAction::SetDefault(column, Some(c.expr()?)));
    }
    if c.take("drop default") {
        return Ok(AlterAction::SetDefault(column, None));
    }
    if c.take("set not null") {
        return Ok(AlterAction::SetNotNull(column, true));
    }
    if c.take("drop not null") {
        return Ok(AlterAction::SetNotNull(column, false));
    }
    if c.take("set data type") || c.take("type") {
        let ty = c.data_type()?;
        if c.take("collate") {
            c.name()?;
        }
        let using = if c.take("using") { Some(c.expr()?) } else { None };
        return Ok(AlterAction::SetType { column, ty, using });
    }
    if c.take("add generated") {
        let always = c.take("always");
        if !always {
            c.expect("by default")?;
        }
        c.expect("as identity")?;
        let options = identity_options(c)?;
        return Ok(AlterAction::AddIdentity(column, if always { 'a' } else { 'd' }, options));
    }
    if c.take("drop identity") {
        return Ok(AlterAction::DropIdentity(column, c.take("if exists")));
    }
    if c.take("drop expression") {
        return Ok(AlterAction::DropExpression(column, c.take("if exists")));
    }
    if c.take("set generated") {
        let always = c.take("always");
        if !always {
            c.expect("by default")?;
        }
        return Ok(AlterAction::SetIdentity(
            column,
            Some(if always { 'a' } else { 'd' }),
            SequenceOptions::default(),
        ));
    }
    if c.take("restart") {
        let number = matches!(c.peek(), Some(Token::Number(..) | Token::Minus)) || c.take("with");
        let restart = Some(if number { Some(c.integer()?) } else { None });
        return Ok(AlterAction::SetIdentity(column, None, SequenceOptions { restart, ..Default::default() }));
    }
    if c.take("set statistics") {
        c.integer()?;
        return Ok(AlterAction::Nothing);
    }
    if c.take("set storage") || c.take("set compression") {
        c.ident()?;
        return Ok(AlterAction::Nothing);
    }
    if c.take("set") {
        if c.peek() == Some(&Token::LParen) {
            c.parenthesized()?;
            return Ok(AlterAction::Nothing);
        }
        return Ok(AlterAction::SetIdentity(column, None, sequence_options(c)?));
    }
    Err(c.syntax_error())
}
