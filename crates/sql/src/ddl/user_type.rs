//! CREATE, ALTER and DROP of types: what enum types and domains have in common, and enum types.

use super::DdlContext;
use super::drop_object::{dependents, release_readers};
use super::statement::{ObjectKind, TypeAction};
use super::tokens::Name;
use crate::catalog::Relation;
use crate::catalog::user_type::{EnumType, TypeDescriptor, TypeKind, check_label};
use sql_types::{Oid, SqlError, SqlResult, SqlState, Type};
use std::sync::Arc;

fn undefined(name: &Name) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", name.written()))
}

fn exists_already(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_OBJECT, format!("type \"{name}\" already exists"))
}

impl DdlContext<'_> {
    /// A user's type by name.
    pub(super) fn find_type(&self, name: &Name) -> Option<Arc<TypeDescriptor>> {
        let within = |schema: &str| {
            let schema = self.catalog.schema(self.database(), schema)?.oid;
            self.catalog.type_named(self.database(), schema, &name.name)
        };
        match &name.schema {
            Some(schema) => within(schema).cloned(),
            None => self.view.path.iter().find_map(|schema| within(schema)).cloned(),
        }
    }

    /// A user's type that the user owns.
    pub(super) fn own_type(&self, name: &Name) -> SqlResult<Arc<TypeDescriptor>> {
        let Some(found) = self.find_type(name) else {
            if let Some(schema) = &name.schema
                && self.catalog.schema(self.database(), schema).is_none()
            {
                let message = format!("schema \"{schema}\" does not exist");
                return Err(SqlError::new(SqlState::INVALID_SCHEMA, message));
            }
            if name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog")
                && let Some(built_in) = Type::by_name(&name.name)
            {
                return Err(crate::session::privileges::must_own("type", &built_in.to_string()));
            }
            return Err(undefined(name));
        };
        self.check_owner("type", &found.name, found.owner)?;
        Ok(found)
    }

    /// Fails if a type name is taken in a schema, also by the row type of a table or view.
    pub(super) fn check_type_free(&self, schema: Oid, name: &str) -> SqlResult<()> {
        let relation = self.catalog.relation(self.database(), schema, name);
        let has_row_type =
            matches!(relation, Some(Relation::Table(_) | Relation::View(_) | Relation::MaterializedView(_)));
        if has_row_type || self.catalog.type_named(self.database(), schema, name).is_some() {
            return Err(exists_already(name));
        }
        Ok(())
    }

    /// Fails if a new table's row type would have the name of a type.
    pub(super) fn check_row_type_free(&self, schema: Oid, name: &str) -> SqlResult<()> {
        if self.catalog.type_named(self.database(), schema, name).is_none() {
            return Ok(());
        }
        Err(exists_already(name).with_hint(
            "A relation has an associated type of the same name, so you must use a name that doesn't \
             conflict with any existing type.",
        ))
    }

    /// A type number of its own, below 2^28.
    pub(super) async fn new_type_oid(&self, make: fn(Oid) -> Option<Type>) -> SqlResult<Oid> {
        let number = self.new_oid().await?;
        make(number).map(|ty| ty.0).ok_or_else(|| {
            SqlError::new(SqlState::PROGRAM_LIMIT, "this tenant has used all numbers of types")
        })
    }
}

/// CREATE TYPE … AS ENUM
pub(super) async fn create_enum(cx: &mut DdlContext<'_>, name: &Name, labels: &[String]) -> SqlResult<()> {
    let schema = cx.schema_for(name)?;
    cx.check_type_free(schema, &name.name)?;
    let oid = cx.new_type_oid(Type::user_enum).await?;
    let mut all = EnumType::default();
    for label in labels {
        check_label(label)?;
        if all.position(label).is_some() {
            let message = "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"";
            return Err(SqlError::new(SqlState::UNIQUE_VIOLATION, message)
                .with_detail(format!("Key (enumtypid, enumlabel)=({oid}, {label}) already exists.")));
        }
        let label_oid = cx.new_oid().await?;
        all.add(all.labels.len(), label_oid, label.clone())?;
    }
    let (database, owner) = (cx.database(), cx.user());
    cx.put_type(TypeDescriptor {
        oid,
        database,
        schema,
        name: name.name.clone(),
        owner,
        kind: TypeKind::Enum(all),
        comment: None,
    })
}

