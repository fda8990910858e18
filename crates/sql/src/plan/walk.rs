//! Walks over plans and expressions: children, references, equality, volatility.

use super::expr::{FrameBound, SubscriptRange, WindowFrame, WindowKind};
use super::{
    AggregateCall, ConflictUpdate, Expr, IndexAccess, JoinMethod, MergeAction, OnConflict, Plan, PlanKind,
    ProjectSetItem, SortKey, SubPlan, WindowCall,
};
use sql_types::functions::Volatility;
use sql_types::{Datum, Type};
use std::sync::Arc;

impl SubscriptRange {
    fn for_each_end<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        match self {
            SubscriptRange::Index(index) => f(index),
            SubscriptRange::Slice(from, to) => from.iter().chain(to).for_each(f),
        }
    }

    fn for_each_end_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        match self {
            SubscriptRange::Index(index) => f(index),
            SubscriptRange::Slice(from, to) => from.iter_mut().chain(to).for_each(f),
        }
    }
}

impl Expr {
    /// Calls `f` on every direct operand.
    pub fn for_each_child<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        match self {
            Expr::Const(..) | Expr::Param(..) | Expr::Column(..) | Expr::Outer { .. } => {}
            Expr::Call { args, .. }
            | Expr::And(args)
            | Expr::Or(args)
            | Expr::Coalesce(args, _)
            | Expr::Array(args, _)
            | Expr::Record(args, _) => args.iter().for_each(f),
            Expr::Cast { expr, .. }
            | Expr::Not(expr)
            | Expr::IsNull(expr, _)
            | Expr::Field(expr, _, _)
            | Expr::Domain(expr, _) => f(expr),
            Expr::IsDistinct(left, right, _) => {
                f(left);
                f(right);
            }
            Expr::Case { branches, otherwise, .. } => {
                for (condition, result) in branches {
                    f(condition);
                    f(result);
                }
                if let Some(otherwise) = otherwise {
                    f(otherwise);
                }
            }
            Expr::InList(expr, list, _) => {
                f(expr);
                list.iter().for_each(f);
            }
            Expr::AnyArray { expr, array, .. } => {
                f(expr);
                f(array);
            }
            Expr::Subscript(expr, subscripts, _) => {
                f(expr);
                subscripts.iter().for_each(|subscript| subscript.for_each_end(f));
            }
            Expr::SubscriptAssign(expr, subscripts, value, _) => {
                f(expr);
                subscripts.iter().for_each(|subscript| subscript.for_each_end(f));
                f(value);
            }
        }
    }

    /// Calls `f` on every direct operand, to change it.
    pub fn for_each_child_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        match self {
            Expr::Const(..) | Expr::Param(..) | Expr::Column(..) | Expr::Outer { .. } => {}
            Expr::Call { args, .. }
            | Expr::And(args)
            | Expr::Or(args)
            | Expr::Coalesce(args, _)
            | Expr::Array(args, _)
            | Expr::Record(args, _) => args.iter_mut().for_each(f),
            Expr::Cast { expr, .. }
            | Expr::Not(expr)
            | Expr::IsNull(expr, _)
            | Expr::Field(expr, _, _)
            | Expr::Domain(expr, _) => f(expr),
            Expr::IsDistinct(left, right, _) => {
                f(left);
                f(right);
            }
            Expr::Case { branches, otherwise, .. } => {
                for (condition, result) in branches {
                    f(condition);
                    f(result);
                }
                if let Some(otherwise) = otherwise {
                    f(otherwise);
                }
            }
            Expr::InList(expr, list, _) => {
                f(expr);
                list.iter_mut().for_each(f);
            }
            Expr::AnyArray { expr, array, .. } => {
                f(expr);
                f(array);
            }
            Expr::Subscript(expr, subscripts, _) => {
                f(expr);
                subscripts.iter_mut().for_each(|subscript| subscript.for_each_end_mut(f));
            }
            Expr::SubscriptAssign(expr, subscripts, value, _) => {
                f(expr);
                subscripts.iter_mut().for_each(|subscript| subscript.for_each_end_mut(f));
                f(value);
            }
        }
    }

    /// Calls `f` on the expression and everything below it, outermost first.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        f(self);
        self.for_each_child(&mut |child| child.visit(f));
    }

    /// Replaces parts of the expression: where `f` gives an expression, it takes the place of the
    /// part, whose own parts are then not looked at.
    pub fn replace(&mut self, f: &mut dyn FnMut(&Expr) -> Option<Expr>) {
        match f(self) {
            Some(replacement) => *self = replacement,
            None => self.for_each_child_mut(&mut |child| child.replace(f)),
        }
    }

    /// Whether any part of the expression satisfies `test`.
    pub fn any(&self, test: &mut dyn FnMut(&Expr) -> bool) -> bool {
        if test(self) {
            return true;
        }
        let mut found = false;
        self.for_each_child(&mut |child| found = found || child.any(test));
        found
    }

    /// Whether it reads no column of its own input row (it may read outer rows and parameters).
    pub fn is_column_free(&self) -> bool {
        !self.any(&mut |part| matches!(part, Expr::Column(..)))
    }

    /// Whether it reads neither rows nor anything else that changes during one execution.
    pub fn is_run_constant(&self) -> bool {
        !self.any(&mut |part| match part {
            Expr::Column(..) | Expr::Outer { .. } => true,
            Expr::Call { function, .. } => function.volatility == Volatility::Volatile,
            _ => false,
        })
    }

    /// The most volatile function in it.
    pub fn volatility(&self) -> Volatility {
        let mut most = Volatility::Immutable;
        self.visit(&mut |part| {
            match part {
                Expr::Call { function, .. } => most = most.max(function.volatility),
                // A constraint may fail, and must do so where the value is made.
                Expr::Domain(..) => most = most.max(Volatility::Stable),
                _ => {}
            }
        });
        most
    }

    /// Highest column of the input row read, if any.
    pub fn columns(&self, f: &mut dyn FnMut(usize)) {
        self.visit(&mut |part| {
            if let Expr::Column(index, _) = part {
                f(*index);
            }
        });
    }

    /// Adds to every column reference.
    pub fn shift_columns(&mut self, by: isize) {
        self.replace(&mut |part| match part {
            Expr::Column(index, ty) => Some(Expr::Column(index.saturating_add_signed(by), *ty)),
            _ => None,
        });
    }

    /// The conjuncts of a predicate.
    pub fn into_conjuncts(self) -> Vec<Expr> {
        match self {
            Expr::And(parts) => parts.into_iter().flat_map(Expr::into_conjuncts).collect(),
            other => vec![other],
        }
    }

    /// The conjuncts of a predicate, in their places.
    pub fn conjuncts(&self) -> Vec<&Expr> {
        match self {
            Expr::And(parts) => parts.iter().flat_map(Expr::conjuncts).collect(),
            other => vec![other],
        }
    }

    /// A predicate from its conjuncts; `None` for none.
    pub fn conjunction(mut parts: Vec<Expr>) -> Option<Expr> {
        match parts.len() {
            0 => None,
            1 => parts.pop(),
            _ => Some(Expr::And(parts)),
        }
    }

    /// Whether two expressions are the same, part by part.
    pub fn same(&self, other: &Expr) -> bool {
        match (self, other) {
            (Expr::Const(a, ta), Expr::Const(b, tb)) => ta == tb && same_datum(a, b),
            (Expr::Param(a, ta), Expr::Param(b, tb)) => a == b && ta == tb,
            (Expr::Column(a, _), Expr::Column(b, _)) => a == b,
            (Expr::Outer { depth: a, index: i, .. }, Expr::Outer { depth: b, index: j, .. }) => {
                a == b && i == j
            }
            (Expr::Call { function: f, args: a, ty: t }, Expr::Call { function: g, args: b, ty: u }) => {
                std::ptr::eq(*f, *g) && t == u && same_list(a, b)
            }
            (Expr::Cast { expr: a, to: t, explicit: e }, Expr::Cast { expr: b, to: u, explicit: g }) => {
                t == u && e == g && a.same(b)
            }
            (Expr::And(a), Expr::And(b)) | (Expr::Or(a), Expr::Or(b)) => same_list(a, b),
            (Expr::Record(a, _), Expr::Record(b, _)) => same_list(a, b),
            (Expr::Coalesce(a, t), Expr::Coalesce(b, u)) | (Expr::Array(a, t), Expr::Array(b, u)) => {
                t == u && same_list(a, b)
            }
            (Expr::Not(a), Expr::Not(b)) => a.same(b),
            (Expr::IsNull(a, n), Expr::IsNull(b, m)) => n == m && a.same(b),
            (Expr::IsDistinct(a, b, n), Expr::IsDistinct(c, d, m)) => n == m && a.same(c) && b.same(d),
            (Expr::InList(a, list, n), Expr::InList(b, other, m)) => {
                n == m && a.same(b) && same_list(list, other)
            }
            (
                Expr::AnyArray { expr: a, function: f, array: x, any: n },
                Expr::AnyArray { expr: b, function: g, array: y, any: m },
            ) => n == m && std::ptr::eq(*f, *g) && a.same(b) && x.same(y),
            (Expr::Field(a, n, _), Expr::Field(b, m, _)) => n == m && a.same(b),
            (Expr::Domain(a, x), Expr::Domain(b, y)) => Arc::ptr_eq(x, y) && a.same(b),
            (
                Expr::Case { branches: a, otherwise: x, ty: t },
                Expr::Case { branches: b, otherwise: y, ty: u },
            ) => {
                t == u
                    && a.len() == b.len()
                    && a.iter().zip(b).all(|((c, r), (d, s))| c.same(d) && r.same(s))
                    && same_option(x.as_deref(), y.as_deref())
            }
            (Expr::Subscript(a, s, _), Expr::Subscript(b, t, _)) => a.same(b) && same_subscripts(s, t),
            (Expr::SubscriptAssign(a, s, v, _), Expr::SubscriptAssign(b, t, w, _)) => {
                a.same(b) && same_subscripts(s, t) && v.same(w)
            }
            _ => false,
        }
    }
}

