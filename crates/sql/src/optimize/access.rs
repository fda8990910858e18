//! Which index a scan reads and which part of it.
//!
//! Equalities with the leading columns of an index become the prefix of the access, IN and
//! `= ANY(array)` its alternatives, comparisons with the next column its bounds. Equalities that the
//! access expresses exactly leave the filter; bounds stay in it, so that an access may read too much
//! but never too little.
//!
//! A column of an index may be an expression; what is said here of columns goes for it as well. A partial index is
//! looked at only if the conditions imply its predicate ([`super::implies`]).

use super::estimate::{expected_limit, keyed_share, range_share, reading, table_rows};
use super::implies::{implied, normal};
use super::origin::Columns;
use super::selectivity::of_all;
use super::{cost, inverted};
use crate::catalog::descriptor::{ColumnId, IndexDescriptor, IndexExpression, IndexId, TableDescriptor};
use crate::inverted::OperatorClass;
use crate::plan::{Expr, IndexAccess, Plan, PlanKind, ScanBound, SortKey};
use crate::table::bound_index;
use sql_types::cast;
use sql_types::functions::{EvalContext, Volatility};
use sql_types::{Datum, Type};
use std::cell::LazyCell;
use std::sync::Arc;

/// Ten times the rows that a limit which is not known is taken to be.
pub(super) const UNKNOWN_LIMIT: f64 = 1000.0;

/// An order that whoever reads the rows wants.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Expressions over the rows, and whether descending and NULLs first.
    pub keys: Vec<(Expr, bool, bool)>,
    /// How many rows will be read, if few.
    pub(super) limit: Option<f64>,
}

/// Chooses indexes and join methods in a whole plan; sorts made superfluous go.
pub fn choose(plan: &mut Plan) {
    choose_ordered(plan, None, None);
}

/// Returns whether the rows come in the order wanted.
pub fn choose_ordered(plan: &mut Plan, wanted: Option<Wanted>, limit: Option<f64>) -> bool {
    match &mut plan.kind {
        PlanKind::Limit { input, limit, offset } => {
            let rows = limit.as_ref().map(|limit| expected_limit(limit, UNKNOWN_LIMIT));
            let skipped = offset.as_ref().map_or(0.0, |offset| expected_limit(offset, UNKNOWN_LIMIT));
            choose_ordered(input, wanted, rows.map(|rows| rows + skipped))
        }
        PlanKind::Sort { input, keys, .. } => {
            let order = wanted_by(keys, limit);
            let sorted = choose_ordered(input, order, None);
            if sorted {
                let inner = std::mem::replace(input.as_mut(), Plan::one_row());
                let columns = std::mem::take(&mut plan.columns);
                *plan = inner;
                plan.columns = columns;
            }
            false
        }
        PlanKind::Project { input, exprs } => {
            let below = wanted.and_then(|wanted| through(wanted, exprs));
            choose_ordered(input, below, limit)
        }
        PlanKind::Filter { input, .. } => choose_ordered(input, wanted, None),
        PlanKind::Scan { .. } => choose_scan(plan, wanted.as_ref()),
        _ => {
            plan.for_each_child_mut(&mut |child, _| {
                choose_ordered(child, None, None);
            });
            false
        }
    }
}

