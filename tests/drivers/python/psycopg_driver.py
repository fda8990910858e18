"""psycopg 3: every type in text and binary, prepared statements, pipeline, errors, COPY, cancel."""
import os
import threading
import time

import psycopg
from psycopg import sql
from psycopg.types.json import Json, Jsonb
from values import JSON, VALUES

URL = os.environ["DRIVER_URL"]


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def types(conn):
    for binary in (False, True):
        with conn.cursor(binary=binary) as cur:
            for index, (name, value) in enumerate(VALUES):
                cast = "%b" if binary else "%t"
                cur.execute(f"SELECT {cast}::{name}", (value,), prepare=True)
                check(cur.fetchone()[0] == value, f"{name}: parameter does not come back (binary={binary})")
                table = sql.Identifier(f"py_{index}")
                cur.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
                cur.execute(sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, v " + name + ")").format(table))
                cur.execute(sql.SQL("INSERT INTO {} VALUES (1, " + cast + "), (2, NULL)").format(table), (value,))
                cur.execute(sql.SQL("SELECT v FROM {} ORDER BY id").format(table))
                check([row[0] for row in cur] == [value, None], f"{name}: stored value differs (binary={binary})")
                cur.execute(sql.SQL("DROP TABLE {}").format(table))
            for kind, wrap in (("json", Json), ("jsonb", Jsonb)):
                cur.execute(f"SELECT %s::{kind}", (wrap(JSON),))
                check(cur.fetchone()[0] == JSON, f"{kind} differs")


def errors(conn):
    conn.execute("DROP TABLE IF EXISTS py_unique")
    conn.execute("CREATE TABLE py_unique (id int PRIMARY KEY, email text UNIQUE)")
    conn.execute("INSERT INTO py_unique VALUES (1, 'a')")
    for row, constraint in (((1, "b"), "py_unique_pkey"), ((2, "a"), "py_unique_email_key")):
        try:
            conn.execute("INSERT INTO py_unique VALUES (%s, %s)", row)
            check(False, "no unique violation")
        except psycopg.errors.UniqueViolation as error:
            check(error.diag.sqlstate == "23505", "wrong SQLSTATE")
            check(error.diag.constraint_name == constraint, f"wrong constraint {error.diag.constraint_name}")
    try:
        conn.execute("SELECT nothing FROM py_unique")
        check(False, "no error")
    except psycopg.errors.UndefinedColumn as error:
        check(error.diag.statement_position == "8", f"position {error.diag.statement_position}")
    conn.execute("DROP TABLE py_unique")


def transactions(conn):
    conn.execute("CREATE TABLE py_tx (id serial PRIMARY KEY, v int)")
    conn.autocommit = False
    with conn.transaction():
        conn.execute("INSERT INTO py_tx (v) VALUES (1)")
        try:
            with conn.transaction():
                conn.execute("INSERT INTO py_tx (v) VALUES (2)")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        conn.execute("INSERT INTO py_tx (v) VALUES (3)")
    check([r[0] for r in conn.execute("SELECT v FROM py_tx ORDER BY id")] == [1, 3], "savepoint was not undone")
    conn.rollback()
    conn.autocommit = True
    with conn.pipeline():
        cursors = [conn.execute("SELECT %s::int * 2", (i,)) for i in range(50)]
    check([c.fetchone()[0] for c in cursors] == [2 * i for i in range(50)], "pipeline results differ")
    for _ in range(10):
        check(conn.execute("SELECT count(*) FROM py_tx WHERE v < %s", (3,)).fetchone()[0] == 1, "count differs")
    conn.autocommit = False
    with conn.cursor(name="server_side") as cur:
        cur.itersize = 7
        cur.execute("SELECT * FROM generate_series(1, 50)")
        check([r[0] for r in cur] == list(range(1, 51)), "server-side cursor differs")
    conn.rollback()
    conn.autocommit = True
    conn.execute("DROP TABLE py_tx")


def copying(conn):
    conn.execute("CREATE TABLE py_copy (id int PRIMARY KEY, v text, n numeric)")
    with conn.cursor() as cur:
        with cur.copy("COPY py_copy FROM STDIN") as copy:
            for i in range(5000):
                copy.write_row((i, None if i % 7 == 0 else f"tab\t{i}\\", i))
        check(cur.rowcount == 5000, "COPY row count")
        with cur.copy("COPY (SELECT id, v FROM py_copy WHERE id < 3 ORDER BY id) TO STDOUT") as copy:
            check(list(copy.rows()) == [("0", None), ("1", "tab\t1\\"), ("2", "tab\t2\\")], "COPY out differs")
    conn.execute("DROP TABLE py_copy")


def cancel():
    conn = psycopg.connect(URL, autocommit=True)
    timer = threading.Timer(0.3, conn.cancel)
    timer.start()
    started = time.monotonic()
    try:
        conn.execute("SELECT pg_sleep(60)")
        check(False, "not cancelled")
    except psycopg.errors.QueryCanceled:
        pass
    check(time.monotonic() - started < 50, "cancelled too late")
    check(conn.execute("SELECT 1").fetchone() == (1,), "the session goes on")
    conn.close()


with psycopg.connect(URL, autocommit=True) as connection:
    check(connection.pgconn.ssl_in_use, "no TLS")
    check(connection.info.parameter_status("server_encoding") == "UTF8", "server_encoding")
    types(connection)
    errors(connection)
    transactions(connection)
    copying(connection)
cancel()
print("psycopg: ok")
