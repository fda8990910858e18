//! Spelling out what a text leaves to the catalog: the schemas of relations, and the columns of `*`.
//!
//! The text of a view is kept. With names spelled out when it is created, later changes of the search path or
//! new columns do not change what it means, and `pg_dump` can write it down for any search path.

use super::Binder;
use super::context::ExprContext;
use super::lookup::RelationRef;
use super::names::{QualifiedName, qualified};
use super::scope::{Scope, ScopeColumn};
use crate::ddl::tokens::quote_ident;
use sql_types::{Oid, SqlResult};
use sqlparser::ast::{self, ObjectName, ObjectNamePart, TableAlias};
use sqlparser::tokenizer::Span;

impl Binder<'_> {
    /// The text of views that are bound within has no source: what it leaves open is not of the text that is kept.
    fn spells_out(&self) -> bool {
        self.source.is_some()
    }

    /// The schema of a relation that was named without one.
    pub(super) fn spell_out_relation(&self, found: &RelationRef, written: &QualifiedName<'_>) {
        let oid = match found {
            RelationRef::Table(table) => table.oid,
            RelationRef::View(view) => view.oid,
            RelationRef::Sequence(oid, _) => *oid,
            // Of the catalog schema, which is always searched.
            _ => return,
        };
        if self.spells_out() {
            self.context.catalog.relation_named(written.span, oid);
        }
    }

    /// A relation that is read under a name in the text.
    pub(super) fn note_relation(&self, name: &ObjectName, relation: Oid, alias: Option<&TableAlias>) {
        let ident =
            |part: Option<&ObjectNamePart>| part.and_then(ObjectNamePart::as_ident).map(|ident| ident.span);
        let (Some(first), Some(last)) = (ident(name.0.first()), ident(name.0.last())) else { return };
        if !self.spells_out() {
            return;
        }
        self.context.catalog.relation_read(Span::new(first.start, last.end), relation, alias.is_some());
        if alias.is_some_and(|alias| !alias.columns.is_empty()) {
            self.context.catalog.columns_matched(relation, None);
        }
    }

    /// A whole row that is read.
    pub(super) fn note_row(&self, relation: Oid) {
        if self.spells_out() && relation != 0 {
            self.context.catalog.row_read(relation);
        }
    }

    /// A column that was found by its name in the text.
    pub(super) fn note_column(&self, column: &ScopeColumn, scope: &Scope<'_>, written: Span) {
        if let Some(relation) = self.relation_noted(column, scope) {
            self.context.catalog.column_named(written, relation, &column.name);
        }
    }

    /// A column that USING matches, or one of those that NATURAL may.
    pub(super) fn note_match(&self, column: &ScopeColumn, scope: &Scope<'_>, natural: bool) {
        if let Some(relation) = self.relation_noted(column, scope) {
            let column = if natural { None } else { Some(&*column.name) };
            self.context.catalog.columns_matched(relation, column);
        }
    }

    fn relation_noted(&self, column: &ScopeColumn, scope: &Scope<'_>) -> Option<Oid> {
        if !self.spells_out() {
            return None;
        }
        let relation = scope.relations.get(column.relation?)?;
        Some(relation.oid).filter(|oid| *oid != 0)
    }

    /// An item of a select list without an alias.
    pub(super) fn note_item(&self, item: &ast::Expr) {
        let written = match item {
            ast::Expr::Identifier(ident) => Some(ident.span),
            ast::Expr::CompoundIdentifier(parts) => parts.last().map(|ident| ident.span),
            _ => None,
        };
        if let Some(written) = written.filter(|_| self.spells_out()) {
            self.context.catalog.column_selected(written);
        }
    }

    /// The columns that `*` stands for.
    pub(super) fn spell_out_columns<'s, I: Iterator<Item = &'s ScopeColumn>>(
        &self,
        star: Span,
        scope: &Scope<'_>,
        columns: &dyn Fn() -> I,
    ) {
        if self.spells_out() && star.start.line > 0 {
            self.context.catalog.star_expanded(star, &|| listed(scope, columns(), false));
        }
    }

    /// The columns that `relation.*` stands for.
    pub(super) fn spell_out_relation_columns(
        &self,
        name: &ObjectName,
        star: Span,
        context: &ExprContext<'_>,
    ) -> SqlResult<()> {
        if !self.spells_out() {
            return Ok(());
        }
        let name = qualified(name)?;
        // What is wrong is reported by who expands it.
        let found = context.scope.find_relation(name.schema.as_deref(), &name.name).ok().flatten();
        if let Some((relation, depth)) = found
            && let Some(scope) = context.scope.ancestor(depth)
        {
            let written = Span::new(name.span.start, star.end);
            let text = || listed(scope, scope.relation_columns(relation), name.schema.is_some());
            self.context.catalog.star_expanded(written, &text);
        }
        Ok(())
    }
}

/// Columns as SQL names them. Their relations are named with their schemas only where the name alone stands for several
/// (or if `with_schema`), as PostgreSQL does.
fn listed<'s>(
    scope: &Scope<'_>,
    columns: impl Iterator<Item = &'s ScopeColumn>,
    with_schema: bool,
) -> String {
    let mut text = String::new();
    for column in columns {
        if !text.is_empty() {
            text.push_str(", ");
        }
        let relation = column.relation.and_then(|index| scope.relations.get(index));
        if let Some(name) = relation.and_then(|relation| relation.name.as_deref()) {
            let alike = scope.relations.iter().filter(|other| other.name.as_deref() == Some(name)).count();
            if (with_schema || alike > 1)
                && let Some(schema) = relation.and_then(|relation| relation.schema.as_deref())
            {
                text.push_str(&quote_ident(schema));
                text.push('.');
            }
            text.push_str(&quote_ident(name));
            text.push('.');
        }
        text.push_str(&quote_ident(&column.name));
    }
    text
}
