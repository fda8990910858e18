//! Constraints whose check a transaction puts off: what is still to be checked, and the check.
//!
//! # How it works
//!
//! A statement that might break a deferred constraint notes the values in question ([`Deferred::add`])
//! instead of looking. What is noted says nothing about rows: at the end of the transaction (or at SET
//! CONSTRAINTS … IMMEDIATE) [`check`] asks of each value whether the constraint holds for it now.
//!
//! * A foreign key holds for a value if the row referred to is there, or no row refers to it. So it does not
//!   matter which side changed, nor how often.
//! * A deferrable unique index holds for a value if it has no second entry with it.
//!
//! Values noted before a savepoint stay noted when the transaction goes back to it: those that SET CONSTRAINTS …
//! IMMEDIATE checked after a savepoint are to be checked again then.
//!
//! # Its bound
//!
//! Values of more than [`MOST_BYTES`] are not kept: the constraint that has more is then checked for all rows
//! of its table, which takes longer but no memory. A constraint that rows broke before the transaction (one
//! added as NOT VALID) can then fail for those.

use super::foreign_key::Reference;
use super::violation;
use super::write::EXCLUSIVE;
use crate::catalog::descriptor::{ForeignKeyDescriptor, TableDescriptor, Timing};
use crate::exec::operator::BATCH_ROWS;
use crate::exec::relation::row_bytes;
use crate::exec::{ExecContext, kv};
use crate::table::{IndexCodec, TableCodec};
use bytes::{Bytes, BytesMut};
use indexmap::IndexMap;
use kv_api::Span;
use kv_api::key::prefix_end;
use parking_lot::Mutex;
use sql_types::{Datum, Oid, Row, SqlResult, encoding};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of values kept, estimated, before constraints are checked for whole tables.
pub const MOST_BYTES: usize = 16 << 20;

/// A constraint: its table and its OID.
type Constraint = (Oid, Oid);

/// A value a constraint is to be checked for.
#[derive(Clone, Debug)]
struct Noted {
    values: Row,
    /// The table that the statement changed.
    changed: Oid,
    /// When it was noted.
    number: u64,
    /// Whether it was checked since.
    checked: bool,
}

/// A constraint to be checked for all rows.
#[derive(Clone, Debug, Default)]
struct Whole {
    /// The tables that were changed.
    changed: BTreeSet<Oid>,
    /// Whether it was checked since.
    checked: bool,
}

/// SET CONSTRAINTS of a transaction.
#[derive(Clone, Debug, Default)]
struct Modes {
    all: Option<bool>,
    single: BTreeMap<Oid, bool>,
}

#[derive(Debug)]
struct State {
    modes: Arc<Modes>,
    noted: IndexMap<(Constraint, Bytes), Noted>,
    whole: BTreeMap<Constraint, Whole>,
    number: u64,
    bytes: usize,
    most_bytes: usize,
}

/// What a transaction has put off.
#[derive(Debug)]
pub struct Deferred(Mutex<State>);

/// A point to go back to.
#[derive(Clone, Debug)]
pub struct DeferredMark {
    modes: Arc<Modes>,
    number: u64,
    whole: BTreeSet<Constraint>,
}

impl Default for Deferred {
    fn default() -> Self {
        Deferred::new(MOST_BYTES)
    }
}

impl Deferred {
    /// Nothing, with room for about `most_bytes` of values.
    pub fn new(most_bytes: usize) -> Self {
        Deferred(Mutex::new(State {
            modes: Arc::default(),
            noted: IndexMap::new(),
            whole: BTreeMap::new(),
            number: 0,
            bytes: 0,
            most_bytes,
        }))
    }

    /// Whether a constraint is deferred in this transaction.
    pub fn is_deferred(&self, constraint: Oid, timing: Timing) -> bool {
        if !timing.deferrable {
            return false;
        }
        let state = self.0.lock();
        let single = state.modes.single.get(&constraint).copied();
        single.or(state.modes.all).unwrap_or(timing.deferred)
    }

    /// SET CONSTRAINTS ALL, or of some.
    pub fn set(&self, constraints: Option<&[Oid]>, deferred: bool) {
        let mut state = self.0.lock();
        let modes = Arc::make_mut(&mut state.modes);
        match constraints {
            None => *modes = Modes { all: Some(deferred), single: BTreeMap::new() },
            Some(constraints) => modes.single.extend(constraints.iter().map(|oid| (*oid, deferred))),
        }
    }