fn wanted_by(keys: &[SortKey], limit: Option<f64>) -> Option<Wanted> {
    let keys = keys
        .iter()
        .map(|key| {
            let plain = key.expr.volatility() == Volatility::Immutable;
            plain.then(|| (key.expr.clone(), key.descending, key.nulls_first))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Wanted { keys, limit })
}

/// The order wanted below a projection.
fn through(wanted: Wanted, exprs: &[Expr]) -> Option<Wanted> {
    let keys = wanted
        .keys
        .into_iter()
        .map(|(mut expr, descending, nulls_first)| {
            let mut known = true;
            expr.columns(&mut |index| {
                known &= exprs.get(index).is_some_and(|expr| expr.volatility() == Volatility::Immutable);
            });
            expr.replace(&mut |part| match part {
                Expr::Column(index, _) => exprs.get(*index).cloned(),
                _ => None,
            });
            known.then_some((expr, descending, nulls_first))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Wanted { keys, ..wanted })
}

/// Whether an access finds at most one entry for each alternative.
pub fn is_unique(table: &TableDescriptor, index: IndexId, access: &IndexAccess) -> bool {
    let keyed = access.prefix.len() + usize::from(!access.in_list.is_empty());
    table
        .index(index)
        .is_some_and(|index| index.unique && !index.timing.deferrable && keyed >= index.columns.len())
}

/// What an index offers for the conditions on a table.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The index.
    pub index: IndexId,
    /// The part of it.
    pub access: IndexAccess,
    /// Conditions that the access does not express exactly.
    pub rest: Vec<Expr>,
    /// Rows that satisfy all conditions.
    pub rows: f64,
    /// Entries of the index that are read.
    pub entries: f64,
    /// Estimated cost.
    pub cost: f64,
    /// Whether the rows come in the order wanted, and whether that needs a reverse scan.
    pub(super) ordered: Option<bool>,
}

fn choose_scan(plan: &mut Plan, wanted: Option<&Wanted>) -> bool {
    let PlanKind::Scan { table, index, access, columns, filter, reverse, .. } = &mut plan.kind else {
        return false;
    };
    if !access.is_full() {
        return false;
    }
    let conjuncts = filter.take().map_or_else(Vec::new, Expr::into_conjuncts);
    let choice = best(table, columns, conjuncts, wanted);
    *index = choice.index;
    *access = choice.access;
    *filter = Expr::conjunction(choice.rest);
    *reverse = choice.ordered.unwrap_or(false);
    choice.ordered.is_some()
}

/// How much less reading all of an index must cost than reading the table, to be worth it: less is within the error.
const NARROWER: f64 = 0.85;

/// The cheapest way to read the rows of a table that satisfy the conditions. One by a whole unique key needs no
/// comparison.
pub fn best(
    table: &Arc<TableDescriptor>,
    columns: &[ColumnId],
    conjuncts: Vec<Expr>,
    wanted: Option<&Wanted>,
) -> Choice {
    let rows = LazyCell::new(|| table_rows(table) * of_all(&conjuncts, Columns::Table(table, columns)));
    let mut best: Option<Choice> = None;
    for index in table.indexes.iter().filter(|index| index.is_public()) {
        let Some(keys) = Keys::of(table, index, columns, &conjuncts) else { continue };
        let offered = Offered { table, index, keys: &keys, columns, conjuncts: &conjuncts };
        let choice = match index.inverted {
            Some(class) => match inverted::offer(&offered, class, *rows, wanted) {
                Some(choice) => choice,
                None => continue,
            },
            None => offer(offered, &rows, wanted),
        };
        if is_unique(table, index.id, &choice.access) && choice.access.in_list.is_empty() {
            return choice;
        }
        let whole = choice.access.is_full() && choice.ordered.is_none();
        let margin = if whole { NARROWER } else { 1.0 };
        if best.as_ref().is_none_or(|best| choice.cost < best.cost * margin) {
            best = Some(choice);
        }
    }
    let rows = *rows;
    best.unwrap_or_else(|| Choice {
        index: table.primary().id,
        access: IndexAccess::default(),
        rest: conjuncts,
        rows,
        entries: table_rows(table),
        cost: cost::scan(table_rows(table), 0.0),
        ordered: None,
    })
}

/// The way to read a table by an inverted index, for estimates.
pub(super) fn by_inverted(
    table: &Arc<TableDescriptor>,
    index: &IndexDescriptor,
    class: OperatorClass,
    columns: &[ColumnId],
    filter: Option<&Expr>,
) -> Option<Choice> {
    let conjuncts = filter.cloned().map_or_else(Vec::new, Expr::into_conjuncts);
    let rows = table_rows(table) * of_all(&conjuncts, Columns::Table(table, columns));
    let keys = Keys::of(table, index, columns, &conjuncts)?;
    let offered = Offered { table, index, keys: &keys, columns, conjuncts: &conjuncts };
    inverted::offer(&offered, class, rows, None)
}

/// The cheapest way without an order in mind, for estimates.
pub fn cheapest(table: &Arc<TableDescriptor>, columns: &[ColumnId], filter: Option<&Expr>) -> Choice {
    let conjuncts = filter.cloned().map_or_else(Vec::new, Expr::into_conjuncts);
    best(table, columns, conjuncts, None)
}

/// A key column of an index, as the conditions and orders of a scan can name it.
pub(super) enum Key {
    /// A column of the scan.
    Column(usize, Type, bool),
    /// An expression over the columns of the scan, in normal form.
    Expr(Expr, Type),
    /// A column that the scan does not have.
    Unknown,
}

/// The key columns of an index.
pub(super) struct Keys {
    pub columns: Vec<Key>,
    /// Conditions that every row of a partial index satisfies.
    satisfied: Vec<usize>,
    /// The share of the table's rows that are in the index.
    share: f64,
}

impl Keys {
    /// The key columns of an index; `None` if it does not have all the rows that satisfy the conditions.
    fn of(
        table: &Arc<TableDescriptor>,
        index: &IndexDescriptor,
        columns: &[ColumnId],
        conjuncts: &[Expr],
    ) -> Option<Keys> {
        let position = |id: ColumnId| columns.iter().position(|own| *own == id);
        let column = |id: ColumnId| match (position(id), table.column(id)) {
            (Some(at), Some(column)) => Key::Column(at, column.ty.ty, column.nullable),
            _ => Key::Unknown,
        };
        if index.is_plain() {
            let columns = index.columns.iter().map(|(id, _)| column(*id)).collect();
            return Some(Keys { columns, satisfied: Vec::new(), share: 1.0 });
        }
        let bound = bound_index(table, index.id).ok()??;
        // The expressions are over full rows.
        let within = |expr: &Expr| {
            let mut known = true;
            let mut expr = normal(expr);
            expr.replace(&mut |part| match part {
                Expr::Column(full, ty) => {
                    let at = table.columns.get(*full).and_then(|column| position(column.id));
                    known &= at.is_some();
                    Some(Expr::Column(at.unwrap_or(usize::MAX), *ty))
                }
                _ => None,
            });
            known.then_some(expr)
        };
        let mut satisfied = Vec::new();
        if !bound.conditions.is_empty() {
            let given: Vec<Expr> = conjuncts.iter().map(normal).collect();
            for condition in &bound.conditions {
                let condition = within(condition)?;
                if !implied(&condition, &given) {
                    return None;
                }
                satisfied.extend((0..given.len()).filter(|at| given[*at].same(&condition)));
            }
        }
        let key = |((id, expression, _), bound): (
            (ColumnId, Option<&IndexExpression>, bool),
            &Option<Expr>,
        )| {
            match (expression, bound) {
                (Some(expression), Some(bound)) => {
                    within(bound).map_or(Key::Unknown, |expr| Key::Expr(expr, expression.ty))
                }
                _ => column(id),
            }
        };
        let share = indexed_share(table, index);
        Some(Keys { columns: index.parts().zip(&bound.columns).map(key).collect(), satisfied, share })
    }
}

impl Key {
    /// Whether an expression is this column: `Some(None)` if it is, `Some(type)` if it is cast to a type.
    pub fn is(&self, expr: &Expr) -> Option<Option<Type>> {
        match self {
            Key::Column(position, ..) => match expr {
                Expr::Column(own, _) if own == position => Some(None),
                Expr::Cast { expr, to, .. } if matches!(**expr, Expr::Column(own, _) if own == *position) => {
                    Some(Some(to.ty))
                }
                _ => None,
            },
            Key::Expr(own, _) => {
                let constant = expr.is_column_free();
                (!constant && normal(expr).same(own)).then_some(None)
            }
            Key::Unknown => None,
        }
    }

    pub fn ty(&self) -> Option<Type> {
        match self {
            Key::Column(_, ty, _) | Key::Expr(_, ty) => Some(*ty),
            Key::Unknown => None,
        }
    }
}

/// An index that may be read.
pub(super) struct Offered<'o> {
    pub table: &'o Arc<TableDescriptor>,
    pub index: &'o IndexDescriptor,
    pub keys: &'o Keys,
    pub columns: &'o [ColumnId],
    pub conjuncts: &'o [Expr],
}

