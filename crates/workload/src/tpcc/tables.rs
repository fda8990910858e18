//! The nine tables of TPC-C (clause 1.3) and the rows that they have at first (clause 4.3.3).

use super::plan::DISTRICTS;
use super::random::{CUSTOMERS, ITEMS, Random};
use crate::load::copy_rows;
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tokio_postgres::{Client, Error};

/// Orders of a district that are delivered already; the others are new.
const DELIVERED: i32 = 2_100;
/// Lines of an order, on average.
const LINES_PER_ORDER: u64 = 10;
/// When everything was that was before the first run.
const LOADED_AT: &str = "2024-01-01 00:00:00";

/// The tables and their columns, in the order in which they refer to each other.
pub const TABLES: [(&str, &str); 9] = [
    (
        "warehouse",
        "w_id int PRIMARY KEY, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20), \
         w_city varchar(20), w_state char(2), w_zip char(9), w_tax numeric(4,4) NOT NULL, \
         w_ytd numeric(12,2) NOT NULL",
    ),
    (
        "district",
        "d_id int, d_w_id int, d_name varchar(10), d_street_1 varchar(20), d_street_2 varchar(20), \
         d_city varchar(20), d_state char(2), d_zip char(9), d_tax numeric(4,4) NOT NULL, \
         d_ytd numeric(12,2) NOT NULL, d_next_o_id int NOT NULL, PRIMARY KEY (d_w_id, d_id)",
    ),
    (
        "customer",
        "c_id int, c_d_id int, c_w_id int, c_first varchar(16), c_middle char(2), c_last varchar(16), \
         c_street_1 varchar(20), c_street_2 varchar(20), c_city varchar(20), c_state char(2), c_zip char(9), \
         c_phone char(16), c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2), \
         c_discount numeric(4,4) NOT NULL, c_balance numeric(12,2) NOT NULL, \
         c_ytd_payment numeric(12,2) NOT NULL, c_payment_cnt int NOT NULL, c_delivery_cnt int NOT NULL, \
         c_data varchar(500), PRIMARY KEY (c_w_id, c_d_id, c_id)",
    ),
    (
        "history",
        "h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, \
         h_amount numeric(6,2) NOT NULL, h_data varchar(24)",
    ),
    (
        "orders",
        "o_id int, o_d_id int, o_w_id int, o_c_id int NOT NULL, o_entry_d timestamp NOT NULL, o_carrier_id int, \
         o_ol_cnt int NOT NULL, o_all_local int NOT NULL, PRIMARY KEY (o_w_id, o_d_id, o_id)",
    ),
    ("new_order", "no_o_id int, no_d_id int, no_w_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id)"),
    (
        "item",
        "i_id int PRIMARY KEY, i_im_id int, i_name varchar(24) NOT NULL, i_price numeric(5,2) NOT NULL, \
         i_data varchar(50) NOT NULL",
    ),
    (
        "stock",
        "s_i_id int, s_w_id int, s_quantity int NOT NULL, s_dist_01 char(24), s_dist_02 char(24), \
         s_dist_03 char(24), s_dist_04 char(24), s_dist_05 char(24), s_dist_06 char(24), s_dist_07 char(24), \
         s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24), s_ytd int NOT NULL, \
         s_order_cnt int NOT NULL, s_remote_cnt int NOT NULL, s_data varchar(50), PRIMARY KEY (s_w_id, s_i_id)",
    ),
    (
        "order_line",
        "ol_o_id int, ol_d_id int, ol_w_id int, ol_number int, ol_i_id int NOT NULL, ol_supply_w_id int, \
         ol_delivery_d timestamp, ol_quantity int NOT NULL, ol_amount numeric(6,2) NOT NULL, \
         ol_dist_info char(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
    ),
];

/// Indexes besides those of the primary keys, made when the tables are full.
pub const INDEXES: [&str; 2] = [
    "CREATE INDEX customer_by_name ON customer (c_w_id, c_d_id, c_last, c_first)",
    "CREATE INDEX orders_by_customer ON orders (o_w_id, o_d_id, o_c_id, o_id)",
];

