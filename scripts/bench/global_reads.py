"""Reads and writes of tables whose leaseholder is far away: as any other, by followers, and global ones."""
import statistics
import threading
import time

import psycopg
from systems import Far, ms, percentile

# One way between any two of the three nodes: 20 ms there and back.
ONE_WAY_MS = 10
ROWS = 1_000
# Where the leases are, while the SQL node is at home.
ABROAD = "region=b"
TABLES = {"ordinary": "", "worldwide": ", dormouse.global = true"}
# (label, table, how the session reads)
KINDS = (("ordinary table", "ordinary", ()),
         ("ordinary table, reads by followers", "ordinary", ("SET default_transaction_read_only = on", "SET follower_reads = on")),
         ("global table", "worldwide", ()))


def make_tables(system, url):
    """The tables, of one content; waits until they are served from abroad."""
    with psycopg.connect(url, autocommit=True) as conn:
        for name, more in TABLES.items():
            conn.execute(f"CREATE TABLE {name} (k bigint PRIMARY KEY, v bigint NOT NULL)")
            conn.execute(f"INSERT INTO {name} SELECT k, 0 FROM generate_series(1, {ROWS}) k")
            conn.execute(f"ALTER TABLE {name} SET (dormouse.lease_preferences = '{ABROAD}'{more})")
    api, deadline = system.api(), time.monotonic() + 120
    while True:
        found = api.ranges("abroad")
        if sum(one["leaseholder"] == 2 and len(one["replicas"]) == 3 for one in found) >= len(TABLES):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"no leases go abroad: {found}")
        time.sleep(0.2)


def timed(conn, statement, seconds):
    """Latencies of a statement with one key as its parameter, one after the other."""
    found, end, key = [], time.perf_counter() + seconds, 0
    while (started := time.perf_counter()) < end:
        key = key % ROWS + 1
        conn.execute(statement, (key,), prepare=True)
        found.append(time.perf_counter() - started)
    return found


class Reader:
    """Reads a table twice a second, so that it counts as one that is read."""

    def __init__(self, url, table):
        self.url, self.table, self.over = url, table, threading.Event()
        self.thread = threading.Thread(target=self._read)

    def _read(self):
        with psycopg.connect(self.url, autocommit=True) as conn:
            while not self.over.wait(0.5):
                conn.execute(f"SELECT v FROM {self.table} WHERE k = 1")

    def __enter__(self):
        self.thread.start()
        # Until promises are made.
        time.sleep(1)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def global_reads(options):
    """p50 and p99 of point reads, and p50 of updates, from a place that the leaseholder is far from."""
    seconds, turns = (3, 1) if options.quick else (5, 3)
    system, rows = Far(ONE_WAY_MS), []
    try:
        url = system.create_at_home("abroad")
        make_tables(system, url)
        reads, writes = {label: [] for label, _, _ in KINDS}, {name: [] for name in TABLES}
        for _ in range(turns):
            for label, table, settings in KINDS:
                with psycopg.connect(url, autocommit=True) as conn:
                    for setting in settings:
                        conn.execute(setting)
                    timed(conn, f"SELECT v FROM {table} WHERE k = %s", 1)
                    reads[label] += timed(conn, f"SELECT v FROM {table} WHERE k = %s", seconds)
            for table in TABLES:
                with psycopg.connect(url, autocommit=True) as conn, Reader(url, table):
                    writes[table] += timed(conn, f"UPDATE {table} SET v = v + 1 WHERE k = %s", seconds)
    finally:
        system.close()
    for label, table, settings in KINDS:
        cells = [ms(percentile(reads[label], share)) for share in (0.5, 0.99)]
        rows.append((label, *cells, "" if settings else ms(statistics.median(writes[table]))))
    return {
        "title": f"Tables whose leaseholder is {2 * ONE_WAY_MS} ms away there and back, three nodes, one client, "
                 f"{turns} × {seconds} s in turns",
        "aim": "reads of a global table, of the present, at the p50 of a leaseholder next door",
        "header": ("", "point read p50", "p99", "UPDATE of one row p50"),
        "rows": rows,
    }
