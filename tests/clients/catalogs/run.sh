#!/usr/bin/env bash
# The catalog queries that pgAdmin, DBeaver and Grafana send: columns, their types and rows must be those of PostgreSQL
# 15, which is what `expected` holds. With CATALOGS_UPDATE=1 they are written there, for DRIVER_URL a PostgreSQL 15.
#
# A query ends with `\rows`, or with `\columns` where rows are each server's own. Numbers of five digits and more are oids.
set -euo pipefail
psql="psql -X -q -v ON_ERROR_STOP=1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
$psql "$DRIVER_URL" -f schema.sql
count=0
for tool in pgadmin dbeaver grafana; do
  {
    echo "SELECT 'shop.orders'::regclass::oid AS tid, 'shop'::regnamespace::oid AS scid \\gset"
    echo "SET search_path = public"
    echo "\\g"
    sed -E 's/^\\rows$/\\gdesc\n\\g/; s/^\\columns$/\\gdesc\n\\g \/dev\/null/' $tool.sql
  } >"$work/$tool.sql"
  if ! $psql "$DRIVER_URL" -A -f "$work/$tool.sql" >"$work/out" 2>"$work/errors"; then
    sed "s|.*/$tool.sql|$tool|" "$work/errors" >&2
    exit 1
  fi
  sed -E 's/\b[0-9]{5,}\b/oid/g' "$work/out" >"$work/$tool.out"
  [ -z "${CATALOGS_UPDATE:-}" ] || cp "$work/$tool.out" "expected/$tool.out"
  diff "expected/$tool.out" "$work/$tool.out" >&2
  count=$((count + $(grep -cE '^\\(rows|columns)$' $tool.sql)))
done
echo "catalogs: $count queries of pgAdmin, DBeaver and Grafana"