/// What an index offers. `all_rows`: those that satisfy all conditions.
fn offer(
    offered: Offered<'_>,
    all_rows: &LazyCell<f64, impl FnOnce() -> f64>,
    wanted: Option<&Wanted>,
) -> Choice {
    let Offered { table, index, keys, columns, conjuncts } = offered;
    let (access, mut used) = matching(index, keys, conjuncts);
    used.extend(&keys.satisfied);
    let rest: Vec<Expr> = conjuncts
        .iter()
        .enumerate()
        .filter(|(position, _)| !used.contains(position))
        .map(|(_, conjunct)| conjunct.clone())
        .collect();
    let by_key = is_unique(table, index.id, &access) && access.in_list.is_empty();
    let (rows, mut entries) = if by_key {
        (of_all(&rest, Columns::Table(table, columns)), 1.0)
    } else {
        let rows = **all_rows;
        let share = keys.share * keyed_share(table, index, &access) * range_share(table, index, &access);
        (rows, (table_rows(table) * share).max(rows).max(MIN_ENTRIES))
    };
    let ordered = wanted.and_then(|wanted| gives_order(index, keys, &access, conjuncts, wanted));
    let mut sort = 0.0;
    if let Some(wanted) = wanted {
        let limit = wanted.limit.unwrap_or(rows);
        if ordered.is_some() {
            entries *= (limit / rows.max(1.0)).min(1.0);
        } else {
            sort = cost::sort(rows, limit);
        }
    }
    let filter = Expr::conjunction(rest.clone());
    let cost = reading(table, index, &access, columns, (entries, rows), filter.as_ref()) + sort;
    Choice { index: index.id, access, rest, rows, entries, cost, ordered }
}