fn same_subscripts(a: &[SubscriptRange], b: &[SubscriptRange]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_subscript(a, b))
}

fn same_subscript(a: &SubscriptRange, b: &SubscriptRange) -> bool {
    match (a, b) {
        (SubscriptRange::Index(a), SubscriptRange::Index(b)) => a.same(b),
        (SubscriptRange::Slice(a, b), SubscriptRange::Slice(c, d)) => {
            same_option(a.as_ref(), c.as_ref()) && same_option(b.as_ref(), d.as_ref())
        }
        _ => false,
    }
}

fn same_option(a: Option<&Expr>, b: Option<&Expr>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.same(b),
        _ => false,
    }
}

fn same_list(a: &[Expr], b: &[Expr]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b))
}

/// Whether two constants are written the same; values that merely compare equal need not be.
fn same_datum(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::Null, Datum::Null) => true,
        (Datum::Bool(a), Datum::Bool(b)) => a == b,
        (Datum::Int2(a), Datum::Int2(b)) => a == b,
        (Datum::Int4(a), Datum::Int4(b)) => a == b,
        (Datum::Int8(a), Datum::Int8(b)) => a == b,
        (Datum::Text(a), Datum::Text(b)) => a == b,
        (Datum::Oid(a), Datum::Oid(b)) => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b) && format!("{a:?}") == format!("{b:?}"),
    }
}

