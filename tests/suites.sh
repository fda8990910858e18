# Runs suites of programs that know nothing of Dormouse against a system of its own, or against the PostgreSQL at
# DRIVER_URL, to check the suites themselves. To be sourced by a `run` beside the suites' directories.
#
# A suite is a directory with a `run.sh`, which finds a database of its own at DRIVER_URL.
DORMOUSE="${DORMOUSE:-../../target/release/dormouse}"
case "$DORMOUSE" in /*) ;; *) DORMOUSE="$(cd ../.. && realpath -m "$DORMOUSE")" ;; esac
# Packages outlive a clone, like the build directory.
export DRIVERS_CACHE="${DRIVERS_CACHE:-$HOME/.cache/dormouse/drivers}"
mkdir -p "$DRIVERS_CACHE"

work=$(mktemp -d)
supervisor=""
finish() {
  if [ -n "$supervisor" ]; then
    kill -TERM "$supervisor" 2>/dev/null || true
    wait "$supervisor" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap finish EXIT

start_system() {
  [ -z "${DRIVER_URL:-}" ] || return 0
  "$DORMOUSE" start --data-dir "$work/data" --listen 127.0.0.1:0 --http 127.0.0.1:0 >"$work/start.log" 2>&1 &
  supervisor=$!
  for _ in $(seq 600); do
    grep -qx ready "$work/start.log" && break
    kill -0 "$supervisor" 2>/dev/null || { cat "$work/start.log"; exit 1; }
    sleep 0.1
  done
  export DORMOUSE DORMOUSE_DATA_DIR="$work/data"
}

# The URL of a new tenant; of a new database where PostgreSQL is tested.
new_database() {
  if [ -n "$supervisor" ]; then
    "$DORMOUSE" tenant create "$1" --output json | python3 -c 'import json,sys; print(json.load(sys.stdin)["url"])'
  else
    psql -X -q "$DRIVER_URL" -c "DROP DATABASE IF EXISTS $1" -c "CREATE DATABASE $1" >&2
    python3 -c 'import sys, urllib.parse as p; print(p.urlsplit(sys.argv[1])._replace(path="/" + sys.argv[2]).geturl())' "$DRIVER_URL" "$1"
  fi
}

# run_suites KIND TOOLS SUITE…: TOOLS says which program a suite needs, as in "python=python3 go=go".
run_suites() {
  local kind="$1" tools=" $2 " suite tool url passed=0 failed=0 skipped=0
  shift 2
  start_system
  for suite in "$@"; do
    tool="${tools##* "$suite"=}"
    tool="${tool%% *}"
    if [ ! -f "$suite/run.sh" ]; then
      echo "there is no suite $suite" >&2
      exit 2
    elif ! command -v "$tool" >/dev/null; then
      echo "$suite: skipped, $tool is not installed"
      skipped=$((skipped + 1))
      continue
    fi
    url=$(new_database "$suite")
    if (cd "$suite" && DRIVER_URL="$url" bash ./run.sh); then
      passed=$((passed + 1))
    else
      failed=$((failed + 1))
      echo "$suite: FAILED"
    fi
  done
  if [ "$failed" -gt 0 ] && [ -f "$work/data/logs/control.log" ]; then
    for log in "$work"/data/logs/*.log; do echo "== $log"; tail -n 20 "$log"; done
  fi
  echo "$kind: $passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
}
