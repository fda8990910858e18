//! CREATE DOMAIN, ALTER DOMAIN, and the check that rows keep a domain's constraints.

use super::DdlContext;
use super::constraint::violation_query;
use super::naming::free_name;
use super::statement::{CreateDomain, DomainAction};
use super::tokens::{Cursor, quote_ident};
use crate::bind;
use crate::catalog::descriptor::{CheckDescriptor, ColumnDescriptor, TableDescriptor};
use crate::catalog::user_type::{DomainType, TypeDescriptor, TypeKind};
use crate::session::locks::mode;
use sql_types::{ColumnType, Oid, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::DataType;
use std::sync::Arc;

impl DdlContext<'_> {
    /// The type of a new column, and the domain that was written if one was.
    pub(super) fn declared_type(&self, ty: &DataType) -> SqlResult<(ColumnType, Option<Oid>)> {
        let eval = self.view.eval(self.times);
        let found = bind::declared_type(ty, &self.view.bind_context(&eval, &[]))?;
        if found.ty.is_domain() {
            let base = self.catalog.user_type(found.ty).and_then(|ty| ty.as_domain().map(|d| d.base));
            return Ok((base.ok_or_else(|| SqlError::internal("a domain is gone"))?, Some(found.ty.0)));
        }
        Ok((self.column_type(ty)?, None))
    }

    /// The default of a domain, if it has one.
    pub(super) fn domain_default(&self, domain: Option<Oid>) -> Option<String> {
        let domains = domain.map(|oid| self.catalog.domains(oid)).unwrap_or_default();
        domains.iter().find_map(|(_, domain)| domain.default.clone())
    }

    /// Fails if a row breaks a constraint of the domain that a column is of: one that the column is given, or
    /// (`altered`) one that the domain is given.
    pub(super) async fn check_domain_rows(
        &mut self,
        table: Oid,
        column: &str,
        altered: bool,
    ) -> SqlResult<()> {
        let table = self.table_by_oid(table)?;
        let Some(found) = table.columns.iter().find(|known| known.name == column) else { return Ok(()) };
        let domains: Vec<DomainType> = found
            .domain
            .map(|oid| self.catalog.domains(oid).into_iter().map(|(_, domain)| domain.clone()).collect())
            .unwrap_or_default();
        let called = found.domain.and_then(|oid| self.view.user_type_text(Type(oid))).unwrap_or_default();
        let name = quote_ident(column);
        let from = self.qualified(&table);
        for domain in domains {
            let null = format!("{name} IS NULL");
            if domain.not_null && self.finds_row(&violation_query(&null, &from)).await? {
                let message = match altered {
                    true => format!("column \"{column}\" of table \"{}\" contains null values", table.name),
                    false => format!("domain {called} does not allow null values"),
                };
                return Err(SqlError::new(SqlState::NOT_NULL_VIOLATION, message));
            }
            for check in &domain.checks {
                let condition = format!("NOT ({})", with_value(&check.expr, &name)?);
                if self.finds_row(&violation_query(&condition, &from)).await? {
                    let message = match altered {
                        true => format!(
                            "column \"{column}\" of table \"{}\" contains values that violate the new constraint",
                            table.name
                        ),
                        false => {
                            format!("value for domain {called} violates check constraint \"{}\"", check.name)
                        }
                    };
                    return Err(SqlError::new(SqlState::CHECK_VIOLATION, message));
                }
            }
        }
        Ok(())
    }

    /// The columns of a domain, or of one made of it.
    fn columns_of(&self, domain: Oid) -> Vec<(Oid, String)> {
        let is_of = |column: &&ColumnDescriptor| {
            let made = column.domain.map(|oid| self.catalog.domains(oid)).unwrap_or_default();
            made.iter().any(|(ty, _)| ty.oid == domain)
        };
        let of_table = |table: &Arc<TableDescriptor>| {
            let columns = table.columns.iter().filter(is_of);
            columns.map(|column| (table.oid, column.name.clone())).collect::<Vec<_>>()
        };
        self.catalog.tables.values().flat_map(of_table).collect()
    }

    /// A CHECK constraint of a domain, as it is stored.
    async fn domain_check(
        &self,
        domain: &str,
        base: ColumnType,
        name: Option<&str>,
        expr: &str,
        known: &[CheckDescriptor],
    ) -> SqlResult<CheckDescriptor> {
        let taken = |name: &str| known.iter().any(|check| check.name == name);
        let name = match name {
            Some(name) if taken(name) => {
                let message = format!("constraint \"{name}\" for domain \"{domain}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            Some(name) => name.to_string(),
            None => free_name(domain, "", "check", taken),
        };
        let expr = self.stable_types(expr)?;
        let view = self.working_view()?;
        let eval = view.eval(self.times);
        bind::bind_domain_check(&expr, base, &view.bind_context(&eval, &[]))?;
        Ok(CheckDescriptor {
            oid: self.new_oid().await?,
            name,
            expr,
            validity: Default::default(),
            comment: None,
        })
    }

    /// A default as it is stored, after checking that it can be computed.
    fn checked_domain_default(&self, text: &str, base: ColumnType, name: &str) -> SqlResult<Option<String>> {
        self.default_text(text, &ColumnDescriptor::plain(1, name, base))
    }
}

/// An expression over VALUE with something else in its place.
fn with_value(expr: &str, value: &str) -> SqlResult<String> {
    let mut cursor = Cursor::new(expr)?;
    let (mut out, mut from) = (String::new(), 0);
    while !cursor.is_end() {
        let at = cursor.position();
        let is_value = cursor.at_words("value");
        cursor.advance();
        if is_value {
            out.push_str(&cursor.text(from, at));
            out.push_str(&format!(" {value} "));
            from = cursor.position();
        }
    }
    out.push_str(&cursor.text(from, cursor.position()));
    Ok(out)
}

/// CREATE DOMAIN
pub(super) async fn create(cx: &mut DdlContext<'_>, written: &CreateDomain) -> SqlResult<()> {
    let name = &written.name;
    let schema = cx.schema_for(name)?;
    cx.check_type_free(schema, &name.name)?;
    let (base, over) = cx.declared_type(&written.ty)?;
    let oid = cx.new_type_oid(Type::user_domain).await?;
    let mut domain = DomainType {
        base,
        over,
        not_null: written.not_null.unwrap_or(false),
        default: None,
        checks: Vec::new(),
    };
    if let Some(text) = &written.default {
        domain.default = cx.checked_domain_default(text, base, &name.name)?;
    }
    for (constraint, expr) in &written.checks {
        let check = cx.domain_check(&name.name, base, constraint.as_deref(), expr, &domain.checks).await?;
        domain.checks.push(check);
    }
    let (database, owner) = (cx.database(), cx.user());
    cx.put_type(TypeDescriptor {
        oid,
        database,
        schema,
        name: name.name.clone(),
        owner,
        kind: TypeKind::Domain(domain),
        comment: None,
    })
}

/// ALTER DOMAIN, what only domains have.
pub(super) async fn alter(
    cx: &mut DdlContext<'_>,
    ty: &TypeDescriptor,
    action: &DomainAction,
) -> SqlResult<()> {
    let Some(mut domain) = ty.as_domain().cloned() else {
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("{} is not a domain", ty.name)));
    };
    let mut verify = false;
    match action {
        DomainAction::SetDefault(None) => domain.default = None,
        DomainAction::SetDefault(Some(text)) => {
            domain.default = cx.checked_domain_default(text, domain.base, &ty.name)?;
        }
        DomainAction::SetNotNull(not_null) => {
            verify = *not_null && !domain.not_null;
            domain.not_null = *not_null;
        }
        DomainAction::AddCheck { name, expr, not_valid } => {
            let check = cx.domain_check(&ty.name, domain.base, name.as_deref(), expr, &domain.checks).await?;
            domain.checks.push(check);
            verify = !not_valid;
        }
        DomainAction::DropConstraint { name, if_exists } => {
            let before = domain.checks.len();
            domain.checks.retain(|check| check.name != *name);
            if domain.checks.len() == before {
                let message = format!("constraint \"{name}\" of domain \"{}\" does not exist", ty.name);
                if *if_exists {
                    cx.notice(format!("{message}, skipping"));
                    return Ok(());
                }
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
        }
        DomainAction::RenameConstraint { name, to } => {
            if domain.checks.iter().any(|check| check.name == *to) {
                let message = format!("constraint \"{to}\" for domain \"{}\" already exists", ty.name);
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            let Some(check) = domain.checks.iter_mut().find(|check| check.name == *name) else {
                let message = format!("constraint \"{name}\" for domain \"{}\" does not exist", ty.name);
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            };
            check.name = to.clone();
        }
        DomainAction::Nothing => {}
    }
    cx.put_type(TypeDescriptor { kind: TypeKind::Domain(domain), ..ty.clone() })?;
    if verify {
        for (table, column) in cx.columns_of(ty.oid) {
            // Nobody may write rows that were checked by the old constraints.
            cx.lock(table, mode::SHARE).await?;
            cx.check_domain_rows(table, &column, true).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_a_word_of_its_own() {
        assert_eq!(with_value("VALUE > 0 AND value <> 'value'", "c").unwrap(), " c > 0 AND c <> 'value'");
    }
}
