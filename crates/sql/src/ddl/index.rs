//! CREATE INDEX.

use super::DdlContext;
use super::constraint::{check_ordered, column_position, key_position};
use super::statement::{CreateIndex, IndexKey, IndexPart};
use super::type_names::mark;
use crate::bind;
use crate::catalog::Relation;
use crate::catalog::descriptor::{ColumnId, EXPRESSION, IndexDescriptor, IndexExpression, TableDescriptor};
use crate::ddl::parse_table::DIRECTION;
use crate::inverted::OperatorClass;
use crate::optimize::fold::fold_expr;
use crate::optimize::implies::normal;
use crate::plan::Expr;
use crate::session::locks::mode;
use crate::table::{bind_expression, bind_predicate, bound_index, row_expr_text};
use sql_types::text::name_types;
use sql_types::{SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

/// Columns an index may have.
const MOST_COLUMNS: usize = 32;

/// The key columns of an index.
#[derive(Default)]
pub(super) struct IndexKeys {
    pub columns: Vec<(ColumnId, bool)>,
    pub expressions: Vec<IndexExpression>,
    /// By column: what it is called.
    pub names: Vec<String>,
}

impl IndexKeys {
    /// A name that no column has yet.
    fn free_name(&self, wanted: &str) -> String {
        let numbered = (1..).map(|number| format!("{wanted}{number}"));
        let mut names = std::iter::once(wanted.to_string()).chain(numbered);
        names.find(|name| !self.names.contains(name)).unwrap_or_default()
    }
}

/// The columns of INCLUDE.
pub(super) fn included_columns(table: &TableDescriptor, names: &[String]) -> SqlResult<Vec<ColumnId>> {
    names.iter().map(|name| key_position(table, name).map(|at| table.columns[at].id)).collect()
}

/// Whether two bound expressions are the same once their constants are computed.
fn same(a: &Expr, b: &Expr) -> bool {
    let folded = |expr: &Expr| {
        let mut expr = expr.clone();
        fold_expr(&mut expr);
        normal(&expr)
    };
    folded(a).same(&folded(b))
}

/// The text to store for an expression: one that means the same without the session in which it was written.
pub(super) fn stored(
    written: &str,
    bound: &Expr,
    table: &TableDescriptor,
    what: &str,
    bind: impl Fn(&str) -> SqlResult<Expr>,
) -> SqlResult<String> {
    if bind(written).is_ok_and(|again| same(&again, bound)) {
        return Ok(written.to_string());
    }
    let spelt = name_types(&row_expr_text(bound, table), |ty| Some(mark(ty.0)));
    if bind(&spelt).is_ok_and(|again| same(&again, bound)) {
        return Ok(spelt);
    }
    Err(SqlError::unsupported(format!("{what} an expression that depends on the session's settings")))
}

impl DdlContext<'_> {
    /// The key columns of an index, checked.
    pub(super) fn index_keys(
        &self,
        table: &Arc<TableDescriptor>,
        parts: &[IndexPart],
        inverted: bool,
    ) -> SqlResult<IndexKeys> {
        let check = |ty: Type| if inverted { Ok(()) } else { check_ordered(ty) };
        if parts.len() > MOST_COLUMNS {
            return Err(SqlError::new(
                SqlState::PROGRAM_LIMIT,
                "cannot use more than 32 columns in an index",
            ));
        }
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        let context = view.bind_context(&eval, &[]);
        let mut keys = IndexKeys::default();
        for part in parts {
            let text = match &part.what {
                IndexKey::Column(name) => {
                    let column = &table.columns[column_position(table, name).map_err(|_| {
                        let message = format!("column \"{name}\" does not exist");
                        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
                    })?];
                    check(column.ty.ty)?;
                    keys.names.push(keys.free_name(name));
                    keys.columns.push((column.id, part.descending));
                    continue;
                }
                IndexKey::Expression(text) => text,
            };
            let bound = bind::bind_index_expr(text, table, &context)?;
            check(bound.ty())?;
            if let Expr::Column(position, _) = bound
                && let Some(column) = table.columns.get(position)
            {
                keys.names.push(keys.free_name(&column.name));
                keys.columns.push((column.id, part.descending));
                continue;
            }
            let name = match bind::output_name(&crate::parse::parse_expr(text)?) {
                name if name == "?column?" => "expr".to_string(),
                name => name,
            };
            let name = keys.free_name(&name);
            keys.names.push(name.clone());
            keys.columns.push((EXPRESSION, part.descending));
            let text = stored(text, &bound, table, "an index over", |text| bind_expression(text, table))?;
            keys.expressions.push(IndexExpression { text, name, ty: bound.ty() });
        }
        Ok(keys)
    }

    /// The predicate of an index as it is stored.
    fn index_predicate(&self, table: &Arc<TableDescriptor>, text: &str) -> SqlResult<String> {
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        let bound = bind::bind_index_predicate(text, table, &view.bind_context(&eval, &[]))?;
        stored(text, &bound, table, "an index over", |text| bind_predicate(text, table))
    }
}

