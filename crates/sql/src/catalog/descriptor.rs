//! Descriptors: the catalog's records, stored one to a key in the tenant's keyspace.
//!
//! A descriptor is a format byte followed by JSON. Descriptors are immutable once read and shared by
//! plans; a change writes a new one with `version + 1`.

use super::OnCommit;
use super::policy::RowSecurity;
use super::routine::TriggerDescriptor;
use crate::inverted::OperatorClass;
use crate::statistics::StatisticsCell;
use crate::table::BoundIndexes;
use serde::{Deserialize, Serialize};
use sql_types::{ColumnType, Oid, Type};
use std::sync::Arc;

/// Names a column within its table, from 1 in order of creation; the same as `attnum`. Never reused.
pub type ColumnId = u32;
/// Names an index within its table, from 1; the primary index is [`PRIMARY_INDEX`]. Never reused.
pub type IndexId = u32;
/// Stands for an expression among the columns of an index.
pub const EXPRESSION: ColumnId = 0;
/// The index that holds the rows.
pub const PRIMARY_INDEX: IndexId = 1;
/// First OID given to a user's object.
pub const FIRST_USER_OID: Oid = 16384;

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its database.
    pub database: Oid,
    /// Its schema.
    pub schema: Oid,
    /// Its name.
    pub name: String,
    /// Role that owns it.
    pub owner: Oid,
    /// Counts changes.
    pub version: u64,
    /// Names the keys of its contents: `/<storage>/<index>/…`. TRUNCATE gives a new one.
    pub storage: u64,
    /// Live columns, in order of creation. Dropped ones are gone; rows may still hold their values.
    pub columns: Vec<ColumnDescriptor>,
    /// Next column id.
    pub next_column: ColumnId,
    /// The indexes, primary first. A table without primary key has one over the hidden column
    /// `rowid` (bigint, default `unique_rowid()`), marked [`ColumnDescriptor::hidden`].
    pub indexes: Vec<IndexDescriptor>,
    /// Next index id.
    pub next_index: IndexId,
    /// CHECK constraints.
    pub checks: Vec<CheckDescriptor>,
    /// Foreign keys.
    pub foreign_keys: Vec<ForeignKeyDescriptor>,
    /// `COMMENT ON`.
    pub comment: Option<String>,
    /// Where its contents are kept, and who serves them.
    #[serde(default, skip_serializing_if = "TablePlacement::is_default")]
    pub placement: TablePlacement,
    /// What it is a materialized view of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<Arc<MaterializedView>>,
    /// Its triggers, in the order of their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerDescriptor>,
    /// Who may see and write which of its rows.
    #[serde(default, skip_serializing_if = "RowSecurity::is_default")]
    pub security: RowSecurity,
    /// What happens to it at a commit, if it is temporary.
    #[serde(skip)]
    pub on_commit: OnCommit,
    /// What the expressions of its indexes are once they are bound.
    #[serde(skip)]
    pub bound: BoundIndexes,
    /// What is known of its contents, which is stored apart.
    #[serde(skip)]
    pub statistics: StatisticsCell,
}

/// Where the contents of a table are kept, and who serves them; what is empty is as for the tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePlacement {
    /// `key=value` pairs of which every node with a replica has all.
    #[serde(default)]
    pub constraints: Vec<String>,
    /// `key=value` pairs, the dearest first: leases go to a node that has it.
    #[serde(default)]
    pub lease_preferences: Vec<String>,
    /// Whether every replica serves reads of the present, for which commits wait.
    #[serde(default)]
    pub global_reads: bool,
}

impl TablePlacement {
    /// Whether the table is kept as the tenant.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The query of a materialized view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaterializedView {
    /// As [`ViewDescriptor::query`].
    pub query: String,
    /// Whether its columns were given names other than those of the query.
    pub renamed: bool,
    /// The search path it was written under.
    pub search_path: Vec<String>,
    /// Tables and views it reads.
    pub depends_on: Vec<Oid>,
    /// Whether it has been computed; it cannot be read before.
    pub populated: bool,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnDescriptor {
    /// Its id.
    pub id: ColumnId,
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: ColumnType,
    /// Whether NULL is allowed.
    pub nullable: bool,
    /// Default, as SQL text.
    pub default: Option<String>,
    /// Value that rows written before the column was added have for it, as SQL text of a literal.
    pub added_value: Option<String>,
    /// `GENERATED … AS IDENTITY`: ALWAYS (`a`) or BY DEFAULT (`d`).
    pub identity: Option<char>,
    /// OID of the sequence that belongs to the column (serial, identity).
    pub sequence: Option<Oid>,
    /// Not shown by `*` nor in catalogs.
    pub hidden: bool,
    /// `COMMENT ON`.
    pub comment: Option<String>,
    /// The domain the column was given as its type. `ty` is what that is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<Oid>,
    /// `GENERATED ALWAYS AS (…) STORED`: the expression over the other columns of the row, as SQL text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<String>,
}

impl ColumnDescriptor {
    /// A column that takes any value of its type, and has no default.
    pub fn plain(id: ColumnId, name: impl Into<String>, ty: ColumnType) -> Self {
        ColumnDescriptor {
            id,
            name: name.into(),
            ty,
            nullable: true,
            default: None,
            added_value: None,
            identity: None,
            sequence: None,
            hidden: false,
            comment: None,
            domain: None,
            generated: None,
        }
    }
}

/// When a constraint is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// DEFERRABLE: at the end of the statement or, if a transaction wants that, of the transaction.
    pub deferrable: bool,
    /// INITIALLY DEFERRED: transactions begin with wanting it.
    pub deferred: bool,
}

