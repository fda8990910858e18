#!/usr/bin/env bash
set -euo pipefail
venv="$DRIVERS_CACHE/sqlalchemy"
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import sqlalchemy, alembic, psycopg, psycopg2' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet -r requirements.txt
fi
for driver in psycopg psycopg2; do
  "$venv/bin/python" shop.py "$driver"
done