/// Entries that an access is taken to read at least: what it is for a left row of a join is less than one on average.
const MIN_ENTRIES: f64 = 1e-3;

/// The share of a table's rows that an index has entries of.
pub fn indexed_share(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> f64 {
    if index.predicate.is_none() {
        return 1.0;
    }
    let Ok(Some(bound)) = bound_index(table, index.id) else { return 1.0 };
    let all: Vec<ColumnId> = table.columns.iter().map(|column| column.id).collect();
    of_all(&bound.conditions, Columns::Table(table, &all))
}

/// Whether an index yields the order wanted: `Some(true)` if read backwards. Columns fixed by
/// equalities do not count.
fn gives_order(
    index: &IndexDescriptor,
    keys: &Keys,
    access: &IndexAccess,
    conjuncts: &[Expr],
    wanted: &Wanted,
) -> Option<bool> {
    let (fixed, rest) = keys.columns.split_at_checked(access.prefix.len())?;
    let mut next = rest.iter().zip(index.columns.iter().skip(fixed.len()));
    let mut reverse: Option<bool> = None;
    let unique = index.unique && !index.timing.deferrable;
    let mut unique_so_far = access.prefix.len() == index.columns.len() && unique;
    for (expr, descending, nulls_first) in &wanted.keys {
        let is = |key: &Key| matches!(key.is(expr), Some(None));
        if fixed.iter().any(is) || is_fixed(conjuncts, expr) || unique_so_far {
            continue;
        }
        let Some((own, (_, own_descending))) = next.next() else {
            // The rows of a secondary index follow each other in the order of the primary key.
            return None;
        };
        if !is(own) {
            return None;
        }
        let backwards = own_descending != descending;
        // Ascending keys have NULLs last, descending ones first.
        let nulls = *nulls_first == *descending;
        let nullable = !matches!(own, Key::Column(_, _, false));
        if nullable && !nulls {
            return None;
        }
        if *reverse.get_or_insert(backwards) != backwards {
            return None;
        }
        unique_so_far = unique && next.len() == 0 && !nullable;
    }
    Some(reverse.unwrap_or(false))
}

/// Whether an equality with something constant fixes a column.
fn is_fixed(conjuncts: &[Expr], wanted: &Expr) -> bool {
    let Expr::Column(position, ty) = wanted else { return false };
    let key = Key::Column(*position, *ty, true);
    conjuncts.iter().any(|conjunct| matches!(equality(conjunct, &key), Some((None, _))))
}

/// The access an index allows, and which conjuncts it expresses exactly.
fn matching(index: &IndexDescriptor, keys: &Keys, conjuncts: &[Expr]) -> (IndexAccess, Vec<usize>) {
    let mut access = IndexAccess::default();
    let mut used = Vec::new();
    for (key, (_, descending)) in keys.columns.iter().zip(&index.columns) {
        let Some(ty) = key.ty() else { break };
        let found = conjuncts.iter().enumerate().find_map(|(number, conjunct)| {
            let (cast, value) = equality(conjunct, key)?;
            Some((number, convert(cast, value, ty, true)?))
        });
        if let Some((number, value)) = found
            && access.in_list.is_empty()
        {
            access.prefix.push(value);
            used.push(number);
            continue;
        }
        let list = conjuncts
            .iter()
            .enumerate()
            .find_map(|(number, conjunct)| Some((number, alternatives(conjunct, key, ty)?)));
        if let Some((number, values)) = list
            && access.in_list.is_empty()
        {
            access.in_list = values;
            used.push(number);
            continue;
        }
        bounds(conjuncts, key, ty, *descending, &mut access);
        break;
    }
    (access, used)
}

/// What a key column equals by a condition, and what it is cast to there.
fn equality<'e>(expr: &'e Expr, key: &Key) -> Option<(Option<Type>, &'e Expr)> {
    comparison(expr, key).filter(|(name, ..)| *name == "=").map(|(_, cast, value)| (cast, value))
}

