"""Benchmarks. Ratios come from runs side by side in one session of this script; absolute figures are
those of the machine at hand. Nothing here decides whether a test passes."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import time

import psycopg
from global_reads import global_reads
from index_writes import index_writes
from ranges import follower_reads, many_tenants, range_cost
from statements import index_backfill, planning
from systems import Dormouse, Postgres, cpu_seconds, last_json, memory, mib, ms, percentile, pgbench
from tpc import bulk_load, partial_aggregates, tpcc, tpch
from transactions import before, cpu_per_operation, retries, ycsb

ROOT = pathlib.Path(__file__).resolve().parents[2]


def connect_once(url):
    started = time.perf_counter()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SELECT 1").fetchone()
        return time.perf_counter() - started


def cold_start(options):
    """Connect to a suspended tenant with TLS and SCRAM, until its first row."""
    rounds = 20 if options.quick else 200
    dormouse, postgres = Dormouse(), Postgres()
    try:
        url = dormouse.create("cold")
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        cold, warm, reference = [], [], []
        for _ in range(rounds):
            dormouse.run("tenant", "suspend", "cold", parse=False)
            # The pool is filled again in the background; an empty pool is a different benchmark.
            time.sleep(0.15)
            cold.append(connect_once(url))
            warm.append(connect_once(url))
            reference.append(connect_once(postgres.url + "?sslmode=require"))
    finally:
        dormouse.close()
        postgres.close()
    rows = [(name, ms(percentile(v, 0.5)), ms(percentile(v, 0.99)))
            for name, v in (("suspended tenant", cold), ("running tenant", warm), ("PostgreSQL 15, running", reference))]
    return {
        "title": f"Connect to first row, TLS and SCRAM, {rounds} times each",
        "aim": "p50 ≤ 20 ms, p99 ≤ 100 ms for a suspended tenant",
        "header": ("", "p50", "p99"), "rows": rows,
    }


def idle_node(options):
    """A SQL node that has served a few statements and has nothing to do."""
    dormouse = Dormouse()
    try:
        url = dormouse.create("idle")
        connect_once(url)
        pid = dormouse.sql_node("idle")
        seconds = 10 if options.quick else 30
        time.sleep(3)
        before = cpu_seconds(pid)
        time.sleep(seconds)
        used = (cpu_seconds(pid) - before) / seconds
        without = memory(pid)
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute("SELECT 1")
            connected = memory(pid)
            held = [psycopg.connect(url, autocommit=True) for _ in range(50)]
            for other in held:
                other.execute("SELECT 1")
            many = memory(pid)
            for other in held:
                other.close()
    finally:
        dormouse.close()
    return {
        "title": "An idle SQL node",
        "aim": "≤ 16 MiB private memory; the aim of the design is ≤ 10 MiB and ≤ 0.001 CPU s/s",
        "header": ("", "figure"),
        "rows": [
            ("private memory, nobody connected", mib(without["private"])),
            ("private memory, one idle session", mib(connected["private"])),
            ("private memory per further idle session", f"{(many['private'] - connected['private']) / 50 / 1024:.0f} KiB"),
            ("proportional share (PSS)", mib(without["pss"])),
            (f"CPU over {seconds} s", f"{used:.4f} s/s"),
        ],
    }


def throughput(options):
    """pgbench through the whole road and against PostgreSQL, in turns."""
    seconds, turns = (5, 1) if options.quick else (8, 2)
    dormouse, postgres = Dormouse(), Postgres()
    kinds = [("select-only, prepared", ["-S", "-M", "prepared"]), ("select-only, extended", ["-S", "-M", "extended"]),
             ("select-only, simple", ["-S", "-M", "simple"]), ("TPC-B, prepared", ["-M", "prepared"]), ("TPC-B, simple", ["-M", "simple"])]
    rows, cpu_rows = [], []
    try:
        url = dormouse.create("bench")
        for target in (url, postgres.url):
            pgbench(target, "-i", "-s", "5", "-q")
        for name, flags in kinds:
            ours, theirs = [], []
            for _ in range(turns):
                roles = dormouse.processes()
                pids = {"proxy": roles["proxy"], "SQL node": dormouse.sql_node("bench"), "KV node": roles["kv"]}
                before = {role: cpu_seconds(pid) for role, pid in pids.items()}
                tps = pgbench(url, *flags, "-n", "-c", "8", "-T", str(seconds))
                used = {role: cpu_seconds(pid) - before[role] for role, pid in pids.items()}
                ours.append(tps)
                theirs.append(pgbench(postgres.url, *flags, "-n", "-c", "8", "-T", str(seconds)))
            median, other = statistics.median(ours), statistics.median(theirs)
            rows.append((name, f"{median:,.0f}", f"{other:,.0f}", f"{statistics.median([a / b for a, b in zip(ours, theirs)]):.2f}"))
            cpu_rows.append((name, *(f"{1e6 * used[role] / (tps * seconds):.0f} ms" for role in pids)))
        with psycopg.connect(url, autocommit=True) as conn:
            totals = conn.execute("SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),"
                                  " (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(delta) FROM pgbench_history)").fetchone()
            if len(set(totals)) != 1:
                raise RuntimeError(f"balances differ: {totals}")
    finally:
        dormouse.close()
        postgres.close()
    return [
        {
            "title": f"pgbench at scale 5, 8 clients, no TLS, median of {turns} × {seconds} s in turns",
            "aim": "select-only ≥ 0.35, TPC-B ≥ 0.5 of PostgreSQL",
            "header": ("", "Dormouse tps", "PostgreSQL 15 tps", "ratio"), "rows": rows,
        },
        {
            "title": "CPU per 1,000 transactions, by process",
            "aim": None, "header": ("", "proxy", "SQL node", "KV node"), "rows": cpu_rows,
        },
    ]


def workload_kv(options):
    """`dormouse workload run kv`."""
    seconds = 5 if options.quick else 15
    dormouse = Dormouse()
    try:
        url = dormouse.create("kv")
        base = [dormouse.binary, "workload"]
        subprocess.run([*base, "init", "kv", "--url", url], check=True, capture_output=True)
        out = subprocess.run([*base, "run", "kv", "--url", url, "--read-percent", "95", "--connections", "8",
                              "--duration", f"{seconds}s", "--output", "json"], check=True, capture_output=True, text=True).stdout
        result = last_json(out)
    finally:
        dormouse.close()
    rows = [(key, json.dumps(value) if isinstance(value, (dict, list)) else f"{value:,.1f}" if isinstance(value, float) else str(value))
            for key, value in result.items()]
    return {"title": f"`workload run kv --read-percent 95`, 8 connections, TLS, {seconds} s", "aim": None,
            "header": ("", "figure"), "rows": rows}


BENCHMARKS = {
    "cold-start": cold_start,
    "idle-node": idle_node,
    "throughput": throughput,
    "workload-kv": workload_kv,
    "ranges": many_tenants,
    "range-cost": range_cost,
    "follower-reads": follower_reads,
    "index-writes": index_writes,
    "global-reads": global_reads,
    "cpu-per-op": cpu_per_operation,
    "retries": retries,
    "ycsb": ycsb,
    "tpch": tpch,
    "partial-aggregates": partial_aggregates,
    "tpcc": tpcc,
    "bulk-load": bulk_load,
    "planning": planning,
    "index-backfill": index_backfill,
    "before": before,
}


def render(name, table):
    lines = [f"## {table['title']}", ""]
    if table["aim"]:
        lines += [f"Aim: {table['aim']}.", ""]
    lines += ["| " + " | ".join(table["header"]) + " |", "|" + "---|" * len(table["header"])]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in table["rows"]]
    lines += ["", f"`scripts/bench/run --only {name}`", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="run this one and print it")
    parser.add_argument("--quick", action="store_true", help="short runs, to check the script")
    parser.add_argument("--tenants", type=int, default=20_000, metavar="N", help="tenants of the section ranges")
    parser.add_argument("--ranges", type=int, default=1_000, metavar="N", help="awake ranges of the section range-cost")
    parser.add_argument("--turns", type=int, metavar="N", help="turns of the sections tpch and tpcc")
    parser.add_argument("--scale", type=float, metavar="F", help="scale factor of the section tpch")
    parser.add_argument("--seconds", type=int, metavar="N", help="length of a turn of the section tpcc")
    parser.add_argument("--before", metavar="PROGRAM", help="the dormouse that the section before compares with")
    options = parser.parse_args()
    sections = []
    for name, benchmark in BENCHMARKS.items():
        if options.only and name not in options.only:
            continue
        print(f"{name} …", flush=True)
        tables = benchmark(options)
        for table in tables if isinstance(tables, list) else [tables]:
            sections.append(render(name, table))
            print(sections[-1], flush=True)
    if options.only or options.quick:
        return
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    header = f"""# Benchmarks

Written by `make bench` on {datetime.date.today()}: {os.cpu_count()} cores ({model}), Linux {platform.release()}.
Everything runs on the one machine: clients, Dormouse with all its processes, and PostgreSQL 15 with
Debian's defaults. Ratios are of runs in turns; absolute figures are a hint.

"""
    notes = ROOT / "docs" / "benchmark-notes.md"
    text = header + "\n".join(sections)
    if notes.exists():
        text += "\n" + notes.read_text()
    (ROOT / "docs" / "benchmarks.md").write_text(text)


main()
