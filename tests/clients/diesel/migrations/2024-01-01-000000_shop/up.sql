CREATE TABLE customers (
    id serial PRIMARY KEY,
    name varchar(40) NOT NULL UNIQUE,
    credit numeric(10, 2) NOT NULL DEFAULT 0 CONSTRAINT customers_solvent CHECK (credit >= 0),
    joined timestamp NOT NULL DEFAULT current_timestamp,
    profile jsonb
);
CREATE TABLE orders (
    id bigserial PRIMARY KEY,
    customer_id integer NOT NULL REFERENCES customers (id),
    total double precision NOT NULL,
    lines text[] NOT NULL DEFAULT '{}',
    placed date
);
CREATE INDEX orders_customer ON orders (customer_id, placed DESC);
