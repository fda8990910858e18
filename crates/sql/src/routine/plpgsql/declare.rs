//! Variables as a block declares them.

use super::ast::{Block, Target, VariableType};
use super::conditions;
use super::frame::{Fields, Holder, Place};
use super::machine::Machine;
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

impl Machine<'_> {
    pub(super) async fn declare(&mut self, block: &Block) -> SqlResult<()> {
        for declaration in &block.declarations {
            let label = block.label.as_deref();
            let holder = match &declaration.ty {
                VariableType::Alias(of) => {
                    let slot = match of.strip_prefix('$').and_then(|number| number.parse::<usize>().ok()) {
                        Some(number) => number.checked_sub(1),
                        None => self.frame.named(of),
                    };
                    let Some(slot) = slot.filter(|slot| self.frame.holder(*slot).is_some()) else {
                        let message = format!("variable \"{of}\" does not exist");
                        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                    };
                    self.frame.alias(label, &declaration.name, slot);
                    continue;
                }
                VariableType::Record => Holder::Unassigned,
                VariableType::Row(name) => row_of(self.relation(name)?.into()),
                VariableType::Like(name) => self.like(name)?,
                VariableType::Named(ty) => match self.statements.named_type(ty) {
                    Ok(ty) => Holder::Value(ty, Datum::Null),
                    // The name of a table is that of its row type.
                    Err(error) => match self.named_row(&ty.to_string())? {
                        Some(fields) => row_of(fields),
                        None => return Err(error),
                    },
                },
            };
            let value = match &declaration.default {
                Some(default) => Some(self.value(default).await?),
                None => None,
            };
            let slot = self.frame.add(label, &declaration.name, holder);
            if let Some((value, ty)) = value {
                if declaration.not_null && value.is_null() {
                    let message = format!(
                        "null value cannot be assigned to variable \"{}\" declared NOT NULL",
                        declaration.name
                    );
                    return Err(SqlError::new(conditions::NULL_NOT_ALLOWED, message));
                }
                self.put(&Place { slot, field: None }, value, ty)?;
            }
            if let Some(slot) = self.frame.slot_mut(slot) {
                (slot.constant, slot.not_null) = (declaration.constant, declaration.not_null);
            }
        }
        Ok(())
    }

    fn named_row(&self, name: &str) -> SqlResult<Option<Fields>> {
        let parts: Vec<String> = name.split('.').map(|part| part.trim_matches('"').to_string()).collect();
        let found = match parts.as_slice() {
            [name] => self.statements.relation(None, name)?,
            [schema, name] => self.statements.relation(Some(schema), name)?,
            _ => None,
        };
        Ok(found.map(Fields::from))
    }

    fn relation(&self, name: &[String]) -> SqlResult<Vec<(Arc<str>, ColumnType)>> {
        let found = match name {
            [name] => self.statements.relation(None, name)?,
            [schema, name] => self.statements.relation(Some(schema), name)?,
            _ => None,
        };
        found.ok_or_else(|| {
            let message = format!("relation \"{}\" does not exist", name.join("."));
            SqlError::new(SqlState::UNDEFINED_TABLE, message)
        })
    }

    /// `name%TYPE`
    fn like(&self, name: &[String]) -> SqlResult<Holder> {
        if let Ok(place) = self.frame.place(&Target(name.to_vec())) {
            let holder = self.frame.holder(place.slot);
            match (holder, place.field) {
                (Some(Holder::Value(ty, _)), _) => return Ok(Holder::Value(*ty, Datum::Null)),
                (Some(Holder::Row { fields, .. }), Some(field)) => {
                    let ty = fields.get(field).map_or(ColumnType::plain(Type::TEXT), |(_, ty)| *ty);
                    return Ok(Holder::Value(ty, Datum::Null));
                }
                (Some(Holder::Row { fields, fixed: true, .. }), None) => return Ok(row_of(fields.clone())),
                _ => return Ok(Holder::Unassigned),
            }
        }
        let Some((column, relation)) = name.split_last().filter(|(_, relation)| !relation.is_empty()) else {
            let message = format!("variable \"{}\" does not exist", name.join("."));
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        let found = self.relation(relation)?.into_iter().find(|(known, _)| **known == **column);
        found.map(|(_, ty)| Holder::Value(ty, Datum::Null)).ok_or_else(|| {
            let message =
                format!("column \"{column}\" of relation \"{}\" does not exist", relation.join("."));
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })
    }
}

fn row_of(fields: Fields) -> Holder {
    Holder::Row { fields, values: Vec::new(), fixed: true }
}
