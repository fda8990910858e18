//! CSV as PostgreSQL's COPY has it.
//!
//! Servers parse and write the fields themselves, so what a field means is theirs to say. Here records are told
//! apart, which is all that batches and files of bounded size need, and fields only of the header and the first
//! rows ([`infer`]).

mod dialect;
pub mod infer;
mod records;

pub use dialect::Dialect;
pub use records::{LARGEST_RECORD, Records, Scanner};
