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

/// A value that a function gives by name: an OUT or INOUT argument, or a column of RETURNS TABLE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoutineOutput {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its type.
    pub ty: Type,
    /// `pg_proc.proargmodes`: `o`, `b` or `t`.
    pub mode: char,
    /// Its place among all arguments as they were declared, from 0. One with mode `b` is also among the arguments.
    pub place: usize,
}

/// An argument as it was declared, in or out.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// Its name, if it has one.
    pub name: Option<&'a str>,
    /// Its type.
    pub ty: Type,
    /// `i`, `o`, `b` or `t`.
    pub mode: char,
    /// Its position among [`RoutineDescriptor::arguments`].
    pub input: Option<usize>,
    /// Its position among [`RoutineDescriptor::outputs`].
    pub output: Option<usize>,
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
    /// Its arguments, those that a call gives.
    pub arguments: Vec<RoutineArgument>,
    /// What it gives by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<RoutineOutput>,
    /// Type of its value, or of each of a set; [`Type::VOID`], [`Type::TRIGGER`], and for several outputs
    /// [`Type::RECORD`] included.
    pub returns: Type,
    /// RETURNS SETOF or TABLE.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub set: bool,
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

    /// Whether it gives rows and not one value: then a call's value is an array of records.
    pub fn gives_rows(&self) -> bool {
        self.set || self.outputs.len() > 1
    }

    /// The type of a call's value.
    pub fn value_type(&self) -> Type {
        if self.gives_rows() { Type::RECORD } else { self.returns }
    }

    /// Names and types of the columns of its rows.
    pub fn columns(&self) -> Vec<(String, Type)> {
        if self.outputs.is_empty() {
            return vec![(self.name.clone(), self.returns)];
        }
        let named = |(number, output): (usize, &RoutineOutput)| {
            let name = output.name.clone().unwrap_or_else(|| format!("column{}", number + 1));
            (name, output.ty)
        };
        self.outputs.iter().enumerate().map(named).collect()
    }

    /// All arguments as they were declared.
    pub fn declared(&self) -> Vec<Declared<'_>> {
        let mut inputs = self.arguments.iter().enumerate();
        let only_out = self.outputs.iter().filter(|output| output.mode != 'b').count();
        let one = |place: usize| {
            let output = self.outputs.iter().position(|output| output.place == place);
            match output.and_then(|at| Some((at, self.outputs.get(at)?))).filter(|(_, out)| out.mode != 'b') {
                Some((at, out)) => {
                    let name = out.name.as_deref();
                    Some(Declared { name, ty: out.ty, mode: out.mode, input: None, output: Some(at) })
                }
                None => {
                    let (at, argument) = inputs.next()?;
                    let (name, mode) = (argument.name.as_deref(), if output.is_some() { 'b' } else { 'i' });
                    Some(Declared { name, ty: argument.ty, mode, input: Some(at), output })
                }
            }
        };
        (0..self.arguments.len() + only_out).filter_map(one).collect()
    }
}

impl CatalogSnapshot {
    /// Whether a role may call a function. Without a record of what was granted everybody may.
    pub fn may_execute(&self, role: Oid, routine: &RoutineDescriptor) -> bool {
        !self.acls.contains_key(&routine.oid) || self.has_privilege(role, routine.owner, routine.oid, 'X')
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
