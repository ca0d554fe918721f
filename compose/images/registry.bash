#!/bin/bash
# Apicurio Registry, with the variables of the image apicurio/apicurio-registry (APICURIO_..., QUARKUS_...).
set -euo pipefail
jars=(/opt/registry/apicurio-registry-app-*-runner.jar)
# The registry serves few requests per deployment, so a short start time matters more than throughput.
# shellcheck disable=SC2086
exec java ${JAVA_OPTIONS:--Xmx320m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC} -XX:+ExitOnOutOfMemoryError \
  -Dfile.encoding=UTF-8 -jar "${jars[0]}"