fn each_sort<'a>(keys: &'a mut [SortKey], f: &mut dyn FnMut(&mut Expr)) {
    keys.iter_mut().for_each(|key| f(&mut key.expr));
}

impl AggregateCall {
    /// Calls `f` on its expressions, to change them.
    pub fn for_each_expr_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        self.args.iter_mut().for_each(&mut *f);
        each_sort(&mut self.order, f);
        self.filter.iter_mut().for_each(f);
    }
}

impl WindowCall {
    /// Calls `f` on its expressions, to change them. Bounds of the frame are constants or parameters
    /// and are left out.
    pub fn for_each_expr_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        match &mut self.kind {
            WindowKind::Function(_, args) => args.iter_mut().for_each(&mut *f),
            WindowKind::Aggregate(call) => call.for_each_expr_mut(f),
        }
        self.partition.iter_mut().for_each(&mut *f);
        each_sort(&mut self.order, f);
    }
}

impl WindowFrame {
    /// Calls `f` on the offsets, to change them.
    pub fn for_each_expr_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        for bound in [&mut self.start, &mut self.end] {
            if let FrameBound::Preceding(offset) | FrameBound::Following(offset) = bound {
                f(offset);
            }
        }
    }
}

impl IndexAccess {
    /// Calls `f` on its expressions, to change them.
    pub fn for_each_expr_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        self.prefix.iter_mut().for_each(&mut *f);
        self.in_list.iter_mut().for_each(&mut *f);
        self.lower.iter_mut().for_each(|bound| f(&mut bound.value));
        self.upper.iter_mut().for_each(|bound| f(&mut bound.value));
        self.inverted.iter_mut().for_each(|condition| f(&mut condition.value));
    }

    /// The values that a row of the index has one of each of: those of the prefix, the alternatives, those that
    /// conditions on an inverted index compare with.
    pub fn keys(&self) -> impl Iterator<Item = &Expr> {
        let inverted = self.inverted.iter().map(|condition| &condition.value);
        self.prefix.iter().chain(&self.in_list).chain(inverted)
    }

    /// Whether its values are those of an enclosing row.
    pub fn reads_outer(&self) -> bool {
        let bounds = self.lower.iter().chain(&self.upper).map(|bound| &bound.value);
        let mut values = self.keys().chain(bounds);
        values.any(|value| value.any(&mut |part| matches!(part, Expr::Outer { .. })))
    }

    /// Whether it reads the whole index.
    pub fn is_full(&self) -> bool {
        self.keys().next().is_none() && self.lower.is_none() && self.upper.is_none()
    }
}

