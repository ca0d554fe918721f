#!/bin/bash
# Apicurio Registry: APICURIO_... and QUARKUS_... as in apicurio/apicurio-registry.
set -euo pipefail
jars=(/opt/registry/apicurio-registry-app-*-runner.jar)
# It serves a few requests per deployment: start-up time matters, not throughput.
# shellcheck disable=SC2086
exec java ${JAVA_OPTIONS:--Xmx320m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC} -XX:+ExitOnOutOfMemoryError \
  -Dfile.encoding=UTF-8 -jar "${jars[0]}"
