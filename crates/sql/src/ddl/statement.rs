//! Schema changes as they are written.

use super::placement::PlacementChange;
use super::policy::PolicyChange;
use super::tokens::Name;
use crate::catalog::OnCommit;
use crate::catalog::descriptor::Timing;
use crate::parse::Statement;
use sqlparser::ast::DataType;
use std::sync::Arc;

/// Options of a sequence, as far as given. The outer `Option` of a bound: whether it was written; the
/// inner one: NO MINVALUE.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SequenceOptions {
    pub ty: Option<DataType>,
    pub increment: Option<i64>,
    pub min: Option<Option<i64>>,
    pub max: Option<Option<i64>>,
    pub start: Option<i64>,
    pub cache: Option<i64>,
    pub cycle: Option<bool>,
    /// RESTART, with a value or not.
    pub restart: Option<Option<i64>>,
    /// OWNED BY: NONE, or table and column.
    pub owned_by: Option<Option<(Name, String)>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ForeignKey {
    pub table: Name,
    pub columns: Vec<String>,
    pub on_delete: char,
    pub on_update: char,
}

/// A constraint, of a column (with that column filled in) or a table.
#[derive(Clone, Debug)]
pub(crate) struct Constraint {
    pub name: Option<String>,
    pub kind: ConstraintKind,
    pub not_valid: bool,
    pub timing: Timing,
    /// INCLUDE of a PRIMARY KEY or UNIQUE constraint.
    pub included: Vec<String>,
    /// NULLS NOT DISTINCT of a UNIQUE constraint.
    pub nulls_not_distinct: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ConstraintKind {
    Primary(Vec<(String, bool)>),
    Unique(Vec<(String, bool)>),
    Check(String),
    Foreign(Vec<String>, ForeignKey),
    /// `PRIMARY KEY USING INDEX` and `UNIQUE USING INDEX`.
    UsingIndex(String, bool),
}

#[derive(Clone, Debug)]
pub(crate) struct ColumnDef {
    pub name: String,
    pub ty: DataType,
    pub nullable: Option<bool>,
    pub default: Option<String>,
    pub identity: Option<(char, SequenceOptions)>,
    /// GENERATED ALWAYS AS (…) STORED
    pub generated: Option<String>,
    /// Stands before any serial type is resolved: 2, 4 or 8 bytes.
    pub serial: Option<u8>,
}

#[derive(Clone, Debug)]
pub(crate) struct Like {
    pub table: Name,
    pub defaults: bool,
    pub constraints: bool,
    pub indexes: bool,
    pub identity: bool,
    pub generated: bool,
    pub comments: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CreateTable {
    pub name: Option<Name>,
    pub if_not_exists: bool,
    pub columns: Vec<ColumnDef>,
    pub constraints: Vec<Constraint>,
    pub likes: Vec<(usize, Like)>,
    pub on_commit: OnCommit,
}

#[derive(Clone, Debug)]
pub(crate) struct CreateIndex {
    pub concurrently: bool,
    pub name: Option<Name>,
    pub table: Name,
    pub if_not_exists: bool,
    pub unique: bool,
    /// Whether it is `USING gin`.
    pub inverted: bool,
    pub columns: Vec<IndexPart>,
    pub included: Vec<String>,
    pub nulls_not_distinct: bool,
    /// WHERE
    pub predicate: Option<String>,
}

/// A column of an index, or an expression, and how it is indexed.
#[derive(Clone, Debug)]
pub(crate) struct IndexPart {
    pub what: IndexKey,
    pub descending: bool,
    /// Name of the operator class, if one is written.
    pub class: Option<String>,
    /// The words of an order that are written: `ASC/DESC`, `NULLS FIRST/LAST`.
    pub order: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) enum IndexKey {
    Column(String),
    Expression(String),
}

#[derive(Clone, Debug)]
pub(crate) enum AlterAction {
    AddColumn {
        column: Box<ColumnDef>,
        constraints: Vec<Constraint>,
        if_not_exists: bool,
    },
    DropColumn {
        name: String,
        if_exists: bool,
        cascade: bool,
    },
    RenameColumn {
        name: String,
        to: String,
    },
    RenameConstraint {
        name: String,
        to: String,
    },
    Rename(String),
    SetSchema(String),
    SetDefault(String, Option<String>),
    SetNotNull(String, bool),
    SetType {
        column: String,
        ty: DataType,
        using: Option<String>,
    },
    AddIdentity(String, char, SequenceOptions),
    SetIdentity(String, Option<char>, SequenceOptions),
    DropIdentity(String, bool),
    /// DROP EXPRESSION, and whether IF EXISTS was said.
    DropExpression(String, bool),
    AddConstraint(Constraint),
    DropConstraint {
        name: String,
        if_exists: bool,
        cascade: bool,
    },
    ValidateConstraint(String),
    AlterConstraint(String, Timing),
    Owner(String),
    /// ENABLE and DISABLE TRIGGER, one or all.
    EnableTrigger(Option<String>, bool),
    /// SET (dormouse.…) and RESET: where the table is kept.
    Place(Vec<PlacementChange>),
    /// ENABLE and DISABLE ROW LEVEL SECURITY
    RowSecurity(bool),
    /// FORCE and NO FORCE ROW LEVEL SECURITY
    ForceRowSecurity(bool),
    /// SET (fillfactor…), SET STATISTICS, CLUSTER ON, REPLICA IDENTITY…: nothing here depends on it.
    Nothing,
    Unsupported(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    Table,
    View,
    MaterializedView,
    Sequence,
    Index,
    Schema,
    Database,
    Role,
    Extension,
    Column,
    Constraint,
    Type,
    Domain,
    /// What cannot exist here: functions, triggers…, with its name.
    Other(&'static str),
}

impl ObjectKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::View => "view",
            ObjectKind::MaterializedView => "materialized view",
            ObjectKind::Sequence => "sequence",
            ObjectKind::Index => "index",
            ObjectKind::Schema => "schema",
            ObjectKind::Database => "database",
            ObjectKind::Role => "role",
            ObjectKind::Extension => "extension",
            ObjectKind::Column => "column",
            ObjectKind::Constraint => "constraint",
            ObjectKind::Type | ObjectKind::Domain => "type",
            ObjectKind::Other(word) => word,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoleOptions {
    pub superuser: Option<bool>,
    pub create_db: Option<bool>,
    pub create_role: Option<bool>,
    pub inherit: Option<bool>,
    pub login: Option<bool>,
    pub replication: Option<bool>,
    pub bypass_rls: Option<bool>,
    pub connection_limit: Option<i32>,
    pub password: Option<Option<String>>,
    pub valid_until: Option<String>,
    pub in_roles: Vec<String>,
    pub members: Vec<String>,
}

/// What GRANT and REVOKE are about.
#[derive(Clone, Debug)]
pub(crate) enum GrantTarget {
    Tables(Vec<Name>),
    Sequences(Vec<Name>),
    Schemas(Vec<String>),
    Databases(Vec<String>),
    AllIn {
        schemas: Vec<String>,
        sequences: bool,
    },
    Roles(Vec<String>),
    Routines(Vec<RoutineName>),
    AllRoutinesIn(Vec<String>),
    /// Types, languages, default privileges: accepted.
    Nothing,
}

/// What ALTER TYPE and ALTER DOMAIN do.
#[derive(Clone, Debug)]
pub(crate) enum TypeAction {
    AddValue {
        label: String,
        if_not_exists: bool,
        /// Before (or after) which label.
        beside: Option<(bool, String)>,
    },
    RenameValue {
        from: String,
        to: String,
    },
    Rename(String),
    SetSchema(String),
    Owner(String),
    Domain(DomainAction),
}

/// What ALTER DOMAIN alone does.
#[derive(Clone, Debug)]
pub(crate) enum DomainAction {
    SetDefault(Option<String>),
    SetNotNull(bool),
    AddCheck { name: Option<String>, expr: String, not_valid: bool },
    DropConstraint { name: String, if_exists: bool },
    RenameConstraint { name: String, to: String },
    Nothing,
}

#[derive(Clone, Debug)]
pub(crate) struct CreateDomain {
    pub name: Name,
    pub ty: DataType,
    pub default: Option<String>,
    pub not_null: Option<bool>,
    /// Name and condition of each CHECK.
    pub checks: Vec<(Option<String>, String)>,
}

/// An argument of a function.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    /// `i`, `o` or `b`.
    pub mode: char,
    pub name: Option<String>,
    pub ty: DataType,
    pub default: Option<String>,
}

/// RETURNS
#[derive(Clone, Debug)]
pub(crate) enum ReturnType {
    Void,
    Trigger,
    Type(DataType),
    /// SETOF
    Set(DataType),
    /// TABLE: names and types of the columns.
    Table(Vec<(String, DataType)>),
    /// `record`, whose columns are OUT arguments; whether it is a set.
    Record(bool),
    /// Nothing is said: OUT arguments are.
    Outputs,
}

/// Options that CREATE and ALTER FUNCTION have, as far as given.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutineOptions {
    pub volatility: Option<char>,
    pub strict: Option<bool>,
    pub definer: Option<bool>,
    /// ROWS is given; nothing depends on the number.
    pub rows: bool,
    /// SET search_path, or (`Some(None)`) RESET.
    pub search_path: Option<Option<Vec<String>>>,
    pub parallel: Option<char>,
    pub cost: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct CreateRoutine {
    pub name: Name,
    pub or_replace: bool,
    pub arguments: Vec<Argument>,
    pub returns: ReturnType,
    pub language: Option<String>,
    pub body: Option<String>,
    pub options: RoutineOptions,
}

/// A function by name, and the types of its arguments if they are given.
#[derive(Clone, Debug)]
pub(crate) struct RoutineName {
    pub name: Name,
    pub arguments: Option<Vec<DataType>>,
}

/// What ALTER FUNCTION does.
#[derive(Clone, Debug)]
pub(crate) enum RoutineAction {
    Rename(String),
    Owner(String),
    SetSchema(String),
    Options(RoutineOptions),
}

#[derive(Clone, Debug)]
pub(crate) struct CreateTrigger {
    pub name: String,
    pub or_replace: bool,
    pub table: Name,
    pub before: bool,
    pub for_row: bool,
    pub insert: bool,
    pub update: bool,
    pub delete: bool,
    /// UPDATE OF
    pub columns: Vec<String>,
    pub when: Option<String>,
    pub routine: Name,
    pub arguments: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Ddl {
    CreateRoutine(CreateRoutine),
    AlterRoutine {
        name: RoutineName,
        action: RoutineAction,
    },
    DropRoutine {
        names: Vec<RoutineName>,
        if_exists: bool,
        cascade: bool,
    },
    CommentRoutine {
        name: RoutineName,
        text: Option<String>,
    },
    CreateTrigger(CreateTrigger),
    RenameTrigger {
        name: String,
        table: Name,
        to: String,
    },
    DropTrigger {
        name: String,
        table: Name,
        if_exists: bool,
    },
    CreateTable(CreateTable),
    CreateTableAs {
        name: Name,
        if_not_exists: bool,
        columns: Vec<String>,
        query: Arc<Statement>,
        with_data: bool,
        on_commit: OnCommit,
    },
    CreateIndex(CreateIndex),
    CreateSchema {
        name: Option<String>,
        if_not_exists: bool,
        owner: Option<String>,
    },
    CreateDatabase {
        name: String,
        owner: Option<String>,
    },
    CreateSequence {
        name: Name,
        if_not_exists: bool,
        options: SequenceOptions,
    },
    CreateView {
        name: Name,
        or_replace: bool,
        columns: Vec<String>,
        query: String,
    },
    CreateMaterializedView {
        name: Name,
        if_not_exists: bool,
        columns: Vec<String>,
        query: String,
        with_data: bool,
    },
    Refresh {
        name: Name,
        concurrently: bool,
        with_data: bool,
    },
    CreateEnum {
        name: Name,
        labels: Vec<String>,
    },
    CreateDomain(CreateDomain),
    /// CREATE, ALTER and DROP POLICY
    Policy(PolicyChange),
    AlterType {
        name: Name,
        domain: bool,
        action: TypeAction,
    },
    CreateRole {
        name: String,
        options: RoleOptions,
    },
    CreateExtension {
        name: String,
        if_not_exists: bool,
    },
    AlterTable {
        name: Name,
        if_exists: bool,
        kind: ObjectKind,
        actions: Vec<AlterAction>,
    },
    AlterSequence {
        name: Name,
        if_exists: bool,
        options: SequenceOptions,
    },
    AlterRole {
        name: String,
        options: RoleOptions,
    },
    RenameRole {
        name: String,
        to: String,
    },
    AlterSettings {
        role: Option<String>,
        database: Option<String>,
        name: Option<String>,
        value: Option<String>,
    },
    AlterSchema {
        name: String,
        rename: Option<String>,
        owner: Option<String>,
    },
    AlterDatabase {
        name: String,
        rename: Option<String>,
        owner: Option<String>,
    },
    Drop {
        kind: ObjectKind,
        names: Vec<Name>,
        if_exists: bool,
        cascade: bool,
        concurrently: bool,
    },
    Truncate {
        tables: Vec<Name>,
        restart: bool,
        cascade: bool,
    },
    Comment {
        kind: ObjectKind,
        name: Name,
        of: Option<String>,
        text: Option<String>,
    },
    Grant {
        grant: bool,
        privileges: Option<Vec<String>>,
        target: GrantTarget,
        roles: Vec<String>,
    },
    Nothing(&'static str),
    /// It has no effect: nothing bloats.
    Reindex {
        concurrently: bool,
    },
    Unsupported(String),
}

impl Ddl {
    /// The command tag, for error messages.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Ddl::CreateRoutine(_) => "CREATE FUNCTION",
            Ddl::AlterRoutine { .. } => "ALTER FUNCTION",
            Ddl::DropRoutine { .. } => "DROP FUNCTION",
            Ddl::CommentRoutine { .. } => "COMMENT",
            Ddl::CreateTrigger(_) => "CREATE TRIGGER",
            Ddl::RenameTrigger { .. } => "ALTER TRIGGER",
            Ddl::DropTrigger { .. } => "DROP TRIGGER",
            Ddl::CreateTable(_) => "CREATE TABLE",
            Ddl::CreateTableAs { .. } => "CREATE TABLE AS",
            Ddl::CreateIndex(_) => "CREATE INDEX",
            Ddl::CreateSchema { .. } => "CREATE SCHEMA",
            Ddl::CreateDatabase { .. } => "CREATE DATABASE",
            Ddl::CreateSequence { .. } => "CREATE SEQUENCE",
            Ddl::CreateView { .. } => "CREATE VIEW",
            Ddl::CreateMaterializedView { .. } => "CREATE MATERIALIZED VIEW",
            Ddl::Refresh { .. } => "REFRESH MATERIALIZED VIEW",
            Ddl::CreateEnum { .. } => "CREATE TYPE",
            Ddl::CreateDomain(_) => "CREATE DOMAIN",
            Ddl::Policy(change) => change.tag(),
            Ddl::AlterType { domain: false, .. } => "ALTER TYPE",
            Ddl::AlterType { .. } => "ALTER DOMAIN",
            Ddl::CreateRole { .. } => "CREATE ROLE",
            Ddl::CreateExtension { .. } => "CREATE EXTENSION",
            Ddl::AlterTable { kind: ObjectKind::Index, .. } => "ALTER INDEX",
            Ddl::AlterTable { kind: ObjectKind::View, .. } => "ALTER VIEW",
            Ddl::AlterTable { kind: ObjectKind::MaterializedView, .. } => "ALTER MATERIALIZED VIEW",
            Ddl::AlterTable { kind: ObjectKind::Sequence, .. } | Ddl::AlterSequence { .. } => {
                "ALTER SEQUENCE"
            }
            Ddl::AlterTable { .. } => "ALTER TABLE",
            Ddl::AlterRole { .. } | Ddl::RenameRole { .. } => "ALTER ROLE",
            Ddl::AlterSettings { role: Some(_), .. } => "ALTER ROLE",
            Ddl::AlterSchema { .. } => "ALTER SCHEMA",
            Ddl::AlterDatabase { .. } | Ddl::AlterSettings { .. } => "ALTER DATABASE",
            Ddl::Drop { kind, .. } => match kind {
                ObjectKind::Table => "DROP TABLE",
                ObjectKind::View => "DROP VIEW",
                ObjectKind::MaterializedView => "DROP MATERIALIZED VIEW",
                ObjectKind::Sequence => "DROP SEQUENCE",
                ObjectKind::Index => "DROP INDEX",
                ObjectKind::Schema => "DROP SCHEMA",
                ObjectKind::Database => "DROP DATABASE",
                ObjectKind::Role => "DROP ROLE",
                ObjectKind::Extension => "DROP EXTENSION",
                ObjectKind::Type => "DROP TYPE",
                ObjectKind::Domain => "DROP DOMAIN",
                _ => "DROP",
            },
            Ddl::Truncate { .. } => "TRUNCATE TABLE",
            Ddl::Comment { .. } => "COMMENT",
            Ddl::Grant { target: GrantTarget::Roles(_), grant: true, .. } => "GRANT ROLE",
            Ddl::Grant { target: GrantTarget::Roles(_), .. } => "REVOKE ROLE",
            Ddl::Grant { grant: true, .. } => "GRANT",
            Ddl::Grant { .. } => "REVOKE",
            Ddl::Nothing(tag) => tag,
            Ddl::Reindex { .. } => "REINDEX",
            Ddl::Unsupported(_) => "this statement",
        }
    }

    /// The tag of a statement that changes nothing.
    pub(crate) fn without_effect(&self) -> Option<&'static str> {
        match self {
            Ddl::Nothing(tag) => Some(tag),
            Ddl::Reindex { .. } => Some("REINDEX"),
            _ => None,
        }
    }
}
