//! Where the columns of a plan's rows come from, and what is known of their values there.

use super::estimate::table_rows;
use crate::catalog::descriptor::{ColumnId, TableDescriptor};
use crate::plan::{Expr, Plan, PlanKind};
use crate::statistics::{ColumnStatistics, TableStatistics};
use sql_types::Type;
use std::sync::Arc;

/// Distinct values of a column or expression of which nothing is known, as in PostgreSQL.
pub const UNKNOWN_DISTINCT: f64 = 200.0;
/// Share of NULLs in a column of which nothing is known.
const UNKNOWN_NULLS: f64 = 0.005;

/// The columns that expressions refer to by position.
#[derive(Clone, Copy)]
pub enum Columns<'a> {
    /// Columns of a table.
    Table(&'a Arc<TableDescriptor>, &'a [ColumnId]),
    /// Of a plan's rows.
    Plan(&'a Plan),
    /// Of two plans' rows side by side.
    Pair(&'a Plan, &'a Plan),
    /// Of several plans' rows side by side, each with the position of its first column, in order.
    Row(&'a [(usize, &'a Plan)]),
}

/// A column of a table.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// The table.
    pub table: &'a Arc<TableDescriptor>,
    /// The column.
    pub column: ColumnId,
}

impl<'a> Columns<'a> {
    /// The column of a table that a position shows unchanged.
    pub fn origin(self, index: usize) -> Option<Origin<'a>> {
        match self {
            Columns::Table(table, columns) => columns.get(index).map(|id| Origin { table, column: *id }),
            Columns::Plan(plan) => origin(plan, index),
            Columns::Pair(left, right) => match index.checked_sub(left.columns.len()) {
                None => origin(left, index),
                Some(index) => origin(right, index),
            },
            Columns::Row(plans) => {
                let (start, plan) = plans.iter().rev().find(|(start, _)| *start <= index)?;
                origin(plan, index - start)
            }
        }
    }

    /// The column of a table that an expression is, a cast aside.
    pub fn origin_of(self, expr: &Expr) -> Option<Origin<'a>> {
        match expr {
            Expr::Column(index, _) => self.origin(*index),
            Expr::Cast { expr, .. } => self.origin_of(expr),
            _ => None,
        }
    }
}

fn origin(plan: &Plan, index: usize) -> Option<Origin<'_>> {
    let through = |exprs: &[Expr]| match exprs.get(index)? {
        Expr::Column(index, _) => Some(*index),
        _ => None,
    };
    match &plan.kind {
        PlanKind::Scan { table, columns, .. } => Columns::Table(table, columns).origin(index),
        PlanKind::Filter { input, .. }
        | PlanKind::Sort { input, .. }
        | PlanKind::Limit { input, .. }
        | PlanKind::Distinct { input, .. } => origin(input, index),
        PlanKind::Apply { input, .. } | PlanKind::Window { input, .. } => {
            if index < input.columns.len() {
                origin(input, index)
            } else {
                None
            }
        }
        PlanKind::Project { input, exprs } => origin(input, through(exprs)?),
        PlanKind::Aggregate { input, groups, .. } => origin(input, through(groups)?),
        PlanKind::Join { left, right, .. } => Columns::Pair(left, right).origin(index),
        PlanKind::With { body, .. } => origin(body, index),
        _ => None,
    }
}

impl Origin<'_> {
    /// The statistics of the table.
    pub fn statistics(&self) -> Option<Arc<TableStatistics>> {
        self.table.statistics.get()
    }

    /// The statistics of the column among those of its table.
    pub fn column<'s>(&self, statistics: &'s TableStatistics) -> Option<&'s ColumnStatistics> {
        statistics.column(self.table, self.column)
    }

    /// The type of the column.
    pub fn ty(&self) -> Option<Type> {
        self.table.column(self.column).map(|column| column.ty.ty)
    }

    /// How many distinct values the column has in its table.
    pub fn distinct(&self) -> f64 {
        let rows = table_rows(self.table);
        if self.is_unique() {
            return rows;
        }
        let known = self.statistics().and_then(|statistics| Some(self.column(&statistics)?.distinct));
        let unknown = if self.ty() == Some(Type::BOOL) { 2.0 } else { UNKNOWN_DISTINCT };
        known.unwrap_or(unknown).clamp(1.0, rows)
    }

    /// Share of the table's rows where the column is NULL.
    pub fn null_fraction(&self) -> f64 {
        if self.table.column(self.column).is_some_and(|column| !column.nullable) {
            return 0.0;
        }
        let known = self.statistics().and_then(|statistics| Some(self.column(&statistics)?.null_fraction));
        known.unwrap_or(UNKNOWN_NULLS)
    }

    /// Whether no value occurs twice.
    fn is_unique(&self) -> bool {
        let alone = |index: &crate::catalog::descriptor::IndexDescriptor| {
            index.is_key() && matches!(index.columns[..], [(id, _)] if id == self.column)
        };
        self.table.indexes.iter().any(alone)
    }
}