/// A comparison with a key column (perhaps cast) on the left.
fn comparison<'e>(expr: &'e Expr, key: &Key) -> Option<(&'static str, Option<Type>, &'e Expr)> {
    let Expr::Call { function, args, .. } = expr else { return None };
    let [left, right] = &args[..] else { return None };
    let flipped = match function.name {
        "=" => "=",
        "<" => ">",
        ">" => "<",
        "<=" => ">=",
        ">=" => "<=",
        _ => return None,
    };
    if is_key_value(right)
        && let Some(cast) = key.is(left)
    {
        return Some((function.name, cast, right));
    }
    if is_key_value(left)
        && let Some(cast) = key.is(right)
    {
        return Some((flipped, cast, left));
    }
    None
}

/// Whether an expression can be evaluated before the scan starts.
pub(super) fn is_key_value(expr: &Expr) -> bool {
    expr.is_column_free() && expr.volatility() != Volatility::Volatile
}

/// The value to look up for `column = value`, of the type of the index column; `None` if the comparison is not
/// one of the index column as it is stored.
fn convert(cast: Option<Type>, value: &Expr, ty: Type, equality: bool) -> Option<Expr> {
    let from = value.ty();
    if ty == Type::BPCHAR || ty.element().is_some() || ty == Type::RECORD {
        return None;
    }
    if let Some(to) = cast
        && !(is_text(ty) && is_text(to) || is_integer(ty) && is_integer(to))
    {
        return None;
    }
    if from == ty || (is_text(ty) && is_text(from)) {
        return Some(value.clone());
    }
    if is_integer(ty) && is_integer(from) {
        return narrow(value, from, ty, equality);
    }
    None
}

fn is_text(ty: Type) -> bool {
    matches!(ty, Type::TEXT | Type::VARCHAR)
}

fn is_integer(ty: Type) -> bool {
    matches!(ty, Type::INT2 | Type::INT4 | Type::INT8)
}

/// An integer as another integer type. A value that does not fit equals nothing (NULL); for a bound
/// only constants that fit are taken.
fn narrow(value: &Expr, from: Type, ty: Type, equality: bool) -> Option<Expr> {
    if let Expr::Const(datum, _) = value {
        return match cast::cast(datum, from, ty.into(), true, &EvalContext::plain()) {
            Ok(datum) => Some(Expr::Const(datum, ty)),
            Err(_) if equality => Some(Expr::Const(Datum::Null, ty)),
            Err(_) => None,
        };
    }
    let cast = Expr::Cast { expr: Box::new(value.clone()), to: ty.into(), explicit: true };
    if rank(from) <= rank(ty) {
        return Some(cast);
    }
    if !equality {
        return None;
    }
    let (low, high) = match ty {
        Type::INT2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        _ => (i64::from(i32::MIN), i64::from(i32::MAX)),
    };
    let compare = |symbol: &str, bound: i64| -> Option<Expr> {
        let resolved = sql_types::functions::resolve_operator(symbol, Some(from), from).ok()?;
        let bound = match from {
            Type::INT4 => Datum::Int4(i32::try_from(bound).ok()?),
            _ => Datum::Int8(bound),
        };
        let args = vec![value.clone(), Expr::Const(bound, from)];
        Some(Expr::Call { function: resolved.function, args, ty: Type::BOOL })
    };
    let fits = Expr::And(vec![compare(">=", low)?, compare("<=", high)?]);
    Some(Expr::Case { branches: vec![(fits, cast)], otherwise: None, ty })
}

