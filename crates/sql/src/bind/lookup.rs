//! What the binder asks of the catalog.

use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::routine::RoutineDescriptor;
use crate::catalog::user_type::TypeDescriptor;
use crate::plan::Expr;
use sql_types::{ColumnType, Oid, SqlResult, Type};
use sqlparser::tokenizer::Span;
use std::sync::Arc;

/// A relation found by name.
#[derive(Clone, Debug)]
pub enum RelationRef {
    /// A table.
    Table(Arc<TableDescriptor>),
    /// A view, to be expanded.
    View(ViewRef),
    /// A sequence, which can be read like a table of one row, and the value it starts with.
    Sequence(Oid, i64),
    /// A computed catalog table.
    System(SystemRef),
    /// An index or something else that has a name among relations but cannot be read.
    Other(&'static str),
}

/// A view.
#[derive(Clone, Debug)]
pub struct ViewRef {
    /// Its OID.
    pub oid: Oid,
    /// Role that owns it, with whose rights it reads.
    pub owner: Oid,
    /// Its columns.
    pub columns: Arc<[(String, ColumnType)]>,
    /// Its query, as SQL text with qualified names (or names that the schemas below resolve).
    pub query: Arc<str>,
    /// The search path under which the query was written.
    pub search_path: Arc<[String]>,
}

/// A computed catalog table.
#[derive(Clone, Copy, Debug)]
pub struct SystemRef {
    /// `schema.name`, as `PlanKind::SystemScan` names it.
    pub name: &'static str,
    /// Its OID.
    pub oid: Oid,
    /// Names and types of its columns.
    pub columns: &'static [(&'static str, Type)],
}

/// What the binder asks of a catalog snapshot. Names are as in the catalog: folded to lower case
/// unless they were quoted.
pub trait CatalogLookup: Sync {
    /// A relation: in the schema if one is given, else in the first schema of the search path that
    /// has it (`pg_catalog` is searched first unless the path names it).
    fn relation(
        &self,
        schema: Option<&str>,
        name: &str,
        search_path: &[String],
    ) -> SqlResult<Option<RelationRef>>;

    /// Whether a schema exists, to tell which part of a name is wrong.
    fn schema_exists(&self, schema: &str) -> bool;

    /// Name of the current database, which a three-part name may spell out.
    fn database(&self) -> &str;

    /// Name of the schema of a table, for error messages and `schema.table.column`.
    fn schema_name(&self, oid: Oid) -> Option<String>;

    /// A type that is not built in: an enum, domain or composite.
    fn type_by_name(
        &self,
        _schema: Option<&str>,
        _name: &str,
        _search_path: &[String],
    ) -> Option<ColumnType> {
        None
    }

    /// The user's functions of a name: in the schema if one is given, else along the search path, where those that
    /// others hide are left out.
    fn routines(
        &self,
        _schema: Option<&str>,
        _name: &str,
        _search_path: &[String],
    ) -> Vec<Arc<RoutineDescriptor>> {
        Vec::new()
    }

    /// Told which of the user's functions is called.
    fn routine_called(&self, _oid: Oid) {}

    /// Told which relation a name without a schema stands for in the text that is bound: for who keeps the text
    /// and must not have it mean something else later.
    fn relation_named(&self, _written: Span, _oid: Oid) {}

    /// Told which relation a name stands for in the text that is bound, and whether it has an alias.
    fn relation_read(&self, _written: Span, _oid: Oid, _aliased: bool) {}

    /// Told that a name in the text that is bound is that of a column of a relation.
    fn column_named(&self, _written: Span, _relation: Oid, _column: &str) {}

    /// Told that an item of a select list is nothing but the name of a column, which is given here, and has no alias.
    fn column_selected(&self, _written: Span) {}

    /// Told that whole rows of a relation are read.
    fn row_read(&self, _relation: Oid) {}

    /// Told that a column of a relation is matched by its name (USING), or any may be (NATURAL) or has got another name.
    fn columns_matched(&self, _relation: Oid, _column: Option<&str>) {}

    /// Told which columns a `*` stands for, as SQL.
    fn star_expanded(&self, _written: Span, _columns: &dyn Fn() -> String) {}

    /// The type a domain is over; `None` if it is no domain.
    fn domain(&self, _ty: Type) -> Option<ColumnType> {
        None
    }

    /// A domain and those it was made of, the outermost first; empty if it is no domain.
    fn domains(&self, _ty: Type) -> Vec<Arc<TypeDescriptor>> {
        Vec::new()
    }

    /// Whether the policies of a table apply to a role.
    fn secures(&self, _table: &TableDescriptor, _role: Oid) -> bool {
        false
    }

    /// Whether `role` is `group`, or a member of it however indirectly.
    fn is_member(&self, role: Oid, group: Oid) -> bool {
        role == group
    }

    /// A default or CHECK expression of a table already bound, if the snapshot keeps them.
    fn cached_expr(&self, _table: Oid, _text: &str) -> Option<Expr> {
        None
    }
}
