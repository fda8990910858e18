//! The consistency conditions of TPC-C (clauses 3.3.2.1 to 3.3.2.12), each a query that finds what breaks it.

use crate::report::CheckReport;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

/// A condition.
#[derive(Debug, Clone, Copy)]
pub struct Condition {
    /// What it says.
    pub name: &'static str,
    /// Its rows break it: a text that says where and how, in the one column.
    query: &'static str,
}

/// Rows of a broken condition that are read at most.
const LISTED: usize = 5;

/// All of them.
pub const CONDITIONS: [Condition; 12] = [
    Condition {
        name: "1: a warehouse got what its districts got",
        query: "SELECT 'warehouse ' || w_id || ': ' || w_ytd || ', districts ' || s \
                FROM warehouse JOIN (SELECT d_w_id, sum(d_ytd) AS s FROM district GROUP BY d_w_id) d ON d_w_id = w_id \
                WHERE w_ytd <> s",
    },
    Condition {
        name: "2: the next order of a district follows its last order and its last new order",
        query: "SELECT 'district ' || d_w_id || '/' || d_id || ': next ' || d_next_o_id || ', last ' || o \
                       || ', last new ' || coalesce(n, o) \
                FROM district JOIN (SELECT o_w_id, o_d_id, max(o_id) AS o FROM orders GROUP BY o_w_id, o_d_id) o \
                       ON o_w_id = d_w_id AND o_d_id = d_id \
                     LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS n FROM new_order GROUP BY no_w_id, no_d_id) n \
                       ON no_w_id = d_w_id AND no_d_id = d_id \
                WHERE d_next_o_id - 1 <> o OR d_next_o_id - 1 <> coalesce(n, o)",
    },
    Condition {
        name: "3: the new orders of a district have numbers without gaps",
        query: "SELECT 'district ' || no_w_id || '/' || no_d_id || ': ' || min(no_o_id) || ' to ' || max(no_o_id) \
                       || ', but ' || count(*) \
                FROM new_order GROUP BY no_w_id, no_d_id HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    },
    Condition {
        name: "4: a district has as many lines as its orders say",
        query: "SELECT 'district ' || o_w_id || '/' || o_d_id || ': ' || o || ', there are ' || coalesce(l, 0) \
                FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS o FROM orders GROUP BY o_w_id, o_d_id) o \
                     LEFT JOIN (SELECT ol_w_id, ol_d_id, count(*) AS l FROM order_line GROUP BY ol_w_id, ol_d_id) l \
                       ON ol_w_id = o_w_id AND ol_d_id = o_d_id \
                WHERE o <> coalesce(l, 0)",
    },
    Condition {
        name: "5: an order has no carrier if and only if it is a new order",
        query: "SELECT 'order ' || o_w_id || '/' || o_d_id || '/' || o_id \
                FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
                WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    },
    Condition {
        name: "6: an order has as many lines as it says",
        query: "SELECT 'order ' || o_w_id || '/' || o_d_id || '/' || o_id || ': ' || o_ol_cnt || ', there are ' \
                       || coalesce(l, 0) \
                FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS l FROM order_line \
                                       GROUP BY ol_w_id, ol_d_id, ol_o_id) l \
                       ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
                WHERE o_ol_cnt <> coalesce(l, 0)",
    },
    Condition {
        name: "7: a line is not delivered if and only if its order has no carrier",
        query: "SELECT 'line ' || ol_w_id || '/' || ol_d_id || '/' || ol_o_id || '/' || ol_number \
                FROM order_line JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
                WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    },
    Condition {
        name: "8: a warehouse got what the history says",
        query: "SELECT 'warehouse ' || w_id || ': ' || w_ytd || ', history ' || s \
                FROM warehouse JOIN (SELECT h_w_id, sum(h_amount) AS s FROM history GROUP BY h_w_id) h ON h_w_id = w_id \
                WHERE w_ytd <> s",
    },
    Condition {
        name: "9: a district got what the history says",
        query: "SELECT 'district ' || d_w_id || '/' || d_id || ': ' || d_ytd || ', history ' || s \
                FROM district JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS s FROM history GROUP BY h_w_id, h_d_id) h \
                       ON h_w_id = d_w_id AND h_d_id = d_id \
                WHERE d_ytd <> s",
    },
    Condition {
        name: "10: a customer's balance is what was delivered less what the history says",
        query: "SELECT 'customer ' || c_w_id || '/' || c_d_id || '/' || c_id || ': ' || c_balance || ', delivered ' \
                       || coalesce(l, 0) || ', history ' || coalesce(h, 0) \
                FROM customer \
                     LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS l FROM order_line \
                                JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
                                WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l \
                       ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
                     LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS h FROM history \
                                GROUP BY h_c_w_id, h_c_d_id, h_c_id) h \
                       ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
                WHERE c_balance <> coalesce(l, 0) - coalesce(h, 0)",
    },
    Condition {
        // The specification compares with 2,100, which holds until the first delivery. A delivery moves an order from
        // one side to the other and counts at its customer.
        name: "11: a district's orders less its new orders are the 2,100 of the beginning and its deliveries",
        query: "SELECT 'district ' || o_w_id || '/' || o_d_id || ': ' || o || ' orders, ' || coalesce(n, 0) \
                       || ' new, deliveries ' || c \
                FROM (SELECT o_w_id, o_d_id, count(*) AS o FROM orders GROUP BY o_w_id, o_d_id) o \
                     JOIN (SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS c FROM customer GROUP BY c_w_id, c_d_id) c \
                       ON c_w_id = o_w_id AND c_d_id = o_d_id \
                     LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS n FROM new_order GROUP BY no_w_id, no_d_id) n \
                       ON no_w_id = o_w_id AND no_d_id = o_d_id \
                WHERE o - coalesce(n, 0) <> 2100 + c",
    },
    Condition {
        name: "12: a customer's balance and payments are what was delivered",
        query: "SELECT 'customer ' || c_w_id || '/' || c_d_id || '/' || c_id || ': ' || c_balance || ' and ' \
                       || c_ytd_payment || ', delivered ' || coalesce(l, 0) \
                FROM customer \
                     LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS l FROM order_line \
                                JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
                                WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) l \
                       ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
                WHERE c_balance + c_ytd_payment <> coalesce(l, 0)",
    },
];

impl Condition {
    /// What breaks it; nothing if it holds.
    ///
    /// # Errors
    /// What the server says.
    pub async fn broken_by(&self, client: &Client) -> Result<Vec<String>, Error> {
        let query = format!("{} LIMIT {LISTED}", self.query);
        let messages = client.simple_query(&query).await?;
        let text = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or("NULL").to_owned()),
            _ => None,
        };
        Ok(messages.iter().filter_map(text).collect())
    }
}

/// Looks whether all conditions hold.
///
/// # Errors
/// What the server says.
pub async fn check(client: &Client, report: &mut CheckReport) -> Result<(), Error> {
    for condition in CONDITIONS {
        for found in condition.broken_by(client).await? {
            report.problem(format_args!("condition {}: {found}", condition.name));
        }
    }
    report.fact("conditions", CONDITIONS.len());
    Ok(())
}
