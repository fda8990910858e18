//! Reads the rows that statistics are made of.

use super::{Collector, TableStatistics};
use crate::catalog::descriptor::{ColumnId, PRIMARY_INDEX, TableDescriptor};
use crate::exec::context::YIELD_ROWS;
use crate::exec::{CancelFlag, kv_error};
use crate::table::{Projection, TableCodec};
use kv_client::{ScanOptions, Txn};
use rand::rngs::StdRng;
use sql_types::SqlResult;
use std::sync::Arc;
use std::time::Instant;

/// Bytes read at a time.
const PAGE_BYTES: u64 = 1 << 20;

/// How much of the processor the reading may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// All there is: somebody waits.
    Full,
    /// Half the time of one.
    Half,
}

/// Reads a table once, as a transaction sees it, and makes statistics of some of its columns.
///
/// # Errors
/// What keeps the table from being read; 57014 once `cancel` is set.
pub async fn gather(
    txn: &Txn,
    table: &Arc<TableDescriptor>,
    columns: &[ColumnId],
    pace: Pace,
    cancel: &CancelFlag,
    random: &mut StdRng,
) -> SqlResult<TableStatistics> {
    let codec = TableCodec::new(table.clone())?;
    let projection = Projection::new(&codec, PRIMARY_INDEX, columns)?;
    let mut collector = Collector::new(table, columns);
    let mut span = Some(codec.primary().span());
    while let Some(rest) = span.take() {
        cancel.check()?;
        let start = Instant::now();
        let options = ScanOptions { target_bytes: PAGE_BYTES, ..ScanOptions::default() };
        let page = txn.scan(&rest, options).await.map_err(kv_error)?;
        for rows in page.rows.chunks(YIELD_ROWS) {
            for (key, value) in rows {
                let row = projection.decode(&codec, key, value)?;
                collector.add(&row, key.len() + value.len(), random);
            }
            tokio::task::yield_now().await;
        }
        span = page.resume;
        if pace == Pace::Half && span.is_some() {
            tokio::time::sleep(start.elapsed()).await;
        }
    }
    Ok(collector.finish())
}
