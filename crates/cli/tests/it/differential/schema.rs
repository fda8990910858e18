//! The tables that generated queries read.

use super::expressions::Kind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A table: its name and columns.
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Names and kinds of its columns; the first is the primary key.
    pub columns: &'static [(&'static str, Kind)],
    rows: usize,
}

/// Values of floating point are small multiples of a quarter, so that sums are exact in any order.
pub static TABLES: &[Table] = &[
    Table {
        name: "wide",
        columns: &[
            ("id", Kind::Integer),
            ("i", Kind::Integer),
            ("s", Kind::Smallint),
            ("l", Kind::Bigint),
            ("n", Kind::Numeric),
            ("f", Kind::Double),
            ("b", Kind::Boolean),
            ("x", Kind::Text),
            ("d", Kind::Date),
            ("ts", Kind::Timestamp),
            ("tz", Kind::Timestamptz),
            ("iv", Kind::Interval),
            ("j", Kind::Jsonb),
            ("a", Kind::Integers),
        ],
        rows: 60,
    },
    Table {
        name: "other",
        columns: &[
            ("id", Kind::Integer),
            ("i", Kind::Integer),
            ("n", Kind::Numeric),
            ("x", Kind::Text),
            ("d", Kind::Date),
            ("b", Kind::Boolean),
            ("f", Kind::Double),
        ],
        rows: 25,
    },
    Table {
        name: "small",
        columns: &[("id", Kind::Integer), ("l", Kind::Bigint), ("s", Kind::Smallint), ("x", Kind::Text)],
        rows: 5,
    },
    Table {
        name: "empty",
        columns: &[("id", Kind::Integer), ("i", Kind::Integer), ("x", Kind::Text)],
        rows: 0,
    },
];

/// The statements that make and fill the tables, the same for every seed of queries.
pub fn statements() -> Vec<String> {
    let mut rng = StdRng::seed_from_u64(1);
    let mut statements = Vec::new();
    for table in TABLES {
        let columns: Vec<String> =
            table.columns.iter().map(|(name, kind)| format!("{name} {}", kind.declared())).collect();
        statements.push(format!("create table {} ({}, primary key (id))", table.name, columns.join(", ")));
        for id in 1..=table.rows {
            let values: Vec<String> = table.columns[1..]
                .iter()
                .map(
                    |(_, kind)| if rng.random_bool(0.15) { "null".to_string() } else { kind.value(&mut rng) },
                )
                .collect();
            statements.push(format!("insert into {} values ({id}, {})", table.name, values.join(", ")));
        }
    }
    statements.push("create index on wide (i)".to_string());
    statements.push("create index on wide (x, d)".to_string());
    statements.push("create index on other (i desc)".to_string());
    statements.push("analyze".to_string());
    statements
}
