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
use sql_types::SqlResult;
use sqlparser::ast::ObjectName;
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
