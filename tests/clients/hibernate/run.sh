#!/usr/bin/env bash
set -euo pipefail
home="$DRIVERS_CACHE/hibernate"
mkdir -p "$home"
if ! cmp -s pom.xml "$home/pom.xml"; then
  rm -rf "$home/lib"
  mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$home/lib"
  cp pom.xml "$home/pom.xml"
fi
classes=$(mktemp -d)
trap 'rm -rf "$classes"' EXIT
javac -proc:none -cp "$home/lib/*" -d "$classes" ./*.java
java -cp "$classes:$home/lib/*" Library
