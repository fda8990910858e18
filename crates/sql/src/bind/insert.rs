//! INSERT.

use super::assign::Target;
use super::context::{Clause, ExprContext, Virtual};
use super::expr::span_of;
use super::lookup::RelationRef;
use super::names::{ident_name, qualified, relation};
use super::query::QueryOptions;
use super::rows::Rows;
use super::scope::{Relation, Scope, ScopeColumn};
use super::select::OutputItem;
use super::values::{BoundRow, values_plan};
use super::{Binder, Env};
use crate::catalog::descriptor::{
    ColumnDescriptor, ColumnId, EXPRESSION, IndexDescriptor, IndexId, TableDescriptor,
};
use crate::optimize::fold::fold_expr;
use crate::optimize::implies::{implied, normal};
use crate::parse::markers::{INFERENCE, INFERENCE_PART, INFERENCE_WHERE};
use crate::plan::{ConflictUpdate, Expr, OnConflict, Plan, PlanColumn, PlanKind, RowPolicies, SubPlan};
use crate::table::bound_index;
use sql_types::{Datum, SqlError, SqlResult, SqlState, Type};
use sqlparser::ast::{self, ConflictTarget, ObjectName, OnConflictAction, OnInsert, SetExpr};
use std::sync::Arc;

impl Binder<'_> {
    pub(crate) fn bind_insert(&self, insert: &ast::Insert, env: Env<'_>) -> SqlResult<Plan> {
        refuse_foreign(insert)?;
        let ast::TableObject::TableName(name) = &insert.table else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT needs the name of a table"));
        };
        let table = self.target_table(name, "insert into")?;
        let (columns, explicit) = self.insert_columns(insert, &table)?;
        let (input, targets) = self.insert_source(insert, columns, explicit, env)?;
        let (input, targets) = self.join_elements(input, targets, env)?;
        let (input, targets) = self.drop_identities(input, targets, &table)?;
        let alias = insert.table_alias.as_ref().map(|alias| ident_name(&alias.alias).into_owned());
        let on_conflict = match &insert.on {
            None => None,
            Some(OnInsert::OnConflict(clause)) => {
                Some(self.bind_on_conflict(clause, &table, alias.as_deref(), env)?)
            }
            Some(_) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"DUPLICATE\""));
            }
        };
        let reads = insert.returning.is_some()
            || on_conflict.as_ref().is_some_and(|conflict| conflict.arbiter.is_some());
        let updates = on_conflict.as_ref().is_some_and(|conflict| conflict.update.is_some());
        let policies = self.insert_policies(&table, reads, updates)?;
        let plan = self.insert_plan(table.clone(), input, targets, on_conflict, policies)?;
        let Some(returning) = &insert.returning else { return Ok(plan) };
        let mut scope = Scope { parent: env.outer, ..Scope::default() };
        add_table(&mut scope, &table, alias.as_deref().unwrap_or(&table.name), 0, true);
        if updates {
            add_xmax(&mut scope, &table);
        }
        self.bind_returning(plan, returning, &scope, env)
    }

    /// The table a statement changes.
    pub(crate) fn target_table(&self, name: &ObjectName, action: &str) -> SqlResult<Arc<TableDescriptor>> {
        let written = relation(name)?;
        match self.find_relation(name)? {
            RelationRef::Table(table) if table.view.is_some() => Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("cannot change materialized view \"{}\"", written.name),
            )),
            RelationRef::Table(table) => Ok(table),
            RelationRef::View(_) => Err(SqlError::new(
                SqlState::OBJECT_STATE,
                format!("cannot {action} view \"{}\"", written.name),
            )
            .with_detail("Views are not updatable here.")),
            RelationRef::System(_) => Err(SqlError::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                format!("permission denied for table {}", written.name),
            )),
            RelationRef::Sequence(..) | RelationRef::Other(_) => Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("cannot {action} relation \"{}\"", written.name),
            )),
        }
    }

    /// The columns and elements named, or all columns; and whether they were named.
    fn insert_columns<'t>(
        &self,
        insert: &'t ast::Insert,
        table: &'t TableDescriptor,
    ) -> SqlResult<(Vec<Target<'t>>, bool)> {
        if insert.columns.is_empty() {
            return Ok((all_columns(table), false));
        }
        Ok((self.named_targets(&insert.columns, table)?, true))
    }

    /// What the names of columns and elements stand for.
    pub(crate) fn named_targets<'t>(
        &self,
        names: &'t [ObjectName],
        table: &'t TableDescriptor,
    ) -> SqlResult<Vec<Target<'t>>> {
        let mut targets = Vec::with_capacity(names.len());
        for name in names {
            targets.push(self.target(name, table, &targets)?);
        }
        Ok(targets)
    }

    /// A column to be written, which must not be among those already given.
    pub(crate) fn target_column<'t>(
        &self,
        name: &ObjectName,
        table: &'t TableDescriptor,
        given: &[ColumnId],
    ) -> SqlResult<&'t ColumnDescriptor> {
        let written = relation(name)?;
        let column =
            table.columns.iter().find(|column| column.name == *written.name && written.schema.is_none());
        let Some(column) = column else {
            let error = SqlError::new(
                SqlState::UNDEFINED_COLUMN,
                format!("column \"{}\" of relation \"{}\" does not exist", written.written(), table.name),
            );
            return Err(self.at(error, written.span));
        };
        if given.contains(&column.id) {
            let error = SqlError::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{}\" specified more than once", column.name),
            );
            return Err(self.at(error, written.span));
        }
        Ok(column)
    }

    /// The rows to insert, one value per target returned.
    fn insert_source<'t>(
        &self,
        insert: &ast::Insert,
        mut targets: Vec<Target<'t>>,
        explicit: bool,
        env: Env<'_>,
    ) -> SqlResult<(Plan, Vec<Target<'t>>)> {
        let Some(source) = &insert.source else { return Ok((Plan::one_row(), Vec::new())) };
        if let (SetExpr::Values(values), true) = (source.body.as_ref(), is_plain(source)) {
            let expanded = self.expand_values(values)?;
            let values = expanded.as_ref().unwrap_or(values);
            return self.insert_values(values, targets, explicit, env);
        }
        let plan = self.bind_query_with(source, env, QueryOptions { settle_types: false })?;
        check_count(plan.columns.len(), &mut targets, explicit)?;
        let unchanged = |(have, target): (&PlanColumn, &Target<'_>)| {
            target.subscripts.is_empty() && have.ty == target.column.ty
        };
        if plan.columns.iter().zip(&targets).all(unchanged) {
            return Ok((plan, targets));
        }
        // What goes to an element is cast where the element is assigned.
        let outputs = plan.columns.iter().zip(&targets).map(|(have, target)| match target.subscripts {
            [] => PlanColumn::new(target.column.name.as_str(), target.column.ty),
            _ => have.clone(),
        });
        let outputs = outputs.collect();
        let plan =
            self.project_output(plan, outputs, |binder, index, expr| match targets[index].subscripts {
                [] => binder.coerce_for_target(expr, targets[index]),
                _ => Ok(expr),
            })?;
        Ok((plan, targets))
    }

    fn insert_values<'t>(
        &self,
        values: &ast::Values,
        mut targets: Vec<Target<'t>>,
        explicit: bool,
        env: Env<'_>,
    ) -> SqlResult<(Plan, Vec<Target<'t>>)> {
        let width = values.rows.first().map_or(0, |row| row.content.len());
        if values.rows.iter().any(|row| row.content.len() != width) {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
        }
        check_count(width, &mut targets, explicit)?;
        // A column that is DEFAULT in every row counts as not given.
        let given = |index: usize| {
            !targets[index].subscripts.is_empty()
                || !values.rows.iter().all(|row| is_default(&row.content[index]))
        };
        let kept: Vec<usize> = (0..width).filter(|index| given(*index)).collect();
        let scope = Scope { parent: env.outer, ..Scope::default() };
        let mut rows = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            let mut context = ExprContext::new(&scope, env.ctes, Clause::Values);
            let mut exprs = Vec::with_capacity(kept.len());
            for index in &kept {
                exprs.push(self.bind_for_target(&row.content[*index], targets[*index], &mut context)?);
            }
            rows.push(BoundRow { exprs, subplans: context.subplans });
        }
        let output = |index: &usize| {
            let target = targets[*index];
            Ok(PlanColumn::new(target.column.name.as_str(), target.ty()?))
        };
        let outputs = kept.iter().map(output).collect::<SqlResult<_>>()?;
        let targets = kept.iter().map(|index| targets[*index]).collect();
        Ok((values_plan(rows, outputs)?, targets))
    }

    /// Makes whole values of those for elements, which begin with NULL.
    fn join_elements(
        &self,
        input: Plan,
        targets: Vec<Target<'_>>,
        env: Env<'_>,
    ) -> SqlResult<(Plan, Vec<ColumnId>)> {
        if targets.iter().all(|target| target.subscripts.is_empty()) {
            return Ok((input, targets.iter().map(|target| target.column.id).collect()));
        }
        let scope = Scope { parent: env.outer, ..Scope::default() };
        let mut context = ExprContext::new(&scope, env.ctes, Clause::Values);
        let mut joined: Vec<(ColumnId, OutputItem)> = Vec::new();
        for (index, target) in targets.into_iter().enumerate() {
            let Some(column) = input.columns.get(index) else {
                return Err(SqlError::internal("a column of an INSERT is missing"));
            };
            let value = Expr::Column(index, column.ty.ty);
            let (id, ty) = (target.column.id, target.column.ty);
            let name = target.column.name.as_str();
            if target.subscripts.is_empty() {
                joined.push((id, OutputItem { expr: value, column: PlanColumn::new(name, ty) }));
                continue;
            }
            let value = self.coerce_for_target(value, target)?;
            let before = joined.iter().position(|(known, _)| *known == id);
            let container = match before {
                Some(before) => joined.swap_remove(before).1.expr,
                None => Expr::Const(Datum::Null, ty.ty),
            };
            let expr = self.with_element(container, target.subscripts, value, &mut context)?;
            joined.push((id, OutputItem { expr, column: PlanColumn::new(name, ty) }));
        }
        let (ids, items): (Vec<_>, Vec<_>) = joined.into_iter().unzip();
        let mut rows = Rows::new(input);
        rows.set_subplans(context.subplans);
        super::select::project(&mut rows, items)?;
        Ok((rows.into_plan(), ids))
    }

    /// A value for a column, which may be DEFAULT.
    pub(crate) fn bind_assigned(
        &self,
        expr: &ast::Expr,
        column: &ColumnDescriptor,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if is_default(expr) {
            return self.default_in(column, context);
        }
        let bound = self.bind_expr(expr, context)?;
        self.coerce_for_column(bound, column.ty, &column.name).map_err(|error| self.at(error, span_of(expr)))
    }

    /// The default of a column, with its sub-plans added to the context.
    pub(crate) fn default_in(
        &self,
        column: &ColumnDescriptor,
        context: &mut ExprContext<'_>,
    ) -> SqlResult<Expr> {
        if let (Some(_), Some(sequence)) = (column.identity, column.sequence)
            && column.default.is_none()
        {
            let sequence = Expr::Const(Datum::Oid(sequence), Type::REGCLASS);
            let next = context.add_subplan(SubPlan::NextVal(sequence), false, Type::INT8);
            return self.coerce_for_column(next, column.ty, &column.name);
        }
        if column.generated.is_some() {
            return Ok(super::table_expr::null_of(column));
        }
        let Some(text) = super::table_expr::default_of(column, self.context) else {
            return Ok(super::table_expr::null_of(column));
        };
        let (mut expr, subplans) = self.default_expr(&text, column)?;
        let base = context.subplans.len();
        expr.replace(&mut |part| match part {
            Expr::Column(index, ty) => match Virtual::of(*index) {
                Some(Virtual::Sub(sub)) => Some(Virtual::Sub(base + sub).column(*ty)),
                _ => None,
            },
            _ => None,
        });
        context.subplans.extend(subplans);
        Ok(expr)
    }

    /// `GENERATED ALWAYS` columns take values only with OVERRIDING SYSTEM VALUE; with OVERRIDING
    /// USER VALUE the values given are ignored.
    fn drop_identities(
        &self,
        input: Plan,
        targets: Vec<ColumnId>,
        table: &TableDescriptor,
    ) -> SqlResult<(Plan, Vec<ColumnId>)> {
        self.check_given(&targets, table)?;
        let overridden = |id: ColumnId| table.column(id).is_some_and(|column| self.is_overridden(column));
        let kept: Vec<usize> =
            (0..targets.len()).filter(|position| !overridden(targets[*position])).collect();
        if kept.len() == targets.len() {
            return Ok((input, targets));
        }
        let columns: Vec<PlanColumn> = kept.iter().map(|position| input.columns[*position].clone()).collect();
        let exprs =
            kept.iter().map(|position| Expr::Column(*position, input.columns[*position].ty.ty)).collect();
        let ids = kept.iter().map(|position| targets[*position]).collect();
        Ok((Plan::new(PlanKind::Project { input: Box::new(input), exprs }, columns), ids))
    }

    /// Whether OVERRIDING USER VALUE has a value given for a column ignored.
    pub(crate) fn is_overridden(&self, column: &ColumnDescriptor) -> bool {
        self.overriding == Some(false) && column.identity.is_some()
    }

    /// 428C9 for values given to columns that make their own.
    pub(crate) fn check_given(&self, targets: &[ColumnId], table: &TableDescriptor) -> SqlResult<()> {
        for column in targets.iter().filter_map(|id| table.column(*id)) {
            let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name);
            let error = SqlError::new(SqlState::GENERATED_ALWAYS, message);
            if column.generated.is_some() {
                return Err(error.with_detail(is_generated(column)));
            }
            if column.identity == Some('a') && self.overriding.is_none() {
                let detail =
                    format!("Column \"{}\" is an identity column defined as GENERATED ALWAYS.", column.name);
                return Err(error.with_detail(detail).with_hint("Use OVERRIDING SYSTEM VALUE to override."));
            }
        }
        Ok(())
    }

    /// The operator, with the defaults of the columns not given. Defaults that draw from sequences are
    /// computed in the input.
    pub(crate) fn insert_plan(
        &self,
        table: Arc<TableDescriptor>,
        input: Plan,
        mut targets: Vec<ColumnId>,
        on_conflict: Option<OnConflict>,
        policies: Option<Box<RowPolicies>>,
    ) -> SqlResult<Plan> {
        let scope = Scope::default();
        let mut context = ExprContext::new(&scope, None, Clause::Default);
        let (mut defaults, mut computed) = (Vec::new(), Vec::new());
        for column in &table.columns {
            if targets.contains(&column.id) || column.hidden {
                continue;
            }
            let before = context.subplans.len();
            let expr = self.default_in(column, &mut context)?;
            if context.subplans.len() > before {
                computed.push((column, expr));
            } else if !matches!(expr, Expr::Const(Datum::Null, _)) {
                defaults.push((column.id, expr));
            }
        }
        let mut rows = Rows::new(input);
        if !computed.is_empty() {
            rows.set_subplans(context.subplans);
            let mut items: Vec<OutputItem> = rows
                .columns()
                .into_iter()
                .enumerate()
                .map(|(index, column)| OutputItem { expr: Expr::Column(index, column.ty.ty), column })
                .collect();
            for (column, expr) in computed {
                targets.push(column.id);
                items.push(OutputItem { expr, column: PlanColumn::new(column.name.as_str(), column.ty) });
            }
            super::select::project(&mut rows, items)?;
        }
        let checks = self.checks(&table)?;
        let kind = PlanKind::Insert {
            table,
            input: Box::new(rows.into_plan()),
            targets,
            defaults,
            checks,
            on_conflict,
            returning: None,
            policies,
        };
        Ok(Plan::new(kind, Vec::new()))
    }

    fn bind_on_conflict(
        &self,
        clause: &ast::OnConflict,
        table: &Arc<TableDescriptor>,
        alias: Option<&str>,
        env: Env<'_>,
    ) -> SqlResult<OnConflict> {
        let arbiter = match &clause.conflict_target {
            None => match table.indexes.iter().any(|index| index.timing.deferrable) {
                true => return Err(deferrable_arbiter()),
                false => None,
            },
            Some(ConflictTarget::Columns(names)) => Some(self.arbiter_of_columns(names, table)?),
            Some(ConflictTarget::OnConstraint(name)) => Some(match inference_of(name) {
                Some(inference) => self.arbiter_of_inference(inference, table)?,
                None => self.arbiter_by_name(name, table)?,
            }),
        };
        let update = match &clause.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(update) => {
                if arbiter.is_none() {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                    )
                    .with_hint("For example, ON CONFLICT (column_name)."));
                }
                let mut scope = Scope { parent: env.outer, ..Scope::default() };
                add_table(&mut scope, table, alias.unwrap_or(&table.name), 0, true);
                add_table(&mut scope, table, "excluded", table.columns.len(), false);
                Some(self.bind_conflict_update(update, table, &scope, env)?)
            }
        };
        Ok(OnConflict { arbiter, update })
    }

    /// DO UPDATE, in the scope of the row that is there and the one that was to be inserted.
    fn bind_conflict_update(
        &self,
        update: &ast::DoUpdate,
        table: &Arc<TableDescriptor>,
        both: &Scope<'_>,
        env: Env<'_>,
    ) -> SqlResult<ConflictUpdate> {
        let bind = |context: &mut ExprContext<'_>| {
            let assignments = self.bind_assignments(&update.assignments, table, context)?;
            let selection = update.selection.as_ref();
            let condition = selection.map(|selection| self.bind_condition(selection, context, "WHERE"));
            Ok::<_, SqlError>((assignments, condition.transpose()?))
        };
        let mut context = ExprContext::new(both, env.ctes, Clause::OnConflict);
        let (assignments, condition) = bind(&mut context)?;
        if context.subplans.is_empty() {
            return Ok(ConflictUpdate::Row { assignments, condition });
        }
        // Subqueries need a plan around them, for which the two rows are an outer one.
        let scope = Scope { parent: Some(both), ..Scope::default() };
        let mut context = ExprContext::new(&scope, env.ctes, Clause::OnConflict);
        let (assignments, condition) = bind(&mut context)?;
        let mut rows = Rows::new(Plan::one_row());
        rows.set_subplans(context.subplans);
        if let Some(condition) = condition {
            rows.filter(condition)?;
        }
        let item = |(id, expr): (ColumnId, Expr)| {
            let column = table.column(id).map_or("?column?", |column| &column.name);
            let column = PlanColumn::new(column, expr.ty());
            (id, OutputItem { expr, column })
        };
        let (targets, items): (Vec<_>, Vec<_>) = assignments.into_iter().map(item).unzip();
        super::select::project(&mut rows, items)?;
        Ok(ConflictUpdate::Query { targets, row: Arc::new(rows.into_plan()) })
    }

    fn arbiter_of_columns(&self, names: &[ast::Ident], table: &TableDescriptor) -> SqlResult<IndexId> {
        let mut wanted = Vec::with_capacity(names.len());
        for name in names {
            let folded = ident_name(name);
            let column = table.columns.iter().find(|column| column.name == *folded).ok_or_else(|| {
                let error =
                    SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{folded}\" does not exist"));
                self.at(error, name.span)
            })?;
            wanted.push(column.id);
        }
        wanted.sort_unstable();
        wanted.dedup();
        table
            .indexes
            .iter()
            .find(|index| {
                let mut columns: Vec<ColumnId> = index.columns.iter().map(|(id, _)| *id).collect();
                columns.sort_unstable();
                index.is_key() && columns == wanted
            })
            .map(|index| index.id)
            .ok_or_else(|| {
                let deferrable = |index: &IndexDescriptor| {
                    index.unique
                        && index.timing.deferrable
                        && index.columns.len() == wanted.len()
                        && index.columns.iter().all(|(id, _)| wanted.contains(id))
                };
                if table.indexes.iter().any(deferrable) { deferrable_arbiter() } else { no_arbiter() }
            })
    }

    /// The unique index over columns and expressions, as the tokens' rewriting wrote them. A partial index needs a
    /// predicate that implies its own.
    fn arbiter_of_inference(&self, inference: &str, table: &Arc<TableDescriptor>) -> SqlResult<IndexId> {
        let (parts, predicate) = match inference.split_once(INFERENCE_WHERE) {
            Some((parts, predicate)) => (parts, Some(predicate)),
            None => (inference, None),
        };
        let (mut columns, mut exprs) = (Vec::new(), Vec::new());
        for part in parts.split(INFERENCE_PART).skip(1) {
            let mut bound = super::bind_index_expr(part, table, self.context)?;
            fold_expr(&mut bound);
            match bound {
                Expr::Column(position, _) => columns.extend(table.columns.get(position).map(|c| c.id)),
                expr => exprs.push(normal(&expr)),
            }
        }
        columns.sort_unstable();
        columns.dedup();
        let given = match predicate {
            None => Vec::new(),
            Some(text) => {
                let mut bound = super::bind_index_predicate(text, table, self.context)?;
                fold_expr(&mut bound);
                bound.into_conjuncts().iter().map(normal).collect()
            }
        };
        let may_arbitrate =
            |index: &&IndexDescriptor| index.unique && !index.timing.deferrable && index.is_public();
        for index in table.indexes.iter().filter(may_arbitrate) {
            let mut own: Vec<ColumnId> = index.columns.iter().map(|(id, _)| *id).collect();
            own.retain(|id| *id != EXPRESSION);
            own.sort_unstable();
            let bound = if index.is_plain() { None } else { bound_index(table, index.id)? };
            let bound = bound.as_deref().cloned().unwrap_or_default();
            let keys: Vec<Expr> = bound.columns.iter().flatten().map(normal).collect();
            let same = own == columns
                && keys.len() == exprs.len()
                && keys.iter().all(|key| exprs.iter().any(|expr| expr.same(key)))
                && exprs.iter().all(|expr| keys.iter().any(|key| expr.same(key)));
            if same && bound.conditions.iter().all(|condition| implied(&normal(condition), &given)) {
                return Ok(index.id);
            }
        }
        Err(no_arbiter())
    }

    fn arbiter_by_name(&self, name: &ObjectName, table: &TableDescriptor) -> SqlResult<IndexId> {
        let written = qualified(name)?;
        table
            .indexes
            .iter()
            .find(|index| index.unique && index.constraint && index.name == *written.name)
            .map(|index| if index.timing.deferrable { Err(deferrable_arbiter()) } else { Ok(index.id) })
            .transpose()?
            .ok_or_else(|| {
                let error = SqlError::new(
                    SqlState::UNDEFINED_OBJECT,
                    format!("constraint \"{}\" for table \"{}\" does not exist", written.name, table.name),
                );
                self.at(error, written.span)
            })
    }

    /// RETURNING: within the operator, or above it if it needs more than the row.
    pub(crate) fn bind_returning(
        &self,
        mut plan: Plan,
        returning: &[ast::SelectItem],
        scope: &Scope<'_>,
        env: Env<'_>,
    ) -> SqlResult<Plan> {
        let mut context = ExprContext::new(scope, env.ctes, Clause::Returning);
        let items = self.bind_items(returning, &mut context, QueryOptions::default())?;
        if context.subplans.is_empty() {
            let (exprs, columns): (Vec<Expr>, Vec<PlanColumn>) =
                items.into_iter().map(|item| (item.expr, item.column)).unzip();
            set_returning(&mut plan, exprs);
            plan.columns = columns;
            return Ok(plan);
        }
        let mut all: Vec<(usize, PlanColumn)> = scope
            .columns
            .iter()
            .filter_map(|column| match column.expr {
                Expr::Column(index, _) => Some((index, OutputItem::of_column(column).column)),
                _ => None,
            })
            .collect();
        all.sort_by_key(|(index, _)| *index);
        all.dedup_by_key(|(index, _)| *index);
        set_returning(
            &mut plan,
            all.iter().map(|(index, column)| Expr::Column(*index, column.ty.ty)).collect(),
        );
        plan.columns = all.into_iter().map(|(_, column)| column).collect();
        let mut rows = Rows::new(plan);
        rows.set_subplans(context.subplans);
        super::select::project(&mut rows, items)?;
        Ok(rows.into_plan())
    }
}