impl SubPlan {
    /// Calls `f` on the expressions over the input row of the `Apply`, to change them.
    pub fn for_each_expr_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        match self {
            SubPlan::Scalar(_) | SubPlan::Exists(_) | SubPlan::Array(_) => {}
            SubPlan::Quantified { test, .. } => f(test),
            SubPlan::NextVal(sequence) => f(sequence),
            SubPlan::SetVal(sequence, value, called) => {
                f(sequence);
                f(value);
                f(called);
            }
            SubPlan::Call(_, args) | SubPlan::Routine(_, args) => args.iter_mut().for_each(f),
        }
    }

    /// The plan inside, to change it.
    pub fn plan_mut(&mut self) -> Option<&mut Plan> {
        match self {
            SubPlan::Scalar(plan)
            | SubPlan::Exists(plan)
            | SubPlan::Array(plan)
            | SubPlan::Quantified { plan, .. } => Some(Arc::make_mut(plan)),
            SubPlan::NextVal(_) | SubPlan::SetVal(..) | SubPlan::Call(..) | SubPlan::Routine(..) => None,
        }
    }
}

impl Plan {
    /// Whether it calls functions of the user's own.
    pub fn calls_routines(&self) -> bool {
        let mut found = match &self.kind {
            PlanKind::Apply { subplans, .. } => {
                subplans.iter().any(|(subplan, _)| matches!(subplan, SubPlan::Routine(..)))
            }
            _ => false,
        };
        self.for_each_child(&mut |child, _| found = found || child.calls_routines());
        found
    }

