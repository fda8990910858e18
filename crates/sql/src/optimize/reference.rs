//! A plain interpreter of plans, to check that the optimizer does not change what they return. It is
//! slow, keeps everything in memory, and knows the operators the checks need.

use crate::catalog::descriptor::TableDescriptor;
use crate::plan::expr::WindowKind;
use crate::plan::{
    Expr, IndexAccess, JoinKind, JoinMethod, MergeKey, Plan, PlanKind, ScanBound, SetOpKind, SortKey, SubPlan,
};
use sql_types::functions::EvalContext;
use sql_types::{Datum, Row, SqlResult, Type, cast, compare};
use std::cmp::Ordering;
use std::collections::HashMap;

/// Runs plans over tables in memory: full rows by name of the table.
pub(super) struct Interpreter {
    pub tables: HashMap<String, Vec<Row>>,
    pub params: Vec<Datum>,
}

/// The rows around, innermost last, and the common table expressions.
#[derive(Clone, Default)]
pub(super) struct Around {
    outer: Vec<Row>,
    ctes: HashMap<usize, Vec<Row>>,
}

impl Around {
    fn with(&self, row: &Row) -> Around {
        let mut around = self.clone();
        around.outer.push(row.clone());
        around
    }
}

impl Interpreter {
    pub fn run(&self, plan: &Plan, around: &Around) -> SqlResult<Vec<Row>> {
        let rows = self.run_operator(plan, around)?;
        for row in &rows {
            assert_eq!(row.len(), plan.columns.len(), "width of {:?}", std::mem::discriminant(&plan.kind));
        }
        Ok(rows)
    }

