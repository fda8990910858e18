//! A stack of operators under construction: gives virtual columns their places.

use super::context::Virtual;
use crate::plan::{Expr, Plan, PlanColumn, PlanKind, ProjectSetItem, SetInvocation, SubPlan, WindowCall};
use sql_types::{SqlError, SqlResult, Type};

/// A plan and where the virtual columns of its expressions are in its row.
pub(crate) struct Rows {
    plan: Plan,
    /// Sub-plans not placed yet.
    waiting: Vec<Option<(SubPlan, bool)>>,
    /// Columns of the sub-plans placed.
    placed: Vec<Option<usize>>,
    /// Column of the first aggregate; groups are before it, from column 0.
    aggregates: Option<usize>,
    /// Column of the bit mask of GROUPING.
    mask: Option<usize>,
    /// Column of the first window call.
    windows: Option<usize>,
    /// Columns of the set-returning calls.
    sets: Vec<Option<usize>>,
}

impl Rows {
    pub(crate) fn new(plan: Plan) -> Self {
        Rows {
            plan,
            waiting: Vec::new(),
            placed: Vec::new(),
            aggregates: None,
            mask: None,
            windows: None,
            sets: Vec::new(),
        }
    }

    pub(crate) fn into_plan(self) -> Plan {
        self.plan
    }

    pub(crate) fn width(&self) -> usize {
        self.plan.columns.len()
    }

    /// Sub-plans that the expressions to be placed refer to.
    pub(crate) fn set_subplans(&mut self, subplans: Vec<(SubPlan, bool)>) {
        self.placed = vec![None; subplans.len()];
        self.waiting = subplans.into_iter().map(Some).collect();
    }

    /// The sub-plans not placed yet, to change them.
    pub(crate) fn waiting_mut(&mut self) -> &mut Vec<Option<(SubPlan, bool)>> {
        &mut self.waiting
    }

    /// After an aggregation, nothing below can be referred to any more: a sub-plan placed there is
    /// gone.
    pub(crate) fn set_aggregation(&mut self, aggregates: usize, mask: Option<usize>) {
        self.aggregates = Some(aggregates);
        self.mask = mask;
        self.placed.iter_mut().for_each(|place| *place = None);
    }

    /// Stacks an operator on the plan.
    pub(crate) fn stack(&mut self, columns: Vec<PlanColumn>, kind: impl FnOnce(Box<Plan>) -> PlanKind) {
        let input = std::mem::replace(&mut self.plan, Plan::one_row());
        self.plan = Plan::new(kind(Box::new(input)), columns);
    }

    /// The columns of the plan.
    pub(crate) fn columns(&self) -> Vec<PlanColumn> {
        self.plan.columns.clone()
    }

    /// Keeps rows that satisfy a predicate over (virtual and real) columns.
    pub(crate) fn filter(&mut self, predicate: Expr) -> SqlResult<()> {
        let predicate = self.place(predicate)?;
        let columns = self.columns();
        self.stack(columns, |input| PlanKind::Filter { input, predicate });
        Ok(())
    }

    /// An expression over the plan's row, in which virtual columns have become real ones. Sub-plans
    /// it needs are stacked on the plan.
    pub(crate) fn place(&mut self, mut expr: Expr) -> SqlResult<Expr> {
        let mut needed = Vec::new();
        expr.columns(&mut |index| {
            if let Some(Virtual::Sub(sub)) = Virtual::of(index) {
                needed.push(sub);
            }
        });
        for sub in needed {
            self.apply(sub)?;
        }
        let mut missing = false;
        expr.replace(&mut |part| match part {
            Expr::Column(index, ty) => {
                let virtual_column = Virtual::of(*index)?;
                let position = self.position(virtual_column);
                missing |= position.is_none();
                position.map(|position| Expr::Column(position, *ty))
            }
            _ => None,
        });
        if missing {
            return Err(SqlError::internal("an expression refers to a column that is not computed"));
        }
        Ok(expr)
    }

    fn position(&self, column: Virtual) -> Option<usize> {
        match column {
            Virtual::Aggregate(number) => self.aggregates.map(|first| first + number),
            Virtual::Window(number) => self.windows.map(|first| first + number),
            Virtual::Sub(sub) => self.placed.get(sub).copied().flatten(),
            Virtual::Set(set) => self.sets.get(set).copied().flatten(),
            Virtual::SubRow(number) => Some(self.width() + number),
            Virtual::Group(number) => Some(number),
            Virtual::GroupingMask => self.mask,
        }
    }

