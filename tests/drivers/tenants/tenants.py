"""One hundred tenants, created and used side by side: each sees its own data and nobody else's, also
after it slept."""
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import psycopg

DORMOUSE = os.environ["DORMOUSE"]
COUNT = 100


def dormouse(*arguments):
    done = subprocess.run([DORMOUSE, *arguments, "--output", "json"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def fill(index):
    url = dormouse("tenant", "create", f"side-{index}")["url"]
    with psycopg.connect(url) as conn:
        conn.execute("CREATE TABLE t (id int PRIMARY KEY, owner int NOT NULL)")
        conn.cursor().executemany("INSERT INTO t VALUES (%s, %s)", [(i, index) for i in range(20)])
    return url


def look(index, url):
    with psycopg.connect(url) as conn:
        rows = conn.execute("SELECT count(*), min(owner), max(owner) FROM t").fetchone()
        tables = conn.execute("SELECT count(*) FROM pg_class WHERE relname = 't'").fetchone()[0]
    assert rows == (20, index, index), f"tenant {index} sees {rows}"
    assert tables == 1, f"tenant {index} sees {tables} tables"


with ThreadPoolExecutor(10) as pool:
    urls = list(pool.map(fill, range(COUNT)))
    awake = [tenant for tenant in dormouse("tenant", "list") if tenant["name"].startswith("side-")]
    assert len(awake) == COUNT, f"{len(awake)} tenants are listed"
    list(pool.map(look, range(COUNT), urls))
    for index in range(0, COUNT, 10):
        dormouse("tenant", "suspend", f"side-{index}")
    list(pool.map(look, range(COUNT), urls))
print(f"tenants: {COUNT} side by side: ok")