    fn run_operator(&self, plan: &Plan, around: &Around) -> SqlResult<Vec<Row>> {
        let eval = |expr: &Expr, row: &Row| self.eval(expr, row, around);
        let truth = |expr: &Expr, row: &Row| Ok(matches!(eval(expr, row)?, Datum::Bool(true)));
        Ok(match &plan.kind {
            PlanKind::Values(rows) => rows
                .iter()
                .map(|row| row.iter().map(|expr| eval(expr, &Vec::new())).collect())
                .collect::<SqlResult<_>>()?,
            PlanKind::Scan { table, index, access, columns, filter, reverse, limit, .. } => {
                let mut rows = self.scan(table, *index, access, *reverse, around)?;
                for row in &mut rows {
                    *row = columns.iter().map(|id| row[table.position(*id).unwrap()].clone()).collect();
                }
                if let Some(filter) = filter {
                    rows = keep(rows, |row| truth(filter, row))?;
                }
                if let Some(Datum::Int8(limit)) =
                    limit.as_ref().map(|limit| eval(limit, &Vec::new())).transpose()?
                {
                    rows.truncate(limit as usize);
                }
                rows
            }
            PlanKind::CteScan { cte } => around.ctes[cte].clone(),
            PlanKind::Filter { input, predicate } => {
                keep(self.run(input, around)?, |row| truth(predicate, row))?
            }
            PlanKind::Project { input, exprs } => self
                .run(input, around)?
                .iter()
                .map(|row| exprs.iter().map(|expr| eval(expr, row)).collect())
                .collect::<SqlResult<_>>()?,
            PlanKind::Apply { input, subplans } => {
                let mut rows = self.run(input, around)?;
                for row in &mut rows {
                    let values = subplans
                        .iter()
                        .map(|(subplan, _)| self.subplan(subplan, row, around))
                        .collect::<SqlResult<Vec<_>>>()?;
                    row.extend(values);
                }
                rows
            }
            PlanKind::Join { kind, method, left, right, on } => {
                self.join(*kind, method, left, right, on.as_ref(), around)?
            }
            PlanKind::Aggregate { input, groups, sets, aggregates } => {
                let rows = self.run(input, around)?;
                let mut out = Vec::new();
                for set in sets {
                    let mut found: Vec<(Row, Vec<&Row>)> = Vec::new();
                    for row in &rows {
                        let key = groups
                            .iter()
                            .enumerate()
                            .map(
                                |(place, group)| {
                                    if set.contains(&place) { eval(group, row) } else { Ok(Datum::Null) }
                                },
                            )
                            .collect::<SqlResult<Row>>()?;
                        match found.iter_mut().find(|(known, _)| same_rows(known, &key)) {
                            Some((_, members)) => members.push(row),
                            None => found.push((key, vec![row])),
                        }
                    }
                    if groups.is_empty() && found.is_empty() {
                        found.push((Vec::new(), Vec::new()));
                    }
                    for (mut key, members) in found {
                        for call in aggregates {
                            let types: Vec<Type> = call.args.iter().map(Expr::ty).collect();
                            let mut state = (call.function.accumulator)(&types);
                            for row in &members {
                                if let Some(filter) = &call.filter
                                    && !truth(filter, row)?
                                {
                                    continue;
                                }
                                let args = call
                                    .args
                                    .iter()
                                    .map(|arg| eval(arg, row))
                                    .collect::<SqlResult<Vec<_>>>()?;
                                if !(call.function.strict && args.iter().any(Datum::is_null)) {
                                    state.add(&EvalContext::plain(), &args)?;
                                }
                            }
                            key.push(state.finish(&EvalContext::plain())?);
                        }
                        if sets.len() > 1 {
                            let missing = (0..groups.len()).filter(|place| !set.contains(place));
                            let mask: i32 = missing.map(|place| 1 << (groups.len() - 1 - place)).sum();
                            key.push(Datum::Int4(mask));
                        }
                        out.push(key);
                    }
                }
                out
            }
            PlanKind::Sort { input, keys, limit } => {
                let mut rows = self.run(input, around)?;
                self.sort(&mut rows, keys, around)?;
                if let Some(Datum::Int8(limit)) =
                    limit.as_ref().map(|limit| eval(limit, &Vec::new())).transpose()?
                {
                    rows.truncate(limit as usize);
                }
                rows
            }
            PlanKind::Limit { input, limit, offset } => {
                let mut rows = self.run(input, around)?;
                if let Some(Datum::Int8(offset)) =
                    offset.as_ref().map(|offset| eval(offset, &Vec::new())).transpose()?
                {
                    rows.drain(..(offset as usize).min(rows.len()));
                }
                if let Some(Datum::Int8(limit)) =
                    limit.as_ref().map(|limit| eval(limit, &Vec::new())).transpose()?
                {
                    rows.truncate(limit as usize);
                }
                rows
            }
            PlanKind::Distinct { input, on } => {
                let mut kept: Vec<(Row, Row)> = Vec::new();
                for row in self.run(input, around)? {
                    let key = if on.is_empty() {
                        row.clone()
                    } else {
                        on.iter().map(|expr| eval(expr, &row)).collect::<SqlResult<Row>>()?
                    };
                    if !kept.iter().any(|(known, _)| same_rows(known, &key)) {
                        kept.push((key, row));
                    }
                }
                kept.into_iter().map(|(_, row)| row).collect()
            }
            PlanKind::SetOp { kind, all, left, right } => {
                let (left, mut right) = (self.run(left, around)?, self.run(right, around)?);
                let mut out: Vec<Row> = Vec::new();
                match kind {
                    SetOpKind::Union => {
                        out.extend(left);
                        out.append(&mut right);
                    }
                    SetOpKind::Intersect | SetOpKind::Except => {
                        for row in left {
                            let found = right.iter().position(|other| same_rows(other, &row));
                            if found.is_some() == (*kind == SetOpKind::Intersect) {
                                out.push(row);
                            }
                            if let (Some(found), true) = (found, *all) {
                                right.remove(found);
                            }
                        }
                    }
                }
                if !all {
                    let mut distinct: Vec<Row> = Vec::new();
                    for row in out {
                        if !distinct.iter().any(|known| same_rows(known, &row)) {
                            distinct.push(row);
                        }
                    }
                    out = distinct;
                }
                out
            }
            PlanKind::With { ctes, body } => {
                let mut around = around.clone();
                for (number, cte) in ctes {
                    let rows = self.run(cte, &around)?;
                    around.ctes.insert(*number, rows);
                }
                self.run(body, &around)?
            }
            PlanKind::Window { input, calls } => {
                let mut rows = self.run(input, around)?;
                let input_rows = rows.clone();
                for call in calls {
                    assert!(
                        matches!(&call.kind, WindowKind::Function(function, _) if function.name == "row_number"),
                        "only row_number is interpreted"
                    );
                    let mut order: Vec<usize> = (0..input_rows.len()).collect();
                    let mut keys = Vec::new();
                    for row in &input_rows {
                        let key = |exprs: &mut dyn Iterator<Item = &Expr>| {
                            exprs.map(|expr| eval(expr, row)).collect::<SqlResult<Row>>()
                        };
                        keys.push((
                            key(&mut call.partition.iter())?,
                            key(&mut call.order.iter().map(|key| &key.expr))?,
                        ));
                    }
                    order.sort_by(|a, b| {
                        let sorts = keys[*a].1.iter().zip(&keys[*b].1).zip(&call.order);
                        sorts
                            .map(|((a, b), key)| compare_keys(a, b, key))
                            .find(|o| o.is_ne())
                            .unwrap_or(Ordering::Equal)
                    });
                    let mut counts: Vec<(Row, i64)> = Vec::new();
                    for place in order {
                        let partition = &keys[place].0;
                        let number = match counts.iter_mut().find(|(known, _)| same_rows(known, partition)) {
                            Some((_, count)) => {
                                *count += 1;
                                *count
                            }
                            None => {
                                counts.push((partition.clone(), 1));
                                1
                            }
                        };
                        rows[place].push(Datum::Int8(number));
                    }
                }
                rows
            }
            other => panic!("not interpreted: {other:?}"),
        })
    }

