//! The reg* types: OIDs that show as names.

use super::input::parse_oid;
use crate::context::{RegKind, TextContext};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{BUILT_IN, Oid, TYPE_MARK, Type};

/// Reads a reg* value: a number, `-` for none, or a name that the catalog knows.
pub(super) fn parse(ty: Type, text: &str, context: &TextContext<'_>) -> SqlResult<Oid> {
    if text == "-" {
        return Ok(0);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_oid(text, Type::OID);
    }
    let Some(kind) = RegKind::of(ty) else {
        return Err(SqlError::unsupported(format!("to look up a {ty} by name")));
    };
    if kind == RegKind::Type
        && let Some(found) = built_in_type_by_name(text)
    {
        return Ok(found.0);
    }
    if let Some(oid) = context.catalog.reg_in(kind, text)? {
        return Ok(oid);
    }
    let (code, message) = match kind {
        RegKind::Class => {
            (SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", unquoted(text)))
        }
        RegKind::Type => (SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", unquoted(text))),
        RegKind::Namespace => {
            (SqlState::INVALID_SCHEMA, format!("schema \"{}\" does not exist", unquoted(text)))
        }
        RegKind::Role => (SqlState::UNDEFINED_OBJECT, format!("role \"{}\" does not exist", unquoted(text))),
        RegKind::Proc | RegKind::Procedure => {
            (SqlState::UNDEFINED_FUNCTION, format!("function \"{}\" does not exist", unquoted(text)))
        }
    };
    Err(SqlError::new(code, message))
}

/// A name as messages show it: without quotes.
fn unquoted(text: &str) -> String {
    text.trim().replace('"', "")
}

/// Appends a reg* value.
pub(super) fn format(ty: Type, oid: Oid, context: &TextContext<'_>, out: &mut String) {
    if oid == 0 {
        return out.push('-');
    }
    if ty == Type::REGTYPE
        && let Some(info) = Type(oid).info()
    {
        return out.push_str(info.sql_name);
    }
    match RegKind::of(ty).and_then(|kind| context.catalog.reg_out(kind, oid)) {
        Some(name) => out.push_str(&name),
        None => out.push_str(&oid.to_string()),
    }
}

/// Puts the names of a user's types in the place of the marks by which [`Type`]'s `Display` shows them.
pub fn name_types(text: &str, name: impl Fn(Type) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(TYPE_MARK) {
        let after = &rest[at + TYPE_MARK.len()..];
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        out.push_str(&rest[..at]);
        match after[..end].parse().ok().and_then(|oid| name(Type(oid))) {
            Some(name) => out.push_str(&name),
            None => out.push_str(&rest[at..at + TYPE_MARK.len() + end]),
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

/// A built-in type by any of its names, as `to_regtype` reads them: with `pg_catalog.`, with a
/// modifier, with `[]`, in any case unless quoted.
pub fn built_in_type_by_name(text: &str) -> Option<Type> {
    let trimmed = text.trim();
    if trimmed == "\"char\"" || trimmed == "pg_catalog.\"char\"" {
        return Some(Type::CHAR);
    }
    let folded = fold(trimmed);
    let mut name = folded.strip_prefix("pg_catalog.").unwrap_or(&folded).trim();
    let mut is_array = false;
    while let Some(inner) = name.strip_suffix("[]") {
        name = inner.trim_end();
        is_array = true;
    }
    // A modifier says nothing about the type: `varchar(10)`, `timestamp(3) with time zone`.
    let without_modifier = match (name.find('('), name.find(')')) {
        (Some(open), Some(close)) if open < close => {
            format!("{}{}", name[..open].trim_end(), &name[close + 1..])
        }
        _ => name.to_string(),
    };
    let name = match without_modifier.as_str() {
        "char" => "bpchar",
        "char varying" | "national character varying" => "varchar",
        other => other,
    };
    let ty = match Type::by_name(name) {
        Some(ty) => ty,
        None => BUILT_IN.iter().find(|info| info.sql_name == name && info.ty.0 != 0)?.ty,
    };
    if is_array { ty.array() } else { Some(ty) }
}

/// Lower case outside of double quotes, without the quotes.
fn fold(text: &str) -> String {
    let mut quoted = false;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if quoted => out.push(c),
            c => out.push(c.to_ascii_lowercase()),
        }
    }
    out
}

/// Words that must be quoted as identifiers: PostgreSQL's keywords that are not unreserved.
static KEYWORDS: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "national",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
    "xmlattributes",
    "xmlconcat",
    "xmlelement",
    "xmlexists",
    "xmlforest",
    "xmlnamespaces",
    "xmlparse",
    "xmlpi",
    "xmlroot",
    "xmlserialize",
    "xmltable",
];

/// An identifier, in double quotes if it needs them.
pub fn quote_identifier(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && KEYWORDS.binary_search(&name).is_err();
    if plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}
