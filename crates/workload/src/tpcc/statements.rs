//! The statements of TPC-C's transactions, prepared once for each connection.
//!
//! Amounts come and go as whole cents, which drivers have a type for.

use tokio_postgres::{Client, Error, Statement};

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident: $text:literal,)+) => {
        /// The statements.
        pub struct Statements {
            $($(#[$doc])* pub $name: Statement,)+
        }

        impl Statements {
            /// Prepares them.
            ///
            /// # Errors
            /// What the server says.
            pub async fn prepare(client: &Client) -> Result<Self, Error> {
                Ok(Self { $($name: client.prepare($text).await?,)+ })
            }
        }
    };
}

statements! {
    /// Name, credit and what is taken off for a customer, and the tax of the warehouse.
    order_customer: "SELECT c_last, c_credit, (c_discount * 10000)::int, (w_tax * 10000)::int FROM customer, warehouse \
                     WHERE w_id = $1 AND c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    /// The number of a district's next order.
    next_order: "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 \
                 RETURNING d_next_o_id - 1, (d_tax * 10000)::int",
    /// An order.
    order: "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local) \
            VALUES ($1, $2, $3, $4, current_timestamp, NULL, $5, $6)",
    /// That an order is new.
    new_order: "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)",
    /// Items.
    items: "SELECT i_id, (i_price * 100)::bigint, i_name, i_data FROM item WHERE i_id = ANY ($1)",
    /// Takes items out of stock.
    stock: "UPDATE stock SET s_quantity = CASE WHEN s_quantity >= $3 + 10 THEN s_quantity - $3 \
                             ELSE s_quantity - $3 + 91 END, \
                             s_ytd = s_ytd + $3, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $4 \
            WHERE s_w_id = $1 AND s_i_id = $2 \
            RETURNING s_quantity, s_data, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, \
                      s_dist_08, s_dist_09, s_dist_10",
    /// The lines of an order: numbers, items, suppliers, quantities, amounts, and what suppliers write down.
    new_lines: "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, \
                                        ol_amount, ol_dist_info) \
                SELECT $1, $2, $3, number, item, supplier, quantity, amount * 0.01, place \
                FROM unnest($4::int[], $5::int[], $6::int[], $7::int[], $8::bigint[], $9::text[]) \
                     AS l (number, item, supplier, quantity, amount, place)",
    /// Customers of a last name, by their first names.
    by_name: "SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
    /// Pays to a warehouse.
    pay_warehouse: "UPDATE warehouse SET w_ytd = w_ytd + $2::bigint * 0.01 WHERE w_id = $1 \
                    RETURNING w_name, w_street_1, w_street_2, w_city, w_state, w_zip",
    /// Pays to a district.
    pay_district: "UPDATE district SET d_ytd = d_ytd + $3::bigint * 0.01 WHERE d_w_id = $1 AND d_id = $2 \
                   RETURNING d_name, d_street_1, d_street_2, d_city, d_state, d_zip",
    /// A customer pays.
    pay_customer: "UPDATE customer SET c_balance = c_balance - $4::bigint * 0.01, \
                                       c_ytd_payment = c_ytd_payment + $4::bigint * 0.01, \
                                       c_payment_cnt = c_payment_cnt + 1 \
                   WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 \
                   RETURNING c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, \
                             c_since, c_credit, (c_credit_lim * 100)::bigint, (c_discount * 10000)::int, \
                             (c_balance * 100)::bigint",
    /// Writes a payment of a customer of bad credit down, in front of what stands there.
    bad_credit: "UPDATE customer SET c_data = left($4 || c_data, 500) WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 \
                 RETURNING left(c_data, 200)",
    /// A payment.
    history: "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
              VALUES ($1, $2, $3, $4, $5, current_timestamp, $6::bigint * 0.01, $7)",
    /// A customer.
    customer: "SELECT (c_balance * 100)::bigint, c_first, c_middle, c_last FROM customer \
               WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    /// The last order of a customer.
    last_order: "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 \
                 ORDER BY o_id DESC LIMIT 1",
    /// The lines of an order.
    lines: "SELECT ol_i_id, ol_supply_w_id, ol_quantity, (ol_amount * 100)::bigint, ol_delivery_d FROM order_line \
            WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
    /// The oldest new order of a district.
    oldest: "SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1 FOR UPDATE",
    /// An order is no longer new.
    not_new: "DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3",
    /// An order gets a carrier.
    carry: "UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3 RETURNING o_c_id",
    /// The lines of an order are delivered.
    deliver: "UPDATE order_line SET ol_delivery_d = current_timestamp \
              WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3 RETURNING (ol_amount * 100)::bigint",
    /// A customer owes for what was delivered.
    owe: "UPDATE customer SET c_balance = c_balance + $4::bigint * 0.01, c_delivery_cnt = c_delivery_cnt + 1 \
          WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    /// The number of a district's next order, for reading.
    upcoming: "SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2",
    /// How many items of the last twenty orders are nearly gone.
    low_stock: "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = $1 AND s_i_id = ol_i_id \
                WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 - 20 AND ol_o_id < $3 AND s_quantity < $4",
}
