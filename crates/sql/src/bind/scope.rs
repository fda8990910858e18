//! Which names a place in a query can use.

use crate::catalog::descriptor::TableDescriptor;
use crate::plan::{Expr, PlanColumn};
use sql_types::{ColumnType, Oid, RecordField, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// A column that can be named.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    pub name: Arc<str>,
    /// Its value over the row of the scope.
    pub expr: Expr,
    pub ty: ColumnType,
    /// Which relation of the scope it belongs to; `None` for a column merged by USING.
    pub relation: Option<usize>,
    /// Whether it is found without the name of its relation, and belongs to `*`.
    pub visible: bool,
    /// Whether only its name finds it, not `*` (`rowid`).
    pub hidden: bool,
    pub table_oid: Oid,
    pub attnum: i16,
    pub fields: Option<Arc<[RecordField]>>,
}

/// A relation that can be named.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    /// Alias or name; `None` for an unnamed subquery.
    pub name: Option<Arc<str>>,
    /// Its schema, unless it has an alias.
    pub schema: Option<Arc<str>>,
    /// The table behind it.
    pub table: Option<Arc<TableDescriptor>>,
    /// OID for `tableoid`.
    pub oid: Oid,
    /// The one column of a function returning scalars, which the name of the function stands for.
    pub scalar: bool,
}

/// The columns of one row, and the scopes around.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope<'s> {
    pub parent: Option<&'s Scope<'s>>,
    pub columns: Vec<ScopeColumn>,
    pub relations: Vec<Relation>,
}

/// A column found, with how many rows out.
pub(crate) struct Found<'c> {
    pub column: &'c ScopeColumn,
    pub depth: usize,
}

impl Found<'_> {
    /// Its value, seen from the row where the search began.
    pub(crate) fn expr(&self) -> Expr {
        outward(self.column.expr.clone(), self.depth)
    }
}

/// An expression over a row `depth` scopes out, seen from here.
pub(crate) fn outward(mut expr: Expr, depth: usize) -> Expr {
    if depth > 0 {
        expr.replace(&mut |part| match part {
            Expr::Column(index, ty) => Some(Expr::Outer { depth: depth - 1, index: *index, ty: *ty }),
            _ => None,
        });
    }
    expr
}

impl<'s> Scope<'s> {
    /// A scope over the columns of a plan, without relations.
    pub(crate) fn of_columns(columns: &[PlanColumn], parent: Option<&'s Scope<'s>>) -> Self {
        let mut scope = Scope { parent, columns: Vec::with_capacity(columns.len()), relations: Vec::new() };
        scope.add_plan_columns(columns, None, 0);
        scope
    }

    /// Adds the columns of a plan as those of a relation, from position `base` of the row.
    pub(crate) fn add_plan_columns(&mut self, columns: &[PlanColumn], relation: Option<usize>, base: usize) {
        for (index, column) in columns.iter().enumerate() {
            self.columns.push(ScopeColumn {
                name: column.name.clone(),
                expr: Expr::Column(base + index, column.ty.ty),
                ty: column.ty,
                relation,
                visible: true,
                hidden: false,
                table_oid: column.table_oid,
                attnum: column.attnum,
                fields: column.fields.clone(),
            });
        }
    }

    /// The scope that is `depth` steps out.
    pub(crate) fn ancestor(&self, depth: usize) -> Option<&Scope<'s>> {
        let mut scope = self;
        for _ in 0..depth {
            scope = scope.parent?;
        }
        Some(scope)
    }

    /// Finds a column by its bare name, here or further out. 42702 if there are several.
    pub(crate) fn find(&self, name: &str) -> SqlResult<Option<Found<'_>>> {
        let mut scope = Some(self);
        let mut depth = 0;
        while let Some(here) = scope {
            let mut matches = here.columns.iter().filter(|column| column.visible && &*column.name == name);
            if let Some(column) = matches.next() {
                if matches.next().is_some() {
                    return Err(SqlError::new(
                        SqlState::AMBIGUOUS_COLUMN,
                        format!("column reference \"{name}\" is ambiguous"),
                    ));
                }
                return Ok(Some(Found { column, depth }));
            }
            scope = here.parent;
            depth += 1;
        }
        Ok(None)
    }

    /// Finds a relation by name, here or further out: its position, and how far out.
    pub(crate) fn find_relation(
        &self,
        schema: Option<&str>,
        name: &str,
    ) -> SqlResult<Option<(usize, usize)>> {
        let mut scope = Some(self);
        let mut depth = 0;
        while let Some(here) = scope {
            let mut matches = here.relations.iter().enumerate().filter(|(_, relation)| {
                relation.name.as_deref() == Some(name)
                    && (schema.is_none() || relation.schema.as_deref() == schema)
            });
            if let Some((position, _)) = matches.next() {
                if matches.next().is_some() {
                    return Err(SqlError::new(
                        SqlState(DUPLICATE_ALIAS_REFERENCE),
                        format!("table reference \"{name}\" is ambiguous"),
                    ));
                }
                return Ok(Some((position, depth)));
            }
            scope = here.parent;
            depth += 1;
        }
        Ok(None)
    }

    /// A column of a relation of this scope.
    pub(crate) fn relation_column(&self, relation: usize, name: &str) -> Option<&ScopeColumn> {
        self.columns.iter().find(|column| column.relation == Some(relation) && &*column.name == name)
    }

    /// The columns of a relation of this scope that `alias.*` stands for.
    pub(crate) fn relation_columns(&self, relation: usize) -> impl Iterator<Item = &ScopeColumn> {
        self.columns.iter().filter(move |column| column.relation == Some(relation) && !column.hidden)
    }

    /// A column whose name is close to the one not found, for a hint.
    pub(crate) fn similar(&self, relation: Option<usize>, name: &str) -> Option<String> {
        self.columns
            .iter()
            .filter(|column| !column.hidden && (relation.is_none() || column.relation == relation))
            .map(|column| (distance(&column.name, name), column))
            .filter(|(distance, column)| *distance <= 3.min(column.name.chars().count().max(name.len()) / 2))
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, column)| {
                let relation = column
                    .relation
                    .and_then(|relation| self.relations.get(relation))
                    .and_then(|relation| relation.name.clone());
                match relation {
                    Some(relation) => format!("{relation}.{}", column.name),
                    None => column.name.to_string(),
                }
            })
    }
}

const DUPLICATE_ALIAS_REFERENCE: &str = "42P09";

/// Levenshtein distance of two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
