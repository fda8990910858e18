#!/usr/bin/env bash
# psql's backslash commands, and pg_dump's output read again by psql: a second dump must be the same.
set -euo pipefail
psql="psql -X -q -v ON_ERROR_STOP=1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
$psql "$DRIVER_URL" -f schema.sql

while read -r command; do
  if ! errors=$($psql "$DRIVER_URL" -c "$command" 2>&1 >"$work/out") && [[ "$errors" != "Did not find any"* ]]; then
    echo "psql: $command: $errors" >&2
    exit 1
  fi
done <commands.txt
$psql "$DRIVER_URL" -c '\d+ orders' | grep -q '"orders_customer_fkey" FOREIGN KEY (customer) REFERENCES shop.customers(id) ON DELETE CASCADE'
$psql "$DRIVER_URL" -c '\d orders' | grep -q 'Policies (forced row security enabled)'
$psql "$DRIVER_URL" -c '\d orders' | grep -q 'POLICY "paid" AS RESTRICTIVE FOR INSERT'
$psql "$DRIVER_URL" -c '\d orders' | grep -q 'orders_noted BEFORE INSERT OR UPDATE OF total ON orders FOR EACH ROW'
$psql "$DRIVER_URL" -c '\d shop.customers' | grep -q '"customers_settings_idx" gin (settings jsonb_path_ops)'
$psql "$DRIVER_URL" -c '\df shop.newest' | grep -q 'SETOF record .*least_id bigint, OUT id bigint, OUT total numeric'

# The names of the two databases must not matter, nor must the key that a dump is locked with.
plain() { sed -E '/^\\(un)?restrict /d; s/^-- Dumped .*//' "$1"; }
pg_dump "$DRIVER_URL" >"$work/first.sql"
$psql "$DRIVER_URL" -c 'CREATE DATABASE restored' 2>/dev/null || $psql "$DRIVER_URL" -c 'DROP DATABASE restored' -c 'CREATE DATABASE restored'
restored=$(python3 - "$DRIVER_URL" <<'PY'
import sys
from urllib.parse import urlsplit
url = urlsplit(sys.argv[1])
tenant, dot, _ = url.path.lstrip("/").rpartition(".")
print(url._replace(path=f"/{tenant}{dot}restored").geturl())
PY
)
$psql "$restored" -f "$work/first.sql" >/dev/null
pg_dump "$restored" >"$work/second.sql"
diff <(plain "$work/first.sql") <(plain "$work/second.sql")
[ "$($psql "$restored" -Atc 'SELECT count(*), sum(total) FROM big_orders')" = "20|2600.00" ]
[ "$($psql "$restored" -Atc "SELECT string_agg(policyname || cmd, ' ' ORDER BY policyname) FROM pg_policies")" = "buyersSELECT paidINSERT" ]
[ "$($psql "$restored" -Atc 'SELECT total_of(1), count(*) FROM shop.newest(5)')" = "16.800|20" ]
[ "$($psql "$restored" -Atc "INSERT INTO orders (customer, total) VALUES (1, 60) RETURNING note")" = "insert by \"trigger's\" rule" ]
[ "$($psql "$restored" -Atc "SELECT array_to_string(proacl, ',') LIKE '=X%' FROM pg_proc WHERE proname = 'newest'")" = "f" ]
$psql "$restored" -c "INSERT INTO shop.customers (email) VALUES ('new')"
echo "psql: $(wc -l <commands.txt) commands, dump and restore"
