//! Hypothetical-set aggregates: `rank(value) WITHIN GROUP (ORDER BY key)` and its kin.
//!
//! What a row with the values given would have as its rank follows from how many rows of the group come before it, so that
//! each is bound to counts with FILTER.

use super::Binder;
use super::aggregate::{add_aggregate, check_place};
use super::context::ExprContext;
use crate::plan::{AggregateCall, Expr, SortKey};
use sql_types::functions;
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast;

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hypothetical {
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
}

impl Hypothetical {
    pub(super) fn named(name: &str) -> Option<Hypothetical> {
        match name {
            "rank" => Some(Hypothetical::Rank),
            "dense_rank" => Some(Hypothetical::DenseRank),
            "percent_rank" => Some(Hypothetical::PercentRank),
            "cume_dist" => Some(Hypothetical::CumeDist),
            _ => None,
        }
    }
}

/// How rows compare with the hypothetical one.
struct Comparison {
    before: Expr,
    equal: Expr,
}

impl Binder<'_> {
    /// A call with WITHIN GROUP.
    pub(super) fn bind_hypothetical(
        &self,
        kind: Hypothetical,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        check_place(context)?;
        context.in_aggregate = true;
        let parts = self.hypothetical_parts(name, call, context);
        context.in_aggregate = false;
        let (values, keys, filter) = parts?;
        let Comparison { before, equal } = self.compare_rows(&values, &keys)?;
        let with_filter = |condition: Expr| {
            Some(Expr::conjunction(filter.iter().cloned().chain([condition]).collect())).flatten()
        };
        let mut count = |distinct: Option<Expr>, filter: Option<Expr>| {
            let types: Vec<Type> = distinct.iter().map(Expr::ty).collect();
            let resolved = functions::resolve_aggregate("count", &types)?;
            let call = AggregateCall {
                function: resolved.function,
                distinct: distinct.is_some(),
                args: distinct.into_iter().collect(),
                order: Vec::new(),
                filter,
                ty: resolved.returns,
            };
            Ok::<_, SqlError>(add_aggregate(call, context))
        };
        let one = Expr::Const(Datum::Int8(1), Type::INT8);
        let double = |expr: Expr| self.explicit_cast(expr, Type::FLOAT8.into());
        match kind {
            Hypothetical::Rank => {
                let before = count(None, with_filter(before))?;
                self.operator("+", Some(before), one)
            }
            Hypothetical::DenseRank => {
                let key = Expr::Record(keys.iter().map(|key| key.expr.clone()).collect(), None);
                let before = count(Some(key), with_filter(before))?;
                self.operator("+", Some(before), one)
            }
            Hypothetical::PercentRank => {
                let before = double(count(None, with_filter(before))?)?;
                let all = count(None, filter.clone())?;
                let zero = Expr::Const(Datum::Int8(0), Type::INT8);
                let empty = self.operator("=", Some(all.clone()), zero)?;
                let part = self.operator("/", Some(before), double(all)?)?;
                let nothing = Expr::Const(Datum::Float8(0.0), Type::FLOAT8);
                let otherwise = Some(Box::new(part));
                Ok(Expr::Case { branches: vec![(empty, nothing)], otherwise, ty: Type::FLOAT8 })
            }
            Hypothetical::CumeDist => {
                let until = count(None, with_filter(Expr::Or(vec![before, equal])))?;
                let all = count(None, filter.clone())?;
                let until = double(self.operator("+", Some(until), one.clone())?)?;
                let all = double(self.operator("+", Some(all), one)?)?;
                self.operator("/", Some(until), all)
            }
        }
    }

    /// The values, the keys in the values' types, and FILTER.
    fn hypothetical_parts(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<(Vec<Expr>, Vec<SortKey>, Option<Expr>)> {
        let values = self.bind_args(name, call, context)?.values;
        let mut keys = Vec::with_capacity(call.within_group.len());
        for key in &call.within_group {
            keys.push(self.bind_sort_key(key, context)?);
        }
        if values.len() != keys.len() {
            let all = values.iter().chain(keys.iter().map(|key| &key.expr));
            let types: Vec<String> = all.map(|expr| expr.ty().to_string()).collect();
            let message = format!("function {name}({}) does not exist", types.join(", "));
            let hint = format!(
                "To use the hypothetical-set aggregate {name}, the number of hypothetical direct arguments (here {}) \
                 must match the number of ordering columns (here {}).",
                values.len(),
                keys.len()
            );
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(hint));
        }
        let mut typed = Vec::with_capacity(values.len());
        for (value, key) in values.into_iter().zip(&mut keys) {
            let own = std::mem::replace(&mut key.expr, Expr::Const(Datum::Null, Type::UNKNOWN));
            let (pair, _) = self.unify(vec![own, value], "WITHIN GROUP")?;
            let mut pair = pair.into_iter();
            let (Some(own), Some(value)) = (pair.next(), pair.next()) else {
                return Err(SqlError::internal("a pair of a value and a key is incomplete"));
            };
            key.expr = own;
            typed.push(value);
        }
        let filter = match &call.filter {
            Some(filter) => Some(self.bind_condition(filter, context, "FILTER")?),
            None => None,
        };
        Ok((typed, keys, filter))
    }

    /// Whether a row comes before the one that has these values, or is its equal.
    fn compare_rows(&self, values: &[Expr], keys: &[SortKey]) -> SqlResult<Comparison> {
        let mut result: Option<Comparison> = None;
        for (key, value) in keys.iter().zip(values).rev() {
            let (own, value) = (key.expr.clone(), value.clone());
            let symbol = if key.descending { ">" } else { "<" };
            let compared = self.operator(symbol, Some(own.clone()), value.clone())?;
            let is_null = |expr: &Expr, negated: bool| Expr::IsNull(Box::new(expr.clone()), negated);
            let nulls = [is_null(&own, !key.nulls_first), is_null(&value, key.nulls_first)];
            let first = Expr::Or(vec![compared, Expr::And(nulls.into())]);
            let same = Expr::IsDistinct(Box::new(own), Box::new(value), true);
            result = Some(match result {
                None => Comparison { before: first, equal: same },
                Some(Comparison { before, equal }) => Comparison {
                    before: Expr::Or(vec![first, Expr::And(vec![same.clone(), before])]),
                    equal: Expr::And(vec![same, equal]),
                },
            });
        }
        result.ok_or_else(|| SqlError::internal("no keys to compare by"))
    }
}
