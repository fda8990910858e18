//! What UPDATE, ON CONFLICT and MERGE assign, to columns and to elements of them.
//!
//! An element is assigned by computing the whole value anew ([`Expr::SubscriptAssign`]): of the value that was there, and
//! where a statement assigns several elements of a column, each of what the one before has made.

use super::Binder;
use super::call::plain_arguments;
use super::context::ExprContext;
use super::expr::span_of;
use super::insert::{is_default, is_generated};
use crate::catalog::descriptor::{ColumnDescriptor, ColumnId, TableDescriptor};
use crate::parse::subscripted;
use crate::plan::Expr;
use crate::plan::expr::SubscriptRange;
use sql_types::cast::{self, CastKind};
use sql_types::{ColumnType, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, AccessExpr, AssignmentTarget, ObjectName, Subscript};

/// Most subscripts of a jsonb value; arrays have their own limit.
const MAX_SUBSCRIPTS: usize = crate::parse::MAX_NESTING;

/// What a value goes to.
#[derive(Clone, Copy)]
pub(crate) struct Target<'t> {
    /// The column.
    pub column: &'t ColumnDescriptor,
    /// The element of it; none for the whole column.
    pub subscripts: &'t [AccessExpr],
}

impl Target<'_> {
    /// The type that is written.
    pub(crate) fn ty(&self) -> SqlResult<ColumnType> {
        match self.subscripts {
            [] => Ok(self.column.ty),
            subscripts => element_type(self.column.ty, subscripts),
        }
    }
}

/// The value of a column after the assignments so far; none for a generated one that is set to DEFAULT.
struct Assigned {
    column: ColumnId,
    elements: bool,
    value: Option<Expr>,
}

/// What is assigned.
enum Source<'e> {
    Written(&'e ast::Expr),
    Bound(Expr),
}

