//! Which schema changes are about temporary objects alone: they lock nothing that others wait for.

use super::statement::{Ddl, ObjectKind};
use super::tokens::Name;
use crate::catalog::Relation;
use crate::catalog::oids;
use crate::catalog::temporary::PG_TEMP;
use crate::session::view::SessionView;

/// Whether a schema change makes a temporary object.
pub(crate) fn makes_temporary(ddl: &Ddl) -> bool {
    let name = match ddl {
        Ddl::CreateTable(table) => table.name.as_ref(),
        Ddl::CreateTableAs { name, .. } | Ddl::CreateSequence { name, .. } | Ddl::CreateView { name, .. } => {
            Some(name)
        }
        _ => None,
    };
    name.is_some_and(|name| name.schema.as_deref() == Some(PG_TEMP))
}

/// Whether a schema change concerns temporary objects of the session and nothing else.
pub(crate) fn only_temporary(ddl: &Ddl, view: &SessionView) -> bool {
    use ObjectKind::{Column, Constraint, Index, Sequence, Table, View};
    let ours = |name: &Name| is_temporary(name, view);
    match ddl {
        Ddl::CreateIndex(index) => ours(&index.table),
        Ddl::AlterTable { name, .. } | Ddl::AlterSequence { name, .. } => ours(name),
        Ddl::Truncate { tables, .. } => tables.iter().all(ours),
        Ddl::Drop { kind: Table | View | Sequence | Index, names, .. } => names.iter().all(ours),
        Ddl::Comment { kind: Table | View | Sequence | Index | Column | Constraint, name, .. } => ours(name),
        _ => makes_temporary(ddl),
    }
}

fn is_temporary(name: &Name, view: &SessionView) -> bool {
    let catalog = view.snapshot();
    let schema = match view.catalog.find(name.schema.as_deref(), &name.name, &view.path) {
        Some(Relation::Table(oid) | Relation::MaterializedView(oid) | Relation::Index(_, oid, _)) => {
            catalog.table(oid).map(|table| table.schema)
        }
        Some(Relation::View(oid)) => catalog.views.get(&oid).map(|view| view.schema),
        Some(Relation::Sequence(oid)) => catalog.sequences.get(&oid).map(|sequence| sequence.schema),
        None => None,
    };
    schema == Some(oids::PG_TEMP)
}