/// Why a column takes no values.
pub(super) fn is_generated(column: &ColumnDescriptor) -> String {
    format!("Column \"{}\" is a generated column.", column.name)
}

/// What an inference was written as, if the name of a constraint stands for one.
fn inference_of(name: &ObjectName) -> Option<&str> {
    match &name.0[..] {
        [ast::ObjectNamePart::Identifier(ident)] => ident.value.strip_prefix(INFERENCE),
        _ => None,
    }
    .filter(|rest| rest.starts_with(INFERENCE_PART))
}

/// 42P10
fn no_arbiter() -> SqlError {
    SqlError::new(
        SqlState::INVALID_COLUMN_REFERENCE,
        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
    )
}

/// 55000
fn deferrable_arbiter() -> SqlError {
    let message =
        "ON CONFLICT does not support deferrable unique constraints/exclusion constraints as arbiters";
    SqlError::new(SqlState::OBJECT_STATE, message)
}

fn set_returning(plan: &mut Plan, exprs: Vec<Expr>) {
    match &mut plan.kind {
        PlanKind::Insert { returning, .. }
        | PlanKind::Update { returning, .. }
        | PlanKind::Delete { returning, .. } => *returning = Some(exprs),
        _ => {}
    }
}

/// The number of `xmax` among the columns of any table.
const XMAX: i16 = -4;

