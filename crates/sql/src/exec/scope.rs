//! What an operator sees beyond its own input: the rows around it and the common table expressions.

use crate::analytic::{EngineChoice, PartialAggregates};
use crate::exec::eval::EvalEnv;
use crate::exec::{ExecContext, Reservation};
use crate::plan::Plan;
use kv_client::Savepoint;
use parking_lot::Mutex;
use sql_types::{Datum, Row};
use std::sync::Arc;

/// The rows of enclosing `Apply` operators and lateral joins, nearest first.
#[derive(Debug)]
pub struct OuterRow {
    values: Row,
    parent: Option<Arc<OuterRow>>,
}

impl OuterRow {
    /// The row `depth` levels out.
    pub fn at(&self, depth: usize) -> Option<&[Datum]> {
        let mut row = self;
        for _ in 0..depth {
            row = row.parent.as_deref()?;
        }
        Some(&row.values)
    }
}

/// Rows shared by the readers of a common table expression.
#[derive(Default)]
pub(crate) struct SharedRows {
    pub rows: Vec<Row>,
    _memory: Reservation,
}

impl SharedRows {
    pub fn new(rows: Vec<Row>, memory: Reservation) -> Self {
        SharedRows { rows, _memory: memory }
    }
}

/// A common table expression in scope.
pub(crate) struct Cte<'p> {
    pub number: usize,
    /// How to compute it; absent for rows given from outside.
    pub plan: Option<&'p Plan>,
    /// Where it was defined.
    pub scope: Scope<'p>,
    pub rows: Mutex<Option<Arc<SharedRows>>>,
    parent: Option<Arc<Cte<'p>>>,
}

/// The surroundings of an operator. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Scope<'p> {
    pub outer: Option<Arc<OuterRow>>,
    ctes: Option<Arc<Cte<'p>>>,
    /// Whether operators report what they do.
    pub instrument: bool,
    /// Where the statement began, if it reads beside what it changes: queries see rows as they were there.
    pub before: Option<Savepoint>,
    /// Which engine runs what.
    pub engine: EngineChoice,
    /// Whether KV nodes aggregate.
    pub partial_aggregates: PartialAggregates,
}

impl<'p> Scope<'p> {
    /// The scope inside an `Apply` or lateral join at this row.
    pub fn with_row(&self, values: Row) -> Scope<'p> {
        let outer = OuterRow { values, parent: self.outer.clone() };
        Scope { outer: Some(Arc::new(outer)), ..self.clone() }
    }

    /// The scope with one more common table expression.
    pub fn with_cte(&self, number: usize, plan: Option<&'p Plan>, rows: Option<SharedRows>) -> Scope<'p> {
        let cte = Cte {
            number,
            plan,
            scope: self.clone(),
            rows: Mutex::new(rows.map(Arc::new)),
            parent: self.ctes.clone(),
        };
        Scope { ctes: Some(Arc::new(cte)), ..self.clone() }
    }

    /// A common table expression by number.
    pub fn cte(&self, number: usize) -> Option<Arc<Cte<'p>>> {
        let mut cte = self.ctes.as_ref()?;
        while cte.number != number {
            cte = cte.parent.as_ref()?;
        }
        Some(cte.clone())
    }

    /// The context for reading rows of the statement's queries.
    pub fn reading<'a>(&self, cx: &ExecContext<'a>) -> ExecContext<'a> {
        ExecContext { before: self.before, ..*cx }
    }

    /// What expressions see here besides their row.
    pub fn env<'a>(&'a self, cx: &'a ExecContext<'_>) -> EvalEnv<'a> {
        EvalEnv { eval: cx.eval, params: cx.params, outer: self.outer.as_deref() }
    }
}
