"""TPC-H, TPC-C and loading many rows, side by side with PostgreSQL."""
import os
import pathlib
import statistics
import tempfile
import time

import psycopg
from systems import Dormouse, Postgres, cpu_seconds
from transactions import parts_of, workload

# The columns of TPC-H's largest table.
LINEITEM = """CREATE TABLE {} (l_orderkey bigint NOT NULL, l_partkey int NOT NULL, l_suppkey int NOT NULL, l_linenumber int NOT NULL,
    l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL, l_tax numeric(15,2) NOT NULL,
    l_returnflag char(1) NOT NULL, l_linestatus char(1) NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL,
    l_shipinstruct char(25) NOT NULL, l_shipmode char(10) NOT NULL, l_comment varchar(44) NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber))"""


def family_cpu(pid):
    """CPU seconds of a process, of its children, and of those that it has waited for."""

    def waited_for():
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[13]) + int(fields[14])

    while True:
        gone = waited_for()
        try:
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            used = cpu_seconds(pid) + sum(map(cpu_seconds, children))
        except FileNotFoundError:
            continue
        # One that ended meanwhile may be missing here and there.
        if waited_for() == gone:
            return used + gone / os.sysconf("SC_CLK_TCK")


class Ours:
    """A tenant of a Dormouse."""

    name = "Dormouse"

    def __init__(self):
        self.system = Dormouse()
        self.url = self.system.create("tpc")
        self.binary = self.system.binary
        # Wakes it: what its processes use can be read from then on.
        psycopg.connect(self.url).close()

    def cpu(self):
        return sum(cpu_seconds(pid) for pids in parts_of(self.system, "tpc").values() for pid in pids)

    def close(self):
        self.system.close()


class Theirs:
    """A PostgreSQL."""

    name = "PostgreSQL 15"

    def __init__(self):
        self.system = Postgres()
        self.url = self.system.url + "?sslmode=require"

    def cpu(self):
        return family_cpu(self.system.server.pid)

    def close(self):
        self.system.close()


class Both:
    """Both systems; what is measured is measured on each in turn."""

    def __enter__(self):
        self.ours = Ours()
        self.theirs = Theirs()
        return self

    def __exit__(self, *_):
        self.ours.close()
        self.theirs.close()

    def workload(self, target, *arguments):
        return workload(self.ours.binary, target.url, *arguments)

    def each(self, measure):
        return [measure(target) for target in (self.ours, self.theirs)]


def timed(target, action):
    """(seconds, CPU seconds of the server) that something takes."""
    cpu, start = target.cpu(), time.monotonic()
    action()
    return time.monotonic() - start, target.cpu() - cpu


def tpch(options):
    """All 22 queries, one after the other, on one connection."""
    scale, turns = ("0.01", 1) if options.quick else ("1", 3)
    scale, turns = str(options.scale or scale), options.turns or turns
    with Both() as both:
        loads = both.each(lambda target: timed(target, lambda: both.workload(target, "init", "tpch", "--scale", scale)))
        found = {target.name: [] for target in (both.ours, both.theirs)}
        cpu = {target.name: [] for target in (both.ours, both.theirs)}
        # The first turn fills caches and does not count.
        for turn in range(turns + 1):
            for target in (both.ours, both.theirs):
                before = target.cpu()
                report = both.workload(target, "run", "tpch", "--scale", scale, "--quiet")
                if turn:
                    found[target.name].append({kind: one["mean"] / 1e3 for kind, one in report["latency_ms"].items() if kind != "all"})
                    cpu[target.name].append(target.cpu() - before)
        both.workload(both.ours, "check", "tpch", "--scale", scale, "--against", both.theirs.url)
    names = sorted(found[both.ours.name][0])
    mine, other = ({name: statistics.median(turn[name] for turn in turns_of) for name in names} for turns_of in found.values())
    mine_cpu, other_cpu = (statistics.median(turns_of) for turns_of in cpu.values())
    rows = [(name, f"{mine[name]:.2f} s", f"{other[name]:.2f} s", f"{mine[name] / other[name]:.2f}") for name in names]
    total, reference = sum(mine.values()), sum(other.values())
    rows.append(("total", f"{total:.1f} s", f"{reference:.1f} s", f"{total / reference:.2f}"))
    rows.append(("CPU of the servers", f"{mine_cpu:.1f} s", f"{other_cpu:.1f} s", f"{mine_cpu / other_cpu:.2f}"))
    rows.append(("load, with indexes and statistics", f"{loads[0][0]:.0f} s", f"{loads[1][0]:.0f} s", f"{loads[0][0] / loads[1][0]:.2f}"))
    return {
        "title": f"TPC-H at scale {scale}, one connection, TLS, median of {turns} turn{'s' * (turns > 1)}; all answers are the same",
        "aim": "total ≤ 1.0 × PostgreSQL", "header": ("query", "Dormouse", "PostgreSQL 15", "ratio"), "rows": rows,
    }


