#!/bin/sh
# Starts the stack that compose/.env describes and returns when every service is healthy. Where one does not get there:
# the last lines of its log, and the variable behind a port that is taken.
set -u
cd "$(dirname "$0")/../compose"
SECONDS_TO_WAIT=180
LINES_SHOWN=15

explain_port() { # of the engine's message: "... 127.0.0.1:15432 ...: port is already allocated", or "address already in use"
  port=$(grep -E 'already (allocated|in use)' "$said" | sed -n 's/.*127\.0\.0\.1:\([0-9][0-9]*\).*/\1/p' | head -1)
  [ -n "$port" ] || return 1
  name=$(docker compose config --environment | sed -n "s/^\([A-Z0-9_]*_PORT\)=$port\$/\1/p" | head -1)
  echo "hint:  another program has port $port: change ${name:-it} in compose/.env, then call this again" >&2
}

show_logs() { # of services that failed; where none did, of those that are not ready
  states=$(docker compose ps --all --format '{{.Service}} {{.State}} {{.Health}} {{.ExitCode}}')
  failed=$(printf '%s\n' "$states" | grep -E ' (unhealthy|restarting|dead)( |$)|exited +[1-9]' ||
    printf '%s\n' "$states" | grep ' starting ')
  printf '%s\n' "$failed" | while read -r service state rest; do
    [ -n "$service" ] || continue
    echo "--- $service ($state): the last lines of its log" >&2
    docker compose logs --no-color --no-log-prefix --tail "$LINES_SHOWN" "$service" >&2
  done
}

said=$(mktemp)
trap 'rm -f "$said"' EXIT
echo "starting the containers (at most $((SECONDS_TO_WAIT / 60)) minutes)"
docker compose --ansi never --progress quiet up -d --wait --wait-timeout "$SECONDS_TO_WAIT" --quiet-pull --remove-orphans 2>"$said"
code=$?
cat "$said" >&2
if [ "$code" -ne 0 ]; then
  explain_port || show_logs
fi
exit "$code"
