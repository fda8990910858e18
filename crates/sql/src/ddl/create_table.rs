//! CREATE TABLE and CREATE TABLE AS.

use super::DdlContext;
use super::generated;
use super::index::included_columns;
use super::statement::{ColumnDef, ConstraintKind, CreateTable, Like};
use super::tokens::{Name, quote_ident, quote_literal};
use super::type_names::mark;
use crate::bind::Binder;
use crate::catalog::descriptor::{
    ColumnDescriptor, ColumnId, EXPRESSION, IndexDescriptor, IndexState, PRIMARY_INDEX, TableDescriptor,
    TablePlacement,
};
use crate::catalog::{OnCommit, Relation, oids};
use crate::exec::execute;
use crate::parse::Statement;
use crate::plan::{Plan, PlanKind};
use crate::session::view::SessionView;
use crate::session::{prepared, privileges};
use sql_types::{ColumnType, Oid, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

/// Columns a table may have.
const MOST_COLUMNS: usize = 1600;

impl DdlContext<'_> {
    /// The name of a new table or view; `None` if it is there and may be.
    pub(super) fn new_relation(&self, name: &Name, if_not_exists: bool) -> SqlResult<Option<Oid>> {
        let schema = self.schema_for(name)?;
        if if_not_exists && self.catalog.relation(self.database(), schema, &name.name).is_some() {
            self.notice(format!("relation \"{}\" already exists, skipping", name.name));
            return Ok(None);
        }
        self.check_free(schema, &name.name)?;
        self.check_row_type_free(schema, &name.name)?;
        Ok(Some(schema))
    }

    /// A table without columns and indexes.
    pub(super) async fn blank_table(&self, name: &str, schema: Oid) -> SqlResult<TableDescriptor> {
        let oid = self.new_oid().await?;
        Ok(TableDescriptor {
            oid,
            database: self.database(),
            schema,
            name: name.to_string(),
            owner: self.user(),
            version: 0,
            storage: u64::from(oid),
            columns: Vec::new(),
            next_column: 1,
            indexes: Vec::new(),
            next_index: 2,
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            comment: None,
            placement: TablePlacement::default(),
            view: None,
            triggers: Vec::new(),
            security: Default::default(),
            on_commit: Default::default(),
            bound: Default::default(),
            statistics: Default::default(),
        })
    }

    /// Adds a column to a descriptor, with its sequence if it is serial or an identity.
    pub(super) async fn add_column(
        &mut self,
        table: &mut TableDescriptor,
        column: &ColumnDef,
    ) -> SqlResult<()> {
        if table.columns.iter().any(|known| known.name == column.name) {
            let message = if table.version == 0 {
                format!("column \"{}\" specified more than once", column.name)
            } else {
                format!("column \"{}\" of relation \"{}\" already exists", column.name, table.name)
            };
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        if table.columns.len() >= MOST_COLUMNS {
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT, "tables can have at most 1600 columns"));
        }
        if is_system_column(&column.name) {
            let message = format!("column name \"{}\" conflicts with a system column name", column.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let (ty, domain) = match column.serial {
            Some(2) => (Type::INT2.into(), None),
            Some(4) => (Type::INT4.into(), None),
            Some(_) => (Type::INT8.into(), None),
            None => self.declared_type(&column.ty)?,
        };
        let mut described = ColumnDescriptor {
            id: table.next_column,
            name: column.name.clone(),
            ty,
            nullable: column.nullable.unwrap_or(true),
            default: None,
            added_value: None,
            identity: column.identity.as_ref().map(|(kind, _)| *kind),
            sequence: None,
            hidden: false,
            comment: None,
            domain,
            generated: column.generated.clone(),
        };
        generated::check_one_source(&table.name, column)?;
        if let Some(text) = &column.default {
            if column.serial.is_some() || column.identity.is_some() {
                let message = format!(
                    "multiple default values specified for column \"{}\" of table \"{}\"",
                    column.name, table.name
                );
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            described.default = self.default_text(text, &described)?;
        }
        if column.serial.is_some() || column.identity.is_some() {
            let options = column.identity.as_ref().map(|(_, options)| options.clone()).unwrap_or_default();
            let sequence = self.owned_sequence(table, &described, &options).await?;
            described.sequence = Some(sequence.0);
            described.default = Some(sequence.1);
            described.nullable = false;
        }
        table.next_column += 1;
        table.columns.push(described);
        Ok(())
    }

    /// A default as it is stored, after checking that it can be computed. `NULL` is no default.
    pub(super) fn default_text(&self, text: &str, column: &ColumnDescriptor) -> SqlResult<Option<String>> {
        if text.trim().eq_ignore_ascii_case("null") {
            return Ok(None);
        }
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        let context = view.bind_context(&eval, &[]);
        Binder::new(&context, None, 0).default_expr(text, column)?;
        Ok(Some(self.stable_default(text, column)?))
    }

    /// Spells out what a default depends on: the schema of the sequence it draws from, the type of a
    /// bare string.
    fn stable_default(&self, text: &str, column: &ColumnDescriptor) -> SqlResult<String> {
        use sqlparser::ast::{Expr, Value};
        let named = self.stable_types(text)?;
        let text = named.as_str();
        let ast = crate::parse::parse_expr(text)?;
        if let Expr::Value(value) = &ast
            && let Value::SingleQuotedString(string) = &value.value
        {
            return Ok(format!("{}::{}", quote_literal(string), stored_name(column.ty.ty)));
        }
        let lower = text.to_ascii_lowercase();
        let Some(start) = lower.find("nextval(") else { return Ok(text.to_string()) };
        let rest = &text[start + "nextval(".len()..];
        let Some((name, after)) = rest.trim_start().strip_prefix('\'').and_then(|rest| rest.split_once('\''))
        else {
            return Ok(text.to_string());
        };
        let mut cursor = super::tokens::Cursor::new(name)?;
        let written = cursor.name()?;
        let Some(Relation::Sequence(oid)) = self.find(&written) else { return Ok(text.to_string()) };
        let Some(sequence) = self.catalog.sequences.get(&oid) else { return Ok(text.to_string()) };
        let qualified = self.sequence_default(sequence.schema, &sequence.name);
        let inner = qualified.trim_end_matches(')');
        let after = after.strip_prefix("::regclass").unwrap_or(after);
        Ok(format!("{}{inner}{after}", &text[..start]))
    }

    /// `nextval('schema.name'::regclass)`
    pub(super) fn sequence_default(&self, schema: Oid, name: &str) -> String {
        let schema = self.catalog.schema_name(self.database(), schema).unwrap_or("public");
        let qualified = format!("{}.{}", quote_ident(schema), quote_ident(name));
        format!("nextval({}::regclass)", quote_literal(&qualified))
    }

    async fn copy_like(&mut self, table: &mut TableDescriptor, like: &Like) -> SqlResult<()> {
        let source = self.table(&like.table)?;
        for column in source.columns.iter().filter(|column| !column.hidden) {
            let mut copied = column.clone();
            copied.id = table.next_column;
            copied.added_value = None;
            copied.sequence = None;
            copied.identity = None;
            if !like.defaults {
                copied.default = None;
            }
            if !like.generated {
                copied.generated = None;
            }
            if !like.comments {
                copied.comment = None;
            }
            if let (true, Some(kind)) = (like.identity, column.identity) {
                let sequence = self.owned_sequence(table, &copied, &Default::default()).await?;
                copied.identity = Some(kind);
                copied.sequence = Some(sequence.0);
                copied.default = Some(sequence.1);
            }
            if table.columns.iter().any(|known| known.name == copied.name) {
                let message = format!("column \"{}\" specified more than once", copied.name);
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
            }
            table.next_column += 1;
            table.columns.push(copied);
        }
        if like.constraints {
            for check in &source.checks {
                self.add_check(table, Some(&check.name), &check.expr).await?;
            }
        }
        Ok(())
    }

    /// Copies the indexes of the table a LIKE names, once all columns are there.
    async fn copy_indexes(&mut self, table: &mut TableDescriptor, like: &Like) -> SqlResult<()> {
        let source = self.table(&like.table)?;
        let hidden = |id: &ColumnId| source.column(*id).is_some_and(|column| column.hidden);
        for index in source.indexes.iter().filter(|index| !index.columns.iter().any(|(id, _)| hidden(id))) {
            let name_of = |id: &ColumnId| source.column(*id).map(|column| column.name.clone());
            if index.constraint {
                let names =
                    index.columns.iter().filter_map(|(id, descending)| Some((name_of(id)?, *descending)));
                let names: Vec<(String, bool)> = names.collect();
                let primary = index.id == PRIMARY_INDEX;
                let mut copied = self.constraint_index(table, None, &names, primary).await?;
                copied.timing = index.timing;
                copied.nulls_not_distinct = index.nulls_not_distinct;
                if primary {
                    table.indexes.insert(0, copied)
                } else {
                    table.indexes.push(copied)
                }
                continue;
            }
            let id_of = |id: &ColumnId| {
                let name = name_of(id)?;
                table.columns.iter().find(|column| column.name == name).map(|column| column.id)
            };
            let names: Vec<String> = index
                .parts()
                .filter_map(|(id, expression, _)| match expression {
                    Some(expression) => Some(expression.name.clone()),
                    None => name_of(&id),
                })
                .chain(index.included.iter().filter_map(name_of))
                .collect();
            let taken: Vec<String> = table.indexes.iter().map(|index| index.name.clone()).collect();
            let name = self.relation_name(table.schema, (&table.name, &names.join("_"), "idx"), &taken);
            let columns = index.columns.iter().filter_map(|(id, descending)| match *id {
                EXPRESSION => Some((EXPRESSION, *descending)),
                _ => Some((id_of(id)?, *descending)),
            });
            let columns = columns.collect();
            let included = index.included.iter().filter_map(id_of).collect();
            let oid = self.new_oid().await?;
            let state = IndexState::Public;
            table.indexes.push(IndexDescriptor {
                id: oid,
                oid,
                name,
                columns,
                included,
                state,
                ..index.clone()
            });
        }
        Ok(())
    }
}

/// A type as stored expressions name it.
fn stored_name(ty: Type) -> String {
    let element = ty.element().filter(|_| ty.is_enum_array());
    match element.unwrap_or(ty) {
        named if named.is_enum() => {
            format!("{}{}", mark(named.0), if element.is_some() { "[]" } else { "" })
        }
        _ => ty.to_string(),
    }
}

fn is_system_column(name: &str) -> bool {
    matches!(name, "tableoid" | "xmin" | "cmin" | "xmax" | "cmax" | "ctid")
}

/// The hidden column of a table without primary key, and the index over it.
pub(super) fn add_rowid(table: &mut TableDescriptor) {
    let id = table.next_column;
    table.next_column += 1;
    table.columns.push(ColumnDescriptor {
        id,
        name: "rowid".into(),
        ty: ColumnType::plain(Type::INT8),
        nullable: false,
        default: Some("unique_rowid()".into()),
        added_value: None,
        identity: None,
        sequence: None,
        hidden: true,
        comment: None,
        domain: None,
        generated: None,
    });
    let primary = IndexDescriptor {
        id: PRIMARY_INDEX,
        oid: 0,
        name: String::new(),
        unique: true,
        constraint: false,
        columns: vec![(id, false)],
        ..IndexDescriptor::default()
    };
    table.indexes.insert(0, primary);
}

/// CREATE TABLE
pub(super) async fn create(cx: &mut DdlContext<'_>, definition: &CreateTable) -> SqlResult<()> {
    let Some(name) = &definition.name else { return Err(SqlError::internal("a table without name")) };
    let Some(schema) = cx.new_relation(name, definition.if_not_exists)? else { return Ok(()) };
    let mut table = cx.blank_table(&name.name, schema).await?;
    table.on_commit = definition.on_commit;
    let mut likes = definition.likes.iter().peekable();
    for (position, column) in definition.columns.iter().enumerate() {
        while let Some((_, like)) = likes.next_if(|(at, _)| *at <= position) {
            cx.copy_like(&mut table, like).await?;
        }
        cx.add_column(&mut table, column).await?;
    }
    for (_, like) in likes {
        cx.copy_like(&mut table, like).await?;
    }
    let written: Vec<ColumnId> = table.columns.iter().map(|column| column.id).collect();
    cx.settle_generated(&mut table, &written)?;
    // Indexes first: foreign keys of the table to itself need them.
    let mut primary = None;
    for constraint in &definition.constraints {
        let constraint_name = constraint.name.as_deref();
        match &constraint.kind {
            ConstraintKind::Primary(columns) => {
                if primary.is_some() {
                    let message =
                        format!("multiple primary keys for table \"{}\" are not allowed", table.name);
                    return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
                }
                let mut index = cx.constraint_index(&table, constraint_name, columns, true).await?;
                index.included = included_columns(&table, &constraint.included)?;
                for (id, _) in &index.columns {
                    if let Some(column) = table.columns.iter_mut().find(|column| column.id == *id) {
                        column.nullable = false;
                    }
                }
                table.indexes.push(index.clone());
                primary = Some(index);
            }
            ConstraintKind::Unique(columns) => {
                let mut index = cx.constraint_index(&table, constraint_name, columns, false).await?;
                index.timing = constraint.timing;
                index.nulls_not_distinct = constraint.nulls_not_distinct;
                index.included = included_columns(&table, &constraint.included)?;
                let same = |known: &IndexDescriptor| known.columns == index.columns && known.constraint;
                if !table.indexes.iter().any(same) {
                    table.indexes.push(index);
                }
            }
            ConstraintKind::UsingIndex(..) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "USING INDEX is for ALTER TABLE"));
            }
            ConstraintKind::Check(_) | ConstraintKind::Foreign(..) => {}
        }
    }
    for (_, like) in definition.likes.iter().filter(|(_, like)| like.indexes) {
        cx.copy_indexes(&mut table, like).await?;
    }
    table.indexes.sort_by_key(|index| index.id != PRIMARY_INDEX);
    if table.indexes.first().is_none_or(|index| index.id != PRIMARY_INDEX) {
        add_rowid(&mut table);
    }
    for constraint in &definition.constraints {
        if let ConstraintKind::Check(_) | ConstraintKind::Foreign(..) = &constraint.kind {
            cx.add_plain(&mut table, constraint).await?;
        }
    }
    cx.put_table(table)?;
    Ok(())
}