    /// Stacks a sub-plan, unless it is there already.
    fn apply(&mut self, sub: usize) -> SqlResult<()> {
        if self.placed.get(sub).copied().flatten().is_some() {
            return Ok(());
        }
        let Some((mut subplan, cached)) = self.waiting.get_mut(sub).and_then(Option::take) else {
            return Err(SqlError::internal("a subquery is used where it cannot be computed"));
        };
        // What its own expressions need comes first; only then is the width of the row final.
        let mut needed = Vec::new();
        subplan.for_each_expr_mut(&mut |expr| {
            expr.columns(&mut |index| {
                if let Some(Virtual::Sub(inner)) = Virtual::of(index) {
                    needed.push(inner);
                }
            });
        });
        for inner in needed {
            self.apply(inner)?;
        }
        let mut failure = None;
        subplan.for_each_expr_mut(&mut |expr| match self
            .place(std::mem::replace(expr, super::bool_const(false)))
        {
            Ok(placed) => *expr = placed,
            Err(error) => failure = Some(error),
        });
        if let Some(error) = failure {
            return Err(error);
        }
        self.placed[sub] = Some(self.width());
        let ty = subplan_type(&subplan);
        let mut columns = self.columns();
        columns.push(PlanColumn::new("?column?", ty));
        self.stack(columns, |input| PlanKind::Apply { input, subplans: vec![(subplan, cached)] });
        Ok(())
    }

    /// Stacks the window calls.
    pub(crate) fn window(&mut self, calls: Vec<WindowCall>) -> SqlResult<()> {
        if calls.is_empty() {
            return Ok(());
        }
        let mut placed = Vec::with_capacity(calls.len());
        for mut call in calls {
            let mut failure = None;
            call.for_each_expr_mut(&mut |expr| match self
                .place(std::mem::replace(expr, super::bool_const(false)))
            {
                Ok(done) => *expr = done,
                Err(error) => failure = Some(error),
            });
            if let Some(error) = failure {
                return Err(error);
            }
            placed.push(call);
        }
        self.windows = Some(self.width());
        let mut columns = self.columns();
        columns.extend(placed.iter().map(|call| PlanColumn::new("?column?", call.ty)));
        self.stack(columns, |input| PlanKind::Window { input, calls: placed });
        Ok(())
    }

    /// Stacks the set-returning calls; one that takes the result of another one comes above it.
    pub(crate) fn sets(&mut self, calls: Vec<SetInvocation>) -> SqlResult<()> {
        self.sets = vec![None; calls.len()];
        let mut waiting: Vec<(usize, SetInvocation)> = calls.into_iter().enumerate().collect();
        while !waiting.is_empty() {
            let (ready, later): (Vec<_>, Vec<_>) =
                waiting.into_iter().partition(|(_, call)| call.args.iter().all(|arg| self.has_sets(arg)));
            if ready.is_empty() {
                return Err(SqlError::internal("set-returning calls depend on each other"));
            }
            self.stack_sets(ready)?;
            waiting = later;
        }
        Ok(())
    }

    fn has_sets(&self, arg: &Expr) -> bool {
        let mut all = true;
        arg.columns(&mut |index| {
            if let Some(Virtual::Set(set)) = Virtual::of(index) {
                all &= self.sets.get(set).copied().flatten().is_some();
            }
        });
        all
    }

    fn stack_sets(&mut self, calls: Vec<(usize, SetInvocation)>) -> SqlResult<()> {
        let mut placed = Vec::with_capacity(calls.len());
        for (number, mut call) in calls {
            let args = std::mem::take(&mut call.args);
            call.args = args.into_iter().map(|arg| self.place(arg)).collect::<SqlResult<_>>()?;
            placed.push((number, call));
        }
        let mut columns = self.columns();
        let mut exprs: Vec<ProjectSetItem> = columns
            .iter()
            .enumerate()
            .map(|(index, column)| ProjectSetItem::Scalar(Expr::Column(index, column.ty.ty)))
            .collect();
        for (number, call) in placed {
            self.sets[number] = Some(exprs.len());
            columns.push(set_column(&call));
            exprs.push(ProjectSetItem::Set(call));
        }
        self.stack(columns, |input| PlanKind::ProjectSet { input, exprs });
        Ok(())
    }
}

/// The column of a set-returning call in a select list.
fn set_column(call: &SetInvocation) -> PlanColumn {
    match &call.columns[..] {
        [(name, ty)] => PlanColumn::new(name.as_str(), *ty),
        columns => {
            let mut column = PlanColumn::new(call.function.name, Type::RECORD);
            column.fields = Some(
                columns
                    .iter()
                    .map(|(name, ty)| sql_types::RecordField { name: name.clone(), ty: *ty })
                    .collect(),
            );
            column
        }
    }
}

fn subplan_type(subplan: &SubPlan) -> Type {
    match subplan {
        SubPlan::Scalar(plan) => plan.columns.first().map_or(Type::TEXT, |column| column.ty.ty),
        SubPlan::Array(plan) => {
            plan.columns.first().and_then(|column| column.ty.ty.array()).unwrap_or(Type::TEXT_ARRAY)
        }
        SubPlan::Exists(_) | SubPlan::Quantified { .. } => Type::BOOL,
        SubPlan::NextVal(_) | SubPlan::SetVal(..) => Type::INT8,
        SubPlan::Call(function, _) => function.returns,
        SubPlan::Routine(routine, _) => routine.value_type(),
    }
}
