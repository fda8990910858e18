#!/usr/bin/env bash
set -euo pipefail
target="$DRIVERS_CACHE/rust"
cargo build --quiet --locked --target-dir "$target"
"$target/debug/sqlx-test"
