//! The variables of a running body.

use super::ast::Target;
use super::conditions::{ERROR_IN_ASSIGNMENT, NULL_NOT_ALLOWED};
use crate::bind::{Variable, VariableKind, Variables};
use crate::exec::relation::{datum_bytes, row_bytes};
use crate::plan::PlanColumn;
use sql_types::{ColumnType, Datum, RecordField, RecordValue, Row, SqlError, SqlResult, SqlState, Type};
use std::fmt::Write;
use std::sync::Arc;

/// Names and types of fields.
pub(crate) type Fields = Arc<[(Arc<str>, ColumnType)]>;

/// What a variable holds.
#[derive(Clone, Debug)]
pub(crate) enum Holder {
    /// A value of a type.
    Value(ColumnType, Datum),
    /// Fields; `fixed` if they are those of a table, and not of what was assigned last. No values: NULL.
    Row { fields: Fields, values: Row, fixed: bool },
    /// A record that nothing was assigned to.
    Unassigned,
}

impl Holder {
    /// Estimated bytes of what it holds.
    fn bytes(&self) -> usize {
        match self {
            Holder::Value(_, value) => datum_bytes(value),
            Holder::Row { values, .. } => row_bytes(values),
            Holder::Unassigned => 0,
        }
    }
}

/// A variable.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub holder: Holder,
    /// What of it is counted in [`Frame::bytes`].
    bytes: usize,
    pub constant: bool,
    pub not_null: bool,
}

#[derive(Debug)]
struct Name {
    block: Option<Arc<str>>,
    name: Arc<str>,
    slot: usize,
}

/// The variables of a running body, the innermost last.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    slots: Vec<Slot>,
    names: Vec<Name>,
    known: Option<Arc<Variables>>,
    bytes: usize,
}

/// How many variables there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth(usize, usize);

/// A variable, or a field of one.
pub(crate) struct Place {
    pub slot: usize,
    pub field: Option<usize>,
}

/// Converts a value to the type of what it is assigned to.
pub(crate) type Convert<'a> = &'a dyn Fn(Datum, Type, ColumnType) -> SqlResult<Datum>;

impl Frame {
    pub fn depth(&self) -> Depth {
        Depth(self.slots.len(), self.names.len())
    }

    pub fn leave(&mut self, depth: Depth) {
        if self.names.len() > depth.1 {
            self.known = None;
        }
        let gone: usize = self.slots.iter().skip(depth.0).map(|slot| slot.bytes).sum();
        self.bytes = self.bytes.saturating_sub(gone);
        self.slots.truncate(depth.0);
        self.names.truncate(depth.1);
    }

    pub fn add(&mut self, block: Option<&str>, name: &str, holder: Holder) -> usize {
        self.slots.push(Slot { holder, bytes: 0, constant: false, not_null: false });
        let slot = self.slots.len() - 1;
        self.count(slot);
        self.names.push(Name { block: block.map(Into::into), name: name.into(), slot });
        self.known = None;
        slot
    }

    pub fn alias(&mut self, block: Option<&str>, name: &str, slot: usize) {
        self.names.push(Name { block: block.map(Into::into), name: name.into(), slot });
        self.known = None;
    }

    pub fn slot_mut(&mut self, slot: usize) -> Option<&mut Slot> {
        self.slots.get_mut(slot)
    }

    pub fn holder(&self, slot: usize) -> Option<&Holder> {
        self.slots.get(slot).map(|slot| &slot.holder)
    }

