ALTER TABLE orders ADD COLUMN paid boolean NOT NULL DEFAULT false;
ALTER TABLE orders DROP CONSTRAINT orders_customer_id_fkey;
ALTER TABLE orders ALTER COLUMN customer_id TYPE bigint;
ALTER TABLE orders ADD CONSTRAINT orders_customer FOREIGN KEY (customer_id) REFERENCES customers (id) ON DELETE CASCADE;
UPDATE orders SET paid = true WHERE total = 0;
