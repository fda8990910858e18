//! Operators, IN and ANY/ALL over lists.

use super::Binder;
use super::call::marked_arguments;
use super::context::ExprContext;
use super::expr::{BoundOperand, span_of};
use crate::parse::markers::LIKE_ALL;
use crate::plan::Expr;
use sql_types::cast::{self, CastKind};
use sql_types::functions::resolve_operator;
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, BinaryOperator, UnaryOperator, Value};

impl Binder<'_> {
    /// An operator over bound operands; `left` is `None` for a prefix operator.
    pub(crate) fn operator(&self, symbol: &str, left: Option<Expr>, right: Expr) -> SqlResult<Expr> {
        let resolved = resolve_operator(symbol, left.as_ref().map(Expr::ty), right.ty())?;
        let args = left
            .into_iter()
            .chain([right])
            .zip(&resolved.arg_types)
            .map(|(arg, ty)| self.coerce(arg, *ty, CastKind::Implicit))
            .collect::<SqlResult<_>>()?;
        Ok(Expr::Call { function: resolved.function, args, ty: resolved.returns })
    }

    /// `left op right`, where the left operand may be bound already.
    pub(crate) fn bind_operation(
        &self,
        left: BoundOperand<'_>,
        op: &BinaryOperator,
        right: &ast::Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let span = match &left {
            BoundOperand::Ast(expr) => span_of(expr),
            BoundOperand::Expr(_) => span_of(right),
        };
        let symbol = symbol(op)?;
        if let ast::Expr::Subquery(query) = right
            && let BoundOperand::Ast(written) = &left
            && is_row(written)
        {
            let left = left.bind(self, context)?;
            return self.bind_row_subquery(left, &symbol, query, context);
        }
        let left = left.bind(self, context)?;
        let literal = span_of(right);
        let right = self.bind_expr(right, context)?;
        let result = match (left, right) {
            (Expr::Record(left, _), Expr::Record(right, _)) => self.row_operator(&symbol, left, right),
            (left, right) => self.operator(&symbol, Some(left), right),
        };
        // A literal that cannot be read is at fault itself.
        result.map_err(|error| {
            let unreadable = error.code.as_str().starts_with("22");
            self.at(error, if unreadable { literal } else { span })
        })
    }

    pub(crate) fn bind_unary(
        &self,
        op: UnaryOperator,
        inner: &ast::Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let symbol = match op {
            UnaryOperator::Not => {
                let bound = self.bind_condition(inner, context, "NOT")?;
                return Ok(Expr::Not(Box::new(bound)));
            }
            UnaryOperator::Minus => {
                if let Some(number) = constant_number(inner) {
                    let positive = number.strip_prefix('-').map(str::to_string);
                    return self.number(&positive.unwrap_or_else(|| format!("-{number}")));
                }
                // A minus binds more tightly than `^`, which the parser does not know.
                if let ast::Expr::BinaryOp { left, op: op @ ast::BinaryOperator::PGExp, right } = inner {
                    let left = ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr: left.clone() };
                    return self.bind_binary(&left, op, right, context);
                }
                "-"
            }
            UnaryOperator::Plus => "+",
            UnaryOperator::BitwiseNot => "~",
            UnaryOperator::PGAbs => "@",
            UnaryOperator::PGSquareRoot => "|/",
            UnaryOperator::PGCubeRoot => "||/",
            UnaryOperator::PGPrefixFactorial => "!!",
            other => {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_FUNCTION,
                    format!("operator does not exist: {other}"),
                ));
            }
        };
        let bound = self.bind_expr(inner, context)?;
        self.operator(symbol, None, bound).map_err(|error| self.at(error, span_of(inner)))
    }

    pub(crate) fn bind_in_list(
        &self,
        expr: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let value = self.bind_expr(expr, context)?;
        let mut items = Vec::with_capacity(list.len() + 1);
        for item in list {
            items.push(self.bind_expr(item, context)?);
        }
        if matches!(value, Expr::Record(..)) {
            return self.row_in_list(value, items, negated);
        }
        items.insert(0, value);
        let types: Vec<Type> = items.iter().map(Expr::ty).collect();
        let Some(common) = cast::common_type(&types) else {
            return self.in_as_equalities(items, negated).map_err(|error| self.at(error, span_of(expr)));
        };
        let mut items = items
            .into_iter()
            .map(|item| self.coerce(item, common, CastKind::Implicit))
            .collect::<SqlResult<Vec<_>>>()
            .map_err(|error| self.at(error, span_of(expr)))?;
        // The type must have an equality.
        resolve_operator("=", Some(common), common).map_err(|error| self.at(error, span_of(expr)))?;
        let value = items.remove(0);
        Ok(Expr::InList(Box::new(value), items, negated))
    }

    /// `x IN (a, b)` where the types have no common one: each has its own operator.
    fn in_as_equalities(&self, mut items: Vec<Expr>, negated: bool) -> SqlResult<Expr> {
        let value = items.remove(0);
        let tests = items
            .into_iter()
            .map(|item| self.operator("=", Some(value.clone()), item))
            .collect::<SqlResult<_>>()?;
        let any = Expr::Or(tests);
        Ok(if negated { Expr::Not(Box::new(any)) } else { any })
    }

    /// `left op ANY (right)` or `ALL`.
    pub(crate) fn bind_any(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        any: bool,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        self.bind_quantifier(left, &symbol(op)?, right, any, context)
    }

    /// `left LIKE ANY (right)` and its kin.
    pub(crate) fn bind_any_of(
        &self,
        left: &ast::Expr,
        symbol: &str,
        right: &ast::Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if let ast::Expr::Function(function) = strip(right)
            && let Some([patterns]) = marked_arguments(function, LIKE_ALL).as_deref()
        {
            return self.bind_quantifier(left, symbol, patterns, false, context);
        }
        self.bind_quantifier(left, symbol, right, true, context)
    }

    fn bind_quantifier(
        &self,
        left: &ast::Expr,
        symbol: &str,
        right: &ast::Expr,
        any: bool,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let value = self.bind_expr(left, context)?;
        if let ast::Expr::Subquery(query) = strip(right) {
            return self.bind_quantified(value, symbol, query, any, context);
        }
        let array = self.bind_expr(right, context)?;
        self.any_array(value, symbol, array, any).map_err(|error| self.at(error, span_of(left)))
    }

    fn any_array(&self, value: Expr, symbol: &str, array: Expr, any: bool) -> SqlResult<Expr> {
        // An untyped array is one of the left operand's type.
        let array = match array.ty() {
            Type::UNKNOWN => {
                let element = if value.ty() == Type::UNKNOWN { Type::TEXT } else { value.ty() };
                let element = if element == Type::VARCHAR { Type::TEXT } else { element };
                let ty = element.array().ok_or_else(|| {
                    SqlError::new(
                        SqlState::WRONG_OBJECT_TYPE,
                        "op ANY/ALL (array) requires array on right side",
                    )
                })?;
                self.coerce(array, ty, CastKind::Implicit)?
            }
            _ => array,
        };
        let Some(element) = array.ty().element() else {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                "op ANY/ALL (array) requires array on right side",
            ));
        };
        let resolved = resolve_operator(symbol, Some(value.ty()), element)?;
        if resolved.returns != Type::BOOL {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                "op ANY/ALL (array) requires operator to yield boolean",
            ));
        }
        let (left_type, element_type) = match resolved.arg_types[..] {
            [left, right] => (left, right),
            _ => return Err(SqlError::internal("a binary operator without two operands")),
        };
        let value = self.coerce(value, left_type, CastKind::Implicit)?;
        let array = match element_type.array() {
            Some(ty) if element_type != element => self.coerce(array, ty, CastKind::Implicit)?,
            _ => array,
        };
        Ok(Expr::AnyArray { expr: Box::new(value), function: resolved.function, array: Box::new(array), any })
    }
}