    /// Estimated bytes of what the variables hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn count(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot) {
            let bytes = slot.holder.bytes();
            self.bytes = self.bytes.saturating_sub(slot.bytes).saturating_add(bytes);
            slot.bytes = bytes;
        }
    }

    fn find(&self, block: Option<&str>, name: &str) -> Option<usize> {
        let found = self
            .names
            .iter()
            .rev()
            .find(|known| &*known.name == name && (block.is_none() || known.block.as_deref() == block));
        found.map(|known| known.slot)
    }

    /// A variable by its bare name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.find(None, name)
    }

    /// What is assigned to.
    pub fn place(&self, target: &Target) -> SqlResult<Place> {
        let unknown = || {
            let message = format!("\"{}\" is not a known variable", target.0.join("."));
            SqlError::new(SqlState::SYNTAX_ERROR, message)
        };
        let with_field = |slot: usize, field: &str| match self.holder(slot) {
            Some(Holder::Row { fields, .. }) => {
                let found = fields.iter().position(|(known, _)| &**known == field);
                let field = found.ok_or_else(|| {
                    let record = target.0.iter().rev().nth(1).map_or("", String::as_str);
                    let message = format!("record \"{record}\" has no field \"{field}\"");
                    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
                })?;
                Ok(Place { slot, field: Some(field) })
            }
            Some(Holder::Unassigned) => {
                let record = target.0.iter().rev().nth(1).map_or("", String::as_str);
                let message = format!("record \"{record}\" is not assigned yet");
                Err(SqlError::new(SqlState::OBJECT_STATE, message)
                    .with_detail("The tuple structure of a not-yet-assigned record is indeterminate."))
            }
            _ => Err(unknown()),
        };
        match target.0.as_slice() {
            [name] => self.named(name).map(|slot| Place { slot, field: None }).ok_or_else(unknown),
            [first, second] => match self.named(first) {
                Some(slot) => with_field(slot, second),
                None => {
                    let slot = self.find(Some(first), second).ok_or_else(unknown)?;
                    Ok(Place { slot, field: None })
                }
            },
            [block, name, field] => with_field(self.find(Some(block), name).ok_or_else(unknown)?, field),
            _ => Err(unknown()),
        }
    }

    /// Assigns a value.
    pub fn assign(&mut self, place: &Place, value: Datum, ty: Type, convert: Convert<'_>) -> SqlResult<()> {
        let name = self.name_of(place.slot);
        let Some(slot) = self.slots.get_mut(place.slot) else {
            return Err(SqlError::internal("no such variable"));
        };
        if slot.constant {
            let message = format!("variable \"{name}\" is declared CONSTANT");
            return Err(SqlError::new(ERROR_IN_ASSIGNMENT, message));
        }
        if slot.not_null && value.is_null() {
            let message = format!("null value cannot be assigned to variable \"{name}\" declared NOT NULL");
            return Err(SqlError::new(NULL_NOT_ALLOWED, message));
        }
        match (&mut slot.holder, place.field) {
            (Holder::Value(to, held), None) => *held = convert(value, ty, *to)?,
            (Holder::Row { fields, values, .. }, Some(field)) => {
                let Some((_, to)) = fields.get(field) else {
                    return Err(SqlError::internal("no such field"));
                };
                values.resize(fields.len(), Datum::Null);
                values[field] = convert(value, ty, *to)?;
            }
            (_, None) => {
                let (fields, values): (Fields, Row) = match value {
                    Datum::Record(record) => {
                        let named = |position: usize| match &record.fields {
                            Some(fields) => fields.get(position).map(|field| (field.name.clone(), field.ty)),
                            None => None,
                        };
                        let fields = (0..record.values.len()).map(|position| {
                            let (name, ty) =
                                named(position).unwrap_or_else(|| (format!("f{}", position + 1), Type::TEXT));
                            (Arc::from(name.as_str()), ColumnType::plain(ty))
                        });
                        (fields.collect(), record.values.clone())
                    }
                    Datum::Null => return self.assign_null(place.slot),
                    _ => {
                        let message = "cannot assign non-composite value to a record variable";
                        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
                    }
                };
                return self.assign_row(place.slot, &fields, values, convert);
            }
            _ => return Err(SqlError::internal("a field of a value")),
        }
        self.count(place.slot);
        Ok(())
    }

    fn name_of(&self, slot: usize) -> Arc<str> {
        let found = self.names.iter().find(|name| name.slot == slot);
        found.map_or_else(|| Arc::from(""), |name| name.name.clone())
    }

    /// Makes all fields of a record NULL.
    pub fn assign_null(&mut self, slot: usize) -> SqlResult<()> {
        if let Some(Slot { holder: Holder::Row { values, fields, .. }, .. }) = self.slots.get_mut(slot) {
            *values = vec![Datum::Null; fields.len()];
        }
        self.count(slot);
        Ok(())
    }

    /// Assigns a row to a record.
    pub fn assign_row(
        &mut self,
        at: usize,
        fields: &Fields,
        mut row: Row,
        convert: Convert<'_>,
    ) -> SqlResult<()> {
        let Some(slot) = self.slots.get_mut(at) else { return Err(SqlError::internal("no such variable")) };
        match &mut slot.holder {
            Holder::Row { fields: own, values, fixed: true } => {
                row.resize(own.len(), Datum::Null);
                let from = |position: usize| fields.get(position).map_or(Type::TEXT, |(_, ty)| ty.ty);
                let converted = row.into_iter().zip(own.iter()).enumerate();
                *values = converted
                    .map(|(position, (value, (_, to)))| convert(value, from(position), *to))
                    .collect::<SqlResult<_>>()?;
            }
            Holder::Row { fields: own, values, .. } if own == fields => *values = row,
            Holder::Row { .. } | Holder::Unassigned => {
                slot.holder = Holder::Row { fields: fields.clone(), values: row, fixed: false };
                self.known = None;
            }
            Holder::Value(..) => return Err(SqlError::internal("a row for a value")),
        }
        self.count(at);
        Ok(())
    }

    /// The names that a statement can use.
    pub fn variables(&mut self) -> Arc<Variables> {
        if let Some(known) = &self.known {
            return known.clone();
        }
        let mut types = Vec::new();
        let mut kinds = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            kinds.push(match &slot.holder {
                Holder::Value(ty, _) => {
                    types.push(ty.ty);
                    VariableKind::Value(types.len() - 1, ty.ty)
                }
                Holder::Row { fields, .. } => VariableKind::Row(
                    fields
                        .iter()
                        .map(|(name, ty)| {
                            types.push(ty.ty);
                            (name.clone(), types.len() - 1, ty.ty)
                        })
                        .collect(),
                ),
                Holder::Unassigned => VariableKind::Unassigned,
            });
        }
        let mut key = String::from("plpgsql");
        let mut list = Vec::with_capacity(self.names.len());
        for name in self.names.iter().rev() {
            let kind = kinds.get(name.slot).cloned().unwrap_or(VariableKind::Unassigned);
            let _ = write!(key, "\u{1}{:?}\u{2}{}\u{2}", name.block, name.name);
            match &kind {
                VariableKind::Value(index, _) => {
                    let _ = write!(key, "{index}");
                }
                VariableKind::Row(fields) => {
                    for (field, index, _) in fields {
                        let _ = write!(key, "{field}\u{3}{index}\u{3}");
                    }
                }
                VariableKind::Unassigned => {}
            }
            list.push(Variable { block: name.block.clone(), name: name.name.clone(), kind });
        }
        let made = Arc::new(Variables { list, types, columns_first: false, key: key.into() });
        self.known = Some(made.clone());
        made
    }

    /// The values of the parameters that [`Frame::variables`] names.
    pub fn values(&self) -> Vec<Datum> {
        let mut all = Vec::with_capacity(self.slots.len());
        for slot in &self.slots {
            match &slot.holder {
                Holder::Value(_, value) => all.push(value.clone()),
                Holder::Row { fields, values, .. } => {
                    all.extend((0..fields.len()).map(|at| values.get(at).cloned().unwrap_or_default()));
                }
                Holder::Unassigned => {}
            }
        }
        all
    }
}

/// The fields of rows with these columns.
pub(crate) fn fields_of(columns: &[PlanColumn]) -> Fields {
    columns.iter().map(|column| (column.name.clone(), column.ty)).collect()
}

/// A row as a value.
pub(crate) fn record(fields: &Fields, values: &[Datum]) -> Datum {
    let names = fields.iter().map(|(name, ty)| RecordField { name: name.to_string(), ty: ty.ty });
    Datum::Record(Arc::new(RecordValue { fields: Some(names.collect()), values: values.to_vec() }))
}