    /// Notes that a constraint of `table` is to be checked for a value, whose encoded form is `key`;
    /// `changed` is the table whose row changed.
    pub(super) fn add(&self, table: Oid, constraint: Oid, key: Bytes, values: Row, changed: Oid) {
        let mut state = self.0.lock();
        let constraint = (table, constraint);
        if let Some(whole) = state.whole.get_mut(&constraint) {
            whole.checked = false;
            whole.changed.insert(changed);
            return;
        }
        if let Some(noted) = state.noted.get_mut(&(constraint, key.clone())) {
            noted.checked = false;
            return;
        }
        let bytes = noted_bytes(&key, &values);
        if state.bytes + bytes > state.most_bytes {
            state.give_up(constraint, changed);
            return;
        }
        state.bytes += bytes;
        let number = state.number;
        state.number += 1;
        state.noted.insert((constraint, key), Noted { values, changed, number, checked: false });
    }

    /// Whether nothing is left to be checked.
    pub fn is_empty(&self) -> bool {
        let state = self.0.lock();
        state.noted.values().all(|noted| noted.checked) && state.whole.values().all(|whole| whole.checked)
    }

    /// Whether a check is left that a change of this table asked for.
    pub fn concerns(&self, table: Oid) -> bool {
        let state = self.0.lock();
        state.noted.values().any(|noted| !noted.checked && noted.changed == table)
            || state.whole.values().any(|whole| !whole.checked && whole.changed.contains(&table))
    }

    /// The present point.
    pub fn mark(&self) -> DeferredMark {
        let state = self.0.lock();
        let whole = state.whole.keys().copied().collect();
        DeferredMark { modes: state.modes.clone(), number: state.number, whole }
    }

    /// Forgets what was noted since a point. Constraints to be checked as a whole stay so.
    pub fn rollback_to(&self, mark: &DeferredMark) {
        let mut state = self.0.lock();
        state.modes = mark.modes.clone();
        state.noted.retain(|_, noted| noted.number < mark.number);
        // What was checked since the point is open again.
        state.noted.values_mut().for_each(|noted| noted.checked = false);
        state.whole.values_mut().for_each(|whole| whole.checked = false);
        state.count();
    }

    /// Forgets what was noted, and not how constraints are set.
    pub fn forget(&self) {
        let mut state = self.0.lock();
        state.noted.clear();
        state.whole.clear();
        state.count();
    }

    /// Forgets what was noted of some constraints, since a point if one is given.
    fn forget_some(&self, wanted: &dyn Fn(Oid) -> bool, since: Option<&DeferredMark>) {
        let mut state = self.0.lock();
        let before = |number: u64| since.is_some_and(|since| number < since.number);
        state.noted.retain(|((_, constraint), _), noted| !wanted(*constraint) || before(noted.number));
        let known = |constraint: &Constraint| since.is_some_and(|since| since.whole.contains(constraint));
        state.whole.retain(|constraint, _| !wanted(constraint.1) || known(constraint));
        state.count();
    }

    /// Takes note that some constraints were checked.
    fn mark_checked(&self, wanted: &dyn Fn(Oid) -> bool) {
        let mut state = self.0.lock();
        let noted = state.noted.iter_mut().filter(|((constraint, _), _)| wanted(constraint.1));
        noted.for_each(|(_, noted)| noted.checked = true);
        let whole = state.whole.iter_mut().filter(|(constraint, _)| wanted(constraint.1));
        whole.for_each(|(_, whole)| whole.checked = true);
    }

    /// The constraints with something to be checked, in the order in which that came up.
    fn constraints(&self) -> Vec<Constraint> {
        let state = self.0.lock();
        let mut found: Vec<Constraint> = Vec::new();
        let mut last = None;
        for ((constraint, _), _) in state.noted.iter().filter(|(_, noted)| !noted.checked) {
            if last != Some(*constraint) && !found.contains(constraint) {
                found.push(*constraint);
            }
            last = Some(*constraint);
        }
        // A constraint is either noted or to be checked as a whole.
        found.extend(
            state.whole.iter().filter(|(_, whole)| !whole.checked).map(|(constraint, _)| *constraint),
        );
        found
    }