    /// Calls `f` on every plan directly below, with whether that plan sees the row of this operator
    /// as an outer row.
    pub fn for_each_child<'a>(&'a self, f: &mut dyn FnMut(&'a Plan, bool)) {
        match &self.kind {
            PlanKind::Values(_)
            | PlanKind::Scan { .. }
            | PlanKind::SystemScan { .. }
            | PlanKind::FunctionScan { .. }
            | PlanKind::CteScan { .. } => {}
            PlanKind::Filter { input, .. }
            | PlanKind::Project { input, .. }
            | PlanKind::ProjectSet { input, .. }
            | PlanKind::Aggregate { input, .. }
            | PlanKind::Window { input, .. }
            | PlanKind::Sort { input, .. }
            | PlanKind::Limit { input, .. }
            | PlanKind::Distinct { input, .. }
            | PlanKind::Fence { input }
            | PlanKind::Delete { input, .. } => f(input, false),
            PlanKind::Insert { input, policies, on_conflict, .. } => {
                f(input, false);
                if let Some(OnConflict { update: Some(ConflictUpdate::Query { row, .. }), .. }) = on_conflict
                {
                    f(row, true);
                }
                policies.iter().flat_map(|policies| policies.plans()).for_each(|plan| f(plan, true));
            }
            PlanKind::Update { input, policies, .. } => {
                f(input, false);
                policies.iter().flat_map(|policies| policies.plans()).for_each(|plan| f(plan, true));
            }
            PlanKind::Merge { input, clauses, policies, .. } => {
                f(input, false);
                for clause in clauses {
                    if let MergeAction::Insert { row, .. } = &clause.action {
                        f(row, true);
                    }
                }
                policies.iter().flat_map(|policies| policies.plans()).for_each(|plan| f(plan, true));
            }
            PlanKind::Apply { input, subplans } => {
                f(input, false);
                for (subplan, _) in subplans {
                    if let Some(plan) = subplan.plan() {
                        f(plan, true);
                    }
                }
            }
            PlanKind::Join { method, left, right, .. } => {
                f(left, false);
                f(right, matches!(method, JoinMethod::Lateral));
            }
            PlanKind::SetOp { left, right, .. } => {
                f(left, false);
                f(right, false);
            }
            PlanKind::With { ctes, body } => {
                ctes.iter().for_each(|(_, plan)| f(plan, false));
                f(body, false);
            }
            PlanKind::Recursive { base, step, .. } => {
                f(base, false);
                f(step, false);
            }
        }
    }

    /// Calls `f` on every plan directly below, to change it, with whether that plan sees the row of
    /// this operator as an outer row.
    pub fn for_each_child_mut(&mut self, f: &mut dyn FnMut(&mut Plan, bool)) {
        match &mut self.kind {
            PlanKind::Values(_)
            | PlanKind::Scan { .. }
            | PlanKind::SystemScan { .. }
            | PlanKind::FunctionScan { .. }
            | PlanKind::CteScan { .. } => {}
            PlanKind::Filter { input, .. }
            | PlanKind::Project { input, .. }
            | PlanKind::ProjectSet { input, .. }
            | PlanKind::Aggregate { input, .. }
            | PlanKind::Window { input, .. }
            | PlanKind::Sort { input, .. }
            | PlanKind::Limit { input, .. }
            | PlanKind::Distinct { input, .. }
            | PlanKind::Fence { input }
            | PlanKind::Delete { input, .. } => f(input, false),
            PlanKind::Insert { input, policies, on_conflict, .. } => {
                f(input, false);
                if let Some(OnConflict { update: Some(ConflictUpdate::Query { row, .. }), .. }) = on_conflict
                {
                    f(Arc::make_mut(row), true);
                }
                policies.iter_mut().flat_map(|policies| policies.plans_mut()).for_each(|plan| f(plan, true));
            }
            PlanKind::Update { input, policies, .. } => {
                f(input, false);
                policies.iter_mut().flat_map(|policies| policies.plans_mut()).for_each(|plan| f(plan, true));
            }
            PlanKind::Merge { input, clauses, policies, .. } => {
                f(input, false);
                for clause in clauses {
                    if let MergeAction::Insert { row, .. } = &mut clause.action {
                        f(Arc::make_mut(row), true);
                    }
                }
                policies.iter_mut().flat_map(|policies| policies.plans_mut()).for_each(|plan| f(plan, true));
            }
            PlanKind::Apply { input, subplans } => {
                f(input, false);
                for (subplan, _) in subplans {
                    if let Some(plan) = subplan.plan_mut() {
                        f(plan, true);
                    }
                }
            }
            PlanKind::Join { method, left, right, .. } => {
                f(left, false);
                f(right, matches!(method, JoinMethod::Lateral));
            }
            PlanKind::SetOp { left, right, .. } => {
                f(left, false);
                f(right, false);
            }
            PlanKind::With { ctes, body } => {
                ctes.iter_mut().for_each(|(_, plan)| f(plan, false));
                f(body, false);
            }
            PlanKind::Recursive { base, step, .. } => {
                f(base, false);
                f(step, false);
            }
        }
    }

