"""Benchmarks of many ranges: tenants that sleep, ranges that are awake, reads by followers."""
import contextlib
import resource
import statistics
import subprocess
import time

import psycopg
from systems import Dormouse, cpu_seconds, disk, last_json, memory, mib, ms, percentile, pgbench

# A range that nobody used for so long leaves memory, and a little more.
ASLEEP_S = 75
# Connections of pgbench.
CLIENTS = 4
# Clients of `debug kv-load`, and the first tenant it makes.
WRITERS, READERS, KV_LOAD_TENANT = 64, 100, 1 << 48


def whole(system):
    """Waits until every range has its three replicas."""
    api, deadline = system.api(), time.monotonic() + 120
    while any(len(found["replicas"]) < 3 for found in api.ranges()):
        if time.monotonic() > deadline:
            raise RuntimeError("ranges lack replicas")
        time.sleep(0.2)


def footprint(system):
    """(private bytes of every KV node, bytes of every store)."""
    return [memory(pid)["private"] for pid in system.kv_processes()], [disk(store) for store in system.stores()]


def idle_cpu(system, seconds):
    """CPU time of all KV nodes in percent of one core."""
    pids = system.kv_processes()
    before, started = sum(map(cpu_seconds, pids)), time.monotonic()
    time.sleep(seconds)
    return 100 * (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - started)


def create(system, count):
    """Creates tenants over one connection; seconds each took."""
    api, took = system.api(), []
    for index in range(count):
        started = time.perf_counter()
        api.post("/tenants", {"name": f"sleeper-{index}"})
        took.append(time.perf_counter() - started)
        if (index + 1) % 2000 == 0:
            print(f"  {index + 1} tenants, the last 2,000 took {ms(statistics.mean(took[-2000:]))} each", flush=True)
    return took


def per_tenant(after, before, count):
    """Growth of a sum per tenant, with the shares of the nodes."""
    grown = [(a - b) / count for a, b in zip(after, before)]
    return f"{sum(grown):,.0f} bytes ({', '.join(f'{share:,.0f}' for share in grown)})"


def many_tenants(options):
    """Memory, disk and CPU of three KV nodes for tenants that sleep, and how long making one takes."""
    count, rest, idle = (200, 5, 10) if options.quick else (options.tenants, ASLEEP_S, 60)
    system = Dormouse("--nodes", "3")
    try:
        whole(system)
        system.stop()
        system.start()
        time.sleep(rest)
        memory_before, disk_before = footprint(system)
        cpu_before = idle_cpu(system, idle)
        took = create(system, count)
        time.sleep(rest)
        cpu = idle_cpu(system, idle)
        memory_made, disk_made = footprint(system)
        system.stop()
        started = time.monotonic()
        system.start()
        start_s = time.monotonic() - started
        time.sleep(rest)
        memory_after, disk_after = footprint(system)
        cpu_after = idle_cpu(system, idle)
    finally:
        system.close()
    return {
        "title": f"{count:,} suspended tenants on three KV nodes, all three together",
        "aim": "≤ 2 KiB of private memory and ≤ 4 KiB of disk per tenant, ≤ 2 % of a core idle, ≤ 20 ms per `tenant create`",
        "header": ("", "after creating them", "after an orderly restart"),
        "rows": [
            ("private memory per tenant (by node)", per_tenant(memory_made, memory_before, count),
             per_tenant(memory_after, memory_before, count)),
            ("disk per tenant (by node)", per_tenant(disk_made, disk_before, count), per_tenant(disk_after, disk_before, count)),
            (f"idle CPU over {idle} s, of one core; before: {cpu_before:.2f} %", f"{cpu:.2f} %", f"{cpu_after:.2f} %"),
            ("private memory of the three nodes; before: " + mib(sum(memory_before)), mib(sum(memory_made)), mib(sum(memory_after))),
            ("`tenant create` over HTTP, p50, p99, mean", f"{ms(percentile(took, 0.5))}, {ms(percentile(took, 0.99))}, "
             f"{ms(statistics.mean(took))}", ""),
            ("start of the whole system", "", f"{start_s:.1f} s"),
        ],
    }


