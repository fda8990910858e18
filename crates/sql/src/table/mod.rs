//! How tables lie in the key-value store.
//!
//! Keys are the tenant's own (the client adds the tenant prefix). With `storage` and index ids from
//! the descriptor:
//!
//! | entry | key | value |
//! |---|---|---|
//! | row | storage, 1, primary key columns | row format, the other columns |
//! | unique index | storage, index, its columns | entry format, the primary key columns' bytes |
//! | unique index, some column NULL | storage, index, its columns, the primary key columns' bytes | the same |
//! | other index | storage, index, its columns, the primary key columns' bytes | entry format |
//! | deferrable unique index | as of another index | entry format |
//! | inverted index, for each token of its column ([`crate::inverted`]) | storage, index, the token as bytea, the primary key columns' bytes | entry format |
//!
//! A column of an index may be an expression, which is computed from the row. A partial index has entries of
//! the rows only for which its predicate is true.
//!
//! Key columns are written with [`sql_types::encoding::encode_key`], the two numbers with
//! [`kv_api::encoding::encode_u64`]. "The primary key columns' bytes" are exactly what follows the
//! prefix in the row's own key, so an index entry leads to its row without decoding anything.
//!
//! A row's value is a format byte, then for each column that is present: column id, length plus one
//! (0 stands for NULL), bytes of [`sql_types::encoding::encode_value`]; both numbers as LEB128,
//! columns in ascending order of id. Columns that are NULL are left out unless the column was added
//! with a value for older rows. Key columns whose key encoding does not give back the exact value
//! ([`sql_types::encoding::key_is_exact`]) are written to the value as well.
//!
//! [`TableCodec`] is this layout compiled for one descriptor; [`Projection`] is what a scan needs of it, and a
//! program ([`kv_api::columns`]) what a scan needs that KV nodes are to run.

mod bound;
mod cache;
pub mod codec;
mod literal;
mod program;
mod projection;
mod rowid;

pub(crate) use bound::index_env;
pub use bound::{
    BoundIndex, BoundIndexes, bind_expression, bind_generated, bind_predicate, bound_index, generated_from,
    generated_text, key_names, key_texts, predicate_text, row_expr_text,
};
pub use cache::CodecCache;
pub use codec::{IndexCodec, TableCodec};
pub use program::WantedColumn;
pub use projection::Projection;
pub use rowid::unique_rowid;

#[cfg(test)]
mod tests;
