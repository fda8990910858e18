//! Casts: explicit, by assignment, and implicit.

use super::Binder;
use super::literal::unknown;
use crate::plan::Expr;
use sql_types::cast::{self, CastKind};
use sql_types::functions::EvalContext;
use sql_types::{ColumnType, Datum, SqlError, SqlResult, SqlState, Type};

impl Binder<'_> {
    /// Casts an expression where the context wants a type.
    pub(crate) fn coerce(&self, expr: Expr, to: Type, allowed: CastKind) -> SqlResult<Expr> {
        self.coerce_to(expr, to.into(), allowed)
    }

    /// Casts an expression, and fits it to the type's modifier.
    pub(crate) fn coerce_to(&self, expr: Expr, to: ColumnType, allowed: CastKind) -> SqlResult<Expr> {
        let explicit = allowed == CastKind::Explicit;
        let from = expr.ty();
        match expr {
            Expr::Const(Datum::Null, Type::UNKNOWN) => return Ok(Expr::Const(Datum::Null, to.ty)),
            Expr::Const(Datum::Text(text), Type::UNKNOWN) if to.ty == Type::UNKNOWN => {
                return Ok(unknown(&text));
            }
            Expr::Const(Datum::Text(text), Type::UNKNOWN) => {
                let literal = self.literal(&text, to.ty.into())?;
                return self.length_cast(literal, to, explicit);
            }
            Expr::Param(index, Type::UNKNOWN) => {
                let param = self.settle_param(index, to.ty);
                return self.length_cast(param, to, explicit);
            }
            _ => {}
        }
        if from == to.ty {
            let expr = if from == Type::RECORD { self.resolve_unknown(expr)? } else { expr };
            return self.length_cast(expr, to, explicit);
        }
        if let Expr::Array(elements, _) = &expr
            && elements.is_empty()
            && to.ty.element().is_some()
        {
            return Ok(Expr::Array(Vec::new(), to.ty));
        }
        match cast::cast_kind(from, to.ty) {
            Some(kind) if kind <= allowed => {}
            _ => return Err(cannot_cast(from, to.ty, allowed)),
        }
        match (expr, to.ty.element()) {
            (Expr::Array(elements, _), Some(element)) => self.coerce_elements(elements, element, to, allowed),
            (expr, _) => Ok(fold_cast(Expr::Cast { expr: Box::new(expr), to, explicit })),
        }
    }

    /// `ARRAY[…]` is cast element by element.
    fn coerce_elements(
        &self,
        elements: Vec<Expr>,
        element: Type,
        to: ColumnType,
        allowed: CastKind,
    ) -> SqlResult<Expr> {
        let elements = elements
            .into_iter()
            .map(|inner| {
                let ty = if inner.ty().element().is_some() { to.ty } else { element };
                self.coerce_to(inner, ColumnType { ty, typmod: to.typmod }, allowed)
            })
            .collect::<SqlResult<_>>()?;
        Ok(Expr::Array(elements, to.ty))
    }

    /// Fits a value that already has the type to the modifier.
    pub(crate) fn length_cast(&self, expr: Expr, to: ColumnType, explicit: bool) -> SqlResult<Expr> {
        if to.typmod < 0 || matches!(&expr, Expr::Const(Datum::Null, _)) {
            return Ok(expr);
        }
        Ok(fold_cast(Expr::Cast { expr: Box::new(expr), to, explicit }))
    }

    /// Casts to a value for a column of a table.
    pub(crate) fn coerce_for_column(&self, expr: Expr, to: ColumnType, column: &str) -> SqlResult<Expr> {
        let from = expr.ty();
        self.coerce_to(expr, to, CastKind::Assignment).map_err(|error| {
            if error.code != SqlState::DATATYPE_MISMATCH && error.code != SqlState::CANNOT_COERCE {
                return error;
            }
            SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("column \"{column}\" is of type {} but expression is of type {from}", to.ty),
            )
            .with_hint("You will need to rewrite or cast the expression.")
        })
    }

    /// Casts all expressions to their common type; `context` is named in the error.
    pub(crate) fn unify(&self, exprs: Vec<Expr>, context: &str) -> SqlResult<(Vec<Expr>, Type)> {
        let types: Vec<Type> = exprs.iter().map(Expr::ty).collect();
        let common = match types.first() {
            Some(first) if types.iter().all(|ty| ty == first) && *first != Type::UNKNOWN => *first,
            _ => cast::select_common_type(&types, context)?,
        };
        let exprs = exprs
            .into_iter()
            .map(|expr| self.coerce(expr, common, CastKind::Implicit))
            .collect::<SqlResult<_>>()?;
        Ok((exprs, common))
    }

    /// A condition; 42804 if it is not boolean.
    pub(crate) fn coerce_bool(&self, expr: Expr, context: &str) -> SqlResult<Expr> {
        let ty = expr.ty();
        if ty == Type::BOOL {
            return Ok(expr);
        }
        if ty == Type::UNKNOWN {
            return self.coerce(expr, Type::BOOL, CastKind::Implicit);
        }
        Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!("argument of {context} must be type boolean, not type {ty}"),
        ))
    }

    /// What is still untyped becomes text.
    pub(crate) fn resolve_unknown(&self, expr: Expr) -> SqlResult<Expr> {
        match expr {
            Expr::Record(values, fields) => {
                let values =
                    values.into_iter().map(|value| self.resolve_unknown(value)).collect::<SqlResult<_>>()?;
                Ok(Expr::Record(values, fields))
            }
            expr if expr.ty() == Type::UNKNOWN => self.coerce(expr, Type::TEXT, CastKind::Implicit),
            expr => Ok(expr),
        }
    }
}

fn cannot_cast(from: Type, to: Type, allowed: CastKind) -> SqlError {
    if allowed == CastKind::Explicit {
        SqlError::new(SqlState::CANNOT_COERCE, format!("cannot cast type {from} to {to}"))
    } else {
        SqlError::new(SqlState::DATATYPE_MISMATCH, format!("cannot convert type {from} to {to}"))
    }
}

/// Folds a cast of a constant between types whose conversion depends on nothing else. A cast that
/// fails is left to fail when it is run.
pub(crate) fn fold_cast(expr: Expr) -> Expr {
    let Expr::Cast { expr: inner, to, explicit } = &expr else { return expr };
    let Expr::Const(value, from) = inner.as_ref() else { return expr };
    // Within one of these types a cast rounds, or cuts off fields.
    let fits =
        *from == to.ty && matches!(to.ty, Type::INTERVAL | Type::TIME | Type::TIMESTAMP | Type::TIMESTAMPTZ);
    let are_plain = is_plain(*from) && is_plain(to.ty);
    if !(fits || are_plain) {
        return expr;
    }
    match cast::cast(value, *from, *to, *explicit, &EvalContext::plain()) {
        Ok(value) => Expr::Const(value, to.ty),
        Err(_) => expr,
    }
}

fn is_plain(ty: Type) -> bool {
    ty.is_numeric()
        || matches!(ty, Type::BOOL | Type::OID | Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME)
}