/// Finds out the types of a table's index expressions anew, after a change of its columns.
///
/// # Errors
/// What is wrong with an expression now.
pub(super) fn retype_expressions(table: &mut TableDescriptor) -> SqlResult<()> {
    let with = Arc::new(table.clone());
    for index in table.indexes.iter_mut().filter(|index| !index.is_plain()) {
        let Some(bound) = bound_index(&with, index.id)? else { continue };
        let types: Vec<Type> = bound.columns.iter().flatten().map(Expr::ty).collect();
        for (expression, ty) in index.expressions.iter_mut().zip(types) {
            if index.inverted.is_none() {
                check_ordered(ty)?;
            }
            expression.ty = ty;
        }
        if let Some(class) = index.inverted {
            // PostgreSQL names a class only where it is not the default.
            let name = (!class.is_default()).then(|| class.name());
            index.inverted = Some(OperatorClass::of(inverted_type(&with, index)?, name)?);
        }
    }
    Ok(())
}

/// Refuses what PostgreSQL refuses of an inverted index, and several columns in one.
fn check_inverted(index: &CreateIndex) -> SqlResult<()> {
    let refused = |what: &str| {
        let message = format!("access method \"gin\" does not support {what}");
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
    };
    if index.unique {
        return refused("unique indexes");
    }
    if !index.included.is_empty() {
        return refused("included columns");
    }
    match index.columns.iter().find_map(|part| part.order) {
        Some(DIRECTION) => return refused("ASC/DESC options"),
        Some(_) => return refused("NULLS FIRST/LAST options"),
        None => {}
    }
    if index.columns.len() > 1 {
        return Err(SqlError::unsupported("a gin index over several columns"));
    }
    Ok(())
}

/// The type of the values that an inverted index has tokens of.
fn inverted_type(table: &TableDescriptor, index: &IndexDescriptor) -> SqlResult<Type> {
    let of_column = index.columns.first().and_then(|(id, _)| table.column(*id)).map(|column| column.ty.ty);
    let ty = index.expressions.first().map(|expression| expression.ty).or(of_column);
    ty.ok_or_else(|| SqlError::internal("an index without columns"))
}

/// CREATE INDEX
pub(super) async fn create(cx: &mut DdlContext<'_>, index: &CreateIndex) -> SqlResult<()> {
    let table = cx.own_indexed(&index.table)?;
    let in_steps = cx.in_steps(&table);
    if in_steps {
        cx.lock_for_steps(table.oid).await?;
    } else {
        cx.lock(table.oid, mode::SHARE).await?;
    }
    if index.inverted {
        check_inverted(index)?;
    }
    let keys = cx.index_keys(&table, &index.columns, index.inverted)?;
    let included = included_columns(&table, &index.included)?;
    let predicate = match &index.predicate {
        Some(text) => Some(cx.index_predicate(&table, text)?),
        None => None,
    };
    let name = match &index.name {
        Some(name) => {
            if name
                .schema
                .as_deref()
                .is_some_and(|schema| cx.catalog.schema_name(table.database, table.schema) != Some(schema))
            {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "an index lies in the schema of its table",
                ));
            }
            if index.if_not_exists && cx.catalog.relation(table.database, table.schema, &name.name).is_some()
            {
                cx.notice(format!("relation \"{}\" already exists, skipping", name.name));
                return Ok(());
            }
            cx.check_free(table.schema, &name.name)?;
            name.name.clone()
        }
        None => {
            let names: Vec<&str> = keys.names.iter().chain(&index.included).map(String::as_str).collect();
            cx.relation_name(table.schema, (&table.name, &names.join("_"), "idx"), &[])
        }
    };
    let mut created = IndexDescriptor {
        name,
        unique: index.unique,
        columns: keys.columns,
        expressions: keys.expressions,
        predicate,
        included,
        nulls_not_distinct: index.nulls_not_distinct,
        ..IndexDescriptor::default()
    };
    if index.inverted {
        let class = index.columns.first().and_then(|part| part.class.as_deref());
        created.inverted = Some(OperatorClass::of(inverted_type(&table, &created)?, class)?);
    }
    let oid = cx.new_oid().await?;
    (created.id, created.oid) = (oid, oid);
    let mut changed = (*table).clone();
    changed.indexes.push(created);
    changed.next_index = changed.next_index.max(oid + 1);
    if in_steps {
        return cx.begin_build(changed, oid);
    }
    cx.backfill(&changed, oid).await?;
    cx.put_table(changed)?;
    Ok(())
}

/// Drops an index that no constraint made.
pub(super) async fn drop(cx: &mut DdlContext<'_>, relation: Relation) -> SqlResult<()> {
    let Relation::Index(oid, table, id) = relation else { return Err(SqlError::internal("not an index")) };
    let table = cx.table_by_oid(table)?;
    let in_steps = cx.in_steps(&table);
    if in_steps {
        cx.lock_for_steps(table.oid).await?;
    } else {
        cx.lock(table.oid, mode::ACCESS_EXCLUSIVE).await?;
    }
    let mut changed = (*table).clone();
    if let Some(index) = table.indexes.iter().find(|index| index.oid == oid)
        && index.constraint
    {
        let message = format!(
            "cannot drop index {} because constraint {} on table {} requires it",
            index.name, index.name, table.name
        );
        let hint = format!("You can drop constraint {} on table {} instead.", index.name, table.name);
        return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).with_hint(hint));
    }
    if in_steps {
        return cx.begin_drop(changed, id);
    }
    changed.indexes.retain(|index| index.oid != oid);
    cx.garbage(table.storage, u64::from(id))?;
    cx.put_table(changed)?;
    Ok(())
}
