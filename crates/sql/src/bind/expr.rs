//! Expressions.

use super::Binder;
use super::context::ExprContext;
use super::names::ident_name;
use super::operator::strip;
use super::scope::{Found, outward};
use crate::plan::Expr;
use crate::plan::expr::SubscriptRange;
use sql_types::cast::CastKind;
use sql_types::{Datum, RecordField, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, AccessExpr, BinaryOperator, Ident, Subscript};
use sqlparser::tokenizer::Span;
use std::sync::Arc;

/// How many operators other than AND and OR may follow each other: each makes the bound expression one
/// level deeper.
const MAX_SPINE: usize = 1000;

impl Binder<'_> {
    /// Binds an expression.
    pub(crate) fn bind_expr(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let expr = strip(expr);
        self.deeper(|| self.bind_expr_here(expr, context))
    }

    /// Binds a condition.
    pub(crate) fn bind_condition(
        &self,
        expr: &ast::Expr,
        context: &mut ExprContext<'_>,
        name: &str,
    ) -> SqlResult<Expr> {
        let bound = self.bind_expr(expr, context)?;
        self.coerce_bool(bound, name).map_err(|error| self.at(error, span_of(expr)))
    }

    fn bind_expr_here(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        match expr {
            ast::Expr::Identifier(ident) => self.bind_column(ident, context),
            ast::Expr::CompoundIdentifier(parts) => self.bind_compound(parts, context),
            ast::Expr::Value(value) => self.bind_value(value),
            ast::Expr::BinaryOp { left, op, right } => self.bind_binary(left, op, right, context),
            ast::Expr::UnaryOp { op, expr } => self.bind_unary(*op, expr, context),
            ast::Expr::Function(function) => self.bind_call(function, context),
            ast::Expr::Cast { .. } | ast::Expr::TypedString(_) | ast::Expr::Interval(_) => {
                self.bind_cast(expr, context)
            }
            ast::Expr::IsNull(inner) => self.bind_is_null(inner, false, context),
            ast::Expr::IsNotNull(inner) => self.bind_is_null(inner, true, context),
            ast::Expr::IsTrue(_)
            | ast::Expr::IsNotTrue(_)
            | ast::Expr::IsFalse(_)
            | ast::Expr::IsNotFalse(_)
            | ast::Expr::IsUnknown(_)
            | ast::Expr::IsNotUnknown(_) => self.bind_truth_test(expr, context),
            ast::Expr::IsDistinctFrom(left, right) => self.bind_distinct(left, right, false, context),
            ast::Expr::IsNotDistinctFrom(left, right) => self.bind_distinct(left, right, true, context),
            ast::Expr::InList { expr, list, negated } => self.bind_in_list(expr, list, *negated, context),
            ast::Expr::InSubquery { .. } | ast::Expr::Exists { .. } | ast::Expr::Subquery(_) => {
                self.bind_subquery(expr, context)
            }
            ast::Expr::AnyOp { left, compare_op, right, .. } => {
                self.bind_any(left, compare_op, right, true, context)
            }
            ast::Expr::AllOp { left, compare_op, right } => {
                self.bind_any(left, compare_op, right, false, context)
            }
            ast::Expr::Between { expr, negated, low, high } => {
                self.bind_between(expr, *negated, low, high, context)
            }
            ast::Expr::Case { .. } => self.bind_case(expr, context),
            ast::Expr::Array(array) => self.bind_array(&array.elem, context),
            ast::Expr::Tuple(items) => self.bind_row(items, context),
            ast::Expr::CompoundFieldAccess { root, access_chain } => {
                self.bind_access(root, access_chain, context)
            }
            ast::Expr::QualifiedWildcard(name, _) if self.context.variables.is_some() => {
                match self.variable(&super::names::qualified(name)?.name, false)? {
                    Some(record @ Expr::Record(..)) => Ok(record),
                    _ => self.bind_special(expr, context),
                }
            }
            ast::Expr::Collate { expr, collation } => self.bind_collate(expr, collation, context),
            _ => self.bind_special(expr, context),
        }
    }

    fn bind_column(&self, ident: &Ident, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let name = ident_name(ident);
        let scope = context.scope;
        match scope.find(&name).map_err(|error| self.at(error, ident.span))? {
            Some(found) => {
                if let Some(scope) = scope.ancestor(found.depth) {
                    self.note_column(found.column, scope, ident.span);
                }
                let variable = self.variable(&name, true).map_err(|error| self.at(error, ident.span))?;
                Ok(variable.unwrap_or_else(|| found.expr()))
            }
            None => match self.variable(&name, false).map_err(|error| self.at(error, ident.span))? {
                Some(variable) => Ok(variable),
                None => self.bind_other_name(&name, ident, context),
            },
        }
    }

    /// A name that is no column: a whole row, or a system column.
    fn bind_other_name(&self, name: &str, ident: &Ident, context: &ExprContext<'_>) -> SqlResult<Expr> {
        if let Some((relation, depth)) = context.scope.find_relation(None, name)? {
            return self.whole_row(relation, depth, context);
        }
        if ident.quote_style.is_none()
            && let Some(value) = self.bind_value_function(name, None)?
        {
            return Ok(value);
        }
        if name == "default" && ident.quote_style.is_none() {
            let error = SqlError::new(SqlState::SYNTAX_ERROR, "DEFAULT is not allowed in this context");
            return Err(self.at(error, ident.span));
        }
        if matches!(name, "tableoid" | "ctid" | "xmin" | "xmax" | "cmin" | "cmax") {
            return self.system_column(name, context.scope.relations.len().checked_sub(1), 0, context);
        }
        let mut error =
            SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"));
        if let Some(similar) = context.scope.similar(None, name) {
            error = error.with_hint(format!("Perhaps you meant to reference the column \"{similar}\"."));
        }
        Err(self.at(error, ident.span))
    }

    /// `relation.column`, `schema.relation.column`, or a field of a record column.
    fn bind_compound(&self, parts: &[Ident], context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let names: Vec<_> = parts.iter().map(ident_name).collect();
        let span = parts.first().map_or_else(Span::empty, |ident| ident.span);
        if self.context.variables.is_some() {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            let found = self.variable_member(&names, context).map_err(|error| self.at(error, span))?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        let (schema, relation, column) = match &names[..] {
            [relation, column] => (None, relation, column),
            [schema, relation, column] => (Some(&**schema), relation, column),
            [database, schema, relation, column] => {
                if **database != *self.context.catalog.database() {
                    let message = format!(
                        "cross-database references are not implemented: {database}.{schema}.{relation}.{column}"
                    );
                    return Err(self.at(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message), span));
                }
                (Some(&**schema), relation, column)
            }
            _ => {
                let error =
                    SqlError::new(SqlState::SYNTAX_ERROR, "improper qualified name (too many dotted names)");
                return Err(self.at(error, span));
            }
        };
        let found = context.scope.find_relation(schema, relation).map_err(|error| self.at(error, span))?;
        let Some((position, depth)) = found else {
            return Err(self.missing_from(schema, relation, span, context));
        };
        if let (Some(scope), Some(last)) = (context.scope.ancestor(depth), parts.last())
            && let Some(column) = scope.relation_column(position, column)
        {
            self.note_column(column, scope, last.span);
        }
        self.relation_member(position, depth, column, context).map_err(|error| self.at(error, span))
    }

    pub(super) fn relation_member(
        &self,
        position: usize,
        depth: usize,
        column: &str,
        context: &ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let Some(scope) = context.scope.ancestor(depth) else {
            return Err(SqlError::internal("scope is missing"));
        };
        if let Some(column) = scope.relation_column(position, column) {
            return Ok(Found { column, depth }.expr());
        }
        if matches!(column, "tableoid" | "ctid" | "xmin" | "xmax" | "cmin" | "cmax") {
            return self.system_column(column, Some(position), depth, context);
        }
        let relation = scope.relations.get(position).and_then(|relation| relation.name.clone());
        let relation = relation.as_deref().unwrap_or("");
        let mut error =
            SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column {relation}.{column} does not exist"));
        if let Some(similar) = scope.similar(Some(position), column) {
            error = error.with_hint(format!("Perhaps you meant to reference the column \"{similar}\"."));
        }
        Err(error)
    }

    pub(crate) fn missing_from(
        &self,
        schema: Option<&str>,
        relation: &str,
        span: Span,
        context: &ExprContext<'_>,
    ) -> SqlError {
        let aliased = context.scope.relations.iter().find_map(|known| {
            let table = known.table.as_ref()?;
            (table.name == relation).then(|| known.name.clone()).flatten()
        });
        let error = match aliased {
            Some(alias) => SqlError::new(
                SqlState::UNDEFINED_TABLE,
                format!("invalid reference to FROM-clause entry for table \"{relation}\""),
            )
            .with_hint(format!("Perhaps you meant to reference the table alias \"{alias}\".")),
            None => {
                let written =
                    schema.map_or_else(|| relation.to_string(), |schema| format!("{schema}.{relation}"));
                SqlError::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("missing FROM-clause entry for table \"{written}\""),
                )
            }
        };
        self.at(error, span)
    }

    fn system_column(
        &self,
        name: &str,
        relation: Option<usize>,
        depth: usize,
        context: &ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let relation = relation.and_then(|position| {
            context.scope.ancestor(depth).and_then(|scope| scope.relations.get(position))
        });
        match (name, relation) {
            ("tableoid", Some(relation)) if relation.oid != 0 => {
                Ok(Expr::Const(Datum::Oid(relation.oid), Type::OID))
            }
            ("xmin" | "xmax" | "cmin" | "cmax", Some(relation)) if relation.oid != 0 => {
                Ok(Expr::Const(Datum::Oid(0), Type::XID))
            }
            ("ctid", Some(_)) => Err(SqlError::unsupported("system column \"ctid\"")),
            _ => Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))),
        }
    }

    /// A whole row of a relation as a record; the value itself for a function returning scalars.
    pub(crate) fn whole_row(
        &self,
        relation: usize,
        depth: usize,
        context: &ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let Some(scope) = context.scope.ancestor(depth) else {
            return Err(SqlError::internal("scope is missing"));
        };
        self.note_row(scope.relations.get(relation).map_or(0, |relation| relation.oid));
        let columns: Vec<_> = scope.relation_columns(relation).collect();
        if scope.relations.get(relation).is_some_and(|relation| relation.scalar)
            && let [column, ..] = columns[..]
        {
            return Ok(outward(column.expr.clone(), depth));
        }
        let fields: Arc<[RecordField]> = columns
            .iter()
            .map(|column| RecordField { name: column.name.to_string(), ty: column.ty.ty })
            .collect();
        let values = columns.iter().map(|column| outward(column.expr.clone(), depth)).collect();
        Ok(Expr::Record(values, Some(fields)))
    }

    fn bind_access(
        &self,
        root: &ast::Expr,
        chain: &[AccessExpr],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let (mut value, rest) = self.bind_access_root(root, chain, context)?;
        let mut rest = rest;
        while let Some(first) = rest.first() {
            if let AccessExpr::Dot(name) = first {
                value = self.bind_field(value, name, context)?;
                rest = &rest[1..];
                continue;
            }
            let count = rest.iter().take_while(|access| matches!(access, AccessExpr::Subscript(_))).count();
            value = self.bind_subscripts(value, &rest[..count], context)?;
            rest = &rest[count..];
        }
        Ok(value)
    }

    /// The part of `a.b[1].c` that names a column: `sqlparser` gives a chain that starts at `a`.
    pub(super) fn bind_access_root<'e>(
        &self,
        root: &ast::Expr,
        chain: &'e [AccessExpr],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<(Expr, &'e [AccessExpr])> {
        if let ast::Expr::Identifier(first) = root {
            let mut parts = vec![first.clone()];
            for access in chain {
                match access {
                    AccessExpr::Dot(ast::Expr::Identifier(ident)) => parts.push(ident.clone()),
                    _ => break,
                }
            }
            if parts.len() > 1 {
                let rest = chain.get(parts.len() - 1..).unwrap_or(&[]);
                return Ok((self.bind_compound(&parts, context)?, rest));
            }
        }
        Ok((self.bind_expr(root, context)?, chain))
    }

    fn bind_field(&self, value: Expr, name: &ast::Expr, context: &ExprContext<'_>) -> SqlResult<Expr> {
        let ast::Expr::Identifier(ident) = name else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "a field must be given by its name"));
        };
        let name = ident_name(ident);
        if value.ty() != Type::RECORD {
            let error = SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!(
                    "column notation .{name} applied to type {}, which is not a composite type",
                    value.ty()
                ),
            );
            return Err(self.at(error, ident.span));
        }
        let fields = self.fields_of(&value, context);
        let position = fields.as_ref().and_then(|fields| fields.iter().position(|field| field.name == name));
        let (Some(position), Some(fields)) = (position, fields) else {
            let error = SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("could not identify column \"{name}\" in record data type"),
            );
            return Err(self.at(error, ident.span));
        };
        match value {
            Expr::Record(mut values, _) if position < values.len() => Ok(values.swap_remove(position)),
            value => Ok(Expr::Field(Box::new(value), position, fields[position].ty)),
        }
    }

    /// The fields of a record, as far as they are known.
    pub(crate) fn fields_of(&self, value: &Expr, context: &ExprContext<'_>) -> Option<Arc<[RecordField]>> {
        match value {
            Expr::Record(_, Some(fields)) => Some(fields.clone()),
            Expr::Record(values, None) => Some(
                values
                    .iter()
                    .enumerate()
                    .map(|(index, value)| RecordField { name: format!("f{}", index + 1), ty: value.ty() })
                    .collect(),
            ),
            Expr::Column(index, _) => match super::context::Virtual::of(*index) {
                Some(super::context::Virtual::Set(set)) => context.sets.get(set).map(|call| {
                    call.columns
                        .iter()
                        .map(|(name, ty)| RecordField { name: name.clone(), ty: *ty })
                        .collect()
                }),
                Some(_) => None,
                None => context
                    .scope
                    .columns
                    .iter()
                    .find(|column| matches!(&column.expr, Expr::Column(own, _) if own == index))
                    .and_then(|column| column.fields.clone()),
            },
            Expr::Outer { depth, index, .. } => context
                .scope
                .ancestor(depth + 1)?
                .columns
                .iter()
                .find(|column| matches!(&column.expr, Expr::Column(own, _) if own == index))
                .and_then(|column| column.fields.clone()),
            _ => None,
        }
    }

    fn bind_subscripts(
        &self,
        value: Expr,
        chain: &[AccessExpr],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let ty = value.ty();
        if ty == Type::JSONB {
            return self.bind_json_subscripts(value, chain, context);
        }
        if let (Type::NAME, [AccessExpr::Subscript(subscript)]) = (ty, chain) {
            return self.bind_name_subscript(value, subscript, context);
        }
        let Some(element) = ty.element() else {
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                format!("cannot subscript type {ty} because it does not support subscripting"),
            ));
        };
        let subscripts = self.bind_ranges(chain, context)?;
        let slice = subscripts.iter().any(|subscript| matches!(subscript, SubscriptRange::Slice(..)));
        Ok(Expr::Subscript(Box::new(value), subscripts, if slice { ty } else { element }))
    }

    pub(super) fn bind_subscript(
        &self,
        subscript: &Subscript,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<SubscriptRange> {
        let mut integer = |expr: &ast::Expr| {
            let bound = self.bind_expr(expr, context)?;
            self.coerce(bound, Type::INT4, CastKind::Assignment).map_err(|error| {
                if error.code != SqlState::DATATYPE_MISMATCH && error.code != SqlState::CANNOT_COERCE {
                    return error;
                }
                let error =
                    SqlError::new(SqlState::DATATYPE_MISMATCH, "array subscript must have type integer");
                self.at(error, span_of(expr))
            })
        };
        Ok(match subscript {
            Subscript::Index { index } => SubscriptRange::Index(integer(index)?),
            Subscript::Slice { stride: Some(_), .. } => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \":\""));
            }
            Subscript::Slice { lower_bound, upper_bound, .. } => SubscriptRange::Slice(
                lower_bound.as_ref().map(&mut integer).transpose()?,
                upper_bound.as_ref().map(&mut integer).transpose()?,
            ),
        })
    }

    /// A name is an array of bytes, counted from 0.
    fn bind_name_subscript(
        &self,
        value: Expr,
        subscript: &Subscript,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let SubscriptRange::Index(index) = self.bind_subscript(subscript, context)? else {
            return Err(SqlError::unsupported("a slice of a name"));
        };
        let one = Expr::Const(Datum::Int4(1), Type::INT4);
        let from = self.operator("+", Some(index), one.clone())?;
        let text = self.coerce(value, Type::TEXT, CastKind::Implicit)?;
        self.function("substring", vec![text, from, one])
    }

    fn bind_json_subscripts(
        &self,
        value: Expr,
        chain: &[AccessExpr],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let path = self.json_path(chain, context)?;
        let path = path.into_iter().map(|step| self.coerce(step, Type::TEXT, CastKind::Assignment));
        let path = Expr::Array(path.collect::<SqlResult<_>>()?, Type::TEXT_ARRAY);
        self.operator("#>", Some(value), path)
    }

    fn bind_array(&self, elements: &[ast::Expr], context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let mut bound = Vec::with_capacity(elements.len());
        for element in elements {
            bound.push(self.bind_expr(element, context)?);
        }
        if bound.is_empty() {
            // Typed by the cast around it; otherwise 42P18, as PostgreSQL says.
            return Ok(Expr::Array(bound, Type::UNKNOWN));
        }
        let (bound, common) = self.unify(bound, "ARRAY")?;
        let nested = common.is_plain_array();
        let ty = if nested { Some(common) } else { common.array() };
        match ty {
            Some(ty) => Ok(Expr::Array(bound, ty)),
            None => Err(SqlError::new(
                SqlState::UNDEFINED_OBJECT,
                format!("could not find array type for data type {common}"),
            )),
        }
    }

    pub(crate) fn bind_row(&self, items: &[ast::Expr], context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            if let ast::Expr::QualifiedWildcard(name, _) = item {
                values.extend(self.expand_relation(name, context)?.into_iter().map(|(_, expr)| expr));
                continue;
            }
            // Untyped fields get their type from what the row is compared with.
            values.push(self.bind_expr(item, context)?);
        }
        Ok(Expr::Record(values, None))
    }

    fn bind_case(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let ast::Expr::Case { operand, conditions, else_result, .. } = expr else {
            return Err(SqlError::internal("not a CASE"));
        };
        let before = context.subplans.len();
        let operand = operand.as_ref().map(|operand| self.bind_expr(operand, context)).transpose()?;
        let operand = operand.map(|operand| self.resolve_unknown(operand)).transpose()?;
        let (mut tests, mut results) = (Vec::new(), Vec::new());
        let (mut lazy, mut effects) = (false, self.calls_volatile(context, before));
        for when in conditions {
            let from = context.subplans.len();
            tests.push(match &operand {
                None => self.bind_condition(&when.condition, context, "CASE/WHEN")?,
                Some(operand) => {
                    let value = self.bind_expr(&when.condition, context)?;
                    self.operator("=", Some(operand.clone()), value)?
                }
            });
            effects |= self.calls_volatile(context, from);
            let from = context.subplans.len();
            results.push(self.bind_expr(&when.result, context)?);
            lazy |= self.calls_routines(context, from);
        }
        let from = context.subplans.len();
        // PostgreSQL lets the ELSE branch decide first.
        let otherwise = match else_result {
            Some(otherwise) => self.bind_expr(otherwise, context)?,
            None => Expr::Const(Datum::Null, Type::UNKNOWN),
        };
        if lazy || self.calls_routines(context, from) {
            // The conditions are computed again where the results are.
            if effects {
                let what =
                    "a volatile function in a condition of CASE or COALESCE whose results call functions";
                return Err(SqlError::unsupported(what));
            }
            context.subplans.truncate(before);
            return self.again(&lazy_case(expr)?, context);
        }
        results.insert(0, otherwise);
        let (mut results, ty) = self.unify(results, "CASE")?;
        let otherwise = results.remove(0);
        let otherwise = else_result.as_ref().map(|_| Box::new(otherwise));
        Ok(Expr::Case { branches: tests.into_iter().zip(results).collect(), otherwise, ty })
    }

    fn bind_is_null(
        &self,
        inner: &ast::Expr,
        negated: bool,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let bound = self.bind_expr(inner, context)?;
        let bound = self.resolve_unknown(bound)?;
        // A row is NULL if all its fields are, and not NULL if none is.
        if let Expr::Record(values, _) = bound {
            return Ok(Expr::And(
                values.into_iter().map(|value| Expr::IsNull(Box::new(value), negated)).collect(),
            ));
        }
        Ok(Expr::IsNull(Box::new(bound), negated))
    }

    fn bind_truth_test(&self, expr: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let (inner, name, value, negated) = match expr {
            ast::Expr::IsTrue(inner) => (inner, "IS TRUE", Datum::Bool(true), false),
            ast::Expr::IsNotTrue(inner) => (inner, "IS NOT TRUE", Datum::Bool(true), true),
            ast::Expr::IsFalse(inner) => (inner, "IS FALSE", Datum::Bool(false), false),
            ast::Expr::IsNotFalse(inner) => (inner, "IS NOT FALSE", Datum::Bool(false), true),
            ast::Expr::IsUnknown(inner) => (inner, "IS UNKNOWN", Datum::Null, false),
            ast::Expr::IsNotUnknown(inner) => (inner, "IS NOT UNKNOWN", Datum::Null, true),
            _ => return Err(SqlError::internal("not a truth test")),
        };
        let bound = self.bind_condition(inner, context, name)?;
        if value.is_null() {
            return Ok(Expr::IsNull(Box::new(bound), negated));
        }
        let constant = Expr::Const(value, Type::BOOL);
        Ok(Expr::IsDistinct(Box::new(bound), Box::new(constant), !negated))
    }

    fn bind_distinct(
        &self,
        left: &ast::Expr,
        right: &ast::Expr,
        negated: bool,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let left = self.bind_expr(left, context)?;
        let right = self.bind_expr(right, context)?;
        if let (Expr::Record(a, _), Expr::Record(b, _)) = (&left, &right)
            && a.len() == b.len()
        {
            let parts: SqlResult<Vec<Expr>> =
                a.iter().zip(b).map(|(a, b)| self.distinct(a.clone(), b.clone(), negated)).collect();
            return Ok(if negated { Expr::And(parts?) } else { Expr::Or(parts?) });
        }
        self.distinct(left, right, negated)
    }

    fn distinct(&self, left: Expr, right: Expr, negated: bool) -> SqlResult<Expr> {
        // The operands are cast as for `=`, whose existence is required too.
        match self.operator("=", Some(left), right)? {
            Expr::Call { args, .. } if args.len() == 2 => {
                let mut args = args.into_iter();
                match (args.next(), args.next()) {
                    (Some(left), Some(right)) => {
                        Ok(Expr::IsDistinct(Box::new(left), Box::new(right), negated))
                    }
                    _ => Err(SqlError::internal("an equality without operands")),
                }
            }
            _ => Err(SqlError::internal("an equality that is not a call")),
        }
    }

    fn bind_between(
        &self,
        expr: &ast::Expr,
        negated: bool,
        low: &ast::Expr,
        high: &ast::Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let value = self.bind_expr(expr, context)?;
        let (low, symmetric) = self.symmetric_bound(low, context)?;
        let high = self.bind_expr(high, context)?;
        let inside = |low: Expr, high: Expr| -> SqlResult<Expr> {
            Ok(Expr::And(vec![
                self.operator(">=", Some(value.clone()), low)?,
                self.operator("<=", Some(value.clone()), high)?,
            ]))
        };
        let test = if symmetric {
            Expr::Or(vec![inside(low.clone(), high.clone())?, inside(high, low)?])
        } else {
            inside(low, high)?
        };
        Ok(if negated { Expr::Not(Box::new(test)) } else { test })
    }

    /// The lower bound of BETWEEN, and whether it was marked SYMMETRIC.
    fn symmetric_bound(&self, low: &ast::Expr, context: &mut ExprContext<'_>) -> SqlResult<(Expr, bool)> {
        if let ast::Expr::Function(function) = low
            && let Some([argument]) =
                super::call::marked_arguments(function, crate::parse::markers::SYMMETRIC).as_deref()
        {
            return Ok((self.bind_expr(argument, context)?, true));
        }
        Ok((self.bind_expr(low, context)?, false))
    }

    pub(super) fn bind_binary(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        // Chains of operators lean left; they are walked in a loop to spare the stack.
        let mut spine = vec![(op, right)];
        let mut first = left;
        while let ast::Expr::BinaryOp { left, op, right } = first {
            spine.push((op, right));
            first = left;
        }
        let operators =
            spine.iter().filter(|(op, _)| !matches!(op, BinaryOperator::And | BinaryOperator::Or));
        if operators.count() > MAX_SPINE {
            return Err(SqlError::new(SqlState::TOO_COMPLEX, "statement is too complex")
                .with_detail(format!("More than {MAX_SPINE} operators follow each other.")));
        }
        let mut value = BoundOperand::Ast(first);
        while let Some((op, right)) = spine.pop() {
            value = match op {
                BinaryOperator::And | BinaryOperator::Or => self.bind_logical(value, op, right, context)?,
                _ => BoundOperand::Expr(self.bind_operation(value, op, right, context)?),
            };
        }
        value.bind(self, context)
    }

    fn bind_logical(
        &self,
        left: BoundOperand<'_>,
        op: &BinaryOperator,
        right: &ast::Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<BoundOperand<'static>> {
        let name = if *op == BinaryOperator::And { "AND" } else { "OR" };
        let left = left.bind(self, context)?;
        let left = self.coerce_bool(left, name)?;
        let right = self.bind_condition(right, context, name)?;
        Ok(BoundOperand::Expr(match (op, left) {
            (BinaryOperator::And, Expr::And(mut parts)) => {
                parts.push(right);
                Expr::And(parts)
            }
            (BinaryOperator::Or, Expr::Or(mut parts)) => {
                parts.push(right);
                Expr::Or(parts)
            }
            (BinaryOperator::And, left) => Expr::And(vec![left, right]),
            (_, left) => Expr::Or(vec![left, right]),
        }))
    }
}

