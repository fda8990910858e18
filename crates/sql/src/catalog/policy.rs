//! Row security: what a table's descriptor says of it.

use serde::{Deserialize, Serialize};
use sql_types::Oid;

/// Which rows of a table its users may see and write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowSecurity {
    /// ENABLE ROW LEVEL SECURITY: policies apply to all but the owner.
    #[serde(default)]
    pub enabled: bool,
    /// FORCE ROW LEVEL SECURITY: to the owner as well.
    #[serde(default)]
    pub forced: bool,
    /// The policies, by name.
    #[serde(default)]
    pub policies: Vec<PolicyDescriptor>,
}

impl RowSecurity {
    /// Whether nothing was ever said of it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// A policy by name.
    pub fn policy(&self, name: &str) -> Option<&PolicyDescriptor> {
        self.policies.iter().find(|policy| policy.name == name)
    }
}

/// The commands a policy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyCommand {
    /// FOR ALL
    All,
    /// FOR SELECT
    Select,
    /// FOR INSERT
    Insert,
    /// FOR UPDATE
    Update,
    /// FOR DELETE
    Delete,
}

impl PolicyCommand {
    /// `pg_policy.polcmd`.
    pub fn letter(self) -> char {
        match self {
            PolicyCommand::All => '*',
            PolicyCommand::Select => 'r',
            PolicyCommand::Insert => 'a',
            PolicyCommand::Update => 'w',
            PolicyCommand::Delete => 'd',
        }
    }

    /// `pg_policies.cmd`.
    pub fn word(self) -> &'static str {
        match self {
            PolicyCommand::All => "ALL",
            PolicyCommand::Select => "SELECT",
            PolicyCommand::Insert => "INSERT",
            PolicyCommand::Update => "UPDATE",
            PolicyCommand::Delete => "DELETE",
        }
    }
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyDescriptor {
    /// Its OID.
    pub oid: Oid,
    /// Its name, unique within the table.
    pub name: String,
    /// What it is for.
    pub command: PolicyCommand,
    /// PERMISSIVE: one of these must let a row through; else RESTRICTIVE: all of these must.
    pub permissive: bool,
    /// Roles it applies to, with their members; 0 is PUBLIC.
    pub roles: Vec<Oid>,
    /// USING, as SQL text: rows for which it is true can be seen, changed and deleted.
    pub using: Option<String>,
    /// WITH CHECK, as SQL text: what rows inserted and changed must satisfy; as USING if absent.
    pub check: Option<String>,
    /// The search path it was written under.
    pub search_path: Vec<String>,
    /// Relations its subqueries read, and types it names.
    pub depends_on: Vec<Oid>,
}

impl PolicyDescriptor {
    /// Its conditions as SQL text.
    pub fn conditions(&self) -> impl Iterator<Item = &str> {
        self.using.iter().chain(&self.check).map(String::as_str)
    }
}