    fn scan(
        &self,
        table: &TableDescriptor,
        index: u32,
        access: &IndexAccess,
        reverse: bool,
        around: &Around,
    ) -> SqlResult<Vec<Row>> {
        let index = table.index(index).unwrap();
        let positions: Vec<(usize, bool)> = index
            .columns
            .iter()
            .map(|(id, descending)| (table.position(*id).unwrap(), *descending))
            .collect();
        let none = Vec::new();
        let value = |expr: &Expr| self.eval(expr, &none, around);
        let prefix = access.prefix.iter().map(value).collect::<SqlResult<Vec<_>>>()?;
        let mut list = Vec::new();
        for expr in &access.in_list {
            match value(expr)? {
                Datum::Array(array) => list.extend(array.values.iter().cloned()),
                value => list.push(value),
            }
        }
        let bound = |bound: &Option<ScanBound>| -> SqlResult<Option<(Datum, bool)>> {
            bound.as_ref().map(|bound| Ok((value(&bound.value)?, bound.inclusive))).transpose()
        };
        let (lower, upper) = (bound(&access.lower)?, bound(&access.upper)?);
        let next = prefix.len() + usize::from(!access.in_list.is_empty());
        let equal = |a: &Datum, b: &Datum| !a.is_null() && !b.is_null() && compare::equal(a, b);
        let mut rows: Vec<Row> = self.tables[&table.name]
            .iter()
            .filter(|row| {
                let at = |place: usize| &row[positions[place].0];
                let in_order = |a: &Datum, b: &Datum| {
                    let order = nulls_last(a, b);
                    if positions[next].1 { order.reverse() } else { order }
                };
                prefix.iter().enumerate().all(|(place, value)| equal(at(place), value))
                    && (access.in_list.is_empty() || list.iter().any(|value| equal(at(prefix.len()), value)))
                    && lower.as_ref().is_none_or(|(value, inclusive)| {
                        let order = in_order(at(next), value);
                        !value.is_null() && (order.is_gt() || (*inclusive && order.is_eq()))
                    })
                    && upper.as_ref().is_none_or(|(value, inclusive)| {
                        let order = in_order(at(next), value);
                        !value.is_null() && (order.is_lt() || (*inclusive && order.is_eq()))
                    })
            })
            .cloned()
            .collect();
        rows.sort_by(|a, b| {
            let order = positions.iter().map(|(place, descending)| {
                let order = nulls_last(&a[*place], &b[*place]);
                if *descending { order.reverse() } else { order }
            });
            order.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        });
        if reverse {
            rows.reverse();
        }
        Ok(rows)
    }

