//! Window calls.

use super::Binder;
use super::context::{Clause, ExprContext, Virtual};
use super::names::ident_name;
use crate::parse::markers::{EXCLUDE_CURRENT_ROW, EXCLUDE_GROUP, EXCLUDE_TIES};
use crate::plan::expr::{FrameBound, FrameExclusion, FrameUnits, WindowFrame, WindowKind};
use crate::plan::{Expr, SortKey, WindowCall};
use sql_types::cast::CastKind;
use sql_types::functions;
use sql_types::{SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, NamedWindowExpr, WindowFrameBound, WindowFrameUnits, WindowSpec, WindowType};
use std::sync::Arc;

/// How deep named windows may refer to each other.
const MAX_NAMED: usize = 16;

impl Binder<'_> {
    pub(crate) fn bind_window_call(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if !context.clause.allows_windows() {
            return Err(SqlError::new(
                SqlState::WINDOWING_ERROR,
                format!("window functions are not allowed in {}", context.clause.name()),
            ));
        }
        if context.in_aggregate {
            return Err(SqlError::new(
                SqlState::GROUPING_ERROR,
                "aggregate function calls cannot contain window function calls",
            ));
        }
        let clause = std::mem::replace(&mut context.clause, Clause::Window);
        let result = self.window_call(name, call, context);
        context.clause = clause;
        let bound = result?;
        let ty = bound.ty;
        context.windows.push(bound);
        Ok(Virtual::Window(context.windows.len() - 1).column(ty))
    }

    fn window_call(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<WindowCall> {
        self.check_window_clauses(name, call)?;
        let (kind, ty) = if functions::is_window_function(name) {
            let args = self.bind_args(name, call, context)?.values;
            let types: Vec<Type> = args.iter().map(Expr::ty).collect();
            let resolved = functions::resolve_window(name, &types)?;
            let args = self.coerce_args(args, &resolved.arg_types)?;
            (WindowKind::Function(resolved.function, args), resolved.returns)
        } else if functions::is_aggregate(name) {
            let outer = context.in_aggregate;
            // Aggregates of the group may be arguments here: `sum(sum(x)) OVER ()`.
            let call = self.window_aggregate(name, call, context);
            context.in_aggregate = outer;
            let call = call?;
            let ty = call.ty;
            (WindowKind::Aggregate(call), ty)
        } else {
            return Err(SqlError::new(
                if functions::is_function(name) {
                    SqlState::WRONG_OBJECT_TYPE
                } else {
                    SqlState::UNDEFINED_FUNCTION
                },
                if functions::is_function(name) {
                    format!("OVER specified, but {name} is not a window function nor an aggregate function")
                } else {
                    format!("function {name}() does not exist")
                },
            ));
        };
        let spec = match &call.over {
            Some(WindowType::WindowSpec(spec)) => self.bind_spec(spec, context, 0)?,
            Some(WindowType::NamedWindow(name)) => self.named_window(name, context, 0)?,
            None => return Err(SqlError::internal("a window call without OVER")),
        };
        Ok(WindowCall { kind, partition: spec.partition, order: spec.order, frame: Arc::new(spec.frame), ty })
    }

    /// What a call may have elsewhere, but not with OVER.
    fn check_window_clauses(&self, name: &str, call: &ast::Function) -> SqlResult<()> {
        let ast::FunctionArguments::List(list) = &call.args else { return Ok(()) };
        let ordered =
            |clause: &ast::FunctionArgumentClause| matches!(clause, ast::FunctionArgumentClause::OrderBy(_));
        if list.clauses.iter().any(ordered) {
            return Err(SqlError::unsupported("ORDER BY in the arguments of a window function"));
        }
        if !call.within_group.is_empty() {
            return Err(SqlError::unsupported("OVER for ordered-set aggregates"));
        }
        if call.filter.is_some() && functions::is_window_function(name) {
            return Err(SqlError::unsupported("FILTER for window functions that are no aggregates"));
        }
        Ok(())
    }

    fn window_aggregate(
        &self,
        name: &str,
        call: &ast::Function,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<crate::plan::AggregateCall> {
        let ast::FunctionArguments::List(list) = &call.args else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} needs arguments")));
        };
        if list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct) {
            return Err(SqlError::unsupported("DISTINCT for window functions"));
        }
        let star = matches!(
            list.args[..],
            [ast::FunctionArg::Unnamed(
                ast::FunctionArgExpr::Wildcard | ast::FunctionArgExpr::WildcardWithOptions(_)
            )]
        );
        let args = if star { Vec::new() } else { self.bind_args(name, call, context)?.values };
        let types: Vec<Type> = args.iter().map(Expr::ty).collect();
        let resolved = functions::resolve_aggregate(name, &types)?;
        let args = self.coerce_args(args, &resolved.arg_types)?;
        let filter = match &call.filter {
            Some(filter) => Some(self.bind_condition(filter, context, "FILTER")?),
            None => None,
        };
        Ok(crate::plan::AggregateCall {
            function: resolved.function,
            args,
            distinct: false,
            order: Vec::new(),
            filter,
            ty: resolved.returns,
        })
    }

    fn named_window(
        &self,
        name: &ast::Ident,
        context: &mut ExprContext<'_>,
        depth: usize,
    ) -> SqlResult<Spec> {
        let wanted = ident_name(name);
        let definitions = context.windows_by_name;
        let definition = definitions.iter().find(|definition| ident_name(&definition.0) == wanted);
        let Some(definition) = definition.filter(|_| depth < MAX_NAMED) else {
            let error =
                SqlError::new(SqlState::UNDEFINED_OBJECT, format!("window \"{wanted}\" does not exist"));
            return Err(self.at(error, name.span));
        };
        match &definition.1 {
            NamedWindowExpr::NamedWindow(other) => self.named_window(other, context, depth + 1),
            NamedWindowExpr::WindowSpec(spec) => self.bind_spec(spec, context, depth + 1),
        }
    }

    fn bind_spec(&self, spec: &WindowSpec, context: &mut ExprContext<'_>, depth: usize) -> SqlResult<Spec> {
        let base = match &spec.window_name {
            Some(name) => Some(self.named_window(name, context, depth)?),
            None => None,
        };
        let mut partition = Vec::new();
        for expr in &spec.partition_by {
            let bound = self.bind_expr(expr, context)?;
            partition.push(self.resolve_unknown(bound)?);
        }
        let mut order = Vec::new();
        let (keys, exclusion) = without_exclusion(&spec.order_by);
        for key in keys {
            order.push(self.bind_sort_key(key, context)?);
        }
        if let Some(base) = base {
            if !partition.is_empty() {
                return Err(override_error("PARTITION BY clause", spec));
            }
            if !order.is_empty() && !base.order.is_empty() {
                return Err(override_error("ORDER BY clause", spec));
            }
            partition = base.partition;
            if order.is_empty() {
                order = base.order;
            }
            if spec.window_frame.is_none() && keys.is_empty() {
                return Ok(Spec { partition, order, frame: base.frame });
            }
        }
        let mut frame = self.bind_frame(spec.window_frame.as_ref(), &order, context)?;
        frame.exclusion = exclusion;
        Ok(Spec { partition, order, frame })
    }

    fn bind_frame(
        &self,
        frame: Option<&ast::WindowFrame>,
        order: &[SortKey],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<WindowFrame> {
        let Some(frame) = frame else {
            return Ok(WindowFrame {
                units: FrameUnits::Range,
                start: FrameBound::UnboundedPreceding,
                end: FrameBound::CurrentRow,
                exclusion: FrameExclusion::None,
            });
        };
        let units = match frame.units {
            WindowFrameUnits::Rows => FrameUnits::Rows,
            WindowFrameUnits::Range => FrameUnits::Range,
            WindowFrameUnits::Groups => FrameUnits::Groups,
        };
        if units == FrameUnits::Groups && order.is_empty() {
            return Err(SqlError::new(SqlState::WINDOWING_ERROR, "GROUPS mode requires an ORDER BY clause"));
        }
        let start = self.bind_bound(&frame.start_bound, true, units, order, context)?;
        let end = match &frame.end_bound {
            Some(end) => self.bind_bound(end, false, units, order, context)?,
            None => FrameBound::CurrentRow,
        };
        match (&start, &end) {
            (FrameBound::UnboundedFollowing, _) => {
                Err(SqlError::new(SqlState::WINDOWING_ERROR, "frame start cannot be UNBOUNDED FOLLOWING"))
            }
            (_, FrameBound::UnboundedPreceding) => {
                Err(SqlError::new(SqlState::WINDOWING_ERROR, "frame end cannot be UNBOUNDED PRECEDING"))
            }
            (FrameBound::CurrentRow, FrameBound::Preceding(_)) => Err(SqlError::new(
                SqlState::WINDOWING_ERROR,
                "frame starting from current row cannot have preceding rows",
            )),
            (FrameBound::Following(_), FrameBound::Preceding(_) | FrameBound::CurrentRow) => {
                Err(SqlError::new(
                    SqlState::WINDOWING_ERROR,
                    "frame starting from following row cannot have preceding rows",
                ))
            }
            _ => Ok(WindowFrame { units, start, end, exclusion: FrameExclusion::None }),
        }
    }

    fn bind_bound(
        &self,
        bound: &WindowFrameBound,
        _start: bool,
        units: FrameUnits,
        order: &[SortKey],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<FrameBound> {
        Ok(match bound {
            WindowFrameBound::CurrentRow => FrameBound::CurrentRow,
            WindowFrameBound::Preceding(None) => FrameBound::UnboundedPreceding,
            WindowFrameBound::Following(None) => FrameBound::UnboundedFollowing,
            WindowFrameBound::Preceding(Some(offset)) => {
                FrameBound::Preceding(self.bind_offset(offset, units, order, context)?)
            }
            WindowFrameBound::Following(Some(offset)) => {
                FrameBound::Following(self.bind_offset(offset, units, order, context)?)
            }
        })
    }

    fn bind_offset(
        &self,
        offset: &ast::Expr,
        units: FrameUnits,
        order: &[SortKey],
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        let bound = self.bind_expr(offset, context)?;
        if !bound.is_column_free() {
            return Err(SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                "argument of a frame bound must not contain variables",
            ));
        }
        let ty = match units {
            FrameUnits::Rows | FrameUnits::Groups => Type::INT8,
            FrameUnits::Range => {
                let [key] = order else {
                    return Err(SqlError::new(
                        SqlState::WINDOWING_ERROR,
                        "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
                    ));
                };
                match key.expr.ty() {
                    Type::DATE | Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::TIME | Type::INTERVAL => {
                        Type::INTERVAL
                    }
                    ty if ty.is_numeric() => ty,
                    ty => {
                        return Err(SqlError::new(
                            SqlState::FEATURE_NOT_SUPPORTED,
                            format!(
                                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {ty}"
                            ),
                        ));
                    }
                }
            }
        };
        self.coerce(bound, ty, CastKind::Assignment)
    }
}