    /// The values a constraint is to be checked for, each with the table that was changed.
    fn values(&self, wanted: Constraint) -> Vec<(Bytes, Row, Oid)> {
        let state = self.0.lock();
        let of_it =
            state.noted.iter().filter(|((constraint, _), noted)| *constraint == wanted && !noted.checked);
        of_it.map(|((_, key), noted)| (key.clone(), noted.values.clone(), noted.changed)).collect()
    }

    fn is_whole(&self, constraint: Constraint) -> bool {
        self.0.lock().whole.contains_key(&constraint)
    }
}

fn noted_bytes(key: &Bytes, values: &Row) -> usize {
    key.len() + row_bytes(values) + 128
}

impl State {
    fn count(&mut self) {
        self.bytes = self.noted.iter().map(|((_, key), noted)| noted_bytes(key, &noted.values)).sum();
    }

    /// Has a constraint checked for all rows.
    fn give_up(&mut self, constraint: Constraint, changed: Oid) {
        let of_it = self.noted.iter().filter(|((known, _), _)| *known == constraint);
        let mut tables: BTreeSet<Oid> = of_it.map(|(_, noted)| noted.changed).collect();
        tables.insert(changed);
        self.whole.entry(constraint).or_default().changed.extend(tables);
        self.noted.retain(|(known, _), _| *known != constraint);
        self.count();
    }
}

/// Checks what was put off of some constraints, or all; with `forget`, it is done with then.
///
/// # Errors
/// 23503 and 23505 if a constraint does not hold.
pub async fn check(
    cx: &ExecContext<'_>,
    deferred: &Deferred,
    constraints: Option<&[Oid]>,
    forget: bool,
) -> SqlResult<()> {
    let wanted = |oid: Oid| constraints.is_none_or(|constraints| constraints.contains(&oid));
    for constraint in deferred.constraints().into_iter().filter(|(_, oid)| wanted(*oid)) {
        check_one(cx, deferred, constraint).await?;
    }
    if forget {
        deferred.forget_some(&wanted, None);
    } else {
        deferred.mark_checked(&wanted);
    }
    Ok(())
}

/// Checks at the end of a statement the deferrable unique indexes that its transaction does not defer. `start`
/// is where the statement began.
///
/// # Errors
/// 23505
pub(super) async fn check_statement(
    cx: &ExecContext<'_>,
    table: &TableDescriptor,
    start: &DeferredMark,
) -> SqlResult<()> {
    let later = table.indexes.iter().filter(|index| index.timing.deferrable);
    let now = later.filter(|index| !cx.deferred.is_deferred(index.oid, index.timing));
    let now: Vec<Oid> = now.map(|index| index.oid).collect();
    if now.is_empty() {
        return Ok(());
    }
    check(cx, cx.deferred, Some(&now), false).await?;
    cx.deferred.forget_some(&|oid| now.contains(&oid), Some(start));
    Ok(())
}

async fn check_one(cx: &ExecContext<'_>, deferred: &Deferred, constraint: Constraint) -> SqlResult<()> {
    // A constraint that has gone since holds.
    let Some(table) = cx.host.table(constraint.0) else { return Ok(()) };
    let codec = cx.codecs.get(&table)?;
    if let Some(key) = table.foreign_keys.iter().find(|key| key.oid == constraint.1) {
        let mut reference = Reference::new(&codec, key, cx)?;
        if deferred.is_whole(constraint) {
            return reference.check_table(&codec, cx).await;
        }
        let noted: Vec<_> = deferred.values(constraint).into_iter().map(|(_, row, at)| (row, at)).collect();
        return reference.verify(&codec, noted, cx).await;
    }
    let Some(index) = table.indexes.iter().find(|index| index.oid == constraint.1) else { return Ok(()) };
    let layout = codec.index(index.id)?;
    if deferred.is_whole(constraint) {
        return check_index(&codec, layout, cx).await;
    }
    let keys: Vec<Bytes> = deferred.values(constraint).into_iter().map(|(key, ..)| key).collect();
    check_keys(&codec, &keys, cx).await
}