    fn join(
        &self,
        kind: JoinKind,
        method: &JoinMethod,
        left: &Plan,
        right: &Plan,
        on: Option<&Expr>,
        around: &Around,
    ) -> SqlResult<Vec<Row>> {
        let left_rows = self.run(left, around)?;
        let fixed = match method {
            JoinMethod::Lateral => None,
            _ => Some(self.run(right, around)?),
        };
        if let JoinMethod::Merge(keys) = method {
            self.check_order(&left_rows, keys, |key| &key.left, around)?;
            self.check_order(fixed.as_deref().unwrap_or_default(), keys, |key| &key.right, around)?;
        }
        let mut matched = vec![false; fixed.as_ref().map_or(0, Vec::len)];
        let mut out = Vec::new();
        for row in &left_rows {
            let fresh;
            let candidates = match &fixed {
                Some(rows) => rows,
                None => {
                    fresh = self.run(right, &around.with(row))?;
                    &fresh
                }
            };
            let mut found = false;
            for (place, candidate) in candidates.iter().enumerate() {
                let pair: Row = row.iter().chain(candidate).cloned().collect();
                let mut accepted = match on {
                    Some(on) => matches!(self.eval(on, &pair, around)?, Datum::Bool(true)),
                    None => true,
                };
                for (l, r) in method.keys() {
                    let (l, r) = (self.eval(l, row, around)?, self.eval(r, candidate, around)?);
                    accepted &= !l.is_null() && !r.is_null() && compare::equal(&l, &r);
                }
                if !accepted {
                    continue;
                }
                found = true;
                if let Some(matched) = matched.get_mut(place) {
                    *matched = true;
                }
                if !matches!(kind, JoinKind::Semi | JoinKind::Anti) {
                    out.push(pair);
                }
            }
            match kind {
                JoinKind::Semi if found => out.push(row.clone()),
                JoinKind::Anti if !found => out.push(row.clone()),
                JoinKind::Left | JoinKind::Full if !found => {
                    let mut row = row.clone();
                    row.resize(left.columns.len() + right.columns.len(), Datum::Null);
                    out.push(row);
                }
                _ => {}
            }
        }
        if matches!(kind, JoinKind::Right | JoinKind::Full) {
            for (row, matched) in fixed.iter().flatten().zip(matched) {
                if !matched {
                    out.push(vec![Datum::Null; left.columns.len()].into_iter().chain(row.clone()).collect());
                }
            }
        }
        Ok(out)
    }

    /// Fails if the rows do not come in the order that a merge join rests on. Where a row that matches nothing is does
    /// not matter.
    fn check_order(
        &self,
        rows: &[Row],
        keys: &[MergeKey],
        of: impl Fn(&MergeKey) -> &Expr,
        around: &Around,
    ) -> SqlResult<()> {
        let mut last: Option<Row> = None;
        for row in rows {
            let key = keys.iter().map(|key| self.eval(of(key), row, around)).collect::<SqlResult<Row>>()?;
            if key.iter().any(Datum::is_null) {
                continue;
            }
            if let Some(last) = &last {
                let orders = last.iter().zip(&key).zip(keys).map(|((a, b), key)| {
                    let order = compare::compare(a, b);
                    if key.descending { order.reverse() } else { order }
                });
                let order = orders.into_iter().find(|order| order.is_ne());
                assert_ne!(order, Some(Ordering::Greater), "input of a merge join out of order");
            }
            last = Some(key);
        }
        Ok(())
    }

    fn subplan(&self, subplan: &SubPlan, row: &Row, around: &Around) -> SqlResult<Datum> {
        let inner = around.with(row);
        Ok(match subplan {
            SubPlan::Scalar(plan) => {
                let rows = self.run(plan, &inner)?;
                assert!(rows.len() <= 1, "several rows");
                rows.into_iter().next().map_or(Datum::Null, |mut row| row.remove(0))
            }
            SubPlan::Exists(plan) => Datum::Bool(!self.run(plan, &inner)?.is_empty()),
            SubPlan::Quantified { plan, test, any } => {
                let mut unknown = false;
                for other in self.run(plan, &inner)? {
                    let pair: Row = row.iter().chain(&other).cloned().collect();
                    match self.eval(test, &pair, around)? {
                        Datum::Bool(truth) if truth == *any => return Ok(Datum::Bool(*any)),
                        Datum::Null => unknown = true,
                        _ => {}
                    }
                }
                if unknown { Datum::Null } else { Datum::Bool(!any) }
            }
            SubPlan::Array(plan) => {
                let element = plan.columns[0].ty.ty;
                Datum::array(
                    element,
                    self.run(plan, &inner)?.into_iter().map(|mut row| row.remove(0)).collect(),
                )
            }
            other => panic!("not interpreted: {other:?}"),
        })
    }

    fn sort(&self, rows: &mut [Row], keys: &[SortKey], around: &Around) -> SqlResult<()> {
        let mut failed = None;
        rows.sort_by(|a, b| {
            for key in keys {
                let (a, b) = match (self.eval(&key.expr, a, around), self.eval(&key.expr, b, around)) {
                    (Ok(a), Ok(b)) => (a, b),
                    (Err(error), _) | (_, Err(error)) => {
                        failed = Some(error);
                        return Ordering::Equal;
                    }
                };
                let order = compare_keys(&a, &b, key);
                if order.is_ne() {
                    return order;
                }
            }
            Ordering::Equal
        });
        failed.map_or(Ok(()), Err)
    }