/// The ORDER BY of a window without the last item if that stands for EXCLUDE.
fn without_exclusion(keys: &[ast::OrderByExpr]) -> (&[ast::OrderByExpr], FrameExclusion) {
    let (Some((last, rest)), none) = (keys.split_last(), FrameExclusion::None) else {
        return (keys, FrameExclusion::None);
    };
    let exclusion = match &last.expr {
        ast::Expr::Identifier(ident) => match &*ident.value {
            EXCLUDE_CURRENT_ROW => FrameExclusion::CurrentRow,
            EXCLUDE_GROUP => FrameExclusion::Group,
            EXCLUDE_TIES => FrameExclusion::Ties,
            _ => none,
        },
        _ => none,
    };
    if exclusion == none { (keys, none) } else { (rest, exclusion) }
}

struct Spec {
    partition: Vec<Expr>,
    order: Vec<SortKey>,
    frame: WindowFrame,
}

fn override_error(what: &str, spec: &WindowSpec) -> SqlError {
    let name = spec.window_name.as_ref().map(|name| ident_name(name).into_owned()).unwrap_or_default();
    SqlError::new(SqlState::WINDOWING_ERROR, format!("cannot override {what} of window \"{name}\""))
}

/// Windows of one SELECT have names of their own.
pub(crate) fn check_window_names(windows: &[ast::NamedWindowDefinition]) -> SqlResult<()> {
    let twice = windows.iter().enumerate().find(|(index, window)| {
        windows[..*index].iter().any(|earlier| ident_name(&earlier.0) == ident_name(&window.0))
    });
    match twice {
        None => Ok(()),
        Some((_, window)) => Err(SqlError::new(
            SqlState::WINDOWING_ERROR,
            format!("window \"{}\" is already defined", ident_name(&window.0)),
        )),
    }
}