impl Binder<'_> {
    /// `SET a = …, a[1] = …, (b, c) = (…)`. The columns of the table are those of the scope's first relation, or of that of
    /// the scope around it.
    pub(crate) fn bind_assignments(
        &self,
        assignments: &[ast::Assignment],
        table: &TableDescriptor,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<(ColumnId, Expr)>> {
        let mut assigned = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            match &assignment.target {
                AssignmentTarget::ColumnName(name) => {
                    let target = self.target(name, table, &[])?;
                    self.assign(&mut assigned, target, Source::Written(&assignment.value), context)?;
                }
                AssignmentTarget::Tuple(names) => {
                    let targets = names
                        .iter()
                        .map(|name| self.target(name, table, &[]))
                        .collect::<SqlResult<Vec<_>>>()?;
                    self.assign_tuple(&mut assigned, &targets, &assignment.value, context)?;
                }
            }
        }
        Ok(assigned.into_iter().filter_map(|Assigned { column, value, .. }| Some((column, value?))).collect())
    }

    /// A column or element of one, which must not be among what is written already.
    pub(crate) fn target<'t>(
        &self,
        name: &'t ObjectName,
        table: &'t TableDescriptor,
        given: &[Target<'_>],
    ) -> SqlResult<Target<'t>> {
        let whole: Vec<ColumnId>;
        let (name, subscripts) = match subscripted(name) {
            None => {
                whole = given.iter().map(|target| target.column.id).collect();
                (std::borrow::Cow::Borrowed(name), &[][..])
            }
            Some((name, subscripts)) => {
                let is_whole = |target: &&Target<'_>| target.subscripts.is_empty();
                whole = given.iter().filter(is_whole).map(|target| target.column.id).collect();
                (std::borrow::Cow::Owned(name), subscripts)
            }
        };
        Ok(Target { column: self.target_column(&name, table, &whole)?, subscripts })
    }

    fn assign(
        &self,
        assigned: &mut Vec<Assigned>,
        target: Target<'_>,
        source: Source<'_>,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<()> {
        let column = target.column;
        let elements = !target.subscripts.is_empty();
        let before = assigned.iter().position(|assigned| assigned.column == column.id);
        if before.is_some_and(|before| !(elements && assigned[before].elements)) {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!("multiple assignments to same column \"{}\"", column.name),
            ));
        }
        let default = matches!(source, Source::Written(value) if is_default(value));
        if !default {
            check_assignable(column)?;
        }
        let value = match source {
            Source::Written(_) if default && column.generated.is_some() && !elements => None,
            Source::Written(value) => Some(self.bind_for_target(value, target, context)?),
            Source::Bound(value) => Some(self.coerce_for_target(value, target)?),
        };
        let value = match value {
            Some(value) if elements => value,
            value => {
                assigned.push(Assigned { column: column.id, elements, value });
                return Ok(());
            }
        };
        let container = match before.and_then(|before| assigned[before].value.take()) {
            Some(container) => container,
            None => {
                let depth = usize::from(context.scope.relations.is_empty());
                self.relation_member(0, depth, &column.name, context)?
            }
        };
        let value = self.with_element(container, target.subscripts, value, context)?;
        match before {
            Some(before) => assigned[before].value = Some(value),
            None => assigned.push(Assigned { column: column.id, elements, value: Some(value) }),
        }
        Ok(())
    }

    fn assign_tuple(
        &self,
        assigned: &mut Vec<Assigned>,
        targets: &[Target<'_>],
        value: &ast::Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<()> {
        let row = match value {
            ast::Expr::Tuple(values) => Some(values.clone()),
            ast::Expr::Nested(inner) => Some(vec![inner.as_ref().clone()]),
            ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
                plain_arguments(function)
            }
            _ => None,
        };
        if let Some(values) = &row {
            if values.len() != targets.len() {
                let message = "number of columns does not match number of values";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            for (target, value) in targets.iter().zip(values) {
                self.assign(assigned, *target, Source::Written(value), context)?;
            }
            return Ok(());
        }
        let ast::Expr::Subquery(query) = value else {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
            ));
        };
        targets.iter().try_for_each(|target| check_assignable(target.column))?;
        let fields = self.record_subquery(query, targets.len(), context)?;
        for (target, field) in targets.iter().zip(fields) {
            self.assign(assigned, *target, Source::Bound(field), context)?;
        }
        Ok(())
    }

    /// A value for a column or an element of it; DEFAULT is for columns.
    pub(crate) fn bind_for_target(
        &self,
        value: &ast::Expr,
        target: Target<'_>,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if target.subscripts.is_empty() {
            return self.bind_assigned(value, target.column, context);
        }
        if is_default(value) {
            let message = "cannot set an array element to DEFAULT";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let bound = self.bind_expr(value, context)?;
        self.coerce_for_target(bound, target).map_err(|error| self.at(error, span_of(value)))
    }

    /// A value in the type that a column or an element of it takes.
    pub(crate) fn coerce_for_target(&self, value: Expr, target: Target<'_>) -> SqlResult<Expr> {
        let column = target.column;
        if target.subscripts.is_empty() {
            return self.coerce_for_column(value, column.ty, &column.name);
        }
        self.coerce_for_element(value, column.ty, target.subscripts, &column.name)
    }

    /// A value in the type that an element takes of a container that has a type and a name.
    pub(crate) fn coerce_for_element(
        &self,
        value: Expr,
        container: ColumnType,
        subscripts: &[AccessExpr],
        name: &str,
    ) -> SqlResult<Expr> {
        let to = element_type(container, subscripts)?;
        let from = value.ty();
        self.coerce_to(value, to, CastKind::Assignment).map_err(|error| {
            if error.code != SqlState::DATATYPE_MISMATCH && error.code != SqlState::CANNOT_COERCE {
                return error;
            }
            let message = format!(
                "subscripted assignment to \"{name}\" requires type {} but expression is of type {from}",
                to.ty
            );
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                .with_hint("You will need to rewrite or cast the expression.")
        })
    }

    /// A container with an element replaced by a value of its type.
    pub(crate) fn with_element(
        &self,
        container: Expr,
        subscripts: &[AccessExpr],
        value: Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let ty = container.ty();
        let ranges = match ty {
            Type::JSONB => {
                self.json_path(subscripts, context)?.into_iter().map(SubscriptRange::Index).collect()
            }
            _ => self.bind_ranges(subscripts, context)?,
        };
        Ok(Expr::SubscriptAssign(Box::new(container), ranges, Box::new(value), ty))
    }

    /// The subscripts of an array.
    pub(crate) fn bind_ranges(
        &self,
        chain: &[AccessExpr],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<SubscriptRange>> {
        let mut ranges = Vec::with_capacity(chain.len());
        for access in chain {
            if let AccessExpr::Subscript(subscript) = access {
                ranges.push(self.bind_subscript(subscript, context)?);
            }
        }
        Ok(ranges)
    }

    /// The subscripts of a jsonb value: each an integer or text.
    pub(crate) fn json_path(
        &self,
        chain: &[AccessExpr],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Vec<Expr>> {
        if chain.len() > MAX_SUBSCRIPTS {
            return Err(SqlError::new(SqlState::TOO_COMPLEX, "too many subscripts"));
        }
        chain.iter().map(|access| self.json_subscript(access, context)).collect()
    }

    fn json_subscript(&self, access: &AccessExpr, context: &mut ExprContext<'_>) -> SqlResult<Expr> {
        let AccessExpr::Subscript(Subscript::Index { index }) = access else {
            return Err(SqlError::new(
                SqlState::DATATYPE_MISMATCH,
                "jsonb subscript does not support slices",
            ));
        };
        let bound = self.bind_expr(index, context)?;
        let ty = bound.ty();
        let (integer, text) = (cast::can_coerce(ty, Type::INT4), cast::can_coerce(ty, Type::TEXT));
        let to = match (integer, text) {
            _ if ty == Type::UNKNOWN => Type::TEXT,
            (true, false) => Type::INT4,
            (false, true) => Type::TEXT,
            (both, _) => {
                let hint = match both {
                    true => "jsonb subscript must be coercible to only one type, integer or text.",
                    false => "jsonb subscript must be coercible to either integer or text.",
                };
                let message = format!("subscript type {ty} is not supported");
                let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message).with_hint(hint);
                return Err(self.at(error, span_of(index)));
            }
        };
        self.coerce(bound, to, CastKind::Implicit)
    }

    /// What a variable of PL/pgSQL is after an assignment: the element as it would be read, and the value.
    pub(crate) fn bind_assigned_variable(
        &self,
        element: &ast::Expr,
        value: &ast::Expr,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let ast::Expr::CompoundFieldAccess { root, access_chain } = element else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in an assignment"));
        };
        let (container, subscripts) = self.bind_access_root(root, access_chain, context)?;
        let subscript = |access: &AccessExpr| matches!(access, AccessExpr::Subscript(_));
        if subscripts.is_empty() || !subscripts.iter().all(subscript) {
            return Err(SqlError::unsupported("an assignment to a field of an element"));
        }
        let bound = self.bind_expr(value, context)?;
        let name = element.to_string();
        let name = name.split('[').next().unwrap_or_default();
        let bound = self.coerce_for_element(bound, ColumnType::plain(container.ty()), subscripts, name)?;
        self.with_element(container, subscripts, bound, context)
    }
}

