//! Functions of the user's own, and triggers.

use super::descriptor::ColumnId;
use super::snapshot::CatalogSnapshot;
use crate::routine::Compiled;
use serde::{Deserialize, Serialize};
use sql_types::{ColumnType, Oid, Type};
use std::sync::{Arc, OnceLock};

/// Arguments a function may have.
pub const MOST_ARGUMENTS: usize = 100;

/// The language of a function's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// LANGUAGE sql: statements; the last one gives the value.
    Sql,
    /// LANGUAGE plpgsql.
    PlPgSql,
}

impl Language {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Language::Sql => "sql",
            Language::PlPgSql => "plpgsql",
        }
    }

    /// Its OID in `pg_language`.
    pub fn oid(self) -> Oid {
        match self {
            Language::Sql => 14,
            Language::PlPgSql => 13576,
        }
    }
}

/// An argument of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoutineArgument {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its type.
    pub ty: Type,
    /// What a call without it gives, as SQL text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// A function of the user's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoutineDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its database.
    pub database: Oid,
    /// Its schema.
    pub schema: Oid,
    /// Its name, which it may share with functions of other arguments.
    pub name: String,
    /// Role that owns it.
    pub owner: Oid,
    /// Its arguments.
    pub arguments: Vec<RoutineArgument>,
    /// Type of its value; [`Type::VOID`] and [`Type::TRIGGER`] included.
    pub returns: Type,
    /// Language of the body.
    pub language: Language,
    /// `pg_proc.provolatile`: `i`, `s` or `v`.
    pub volatility: char,
    /// STRICT: a NULL among the arguments is the value.
    pub strict: bool,
    /// `pg_proc.proparallel`.
    pub parallel: char,
    /// SECURITY DEFINER: it runs with the rights of its owner.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub definer: bool,
    /// SET search_path: the schemas that its statements search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search_path: Option<Vec<String>>,
    /// COST, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    /// The body, as written.
    pub body: String,
    /// `COMMENT ON`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The body, read once.
    #[serde(skip)]
    pub compiled: CompiledCell,
}

impl RoutineDescriptor {
    /// Whether calls with equal arguments give equal values within a statement.
    pub fn is_stable(&self) -> bool {
        self.volatility != 'v'
    }

    /// Types of its arguments.
    pub fn argument_types(&self) -> impl ExactSizeIterator<Item = Type> {
        self.arguments.iter().map(|argument| argument.ty)
    }

    /// How many of its last arguments have defaults.
    pub fn defaults(&self) -> usize {
        self.arguments.iter().filter(|argument| argument.default.is_some()).count()
    }

    /// The type of its value.
    pub fn column_type(&self) -> ColumnType {
        ColumnType::plain(self.returns)
    }
}

impl CatalogSnapshot {
    /// Whether a role may call a function. Without a record of what was granted everybody may.
    pub fn may_execute(&self, role: Oid, routine: &RoutineDescriptor) -> bool {
        !self.acls.contains_key(&routine.oid)
            || self.has_privilege(role, routine.owner, routine.oid, 'X')
    }
}

/// The body of a function as it runs, made at its first call. Takes no part in comparisons.
#[derive(Clone, Default)]
pub struct CompiledCell(Arc<OnceLock<Arc<Compiled>>>);

impl CompiledCell {
    /// What was made, or is made now.
    ///
    /// # Errors
    /// What `make` answers.
    pub(crate) fn get_or_make<E>(
        &self,
        make: impl FnOnce() -> Result<Arc<Compiled>, E>,
    ) -> Result<Arc<Compiled>, E> {
        if let Some(known) = self.0.get() {
            return Ok(known.clone());
        }
        let made = make()?;
        Ok(self.0.get_or_init(|| made).clone())
    }
}

impl std::fmt::Debug for CompiledCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CompiledCell")
    }
}

impl PartialEq for CompiledCell {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// What makes a trigger run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerEvent {
    /// A row is inserted.
    Insert,
    /// A row is updated.
    Update,
    /// A row is deleted.
    Delete,
}

impl TriggerEvent {
    /// `TG_OP`.
    pub fn name(self) -> &'static str {
        match self {
            TriggerEvent::Insert => "INSERT",
            TriggerEvent::Update => "UPDATE",
            TriggerEvent::Delete => "DELETE",
        }
    }
}

/// A trigger of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its name, of its own within the table. Triggers of one event run in the order of their names.
    pub name: String,
    /// The function it calls.
    pub routine: Oid,
    /// BEFORE, or AFTER.
    pub before: bool,
    /// FOR EACH ROW, or STATEMENT.
    pub for_row: bool,
    /// INSERT
    pub insert: bool,
    /// UPDATE
    pub update: bool,
    /// DELETE
    pub delete: bool,
    /// UPDATE OF: only if one of these is assigned; any if empty.
    #[serde(default)]
    pub columns: Vec<ColumnId>,
    /// WHEN, as SQL text over `old` and `new`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What the function gets as `TG_ARGV`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// ALTER TABLE … DISABLE TRIGGER.
    #[serde(default)]
    pub disabled: bool,
}

impl TriggerDescriptor {
    /// Whether it is for an event.
    pub fn is_for(&self, event: TriggerEvent) -> bool {
        match event {
            TriggerEvent::Insert => self.insert,
            TriggerEvent::Update => self.update,
            TriggerEvent::Delete => self.delete,
        }
    }
}