class Awake:
    """Tenants whose ranges are awake: one open connection each."""

    def __init__(self, system, count):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        api, self.stack, self.connections = system.api(), contextlib.ExitStack(), []
        for index in range(count):
            url = api.post("/tenants", {"name": f"awake-{index}"})["url"]
            connection = self.stack.enter_context(psycopg.connect(url, autocommit=True))
            connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
            connection.execute("INSERT INTO t VALUES (1)")
            self.connections.append(connection)
            if (index + 1) % 200 == 0:
                print(f"  {index + 1} ranges awake", flush=True)

    def touch(self):
        """Uses every range once. None goes to sleep for a minute from then on."""
        for connection in self.connections:
            connection.execute("SELECT id FROM t").fetchone()

    def close(self):
        self.stack.close()


def one_range(options):
    """The same load on one tenant, beside no other range and beside many that are awake."""
    count, seconds, turns = (50, 5, 1) if options.quick else (options.ranges, 15, 3)
    kinds = [("select-only, prepared", ["-S", "-M", "prepared"]), ("TPC-B, prepared", ["-M", "prepared"])]
    rows = []
    with contextlib.ExitStack() as stack:
        systems = []
        for _ in range(2):
            systems.append(Dormouse("--idle-timeout", "never"))
            stack.callback(systems[-1].close)
        urls = [system.create("bench") for system in systems]
        for url in urls:
            pgbench(url, "-i", "-s", "5", "-q")
        awake = Awake(systems[1], count)
        stack.callback(awake.close)
        for name, flags in kinds:
            tps, cpu = ([], []), ([], [])
            for _ in range(turns):
                for index, (system, url) in enumerate(zip(systems, urls)):
                    # Before both, so that both find the machine as it is afterwards.
                    awake.touch()
                    time.sleep(1)
                    pid = system.processes()["kv"]
                    before = cpu_seconds(pid)
                    tps[index].append(pgbench(url, *flags, "-n", "-c", str(CLIENTS), "-T", str(seconds)))
                    cpu[index].append((cpu_seconds(pid) - before) / (tps[index][-1] * seconds))
            few, many = (statistics.median(values) for values in tps)
            few_cpu, many_cpu = (statistics.median(values) * 1e6 for values in cpu)
            rows.append((name, f"{few:,.0f}", f"{many:,.0f}", f"{many / few:.2f}", f"{few_cpu:.0f} µs", f"{many_cpu:.0f} µs",
                         f"{many_cpu / few_cpu:.2f}"))
    return {
        "title": f"pgbench on one tenant beside 0 and {count:,} other ranges that are awake, {CLIENTS} clients, "
                 f"median of {turns} × {seconds} s in turns",
        "aim": None,
        "header": ("", "tps beside 0", f"tps beside {count:,}", "ratio", "KV CPU per transaction beside 0", f"beside {count:,}", "ratio"),
        "rows": rows,
    }


def kv_load(system, operation, tenants, clients, seconds):
    """`debug kv-load`: its report, and the leaseholder of the first tenant's range while it ran."""
    command = [system.binary, "debug", "kv-load", "--operation", operation, "--tenants", str(tenants), "--clients", str(clients),
               "--duration", f"{seconds}s", "--data-dir", system.data, "--output", "json"]
    api, holder = system.api(), None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL) as process:
        try:
            while tenants == 1 and process.poll() is None:
                loaded = [found for found in api.ranges() if found["tenant_id"] == KV_LOAD_TENANT]
                holder = loaded[0]["leaseholder"] if loaded else holder
                time.sleep(0.5)
            out, err = process.communicate()
        except BaseException:
            # Whoever ends the benchmark ends it, too.
            process.kill()
            raise
    if process.returncode:
        raise RuntimeError(f"debug kv-load: {err}")
    report = last_json(out)
    if report["failed"]:
        print(f"  {report['failed']} of {report['operations']:,} operations failed", flush=True)
    if report["failed"] > report["operations"] / 1000:
        raise RuntimeError("debug kv-load: too many operations failed")
    return report, holder


