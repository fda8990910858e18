"""asyncpg: everything in binary, prepared statements, cursors, COPY in binary, errors, cancel."""
import asyncio
import json
import os

import asyncpg
from values import JSON, VALUES

URL = os.environ["DRIVER_URL"]


def check(condition, message):
    if not condition:
        raise AssertionError(message)


async def main():
    conn = await asyncpg.connect(URL)
    for index, (name, value) in enumerate(VALUES):
        check(await conn.fetchval(f"SELECT $1::{name}", value) == value, f"{name}: parameter differs")
        table = f"apg_{index}"
        await conn.execute(f"DROP TABLE IF EXISTS {table}; CREATE TABLE {table} (id int PRIMARY KEY, v {name})")
        statement = await conn.prepare(f"INSERT INTO {table} VALUES ($1, $2) RETURNING v")
        check(await statement.fetchval(1, value) == value, f"{name}: RETURNING differs")
        await conn.execute(f"INSERT INTO {table} VALUES ($1, $2)", 2, None)
        rows = await conn.fetch(f"SELECT v FROM {table} ORDER BY id")
        check([row["v"] for row in rows] == [value, None], f"{name}: stored value differs")
        await conn.execute(f"DROP TABLE {table}")
    for kind in ("json", "jsonb"):
        check(json.loads(await conn.fetchval(f"SELECT $1::{kind}", json.dumps(JSON))) == JSON, kind)

    await conn.execute("CREATE TABLE apg_u (id int PRIMARY KEY)")
    await conn.executemany("INSERT INTO apg_u VALUES ($1)", [(i,) for i in range(200)])
    try:
        await conn.execute("INSERT INTO apg_u VALUES ($1)", 5)
        check(False, "no unique violation")
    except asyncpg.UniqueViolationError as error:
        check(error.sqlstate == "23505", "SQLSTATE")
    async with conn.transaction():
        seen = [row["id"] async for row in conn.cursor("SELECT id FROM apg_u ORDER BY id", prefetch=30)]
    check(seen == list(range(200)), "cursor with row limits differs")
    records = [(i,) for i in range(1000, 3000)]
    await conn.copy_records_to_table("apg_u", records=records)
    check(await conn.fetchval("SELECT count(*) FROM apg_u") == 2200, "binary COPY")
    await conn.execute("DROP TABLE apg_u")

    try:
        await asyncio.wait_for(conn.execute("SELECT pg_sleep(60)"), timeout=0.3)
        check(False, "not cancelled")
    except (asyncio.TimeoutError, TimeoutError):
        pass
    check(await conn.fetchval("SELECT 1") == 1, "the session goes on")
    await conn.reset()
    await conn.close()


asyncio.run(main())
print("asyncpg: ok")
