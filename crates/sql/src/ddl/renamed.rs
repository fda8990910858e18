//! Views follow renames: the texts of their queries name what got another name.
//!
//! A text is bound, and where it names the relation or the column, the new name is written: behind the name of a relation
//! the old one as its alias, and behind a column that is an item of a select list the old one as the name of the result,
//! so that all else that is written still means the same.
//!
//! Not followed, but refused: columns that USING or NATURAL match, and relations with aliases for their columns.

use super::DdlContext;
use super::tokens::quote_ident;
use super::view::{Noting, Renamed};
use crate::bind::{self, BindContext};
use crate::catalog::descriptor::MaterializedView;
use crate::catalog::{Reader, Relation};
use sql_types::{Oid, SqlError, SqlResult};
use std::sync::Arc;

/// A view with the query that it is to have.
pub(super) struct Rewritten {
    view: Relation,
    name: String,
    query: String,
}

impl DdlContext<'_> {
    /// The queries of the views that read a relation, with a column of it renamed. `what` says what is done.
    pub(super) fn with_column_renamed(
        &self,
        relation: Oid,
        from: &str,
        to: &str,
        what: &str,
    ) -> SqlResult<Vec<Rewritten>> {
        self.rewritten(relation, what, || Renamed::column(relation, from, quote_ident(to)))
    }

    /// The queries of the views that read a relation, with the relation's schema and name being others.
    pub(super) fn with_relation_renamed(
        &self,
        relation: Oid,
        from: &str,
        to: (Oid, &str),
        what: &str,
    ) -> SqlResult<Vec<Rewritten>> {
        let schema = self.catalog.schema_name(self.database(), to.0).unwrap_or_default();
        let full = format!("{}.{}", quote_ident(schema), quote_ident(to.1));
        self.rewritten(relation, what, || Renamed::relation(relation, from, full.clone()))
    }

    fn rewritten(
        &self,
        relation: Oid,
        what: &str,
        renamed: impl Fn() -> Renamed,
    ) -> SqlResult<Vec<Rewritten>> {
        self.refuse_policies_of(relation, what)?;
        let readers = self.catalog.readers(relation);
        let mut rewritten = Vec::with_capacity(readers.len());
        if readers.is_empty() {
            return Ok(rewritten);
        }
        let session = self.working_view()?;
        let eval = session.eval(self.times);
        for reader in readers {
            let Some((query, search_path)) = self.query_of(&reader.relation) else { continue };
            let noting = Noting::renaming(&session, renamed());
            let context = BindContext {
                catalog: &noting,
                search_path: &search_path,
                ..session.bind_context(&eval, &[])
            };
            let statement = crate::parse::parse_one(&query)?;
            bind::bind_statement(&statement, &context)?;
            if noting.is_matched() {
                return Err(not_followed(what, &reader.name));
            }
            let query = noting.spelled_out(&statement.source);
            rewritten.push(Rewritten { view: reader.relation, name: reader.name, query });
        }
        Ok(rewritten)
    }

    /// The views that read a column of a relation, by its name or among all.
    pub(super) fn readers_of_column(&self, relation: Oid, column: &str) -> SqlResult<Vec<Reader>> {
        let mut readers = self.catalog.readers(relation);
        if readers.is_empty() {
            return Ok(readers);
        }
        let session = self.working_view()?;
        let eval = session.eval(self.times);
        readers.retain(|reader| {
            let Some((query, search_path)) = self.query_of(&reader.relation) else { return true };
            let noting = Noting::renaming(&session, Renamed::column(relation, column, String::new()));
            let context = BindContext {
                catalog: &noting,
                search_path: &search_path,
                ..session.bind_context(&eval, &[])
            };
            let bound = crate::parse::parse_one(&query)
                .and_then(|statement| bind::bind_statement(&statement, &context).map(drop));
            bound.is_err() || noting.is_used()
        });
        Ok(readers)
    }

    fn query_of(&self, view: &Relation) -> Option<(String, Vec<String>)> {
        match view {
            Relation::View(oid) => {
                self.catalog.views.get(oid).map(|view| (view.query.clone(), view.search_path.clone()))
            }
            Relation::MaterializedView(oid) => {
                let view = self.catalog.tables.get(oid)?.view.clone()?;
                Some((view.query.clone(), view.search_path.clone()))
            }
            _ => None,
        }
    }

    /// Gives views their queries, once the change is made that these are for.
    pub(super) fn rewrite_views(&mut self, views: Vec<Rewritten>, what: &str) -> SqlResult<()> {
        for Rewritten { view, name, query } in views {
            let names = self.names_of(&view, &query).map_err(|_| not_followed(what, &name))?;
            match view {
                Relation::View(oid) => {
                    let Some(old) = self.catalog.views.get(&oid).cloned() else { continue };
                    if names.len() != old.columns.len() {
                        return Err(not_followed(what, &name));
                    }
                    let mut changed = (*old).clone();
                    changed.renamed |= old.columns.iter().zip(&names).any(|((own, _), name)| own != name);
                    changed.query = query;
                    self.put_view(changed)?;
                }
                Relation::MaterializedView(oid) => {
                    let table = self.table_by_oid(oid)?;
                    let Some(old) = &table.view else { continue };
                    let mut columns = table.columns.iter().filter(|column| !column.hidden).zip(&names);
                    let renamed = old.renamed || columns.any(|(own, name)| own.name != *name);
                    let mut changed = (*table).clone();
                    changed.view = Some(Arc::new(MaterializedView { query, renamed, ..(**old).clone() }));
                    self.put_table(changed)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The names of the columns that a query gives in the place of that of a view.
    fn names_of(&self, view: &Relation, query: &str) -> SqlResult<Vec<String>> {
        let Some((_, search_path)) = self.query_of(view) else { return Ok(Vec::new()) };
        let session = self.working_view()?;
        let eval = session.eval(self.times);
        let context = BindContext { search_path: &search_path, ..session.bind_context(&eval, &[]) };
        let bound = bind::bind_statement(&crate::parse::parse_one(query)?, &context)?;
        Ok(bound.columns.unwrap_or_default().iter().map(|column| column.name.to_string()).collect())
    }
}

/// 0A000
fn not_followed(what: &str, view: &str) -> SqlError {
    SqlError::unsupported(format!("to {what} while view \"{view}\" reads it as it does"))
        .with_hint("Drop the view, make the change, and create the view again.")
}
