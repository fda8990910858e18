//! The expressions of indexes, bound: key expressions and predicates.
//!
//! They are immutable functions of the row, so they are bound and computed without a session: what an index
//! holds depends on nothing but the row.

use crate::bind::{self, BindContext, CatalogLookup, RelationRef};
use crate::catalog::descriptor::{IndexDescriptor, IndexId, TableDescriptor};
use crate::exec::eval::EvalEnv;
use crate::optimize::fold::fold_expr;
use crate::plan::Expr;
use sql_types::context::EvalContext;
use sql_types::{Oid, SqlResult};
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

/// A catalog in which there is nothing.
struct NoCatalog;

impl CatalogLookup for NoCatalog {
    fn relation(&self, _: Option<&str>, _: &str, _: &[String]) -> SqlResult<Option<RelationRef>> {
        Ok(None)
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

/// What the expressions of indexes see besides their row.
pub(crate) fn index_env() -> EvalEnv<'static> {
    EvalEnv { eval: &EVAL, params: &[], outer: None }
}

fn bind_index(table: &Arc<TableDescriptor>, index: &IndexDescriptor) -> SqlResult<BoundIndex> {
    let context = BindContext { catalog: &NoCatalog, search_path: &[], eval: &EVAL, param_types: &[] };
    let columns = index
        .parts()
        .map(|(_, expression, _)| match expression {
            None => Ok(None),
            Some(expression) => {
                let mut bound = bind::bind_index_expr(&expression.text, table, &context)?;
                fold_expr(&mut bound);
                Ok(Some(bound))
            }
        })
        .collect::<SqlResult<_>>()?;
    let conditions = match &index.predicate {
        None => Vec::new(),
        Some(text) => {
            let mut bound = bind::bind_index_predicate(text, table, &context)?;
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
