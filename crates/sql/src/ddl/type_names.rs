//! How stored expressions name a user's types.
//!
//! Defaults, CHECK constraints and views are stored as text. Where that names a user's type it is stored as a quoted
//! name that holds the type's OID, `"type#1073758224"`, which is looked up as such: the type can then get another
//! name or schema, and what depends on it is found. What shows a stored text puts the present name there.
//!
//! Labels stay as they were written. When one is renamed, expressions that no longer can be bound get the new one.
//! Expressions of indexes have no session to read labels with: they hold ranks in their place, which never change.

use super::DdlContext;
use super::tokens::{Cursor, Name, quote_literal};
use crate::bind;
use crate::catalog::descriptor::{MaterializedView, TableDescriptor};
use crate::session::view::SessionView;
use sql_types::types::TYPE_MARK;
use sql_types::{Oid, SqlError, SqlResult, Type};
use sqlparser::tokenizer::Token;
use std::sync::Arc;

/// A type as stored expressions name it.
pub(super) fn mark(oid: Oid) -> String {
    format!("\"{TYPE_MARK}{oid}\"")
}

/// Puts names in the place of the marks.
pub(crate) fn unmark(text: &str, name: impl Fn(Type) -> Option<String>) -> String {
    let open = format!("\"{TYPE_MARK}");
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(&open) {
        let after = &rest[at + open.len()..];
        let Some((number, behind)) = after.split_once('"') else { break };
        out.push_str(&rest[..at]);
        match number.parse().ok().and_then(|oid| name(Type(oid))) {
            Some(name) => out.push_str(&name),
            None => out.push_str(&rest[at..rest.len() - behind.len()]),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Which open parentheses belong to `CAST(… AS type)`, as one walks over tokens.
#[derive(Default)]
struct Casts {
    open: Vec<bool>,
    after_cast: bool,
}

impl Casts {
    /// Takes in the next token.
    fn see(&mut self, cursor: &Cursor) {
        match cursor.peek() {
            Some(Token::LParen) => self.open.push(self.after_cast),
            Some(Token::RParen) => {
                self.open.pop();
            }
            _ => {}
        }
        self.after_cast = cursor.at_words("cast");
    }

    /// Whether AS here precedes a type.
    fn at_as(&self, cursor: &Cursor) -> bool {
        self.open.last() == Some(&true) && cursor.at_words("as")
    }
}

impl DdlContext<'_> {
    /// An expression or query with its user's types named by OID.
    pub(super) fn stable_types(&self, text: &str) -> SqlResult<String> {
        if self.catalog.types.is_empty() {
            return Ok(text.to_string());
        }
        let mut cursor = Cursor::new(text)?;
        let mut casts = Casts::default();
        let mut out = String::with_capacity(text.len() + 16);
        // Where what is not written yet begins.
        let mut from = 0;
        while !cursor.is_end() {
            let precedes = cursor.peek() == Some(&Token::DoubleColon) || casts.at_as(&cursor);
            casts.see(&cursor);
            if precedes {
                cursor.advance();
            }
            let start = cursor.position();
            let named = if matches!(cursor.peek(), Some(Token::Word(_))) { cursor.name().ok() } else { None };
            let oid = named.as_ref().filter(|_| precedes || cursor.at_string()).and_then(|n| self.mark_of(n));
            match oid {
                Some(oid) => {
                    let before = cursor.text(from, start);
                    out.push_str(&before);
                    put_apart(&mark(oid), &before, &cursor, &mut out);
                    from = cursor.position();
                }
                None => {
                    cursor.rewind(start);
                    if !precedes {
                        cursor.advance();
                    }
                }
            }
        }
        out.push_str(&cursor.text(from, cursor.position()));
        Ok(if from == 0 { text.to_string() } else { out })
    }

    fn mark_of(&self, name: &Name) -> Option<Oid> {
        if name.schema.is_none() && Type::by_name(&name.name).is_some() {
            return None;
        }
        self.find_type(name).map(|found| found.oid)
    }

    /// Makes sure that all stored expressions can still be bound after a change of a type. Those that cannot have
    /// labels replaced as given. What then cannot be bound either refuses the change.
    pub(super) fn mend_expressions(&mut self, labels: &[(&str, &str)]) -> SqlResult<()> {
        self.catalog.finish();
        let database = self.database();
        let mut session = self.working_view()?;
        let tables: Vec<Arc<TableDescriptor>> =
            self.catalog.tables.values().filter(|table| table.database == database).cloned().collect();
        for table in tables {
            if let Some(changed) = self.mended_table(&session, &table, labels)? {
                self.put_table(changed)?;
            }
        }
        let views: Vec<_> =
            self.catalog.views.values().filter(|view| view.database == database).cloned().collect();
        // A view may read another, which was made before.
        for view in views {
            if let Some(query) = self.mended_query(&session, &view.query, &view.search_path, labels)? {
                let mut changed = (*view).clone();
                changed.query = query;
                self.put_view(changed)?;
                session = self.working_view()?;
            }
        }
        let tables: Vec<_> =
            self.catalog.tables.values().filter(|table| table.database == database).cloned().collect();
        for table in tables {
            let Some(view) = &table.view else { continue };
            if let Some(query) = self.mended_query(&session, &view.query, &view.search_path, labels)? {
                let mut changed = (*table).clone();
                changed.view = Some(Arc::new(MaterializedView { query, ..(**view).clone() }));
                self.put_table(changed)?;
            }
        }
        Ok(())
    }

    /// The query of a view mended, if it had to be.
    fn mended_query(
        &self,
        session: &SessionView,
        query: &str,
        search_path: &[String],
        labels: &[(&str, &str)],
    ) -> SqlResult<Option<String>> {
        let eval = session.eval(self.times);
        let context = bind::BindContext { search_path, ..session.bind_context(&eval, &[]) };
        mend(query, labels, |text| bind::bind_statement(&crate::parse::parse_one(text)?, &context).map(drop))
    }

    /// A table with its expressions mended, if any of them had to be.
    fn mended_table(
        &self,
        session: &SessionView,
        table: &Arc<TableDescriptor>,
        labels: &[(&str, &str)],
    ) -> SqlResult<Option<TableDescriptor>> {
        let eval = session.eval(self.times);
        let context = session.bind_context(&eval, &[]);
        let mut changed = (**table).clone();
        for (column, old) in changed.columns.iter_mut().zip(&table.columns) {
            // That of the hidden `rowid` is no text that is bound.
            let Some(text) = old.default.as_ref().filter(|_| !old.hidden) else { continue };
            let mended = mend(text, labels, |text| {
                bind::Binder::new(&context, None, 0).default_expr(text, old).map(drop)
            })?;
            column.default = mended.or_else(|| Some(text.clone()));
        }
        for check in &mut changed.checks {
            let mended = mend(&check.expr, labels, |text| bind::bind_check(text, table, &context).map(drop))?;
            check.expr = mended.unwrap_or_else(|| std::mem::take(&mut check.expr));
        }
        for policy in &mut changed.security.policies {
            let context = bind::BindContext { search_path: &policy.search_path, ..context };
            for condition in [&mut policy.using, &mut policy.check].into_iter().flatten() {
                let mended = mend(condition, labels, |text| {
                    bind::bind_policy(&crate::parse::parse_expr(text)?, None, table, &context).map(drop)
                })?;
                *condition = mended.unwrap_or_else(|| std::mem::take(condition));
            }
        }
        Ok((changed != **table).then_some(changed))
    }
}

/// The text that can be bound, if it is another.
fn mend(
    text: &str,
    labels: &[(&str, &str)],
    bind: impl Fn(&str) -> SqlResult<()>,
) -> SqlResult<Option<String>> {
    let Err(error) = bind(text) else { return Ok(None) };
    let replaced = replace_strings(text, labels)?;
    if replaced != text && bind(&replaced).is_ok() {
        return Ok(Some(replaced));
    }
    Err(SqlError::unsupported("this change of a type while an expression names it")
        .with_detail(format!("In \"{text}\": {}", error.message)))
}

/// Appends a token in the place of another, with blanks around it where the tokens beside it may need them.
fn put_apart(token: &str, before: &str, next: &Cursor, out: &mut String) {
    if !before.is_empty() && !before.ends_with(['(', '[', ':']) {
        out.push(' ');
    }
    out.push_str(token);
    let close = [Token::RParen, Token::RBracket, Token::LBracket, Token::Comma, Token::DoubleColon];
    if next.peek().is_some_and(|next| !close.contains(next)) {
        out.push(' ');
    }
}

/// Replaces string constants as a whole.
fn replace_strings(text: &str, replacements: &[(&str, &str)]) -> SqlResult<String> {
    let mut cursor = Cursor::new(text)?;
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    while !cursor.is_end() {
        let at = cursor.position();
        let string = if cursor.at_string() { Some(cursor.string()?) } else { None };
        match string.and_then(|string| replacements.iter().find(|(old, _)| *old == string)) {
            Some((_, new)) => {
                let before = cursor.text(from, at);
                out.push_str(&before);
                put_apart(&quote_literal(new), &before, &cursor, &mut out);
                from = cursor.position();
            }
            None => {
                cursor.rewind(at);
                cursor.advance();
            }
        }
    }
    out.push_str(&cursor.text(from, cursor.position()));
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_replaced_whole() {
        let replaced = |text: &str| replace_strings(text, &[("red", "it's")]).unwrap();
        assert_eq!(replaced("c = 'red' OR c = 'redder'"), "c = 'it''s' OR c = 'redder'");
        assert_eq!(replaced("'red'::\"type#1\""), "'it''s'::\"type#1\"");
        assert_eq!(replaced("CASE WHEN 'red' = c THEN 1 END"), "CASE WHEN 'it''s' = c THEN 1 END");
    }

    #[test]
    fn marks_become_names() {
        let named = |text: &str| unmark(text, |ty| (ty.0 == 7).then(|| "color".to_string()));
        assert_eq!(named("'a'::\"type#7\"[]"), "'a'::color[]");
        assert_eq!(named("'a'::\"type#8\" \"type#"), "'a'::\"type#8\" \"type#");
    }
}
