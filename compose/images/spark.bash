#!/bin/bash
# Runs a job: NAME OPTION..., for example `outbox-materialize -p connectors/library.yaml -e compose`.
# The default NAME is outbox-materialize.
set -euo pipefail
case "${1:-}" in
outbox-*) exec "$@" ;;
*) exec outbox-materialize "$@" ;;
esac