    /// Calls `f` on every expression of this operator itself, to change it.
    pub fn for_each_expr_mut(&mut self, f: &mut dyn FnMut(&mut Expr)) {
        match &mut self.kind {
            PlanKind::Values(rows) => rows.iter_mut().flatten().for_each(f),
            PlanKind::Scan { access, filter, limit, .. } => {
                access.for_each_expr_mut(f);
                filter.iter_mut().for_each(&mut *f);
                limit.iter_mut().for_each(f);
            }
            PlanKind::SystemScan { .. }
            | PlanKind::CteScan { .. }
            | PlanKind::Fence { .. }
            | PlanKind::SetOp { .. }
            | PlanKind::With { .. }
            | PlanKind::Recursive { .. } => {}
            PlanKind::FunctionScan { functions, .. } => {
                functions.iter_mut().flat_map(|call| &mut call.args).for_each(f);
            }
            PlanKind::Filter { predicate, .. } => f(predicate),
            PlanKind::Project { exprs, .. } => exprs.iter_mut().for_each(f),
            PlanKind::ProjectSet { exprs, .. } => {
                for item in exprs {
                    match item {
                        ProjectSetItem::Scalar(expr) => f(expr),
                        ProjectSetItem::Set(call) => call.args.iter_mut().for_each(&mut *f),
                    }
                }
            }
            PlanKind::Apply { subplans, .. } => {
                subplans.iter_mut().for_each(|(subplan, _)| subplan.for_each_expr_mut(f));
            }
            PlanKind::Join { method, on, .. } => {
                method.for_each_key_mut(&mut |left, right| {
                    f(left);
                    f(right);
                });
                on.iter_mut().for_each(f);
            }
            PlanKind::Aggregate { groups, aggregates, .. } => {
                groups.iter_mut().for_each(&mut *f);
                aggregates.iter_mut().for_each(|call| call.for_each_expr_mut(f));
            }
            PlanKind::Window { calls, .. } => {
                for call in calls {
                    call.for_each_expr_mut(f);
                    Arc::make_mut(&mut call.frame).for_each_expr_mut(f);
                }
            }
            PlanKind::Sort { keys, limit, .. } => {
                each_sort(keys, f);
                limit.iter_mut().for_each(f);
            }
            PlanKind::Limit { limit, offset, .. } => {
                limit.iter_mut().for_each(&mut *f);
                offset.iter_mut().for_each(f);
            }
            PlanKind::Distinct { on, .. } => on.iter_mut().for_each(f),
            PlanKind::Insert { defaults, on_conflict, returning, .. } => {
                defaults.iter_mut().for_each(|(_, expr)| f(expr));
                if let Some(OnConflict {
                    update: Some(ConflictUpdate::Row { assignments, condition }), ..
                }) = on_conflict
                {
                    assignments.iter_mut().for_each(|(_, expr)| f(expr));
                    condition.iter_mut().for_each(&mut *f);
                }
                returning.iter_mut().flatten().for_each(f);
            }
            PlanKind::Update { assignments, returning, .. } => {
                assignments.iter_mut().for_each(|(_, expr)| f(expr));
                returning.iter_mut().flatten().for_each(f);
            }
            PlanKind::Delete { returning, .. } => returning.iter_mut().flatten().for_each(f),
            PlanKind::Merge { clauses, .. } => {
                for clause in clauses {
                    clause.condition.iter_mut().for_each(&mut *f);
                    if let MergeAction::Update(assignments) = &mut clause.action {
                        assignments.iter_mut().for_each(|(_, expr)| f(expr));
                    }
                }
            }
        }
    }

