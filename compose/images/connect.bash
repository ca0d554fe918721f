#!/bin/bash
# A Connect worker in distributed mode: variables CONNECT_... become its properties, as CONNECT_GROUP_ID group.id.
set -euo pipefail
. /opt/outbox/properties.bash

settings=/tmp/connect.properties
umask 077
properties CONNECT_ >"$settings"
# shellcheck disable=SC2086
exec java ${KAFKA_HEAP_OPTS:--Xmx768m} "${jvm_options[@]}" "${log4j_options[@]}" ${KAFKA_OPTS:-} -cp '/opt/kafka/libs/*' \
  org.apache.kafka.connect.cli.ConnectDistributed "$settings"
