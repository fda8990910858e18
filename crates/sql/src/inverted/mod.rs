//! Inverted indexes (`CREATE INDEX … USING gin`): what lies inside jsonb values and arrays, and in which rows.
//!
//! # Entries
//!
//! A row has an entry for each different *token* of its indexed value. Which tokens a value has says the
//! [`OperatorClass`]; they are PostgreSQL's:
//!
//! | class | tokens | conditions |
//! |---|---|---|
//! | `jsonb_ops` | each key of an object, at any depth; each string in an array, as if it were a key; each other scalar | `@>`, `?`, `?\|`, `?&` |
//! | `jsonb_path_ops` | each scalar together with the keys that lead to it | `@>` |
//! | `array_ops` | each element that is not NULL | `@>`, `&&`, `=`, `value = ANY (column)` |
//!
//! So `{"a": [1, "b"], "c": {"d": null}}` has the tokens *key a*, *number 1*, *key b*, *key c*, *key d*, *null* in the
//! first class, and *a → 1*, *a → "b"*, *c, d → null* in the second. A value that stands alone is like an array that has
//! it, because `[1] @> 1`. NULL has no tokens; nor have `{}` and `[]` in the second class.
//!
//! A token is a tag and the key encoding of what it stands for, so that equal numbers have one token however they are
//! written. More than [`tokens::LONGEST_TOKEN`] bytes are replaced by the beginning of their SHA-256: two values may
//! have one token, and entries stay short whatever is indexed. A condition is decided by the row itself in any case.
//!
//! # As keys
//!
//! An entry is stored as if the index had one column of type bytea that holds the token
//! ([`crate::table`]): storage, index, token, the primary key columns' bytes. The entries of a token follow each other
//! in the order of the primary key. Nothing is stored in their values.
//!
//! Whatever writes a row writes its entries with it ([`crate::table::TableCodec::index_entries`]): statements, cascades,
//! COPY, backfills, rewrites. An update writes only the entries that come and removes those that go.
//!
//! # Reading
//!
//! The planner ([`crate::optimize::inverted`]) gives a scan the conditions that the index can help with. Their values are
//! computed when the scan starts, and so is what they ask of the tokens ([`condition::wanted`]): *clauses*, of each of
//! which a row must have one token. The scan ([`crate::exec`]) walks the entries of all clauses in the order of the
//! primary key at once and yields those that every clause has, each row once. It keeps a page of each token in memory.
//! If one clause is read to its end with the first page, or another turns out to be much more common, the more common
//! ones are given up: the scan then yields more rows, of which fewer satisfy the condition. The filter of the scan always
//! repeats the conditions.
//!
//! What asks for no token at all (`@> '{}'`, or more alternatives than [`condition::MOST_ALTERNATIVES`]) reads the table
//! instead.
//!
//! A serializable transaction has read enough for it: for each primary key that the scan did not yield, some clause that
//! it still heeded had no entry there, in a span that was read. A row that comes to satisfy the conditions writes an
//! entry into that span. The rows of all other primary keys were read themselves.
//!
//! # What is missing
//!
//! Several columns in one index; `@?`, `@@` and `<@` of arrays, which are left to the filter; statistics of tokens.

pub mod class;
pub mod condition;
pub mod tokens;

pub use class::OperatorClass;
pub use condition::{InvertedCondition, Strategy};

#[cfg(test)]
mod tests;
