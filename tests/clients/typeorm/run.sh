#!/usr/bin/env bash
set -euo pipefail
home="$DRIVERS_CACHE/typeorm"
mkdir -p "$home"
cp package.json "$home/"
[ -d "$home/node_modules/typeorm" ] || (cd "$home" && npm install --silent --no-audit --no-fund)
cp blog.js "$home/blog.js"
NODE_TLS_REJECT_UNAUTHORIZED=0 NODE_NO_WARNINGS=1 node "$home/blog.js"
