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
# Connections of the load.
CLIENTS = 4


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


def range_cost(options):
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


def follower_reads(options):
    """Reads of the present, by the leaseholder alone and by followers."""
    seconds, turns = (5, 1) if options.quick else (15, 3)
    system = Dormouse("--nodes", "3")
    try:
        base = [system.binary, "workload", "run", "kv"]
        offered = subprocess.run([*base, "--help"], check=True, capture_output=True, text=True).stdout
        if "--follower-reads" not in offered:
            print("  skipped: \"dormouse workload run kv\" has no --follower-reads", flush=True)
            return []
        whole(system)
        url = system.create("kv")
        whole(system)
        subprocess.run([system.binary, "workload", "init", "kv", "--url", url], check=True, capture_output=True)
        rows = []
        for name, flags in (("leaseholder", []), ("followers", ["--follower-reads"])):
            rates, used = [], []
            for _ in range(turns):
                holder = system.api().ranges("kv")[0]["leaseholder"]
                nodes = sorted(system.api().nodes(), key=lambda node: (node["id"] != holder, node["id"]))
                before = [cpu_seconds(node["pid"]) for node in nodes]
                out = subprocess.run([*base, "--url", url, "--read-percent", "100", "--connections", "8", "--duration",
                                      f"{seconds}s", "--quiet", "--output", "json", *flags], check=True, capture_output=True, text=True).stdout
                rates.append(last_json(out)["operations_per_second"])
                used.append([(cpu_seconds(node["pid"]) - cpu) / seconds for node, cpu in zip(nodes, before)])
            shares = [f"{100 * statistics.median(turn[node] for turn in used):.0f} %" for node in range(3)]
            rows.append((name, f"{statistics.median(rates):,.0f}", *shares))
    finally:
        system.close()
    return {
        "title": f"`workload run kv --read-percent 100`, three KV nodes, 8 connections, median of {turns} × {seconds} s",
        "aim": None,
        "header": ("reads by", "reads/s", "CPU of the leaseholder, of one core", "of a follower", "of the other"),
        "rows": rows,
    }
