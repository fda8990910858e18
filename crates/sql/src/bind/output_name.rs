//! Names of output columns that have no alias, as PostgreSQL's `FigureColname` gives them.

use super::names::{ident_name, qualified};
use super::operator::strip;
use sqlparser::ast::{self, AccessExpr, DataType, FunctionArguments, TrimWhereField};

/// The name of an output column without alias.
pub(crate) fn output_name(expr: &ast::Expr) -> String {
    name_of(expr).map_or_else(|| "?column?".to_string(), |(name, _)| name)
}

/// A name, and whether it is a strong one, which a cast around it keeps.
fn name_of(expr: &ast::Expr) -> Option<(String, bool)> {
    let strong = |name: &str| Some((name.to_string(), true));
    match strip(expr) {
        ast::Expr::Identifier(ident) => strong(&ident_name(ident)),
        ast::Expr::CompoundIdentifier(parts) => parts.last().and_then(|ident| strong(&ident_name(ident))),
        ast::Expr::CompoundFieldAccess { root, access_chain } => access_chain
            .iter()
            .rev()
            .find_map(|access| match access {
                AccessExpr::Dot(ast::Expr::Identifier(ident)) => strong(&ident_name(ident)),
                _ => None,
            })
            .or_else(|| name_of(root)),
        ast::Expr::Function(function) => function_name(function),
        ast::Expr::Cast { expr, data_type, .. } => match name_of(expr) {
            Some((name, true)) => Some((name, true)),
            _ => type_name(data_type).map(|name| (name, false)),
        },
        ast::Expr::TypedString(typed) => type_name(&typed.data_type).map(|name| (name, false)),
        ast::Expr::Interval(_) => Some(("interval".to_string(), false)),
        ast::Expr::Value(value) => match value.value {
            ast::Value::Boolean(_) => Some(("bool".to_string(), false)),
            _ => None,
        },
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().and_then(name_of) {
            Some((name, true)) => Some((name, true)),
            _ => Some(("case".to_string(), false)),
        },
        ast::Expr::Array(_) => strong("array"),
        ast::Expr::Tuple(_) => strong("row"),
        ast::Expr::Exists { negated: false, .. } => strong("exists"),
        ast::Expr::Subquery(query) => subquery_name(query),
        ast::Expr::Collate { expr, .. } => name_of(expr),
        ast::Expr::AtTimeZone { .. } => strong("timezone"),
        ast::Expr::Extract { .. } => strong("extract"),
        ast::Expr::Substring { .. } => strong("substring"),
        ast::Expr::Position { .. } => strong("position"),
        ast::Expr::Overlay { .. } => strong("overlay"),
        ast::Expr::Ceil { .. } => strong("ceil"),
        ast::Expr::Floor { .. } => strong("floor"),
        ast::Expr::Trim { trim_where, .. } => strong(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        _ => None,
    }
}

fn function_name(function: &ast::Function) -> Option<(String, bool)> {
    let name = qualified(&function.name).ok()?;
    if let FunctionArguments::None = function.args
        && matches!(&*name.name, "user")
    {
        return Some(("user".to_string(), true));
    }
    Some((name.name.into_owned(), true))
}

fn subquery_name(query: &ast::Query) -> Option<(String, bool)> {
    let ast::SetExpr::Select(select) = query.body.as_ref() else { return None };
    match select.projection.first()? {
        ast::SelectItem::ExprWithAlias { alias, .. } => Some((ident_name(alias).into_owned(), true)),
        ast::SelectItem::UnnamedExpr(expr) => name_of(expr),
        _ => None,
    }
}

/// `pg_type.typname` of a written type.
fn type_name(ty: &DataType) -> Option<String> {
    let written = match ty {
        DataType::Custom(name, _) => return qualified(name).ok().map(|name| name.name.into_owned()),
        DataType::Array(
            ast::ArrayElemTypeDef::SquareBracket(inner, _) | ast::ArrayElemTypeDef::AngleBracket(inner),
        ) => return type_name(inner),
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => "varchar",
        DataType::Char(_) | DataType::Character(_) => "bpchar",
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "numeric",
        DataType::Float(_) => "float8",
        DataType::Timestamp(_, ast::TimezoneInfo::WithTimeZone | ast::TimezoneInfo::Tz) => "timestamptz",
        DataType::Timestamp(..) => "timestamp",
        DataType::Time(..) => "time",
        DataType::Interval { .. } => "interval",
        other => {
            let text = other.to_string().to_ascii_lowercase();
            let info = sql_types::Type::by_name(&text)?.info()?;
            return Some(info.name.to_string());
        }
    };
    Some(written.to_string())
}
