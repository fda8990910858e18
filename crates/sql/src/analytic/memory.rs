//! What DataFusion runs in: one partition, the statement's memory, the node's place for what does not fit.

use crate::exec::operator::BATCH_ROWS;
use crate::exec::{ExecContext, MemoryBudget};
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionConfig;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The context of a statement's part.
pub(super) fn context(cx: &ExecContext<'_>) -> Result<Arc<TaskContext>> {
    let pool = Pool { budget: cx.memory.clone(), reserved: AtomicUsize::new(0) };
    let builder = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(pool));
    let runtime = match cx.memory.spill() {
        Some(spill) => RuntimeEnvBuilder { disk_manager: Some(spill.disk()), ..builder },
        None => builder
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled)),
    };
    let mut config = SessionConfig::new().with_target_partitions(1).with_batch_size(8 * BATCH_ROWS);
    // What a sort keeps free for merging what it has spilled must fit, too.
    let merging = &mut config.options_mut().execution.sort_spill_reservation_bytes;
    *merging = (*merging).min(cx.memory.limit() / 8);
    Ok(Arc::new(TaskContext::default().with_session_config(config).with_runtime(runtime.build_arc()?)))
}

/// A statement's budget as DataFusion's pool.
#[derive(Debug)]
struct Pool {
    budget: MemoryBudget,
    reserved: AtomicUsize,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.budget.used(), self.budget.limit())
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "statement"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        self.budget.force(additional);
        self.reserved.fetch_add(additional, Ordering::Relaxed);
    }

    fn shrink(&self, _: &MemoryReservation, bytes: usize) {
        self.budget.give(bytes);
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        let exhausted = |error: sql_types::SqlError| {
            let detail = error.extra.and_then(|extra| extra.detail);
            DataFusionError::ResourcesExhausted(detail.unwrap_or_default())
        };
        self.budget.take(additional).map_err(exhausted)?;
        self.reserved.fetch_add(additional, Ordering::Relaxed);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.budget.limit())
    }
}