/// ALTER TYPE and ALTER DOMAIN
pub(super) async fn alter(
    cx: &mut DdlContext<'_>,
    name: &Name,
    domain: bool,
    action: &TypeAction,
) -> SqlResult<()> {
    let found = cx.own_type(name)?;
    if domain && found.as_domain().is_none() {
        let message = format!("{} is not a domain", name.name);
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
    }
    let mut changed = (*found).clone();
    match action {
        TypeAction::AddValue { label, if_not_exists, beside } => {
            let Some(position) = place(cx, &found, label, *if_not_exists, beside.as_ref())? else {
                return Ok(());
            };
            let oid = cx.new_oid().await?;
            enum_of(&mut changed)?.add(position, oid, label.clone())?;
        }
        TypeAction::RenameValue { from, to } => {
            check_label(to)?;
            let labels = enum_of(&mut changed)?;
            let Some(position) = labels.position(from) else { return Err(no_label(from)) };
            if labels.position(to).is_some() {
                let message = format!("enum label \"{to}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            if let Some(label) = labels.labels.get_mut(position) {
                label.label = to.clone();
            }
            cx.put_type(changed)?;
            return cx.mend_expressions(&[(from.as_str(), to.as_str())]);
        }
        TypeAction::Rename(to) => {
            cx.check_type_free(found.schema, to)?;
            changed.name = to.clone();
            cx.put_type(changed)?;
            return cx.mend_expressions(&[]);
        }
        TypeAction::SetSchema(schema) => {
            let target = Name { schema: Some(schema.clone()), name: found.name.clone(), position: None };
            let schema = cx.schema_for(&target)?;
            if schema != found.schema {
                cx.check_type_free(schema, &found.name)?;
            }
            changed.schema = schema;
            cx.put_type(changed)?;
            return cx.mend_expressions(&[]);
        }
        TypeAction::Owner(owner) => changed.owner = cx.new_owner(owner)?.oid,
        TypeAction::Domain(action) => return super::domain::alter(cx, &found, action).await,
    }
    cx.put_type(changed)
}

fn enum_of(ty: &mut TypeDescriptor) -> SqlResult<&mut EnumType> {
    match &mut ty.kind {
        TypeKind::Enum(labels) => Ok(labels),
        TypeKind::Domain(_) => {
            Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("{} is not an enum", ty.name)))
        }
    }
}

fn no_label(label: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, format!("\"{label}\" is not an existing enum label"))
}

/// Where a new label goes; `None` if it is there and may be.
fn place(
    cx: &DdlContext<'_>,
    ty: &TypeDescriptor,
    label: &str,
    if_not_exists: bool,
    beside: Option<&(bool, String)>,
) -> SqlResult<Option<usize>> {
    check_label(label)?;
    let Some(labels) = ty.as_enum() else {
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("{} is not an enum", ty.name)));
    };
    if labels.position(label).is_some() {
        let message = format!("enum label \"{label}\" already exists");
        if if_not_exists {
            cx.notice(format!("{message}, skipping"));
            return Ok(None);
        }
        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
    }
    match beside {
        None => Ok(Some(labels.labels.len())),
        Some((before, neighbor)) => {
            let at = labels.position(neighbor).ok_or_else(|| no_label(neighbor))?;
            Ok(Some(if *before { at } else { at + 1 }))
        }
    }
}

/// DROP TYPE and DROP DOMAIN of one type. `together` are dropped with it.
pub(super) async fn drop(
    cx: &mut DdlContext<'_>,
    kind: ObjectKind,
    name: &Name,
    if_exists: bool,
    cascade: bool,
    together: &[Oid],
) -> SqlResult<()> {
    if cx.find_type(name).is_none() && if_exists {
        cx.notice(format!("type \"{}\" does not exist, skipping", name.written()));
        return Ok(());
    }
    let found = cx.own_type(name)?;
    if kind == ObjectKind::Domain && found.as_domain().is_none() {
        let message = format!("\"{}\" is not a domain", name.name);
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
    }
    drop_type(cx, &found, cascade, together).await
}

