#!/bin/bash
# A broker, a controller or both: KAFKA_PROCESS_ROLES=..., KAFKA_... and CLUSTER_ID as in apache/kafka.
set -euo pipefail
. /opt/outbox/properties.bash

settings=/tmp/server.properties
umask 077
properties KAFKA_ KAFKA_HEAP_OPTS KAFKA_OPTS >"$settings"
set_command() { # MAIN ARGUMENT...; the options in the variables contain no spaces
  # shellcheck disable=SC2206
  command=(java ${KAFKA_HEAP_OPTS:--Xmx512m} "${jvm_options[@]}" "${log4j_options[@]}" ${KAFKA_OPTS:-} -cp '/opt/kafka/libs/*' "$@")
}

if [ ! -f "${KAFKA_LOG_DIRS%%,*}/meta.properties" ]; then
  : "${CLUSTER_ID:?is not set: a UUID as 22 characters of base64, the same for all nodes}"
  KAFKA_HEAP_OPTS='-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC' KAFKA_OPTS='' \
    set_command kafka.tools.StorageTool format --ignore-formatted --config "$settings" --cluster-id "$CLUSTER_ID"
  "${command[@]}"
fi
set_command kafka.Kafka "$settings"
exec "${command[@]}"
