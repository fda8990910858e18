//! Definitions as SQL text: types, indexes, constraints, defaults, views.

use crate::catalog::descriptor::{
    CheckDescriptor, ColumnId, ForeignKeyDescriptor, IndexDescriptor, TableDescriptor, Timing, Validity,
    ViewDescriptor,
};
use crate::ddl::tokens::quote_ident;
use crate::ddl::unmark;
use crate::session::view::SessionView;
use crate::table::{key_texts, predicate_text};
use sql_types::text::name_types;
use sql_types::types::TYPE_MARK;
use sql_types::{ColumnType, EnumValue, Oid, SqlError, Type};
use std::sync::Arc;

/// A built-in type as `format_type` shows it.
pub(crate) fn format_type(ty: ColumnType) -> String {
    let (base, suffix) = match ty.ty.info() {
        Some(info) if info.name.starts_with('_') => (info.element, "[]"),
        _ => (ty.ty, ""),
    };
    let typmod = ty.typmod;
    let name = match base {
        Type::VARCHAR if typmod >= 4 => format!("character varying({})", typmod - 4),
        Type::BPCHAR if typmod >= 4 => format!("character({})", typmod - 4),
        Type::NUMERIC if typmod >= 4 => {
            let packed = typmod - 4;
            let scale = ((packed & 0x7ff) ^ 1024) - 1024;
            format!("numeric({},{scale})", (packed >> 16) & 0xffff)
        }
        Type::TIMESTAMP if typmod >= 0 => format!("timestamp({typmod}) without time zone"),
        Type::TIMESTAMPTZ if typmod >= 0 => format!("timestamp({typmod}) with time zone"),
        Type::TIME if typmod >= 0 => format!("time({typmod}) without time zone"),
        other => other.to_string(),
    };
    format!("{name}{suffix}")
}

fn column_names(table: &TableDescriptor, ids: impl IntoIterator<Item = ColumnId>) -> String {
    let names = ids.into_iter().filter_map(|id| table.column(id)).map(|column| quote_ident(&column.name));
    names.collect::<Vec<_>>().join(", ")
}

/// What a constraint's definition says of when it is checked.
fn timing_text(timing: Timing) -> &'static str {
    match timing {
        Timing { deferrable: true, deferred: true } => " DEFERRABLE INITIALLY DEFERRED",
        Timing { deferrable: true, .. } => " DEFERRABLE",
        _ => "",
    }
}

impl SessionView {
    /// The query of a view, as `pg_get_viewdef` shows it.
    pub(crate) fn view_definition(&self, view: &ViewDescriptor) -> String {
        let columns = view.columns.iter().map(|(column, _)| column.as_str());
        self.query_definition(&view.name, &view.query, view.renamed.then(|| columns.collect()))
    }

    /// The same of a materialized view; `None` if the table is none.
    pub(crate) fn materialized_definition(&self, table: &TableDescriptor) -> Option<String> {
        let view = table.view.as_ref()?;
        let shown = table.columns.iter().filter(|column| !column.hidden).map(|column| column.name.as_str());
        Some(self.query_definition(&table.name, &view.query, view.renamed.then(|| shown.collect())))
    }

    fn query_definition(&self, name: &str, query: &str, renamed: Option<Vec<&str>>) -> String {
        let query = self.named_types(query);
        let Some(columns) = renamed else { return format!(" {query};") };
        let columns: Vec<String> = columns.into_iter().map(quote_ident).collect();
        format!(" SELECT * FROM ({query}) AS {}({});", quote_ident(name), columns.join(", "))
    }

    /// A user's type or array of it as `format_type` shows it: with its schema where the search path needs it.
    pub(crate) fn user_type_text(&self, ty: Type) -> Option<String> {
        let element = ty.element().filter(|element| element.is_enum());
        let found = self.snapshot().user_type(element.unwrap_or(ty))?;
        let name = if self.catalog.type_is_visible(found, &self.path) {
            quote_ident(&found.name)
        } else {
            self.qualified_text(found.schema, &found.name)
        };
        Some(if element.is_some() { format!("{name}[]") } else { name })
    }

    /// A stored expression as it is shown: a user's types by name.
    pub(crate) fn named_types(&self, text: &str) -> String {
        unmark(text, |ty| self.user_type_text(ty))
    }