/// CREATE TABLE AS and SELECT INTO: the tag.
pub(super) async fn create_as(
    cx: &mut DdlContext<'_>,
    name: &Name,
    if_not_exists: bool,
    columns: &[String],
    query: &Arc<Statement>,
    with_data: bool,
    on_commit: OnCommit,
) -> SqlResult<String> {
    let Some(schema) = cx.new_relation(name, if_not_exists)? else { return Ok("CREATE TABLE AS".into()) };
    let view = cx.working_view()?;
    let plan = prepared::plan(&view, query, &[], false)?;
    let Some(output) = plan.columns.clone() else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "CREATE TABLE AS needs a query"));
    };
    if columns.len() > output.len() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "too many column names were specified"));
    }
    let mut table = cx.blank_table(&name.name, schema).await?;
    table.on_commit = on_commit;
    for (position, column) in output.iter().enumerate() {
        let called = columns.get(position).map_or(&*column.name, String::as_str);
        if table.columns.iter().any(|known| known.name == called) {
            let message = format!("column \"{called}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let ty = if column.ty.ty == Type::UNKNOWN { ColumnType::plain(Type::TEXT) } else { column.ty };
        table.columns.push(ColumnDescriptor::plain(table.next_column, called, ty));
        table.next_column += 1;
    }
    add_rowid(&mut table);
    let table = cx.put_table(table)?;
    if !with_data {
        return Ok("CREATE TABLE AS".into());
    }
    plan.check_populated()?;
    if !view.is_superuser() {
        privileges::check(view.snapshot(), view.user, &plan.needed)?;
    }
    for (oid, mode) in &plan.locks {
        cx.lock(*oid, *mode).await?;
    }
    let count = fill(cx, &table, &plan.plan).await?;
    Ok(format!("SELECT {count}"))
}

/// Inserts the rows of a query into a new table.
pub(super) async fn fill(
    cx: &mut DdlContext<'_>,
    table: &Arc<TableDescriptor>,
    query: &Plan,
) -> SqlResult<u64> {
    let targets = table.columns.iter().filter(|column| !column.hidden).map(|column| column.id).collect();
    let view = cx.working_view()?;
    let insert = Plan::new(
        PlanKind::Insert {
            table: table.clone(),
            input: Box::new(query.clone()),
            targets,
            defaults: Vec::new(),
            checks: Arc::new(Vec::new()),
            on_conflict: None,
            returning: None,
            policies: None,
        },
        Vec::new(),
    );
    cx.execute(&view, insert).await
}

impl DdlContext<'_> {
    /// Runs a plan to its end; the number of rows.
    pub(super) async fn execute(&mut self, view: &SessionView, plan: Plan) -> SqlResult<u64> {
        let eval = view.eval(self.times);
        let host = crate::session::Host { view, times: self.times };
        let cx = crate::exec::ExecContext {
            txn: &self.open.txn,
            before: None,
            eval: &eval,
            params: self.params,
            host: &host,
            codecs: &view.shared.engine.codecs,
            memory: self.memory,
            cancel: &view.shared.cancel.0.flag,
            stats: None,
            implicit_commit: false,
            read_only: self.open.read_only,
            deferred: &self.open.deferred,
            engine: view.derived.engine,
            partial_aggregates: view.derived.partial_aggregates,
        };
        execute(&Arc::new(plan), &cx)?.finish(&cx).await
    }

    /// Whether a query finds a row.
    pub(super) async fn finds_row(&mut self, query: &str) -> SqlResult<bool> {
        let mut view = self.working_view()?;
        // Policies hide no rows from constraints.
        view.user = oids::OWNER;
        let statement = Arc::new(crate::parse::parse_one(query)?);
        let plan = prepared::plan(&view, &statement, &[], false)?;
        for (oid, mode) in &plan.locks {
            self.lock(*oid, *mode).await?;
        }
        Ok(self.execute(&view, (*plan.plan).clone()).await? > 0)
    }
}
