CREATE TABLE region (r_regionkey int PRIMARY KEY, r_name char(25) NOT NULL, r_comment varchar(152));
CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name char(25) NOT NULL, n_regionkey int NOT NULL, n_comment varchar(152));
CREATE TABLE part (p_partkey int PRIMARY KEY, p_name varchar(55) NOT NULL, p_type varchar(25) NOT NULL, p_size int NOT NULL);
CREATE TABLE supplier (s_suppkey int PRIMARY KEY, s_name char(25) NOT NULL, s_nationkey int NOT NULL);
CREATE TABLE customer (c_custkey int PRIMARY KEY, c_name varchar(25) NOT NULL, c_nationkey int NOT NULL);
CREATE TABLE orders (o_orderkey int PRIMARY KEY, o_custkey int NOT NULL, o_orderdate date NOT NULL);
CREATE TABLE lineitem (l_orderkey int, l_linenumber int, l_partkey int NOT NULL, l_suppkey int NOT NULL,
                       l_extendedprice numeric(15, 2) NOT NULL, l_discount numeric(15, 2) NOT NULL,
                       PRIMARY KEY (l_orderkey, l_linenumber));
CREATE INDEX ON nation (n_regionkey); CREATE INDEX ON customer (c_nationkey); CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON supplier (s_nationkey); CREATE INDEX ON lineitem (l_partkey); CREATE INDEX ON lineitem (l_suppkey);
INSERT INTO region SELECT n, 'R' || n FROM generate_series(0, 4) n;
INSERT INTO nation SELECT n, 'N' || n, n % 5 FROM generate_series(0, 24) n;
INSERT INTO part SELECT n, 'part ' || n, 'type ' || n % 150, n % 50 FROM generate_series(1, 200) n;
INSERT INTO supplier SELECT n, 'S' || n, n % 25 FROM generate_series(1, 50) n;
INSERT INTO customer SELECT n, 'C' || n, n % 25 FROM generate_series(1, 150) n;
INSERT INTO orders SELECT n, n % 150 + 1, date '1992-01-01' + n FROM generate_series(1, 1500) n;
INSERT INTO lineitem SELECT n / 4, n % 4, n % 200 + 1, n % 50 + 1, n, 0.01 FROM generate_series(1, 6000) n;
ANALYZE