/// How many rows there are at first, about.
pub fn rows(warehouses: i32) -> u64 {
    let of_district = CUSTOMERS as u64 * (3 + LINES_PER_ORDER) + (CUSTOMERS - DELIVERED) as u64;
    let of_warehouse = ITEMS as u64 + DISTRICTS as u64 * of_district;
    ITEMS as u64 + warehouses.unsigned_abs() as u64 * of_warehouse
}

/// Rows as lines of COPY.
type Lines = Box<dyn Iterator<Item = String> + Send>;

/// Fills the tables.
///
/// # Errors
/// What the server says.
pub async fn fill(client: &Client, warehouses: i32, seed: u64, progress: &ProgressBar) -> Result<(), Error> {
    copy_rows(client, "COPY item FROM STDIN", item_lines(seed), progress).await?;
    for w in 1..=warehouses {
        progress.set_message(format!("warehouse {w}"));
        for (table, lines) in warehouse_lines(seed, w) {
            copy_rows(client, &format!("COPY {table} FROM STDIN"), lines, progress).await?;
        }
    }
    Ok(())
}

/// Every table of a warehouse has random values of its own.
fn random(seed: u64, w: i32, table: u64) -> Random {
    let stream = (w as u64 * 16 + table).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Random(StdRng::seed_from_u64(seed.wrapping_add(stream)))
}

fn item_lines(seed: u64) -> Lines {
    let mut random = random(seed, 0, 0);
    Box::new((1..=ITEMS).map(move |item| item_row(&mut random, item)))
}

/// The rows of a warehouse, by table.
fn warehouse_lines(seed: u64, w: i32) -> [(&'static str, Lines); 8] {
    let random = |table| random(seed, w, table);
    let customers = || (1..=DISTRICTS).flat_map(|d| (1..=CUSTOMERS).map(move |c| (d, c)));
    let orders = || (1..=DISTRICTS).flat_map(move |d| orders_of(seed, w, d));
    let [mut a, mut b, mut c, mut d, mut e, mut f] = [1, 2, 3, 4, 5, 6].map(random);
    [
        ("warehouse", Box::new(std::iter::once_with(move || warehouse_row(&mut a, w)))),
        ("district", Box::new((1..=DISTRICTS).map(move |district| district_row(&mut b, w, district)))),
        ("customer", Box::new(customers().map(move |(of, number)| customer_row(&mut c, w, of, number)))),
        ("history", Box::new(customers().map(move |(of, number)| history_row(&mut d, w, of, number)))),
        ("stock", Box::new((1..=ITEMS).map(move |item| stock_row(&mut e, w, item)))),
        ("orders", Box::new(orders().map(|order| order.row()))),
        ("new_order", Box::new(orders().filter(Order::is_new).map(|order| order.new_row()))),
        ("order_line", Box::new(orders().flat_map(move |order| order.lines(&mut f)))),
    ]
}

/// Columns as COPY takes them.
macro_rules! line {
    ($($value:expr),+ $(,)?) => {
        [$($value.to_string()),+].join("\t")
    };
}

/// An amount of cents, in hundreds.
fn money(cents: i32) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// A share of ten thousand.
fn share(random: &mut Random, most: i32) -> String {
    format!("0.{:04}", random.within(0, most))
}

/// Streets, city, state and zip code.
fn address(random: &mut Random) -> String {
    let streets = [random.letters(10, 20), random.letters(10, 20), random.letters(10, 20)];
    line!(streets.join("\t"), random.letters(2, 2), format!("{}11111", random.digits(4)))
}

fn item_row(random: &mut Random, i: i32) -> String {
    let (image, name) = (random.within(1, 10_000), random.letters(14, 24));
    line!(i, image, name, money(random.within(100, 10_000)), random.data())
}

fn warehouse_row(random: &mut Random, w: i32) -> String {
    let (name, address) = (random.letters(6, 10), address(random));
    line!(w, name, address, share(random, 2_000), "300000.00")
}

fn district_row(random: &mut Random, w: i32, d: i32) -> String {
    let (name, address) = (random.letters(6, 10), address(random));
    line!(d, w, name, address, share(random, 2_000), "30000.00", CUSTOMERS + 1)
}

fn customer_row(random: &mut Random, w: i32, d: i32, c: i32) -> String {
    let (first, last, address) = (random.letters(8, 16), random.last_name_of(c), address(random));
    let (phone, credit) = (random.digits(16), if random.percent(10) { "BC" } else { "GC" });
    let name = line!(first, "OE", last);
    let money = line!(credit, "50000.00", share(random, 5_000), "-10.00", "10.00", 1, 0);
    line!(c, d, w, name, address, phone, LOADED_AT, money, random.letters(300, 500))
}

fn history_row(random: &mut Random, w: i32, d: i32, c: i32) -> String {
    line!(c, d, w, d, w, LOADED_AT, "10.00", random.letters(12, 24))
}

fn stock_row(random: &mut Random, w: i32, i: i32) -> String {
    let quantity = random.within(10, 100);
    let districts: Vec<String> = (0..DISTRICTS).map(|_| random.letters(24, 24)).collect();
    line!(i, w, quantity, districts.join("\t"), 0, 0, 0, random.data())
}

/// An order that is there from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Order {
    warehouse: i32,
    district: i32,
    number: i32,
    customer: i32,
    carrier: i32,
    lines: i32,
}

