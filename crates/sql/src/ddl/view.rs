//! CREATE VIEW.

use super::DdlContext;
use super::tokens::{Name, quote_ident};
use crate::bind::{self, BindContext, CatalogLookup, RelationRef};
use crate::catalog::descriptor::ViewDescriptor;
use crate::catalog::routine::RoutineDescriptor;
use crate::catalog::user_type::TypeDescriptor;
use crate::catalog::{DatabaseCatalog, Relation, oids};
use crate::parse::Source;
use crate::session::view::SessionView;
use parking_lot::Mutex;
use sql_types::{ColumnType, Oid, SqlError, SqlResult, SqlState, Type};
use sqlparser::tokenizer::Span;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A catalog that notes which relations are asked for, and what the text of a query stands for.
pub(super) struct Noting<'a> {
    view: &'a SessionView,
    catalog: &'a DatabaseCatalog,
    found: Mutex<Vec<Oid>>,
    /// Parts of the text and what to write in their place.
    spelled: Mutex<Vec<(Span, String)>>,
    renamed: Option<Renamed>,
}

/// What got another name, and where the text that is bound depends on it.
pub(super) struct Renamed {
    relation: Oid,
    /// The column; `None` if it is the relation itself.
    column: Option<String>,
    /// What its name was.
    from: String,
    /// What is to be written for it.
    to: String,
    /// Items of select lists that are nothing but a column.
    selected: Mutex<Vec<Span>>,
    /// Whether columns are matched in ways that a renamed one would change.
    matched: AtomicBool,
    /// Whether whole rows of the relation are read.
    with_row: AtomicBool,
}

impl Renamed {
    /// A column, with its new name as SQL.
    pub(super) fn column(relation: Oid, from: &str, to: String) -> Renamed {
        Renamed { column: Some(from.to_string()), ..Renamed::relation(relation, from, to) }
    }

    /// A relation, with its new schema and name as SQL.
    pub(super) fn relation(relation: Oid, from: &str, to: String) -> Renamed {
        let (matched, with_row) = (AtomicBool::new(false), AtomicBool::new(false));
        let selected = Mutex::default();
        Renamed { relation, column: None, from: from.to_string(), to, selected, matched, with_row }
    }
}

impl<'a> Noting<'a> {
    pub(super) fn new(view: &'a SessionView) -> Self {
        let (found, spelled) = (Mutex::default(), Mutex::default());
        Noting { view, catalog: &view.catalog, found, spelled, renamed: None }
    }

    /// One that writes a new name in the place of an old one.
    pub(super) fn renaming(view: &'a SessionView, renamed: Renamed) -> Self {
        Noting { renamed: Some(renamed), ..Noting::new(view) }
    }

    /// Whether columns are matched in ways that a renamed one would change.
    pub(super) fn is_matched(&self) -> bool {
        self.renamed.as_ref().is_some_and(|renamed| renamed.matched.load(Ordering::Relaxed))
    }

    /// Whether the column is read, by its name or with its row.
    pub(super) fn is_used(&self) -> bool {
        let with_row = self.renamed.as_ref().is_some_and(|renamed| renamed.with_row.load(Ordering::Relaxed));
        with_row || self.is_matched() || !self.spelled.lock().is_empty()
    }

    /// What is renamed of a relation.
    fn renamed_of(&self, relation: Oid) -> Option<&Renamed> {
        self.renamed.as_ref().filter(|renamed| renamed.relation == relation)
    }

    /// OIDs of the relations and types that were asked for.
    pub(super) fn into_found(self) -> Vec<Oid> {
        self.found.into_inner()
    }

    fn spell(&self, written: Span, text: String) {
        let mut spelled = self.spelled.lock();
        // A part that is bound twice stands for the same both times.
        if !spelled.iter().any(|(known, _)| known.start == written.start) {
            spelled.push((written, text));
        }
    }

    /// The text with its parts spelled out; as it is where a part cannot be found in it.
    pub(super) fn spelled_out(&self, source: &Source) -> String {
        let mut spelled = std::mem::take(&mut *self.spelled.lock());
        spelled.sort_by_key(|(written, _)| written.start);
        let (mut text, mut rest) = (String::new(), source.text());
        for (written, full) in spelled {
            let Some((before, after)) = source.around(written) else { return source.text().to_owned() };
            // What lies within a part that was replaced went with it.
            let done = source.text().len() - rest.len();
            let Some(between) = before.get(done..) else { continue };
            text.push_str(between);
            text.push_str(&full);
            rest = after;
        }
        text.push_str(rest);
        text
    }
}

