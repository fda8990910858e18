"""What transactions cost: CPU per operation, how often they are repeated, YCSB, and the program of before."""
import contextlib
import os
import statistics
import subprocess
import tempfile

import psycopg
from systems import Dormouse, Postgres, cpu_seconds, last_json, pgbench

CLIENTS = 8
# Rows of the tables that pgbench's scripts use.
ROWS = 100_000

# Scripts of pgbench. Keys of a transaction rise, so that none waits for another in a circle.
POINT_READ = f"\\set k random(1, {ROWS})\nSELECT v FROM cost WHERE k = :k;\n"
BLIND_WRITE = "\\set v random(1, 1000000)\nINSERT INTO blind (v) VALUES (:v);\n"
READ_MODIFY_WRITE = f"\\set k random(1, {ROWS})\nUPDATE cost SET v = v + 1 WHERE k = :k;\n"


def ten_statements():
    """BEGIN, five times a read and an update of a row of its own, COMMIT."""
    part, lines, body = ROWS // 5, [], ["BEGIN;"]
    for number in range(5):
        lines.append(f"\\set k{number} random({number * part + 1}, {(number + 1) * part})")
        body.append(f"SELECT v FROM cost WHERE k = :k{number};")
        body.append(f"UPDATE cost SET v = v + 1 WHERE k = :k{number};")
    return "\n".join([*lines, *body, "COMMIT;"]) + "\n"


OPERATIONS = (("point read", POINT_READ), ("blind write (INSERT)", BLIND_WRITE),
              ("read-modify-write (UPDATE)", READ_MODIFY_WRITE), ("transaction of 10 statements", ten_statements()))


def make_cost_tables(url):
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE cost (k bigint PRIMARY KEY, v bigint NOT NULL)")
        conn.execute("CREATE TABLE blind (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), v bigint NOT NULL)")
        with conn.cursor().copy("COPY cost FROM STDIN") as copy:
            for key in range(1, ROWS + 1):
                copy.write_row((key, 0))


@contextlib.contextmanager
def script_file(text):
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(text)
        file.flush()
        yield file.name


class Meter:
    """CPU time of the parts of a system: name -> process ids."""

    def __init__(self, parts):
        self.parts = parts

    def now(self):
        return {part: sum(map(cpu_seconds, pids)) for part, pids in self.parts.items()}

    def since(self, before):
        return {part: used - before[part] for part, used in self.now().items()}


def parts_of(system, tenant):
    roles = system.processes()
    return {"proxy": [roles["proxy"]], "SQL node": [system.sql_node(tenant)], "KV nodes": system.kv_processes()}


def measured(url, flags, seconds, meter):
    """Transactions per second, and CPU seconds of each part per transaction."""
    before = meter.now()
    tps = pgbench(url, *flags, "-n", "-c", str(CLIENTS), "-T", str(seconds))
    return tps, {part: used / (tps * seconds) for part, used in meter.since(before).items()}


def us(seconds):
    return f"{seconds * 1e6:,.0f} µs"


def cpu_per_operation(options):
    """CPU of every process per operation, on one KV node and on three."""
    seconds, turns = (4, 1) if options.quick else (6, 2)
    rows = []
    for nodes in (1, 3):
        system = Dormouse("--nodes", str(nodes))
        try:
            url = system.create("cost")
            make_cost_tables(url)
            for name, text in OPERATIONS:
                rates, costs = [], []
                with script_file(text) as path:
                    for _ in range(turns):
                        # A range that is split meanwhile ends what is under way in it once.
                        flags = ["-M", "prepared", "--max-tries", "10", "-f", path]
                        tps, cost = measured(url, flags, seconds, Meter(parts_of(system, "cost")))
                        rates.append(tps)
                        costs.append(cost)
                cost = {part: statistics.median(one[part] for one in costs) for part in costs[0]}
                rows.append((f"{name}, {nodes} KV node{'s' if nodes > 1 else ''}", f"{statistics.median(rates):,.0f}",
                             *map(us, cost.values()), us(sum(cost.values()))))
        finally:
            system.close()
    return {
        "title": f"CPU per operation, pgbench prepared, {CLIENTS} clients, no TLS, median of {turns} × {seconds} s",
        "aim": None, "header": ("", "per second", "proxy", "SQL node", "KV nodes", "together"), "rows": rows,
    }


