//! Index changes in steps, while the table is read and written: `CREATE INDEX CONCURRENTLY`, `CREATE INDEX` of a table
//! with many rows outside of a transaction block, `DROP INDEX CONCURRENTLY`.
//!
//! # The steps
//!
//! An index comes and goes through the states of `Online, Asynchronous Schema Change in F1` (Rae et al., VLDB 2013),
//! of which only neighbours are ever in use at the same time ([`IndexState`]):
//!
//! ```text
//!   CREATE   absent ─► delete-only ─► write-only ── backfill ──► public
//!                                         └── error, cancelled ──► absent
//!   DROP     public ─► write-only ─► delete-only ─► absent
//! ```
//!
//! Each arrow is a short transaction over the catalog ([`change`]), followed by a barrier ([`barrier`]): transactions
//! that may still run under the version before have ended when the next arrow begins. Why delete-only is needed: one
//! that does not know the index and removes a row leaves an entry behind if another has written one.
//!
//! What remains of a change if the node is killed is the state in the table's descriptor and, beside it, a record of
//! the job ([`JobRecord`]). It names the instance that does it ([`crate::instances`]): another that finds, when it registers
//! or when a lease has ended, that this one is no more, takes the job up ([`run`]), from the key that the record says. One that nobody waits for any more is finished,
//! too: a client that lost its connection because the node died finds the index a little later.
//!
//! # The backfill
//!
//! Rows that were there when the index became write-only get entries batch by batch, each in a transaction of its own
//! ([`backfill`]) that reads rows, writes their entries and moves the record on. From then on writers keep the
//! entries of every row, so a row that came later needs nothing, and the last key is fixed when the backfill begins: it
//! ends however fast rows are added. A batch is serializable: if one of its rows changes between the read and the
//! commit, its commit fails and it is done again, so it cannot bring back the entry of a row that was deleted, nor
//! write over a newer one. It locks nothing until it has lost a few times in a row; then it is made smaller, and
//! locks its rows, at low priority: in a deadlock it is the one that gives way.
//!
//! # Unique indexes
//!
//! Uniqueness is enforced among writers as soon as the index is write-only, as in PostgreSQL, where they may meet
//! 23505, too, before the index can be used. Two that write the same value meet at its key. A row that has no entry yet
//! may have the value of another that has: the batch with that row finds out and fails with 23505. Until then, whoever
//! removes the entry of a row looks whether it is of that row (`dml::write`). At the end every row has an entry
//! of its own.
//!
//! # When it fails
//!
//! The index is removed and its keys are cleared: an INVALID index, as PostgreSQL leaves one behind, is never
//! to be dropped by hand. That holds for duplicates, for expressions that fail, for timeouts, and for statements
//! that are cancelled or whose client goes away.
//!
//! # Locks
//!
//! A job holds SHARE UPDATE EXCLUSIVE on the table, from the transaction that begins it to the end. Another schema
//! change of the table waits for that before it locks the catalog, which the job needs to come to its end; within
//! a transaction block that has done something already it fails with 55006. Barriers wait for the transactions that
//! are there, at all SQL nodes, and keep nobody from starting new ones. At other nodes no lock says that a job is at work:
//! its record in the catalog does, which schema changes there look for.
//!
//! # What is missing
//!
//! Backfills by several workers. A job whose node goes away because nobody is
//! connected waits until the tenant is woken. A way to cancel a build that nobody waits for any more, but to drop the index
//! after it. REINDEX does nothing, for nothing bloats.
//!
//! [`IndexState`]: crate::catalog::descriptor::IndexState

mod backfill;
mod barrier;
mod batch;
mod begin;
mod change;
mod job;
mod pace;
mod progress;
mod record;
mod run;

pub(crate) use begin::{Online, Wanted, not_in_a_block};
pub(crate) use job::{Job, Jobs};
pub use pace::BatchPace;
pub(crate) use progress::Phase;
pub(crate) use record::JobRecord;
pub(crate) use run::{read_record, resume, start};
