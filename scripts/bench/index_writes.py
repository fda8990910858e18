"""Single-row writes to a table with secondary indexes, each in a range of its own, on nodes far from each other."""
import statistics
import threading
import time

import psycopg
from systems import Far, ms, percentile
# From scripts/lib, which `systems` makes known.
from keys import index_key

# One way between any two of the three nodes: 20 ms there and back.
ONE_WAY_MS = 10
INDEXES = (0, 1, 2, 4)
CLIENTS = 4
# Of the same tenant and in turns, so that all meet the same machine.
MODES = [(buffered, parallel) for buffered in ("on", "off") for parallel in ("on", "off")]


def make_table(system, tenant, url, indexes):
    """A table with so many indexes; how many ranges it has with its indexes."""
    name = f"wide_{indexes}"
    with psycopg.connect(url, autocommit=True) as conn:
        columns = "".join(f", c{number} bigint NOT NULL" for number in range(1, 5))
        conn.execute(f"CREATE TABLE {name} (id uuid PRIMARY KEY{columns})")
        for number in range(1, indexes + 1):
            conn.execute(f"CREATE INDEX ON {name} (c{number})")
        oid = conn.execute(f"SELECT '{name}'::regclass::oid::bigint").fetchone()[0]
    tenant_id = system.run("tenant", "show", tenant)["id"]
    # The primary index is number 1. The range of the last one goes on to what comes after the table.
    for index in range(1, indexes + 2):
        system.run("debug", "split", index_key(tenant_id, oid, index))
    return indexes + 1


class Writers:
    """Connections that insert a row each, again and again."""

    def __init__(self, url, indexes):
        self.statement = f"INSERT INTO wide_{indexes} VALUES (gen_random_uuid(), %s, %s, %s, %s)"
        self.connections = [psycopg.connect(url, autocommit=True) for _ in range(CLIENTS)]

    def set(self, buffered, parallel):
        for connection in self.connections:
            connection.execute(f"SET kv_buffered_writes = {buffered}")
            connection.execute(f"SET kv_parallel_commits = {parallel}")

    def run(self, seconds):
        """Latencies in seconds, of all connections together."""
        found, errors = [], []
        end = time.perf_counter() + seconds

        def work(connection, number):
            value = number
            try:
                while (started := time.perf_counter()) < end:
                    value += CLIENTS
                    row = [value * factor % 1_000_003 for factor in (1, 7919, 104_729, 15_485_863)]
                    connection.execute(self.statement, row, prepare=True)
                    found.append(time.perf_counter() - started)
            except psycopg.Error as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=pair) for pair in zip(self.connections, range(CLIENTS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return found

    def close(self):
        for connection in self.connections:
            connection.close()


def measure(url, indexes, seconds, turns):
    """For each mode, (writes per second, p50 in seconds)."""
    writers = Writers(url, indexes)
    rates, p50 = {mode: [] for mode in MODES}, {mode: [] for mode in MODES}
    try:
        writers.run(1)
        for _ in range(turns):
            for mode in MODES:
                writers.set(*mode)
                found = writers.run(seconds)
                rates[mode].append(len(found) / seconds)
                p50[mode].append(percentile(found, 0.5))
    finally:
        writers.close()
    return {mode: (statistics.median(rates[mode]), statistics.median(p50[mode])) for mode in MODES}


def index_writes(options):
    """Writes per second and p50 with parallel commits and buffered writes, and without."""
    seconds, turns = (3, 1) if options.quick else (5, 2)
    system, rows = Far(ONE_WAY_MS), []
    try:
        url, ranges = system.create_at_home("wide"), 1
        for indexes in INDEXES:
            ranges += make_table(system, "wide", url, indexes)
        system.wait_for("wide", ranges)
        for indexes in INDEXES:
            found = measure(url, indexes, seconds, turns)
            (rate, p50), (slow, long) = found["on", "on"], found["on", "off"]
            rows.append((indexes, *(f"{rate:,.0f}/s, {ms(p50)}" for rate, p50 in (found[mode] for mode in MODES)),
                         f"{100 * (rate / slow - 1):+.0f} %, {100 * (p50 / long - 1):+.0f} %"))
    finally:
        system.close()
    return {
        "title": f"INSERT of one row, every index in a range of its own, three nodes {2 * ONE_WAY_MS} ms apart there and back, "
                 f"{CLIENTS} clients, median of {turns} × {seconds} s in turns",
        "aim": "p50 stays where it is whatever the number of indexes; the paper saw +72 % throughput and -47 % p50 of both together",
        "header": ("indexes", "buffered writes, parallel commits", "buffered, two rounds", "sent by statement, parallel commits",
                   "sent by statement, two rounds", "what parallel commits change (buffered)"),
        "rows": rows,
    }
