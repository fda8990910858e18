//! Comparisons of rows, taken apart into comparisons of their fields.

use super::{Binder, bool_const};
use crate::plan::Expr;
use sql_types::{SqlError, SqlResult, SqlState};

impl Binder<'_> {
    /// `(a, b) op (c, d)`.
    pub(crate) fn row_operator(&self, symbol: &str, left: Vec<Expr>, right: Vec<Expr>) -> SqlResult<Expr> {
        if symbol == "OVERLAPS" {
            return self.function("overlaps", left.into_iter().chain(right).collect());
        }
        if left.len() != right.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "unequal number of entries in row expressions",
            ));
        }
        match symbol {
            "=" => Ok(Expr::And(self.field_by_field("=", left, right)?)),
            "<>" => Ok(Expr::Or(self.field_by_field("<>", left, right)?)),
            "<" | "<=" | ">" | ">=" => self.row_order(symbol, left, right),
            _ => Err(SqlError::unsupported(format_args!("operator {symbol} for rows"))),
        }
    }

    fn field_by_field(&self, symbol: &str, left: Vec<Expr>, right: Vec<Expr>) -> SqlResult<Vec<Expr>> {
        left.into_iter().zip(right).map(|(left, right)| self.operator(symbol, Some(left), right)).collect()
    }

    /// `(a, b) < (c, d)` is `a < c OR (a = c AND b < d)`.
    fn row_order(&self, symbol: &str, left: Vec<Expr>, right: Vec<Expr>) -> SqlResult<Expr> {
        let strict = &symbol[..1];
        let mut result: Option<Expr> = None;
        for (left, right) in left.into_iter().zip(right).rev() {
            result = Some(match result {
                None => self.operator(symbol, Some(left), right)?,
                Some(rest) => Expr::Or(vec![
                    self.operator(strict, Some(left.clone()), right.clone())?,
                    Expr::And(vec![self.operator("=", Some(left), right)?, rest]),
                ]),
            });
        }
        Ok(result.unwrap_or_else(|| bool_const(symbol.len() > 1)))
    }

    /// `(a, b) IN ((c, d), …)`.
    pub(crate) fn row_in_list(&self, value: Expr, items: Vec<Expr>, negated: bool) -> SqlResult<Expr> {
        let Expr::Record(fields, _) = value else { return Err(SqlError::internal("not a row")) };
        let mut tests = Vec::with_capacity(items.len());
        for item in items {
            let Expr::Record(values, _) = item else {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "a row can only be compared with rows"));
            };
            tests.push(self.row_operator("=", fields.clone(), values)?);
        }
        let any = Expr::Or(tests);
        Ok(if negated { Expr::Not(Box::new(any)) } else { any })
    }
}
