#!/bin/bash
# A Connect worker in distributed mode. Each variable CONNECT_... sets a property: CONNECT_GROUP_ID sets group.id.
set -euo pipefail
. /opt/outbox/properties.bash

settings=/tmp/connect.properties
umask 077
properties CONNECT_ >"$settings"
# shellcheck disable=SC2086
exec java ${KAFKA_HEAP_OPTS:--Xmx768m} "${jvm_options[@]}" "${log4j_options[@]}" ${KAFKA_OPTS:-} -cp '/opt/kafka/libs/*' \
  org.apache.kafka.connect.cli.ConnectDistributed "$settings"