impl CatalogLookup for Noting<'_> {
    fn relation(&self, schema: Option<&str>, name: &str, path: &[String]) -> SqlResult<Option<RelationRef>> {
        let found = self.catalog.relation(schema, name, path)?;
        let oid = match &found {
            Some(RelationRef::Table(table)) => Some(table.oid),
            Some(RelationRef::View(view)) => Some(view.oid),
            Some(RelationRef::Sequence(oid, _)) => Some(*oid),
            _ => None,
        };
        if let Some(oid) = oid {
            let mut found = self.found.lock();
            if !found.contains(&oid) {
                found.push(oid);
            }
        }
        Ok(found)
    }

    fn type_by_name(&self, schema: Option<&str>, name: &str, path: &[String]) -> Option<ColumnType> {
        let found = self.catalog.type_by_name(schema, name, path)?;
        let oid = found.ty.element().unwrap_or(found.ty).0;
        let mut noted = self.found.lock();
        if !noted.contains(&oid) {
            noted.push(oid);
        }
        Some(found)
    }

    fn routines(&self, schema: Option<&str>, name: &str, path: &[String]) -> Vec<Arc<RoutineDescriptor>> {
        self.catalog.routines(schema, name, path)
    }

    fn routine_called(&self, oid: Oid) {
        let mut noted = self.found.lock();
        if !noted.contains(&oid) {
            noted.push(oid);
        }
    }

    fn domain(&self, ty: Type) -> Option<ColumnType> {
        self.catalog.domain(ty)
    }

    fn domains(&self, ty: Type) -> Vec<Arc<TypeDescriptor>> {
        self.catalog.domains(ty)
    }

    fn schema_exists(&self, schema: &str) -> bool {
        self.catalog.schema_exists(schema)
    }

    fn database(&self) -> &str {
        self.catalog.database()
    }

    fn schema_name(&self, oid: Oid) -> Option<String> {
        self.catalog.schema_name(oid)
    }

    fn relation_read(&self, written: Span, oid: Oid, aliased: bool) {
        if let Some(renamed) = self.renamed_of(oid).filter(|renamed| renamed.column.is_none()) {
            let alias = if aliased { String::new() } else { format!(" AS {}", quote_ident(&renamed.from)) };
            self.spell(written, format!("{}{alias}", renamed.to));
        }
    }

    fn column_named(&self, written: Span, relation: Oid, column: &str) {
        if let Some(renamed) = self.renamed_of(relation)
            && renamed.column.as_deref() == Some(column)
        {
            let selected = renamed.selected.lock().iter().any(|item| item.start == written.start);
            let alias = if selected { format!(" AS {}", quote_ident(column)) } else { String::new() };
            self.spell(written, format!("{}{alias}", renamed.to));
        }
    }

    fn column_selected(&self, written: Span) {
        if let Some(renamed) = &self.renamed {
            renamed.selected.lock().push(written);
        }
    }

    fn row_read(&self, relation: Oid) {
        if let Some(renamed) = self.renamed_of(relation) {
            renamed.with_row.store(true, Ordering::Relaxed);
        }
    }

    fn columns_matched(&self, relation: Oid, column: Option<&str>) {
        if let Some(renamed) = self.renamed_of(relation)
            && let Some(from) = &renamed.column
            && column.is_none_or(|column| column == from)
        {
            renamed.matched.store(true, Ordering::Relaxed);
        }
    }

    fn relation_named(&self, written: Span, oid: Oid) {
        if self.renamed.is_some() {
            return;
        }
        if let Some((schema, name, _)) = self.view.relation_parts(oid) {
            self.spell(written, self.view.qualified_text(schema, &name));
        }
    }

    fn star_expanded(&self, written: Span, columns: &dyn Fn() -> String) {
        if let Some(renamed) = &self.renamed {
            // Only in what an older version wrote.
            renamed.matched.store(renamed.column.is_some(), Ordering::Relaxed);
            return;
        }
        self.spell(written, columns());
    }
}

/// A query as a view keeps it.
pub(super) struct StoredQuery {
    pub columns: Vec<(String, ColumnType)>,
    pub text: String,
    pub search_path: Vec<String>,
    pub depends_on: Vec<Oid>,
}

