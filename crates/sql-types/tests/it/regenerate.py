#!/usr/bin/env python3
"""Runs the inputs of the golden files beside this script on PostgreSQL 15 again and rewrites their
outputs. The server is found through psql's environment variables (PGHOST, PGPORT, PGUSER); a line's
input may be added with any output. Review the difference: some lines were left out on purpose because
Dormouse means to differ (upper and lower case beyond ASCII, see the crate's documentation)."""

import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).parent

TRY = r"""
create function pg_temp.try(e text) returns text language plpgsql as $f$
declare t text; v text;
begin
  execute e into t, v;
  return coalesce(t || E'\t' || replace(v, E'\n', '\n'), E'null\t');
exception when others then
  return sqlstate || E'\t' || replace(sqlerrm, E'\n', '\n');
end $f$;
set timezone = 'Europe/Berlin'; set client_min_messages = error; set statement_timeout = '5s';
"""


def quote(text):
    return "'" + text.replace("'", "''") + "'"


def psql(script):
    run = subprocess.run(["psql", "-qAt", "-d", "postgres"], input=script, capture_output=True, text=True)
    return run.stdout.split("\n")[:-1]


def attempt(statements):
    return psql(TRY + "".join(f"select pg_temp.try($q${statement}$q$);\n" for statement in statements))


def rewrite(name, inputs, run):
    """Keeps the first `inputs` fields of each line and puts what `run` gives after them."""
    lines = (HERE / name).read_text().splitlines()
    comment, rows = lines[0], [line.split("\t") for line in lines[1:] if line]
    rows = [row[:inputs] for row in rows]
    results = run(rows)
    assert len(results) == len(rows), (name, len(results), len(rows))
    body = ["\t".join(row + [result]) for row, result in zip(rows, results)]
    (HERE / name).write_text("\n".join([comment] + body) + "\n")


TYPED = "select pg_typeof(x)::text, case when x::text is null then null else format('%s', x) end from ({}) s"


def expression(source):
    # Names that the grammar treats specially are called like any other function.
    source = re.sub(r"\b(extract|overlay|substring|position)\(", r'pg_catalog."\1"(', source)
    return TYPED.format(f"select {source} as x")


def aggregate(row):
    name, ty, values = row
    return TYPED.format(f"select {name}(x) as x from unnest({quote(values)}::{ty}[]) x")


def rows_of(call):
    return f"select 'ok', coalesce(string_agg(format('%s', t), ';'), '') from (select row(r.*) as t from {call} r) s"


def binary(rows):
    send = {"bytea": "byteasend", "array": "array_send"}
    plain = ("bool int2 int4 int8 float4 float8 text varchar bytea oid int2vector oidvector name char").split()

    def function(ty):
        if ty.endswith("[]"):
            return send["array"]
        return f"{ty}send" if ty in plain else f"{ty}_send"

    def name(ty):
        return '"char"' if ty == "char" else ty

    zone = "set timezone = 'Europe/Berlin';"
    return psql(zone + "".join(f"select encode({function(t)}({quote(v)}::{name(t)}), 'hex');\n" for t, v in rows))


def styled(rows):
    out = []
    for date_style, interval_style, ty, value in rows:
        out += psql(
            f"set timezone = 'Europe/Berlin'; set datestyle = {quote(date_style)};"
            f"create temp table s as select {quote(value)}::{ty} as v;"
            f"set intervalstyle = {quote(interval_style)}; select v::text from s;"
        )
    return out


def resolution(rows):
    typed = attempt([f"select pg_typeof({row[0]})::text, ''" for row in rows])
    return [result.split("\t")[0] for result in typed]


rewrite("resolution.txt", 1, resolution)
rewrite("expressions.txt", 1, lambda rows: attempt([expression(row[0]) for row in rows]))
rewrite("aggregates.txt", 3, lambda rows: attempt([aggregate(row) for row in rows]))
rewrite("sets.txt", 1, lambda rows: attempt([rows_of(row[0]) for row in rows]))
rewrite("binary.txt", 2, binary)
rewrite("styles.txt", 4, styled)
