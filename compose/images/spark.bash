#!/bin/bash
# A job by name and its options: `outbox-materialize -p connectors/library.yaml -e compose`; without a name,
# outbox-materialize.
set -euo pipefail
case "${1:-}" in
outbox-*) exec "$@" ;;
*) exec outbox-materialize "$@" ;;
esac