    /// A line of EXPLAIN, or an expression of an index, with a user's types by name and values of enum types by label.
    pub(crate) fn explained(&self, line: String) -> String {
        if !line.contains(TYPE_MARK) {
            return line;
        }
        let joint = format!("'::{TYPE_MARK}");
        let (mut out, mut rest) = (String::with_capacity(line.len()), line.as_str());
        while let Some(at) = rest.find(&joint) {
            let after = &rest[at + joint.len()..];
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let value = rest[..at].rfind('\'').and_then(|open| {
                let ty = Type(after[..digits].parse().ok()?);
                Some((open + 1, EnumValue { ty, rank: rest[open + 1..at].parse().ok()? }))
            });
            let label = value.and_then(|(open, value)| {
                self.snapshot().user_type(value.ty)?.label(value).map(|label| (open, label))
            });
            match label {
                Some((open, label)) => {
                    out.push_str(&rest[..open]);
                    out.push_str(&label.replace('\'', "''"));
                }
                None => out.push_str(&rest[..at]),
            }
            out.push_str(&joint);
            rest = after;
        }
        out.push_str(rest);
        name_types(&out, |ty| self.user_type_text(ty))
    }

    /// An error with a user's types by name.
    pub(crate) fn with_named_types(&self, mut error: SqlError) -> SqlError {
        let named = |text: &mut String| {
            if text.contains(TYPE_MARK) {
                *text = name_types(text, |ty| self.user_type_text(ty));
            }
        };
        named(&mut error.message);
        if let Some(extra) = error.extra.as_deref_mut() {
            extra.detail.iter_mut().for_each(named);
            extra.hint.iter_mut().for_each(named);
        }
        error
    }

    /// A relation's name, with its schema where the search path needs it.
    pub(super) fn relation_text(&self, oid: Oid, schema: Oid, name: &str) -> String {
        if self.catalog.is_visible(oid, schema, name, &self.path) {
            return quote_ident(name);
        }
        self.qualified_text(schema, name)
    }

    /// A relation's name with its schema.
    pub(crate) fn qualified_text(&self, schema: Oid, name: &str) -> String {
        let schema = self.snapshot().schema_name(self.catalog.database, schema).unwrap_or("public");
        format!("{}.{}", quote_ident(schema), quote_ident(name))
    }

    /// `pg_get_indexdef`; with a column from 1, only that.
    pub(crate) fn index_definition(
        &self,
        table: &Arc<TableDescriptor>,
        index: &IndexDescriptor,
        column: usize,
    ) -> String {
        let keys = key_texts(table, index).into_iter().map(|key| self.explained(key));
        let keys: Vec<String> = keys.collect();
        if let Some(position) = column.checked_sub(1) {
            let included = position.checked_sub(keys.len()).and_then(|position| index.included.get(position));
            return match keys.get(position) {
                Some(text) => text.clone(),
                None => column_names(table, included.copied()),
            };
        }
        let class = index.inverted.filter(|class| !class.is_default());
        let ordered = keys.iter().zip(&index.columns).map(|(text, (_, descending))| match class {
            Some(class) => format!("{text} {}", class.name()),
            None if *descending => format!("{text} DESC"),
            None => text.clone(),
        });
        let columns: Vec<String> = ordered.collect();
        let method = if index.inverted.is_some() { "gin" } else { "btree" };
        let mut text = format!(
            "CREATE {}INDEX {} ON {} USING {method} ({})",
            if index.unique { "UNIQUE " } else { "" },
            quote_ident(&index.name),
            self.qualified_text(table.schema, &table.name),
            columns.join(", ")
        );
        if !index.included.is_empty() {
            text.push_str(&format!(" INCLUDE ({})", column_names(table, index.included.iter().copied())));
        }
        if index.nulls_not_distinct {
            text.push_str(" NULLS NOT DISTINCT");
        }
        if let Some(predicate) = predicate_text(table, index) {
            text.push_str(&format!(" WHERE {}", self.explained(predicate)));
        }
        text
    }

