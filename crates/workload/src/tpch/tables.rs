//! The eight tables of TPC-H (clause 1.4) and their rows.

use crate::load::copy_rows;
use crate::scale::Scale;
use indicatif::ProgressBar;
use tokio_postgres::{Client, Error};
use tpchgen::csv;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

/// A table.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    columns: &'static str,
    /// Its indexes besides that of the primary key, by their columns.
    indexes: &'static [&'static str],
    /// Rows at scale 1.
    rows: u64,
    /// Whether it grows with the scale.
    scales: bool,
}

/// Lines of an order, on average.
const LINES_PER_ORDER: u64 = 4;

/// All of them, in the order in which they refer to each other.
pub const TABLES: [Table; 8] = [
    Table {
        name: "region",
        columns: "r_regionkey int PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152)",
        indexes: &[],
        rows: 5,
        scales: false,
    },
    Table {
        name: "nation",
        columns: "n_nationkey int PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey int NOT NULL, \
                  n_comment varchar(152)",
        indexes: &[],
        rows: 25,
        scales: false,
    },
    Table {
        name: "supplier",
        columns: "s_suppkey int PRIMARY KEY, s_name char(25) NOT NULL, s_address varchar(40) NOT NULL, \
                  s_nationkey int NOT NULL, s_phone char(15) NOT NULL, s_acctbal numeric(15,2) NOT NULL, \
                  s_comment varchar(101) NOT NULL",
        indexes: &[],
        rows: 10_000,
        scales: true,
    },
    Table {
        name: "part",
        columns: "p_partkey int PRIMARY KEY, p_name varchar(55) NOT NULL, p_mfgr char(25) NOT NULL, \
                  p_brand char(10) NOT NULL, p_type varchar(25) NOT NULL, p_size int NOT NULL, \
                  p_container char(10) NOT NULL, p_retailprice numeric(15,2) NOT NULL, \
                  p_comment varchar(23) NOT NULL",
        indexes: &[],
        rows: 200_000,
        scales: true,
    },
    Table {
        name: "partsupp",
        columns: "ps_partkey int NOT NULL, ps_suppkey int NOT NULL, ps_availqty int NOT NULL, \
                  ps_supplycost numeric(15,2) NOT NULL, ps_comment varchar(199) NOT NULL, \
                  PRIMARY KEY (ps_partkey, ps_suppkey)",
        indexes: &["ps_suppkey"],
        rows: 800_000,
        scales: true,
    },
    Table {
        name: "customer",
        columns: "c_custkey int PRIMARY KEY, c_name varchar(25) NOT NULL, c_address varchar(40) NOT NULL, \
                  c_nationkey int NOT NULL, c_phone char(15) NOT NULL, c_acctbal numeric(15,2) NOT NULL, \
                  c_mktsegment char(10) NOT NULL, c_comment varchar(117) NOT NULL",
        indexes: &[],
        rows: 150_000,
        scales: true,
    },
    Table {
        name: "orders",
        columns: "o_orderkey bigint PRIMARY KEY, o_custkey int NOT NULL, o_orderstatus char(1) NOT NULL, \
                  o_totalprice numeric(15,2) NOT NULL, o_orderdate date NOT NULL, \
                  o_orderpriority char(15) NOT NULL, o_clerk char(15) NOT NULL, o_shippriority int NOT NULL, \
                  o_comment varchar(79) NOT NULL",
        indexes: &["o_custkey"],
        rows: 1_500_000,
        scales: true,
    },
    Table {
        name: "lineitem",
        columns: "l_orderkey bigint NOT NULL, l_partkey int NOT NULL, l_suppkey int NOT NULL, \
                  l_linenumber int NOT NULL, l_quantity numeric(15,2) NOT NULL, \
                  l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, \
                  l_tax numeric(15,2) NOT NULL, l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, \
                  l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, \
                  l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, \
                  l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber)",
        indexes: &["l_partkey, l_suppkey"],
        rows: 1_500_000 * LINES_PER_ORDER,
        scales: true,
    },
];

impl Table {
    /// How many rows it has at a scale; of lines of orders, about.
    pub fn rows(&self, scale: Scale) -> u64 {
        if self.scales { (self.rows as f64 * scale.factor()) as u64 } else { self.rows }
    }

    /// Whether [`Table::rows`] is exact.
    pub fn is_exact(&self) -> bool {
        self.name != "lineitem"
    }

    /// The statement that makes it.
    pub fn create(&self) -> String {
        format!("CREATE TABLE {} ({})", self.name, self.columns)
    }

    /// The statements that make its indexes, which is done when it is full.
    pub fn create_indexes(&self) -> impl Iterator<Item = String> {
        self.indexes.iter().map(|columns| format!("CREATE INDEX ON {} ({columns})", self.name))
    }

    /// Fills it, and says with how many rows.
    ///
    /// # Errors
    /// What the server says.
    pub async fn fill(&self, client: &Client, scale: Scale, progress: &ProgressBar) -> Result<u64, Error> {
        let copy = format!("COPY {} FROM STDIN (FORMAT csv)", self.name);
        copy_rows(client, &copy, self.lines(scale), progress).await
    }

    /// Its rows as lines of CSV.
    fn lines(&self, scale: Scale) -> Box<dyn Iterator<Item = String> + Send> {
        let factor = scale.factor();
        // The first of one part.
        match self.name {
            "region" => lines!(RegionGenerator::default(), RegionCsv),
            "nation" => lines!(NationGenerator::default(), NationCsv),
            "supplier" => lines!(SupplierGenerator::new(factor, 1, 1), SupplierCsv),
            "part" => lines!(PartGenerator::new(factor, 1, 1), PartCsv),
            "partsupp" => lines!(PartSuppGenerator::new(factor, 1, 1), PartSuppCsv),
            "customer" => lines!(CustomerGenerator::new(factor, 1, 1), CustomerCsv),
            "orders" => lines!(OrderGenerator::new(factor, 1, 1), OrderCsv),
            _ => lines!(LineItemGenerator::new(factor, 1, 1), LineItemCsv),
        }
    }
}

macro_rules! lines {
    ($generator:expr, $csv:ident) => {
        Box::new(Iterator::map($generator.iter(), |row| csv::$csv::new(row).to_string()))
    };
}
use lines;
