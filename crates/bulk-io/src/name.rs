//! Names in SQL.

use crate::error::{Error, Result};

/// Longest name that PostgreSQL keeps, in bytes.
const LONGEST: usize = 63;

/// A name as an identifier.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Names as a list of identifiers.
pub fn identifiers<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    names.into_iter().map(|name| identifier(name)).collect::<Vec<_>>().join(", ")
}

/// Reads the name of a table as SQL writes it (`t`, `public.t`, `"My Table"`) and returns it quoted.
///
/// # Errors
/// If it is not a name of one or two parts.
pub fn table(text: &str) -> Result<String> {
    let bad = || Error::new(format!("{text} is not the name of a table"));
    let mut parts = Vec::new();
    let mut rest = text.trim();
    loop {
        let (part, after) = part(rest).ok_or_else(bad)?;
        parts.push(part);
        match after.strip_prefix('.') {
            Some(more) => rest = more,
            None if after.is_empty() && parts.len() <= 2 => return Ok(quoted(&parts)),
            None => return Err(bad()),
        }
    }
}

fn quoted(parts: &[String]) -> String {
    parts.iter().map(|part| identifier(part)).collect::<Vec<_>>().join(".")
}

/// The first part of a name, and what follows it.
fn part(text: &str) -> Option<(String, &str)> {
    let Some(inside) = text.strip_prefix('"') else {
        let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len());
        let starts_well = text.starts_with(|c: char| c.is_alphabetic() || c == '_');
        return starts_well.then(|| (text[..end].to_lowercase(), &text[end..]));
    };
    let mut name = String::new();
    let mut rest = inside;
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                name.push('"');
                rest = more;
            }
            None => return (!name.is_empty()).then_some((name, rest)),
        }
    }
}

/// Names of columns to make a table of: no two are the same, none is empty or too long.
///
/// # Errors
/// If they are not so.
pub fn check_columns(names: &[String]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for (position, name) in names.iter().enumerate() {
        let number = position + 1;
        if name.is_empty() || name.len() > LONGEST || name.contains('\0') {
            return Err(Error::new(format!(
                "the name of column {number} is empty or longer than {LONGEST} bytes"
            ))
            .hint("Name the columns with --columns."));
        }
        if !seen.insert(name) {
            return Err(
                Error::new(format!("two columns are called {name}")).hint("Name the columns with --columns.")
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        for (text, wanted) in [
            ("t", "\"t\""),
            ("Public.T", "\"public\".\"t\""),
            ("\"My \"\"Table\".x", "\"My \"\"Table\".\"x\""),
            ("straße", "\"straße\""),
        ] {
            assert_eq!(table(text).unwrap(), wanted);
        }
        for text in ["", "a b", "a;drop", "a.b.c", "\"a", "\"\"", "1a", "a.", "(select 1)", "a--"] {
            assert!(table(text).is_err(), "{text}");
        }
    }

    #[test]
    fn columns() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(check_columns(&names(&["a", "A", "b c"])).is_ok());
        assert!(check_columns(&names(&["a", ""])).is_err());
        assert!(check_columns(&names(&["a", "a"])).is_err());
        assert_eq!(identifiers(&names(&["a", "b\"c"])), "\"a\", \"b\"\"c\"");
    }
}
