#!/bin/bash
# Apicurio Registry: APICURIO_... and QUARKUS_... as in apicurio/apicurio-registry.
set -euo pipefail
jars=(/opt/registry/apicurio-registry-app-*-runner.jar)
# It answers a few calls per deployment: what counts is how soon it starts.
# shellcheck disable=SC2086
exec java ${JAVA_OPTIONS:--Xmx320m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC} -XX:+ExitOnOutOfMemoryError \
  -Dfile.encoding=UTF-8 -jar "${jars[0]}"
