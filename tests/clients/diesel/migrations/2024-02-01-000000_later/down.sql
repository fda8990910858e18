ALTER TABLE orders DROP CONSTRAINT orders_customer;
ALTER TABLE orders ALTER COLUMN customer_id TYPE integer;
ALTER TABLE orders ADD CONSTRAINT orders_customer_id_fkey FOREIGN KEY (customer_id) REFERENCES customers (id);
ALTER TABLE orders DROP COLUMN paid;
