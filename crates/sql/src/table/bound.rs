//! The expressions of indexes, bound: key expressions and predicates.
//!
//! They are immutable functions of the row, so they are bound and computed without a session: what an index
//! holds depends on nothing but the row.

use crate::bind::{self, BindContext, CatalogLookup, RelationRef};
use crate::catalog::descriptor::{
    ColumnDescriptor, ColumnId, IndexDescriptor, IndexExpression, IndexId, TableDescriptor,
};
use crate::ddl::tokens::quote_ident;
use crate::exec::eval::EvalEnv;
use crate::explain::{Names, expr_text};
use crate::optimize::fold::fold_expr;
use crate::plan::{Expr, PlanColumn};
use sql_types::context::EvalContext;
use sql_types::types::TYPE_MARK;
use sql_types::{ColumnType, Oid, SqlResult, Type};
use std::sync::{Arc, LazyLock, OnceLock};

/// The expressions of one index, over the full row of its table.
#[derive(Clone, Debug, Default)]
pub struct BoundIndex {
    /// By key column: the expression, or `None` for a column of the table.
    pub columns: Vec<Option<Expr>>,
    /// The conditions of WHERE, all of which a row in the index satisfies.
    pub conditions: Vec<Expr>,
}

/// The bound expressions of a table's indexes, made when they are first asked for. A clone of the descriptor
/// they belong to, which may be changed, starts without.
#[derive(Default)]
pub struct BoundIndexes(OnceLock<Vec<(IndexId, SqlResult<Arc<BoundIndex>>)>>);

impl Clone for BoundIndexes {
    fn clone(&self) -> Self {
        BoundIndexes::default()
    }
}

impl PartialEq for BoundIndexes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for BoundIndexes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BoundIndexes")
    }
}

/// A catalog in which there is nothing but enum types as stored expressions name them, by OID. Their values are read
/// and shown by rank, which changes of labels leave alone.
struct NoCatalog;

impl CatalogLookup for NoCatalog {
    fn relation(&self, _: Option<&str>, _: &str, _: &[String]) -> SqlResult<Option<RelationRef>> {
        Ok(None)
    }

    fn type_by_name(&self, _: Option<&str>, name: &str, _: &[String]) -> Option<ColumnType> {
        let ty = Type(name.strip_prefix(TYPE_MARK)?.parse().ok()?);
        (ty.is_enum() || ty.is_enum_array()).then(|| ty.into())
    }

    fn schema_exists(&self, _: &str) -> bool {
        false
    }

    fn database(&self) -> &str {
        ""
    }

    fn schema_name(&self, _: Oid) -> Option<String> {
        None
    }
}

static EVAL: LazyLock<EvalContext<'static>> = LazyLock::new(EvalContext::plain);

static CONTEXT: LazyLock<BindContext<'static>> = LazyLock::new(|| BindContext {
    catalog: &NoCatalog,
    search_path: &[],
    eval: &EVAL,
    param_types: &[],
    variables: None,
    user: 0,
    row_security: true,
});

/// What the expressions of indexes see besides their row.
pub(crate) fn index_env() -> EvalEnv<'static> {
    EvalEnv { eval: &EVAL, params: &[], outer: None }
}

/// Binds an expression of an index without a session.
///
/// # Errors
/// What is wrong with it; 42P17 if it is not immutable.
pub fn bind_expression(text: &str, table: &Arc<TableDescriptor>) -> SqlResult<Expr> {
    bind::bind_index_expr(text, table, &CONTEXT)
}

/// As [`bind_expression`], for the predicate of an index.
///
/// # Errors
/// As there.
pub fn bind_predicate(text: &str, table: &Arc<TableDescriptor>) -> SqlResult<Expr> {
    bind::bind_index_predicate(text, table, &CONTEXT)
}

/// As [`bind_expression`], for the expression of a generated column.
///
/// # Errors
/// As there.
pub fn bind_generated(
    text: &str,
    table: &Arc<TableDescriptor>,
    column: &ColumnDescriptor,
) -> SqlResult<Expr> {
    bind::bind_generation(text, table, column, &CONTEXT)
}