/// The left operand of a chain: the first one is not bound yet.
pub(crate) enum BoundOperand<'e> {
    Ast(&'e ast::Expr),
    Expr(Expr),
}

impl BoundOperand<'_> {
    pub(crate) fn bind(self, binder: &Binder<'_>, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        match self {
            BoundOperand::Ast(expr) => binder.bind_expr(expr, context),
            BoundOperand::Expr(expr) => Ok(expr),
        }
    }
}

/// Where an expression stands.
pub(crate) fn span_of(expr: &ast::Expr) -> Span {
    match expr {
        ast::Expr::Identifier(ident) => ident.span,
        ast::Expr::CompoundIdentifier(parts) => parts.first().map_or_else(Span::empty, |ident| ident.span),
        ast::Expr::Value(value) => value.span,
        ast::Expr::Nested(inner)
        | ast::Expr::IsNull(inner)
        | ast::Expr::IsNotNull(inner)
        | ast::Expr::Cast { expr: inner, .. }
        | ast::Expr::UnaryOp { expr: inner, .. } => span_of(inner),
        ast::Expr::BinaryOp { left, .. } => span_of(left),
        ast::Expr::Between { expr, .. } | ast::Expr::InList { expr, .. } => span_of(expr),
        ast::Expr::TypedString(typed) => typed.value.span,
        ast::Expr::Case { case_token, .. } => case_token.0.span,
        ast::Expr::Function(function) => match function.name.0.first() {
            Some(ast::ObjectNamePart::Identifier(ident)) => ident.span,
            _ => Span::empty(),
        },
        _ => Span::empty(),
    }
}