/// Makes of a query one that means the same for everybody, whatever new names there will be. `names` are those given
/// to its first columns by the statement `tag`.
pub(super) fn stored_query(
    cx: &DdlContext<'_>,
    query: &str,
    names: &[String],
    tag: &str,
) -> SqlResult<StoredQuery> {
    let view = cx.working_view()?;
    let eval = view.eval(cx.times);
    let noting = Noting::new(&view);
    let context = BindContext { catalog: &noting, ..view.bind_context(&eval, &[]) };
    let statement = crate::parse::parse_one(query)?;
    if statement.parameters > 0 {
        return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
    }
    let bound = bind::bind_statement(&statement, &context)?;
    let Some(output) = bound.columns.filter(|_| bound.kind == crate::parse::StatementKind::Query) else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "a view needs a query"));
    };
    if names.len() > output.len() {
        let message = match tag {
            "CREATE VIEW" => "CREATE VIEW specifies more column names than columns",
            _ => "too many column names were specified",
        };
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    let mut columns: Vec<(String, ColumnType)> = Vec::with_capacity(output.len());
    for (position, column) in output.iter().enumerate() {
        let called = names.get(position).cloned().unwrap_or_else(|| column.name.to_string());
        if columns.iter().any(|(known, _)| *known == called) {
            let message = format!("column \"{called}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let ty = if column.ty.ty == Type::UNKNOWN { ColumnType::plain(Type::TEXT) } else { column.ty };
        columns.push((called, ty));
    }
    let text = cx.stable_types(&noting.spelled_out(&statement.source))?;
    let search_path = view.path.to_vec();
    Ok(StoredQuery { columns, text, search_path, depends_on: noting.into_found() })
}

/// CREATE [OR REPLACE] VIEW
pub(super) async fn create(
    cx: &mut DdlContext<'_>,
    name: &Name,
    or_replace: bool,
    columns: &[String],
    query: &str,
) -> SqlResult<()> {
    let mut schema = cx.schema_for(name)?;
    let replaced = match cx.catalog.relation(cx.database(), schema, &name.name) {
        Some(Relation::View(oid)) if or_replace => cx.catalog.views.get(&oid).cloned(),
        Some(_) if or_replace => {
            let message = format!("\"{}\" is not a view", name.name);
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        _ => {
            cx.check_free(schema, &name.name)?;
            None
        }
    };
    let StoredQuery { columns: described, text, search_path, depends_on } =
        stored_query(cx, query, columns, "CREATE VIEW")?;
    if schema != oids::PG_TEMP && depends_on.iter().any(|oid| cx.is_temporary(*oid)) {
        if replaced.is_some() || name.schema.is_some() {
            let message = "cannot create a view that is not temporary over temporary relations";
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        cx.notice(format!("view \"{}\" will be a temporary view", name.name));
        schema = oids::PG_TEMP;
        cx.check_free(schema, &name.name)?;
    }
    let mut descriptor = ViewDescriptor {
        oid: 0,
        database: cx.database(),
        schema,
        name: name.name.clone(),
        owner: cx.user(),
        columns: described,
        query: text,
        renamed: !columns.is_empty(),
        search_path,
        depends_on,
        comment: None,
    };
    match replaced {
        Some(old) => {
            cx.check_owner("view", &old.name, old.owner)?;
            check_replacement(&old, &descriptor)?;
            descriptor.oid = old.oid;
            descriptor.owner = old.owner;
            descriptor.comment = old.comment.clone();
        }
        None => descriptor.oid = cx.new_oid().await?,
    }
    cx.put_view(descriptor)
}

/// A view may get further columns, nothing else may change.
fn check_replacement(old: &ViewDescriptor, new: &ViewDescriptor) -> SqlResult<()> {
    let problem = |message: String| Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if new.columns.len() < old.columns.len() {
        return problem("cannot drop columns from view".into());
    }
    if new.depends_on.contains(&old.oid) {
        return problem(format!("view \"{}\" cannot read itself", old.name));
    }
    for ((old_name, old_type), (new_name, new_type)) in old.columns.iter().zip(&new.columns) {
        if old_name != new_name {
            return problem(format!("cannot change name of view column \"{old_name}\" to \"{new_name}\""));
        }
        if old_type.ty != new_type.ty {
            return problem(format!(
                "cannot change data type of view column \"{old_name}\" from {} to {}",
                old_type.ty, new_type.ty
            ));
        }
    }
    Ok(())
}
