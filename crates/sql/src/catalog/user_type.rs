//! Types of the user's own: enum types and domains.
//!
//! # Enum types
//!
//! A stored value is the *rank* of its label, which orders as the labels do and never changes. Labels are made a
//! [`GAP`] apart; one that is added between two others takes the middle, so that no row is ever written anew.
//! Between two neighbours some forty labels fit, if each is put into the larger half even far more; then
//! [`EnumType::add`] refuses. Beside the first and the last there is always room.
//!
//! # Domains
//!
//! A column of a domain has the type the domain is over, and names the domain beside it. Whatever writes the column
//! checks the domain's constraints.

use super::descriptor::CheckDescriptor;
use serde::{Deserialize, Serialize};
use sql_types::{ColumnType, EnumValue, Oid, SqlError, SqlResult, SqlState, Type};

/// Between the ranks of two labels that follow each other.
pub const GAP: i64 = 1 << 40;
/// Labels an enum type may have.
pub const MOST_LABELS: usize = 10_000;
/// Longest label in bytes.
pub const LONGEST_LABEL: usize = 63;

/// A type of the user's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeDescriptor {
    /// Its OID, which tells an enum type from a domain.
    pub oid: Oid,
    /// Its database.
    pub database: Oid,
    /// Its schema.
    pub schema: Oid,
    /// Its name.
    pub name: String,
    /// Role that owns it.
    pub owner: Oid,
    /// What it is.
    pub kind: TypeKind,
    /// `COMMENT ON`.
    #[serde(default)]
    pub comment: Option<String>,
}

/// What a user's type is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TypeKind {
    /// An enum type.
    Enum(EnumType),
    /// A domain.
    Domain(DomainType),
}

/// The labels of an enum type, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnumType {
    /// Ranks ascend.
    pub labels: Vec<EnumLabel>,
}

/// A label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnumLabel {
    /// Its OID, for `pg_enum`.
    pub oid: Oid,
    /// What rows hold.
    pub rank: i64,
    /// The label.
    pub label: String,
}

/// What a domain is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainType {
    /// The type it is over: never a domain.
    pub base: ColumnType,
    /// The domain it was made of, whose constraints hold as well.
    #[serde(default)]
    pub over: Option<Oid>,
    /// NOT NULL.
    #[serde(default)]
    pub not_null: bool,
    /// Default of columns that have none, as SQL text.
    #[serde(default)]
    pub default: Option<String>,
    /// CHECK constraints, over `VALUE`.
    #[serde(default)]
    pub checks: Vec<CheckDescriptor>,
}

impl TypeDescriptor {
    /// The type.
    pub fn ty(&self) -> Type {
        Type(self.oid)
    }

    /// Its labels, if it is an enum type.
    pub fn as_enum(&self) -> Option<&EnumType> {
        match &self.kind {
            TypeKind::Enum(labels) => Some(labels),
            TypeKind::Domain(_) => None,
        }
    }

    /// What it is, if it is a domain.
    pub fn as_domain(&self) -> Option<&DomainType> {
        match &self.kind {
            TypeKind::Domain(domain) => Some(domain),
            TypeKind::Enum(_) => None,
        }
    }

    /// The array type over it, if there is one.
    pub fn array(&self) -> Option<Type> {
        self.ty().array()
    }

    /// The label of a value.
    pub fn label(&self, value: EnumValue) -> Option<&str> {
        let labels = &self.as_enum()?.labels;
        let at = labels.binary_search_by_key(&value.rank, |label| label.rank).ok()?;
        labels.get(at).map(|label| label.label.as_str())
    }

    /// The value of a label.
    pub fn value(&self, label: &str) -> Option<EnumValue> {
        let found = self.as_enum()?.labels.iter().find(|known| known.label == label)?;
        Some(EnumValue { ty: self.ty(), rank: found.rank })
    }

    /// All values, in order.
    pub fn values(&self) -> Vec<EnumValue> {
        let labels = self.as_enum().map(|labels| labels.labels.as_slice()).unwrap_or_default();
        labels.iter().map(|label| EnumValue { ty: self.ty(), rank: label.rank }).collect()
    }
}

impl EnumType {
    /// Where a label stands.
    pub fn position(&self, label: &str) -> Option<usize> {
        self.labels.iter().position(|known| known.label == label)
    }

    /// Puts a label at a position: 0 is before the first.
    ///
    /// # Errors
    /// 54000 if there are too many labels, or if there is no rank left between the two neighbours.
    pub fn add(&mut self, position: usize, oid: Oid, label: String) -> SqlResult<()> {
        if self.labels.len() >= MOST_LABELS {
            let message = format!("an enum type can have at most {MOST_LABELS} labels");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT, message));
        }
        let position = position.min(self.labels.len());
        let below = position.checked_sub(1).and_then(|at| self.labels.get(at));
        let above = self.labels.get(position);
        let rank = match (below.map(|label| label.rank), above.map(|label| label.rank)) {
            (None, None) => Some(0),
            (Some(below), None) => below.checked_add(GAP),
            (None, Some(above)) => above.checked_sub(GAP),
            (Some(below), Some(above)) => {
                let middle = below + (above - below) / 2;
                (middle > below).then_some(middle)
            }
        };
        let Some(rank) = rank else {
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "there is no room for another label here")
                .with_hint("Add the label at the end, or create the type anew."));
        };
        self.labels.insert(position, EnumLabel { oid, rank, label });
        Ok(())
    }
}

/// Refuses what cannot be a label.
///
/// # Errors
/// 42602 if it is too long.
pub fn check_label(label: &str) -> SqlResult<()> {
    if label.len() <= LONGEST_LABEL && !label.contains('\0') {
        return Ok(());
    }
    let message = format!("invalid enum label \"{label}\"");
    Err(SqlError::new(SqlState::INVALID_NAME, message)
        .with_detail(format!("Labels must be {LONGEST_LABEL} bytes or less.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(of: &EnumType) -> Vec<i64> {
        of.labels.iter().map(|label| label.rank).collect()
    }

    #[test]
    fn labels_find_room_everywhere_until_there_is_none() {
        let mut all = EnumType::default();
        all.add(0, 1, "b".into()).unwrap();
        all.add(1, 2, "d".into()).unwrap();
        all.add(0, 3, "a".into()).unwrap();
        all.add(2, 4, "c".into()).unwrap();
        assert_eq!(ranks(&all), [-GAP, 0, GAP / 2, GAP]);
        let names: Vec<&str> = all.labels.iter().map(|label| label.label.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
        let mut added = 0;
        let error = loop {
            match all.add(2, 5, format!("x{added}")) {
                Ok(()) => added += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((added, error.code), (39, SqlState::PROGRAM_LIMIT));
        assert!(ranks(&all).is_sorted_by(|a, b| a < b));
        all.add(all.labels.len(), 6, "z".into()).unwrap();
    }

    #[test]
    fn records_of_older_catalogs_are_read() {
        let text = r#"{"oid":1073758224,"database":5,"schema":2200,"name":"d","owner":10,
            "kind":{"Domain":{"base":{"ty":23,"typmod":-1}}}}"#;
        let read: TypeDescriptor = serde_json::from_str(text).unwrap();
        assert_eq!(read.as_domain().map(|domain| (domain.not_null, domain.checks.len())), Some((false, 0)));
    }
}
