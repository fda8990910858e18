//! CREATE SEQUENCE, ALTER SEQUENCE, and the sequences of serial and identity columns.

use super::DdlContext;
use super::constraint::column_position;
use super::statement::SequenceOptions;
use super::tokens::Name;
use crate::catalog::Relation;
use crate::catalog::descriptor::{ColumnDescriptor, SequenceDescriptor, TableDescriptor};
use crate::session::sequences;
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type};

fn bounds(ty: Type) -> (i64, i64) {
    match ty {
        Type::INT2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::INT4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

/// Applies options to a sequence; `new` ones take defaults for what is not given.
fn apply(sequence: &mut SequenceDescriptor, options: &SequenceOptions, new: bool) -> SqlResult<()> {
    if let Some(increment) = options.increment {
        if increment == 0 {
            return Err(invalid("INCREMENT must not be zero"));
        }
        sequence.increment = increment;
    }
    let ascending = sequence.increment > 0;
    let (least, greatest) = bounds(sequence.ty);
    let (default_min, default_max) = if ascending { (1, greatest) } else { (least, -1) };
    match options.min {
        Some(min) => sequence.min = min.unwrap_or(default_min),
        None if new => sequence.min = default_min,
        None => {}
    }
    match options.max {
        Some(max) => sequence.max = max.unwrap_or(default_max),
        None if new => sequence.max = default_max,
        None => {}
    }
    if sequence.min < least || sequence.min > greatest {
        return Err(invalid(format!(
            "MINVALUE ({}) is out of range for sequence data type {}",
            sequence.min, sequence.ty
        )));
    }
    if sequence.max < least || sequence.max > greatest {
        return Err(invalid(format!(
            "MAXVALUE ({}) is out of range for sequence data type {}",
            sequence.max, sequence.ty
        )));
    }
    if sequence.min >= sequence.max {
        return Err(invalid(format!(
            "MINVALUE ({}) must be less than MAXVALUE ({})",
            sequence.min, sequence.max
        )));
    }
    match options.start {
        Some(start) => sequence.start = start,
        None if new => sequence.start = if ascending { sequence.min } else { sequence.max },
        None => {}
    }
    if sequence.start < sequence.min {
        return Err(invalid(format!(
            "START value ({}) cannot be less than MINVALUE ({})",
            sequence.start, sequence.min
        )));
    }
    if sequence.start > sequence.max {
        return Err(invalid(format!(
            "START value ({}) cannot be greater than MAXVALUE ({})",
            sequence.start, sequence.max
        )));
    }
    if let Some(cache) = options.cache {
        if cache < 1 {
            return Err(invalid(format!("CACHE ({cache}) must be greater than zero")));
        }
        sequence.cache = cache;
    }
    sequence.cycle = options.cycle.unwrap_or(sequence.cycle);
    Ok(())
}

impl DdlContext<'_> {
    async fn blank_sequence(&self, name: &str, schema: Oid, ty: Type) -> SqlResult<SequenceDescriptor> {
        let oid = self.new_oid().await?;
        Ok(SequenceDescriptor {
            oid,
            database: self.database(),
            schema,
            name: name.to_string(),
            owner: self.user(),
            ty,
            start: 1,
            increment: 1,
            min: 1,
            max: i64::MAX,
            cache: 1,
            cycle: false,
            storage: u64::from(oid),
            first: 1,
            owned_by: None,
            comment: None,
        })
    }

    fn sequence_type(&self, options: &SequenceOptions, default: Type) -> SqlResult<Type> {
        let Some(ty) = &options.ty else { return Ok(default) };
        let ty = self.column_type(ty)?.ty;
        if matches!(ty, Type::INT2 | Type::INT4 | Type::INT8) {
            return Ok(ty);
        }
        Err(invalid("sequence type must be smallint, integer, or bigint"))
    }

    /// The sequence of a serial or identity column: its OID, and the column's default.
    pub(super) async fn owned_sequence(
        &mut self,
        table: &TableDescriptor,
        column: &ColumnDescriptor,
        options: &SequenceOptions,
    ) -> SqlResult<(Oid, String)> {
        if !matches!(column.ty.ty, Type::INT2 | Type::INT4 | Type::INT8) {
            return Err(invalid("identity column type must be smallint, integer, or bigint"));
        }
        let name = self.relation_name(
            table.schema,
            (&table.name, &column.name, "seq"),
            std::slice::from_ref(&table.name),
        );
        let mut sequence = self.blank_sequence(&name, table.schema, column.ty.ty).await?;
        apply(&mut sequence, options, true)?;
        sequence.first = sequence.start;
        sequence.owned_by = Some((table.oid, column.id));
        let (oid, default) = (sequence.oid, self.sequence_default(sequence.schema, &sequence.name));
        self.put_sequence(sequence)?;
        Ok((oid, default))
    }

    /// Changes a sequence. A new counter takes over where the old one stood if the first value or the
    /// step changes.
    pub(super) async fn alter_sequence(&mut self, oid: Oid, options: &SequenceOptions) -> SqlResult<()> {
        let Some(old) = self.catalog.sequences.get(&oid).cloned() else { return Ok(()) };
        let mut sequence = (*old).clone();
        let ty = self.sequence_type(options, old.ty)?;
        if ty != old.ty {
            // Bounds that were the type's own become those of the new type.
            let ((least, greatest), (new_least, new_greatest)) = (bounds(old.ty), bounds(ty));
            sequence.ty = ty;
            sequence.max = if old.max == greatest { new_greatest } else { old.max };
            sequence.min = if old.min == least { new_least } else { old.min };
        }
        apply(&mut sequence, options, false)?;
        let restart = options.restart.map(|restart| restart.unwrap_or(sequence.start));
        if restart.is_some() || sequence.increment != old.increment {
            sequence.first = match restart {
                Some(first) if (sequence.min..=sequence.max).contains(&first) => first,
                Some(first) => {
                    let message = format!(
                        "RESTART value ({first}) is out of range ({}..{})",
                        sequence.min, sequence.max
                    );
                    return Err(invalid(message));
                }
                None => match sequences::peek(&self.view.shared, &old).await? {
                    (value, true) => value.saturating_add(sequence.increment),
                    (value, false) => value,
                },
            };
            sequence.storage = u64::from(self.new_oid().await?);
            self.garbage(old.storage, 0)?;
        }
        if let Some(owner) = &options.owned_by {
            sequence.owned_by = match owner {
                None => None,
                Some((table, column)) => {
                    let table = self.table(table)?;
                    let at = column_position(&table, column)?;
                    Some((table.oid, table.columns[at].id))
                }
            };
        }
        self.put_sequence(sequence)
    }
}

/// CREATE SEQUENCE
pub(super) async fn create(
    cx: &mut DdlContext<'_>,
    name: &Name,
    if_not_exists: bool,
    options: &SequenceOptions,
) -> SqlResult<()> {
    let Some(schema) = cx.new_relation(name, if_not_exists)? else { return Ok(()) };
    let ty = cx.sequence_type(options, Type::INT8)?;
    let mut sequence = cx.blank_sequence(&name.name, schema, ty).await?;
    apply(&mut sequence, options, true)?;
    sequence.first = sequence.start;
    if let Some(Some((table, column))) = &options.owned_by {
        let table = cx.own_table(table)?;
        let at = column_position(&table, column)?;
        sequence.owned_by = Some((table.oid, table.columns[at].id));
    }
    cx.put_sequence(sequence)
}

/// ALTER SEQUENCE
pub(super) async fn alter(
    cx: &mut DdlContext<'_>,
    name: &Name,
    if_exists: bool,
    options: &SequenceOptions,
) -> SqlResult<()> {
    match cx.find(name) {
        Some(Relation::Sequence(oid)) => {
            if let Some(sequence) = cx.catalog.sequences.get(&oid) {
                cx.check_owner("sequence", &sequence.name, sequence.owner)?;
            }
            cx.alter_sequence(oid, options).await
        }
        Some(_) => {
            let message = format!("\"{}\" is not a sequence", name.name);
            Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message))
        }
        None if if_exists => {
            cx.notice(format!("relation \"{}\" does not exist, skipping", name.name));
            Ok(())
        }
        None => Err(cx.undefined("relation", name)),
    }
}