    fn eval(&self, expr: &Expr, row: &Row, around: &Around) -> SqlResult<Datum> {
        let eval = |expr: &Expr| self.eval(expr, row, around);
        Ok(match expr {
            Expr::Const(value, _) => value.clone(),
            Expr::Param(index, _) => self.params[*index].clone(),
            Expr::Column(index, _) => row[*index].clone(),
            Expr::Outer { depth, index, .. } => around.outer[around.outer.len() - 1 - depth][*index].clone(),
            Expr::Call { function, args, .. } => {
                let types: Vec<Type> = args.iter().map(Expr::ty).collect();
                let values = args.iter().map(eval).collect::<SqlResult<Vec<_>>>()?;
                function.call(&EvalContext::plain(), &types, &values)?
            }
            Expr::Cast { expr, to, explicit } => {
                cast::cast(&eval(expr)?, expr.ty(), *to, *explicit, &EvalContext::plain())?
            }
            Expr::And(parts) | Expr::Or(parts) => {
                let decisive = matches!(expr, Expr::Or(_));
                let mut unknown = false;
                for part in parts {
                    match eval(part)? {
                        Datum::Bool(truth) if truth == decisive => return Ok(Datum::Bool(decisive)),
                        Datum::Null => unknown = true,
                        _ => {}
                    }
                }
                if unknown { Datum::Null } else { Datum::Bool(!decisive) }
            }
            Expr::Not(inner) => match eval(inner)? {
                Datum::Bool(truth) => Datum::Bool(!truth),
                other => other,
            },
            Expr::IsNull(inner, negated) => Datum::Bool(eval(inner)?.is_null() != *negated),
            Expr::IsDistinct(a, b, negated) => {
                let (a, b) = (eval(a)?, eval(b)?);
                Datum::Bool(same_values(&a, &b) == *negated)
            }
            Expr::Case { branches, otherwise, .. } => {
                for (condition, result) in branches {
                    if matches!(eval(condition)?, Datum::Bool(true)) {
                        return eval(result);
                    }
                }
                otherwise.as_ref().map_or(Ok(Datum::Null), |otherwise| eval(otherwise))?
            }
            Expr::Coalesce(args, _) => {
                for arg in args {
                    let value = eval(arg)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Datum::Null
            }
            Expr::InList(value, list, negated) => {
                let value = eval(value)?;
                if value.is_null() {
                    return Ok(Datum::Null);
                }
                let mut unknown = false;
                for item in list {
                    let item = eval(item)?;
                    if item.is_null() {
                        unknown = true;
                    } else if compare::equal(&value, &item) {
                        return Ok(Datum::Bool(!negated));
                    }
                }
                if unknown { Datum::Null } else { Datum::Bool(*negated) }
            }
            Expr::Record(values, _) => Datum::record(values.iter().map(eval).collect::<SqlResult<Vec<_>>>()?),
            Expr::Field(record, place, _) => match eval(record)? {
                Datum::Record(record) => record.values[*place].clone(),
                _ => Datum::Null,
            },
            other => panic!("not interpreted: {other:?}"),
        })
    }
}

fn keep(rows: Vec<Row>, test: impl Fn(&Row) -> SqlResult<bool>) -> SqlResult<Vec<Row>> {
    let mut kept = Vec::new();
    for row in rows {
        if test(&row)? {
            kept.push(row);
        }
    }
    Ok(kept)
}

fn nulls_last(a: &Datum, b: &Datum) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => compare::compare(a, b),
    }
}

fn compare_keys(a: &Datum, b: &Datum, key: &SortKey) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (true, true) => Ordering::Equal,
        (true, false) => {
            if key.nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (false, true) => {
            if key.nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (false, false) => {
            let order = compare::compare(a, b);
            if key.descending { order.reverse() } else { order }
        }
    }
}

fn same_values(a: &Datum, b: &Datum) -> bool {
    match (a.is_null(), b.is_null()) {
        (true, true) => true,
        (false, false) => compare::equal(a, b),
        _ => false,
    }
}

fn same_rows(a: &[Datum], b: &[Datum]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_values(a, b))
}