    /// Rewrites the references to rows outside this plan. `f` is given how many rows beyond the plan's
    /// own surroundings the reference goes (0: the nearest row outside), the column, its type, and the
    /// level inside the plan at which the reference stands (to be added to depths in the
    /// replacement); `None` leaves the reference as it is.
    pub fn rewrite_outer(&mut self, f: &mut dyn FnMut(usize, usize, Type, usize) -> Option<Expr>) {
        self.rewrite_outer_at(0, f);
    }

    fn rewrite_outer_at(
        &mut self,
        level: usize,
        f: &mut dyn FnMut(usize, usize, Type, usize) -> Option<Expr>,
    ) {
        self.for_each_expr_mut(&mut |expr| {
            expr.replace(&mut |part| match part {
                Expr::Outer { depth, index, ty } if *depth >= level => f(depth - level, *index, *ty, level),
                _ => None,
            });
        });
        self.for_each_child_mut(&mut |child, inner| child.rewrite_outer_at(level + usize::from(inner), f));
    }

    /// Whether the plan reads a row outside of it for which `test` holds, given how many rows beyond
    /// and the column.
    pub fn reads_outer(&mut self, test: &mut dyn FnMut(usize, usize) -> bool) -> bool {
        let mut found = false;
        self.rewrite_outer(&mut |depth, index, _, _| {
            found = found || test(depth, index);
            None
        });
        found
    }

    /// Makes references to rows at least `from` rows outside go `by` rows further.
    pub fn shift_outer(&mut self, from: usize, by: isize) {
        self.rewrite_outer(&mut |depth, index, ty, level| {
            (depth >= from).then(|| Expr::Outer {
                depth: (depth + level).saturating_add_signed(by),
                index,
                ty,
            })
        });
    }

    /// Whether something in it that only reads runs beside something that changes rows, so that it could see what that
    /// writes.
    pub fn reads_beside_changes(&self) -> bool {
        fn changes(plan: &Plan) -> bool {
            let mut found = plan.kind.changed_table().is_some();
            plan.for_each_child(&mut |child, _| found = found || changes(child));
            found
        }
        let queries = |conflict: &Option<OnConflict>| {
            matches!(conflict, Some(OnConflict { update: Some(ConflictUpdate::Query { .. }), .. }))
        };
        match &self.kind {
            PlanKind::Insert { input, on_conflict, .. } => queries(on_conflict) || changes(input),
            PlanKind::Update { input, .. }
            | PlanKind::Delete { input, .. }
            | PlanKind::Merge { input, .. } => changes(input),
            _ => changes(self),
        }
    }

    /// Whether running the plan twice may give different rows, or has effects.
    pub fn is_volatile(&mut self) -> bool {
        let mut volatile = self.kind.changed_table().is_some();
        if let PlanKind::Apply { subplans, .. } = &self.kind {
            volatile |= subplans.iter().any(|(subplan, _)| subplan.plan().is_none());
        }
        self.for_each_expr_mut(&mut |expr| volatile |= expr.volatility() == Volatility::Volatile);
        self.for_each_child_mut(&mut |child, _| volatile = volatile || child.is_volatile());
        volatile
    }
}
