//! Portals: statements with their parameters, ready to run or half run.

use super::prepared::{CachedPlan, Prepared};
use crate::exec::{MemoryBudget, RowStream};
use crate::plan::PlanColumn;
use sql_types::{Datum, Row};
use std::sync::Arc;
use std::time::Duration;

/// Where a portal stands.
pub(crate) enum Progress {
    /// Not started.
    Ready,
    /// Rows come from the engine.
    Running(Box<RowStream>),
    /// Rows are there.
    Rows(std::vec::IntoIter<Row>, String),
    /// Another portal does the work (EXECUTE).
    Inner(Box<Portal>),
    /// The client sends the data of a COPY.
    CopyIn(Box<super::copy::CopyTarget>),
    /// Ended, with its tag for those who ask again.
    Done,
}

/// A statement with its parameters, ready to run or half run.
pub struct Portal {
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) params: Vec<Datum>,
    pub(crate) plan: Option<Arc<CachedPlan>>,
    pub(crate) progress: Progress,
    pub(crate) memory: MemoryBudget,
    /// Rows given so far.
    pub(crate) returned: u64,
    /// What running it took so far.
    pub(crate) took: Duration,
}

impl Portal {
    pub(crate) fn new(prepared: Arc<Prepared>, params: Vec<Datum>, memory: MemoryBudget) -> Self {
        Portal {
            prepared,
            params,
            plan: None,
            progress: Progress::Ready,
            memory,
            returned: 0,
            took: Duration::ZERO,
        }
    }

    /// Columns of its rows; `None` if it returns none.
    pub fn columns(&self) -> Option<&[PlanColumn]> {
        self.prepared.columns()
    }
}