/// The expressions that subscripts of what is assigned to have.
pub(super) fn subscripts(target: &AssignmentTarget) -> impl Iterator<Item = &ast::Expr> {
    let names = match target {
        AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
        AssignmentTarget::Tuple(names) => names.as_slice(),
    };
    let chains = names.iter().filter_map(subscripted).flat_map(|(_, chain)| chain);
    chains
        .flat_map(|access| match access {
            AccessExpr::Subscript(Subscript::Index { index }) => [Some(index), None, None],
            AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride }) => {
                [lower_bound.as_ref(), upper_bound.as_ref(), stride.as_ref()]
            }
            AccessExpr::Dot(field) => [Some(field), None, None],
        })
        .flatten()
}

/// The type of what subscripts of a container lead to.
fn element_type(container: ColumnType, subscripts: &[AccessExpr]) -> SqlResult<ColumnType> {
    if container.ty == Type::JSONB {
        return Ok(container);
    }
    let slice = |access: &AccessExpr| matches!(access, AccessExpr::Subscript(Subscript::Slice { .. }));
    match container.ty.element().filter(|_| container.ty.is_plain_array()) {
        Some(_) if subscripts.iter().any(slice) => Ok(container),
        Some(ty) => Ok(ColumnType { ty, ..container }),
        None => Err(SqlError::new(
            SqlState::DATATYPE_MISMATCH,
            format!("cannot subscript type {} because it does not support subscripting", container.ty),
        )),
    }
}

/// 428C9 for a column whose values come from elsewhere.
fn check_assignable(column: &ColumnDescriptor) -> SqlResult<()> {
    let detail = match column.identity {
        Some('a') => {
            format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name)
        }
        _ if column.generated.is_some() => is_generated(column),
        _ => return Ok(()),
    };
    let message = format!("column \"{}\" can only be updated to DEFAULT", column.name);
    Err(SqlError::new(SqlState::GENERATED_ALWAYS, message).with_detail(detail))
}
