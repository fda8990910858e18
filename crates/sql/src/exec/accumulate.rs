//! One aggregate over one group: FILTER, DISTINCT, ORDER BY and strictness around an accumulator.

use super::eval::{EvalEnv, eval, is_true};
use super::hash_key::{KEY_OVERHEAD, KeyTable};
use super::relation::row_bytes;
use super::sort::{compare_keys, compare_values, keys_of};
use crate::plan::{AggregateCall, Expr};
use smallvec::SmallVec;
use sql_types::functions::Accumulator;
use sql_types::{Datum, Row, SqlResult, Type};

/// The state of one call over one group.
pub(crate) struct Accumulation {
    accumulator: Box<dyn Accumulator>,
    extra: Option<Box<Extra>>,
}

/// What DISTINCT and ORDER BY keep.
#[derive(Default)]
struct Extra {
    /// Arguments seen, for DISTINCT.
    seen: Option<KeyTable>,
    /// Keys and arguments to be fed in order at the end.
    ordered: Option<Vec<(Row, Row)>>,
}

/// Types of the arguments the accumulator gets.
fn arg_types(call: &AggregateCall) -> SmallVec<[Type; 4]> {
    let sorted = call.order.iter().filter(|_| call.function.ordered_set).map(|key| key.expr.ty());
    call.args.iter().map(Expr::ty).chain(sorted).collect()
}

/// Whether the result of an aggregate depends on the order of its rows.
fn shows_order(name: &str) -> bool {
    !matches!(name, "count" | "sum" | "avg" | "min" | "max" | "bool_and" | "bool_or" | "every")
}

impl Accumulation {
    /// An empty group.
    pub fn new(call: &AggregateCall) -> Self {
        let ordered = !call.order.is_empty() || (call.distinct && shows_order(call.function.name));
        let extra = (call.distinct || ordered).then(|| {
            Box::new(Extra { seen: call.distinct.then(KeyTable::new), ordered: ordered.then(Vec::new) })
        });
        Accumulation { accumulator: (call.function.accumulator)(&arg_types(call)), extra }
    }

    /// Takes in a row; returns the bytes it now holds more.
    pub fn add(&mut self, call: &AggregateCall, row: &[Datum], env: &EvalEnv<'_>) -> SqlResult<usize> {
        if let Some(filter) = &call.filter
            && !is_true(filter, row, env)?
        {
            return Ok(0);
        }
        let mut args: SmallVec<[Datum; 2]> = SmallVec::with_capacity(call.args.len());
        for arg in &call.args {
            args.push(eval(arg, row, env)?);
        }
        if call.function.ordered_set {
            for key in &call.order {
                args.push(eval(&key.expr, row, env)?);
            }
        }
        if call.function.strict && args.iter().any(Datum::is_null) {
            return Ok(0);
        }
        let Some(extra) = &mut self.extra else {
            let before = self.accumulator.size();
            self.accumulator.add(env.eval, &args)?;
            return Ok(self.accumulator.size().saturating_sub(before));
        };
        let mut bytes = 0;
        if let Some(seen) = &mut extra.seen {
            if !seen.insert(&args, || args.to_vec()).1 {
                return Ok(0);
            }
            bytes += row_bytes(&args) + KEY_OVERHEAD;
        }
        match &mut extra.ordered {
            Some(ordered) => {
                // DISTINCT alone orders by the arguments themselves, as PostgreSQL's sort does.
                let keys = match call.order.as_slice() {
                    [] => Row::new(),
                    order => keys_of(order, row, env)?,
                };
                bytes += row_bytes(&keys) + row_bytes(&args);
                ordered.push((keys, args.into_vec()));
            }
            None => self.accumulator.add(env.eval, &args)?,
        }
        Ok(bytes)
    }

    /// The result.
    pub fn finish(&mut self, call: &AggregateCall, env: &EvalEnv<'_>) -> SqlResult<Datum> {
        if let Some(ordered) = self.extra.as_mut().and_then(|extra| extra.ordered.as_mut()) {
            let mut ordered = std::mem::take(ordered);
            match call.order.as_slice() {
                [] => ordered.sort_by(|left, right| compare_values(&left.1, &right.1)),
                order => ordered.sort_by(|left, right| compare_keys(order, &left.0, &right.0)),
            }
            for (_, args) in ordered {
                self.accumulator.add(env.eval, &args)?;
            }
        }
        self.accumulator.finish(env.eval)
    }
}