/// An expression among the columns of an index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexExpression {
    /// The expression over the columns of the table, as SQL text.
    pub text: String,
    /// What the column of the index is called.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// What statements do with an index: the states of an index that comes or goes while its table is written to
/// (`ddl::online`). Neighbouring states are safe beside each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexState {
    /// Entries are removed with their rows, and no others written.
    DeleteOnly,
    /// Entries are kept like those of any index, and not read: there may be rows that have none yet.
    WriteOnly,
    /// It has all rows.
    #[default]
    Public,
}

impl IndexState {
    /// Whether it is [`IndexState::Public`].
    pub fn is_public(&self) -> bool {
        *self == IndexState::Public
    }
}

/// An index.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IndexDescriptor {
    /// Its id within the table.
    pub id: IndexId,
    /// Its OID.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// Whether it is unique.
    pub unique: bool,
    /// Whether a UNIQUE or PRIMARY KEY constraint made it.
    pub constraint: bool,
    /// The key columns and whether each is descending. Column 0 stands for the next of `expressions`.
    pub columns: Vec<(ColumnId, bool)>,
    /// The expressions among the key columns, in their order.
    #[serde(default)]
    pub expressions: Vec<IndexExpression>,
    /// WHERE: the index has the rows for which this condition, as SQL text, is true; all if `None`.
    #[serde(default)]
    pub predicate: Option<String>,
    /// INCLUDE: columns named with the index. They take no part in its keys and are not kept in it.
    #[serde(default)]
    pub included: Vec<ColumnId>,
    /// NULLS NOT DISTINCT: in a unique index NULL is a value like others, that one row may have. Says nothing in others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nulls_not_distinct: bool,
    /// When uniqueness is checked. The keys of a deferrable index need not be unique meanwhile, and lie like
    /// those of an index that is not.
    #[serde(default)]
    pub timing: Timing,
    /// What an inverted index has entries of; its one key column has the values they lie in. `None` for an ordered index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inverted: Option<OperatorClass>,
    /// Whether it is complete.
    #[serde(default, skip_serializing_if = "IndexState::is_public")]
    pub state: IndexState,
    /// `COMMENT ON`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// `COMMENT ON` the constraint that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint_comment: Option<String>,
}

impl IndexDescriptor {
    /// Whether statements may read it.
    pub fn is_public(&self) -> bool {
        self.state.is_public()
    }

    /// Whether no two rows of the table can ever have the same values, none of them NULL, in exactly these
    /// columns: what a foreign key may refer to and plans may rely on.
    pub fn is_key(&self) -> bool {
        self.unique
            && !self.timing.deferrable
            && self.predicate.is_none()
            && self.expressions.is_empty()
            && self.is_public()
    }

    /// Whether it is over columns alone, and is to have every row in their order.
    pub fn is_plain(&self) -> bool {
        self.predicate.is_none() && self.expressions.is_empty() && self.inverted.is_none()
    }

    /// The key columns: id (0 for an expression), the expression, and whether it is descending.
    pub fn parts(&self) -> impl Iterator<Item = (ColumnId, Option<&IndexExpression>, bool)> {
        let mut expressions = self.expressions.iter();
        self.columns.iter().map(move |(id, descending)| {
            (*id, if *id == EXPRESSION { expressions.next() } else { None }, *descending)
        })
    }
}

/// What is known of the rows that a table had before a constraint of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Validity {
    /// Nothing: the descriptor was written by a version that did not keep it.
    #[default]
    Unknown,
    /// NOT VALID: they have not been looked at.
    NotValid,
    /// They satisfy the constraint.
    Valid,
}

