//! Casts and the forms that have a syntax of their own: LIKE, EXTRACT, SUBSTRING, AT TIME ZONE…

use super::Binder;
use super::context::ExprContext;
use super::expr::span_of;
use super::literal::unknown;
use super::names::qualified;
use super::types::declared_type;
use crate::plan::Expr;
use sql_types::cast::CastKind;
use sql_types::{ColumnType, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, DateTimeField, ObjectName, TrimWhereField, Value, ValueWithSpan};

impl Binder<'_> {
    pub(crate) fn bind_cast(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        match expr {
            ast::Expr::Cast {
                kind: ast::CastKind::Cast | ast::CastKind::DoubleColon,
                expr: inner,
                data_type,
                format: None,
                ..
            } => {
                let to = declared_type(data_type, self.context)?;
                let bound = self.bind_expr(inner, context)?;
                self.declared_cast(bound, to).map_err(|error| self.at(error, span_of(inner)))
            }
            ast::Expr::TypedString(typed) => {
                let to = declared_type(&typed.data_type, self.context)?;
                let value = self.bind_value(&typed.value)?;
                self.declared_cast(value, to).map_err(|error| self.at(error, typed.value.span))
            }
            ast::Expr::Interval(interval) => self.bind_interval(interval, context),
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "this kind of cast does not exist")),
        }
    }

    /// `expr::type`, where the type may be a domain.
    fn declared_cast(&self, expr: Expr, to: ColumnType) -> SqlResult<Expr> {
        let Some(base) = self.context.catalog.domain(to.ty) else { return self.explicit_cast(expr, to) };
        let value = self.explicit_cast(expr, base)?;
        let rules = self.domain_rules(to.ty)?;
        Ok(if rules.is_empty() { value } else { Expr::Domain(Box::new(value), rules) })
    }

    /// `expr::type`.
    pub(crate) fn explicit_cast(&self, expr: Expr, to: ColumnType) -> SqlResult<Expr> {
        self.coerce_to(expr, to, CastKind::Explicit)
    }

    fn bind_interval(&self, interval: &ast::Interval, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let bound = self.bind_expr(&interval.value, context)?;
        let ty = super::types::interval_literal(interval)?;
        let Expr::Const(sql_types::Datum::Text(text), Type::UNKNOWN) = &bound else {
            return self.explicit_cast(bound, ty);
        };
        let span = span_of(&interval.value);
        self.literal(text, ty).map_err(|error| self.at(error, span))
    }

    /// COLLATE: the only order is bytewise, which is what "C" and the default mean here.
    pub(crate) fn bind_collate(
        &self,
        inner: &ast::Expr,
        collation: &ObjectName,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let name = qualified(collation)?;
        let known = matches!(
            &*name.name,
            "default" | "C" | "POSIX" | "ucs_basic" | "C.utf8" | "en_US.utf8" | "C.UTF-8"
        );
        if !known {
            let error = SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("collation \"{}\" for encoding \"UTF8\" does not exist", name.written()),
            );
            return Err(self.at(error, name.span));
        }
        let bound = self.bind_expr(inner, context)?;
        let bound = self.resolve_unknown(bound)?;
        if !bound.ty().is_string() && !bound.ty().element().is_some_and(Type::is_string) {
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("collations are not supported by type {}", bound.ty()),
            ));
        }
        Ok(bound)
    }

    pub(crate) fn bind_special(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        match expr {
            ast::Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                let symbol = if *negated { "!~~" } else { "~~" };
                self.bind_like(symbol, expr, pattern, escape_char.as_ref(), context)
            }
            ast::Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                let symbol = if *negated { "!~~*" } else { "~~*" };
                self.bind_like(symbol, expr, pattern, escape_char.as_ref(), context)
            }
            ast::Expr::Like { negated, any: true, expr, pattern, escape_char: None } => {
                let symbol = if *negated { "!~~" } else { "~~" };
                self.bind_any_of(expr, symbol, pattern, context)
            }
            ast::Expr::ILike { negated, any: true, expr, pattern, escape_char: None } => {
                let symbol = if *negated { "!~~*" } else { "~~*" };
                self.bind_any_of(expr, symbol, pattern, context)
            }
            ast::Expr::SimilarTo { negated, expr, pattern, escape_char } => {
                self.bind_similar(*negated, expr, pattern, escape_char.as_ref(), context)
            }
            ast::Expr::AtTimeZone { timestamp, time_zone } => {
                let timestamp = self.bind_expr(timestamp, context)?;
                let zone = self.bind_expr(time_zone, context)?;
                self.function("timezone", vec![zone, timestamp])
            }
            ast::Expr::Extract { field, expr, .. } => {
                let bound = self.bind_expr(expr, context)?;
                self.function("extract", vec![field_name(field), bound])
                    .map_err(|error| self.at(error, span_of(expr)))
            }
            ast::Expr::Ceil { expr, .. } => self.bind_call_of("ceil", &[expr], context),
            ast::Expr::Floor { expr, .. } => self.bind_call_of("floor", &[expr], context),
            ast::Expr::Position { expr, r#in } => self.bind_call_of("position", &[r#in, expr], context),
            ast::Expr::Substring { .. } => self.bind_substring(expr, context),
            ast::Expr::Trim { .. } => self.bind_trim(expr, context),
            ast::Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut args: Vec<&ast::Expr> = vec![expr, overlay_what, overlay_from];
                args.extend(overlay_for.as_deref());
                self.bind_call_of("overlay", &args, context)
            }
            ast::Expr::InUnnest { .. } => Err(SqlError::unsupported("IN UNNEST")),
            ast::Expr::JsonAccess { .. } => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \":\""))
            }
            ast::Expr::Prefixed { prefix, .. } => {
                Err(self.at(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in literal"), prefix.span))
            }
            ast::Expr::Wildcard(token) => {
                Err(self
                    .at(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"*\""), token.0.span))
            }
            ast::Expr::QualifiedWildcard(name, _) => {
                let name = qualified(name)?;
                match context.scope.find_relation(name.schema.as_deref(), &name.name)? {
                    Some((relation, depth)) => self.whole_row(relation, depth, context),
                    None => Err(self.missing_from(name.schema.as_deref(), &name.name, name.span, context)),
                }
            }
            other => {
                Err(SqlError::unsupported(format_args!("the expression {}", shortened(&other.to_string()))))
            }
        }
    }

    fn bind_call_of(
        &self,
        name: &str,
        args: &[&ast::Expr],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let mut bound = Vec::with_capacity(args.len());
        for arg in args {
            bound.push(self.bind_expr(arg, context)?);
        }
        self.function(name, bound).map_err(|error| match args.first() {
            Some(first) => self.at(error, span_of(first)),
            None => error,
        })
    }

    fn bind_like(
        &self,
        symbol: &str,
        expr: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ValueWithSpan>,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let value = self.bind_expr(expr, context)?;
        let pattern = self.bind_expr(pattern, context)?;
        let pattern = match escape {
            Some(escape) => self.function("like_escape", vec![pattern, escape_text(escape)?])?,
            None => pattern,
        };
        self.operator(symbol, Some(value), pattern).map_err(|error| self.at(error, span_of(expr)))
    }

    fn bind_similar(
        &self,
        negated: bool,
        expr: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ValueWithSpan>,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let value = self.bind_expr(expr, context)?;
        let mut args = vec![self.bind_expr(pattern, context)?];
        if let Some(escape) = escape {
            args.push(escape_text(escape)?);
        }
        let pattern = self.function("similar_to_escape", args)?;
        self.operator(if negated { "!~" } else { "~" }, Some(value), pattern)
    }

    fn bind_substring(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let ast::Expr::Substring { expr, substring_from, substring_for, .. } = expr else {
            return Err(SqlError::internal("not a SUBSTRING"));
        };
        let mut args = vec![self.bind_expr(expr, context)?];
        match (substring_from, substring_for) {
            (None, Some(_)) => args.push(self.number("1")?),
            (Some(from), _) => args.push(self.bind_expr(from, context)?),
            (None, None) => {}
        }
        if let Some(length) = substring_for {
            args.push(self.bind_expr(length, context)?);
        }
        self.function("substring", args).map_err(|error| self.at(error, span_of(expr)))
    }

    fn bind_trim(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let ast::Expr::Trim { trim_where, trim_what, expr, trim_characters } = expr else {
            return Err(SqlError::internal("not a TRIM"));
        };
        let name = match trim_where {
            None | Some(TrimWhereField::Both) => "btrim",
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
        };
        let mut args = vec![self.bind_expr(expr, context)?];
        if let Some(what) = trim_what {
            args.push(self.bind_expr(what, context)?);
        }
        for what in trim_characters.iter().flatten() {
            args.push(self.bind_expr(what, context)?);
        }
        self.function(name, args).map_err(|error| self.at(error, span_of(expr)))
    }

    /// `current_date` and its kin, which are written without parentheses.
    pub(crate) fn bind_value_function(&self, name: &str, precision: Option<i32>) -> SqlResult<Option<Expr>> {
        let now = || self.function("now", Vec::new());
        let to = |ty: Type| ColumnType { ty, typmod: precision.unwrap_or(-1) };
        Ok(Some(match name {
            "current_date" => self.explicit_cast(now()?, Type::DATE.into())?,
            "current_timestamp" => self.explicit_cast(now()?, to(Type::TIMESTAMPTZ))?,
            "localtimestamp" => self.explicit_cast(now()?, to(Type::TIMESTAMP))?,
            "current_time" | "localtime" => self.explicit_cast(now()?, to(Type::TIME))?,
            "current_role" | "user" => self.function("current_user", Vec::new())?,
            "current_catalog" => self.function("current_database", Vec::new())?,
            "current_user" | "session_user" | "current_schema" => self.function(name, Vec::new())?,
            _ => return Ok(None),
        }))
    }
}

fn escape_text(escape: &ValueWithSpan) -> SqlResult<Expr> {
    match &escape.value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Ok(unknown(text)),
        other => Err(SqlError::new(SqlState::INVALID_ESCAPE, format!("invalid escape string {other}"))),
    }
}

fn field_name(field: &DateTimeField) -> Expr {
    let name = match field {
        DateTimeField::Custom(ident) => ident.value.clone(),
        other => other.to_string(),
    };
    Expr::Const(sql_types::Datum::text(name.trim_matches('\'').to_lowercase()), Type::TEXT)
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// Whether a type name in `name 'literal'` or `name(expr)` stands for a cast.
pub(crate) fn cast_named(name: &str) -> Option<Type> {
    Type::by_name(name)
        .filter(|ty| !matches!(*ty, Type::ANY | Type::ANYARRAY | Type::ANYELEMENT | Type::UNKNOWN))
}
