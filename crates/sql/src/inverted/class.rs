//! [`OperatorClass`]: which tokens the values of an inverted index have.

use serde::{Deserialize, Serialize};
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type, encoding};

/// What an inverted index has entries of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorClass {
    /// Keys and scalars of jsonb.
    JsonbOps,
    /// Scalars of jsonb with the keys that lead to them.
    JsonbPathOps,
    /// Elements of arrays.
    ArrayOps,
}

impl OperatorClass {
    /// All of them.
    pub const ALL: [OperatorClass; 3] =
        [OperatorClass::ArrayOps, OperatorClass::JsonbOps, OperatorClass::JsonbPathOps];

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            OperatorClass::JsonbOps => "jsonb_ops",
            OperatorClass::JsonbPathOps => "jsonb_path_ops",
            OperatorClass::ArrayOps => "array_ops",
        }
    }

    /// OIDs of the class and of its operator family, as PostgreSQL 15 has them.
    pub fn oids(self) -> (Oid, Oid) {
        match self {
            OperatorClass::JsonbOps => (10090, 4036),
            OperatorClass::JsonbPathOps => (10091, 4037),
            OperatorClass::ArrayOps => (10064, 2745),
        }
    }

    /// The type of the values it is for.
    pub fn input(self) -> Type {
        match self {
            OperatorClass::JsonbOps | OperatorClass::JsonbPathOps => Type::JSONB,
            OperatorClass::ArrayOps => Type::ANYARRAY,
        }
    }

    /// `pg_opclass.opckeytype`: what the catalogs say of its entries.
    pub fn key_type(self) -> Type {
        match self {
            OperatorClass::JsonbOps => Type::TEXT,
            OperatorClass::JsonbPathOps => Type::INT4,
            OperatorClass::ArrayOps => Type::ANYELEMENT,
        }
    }

    /// Whether it is taken for its type where none is named.
    pub fn is_default(self) -> bool {
        self != OperatorClass::JsonbPathOps
    }

    /// The class for a column of a type, by its name if one is given.
    ///
    /// # Errors
    /// 42704 if there is none, 42804 if the one named is for another type, both as PostgreSQL says it; 0A000 for arrays
    /// whose elements have no key encoding.
    pub fn of(ty: Type, name: Option<&str>) -> SqlResult<Self> {
        let accepts = |class: &OperatorClass| match class {
            OperatorClass::ArrayOps => ty.element().is_some(),
            _ => ty == Type::JSONB,
        };
        let class = match name {
            Some(name) => {
                let named = OperatorClass::ALL.into_iter().find(|class| class.name() == name);
                let class = named.ok_or_else(|| {
                    let message =
                        format!("operator class \"{name}\" does not exist for access method \"gin\"");
                    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
                })?;
                if !accepts(&class) {
                    let message = format!("operator class \"{name}\" does not accept data type {ty}");
                    return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
                }
                class
            }
            None => {
                let default =
                    OperatorClass::ALL.into_iter().find(|class| class.is_default() && accepts(class));
                default.ok_or_else(|| {
                    let message =
                        format!("data type {ty} has no default operator class for access method \"gin\"");
                    SqlError::new(SqlState::UNDEFINED_OBJECT, message).with_hint(
                        "You must specify an operator class for the index or define a default operator class for \
                         the data type.",
                    )
                })?
            }
        };
        match ty.element().filter(|element| !encoding::is_indexable(*element)) {
            Some(element) => Err(SqlError::unsupported(format!("an index over arrays of type {element}"))),
            None => Ok(class),
        }
    }
}
