SET client_min_messages = warning;
DROP SCHEMA IF EXISTS shop CASCADE;
CREATE SCHEMA shop;
COMMENT ON SCHEMA shop IS 'where things are sold';
SET search_path = shop;
CREATE TYPE size AS ENUM ('small', 'large');
CREATE DOMAIN price AS numeric(10,2) DEFAULT 1 CHECK (VALUE >= 0);
CREATE TABLE customers (
  id serial PRIMARY KEY,
  email varchar(80) NOT NULL UNIQUE CHECK (length(email) > 1),
  settings jsonb NOT NULL DEFAULT '{"theme": "dark"}',
  "Odd Name" varchar(20) DEFAULT 'it''s',
  created timestamptz(3) NOT NULL DEFAULT now()
);
CREATE TABLE orders (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  customer int CONSTRAINT orders_customer_fkey REFERENCES customers (id) ON DELETE CASCADE,
  total numeric(10, 2) NOT NULL,
  cost price,
  lines int[] DEFAULT '{}',
  parcel size DEFAULT 'small',
  note text,
  CHECK ((total > 0) OR (note IS NOT NULL)),
  UNIQUE (customer, total)
);
CREATE INDEX orders_newest ON orders (customer, id DESC);
CREATE INDEX orders_noted ON orders (lower(note)) WHERE note IS NOT NULL;
CREATE SEQUENCE tickets START 5 INCREMENT 3 MAXVALUE 1000 CYCLE;
CREATE VIEW big_orders AS SELECT o.id, o.total, c.email FROM orders o JOIN customers c ON c.id = o.customer WHERE o.total > 50;
COMMENT ON TABLE orders IS 'what was ordered';
COMMENT ON COLUMN orders.note IS 'anything';

INSERT INTO customers (email) VALUES ('a@example.org'), ('b@example.org');
INSERT INTO orders (customer, total, note) VALUES (1, 10, 'x'), (2, 100, NULL);