def workload(binary, url, command, name, *flags):
    """A command of `dormouse workload`; its report."""
    done = subprocess.run([binary, "workload", command, name, "--url", url, *flags, "--output", "json"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"workload {command} {name}: {done.stdout}{done.stderr}")
    return last_json(done.stdout)


CONTENDING = (("bank, SELECT FOR UPDATE", "bank", ("--locking", "select")), ("bank, UPDATE only", "bank", ("--locking", "update")),
              ("orders, 1 warehouse", "orders", ()))


def retries(options):
    """How often transactions are repeated that contend, under both levels, here and in PostgreSQL."""
    seconds, clients = (4, 16) if options.quick else (8, 16)
    system, postgres, rows = Dormouse("--nodes", "3"), Postgres(), []
    try:
        ours, theirs = system.create("contend"), postgres.url + "?sslmode=require"
        for url in (ours, theirs):
            for name in ("bank", "orders"):
                workload(system.binary, url, "init", name)
        for label, name, flags in CONTENDING:
            for level in ("serializable", "read-committed"):
                cells = []
                for url in (ours, theirs):
                    report = workload(system.binary, url, "run", name, *flags, "--isolation", level, "--connections", str(clients),
                                      "--duration", f"{seconds}s", "--quiet")
                    p50 = report["latency_ms"].get("all", next(iter(report["latency_ms"].values())))["p50"]
                    cells += [f"{report['operations_per_second']:,.0f}", f"{p50:.1f} ms", f"{report['retries_per_operation']:.4f}"]
                rows.append((f"{label}, {level}", *cells))
        for url in (ours, theirs):
            for name in ("bank", "orders"):
                workload(system.binary, url, "check", name)
    finally:
        system.close()
        postgres.close()
    return {
        "title": f"Retries of transactions that contend, three KV nodes, {clients} connections, TLS, {seconds} s each; "
                 "bank has 1,000 accounts",
        "aim": None,
        "header": ("", "per second", "p50", "retries per transaction", "PostgreSQL 15: per second", "p50", "retries per transaction"),
        "rows": rows,
    }


def ycsb(options):
    """YCSB A to F, here and in PostgreSQL, in turns."""
    seconds = 3 if options.quick else 6
    system, postgres, rows = Dormouse("--nodes", "3"), Postgres(), []
    try:
        ours, theirs = system.create("ycsb"), postgres.url + "?sslmode=require"
        for url in (ours, theirs):
            workload(system.binary, url, "init", "ycsb")
        for letter in "ABCDEF":
            reports = [workload(system.binary, url, "run", "ycsb", "--workload", letter, "--connections", str(CLIENTS),
                                "--duration", f"{seconds}s", "--quiet") for url in (ours, theirs)]
            mine, other = (report["operations_per_second"] for report in reports)
            kinds = ", ".join(f"{kind} {figures['p50']:.2f}/{figures['p99']:.1f}" for kind, figures in reports[0]["latency_ms"].items()
                              if kind != "all")
            rows.append((letter, f"{mine:,.0f}", kinds, f"{reports[0]['retries_per_operation']:.4f}", f"{other:,.0f}", f"{mine / other:.2f}"))
        for url in (ours, theirs):
            workload(system.binary, url, "check", "ycsb")
    finally:
        system.close()
        postgres.close()
    return {
        "title": f"YCSB, 10,000 rows of 1 KB, three KV nodes, {CLIENTS} connections, TLS, {seconds} s each",
        "aim": None, "header": ("workload", "operations/s", "p50/p99 in ms", "retries per operation", "PostgreSQL 15 operations/s", "ratio"),
        "rows": rows,
    }


class Version:
    """A system of one program, with the tables of what is compared."""

    def __init__(self, binary, *flags):
        # Which program a system runs is decided when it starts.
        kept = os.environ.get("DORMOUSE")
        if binary:
            os.environ["DORMOUSE"] = binary
        try:
            self.system = Dormouse(*flags)
        finally:
            if kept is None:
                os.environ.pop("DORMOUSE", None)
            else:
                os.environ["DORMOUSE"] = kept
        self.url = self.system.create("bench")
        pgbench(self.url, "-i", "-s", "5", "-q")

    def pgbench(self, flags, seconds):
        """(per second, CPU seconds of all processes per transaction)."""
        tps, cost = measured(self.url, flags, seconds, Meter(parts_of(self.system, "bench")))
        return tps, sum(cost.values())

    def bank(self, driver, seconds):
        meter = Meter(parts_of(self.system, "bench"))
        before = meter.now()
        report = workload(driver, self.url, "run", "bank", "--connections", str(CLIENTS), "--duration", f"{seconds}s", "--quiet")
        return report["operations_per_second"], sum(meter.since(before).values()) / report["operations"]


def before(options):
    """The same load on the program of before and on this one, in turns."""
    if not options.before:
        print("  skipped: --before names no program", flush=True)
        return []
    seconds, turns = (3, 1) if options.quick else (6, 5)
    loads = [("pgbench select-only", ["-S", "-M", "prepared"]), ("pgbench TPC-B", ["-M", "prepared"]), ("bank", None)]
    # The program of before kept each tenant in one range. This one as it did, and then as it does now.
    programs = [(options.before,), (None, "--max-range-bytes", str(64 << 30)), (None,)]
    rows = []
    with contextlib.ExitStack() as stack:
        versions = []
        for program in programs:
            versions.append(Version(*program))
            stack.callback(versions[-1].system.close)
        # One and the same program makes the load of the bank.
        driver = versions[-1].system.binary
        for version in versions:
            workload(driver, version.url, "init", "bank")
        for name, flags in loads:
            found = [[] for _ in versions]
            for turn in range(turns):
                # Who comes first takes turns, too.
                for index in sorted(range(len(versions)), reverse=turn % 2 == 1):
                    version = versions[index]
                    found[index].append(version.bank(driver, seconds) if flags is None else version.pgbench(flags, seconds))
            rates = [f"{statistics.median(rate for rate, _ in one):,.0f}" for one in found]
            costs = [us(statistics.median(cost for _, cost in one)) for one in found]
            ratios = []
            for one in found[1:]:
                ratio = sorted(old[1] / new[1] for old, new in zip(found[0], one))
                ratios.append(f"{statistics.median(ratio):.2f} ({ratio[0]:.2f} to {ratio[-1]:.2f})")
            rows.append((name, ", ".join(rates), ", ".join(costs), *ratios))
        for version in versions:
            workload(driver, version.url, "check", "bank")
        ranges = len(versions[-1].system.run("debug", "ranges", "--tenant", "bench"))
    return {
        "title": f"Before and after transactions over several ranges, one KV node, {CLIENTS} clients, {turns} × {seconds} s in turns",
        "aim": "at least as much per CPU second as before: a ratio of 1 or more",
        "header": ("", "per second: before, after in one range, after", "CPU per transaction of the three", "work per CPU second, after in one range to before (of single turns)", f"after, {ranges} ranges, to before"),
        "rows": rows,
    }