fn rank(ty: Type) -> u8 {
    match ty {
        Type::INT2 => 0,
        Type::INT4 => 1,
        _ => 2,
    }
}

/// The alternatives of `column IN (…)`, `column = … OR column = …` or `column = ANY (array)`.
fn alternatives(conjunct: &Expr, key: &Key, ty: Type) -> Option<Vec<Expr>> {
    match conjunct {
        Expr::InList(column, list, false) => {
            let cast = key.is(column)?;
            list.iter()
                .map(|value| if is_key_value(value) { convert(cast, value, ty, true) } else { None })
                .collect()
        }
        Expr::Or(args) => args
            .iter()
            .map(|arg| equality(arg, key).and_then(|(cast, value)| convert(cast, value, ty, true)))
            .collect(),
        Expr::AnyArray { expr, function, array, any: true } if function.name == "=" => {
            let cast = key.is(expr)?;
            let plain = cast.is_none() || is_text(ty);
            let element = array.ty().element()?;
            let same = element == ty || (is_text(element) && is_text(ty));
            (plain && same && ty != Type::BPCHAR && is_key_value(array)).then(|| vec![array.as_ref().clone()])
        }
        _ => None,
    }
}

/// Bounds on an index column, from comparisons and from LIKE with a fixed beginning.
fn bounds(conjuncts: &[Expr], key: &Key, ty: Type, descending: bool, access: &mut IndexAccess) {
    let (mut low, mut high): (Option<ScanBound>, Option<ScanBound>) = (None, None);
    for conjunct in conjuncts {
        if let Some((name, cast, value)) = comparison(conjunct, key) {
            let Some(value) = convert(cast, value, ty, false) else { continue };
            let bound = |inclusive| Some(ScanBound { value: value.clone(), inclusive });
            match name {
                ">" if low.is_none() => low = bound(false),
                ">=" if low.is_none() => low = bound(true),
                "<" if high.is_none() => high = bound(false),
                "<=" if high.is_none() => high = bound(true),
                _ => {}
            }
        } else if let Some(prefix) = like_prefix(conjunct, key).filter(|_| is_text(ty)) {
            let text = |text: String| Expr::Const(Datum::text(text), ty);
            if low.is_none() && high.is_none() {
                high = next_prefix(&prefix).map(|end| ScanBound { value: text(end), inclusive: false });
                low = Some(ScanBound { value: text(prefix), inclusive: true });
            }
        }
    }
    (access.lower, access.upper) = if descending { (high, low) } else { (low, high) };
}

/// The fixed beginning of the pattern of `column LIKE 'pattern'`.
fn like_prefix(conjunct: &Expr, key: &Key) -> Option<String> {
    let Expr::Call { function, args, .. } = conjunct else { return None };
    let [column, Expr::Const(Datum::Text(pattern), _)] = &args[..] else { return None };
    if function.name != "~~" {
        return None;
    }
    key.is(column)?;
    let prefix: String =
        pattern.chars().take_while(|character| !matches!(character, '%' | '_' | '\\')).collect();
    (!prefix.is_empty()).then_some(prefix)
}

/// The least text, bytewise, greater than every text with this beginning.
pub fn next_prefix(prefix: &str) -> Option<String> {
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        let next = (u32::from(last) + 1..=u32::from(last) + 0x900).find_map(char::from_u32);
        if let Some(next) = next.filter(|_| last != char::MAX) {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}