/// Adds what INSERT with DO UPDATE says behind the columns of a table: whether a row was there before. PostgreSQL locks such a row
/// first, so that its `xmax` is not 0; `RETURNING (xmax = 0)` is how applications ask.
fn add_xmax(scope: &mut Scope<'_>, table: &TableDescriptor) {
    scope.columns.push(ScopeColumn {
        name: Arc::from("xmax"),
        expr: Expr::Column(table.columns.len(), Type::XID),
        ty: Type::XID.into(),
        relation: Some(0),
        visible: true,
        hidden: true,
        table_oid: table.oid,
        attnum: XMAX,
        fields: None,
    });
}

/// Adds the columns of a table at a position of the row.
pub(crate) fn add_table(
    scope: &mut Scope<'_>,
    table: &Arc<TableDescriptor>,
    name: &str,
    base: usize,
    visible: bool,
) {
    let relation = scope.relations.len();
    scope.relations.push(Relation {
        name: Some(Arc::from(name)),
        schema: None,
        table: Some(table.clone()),
        oid: table.oid,
        scalar: false,
    });
    for (index, column) in table.columns.iter().enumerate() {
        scope.columns.push(ScopeColumn {
            name: Arc::from(column.name.as_str()),
            expr: Expr::Column(base + index, column.ty.ty),
            ty: column.ty,
            relation: Some(relation),
            visible,
            hidden: column.hidden,
            table_oid: table.oid,
            attnum: i16::try_from(column.id).unwrap_or(0),
            fields: None,
        });
    }
}