/// The columns that a generated column is computed from.
pub fn generated_from(table: &Arc<TableDescriptor>, column: &ColumnDescriptor) -> Vec<ColumnId> {
    let bound = column.generated.as_ref().and_then(|text| bind_generated(text, table, column).ok());
    let mut found = Vec::new();
    if let Some(bound) = bound {
        bound.columns(&mut |position| found.extend(table.columns.get(position).map(|column| column.id)));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The expression of a generated column as SQL text.
pub fn generated_text(table: &Arc<TableDescriptor>, column: &ColumnDescriptor) -> Option<String> {
    let written = column.generated.as_ref()?;
    let bound = bind_generated(written, table, column).ok();
    Some(bound.map_or_else(|| written.clone(), |bound| row_expr_text(&bound, table)))
}

fn bind_index(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> SqlResult<BoundIndex> {
    let columns = index
        .parts()
        .map(|(_, expression, _)| match expression {
            None => Ok(None),
            Some(expression) => {
                let mut bound = bind_expression(&expression.text, table)?;
                fold_expr(&mut bound);
                Ok(Some(bound))
            }
        })
        .collect::<SqlResult<_>>()?;
    let conditions = match &index.predicate {
        None => Vec::new(),
        Some(text) => {
            let mut bound = bind_predicate(text, table)?;
            fold_expr(&mut bound);
            bound.into_conjuncts()
        }
    };
    Ok(BoundIndex { columns, conditions })
}

/// The bound expressions of an index of a table; `None` if it has none.
///
/// # Errors
/// What is wrong with a stored expression.
pub fn bound_index(table: &Arc<TableDescriptor>, index: IndexId) -> SqlResult<Option<Arc<BoundIndex>>> {
    let bound = table.bound.0.get_or_init(|| {
        let with = table.indexes.iter().filter(|index| !index.is_plain());
        with.map(|index| (index.id, bind_index(table, index).map(Arc::new))).collect()
    });
    bound.iter().find(|(id, _)| *id == index).map(|(_, bound)| bound.clone()).transpose()
}

/// The columns of a full row, named as SQL text names them.
fn row_columns(table: &TableDescriptor) -> Vec<PlanColumn> {
    table.columns.iter().map(|column| PlanColumn::new(quote_ident(&column.name), column.ty)).collect()
}

/// An expression over the full row of a table, as SQL text.
pub fn row_expr_text(expr: &Expr, table: &TableDescriptor) -> String {
    expr_text(expr, Names { columns: &row_columns(table), outer: &[] })
}

/// The key columns of an index as SQL text names them, with their types.
pub fn key_names(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> Vec<(String, Type)> {
    key_parts(table, index).into_iter().map(|(text, ty, _)| (text, ty)).collect()
}

/// The same as they stand in CREATE INDEX: what is neither a column nor a call of a function is in parentheses.
pub fn key_texts(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> Vec<String> {
    let parts = key_parts(table, index).into_iter();
    parts.map(|(text, _, bare)| if bare { text } else { format!("({text})") }).collect()
}

/// The key columns of an index, their types, and whether they need no parentheses.
fn key_parts(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> Vec<(String, Type, bool)> {
    let bound = if index.is_plain() { None } else { bound_index(table, index.id).ok().flatten() };
    let text = |(number, (id, expression, _)): (usize, (ColumnId, Option<&IndexExpression>, bool))| {
        let Some(expression) = expression else {
            let column = table.column(id);
            return column
                .map_or((String::new(), Type::TEXT, true), |c| (quote_ident(&c.name), c.ty.ty, true));
        };
        let bound = bound.as_ref().and_then(|bound| bound.columns.get(number)?.as_ref());
        let text = bound.map_or_else(|| expression.text.clone(), |bound| row_expr_text(bound, table));
        let bare = match bound {
            Some(Expr::Call { function, .. }) => !function.is_operator(),
            Some(Expr::Coalesce(..)) => true,
            Some(_) => false,
            None => true,
        };
        (text, expression.ty, bare)
    };
    index.parts().enumerate().map(text).collect()
}

/// The predicate of a partial index as SQL text.
pub fn predicate_text(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> Option<String> {
    let written = index.predicate.as_ref()?;
    let bound = bound_index(table, index.id).ok().flatten();
    let condition = bound.and_then(|bound| Expr::conjunction(bound.conditions.clone()));
    Some(condition.map_or_else(|| written.clone(), |condition| row_expr_text(&condition, table)))
}