impl Validity {
    /// Whether it is not known to be anything else than valid, as catalogs show it.
    pub fn is_shown_valid(self) -> bool {
        self != Validity::NotValid
    }
}

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// The condition, as SQL text.
    pub expr: String,
    /// Whether all rows satisfy it.
    #[serde(default)]
    pub validity: Validity,
    /// `COMMENT ON`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// A foreign key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForeignKeyDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// Referring columns.
    pub columns: Vec<ColumnId>,
    /// Table referred to.
    pub referenced_table: Oid,
    /// Columns there.
    pub referenced_columns: Vec<ColumnId>,
    /// `pg_constraint.confdeltype`: `a`, `r`, `c`, `n` or `d`.
    pub on_delete: char,
    /// `pg_constraint.confupdtype`.
    pub on_update: char,
    /// When it is checked.
    #[serde(default)]
    pub timing: Timing,
    /// Whether all rows satisfy it.
    #[serde(default)]
    pub validity: Validity,
    /// `COMMENT ON`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl TableDescriptor {
    /// A column by id.
    pub fn column(&self, id: ColumnId) -> Option<&ColumnDescriptor> {
        self.columns.iter().find(|column| column.id == id)
    }

    /// Position of a column in the full row.
    pub fn position(&self, id: ColumnId) -> Option<usize> {
        self.columns.iter().position(|column| column.id == id)
    }

    /// An index by id.
    pub fn index(&self, id: IndexId) -> Option<&IndexDescriptor> {
        self.indexes.iter().find(|index| index.id == id)
    }

    /// Whether what an earlier descriptor of the table says is stored is stored still.
    pub fn holds(&self, earlier: &TableDescriptor) -> bool {
        self.storage == earlier.storage && earlier.indexes.iter().all(|index| self.index(index.id).is_some())
    }

    /// Whether what a snapshot holds under an earlier descriptor of the table can be read by this one: no other storage,
    /// no other columns, and no index that statements did not read then.
    pub fn reads_like(&self, earlier: &TableDescriptor) -> bool {
        let public = |index: &&IndexDescriptor| index.is_public();
        self.storage == earlier.storage
            && self.columns == earlier.columns
            && self
                .indexes
                .iter()
                .filter(public)
                .all(|index| earlier.index(index.id).is_some_and(|then| then.is_public()))
    }

    /// The primary index, which is always the first.
    pub fn primary(&self) -> &IndexDescriptor {
        &self.indexes[0]
    }
}

/// A database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabaseDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// Role that owns it.
    pub owner: Oid,
    /// Settings of sessions that connect to it.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    /// `COMMENT ON`.
    #[serde(default)]
    pub comment: Option<String>,
    /// Marks that a database which would be implied is gone.
    #[serde(default)]
    pub dropped: bool,
}

/// A schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SchemaDescriptor {
    /// Its OID; those that every database begins with have the same OIDs in all of them.
    pub oid: Oid,
    /// Its database.
    pub database: Oid,
    /// Its name.
    pub name: String,
    /// Role that owns it.
    pub owner: Oid,
    /// `COMMENT ON`.
    #[serde(default)]
    pub comment: Option<String>,
    /// Marks that a schema which would be implied is gone.
    #[serde(default)]
    pub dropped: bool,
}

/// A sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SequenceDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its database.
    pub database: Oid,
    /// Its schema.
    pub schema: Oid,
    /// Its name.
    pub name: String,
    /// Role that owns it.
    pub owner: Oid,
    /// Type of its values.
    pub ty: Type,
    /// START WITH.
    pub start: i64,
    /// INCREMENT BY.
    pub increment: i64,
    /// MINVALUE.
    pub min: i64,
    /// MAXVALUE.
    pub max: i64,
    /// CACHE.
    pub cache: i64,
    /// CYCLE.
    pub cycle: bool,
    /// Names the counter's key. RESTART gives a new one, so that it is undone by a rollback.
    pub storage: u64,
    /// The first value this counter gives.
    pub first: i64,
    /// Table and column the sequence belongs to.
    pub owned_by: Option<(Oid, ColumnId)>,
    /// `COMMENT ON`.
    #[serde(default)]
    pub comment: Option<String>,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its database.
    pub database: Oid,
    /// Its schema.
    pub schema: Oid,
    /// Its name.
    pub name: String,
    /// Role that owns it.
    pub owner: Oid,
    /// Its columns.
    pub columns: Vec<(String, ColumnType)>,
    /// Its query, with the names of relations and `*` spelled out, or as written by an older version.
    pub query: String,
    /// Whether its columns were given names other than those of the query.
    #[serde(default)]
    pub renamed: bool,
    /// The search path it was written under.
    pub search_path: Vec<String>,
    /// Tables and views it reads.
    pub depends_on: Vec<Oid>,
    /// `COMMENT ON`.
    #[serde(default)]
    pub comment: Option<String>,
}

/// A role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its name.
    pub name: String,
    /// SUPERUSER
    pub superuser: bool,
    /// CREATEDB
    pub create_db: bool,
    /// CREATEROLE
    pub create_role: bool,
    /// INHERIT
    pub inherit: bool,
    /// LOGIN
    pub login: bool,
    /// REPLICATION
    pub replication: bool,
    /// BYPASSRLS
    pub bypass_rls: bool,
    /// CONNECTION LIMIT, -1 for none.
    pub connection_limit: i32,
    /// SCRAM-SHA-256 verifier in the form of `pg_authid.rolpassword`.
    pub verifier: Option<String>,
    /// VALID UNTIL, as written.
    #[serde(default)]
    pub valid_until: Option<String>,
    /// Roles it is a member of.
    #[serde(default)]
    pub member_of: Vec<Oid>,
    /// `ALTER ROLE … SET`.
    #[serde(default)]
    pub settings: Vec<(String, String)>,
    /// `COMMENT ON`.
    #[serde(default)]
    pub comment: Option<String>,
}

/// What was granted on an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AclDescriptor {
    /// Grantee (0 is PUBLIC) and the letters of its privileges as in `aclitem`.
    pub grants: Vec<(Oid, String)>,
}