/// Checks that no two rows have one of these values, given as keys of a deferrable unique index without what
/// names the row.
///
/// # Errors
/// 23505
pub(super) async fn check_keys(codec: &TableCodec, keys: &[Bytes], cx: &ExecContext<'_>) -> SqlResult<()> {
    for keys in keys.chunks(BATCH_ROWS) {
        // Two transactions that bring the same value meet here; who comes second sees what the first wrote.
        kv::get_many(cx, keys, Some(EXCLUSIVE)).await?;
        cx.txn.begin_statement();
        let spans: Vec<Span> =
            keys.iter().map(|key| Span::new(key.clone(), prefix_end(key).unwrap_or_default())).collect();
        for (key, page) in keys.iter().zip(kv::scan_many(cx, &spans, false, 0, None).await?) {
            if page.rows.len() > 1 {
                return Err(violation::duplicate(cx.host, &cx.eval.text, codec.table(), codec, key));
            }
        }
        cx.cancel.check()?;
    }
    Ok(())
}

/// Checks all entries of a deferrable unique index.
async fn check_index(codec: &TableCodec, index: &IndexCodec, cx: &ExecContext<'_>) -> SqlResult<()> {
    let mut rest = Some(index.span());
    while let Some(span) = rest {
        let page = kv::scan_page(cx, &span, false, BATCH_ROWS, None).await?;
        rest = page.resume;
        let mut keys: Vec<Bytes> = Vec::with_capacity(page.rows.len());
        for (key, _) in &page.rows {
            let (values, primary) = index.decode_columns(key)?;
            if !values.iter().any(Datum::is_null) {
                keys.push(key.slice(..key.len() - primary.len()));
            }
        }
        keys.dedup();
        check_keys(codec, &keys, cx).await?;
    }
    Ok(())
}

/// Values of a foreign key in a form that equal values share.
pub(super) fn values_key(values: &[Datum]) -> SqlResult<Bytes> {
    let mut key = BytesMut::new();
    for value in values {
        encoding::encode_key(value, false, &mut key)?;
    }
    Ok(key.freeze())
}

/// Where a transaction keeps the check of a foreign key, if it puts it off.
pub(super) fn puts_off<'c>(cx: &ExecContext<'c>, key: &ForeignKeyDescriptor) -> Option<&'c Deferred> {
    Some(cx.deferred).filter(|deferred| deferred.is_deferred(key.oid, key.timing))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Timing = Timing { deferrable: true, deferred: true };

    fn add(deferred: &Deferred, value: i32) {
        let values = vec![Datum::Int4(value)];
        deferred.add(1, 10, values_key(&values).unwrap(), values, 1);
    }

    #[test]
    fn set_constraints_and_savepoints() {
        let deferred = Deferred::default();
        let initially_immediate = Timing { deferrable: true, deferred: false };
        assert!(deferred.is_deferred(10, KEY) && !deferred.is_deferred(10, initially_immediate));
        assert!(!deferred.is_deferred(10, Timing::default()));
        add(&deferred, 1);
        let mark = deferred.mark();
        deferred.set(Some(&[10]), false);
        assert!(!deferred.is_deferred(10, KEY) && deferred.is_deferred(11, KEY));
        deferred.set(None, true);
        assert!(deferred.is_deferred(10, KEY) && deferred.is_deferred(10, initially_immediate));
        assert!(!deferred.is_deferred(10, Timing::default()));
        add(&deferred, 1);
        add(&deferred, 2);
        assert_eq!(deferred.values((1, 10)).len(), 2);
        deferred.rollback_to(&mark);
        assert_eq!(deferred.values((1, 10)).len(), 1);
        assert!(!deferred.is_deferred(10, initially_immediate));
        assert!(deferred.concerns(1) && !deferred.concerns(2));
        // What was checked since a savepoint is open again when the transaction goes back to it.
        deferred.mark_checked(&|oid| oid == 10);
        assert!(deferred.is_empty() && deferred.constraints().is_empty() && !deferred.concerns(1));
        deferred.rollback_to(&mark);
        assert!(deferred.concerns(1));
        deferred.mark_checked(&|_| true);
        add(&deferred, 1);
        assert!(deferred.concerns(1));
        deferred.forget();
        assert!(deferred.is_empty());
    }

    #[test]
    fn too_many_values_make_it_the_whole_table() {
        let deferred = Deferred::new(2000);
        let mark = deferred.mark();
        (0..1000).for_each(|value| add(&deferred, value));
        assert!(deferred.is_whole((1, 10)) && deferred.values((1, 10)).is_empty());
        assert_eq!(deferred.constraints(), [(1, 10)]);
        deferred.rollback_to(&mark);
        assert!(deferred.concerns(1) && !deferred.is_empty());
    }
}
