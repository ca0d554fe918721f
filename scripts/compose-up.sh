#!/bin/sh
# Starts the stack that compose/.env describes and returns when every service is healthy. For a service that is not:
# the last lines of its log, and the variable behind a port that is taken.
set -u
cd "$(dirname "$0")/../compose"
wait_seconds=${OUTBOX_COMPOSE_SECONDS:-180} # for each service that others wait for, and for all of them at the end
lines=15

port_taken() { # of the engine's message: "... 127.0.0.1:15432 ...: port is already allocated", "address already in use"
  grep -E 'already (allocated|in use)|[Pp]orts are not available' "$said" | sed -n 's/.*127\.0\.0\.1:\([0-9][0-9]*\).*/\1/p' | head -n 1
}

explain_port() { # PORT; a variable of the shell wins over compose/.env
  name=$({ env; cat .env 2>/dev/null; } | sed -n "s/^\([A-Z0-9_]*_PORT\)=$1\$/\1/p" | head -n 1)
  echo "hint:  port $1 is in use: change ${name:-it} in compose/.env, then run the command again" >&2
}

not_ready() { # services that failed, or have not become healthy; one per line: name, state, health, exit code
  # shellcheck disable=SC2046 # names, one word each; those of a profile are not started here
  docker compose ps --all --format '{{.Service}} {{.State}} {{.Health}} {{.ExitCode}}' $(docker compose config --services) |
    grep -E ' (unhealthy|starting|restarting|dead)( |$)| exited +[1-9]'
}

show_logs() { # LINES of not_ready
  printf '%s\n' "$1" | while read -r service state rest; do
    echo "--- $service ($state${rest:+, $rest}): the last lines of its log" >&2
    docker compose logs --no-color --no-log-prefix --tail "$lines" "$service" >&2
  done
}

said=$(mktemp)
trap 'cat "$said" >&2; rm -f "$said"; exit 130' INT
trap 'cat "$said" >&2; rm -f "$said"; exit 143' TERM
echo "starting the containers"
docker compose --ansi never --progress quiet up -d --wait --wait-timeout "$wait_seconds" --quiet-pull --remove-orphans 2>"$said"
code=$?
cat "$said" >&2
port=$(port_taken)
rm -f "$said"
# Compose 2.40 returns 0 when the time is over and a service is still starting.
waiting=$(not_ready)
if [ -n "$port" ]; then
  explain_port "$port"
elif [ -n "$waiting" ]; then
  show_logs "$waiting"
  [ "$code" -ne 0 ] || echo "error: not every service is healthy after $wait_seconds s" >&2
  code=$((code ? code : 1))
fi
exit "$code"
