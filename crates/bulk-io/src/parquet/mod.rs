//! Parquet: rows to COPY's text, and COPY's binary rows to columns.
//!
//! | PostgreSQL | Parquet | and back |
//! |---|---|---|
//! | `boolean`, `smallint`, `integer`, `bigint`, `real`, `double precision` | the same | the same |
//! | `numeric(p, s)`, p ≤ 38 | DECIMAL | `numeric(p, s)` |
//! | other `numeric` | STRING | `numeric` |
//! | `text`, `varchar`, `char`, `name` | STRING | the same |
//! | `json`, `jsonb` | JSON | the same |
//! | `bytea` | bytes | `bytea` |
//! | `date` | DATE | `date` |
//! | `time` | TIME (µs) | `time` |
//! | `timestamp`, `timestamptz` | TIMESTAMP (µs), local or UTC | the same |
//! | `uuid` | UUID | `uuid` |
//! | enums | ENUM | the same |
//! | everything else: arrays, intervals, … | STRING, as PostgreSQL writes them | the same |
//!
//! What each column was is noted in the file ([`TYPES_KEY`]), so that an import can make the same table again. What
//! Parquet cannot say (infinite dates, `NaN` as a DECIMAL, `24:00`) is an error and never another value.

mod columns;
mod footer;
mod guard;
mod leaf;
mod plan;
mod read;
mod render;
mod write;

#[cfg(test)]
mod tests;

pub use guard::guarded;
pub use plan::{ColumnPlan, plan};
pub use read::{Columns, Rows};
pub use write::FileWriter;

/// Where a file notes the types of its columns: a list of names in JSON.
pub const TYPES_KEY: &str = "dormouse.types";
