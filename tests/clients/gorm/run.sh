#!/usr/bin/env bash
set -euo pipefail
home="$DRIVERS_CACHE/gorm"
mkdir -p "$home"
cp go.mod main.go "$home/"
cd "$home"
go mod tidy -e >/dev/null 2>&1
go run .
