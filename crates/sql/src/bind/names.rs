//! Identifiers and qualified names.

use crate::system::is_column_name;
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use sqlparser::tokenizer::Span;
use std::borrow::Cow;

/// Longest identifier in bytes; longer ones are cut off.
pub(crate) const MAX_NAME: usize = 63;

/// The name an identifier stands for: folded to lower case unless quoted, cut off after 63 bytes.
pub fn ident_name(ident: &Ident) -> Cow<'_, str> {
    let name = &ident.value;
    let folded = if ident.quote_style.is_none() && name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name.as_str())
    };
    if folded.len() <= MAX_NAME {
        return folded;
    }
    let mut end = MAX_NAME;
    while !folded.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(folded[..end].to_string())
}

/// A name of one to three parts.
pub(crate) struct QualifiedName<'n> {
    pub database: Option<Cow<'n, str>>,
    pub schema: Option<Cow<'n, str>>,
    pub name: Cow<'n, str>,
    pub span: Span,
}

impl QualifiedName<'_> {
    /// As it was written, without quotes: for error messages.
    pub(crate) fn written(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}", self.name),
            None => self.name.to_string(),
        }
    }
}

fn part(part: &ObjectNamePart) -> SqlResult<&Ident> {
    match part {
        ObjectNamePart::Identifier(ident) => Ok(ident),
        ObjectNamePart::Function(_) => {
            Err(SqlError::new(SqlState::SYNTAX_ERROR, "a function call is not a name"))
        }
    }
}

/// Takes the name of a table apart, which unquoted is no reserved word.
pub(crate) fn relation(name: &ObjectName) -> SqlResult<QualifiedName<'_>> {
    if let Some(ObjectNamePart::Identifier(first)) = name.0.first() {
        column(first)?;
    }
    qualified(name)
}

/// The name of a column, which unquoted is no reserved word.
pub(crate) fn column(ident: &Ident) -> SqlResult<Cow<'_, str>> {
    let name = ident_name(ident);
    if ident.quote_style.is_none() && !is_column_name(&name) {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("syntax error at or near \"{}\"", ident.value),
        ));
    }
    Ok(name)
}

/// Takes a qualified name apart.
pub(crate) fn qualified(name: &ObjectName) -> SqlResult<QualifiedName<'_>> {
    let parts: Vec<&Ident> = name.0.iter().map(part).collect::<SqlResult<_>>()?;
    let span = parts.first().map_or_else(Span::empty, |ident| ident.span);
    let names: Vec<Cow<'_, str>> = parts.iter().map(|ident| ident_name(ident)).collect();
    let mut reversed = names.into_iter().rev();
    let Some(last) = reversed.next() else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "zero-length name"));
    };
    let (schema, database) = (reversed.next(), reversed.next());
    if reversed.next().is_some() {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            format!("improper qualified name (too many dotted names): {name}"),
        ));
    }
    Ok(QualifiedName { database, schema, name: last, span })
}

/// Schema (if given) and name of a possibly qualified name. A database in front is ignored.
pub fn object_name(name: &ObjectName) -> SqlResult<(Option<String>, String)> {
    let name = qualified(name)?;
    Ok((name.schema.map(Cow::into_owned), name.name.into_owned()))
}