/// Whether a value is the keyword DEFAULT.
pub(super) fn is_default(expr: &ast::Expr) -> bool {
    matches!(expr, ast::Expr::Identifier(ident)
        if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// Whether a query is nothing but its body.
fn is_plain(query: &ast::Query) -> bool {
    query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
}

pub(super) fn check_count(given: usize, targets: &mut Vec<Target<'_>>, explicit: bool) -> SqlResult<()> {
    if given > targets.len() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
    }
    if given < targets.len() {
        if explicit {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "INSERT has more target columns than expressions",
            ));
        }
        targets.truncate(given);
    }
    Ok(())
}

/// All columns of a table, as targets.
pub(super) fn all_columns(table: &TableDescriptor) -> Vec<Target<'_>> {
    let columns = table.columns.iter().filter(|column| !column.hidden);
    columns.map(|column| Target { column, subscripts: &[] }).collect()
}

fn refuse_foreign(insert: &ast::Insert) -> SqlResult<()> {
    let foreign = insert.or.is_some()
        || insert.ignore
        || insert.overwrite
        || insert.replace_into
        || insert.partitioned.is_some()
        || insert.priority.is_some()
        || !insert.assignments.is_empty()
        || insert.insert_alias.is_some()
        || insert.multi_table_insert_type.is_some();
    if foreign || !insert.into {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error in INSERT"));
    }
    Ok(())
}