/// Whether an expression is written as a row of several fields.
fn is_row(expr: &ast::Expr) -> bool {
    match expr {
        ast::Expr::Tuple(_) => true,
        ast::Expr::Function(function) => function.name.to_string().eq_ignore_ascii_case("row"),
        _ => false,
    }
}

/// An expression without the parentheses around it.
pub(crate) fn strip(expr: &ast::Expr) -> &ast::Expr {
    let mut inner = expr;
    while let ast::Expr::Nested(next) = inner {
        inner = next;
    }
    inner
}

/// DISTINCT, GROUP BY and set operations need an equality, which json has not.
pub(crate) fn check_equality(ty: Type) -> SqlResult<()> {
    identified(ty, "equality")
}

/// ORDER BY needs an order, which json has not.
pub(crate) fn check_ordering(ty: Type) -> SqlResult<()> {
    identified(ty, "ordering")
}

fn identified(ty: Type, what: &str) -> SqlResult<()> {
    if ty != Type::JSON {
        return Ok(());
    }
    let message = format!("could not identify an {what} operator for type {ty}");
    Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message))
}

/// The symbol under which the registry knows an operator.
pub(crate) fn symbol(op: &BinaryOperator) -> SqlResult<String> {
    Ok(match op {
        BinaryOperator::PGCustomBinaryOperator(parts) => match &parts[..] {
            [schema, symbol] if schema.eq_ignore_ascii_case("pg_catalog") => symbol.clone(),
            [symbol] => symbol.clone(),
            _ => {
                return Err(SqlError::new(
                    SqlState::UNDEFINED_FUNCTION,
                    format!("operator does not exist: {}", parts.join(".")),
                ));
            }
        },
        BinaryOperator::BitwiseXor | BinaryOperator::PGBitwiseXor => "#".to_string(),
        BinaryOperator::PGExp => "^".to_string(),
        BinaryOperator::NotEq => "<>".to_string(),
        other => other.to_string(),
    })
}

/// A NULL of a type.
pub(crate) fn null(ty: Type) -> Expr {
    Expr::Const(Datum::Null, ty)
}

/// The number that a literal is, in parentheses or not, with as many minuses before it as are written.
pub(crate) fn constant_number(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Value(value) => match &value.value {
            Value::Number(number, _) => Some(number.to_string()),
            _ => None,
        },
        ast::Expr::Nested(inner) => constant_number(inner),
        ast::Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let number = constant_number(expr)?;
            Some(number.strip_prefix('-').map_or_else(|| format!("-{number}"), str::to_string))
        }
        _ => None,
    }
}