/// A CASE whose results are computed only if they are wanted: each in a subquery with its condition.
fn lazy_case(expr: &ast::Expr) -> SqlResult<ast::Expr> {
    let ast::Expr::Case { operand, conditions, else_result, .. } = expr else {
        return Err(SqlError::internal("not a CASE"));
    };
    let nested = |expr: ast::Expr| Box::new(ast::Expr::Nested(Box::new(expr)));
    let mut rest: Option<ast::Expr> = None;
    let mut lazy = expr.clone();
    let ast::Expr::Case { conditions: made, else_result: made_else, .. } = &mut lazy else {
        return Err(SqlError::internal("not a CASE"));
    };
    for (when, made) in conditions.iter().zip(made) {
        let test = match operand {
            None => when.condition.clone(),
            Some(operand) => ast::Expr::BinaryOp {
                left: nested((**operand).clone()),
                op: ast::BinaryOperator::Eq,
                right: nested(when.condition.clone()),
            },
        };
        let test = nested(test);
        let condition = match rest.take() {
            None => (*test).clone(),
            Some(rest) => and(rest, (*test).clone()),
        };
        made.result = super::routine::guarded(&when.result, condition.clone())?;
        let fails = ast::Expr::IsNotTrue(test);
        rest = Some(match condition {
            ast::Expr::BinaryOp { left, op: ast::BinaryOperator::And, .. } => and(*left, fails),
            _ => fails,
        });
    }
    if let (Some(otherwise), Some(rest)) = (else_result, rest) {
        *made_else = Some(Box::new(super::routine::guarded(otherwise, rest)?));
    }
    Ok(lazy)
}

fn and(left: ast::Expr, right: ast::Expr) -> ast::Expr {
    ast::Expr::BinaryOp { left: Box::new(left), op: ast::BinaryOperator::And, right: Box::new(right) }
}