def cpu_us(report):
    """CPU time of all KV nodes together per operation."""
    return sum(node["cpu_us_per_operation"] for node in report["nodes"])


def spread_writes(options):
    """The same number of writes in one range and spread over many."""
    count, seconds, turns = (50, 5, 1) if options.quick else (options.ranges, 10, 3)
    rows = []
    for nodes in (1, 3):
        system = Dormouse("--nodes", str(nodes))
        try:
            if nodes == 3:
                whole(system)
            reports = ([], [])
            for _ in range(turns):
                for index, tenants in enumerate((1, count)):
                    reports[index].append(kv_load(system, "write", tenants, WRITERS, seconds)[0])
        finally:
            system.close()
        rates = [statistics.median(report["per_second"] for report in found) for found in reports]
        cpu = [statistics.median(map(cpu_us, found)) for found in reports]
        rows.append((f"{nodes} KV node{'s' if nodes > 1 else ''}", f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", f"{rates[1] / rates[0]:.2f}",
                     f"{cpu[0]:.0f} µs", f"{cpu[1]:.0f} µs", f"{cpu[1] / cpu[0]:.2f}"))
    return {
        "title": f"`debug kv-load --operation write`: {WRITERS} clients write to 1 and to {count:,} ranges, "
                 f"median of {turns} × {seconds} s in turns",
        "aim": "≤ 1.3 × the CPU per write of one range",
        "header": ("", "writes/s to 1", f"to {count:,}", "ratio", "CPU of all KV nodes per write to 1", f"to {count:,}", "ratio"),
        "rows": rows,
    }


def range_cost(options):
    """What many ranges cost that are awake beside one, and that are written to."""
    return [one_range(options), spread_writes(options)]


def follower_reads(options):
    """Reads of the present, served by the leaseholder and by followers."""
    seconds, turns = (5, 1) if options.quick else (10, 3)
    names = ("read", "follower-read")
    system = Dormouse("--nodes", "3")
    try:
        whole(system)
        rates, of_holder, of_all = ({name: [] for name in names} for _ in range(3))
        for _ in range(turns):
            for name in names:
                report, holder = kv_load(system, name, 1, READERS, seconds)
                rates[name].append(report["per_second"])
                of_holder[name].append(next(node["cpu_us_per_operation"] for node in report["nodes"] if node["node"] == holder))
                of_all[name].append(cpu_us(report))
    finally:
        system.close()
    rows = [(label, *(f"{statistics.median(figures[name]):,.{digits}f}{unit}"
                      for figures, digits, unit in ((rates, 0, ""), (of_holder, 1, " µs"), (of_all, 1, " µs"))))
            for label, name in zip(("the leaseholder", "a follower"), names)]
    share = statistics.median(of_holder[names[1]]) / statistics.median(of_holder[names[0]])
    rows.append(("ratio", f"{statistics.median(rates[names[1]]) / statistics.median(rates[names[0]]):.2f}", f"{share:.2f}",
                 f"{statistics.median(of_all[names[1]]) / statistics.median(of_all[names[0]]):.2f}"))
    return {
        "title": f"Point reads of the present of one range on three KV nodes, {READERS} clients, "
                 f"median of {turns} × {seconds} s in turns",
        "aim": "the leaseholder spends ≤ 0.05 of a read of its own on one that a follower serves",
        "header": ("served by", "reads/s", "CPU of the leaseholder per read", "CPU of all KV nodes per read"),
        "rows": rows,
    }
