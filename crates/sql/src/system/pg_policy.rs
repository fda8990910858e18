//! `pg_policy` and `pg_policies`: row security.

use super::functions::parse_name;
use super::row::{SystemContext, bool, letter, oid, optional, text};
use crate::catalog::descriptor::TableDescriptor;
use crate::catalog::policy::PolicyDescriptor;
use crate::parse;
use crate::session::view::SessionView;
use sql_types::{Datum, Oid, Row, Type};
use sqlparser::ast::Expr;

/// The rows of one of these tables; `None` if it is another.
pub(super) fn rows(cx: &SystemContext<'_>) -> Option<Vec<Row>> {
    let row = match cx.table.name {
        "pg_policy" => catalog_row,
        "pg_policies" => view_row,
        _ => return None,
    };
    let tables = cx.catalog().tables.values().filter(|table| table.database == cx.database());
    let policies = tables.flat_map(|table| table.security.policies.iter().map(move |policy| (table, policy)));
    Some(policies.map(|(table, policy)| row(cx, table, policy)).collect())
}

fn catalog_row(cx: &SystemContext<'_>, table: &TableDescriptor, policy: &PolicyDescriptor) -> Row {
    cx.row(vec![
        ("oid", oid(policy.oid)),
        ("polname", text(&policy.name)),
        ("polrelid", oid(table.oid)),
        ("polcmd", letter(policy.command.letter())),
        ("polpermissive", bool(policy.permissive)),
        ("polroles", Datum::array(Type::OID, policy.roles.iter().copied().map(Datum::Oid).collect())),
        ("polqual", optional(shown(cx.view, policy.using.as_deref()).as_deref())),
        ("polwithcheck", optional(shown(cx.view, policy.check.as_deref()).as_deref())),
    ])
}

fn view_row(cx: &SystemContext<'_>, table: &TableDescriptor, policy: &PolicyDescriptor) -> Row {
    let role = |role: &Oid| match role {
        0 => text("public"),
        role => text(&cx.catalog().role_name(*role)),
    };
    cx.row(vec![
        ("schemaname", optional(cx.catalog().schema_name(table.database, table.schema))),
        ("tablename", text(&table.name)),
        ("policyname", text(&policy.name)),
        ("permissive", text(if policy.permissive { "PERMISSIVE" } else { "RESTRICTIVE" })),
        ("roles", Datum::array(Type::NAME, policy.roles.iter().map(role).collect())),
        ("cmd", text(policy.command.word())),
        ("qual", optional(shown(cx.view, policy.using.as_deref()).as_deref())),
        ("with_check", optional(shown(cx.view, policy.check.as_deref()).as_deref())),
    ])
}

/// A condition as PostgreSQL shows it: what is no single value or call in parentheses.
fn shown(view: &SessionView, condition: Option<&str>) -> Option<String> {
    let condition = view.named_types(condition?);
    let single = matches!(
        parse::parse_expr(&condition),
        Ok(Expr::Function(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
    );
    Some(if single { condition } else { format!("({condition})") })
}

impl SessionView {
    /// `row_security_active`: whether policies hide rows of a table, given by OID or name, from the user.
    pub(super) fn hides_rows(&self, table: Option<&Datum>) -> bool {
        let oid = match table {
            Some(Datum::Oid(oid)) => Some(*oid),
            Some(Datum::Text(name)) => parse_name(name).ok().and_then(|name| self.find_relation(&name)),
            _ => None,
        };
        let table = oid.and_then(|oid| self.snapshot().table(oid));
        table.is_some_and(|table| self.snapshot().secures(table, self.user))
    }
}
