#!/usr/bin/env bash
set -euo pipefail
venv="$DRIVERS_CACHE/python"
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c 'import psycopg, asyncpg' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet -r requirements.txt
fi
for script in psycopg_driver.py asyncpg_driver.py; do
  "$venv/bin/python" "$script"
done
