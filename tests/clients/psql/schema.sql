SET client_min_messages = warning;
DROP VIEW IF EXISTS big_orders;
DROP TABLE IF EXISTS orders;
DROP SCHEMA IF EXISTS shop CASCADE;
DROP FUNCTION IF EXISTS total_of(int, numeric);
DROP FUNCTION IF EXISTS noted();
DROP SEQUENCE IF EXISTS tickets;
CREATE SCHEMA shop;
CREATE TABLE shop.customers (
  id serial PRIMARY KEY,
  email text NOT NULL UNIQUE CHECK (length(email) > 1),
  settings jsonb NOT NULL DEFAULT '{"theme": "dark"}',
  "Odd Name" varchar(20) DEFAULT 'it''s',
  created timestamptz NOT NULL DEFAULT now()
);
SET search_path = public, shop;
CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer int CONSTRAINT orders_customer_fkey REFERENCES customers (id) ON DELETE CASCADE,
  total numeric(10, 2) NOT NULL,
  lines int[] DEFAULT '{}',
  note text,
  CHECK ((total > 0) OR (note IS NOT NULL)),
  UNIQUE (customer, total)
);
CREATE INDEX orders_newest ON orders (customer, id DESC);
CREATE INDEX ON orders USING gin (lines) WHERE total > 10;
CREATE INDEX ON customers USING gin (settings jsonb_path_ops);
CREATE SEQUENCE tickets START 5 INCREMENT 3 MAXVALUE 1000 CYCLE;
CREATE VIEW big_orders AS SELECT o.*, email FROM orders o JOIN customers ON customers.id = o.customer WHERE total > 50;
COMMENT ON TABLE orders IS 'what was ordered';
COMMENT ON COLUMN orders.note IS 'anything; with ''quotes''';
GRANT SELECT ON orders TO PUBLIC;
CREATE POLICY buyers ON orders FOR SELECT USING (EXISTS (SELECT 1 FROM customers c WHERE c.id = customer AND c.email = current_user));
CREATE POLICY paid ON orders AS RESTRICTIVE FOR INSERT WITH CHECK (total > 0 OR note IS NOT NULL);
ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
ALTER TABLE orders FORCE ROW LEVEL SECURITY;
CREATE FUNCTION total_of(customer_id int, tax numeric DEFAULT 0.2) RETURNS numeric LANGUAGE sql STABLE STRICT
  AS 'SELECT coalesce(sum(o.total), 0) * (1 + tax) FROM public.orders o WHERE o.customer = customer_id';
CREATE FUNCTION shop.newest(least_id bigint, OUT id bigint, OUT total numeric) RETURNS SETOF record LANGUAGE plpgsql
  SECURITY DEFINER SET search_path = public, shop AS $body$
BEGIN
  RETURN QUERY SELECT o.id, o.total FROM orders o WHERE o.id > least_id ORDER BY o.id; -- $$
END $body$;
REVOKE EXECUTE ON FUNCTION shop.newest(bigint) FROM PUBLIC;
COMMENT ON FUNCTION shop.newest(bigint) IS 'orders after one';
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.note := lower(TG_OP) || ' ' || TG_ARGV[0];
  RETURN NEW;
END $$;
CREATE TRIGGER orders_noted BEFORE INSERT OR UPDATE OF total ON orders FOR EACH ROW WHEN (NEW.note IS NULL)
  EXECUTE FUNCTION noted('by "trigger''s" rule');
CREATE TRIGGER orders_off AFTER DELETE ON orders EXECUTE FUNCTION noted();
ALTER TABLE orders DISABLE TRIGGER orders_off;
INSERT INTO customers (email) SELECT 'c' || n || '@example.org' FROM generate_series(1, 30) n;
INSERT INTO orders (customer, total, lines, note)
  SELECT n, n * 8 + 6, ARRAY[n, NULL, -n], E'tab\there, back\\slash, ' || n FROM generate_series(1, 25) n;
\o /dev/null
SELECT nextval('tickets');
