#!/usr/bin/env bash
set -euo pipefail
home="$DRIVERS_CACHE/java"
mkdir -p "$home"
jar="$home/postgresql.jar"
if [ ! -f "$jar" ]; then
  mvn -q -B dependency:copy -Dartifact=org.postgresql:postgresql:42.7.4 -DoutputDirectory="$home" -Dmdep.stripVersion=true
fi
java -cp "$jar" DriverTest.java