/// The orders of a district; always the same ones.
fn orders_of(seed: u64, w: i32, d: i32) -> impl Iterator<Item = Order> {
    let mut random = Random(StdRng::seed_from_u64(seed ^ ((w as u64) << 32 | d as u64)));
    let mut customers: Vec<i32> = (1..=CUSTOMERS).collect();
    customers.shuffle(&mut random.0);
    (1..).zip(customers).map(move |(number, customer)| Order {
        warehouse: w,
        district: d,
        number,
        customer,
        carrier: random.within(1, 10),
        lines: random.within(5, 15),
    })
}

impl Order {
    fn is_new(&self) -> bool {
        self.number > DELIVERED
    }

    fn row(&self) -> String {
        let carrier = if self.is_new() { "\\N".to_owned() } else { self.carrier.to_string() };
        let key = line!(self.number, self.district, self.warehouse);
        line!(key, self.customer, LOADED_AT, carrier, self.lines, 1)
    }

    fn new_row(&self) -> String {
        line!(self.number, self.district, self.warehouse)
    }

    fn lines(&self, random: &mut Random) -> Vec<String> {
        let key = self.new_row();
        let line = |number: i32| {
            let item = random.within(1, ITEMS);
            let (delivered, amount) = if self.is_new() {
                ("\\N", money(random.within(1, 999_999)))
            } else {
                (LOADED_AT, "0.00".into())
            };
            line!(key, number, item, self.warehouse, delivered, 5, amount, random.letters(24, 24))
        };
        (1..=self.lines).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> Random {
        Random(StdRng::seed_from_u64(3))
    }

    #[test]
    fn rows_have_as_many_columns_as_their_tables() {
        let order = orders_of(1, 1, 1).last().unwrap();
        let rows = [
            warehouse_row(&mut random(), 1),
            district_row(&mut random(), 1, 2),
            customer_row(&mut random(), 1, 2, 3),
            history_row(&mut random(), 1, 2, 3),
            order.row(),
            order.new_row(),
            item_row(&mut random(), 1),
            stock_row(&mut random(), 1, 2),
            order.lines(&mut random()).remove(0),
        ];
        for ((table, columns), row) in TABLES.iter().zip(rows) {
            let columns =
                columns.split(", ").filter(|column| column.contains('_') && !column.contains("KEY ("));
            let wanted = columns.filter(|column| column.contains(' ')).count();
            assert_eq!(row.split('\t').count(), wanted, "{table}: {row}");
        }
    }

    #[test]
    fn orders_are_the_same_each_time_and_of_every_customer_once() {
        let orders: Vec<Order> = orders_of(9, 2, 3).collect();
        assert!(orders_of(9, 2, 3).eq(orders.iter().cloned()));
        assert!(orders_of(9, 2, 4).ne(orders.iter().cloned()));
        let mut customers: Vec<i32> = orders.iter().map(|order| order.customer).collect();
        customers.sort_unstable();
        assert!(customers.into_iter().eq(1..=CUSTOMERS));
        assert_eq!(orders.iter().filter(|order| order.is_new()).count(), 900);
        let lines = orders[0].lines(&mut random());
        assert_eq!(lines.len() as i32, orders[0].lines);
    }
}
