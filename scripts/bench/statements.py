"""Benchmarks of single statements: how long planning takes, and an index that is built under load."""
import statistics
import threading
import time

import psycopg
from tpc import Both, timed

Q8 = """SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share
    FROM (SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume, n2.n_name AS nation
        FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
        WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
            AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA' AND s_nationkey = n2.n_nationkey
            AND o_orderdate BETWEEN date '1995-01-01' AND date '1996-12-31' AND p_type = 'ECONOMY ANODIZED STEEL') AS all_nations
    GROUP BY o_year ORDER BY o_year"""
POINT = "SELECT * FROM customer WHERE c_custkey = {}"
# Those explained first fill caches, and PostgreSQL plans a prepared statement five times before it keeps a plan.
WARM = 10


def planning_times(url, statement, count):
    """What EXPLAIN says that planning took, in milliseconds; median and least."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("PREPARE point (int) AS " + POINT.format("$1"))
        for number in range(WARM):
            conn.execute(f"EXECUTE point ({number + 1})")
        took = []
        for _ in range(count + WARM):
            lines = [line for line, in conn.execute(f"EXPLAIN (SUMMARY) {statement}")]
            took += [float(line.split(": ")[1].split()[0]) for line in lines if line.startswith("Planning Time")]
    return statistics.median(took[WARM:]), min(took[WARM:])


def planning(options):
    """How long planning takes, as EXPLAIN says."""
    count = 20 if options.quick else 200
    statements = (("point read, prepared", "EXECUTE point (42)"), ("point read, planned anew", POINT.format(42)), ("TPC-H Q8", Q8))
    rows = []
    with Both() as both:
        both.each(lambda target: both.workload(target, "init", "tpch", "--scale", "0.01"))
        for name, statement in statements:
            mine, other = both.each(lambda target: planning_times(target.url, statement, count))
            rows.append((name, *(f"{median * 1e3:,.0f} µs, {least * 1e3:,.0f} µs" for median, least in (mine, other)), f"{mine[0] / other[0]:.2f}"))
    return {
        "title": f"Planning, median and least of {count}, as EXPLAIN (SUMMARY) says; with names and types resolved, which PostgreSQL does not count",
        "aim": "prepared point read ≤ 5 µs, TPC-H Q8 ≤ 20 ms", "header": ("", "Dormouse", "PostgreSQL 15", "ratio"), "rows": rows,
    }


class Updates:
    """Clients that update rows one at a time, for as long as the block runs."""

    def __init__(self, url, rows, clients=4):
        self.url, self.rows, self.clients = url, rows, clients
        self.moments, self.ended, self.errors = [], threading.Event(), []

    def __enter__(self):
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(self.clients)]
        for thread in self.threads:
            thread.start()
        return self

    def run(self, number):
        try:
            with psycopg.connect(self.url, autocommit=True) as conn:
                key = number
                while not self.ended.is_set():
                    key = (key + 7919 * self.clients) % self.rows
                    started = time.monotonic()
                    conn.execute("UPDATE filled SET pad = pad + 1 WHERE id = %s", (key,))
                    self.moments.append((started, time.monotonic()))
        except psycopg.Error as error:
            self.errors.append(str(error))

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def between(self, start, end):
        """(updates per second, longest) of those that ended within a time."""
        took = [ended - begun for begun, ended in self.moments if start <= ended < end]
        return len(took) / (end - start), max(took, default=0)


def index_backfill(options):
    """CREATE INDEX on a table that is written to."""
    count, calm = (20_000, 2) if options.quick else (300_000, 10)
    rows = []
    with Both() as both:
        for target, how in ((both.ours, "CREATE INDEX"), (both.theirs, "CREATE INDEX CONCURRENTLY")):
            with psycopg.connect(target.url, autocommit=True) as conn:
                conn.execute("CREATE TABLE filled (id int PRIMARY KEY, value int, text text, pad int)")
                for start in range(0, count, 20_000):
                    conn.execute("INSERT INTO filled SELECT n, n::bigint * 7919 %% 100003, 'text ' || n, 0 FROM generate_series(%s::int, %s::int) n",
                                 (start, start + 19_999))
                with Updates(target.url, count) as updates:
                    time.sleep(calm)
                    started = time.monotonic()
                    seconds, cpu = timed(target, lambda: conn.execute(f"{how} filled_value ON filled (value, id)"))
                    before, during = updates.between(started - calm + 1, started), updates.between(started, started + seconds)
                if updates.errors:
                    raise RuntimeError(f"{target.name}: {updates.errors[0]}")
                found = conn.execute("SELECT count(*) FROM filled WHERE value BETWEEN 500 AND 1500").fetchone()[0]
                wanted = sum(500 <= n * 7919 % 100003 <= 1500 for n in range(count))
                if found != wanted:
                    raise RuntimeError(f"{target.name}: {found} rows by the index, not {wanted}")
            rows.append((f"{target.name}, {how}", f"{seconds:.1f} s", f"{count / seconds:,.0f}", f"{cpu:.1f} s", f"{before[0]:,.0f}/s, {before[1] * 1e3:.0f} ms",
                         f"{during[0]:,.0f}/s, {during[1] * 1e3:.0f} ms"))
    return {
        "title": f"An index on {count:,} rows while four clients update rows of the table, TLS",
        "aim": None, "header": ("", "time", "rows per second", "CPU of the server, updates included", "updates before: rate, longest", "updates meanwhile"),
        "rows": rows,
    }
