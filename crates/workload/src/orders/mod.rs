//! `orders`: a small warehouse, for contention.
//!
//! The new-order and payment transactions of TPC-C (revision 5.11, clauses 2.4 and 2.5) with their shares and the
//! rows that everybody wants: the warehouse that each payment adds to, the district that numbers each order. It is
//! **not** TPC-C and its figures are not `tpmC`: there are 300 customers in a district instead of 3,000, and 1,000
//! items instead of 100,000; nobody waits at a keyboard; customers are not looked up by name, order status, delivery
//! and stock level are missing.
//!
//! Every transaction is right under READ COMMITTED as well: what depends on a value is an UPDATE of it. So the levels
//! can be compared by what they cost. `check` looks at the books as TPC-C's consistency conditions do (clause 3.3.2).

mod books;
pub mod plan;
mod worker;

use crate::args::Common;
use crate::isolation::Level;
use crate::report::CheckReport;
use crate::{Worker, Workload};
use anyhow::Context;
use async_trait::async_trait;
use clap::Args;
use indicatif::ProgressBar;
use plan::{CUSTOMERS, Chooser, DISTRICTS, ITEMS};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::Client;
use worker::OrdersWorker;

/// Rows of one INSERT.
const ROWS_PER_INSERT: usize = 500;
/// Cents of the dearest item.
const LARGEST_PRICE: i64 = 10_000;

const TABLES: [(&str, &str); 7] = [
    ("orders_warehouses", "w bigint PRIMARY KEY, tax bigint NOT NULL, paid bigint NOT NULL"),
    (
        "orders_districts",
        "w bigint, d bigint, next_order bigint NOT NULL, paid bigint NOT NULL, PRIMARY KEY (w, d)",
    ),
    (
        "orders_customers",
        "w bigint, d bigint, c bigint, discount bigint NOT NULL, paid bigint NOT NULL, payments bigint NOT NULL, \
         PRIMARY KEY (w, d, c)",
    ),
    ("orders_items", "i bigint PRIMARY KEY, price bigint NOT NULL"),
    (
        "orders_stock",
        "w bigint, i bigint, quantity bigint NOT NULL, delivered bigint NOT NULL, PRIMARY KEY (w, i)",
    ),
    (
        "orders_orders",
        "w bigint, d bigint, o bigint, c bigint NOT NULL, lines bigint NOT NULL, PRIMARY KEY (w, d, o)",
    ),
    ("orders_payments", "id uuid PRIMARY KEY, w bigint NOT NULL, d bigint NOT NULL, amount bigint NOT NULL"),
];
const LINES: &str = "CREATE TABLE orders_lines (w bigint, d bigint, o bigint, line bigint, i bigint NOT NULL, \
                     supplier bigint NOT NULL, quantity bigint NOT NULL, amount bigint NOT NULL, \
                     PRIMARY KEY (w, d, o, line))";

/// What `orders` takes.
#[derive(Debug, Clone, Args)]
pub struct OrdersArgs {
    /// What transactions ask for, if not the database's default
    #[arg(long, value_enum)]
    pub isolation: Option<Level>,
}

/// The workload.
#[derive(Debug)]
pub struct Orders {
    warehouses: i64,
    isolation: Option<Level>,
    seed: u64,
    counts: Arc<Counts>,
}

/// What the workers count.
#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    taken_back: AtomicU64,
}

impl Orders {
    /// The workload with its arguments.
    pub fn new(arguments: &OrdersArgs, common: &Common) -> Self {
        Self {
            warehouses: i64::from(common.scale.rows(1)),
            isolation: arguments.isolation,
            seed: common.seed.unwrap_or_else(rand::random),
            counts: Arc::default(),
        }
    }

    /// The rows of the tables that are full from the beginning, in the order of these.
    fn rows(&self, random: &mut StdRng) -> [(&'static str, Vec<String>); 5] {
        let (mut warehouses, mut districts, mut customers, mut stock) = (vec![], vec![], vec![], vec![]);
        for w in 1..=self.warehouses {
            warehouses.push(format!("({w}, {}, 0)", random.random_range(0..=20)));
            for d in 1..=DISTRICTS {
                districts.push(format!("({w}, {d}, 1, 0)"));
                customers.extend(
                    (1..=CUSTOMERS)
                        .map(|c| format!("({w}, {d}, {c}, {}, 0, 0)", random.random_range(0..=50))),
                );
            }
            stock.extend((1..=ITEMS).map(|i| format!("({w}, {i}, {}, 0)", random.random_range(10..=100))));
        }
        let items = (1..=ITEMS).map(|i| format!("({i}, {})", random.random_range(100..=LARGEST_PRICE)));
        [
            ("orders_warehouses", warehouses),
            ("orders_districts", districts),
            ("orders_customers", customers),
            ("orders_items", items.collect()),
            ("orders_stock", stock),
        ]
    }
}

#[async_trait]
impl Workload for Orders {
    fn name(&self) -> &'static str {
        "orders"
    }

    async fn init(&self, client: &mut Client, progress: &ProgressBar) -> anyhow::Result<()> {
        client.batch_execute("DROP TABLE IF EXISTS orders_lines").await?;
        for (table, columns) in TABLES {
            client.batch_execute(&format!("DROP TABLE IF EXISTS {table}")).await?;
            client.batch_execute(&format!("CREATE TABLE {table} ({columns})")).await?;
        }
        client.batch_execute(LINES).await?;
        let tables = self.rows(&mut StdRng::seed_from_u64(self.seed));
        progress.set_length(tables.iter().map(|(_, rows)| rows.len() as u64).sum());
        for (table, rows) in tables {
            for chunk in rows.chunks(ROWS_PER_INSERT) {
                let insert = format!("INSERT INTO {table} VALUES {}", chunk.join(", "));
                client.batch_execute(&insert).await.with_context(|| format!("filling {table}"))?;
                progress.inc(chunk.len() as u64);
            }
        }
        Ok(())
    }

    fn worker(&self, number: u32) -> anyhow::Result<Box<dyn Worker>> {
        let random = StdRng::seed_from_u64(self.seed.wrapping_add(u64::from(number) + 1));
        let chooser = Chooser::new(self.warehouses, number, random);
        Ok(Box::new(OrdersWorker::new(chooser, self.isolation, Arc::clone(&self.counts))))
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("committed", self.counts.committed.load(Ordering::Relaxed)),
            ("taken_back", self.counts.taken_back.load(Ordering::Relaxed)),
        ]
    }

    async fn check(&self, client: &mut Client) -> anyhow::Result<CheckReport> {
        let mut report = CheckReport::new("orders");
        // All tables as of one moment, also where reading committed data is the default.
        client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        books::Books::read(client).await?.compare(self.warehouses, &mut report);
        client.batch_execute("COMMIT").await?;
        Ok(report)
    }
}
