#!/usr/bin/env bash
# One hundred tenants, created and used side by side. Needs a system of our own, not DRIVER_URL.
set -euo pipefail
if [ -z "${DORMOUSE_DATA_DIR:-}" ]; then
  echo "tenants: nothing to do against a foreign server"
  exit 0
fi
"$DRIVERS_CACHE/python/bin/python" tenants.py