    /// `pg_get_constraintdef` of a PRIMARY KEY or UNIQUE constraint.
    pub(crate) fn key_definition(&self, table: &TableDescriptor, index: &IndexDescriptor) -> String {
        let word =
            if index.id == crate::catalog::descriptor::PRIMARY_INDEX { "PRIMARY KEY" } else { "UNIQUE" };
        let nulls = if index.nulls_not_distinct { "NULLS NOT DISTINCT " } else { "" };
        let mut text =
            format!("{word} {nulls}({})", column_names(table, index.columns.iter().map(|(id, _)| *id)));
        if !index.included.is_empty() {
            text.push_str(&format!(" INCLUDE ({})", column_names(table, index.included.iter().copied())));
        }
        text + timing_text(index.timing)
    }

    /// `pg_get_constraintdef` of a CHECK constraint.
    pub(crate) fn check_definition(&self, check: &CheckDescriptor) -> String {
        format!("CHECK (({})){}", self.named_types(&check.expr), validity_text(check.validity))
    }

    /// `pg_get_constraintdef` of a foreign key.
    pub(crate) fn foreign_key_definition(
        &self,
        table: &TableDescriptor,
        key: &ForeignKeyDescriptor,
    ) -> String {
        let Some(referenced) = self.snapshot().table(key.referenced_table) else { return String::new() };
        let mut text = format!(
            "FOREIGN KEY ({}) REFERENCES {}({})",
            column_names(table, key.columns.iter().copied()),
            self.relation_text(referenced.oid, referenced.schema, &referenced.name),
            column_names(referenced, key.referenced_columns.iter().copied())
        );
        let action = |letter: char| match letter {
            'r' => Some("RESTRICT"),
            'c' => Some("CASCADE"),
            'n' => Some("SET NULL"),
            'd' => Some("SET DEFAULT"),
            _ => None,
        };
        if let Some(word) = action(key.on_update) {
            text.push_str(&format!(" ON UPDATE {word}"));
        }
        if let Some(word) = action(key.on_delete) {
            text.push_str(&format!(" ON DELETE {word}"));
        }
        text + timing_text(key.timing) + validity_text(key.validity)
    }

    /// A default as it is shown: sequences without a schema that need not be spelt out.
    pub(crate) fn default_text(&self, text: &str) -> String {
        let text = self.named_types(text);
        let Some((before, rest)) = text.split_once("nextval('") else { return text };
        let Some((name, after)) = rest.split_once('\'') else { return text };
        let shown = name.split_once('.').filter(|(schema, bare)| {
            let bare = bare.trim_matches('"');
            let found = self.catalog.find(None, bare, &self.path);
            found.is_some() && found == self.catalog.find(Some(schema.trim_matches('"')), bare, &self.path)
        });
        let name = shown.map_or(name, |(_, bare)| bare);
        format!("{before}nextval('{name}'{after}")
    }

    /// `pg_get_constraintdef` by OID.
    pub(crate) fn constraint_by_oid(&self, oid: Oid) -> Option<String> {
        for table in self.snapshot().tables.values() {
            if let Some(index) =
                table.indexes.iter().find(|index| index.constraint && constraint_oid(index) == oid)
            {
                return Some(self.key_definition(table, index));
            }
            if let Some(check) = table.checks.iter().find(|check| check.oid == oid) {
                return Some(self.check_definition(check));
            }
            if let Some(key) = table.foreign_keys.iter().find(|key| key.oid == oid) {
                return Some(self.foreign_key_definition(table, key));
            }
        }
        let domains = self.snapshot().types.values().filter_map(|ty| ty.as_domain());
        let check = domains.flat_map(|domain| &domain.checks).find(|check| check.oid == oid)?;
        Some(self.check_definition(check))
    }
}

/// What follows the definition of a constraint that rows from before it may not satisfy.
fn validity_text(validity: Validity) -> &'static str {
    if validity.is_shown_valid() { "" } else { " NOT VALID" }
}

/// The OID of the constraint an index belongs to: that of the index, in another catalog.
pub(crate) fn constraint_oid(index: &IndexDescriptor) -> Oid {
    index.oid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_shown_with_their_modifiers() {
        let show = |ty, typmod| format_type(ColumnType { ty, typmod });
        assert_eq!(show(Type::VARCHAR, 14), "character varying(10)");
        assert_eq!(show(Type::NUMERIC, (10 << 16 | 2) + 4), "numeric(10,2)");
        assert_eq!(show(Type::INT4_ARRAY, -1), "integer[]");
        assert_eq!(show(Type::TIMESTAMPTZ, 3), "timestamp(3) with time zone");
        assert_eq!(show(Type::BPCHAR, -1), "character");
    }
}
