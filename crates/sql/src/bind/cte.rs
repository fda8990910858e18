//! WITH.

use super::names::ident_name;
use super::query::QueryOptions;
use super::{Binder, Env};
use crate::plan::{Plan, PlanColumn, PlanKind};
use sql_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier};

/// The common table expressions that can be named, innermost WITH first.
#[derive(Clone)]
pub(crate) struct CteFrame<'s> {
    pub parent: Option<&'s CteFrame<'s>>,
    pub name: String,
    pub number: usize,
    pub columns: Vec<PlanColumn>,
    /// It changes data and returns nothing, so it cannot be read.
    pub silent: bool,
}

impl CteFrame<'_> {
    /// Finds a common table expression by name.
    pub(crate) fn find(&self, name: &str) -> Option<&CteFrame<'_>> {
        let mut frame = Some(self);
        while let Some(here) = frame {
            if here.name == name {
                return Some(here);
            }
            frame = here.parent;
        }
        None
    }
}

impl Binder<'_> {
    pub(crate) fn bind_with(
        &self,
        with: &ast::With,
        query: &ast::Query,
        env: Env<'_>,
        options: QueryOptions,
    ) -> SqlResult<Plan> {
        let changes = |cte: &&ast::Cte| {
            matches!(
                *cte.query.body,
                ast::SetExpr::Insert(_)
                    | ast::SetExpr::Update(_)
                    | ast::SetExpr::Delete(_)
                    | ast::SetExpr::Merge(_)
            )
        };
        if let Some(cte) = with.cte_tables.iter().find(changes).filter(|_| !self.is_top_level()) {
            let message = "WITH clause containing a data-modifying statement must be at the top level";
            return Err(self.at(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message), cte.alias.name.span));
        }
        let mut ctes = Vec::with_capacity(with.cte_tables.len());
        let body = self.bind_ctes(with.recursive, &with.cte_tables, env, &mut ctes, &mut |env| {
            self.bind_body(query, env, options)
        })?;
        let columns = body.columns.clone();
        Ok(Plan::new(PlanKind::With { ctes, body: Box::new(body) }, columns))
    }

    /// Binds common table expressions one inside the scope of the other, and then the body.
    fn bind_ctes(
        &self,
        recursive: bool,
        ctes: &[ast::Cte],
        env: Env<'_>,
        bound: &mut Vec<(usize, Plan)>,
        body: &mut dyn FnMut(Env<'_>) -> SqlResult<Plan>,
    ) -> SqlResult<Plan> {
        let Some((cte, rest)) = ctes.split_first() else { return body(env) };
        let name = ident_name(&cte.alias.name).into_owned();
        if rest.iter().any(|other| ident_name(&other.alias.name) == name) {
            let error = SqlError::new(
                SqlState::DUPLICATE_ALIAS,
                format!("WITH query name \"{name}\" specified more than once"),
            );
            return Err(self.at(error, cte.alias.name.span));
        }
        let number = self.new_cte();
        let plan = match recursion(cte, &name).filter(|_| recursive) {
            Some(parts) => self.bind_recursive(cte, &name, number, parts, env)?,
            None => {
                let plan = self.bind_query(&cte.query, env)?;
                self.alias_columns(plan, cte)?
            }
        };
        if matches!(plan.kind, PlanKind::Merge { .. }) {
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "MERGE not supported in WITH query");
            return Err(self.at(error, cte.alias.name.span));
        }
        let changes = plan.kind.changed_table().is_some();
        let silent = changes && plan.columns.is_empty();
        let frame = CteFrame { parent: env.ctes, name, number, columns: plan.columns.clone(), silent };
        bound.push((number, plan));
        self.deeper(|| {
            let env = Env { outer: env.outer, ctes: Some(&frame) };
            self.bind_ctes(recursive, rest, env, bound, body)
        })
    }

    fn alias_columns(&self, mut plan: Plan, cte: &ast::Cte) -> SqlResult<Plan> {
        let aliases = &cte.alias.columns;
        if aliases.len() > plan.columns.len() {
            let error = SqlError::new(
                SqlState::INVALID_COLUMN_REFERENCE,
                format!(
                    "WITH query \"{}\" has {} columns available but {} columns specified",
                    ident_name(&cte.alias.name),
                    plan.columns.len(),
                    aliases.len()
                ),
            );
            return Err(self.at(error, cte.alias.name.span));
        }
        for (column, alias) in plan.columns.iter_mut().zip(aliases) {
            column.name = (&*ident_name(&alias.name)).into();
        }
        Ok(plan)
    }

    fn bind_recursive(
        &self,
        cte: &ast::Cte,
        name: &str,
        number: usize,
        parts: RecursiveParts<'_>,
        env: Env<'_>,
    ) -> SqlResult<Plan> {
        if cte.query.order_by.is_some() || cte.query.limit_clause.is_some() || cte.query.with.is_some() {
            return Err(SqlError::unsupported("ORDER BY, LIMIT or WITH in a recursive query"));
        }
        let base = self.bind_set_expr(parts.base, env, QueryOptions::default())?;
        let base = self.alias_columns(base, cte)?;
        let columns = base.columns.clone();
        let frame = CteFrame {
            parent: env.ctes,
            name: name.to_string(),
            number,
            columns: columns.clone(),
            silent: false,
        };
        let inner = Env { outer: env.outer, ctes: Some(&frame) };
        let step = self.bind_set_expr(parts.step, inner, QueryOptions { settle_types: false })?;
        if step.columns.len() != columns.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "each UNION query must have the same number of columns",
            ));
        }
        for (index, (have, want)) in step.columns.iter().zip(&columns).enumerate() {
            let common = sql_types::cast::common_type(&[want.ty.ty, have.ty.ty]);
            if common.is_some_and(|common| common != want.ty.ty) {
                return Err(SqlError::new(
                    SqlState::DATATYPE_MISMATCH,
                    format!(
                        "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                        index + 1,
                        want.ty.ty,
                        have.ty.ty
                    ),
                )
                .with_hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        let step = self.cast_output(step, &columns)?;
        let kind =
            PlanKind::Recursive { cte: number, base: Box::new(base), step: Box::new(step), all: parts.all };
        Ok(Plan::new(kind, columns))
    }
}

/// The two terms of a recursive query.
struct RecursiveParts<'q> {
    base: &'q SetExpr,
    step: &'q SetExpr,
    all: bool,
}

/// Takes a query apart if it is a UNION whose right term names itself.
fn recursion<'q>(cte: &'q ast::Cte, name: &str) -> Option<RecursiveParts<'q>> {
    let mut body = cte.query.body.as_ref();
    while let SetExpr::Query(inner) = body {
        if inner.with.is_some() || inner.order_by.is_some() || inner.limit_clause.is_some() {
            return None;
        }
        body = inner.body.as_ref();
    }
    let SetExpr::SetOperation { left, op: SetOperator::Union, set_quantifier, right } = body else {
        return None;
    };
    mentions(right, name).then_some(RecursiveParts {
        base: left,
        step: right,
        all: *set_quantifier == SetQuantifier::All,
    })
}

/// Whether a term reads a table of that name, at any depth that its text shows.
fn mentions(body: &SetExpr, name: &str) -> bool {
    body.to_string()
        .to_ascii_lowercase()
        .split(|character: char| !(character.is_alphanumeric() || character == '_'))
        .any(|word| word == name.to_ascii_lowercase())
}