# TPC-H's queries that are an aggregate over one table.
AGGREGATES = {
    "Q1": """SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)),
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
        FROM lineitem WHERE l_shipdate <= date '1998-12-01' - interval '90' day GROUP BY l_returnflag, l_linestatus ORDER BY 1, 2""",
    "Q6": """SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= date '1994-01-01'
        AND l_shipdate < date '1994-01-01' + interval '1' year AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
}


def partial_aggregates(options):
    """What KV nodes save when they aggregate."""
    scale, turns, rounds = ("0.01", 1, 2) if options.quick else ("0.1", 5, 4)
    ours, rows = Ours(), []
    try:
        workload(ours.binary, ours.url, "init", "tpch", "--scale", scale)
        parts = parts_of(ours.system, "tpc")
        with psycopg.connect(ours.url, autocommit=True) as conn:
            for name, query in AGGREGATES.items():
                answers, found = {}, {"off": [], "auto": []}
                # The first turn fills caches and does not count.
                for turn in range(turns + 1):
                    for choice, into in found.items():
                        conn.execute(f"SET partial_aggregates = {choice}")
                        before = {part: sum(map(cpu_seconds, pids)) for part, pids in parts.items()}
                        start = time.monotonic()
                        for _ in range(rounds):
                            answers[choice] = conn.execute(query).fetchall()
                        took = (time.monotonic() - start) / rounds
                        used = {part: (sum(map(cpu_seconds, pids)) - before[part]) / rounds for part, pids in parts.items()}
                        if turn:
                            into.append((took, used["SQL node"], used["KV nodes"]))
                if answers["off"] != answers["auto"]:
                    raise RuntimeError(f"{name}: the answers differ")
                for choice, label in (("off", "without"), ("auto", "with")):
                    conn.execute(f"SET partial_aggregates = {choice}")
                    facts = dict(line.split(": ", 1) for line, in conn.execute(f"EXPLAIN ANALYZE {query}") if line.startswith("KV "))
                    took, sql, kv = (statistics.median(one) for one in zip(*found[choice]))
                    rows.append((f"{name}, {label}", f"{int(facts['KV Bytes Read']):,}", facts["KV Requests"], f"{took * 1e3:.0f} ms",
                                 f"{sql * 1e3:.0f} ms", f"{kv * 1e3:.0f} ms", f"{(sql + kv) * 1e3:.0f} ms"))
    finally:
        ours.close()
    return {
        "title": f"Partial aggregates in KV nodes, TPC-H at scale {scale}, one connection, median of {turns} × {rounds} runs in turns; "
                 "the answers are the same",
        "aim": None, "header": ("", "bytes from KV to SQL", "requests", "time", "CPU of the SQL node", "CPU of the KV node", "both"), "rows": rows,
    }


def tpcc(options):
    """All five transactions without think time."""
    warehouses, seconds, turns, connections = ("1", 5, 1, "4") if options.quick else ("10", 30, 2, "10")
    seconds, turns = options.seconds or seconds, options.turns or turns
    rows = []
    with Both() as both:
        both.each(lambda target: both.workload(target, "init", "tpcc", "--warehouses", warehouses))
        for level in ("serializable", "read-committed"):
            found = ([], [])
            for _ in range(turns):
                for target, into in zip((both.ours, both.theirs), found):
                    before = target.cpu()
                    report = both.workload(target, "run", "tpcc", "--warehouses", warehouses, "--connections", connections, "--isolation", level,
                                           "--duration", f"{seconds}s", "--quiet")
                    into.append((report["operations"] / (target.cpu() - before), report))
            per_cpu = [statistics.median(rate for rate, _ in one) for one in found]
            for target, rate, one in zip((both.ours, both.theirs), per_cpu, found):
                report = one[-1][1]
                new_order = report["latency_ms"]["new-order"]
                rows.append((f"{target.name}, {level}", f"{report['operations_per_second']:,.0f}", f"{new_order['per_second']:,.0f}",
                             f"{new_order['p50']:.1f} ms, {new_order['p99']:.1f} ms", f"{report['retries_per_operation']:.4f}", f"{rate:,.0f}",
                             f"{rate / per_cpu[1]:.2f}"))
        both.each(lambda target: both.workload(target, "check", "tpcc", "--warehouses", warehouses))
    return {
        "title": f"TPC-C with {warehouses} warehouses, no think time, {connections} connections, TLS, {turns} × {seconds} s in turns; "
                 "consistency conditions 1 to 12 hold",
        "aim": "transactions per CPU second of the servers ≥ 0.4 × PostgreSQL",
        "header": ("", "transactions/s", "new orders/s", "their p50, p99", "retries per transaction", "transactions per CPU second", "ratio"),
        "rows": rows,
    }


def load_once(target, path, table):
    """One COPY of a file, a transaction."""
    with psycopg.connect(target.url) as conn, open(path, "rb") as file:
        conn.execute(LINEITEM.format(table))
        conn.commit()

        def copy():
            with conn.cursor().copy(f"COPY {table} FROM STDIN") as sink:
                while chunk := file.read(1 << 18):
                    sink.write(chunk)
            conn.commit()

        return timed(target, copy)


def bulk_load(options):
    """Rows of TPC-H's lineitem by one COPY."""
    scale, turns = ("0.01", 1) if options.quick else ("0.2", 3)
    with Both() as both, tempfile.NamedTemporaryFile(suffix=".copy") as file:
        both.workload(both.theirs, "init", "tpch", "--scale", scale)
        with psycopg.connect(both.theirs.url) as conn, conn.cursor().copy("COPY lineitem TO STDOUT") as rows_of:
            count = 0
            for block in rows_of:
                file.write(block)
                count += bytes(block).count(b"\n")
        file.flush()
        found = ([], [])
        for turn in range(turns):
            for target, into in zip((both.ours, both.theirs), found):
                into.append(load_once(target, file.name, f"loaded_{turn}"))
    rates = [[count / seconds for seconds, _ in one] for one in found]
    costs = [statistics.median(cpu for _, cpu in one) / count * 1e6 for one in found]
    medians = [statistics.median(one) for one in rates]
    rows = [("rows per second", *(f"{rate:,.0f}" for rate in medians), f"{medians[0] / medians[1]:.2f}"),
            ("CPU of the server per row", *(f"{cost:.1f} µs" for cost in costs), f"{costs[0] / costs[1]:.2f}")]
    return {
        "title": f"{count:,} rows of lineitem by one COPY, TLS, median of {turns} turns",
        "aim": None, "header": ("", "Dormouse", "PostgreSQL 15", "ratio"), "rows": rows,
    }