/// Drops a type, with the columns and domains of it (`cascade`), or refuses.
pub(super) async fn drop_type(
    cx: &mut DdlContext<'_>,
    ty: &TypeDescriptor,
    cascade: bool,
    together: &[Oid],
) -> SqlResult<()> {
    let shown = cx.view.user_type_text(ty.ty()).unwrap_or_else(|| ty.name.clone());
    let what = format!("type {shown}");
    let users = cx.users_of(ty);
    let domains: Vec<Arc<TypeDescriptor>> = cx
        .catalog
        .types
        .values()
        .filter(|other| !together.contains(&other.oid) && other.as_domain().is_some_and(|d| is_over(d, ty)))
        .cloned()
        .collect();
    let mut details: Vec<String> = users
        .iter()
        .filter(|user| !together.contains(&user.table))
        .map(|user| format!("{} depends on {what}{}", user.what, if user.array { "[]" } else { "" }))
        .collect();
    let routines = super::alter_routine::routines_over(cx, ty.ty());
    details.extend(
        routines.iter().map(|routine| format!("function {} depends on {what}", cx.shown_routine(routine))),
    );
    details.extend(domains.iter().map(|domain| format!("type {} depends on {what}", domain.name)));
    if !details.is_empty() && !cascade {
        return Err(dependents(&what, details.join("\n")));
    }
    for routine in routines {
        cx.notice(format!("drop cascades to function {}", cx.shown_routine(&routine)));
        super::alter_routine::drop_one(cx, &routine, true)?;
    }
    release_readers(cx, ty.oid, cascade, &what, together)?;
    for user in users {
        let Some(table) = cx.catalog.table(user.table).cloned() else { continue };
        if !together.contains(&table.oid) {
            cx.notice(format!("drop cascades to {}", user.what));
        }
        match user.part {
            Part::Column(name) => {
                cx.lock(table.oid, crate::session::locks::mode::ACCESS_EXCLUSIVE).await?;
                let table = cx.table_by_oid(table.oid)?;
                if table.columns.iter().any(|column| column.name == name) {
                    Box::pin(cx.drop_column(&table, &name, true, true)).await?;
                }
            }
            Part::Default(name) => {
                let mut changed = (*table).clone();
                for column in changed.columns.iter_mut().filter(|column| column.name == name) {
                    column.default = None;
                }
                cx.put_table(changed)?;
            }
            Part::Index(oid) => {
                // The column of the type may have taken it along.
                if let Some(index) = table.indexes.iter().find(|index| index.oid == oid) {
                    super::index::drop(cx, Relation::Index(oid, table.oid, index.id)).await?;
                }
            }
            Part::Check(oid) => {
                let mut changed = (*table).clone();
                changed.checks.retain(|check| check.oid != oid);
                cx.put_table(changed)?;
            }
        }
    }
    for domain in domains {
        if cx.catalog.user_type(domain.ty()).is_some() {
            cx.notice(format!("drop cascades to type {}", domain.name));
            Box::pin(drop_type(cx, &domain, true, together)).await?;
        }
    }
    cx.remove_type(ty.oid)
}

fn is_over(domain: &crate::catalog::user_type::DomainType, ty: &TypeDescriptor) -> bool {
    let base = domain.base.ty;
    domain.over == Some(ty.oid) || base == ty.ty() || base.element() == Some(ty.ty())
}

/// What of a table depends on a type.
struct User {
    table: Oid,
    part: Part,
    /// As messages call it.
    what: String,
    /// Whether it depends on the array type.
    array: bool,
}

enum Part {
    Column(String),
    Default(String),
    Check(Oid),
    Index(Oid),
}

impl DdlContext<'_> {
    /// What depends on a type, in all tables.
    fn users_of(&self, ty: &TypeDescriptor) -> Vec<User> {
        let mark = super::type_names::mark(ty.oid);
        let mut found = Vec::new();
        for table in self.catalog.tables.values() {
            for column in &table.columns {
                let is_of = column.ty.ty == ty.ty()
                    || column.ty.ty.element() == Some(ty.ty())
                    || column.domain == Some(ty.oid)
                    || column.generated.as_ref().is_some_and(|text| text.contains(&mark));
                let name = column.name.clone();
                if is_of {
                    let what = format!("column {name} of table {}", table.name);
                    let array = column.ty.ty.element() == Some(ty.ty());
                    found.push(User { table: table.oid, part: Part::Column(name), what, array });
                } else if column.default.as_ref().is_some_and(|text| text.contains(&mark)) {
                    let what = format!("default value for column {name} of table {}", table.name);
                    found.push(User { table: table.oid, part: Part::Default(name), what, array: false });
                }
            }
            for check in table.checks.iter().filter(|check| check.expr.contains(&mark)) {
                let what = format!("constraint {} on table {}", check.name, table.name);
                found.push(User { table: table.oid, part: Part::Check(check.oid), what, array: false });
            }
            for index in &table.indexes {
                let mut texts = index.expressions.iter().map(|key| &key.text).chain(&index.predicate);
                if texts.any(|text| text.contains(&mark)) {
                    let what = format!("index {}", index.name);
                    found.push(User { table: table.oid, part: Part::Index(index.oid), what, array: false });
                }
            }
        }
        found
    }
}

/// COMMENT ON TYPE and COMMENT ON DOMAIN
pub(super) fn comment(cx: &mut DdlContext<'_>, name: &Name, text: Option<String>) -> SqlResult<()> {
    let mut changed = (*cx.own_type(name)?).clone();
    changed.comment = text;
    cx.put_type(changed)
}

/// The schema's types, to be dropped with it.
pub(super) fn types_in(cx: &DdlContext<'_>, database: Oid, schema: Oid) -> Vec<Arc<TypeDescriptor>> {
    let all = cx.catalog.types.values();
    all.filter(|ty| ty.database == database && (schema == 0 || ty.schema == schema)).cloned().collect()
}
