#!/bin/sh
# Start the stack of compose/.env, and return when every service is healthy. If a service is unhealthy, print the last
# lines of its log. If a port is in use, print the variable that sets the port.
set -u
cd "$(dirname "$0")/../compose"
wait_seconds=${OUTBOX_COMPOSE_SECONDS:-180} # limit per dependency, and for all services at the end
log_lines=15

port_in_use() { # print the port of the engine's message: "... 127.0.0.1:15432 ...: port is already allocated", "address already in use"
  grep -E 'already (allocated|in use)|[Pp]orts are not available' "$output" | sed -n 's/.*127\.0\.0\.1:\([0-9][0-9]*\).*/\1/p' | head -n 1
}

explain_port() { # PORT: search the shell's environment first, because it overrides compose/.env
  name=$({ env; cat .env 2>/dev/null; } | sed -n "s/^\([A-Z0-9_]*_PORT\)=$1\$/\1/p" | head -n 1)
  echo "hint:  port $1 is in use: change ${name:-it} in compose/.env, then run the command again" >&2
}

not_ready() { # print services that failed or are not healthy, one per line: name, state, health, exit code
  # shellcheck disable=SC2046 # one argument per service; `config` omits services of inactive profiles
  docker compose ps --all --format '{{.Service}} {{.State}} {{.Health}} {{.ExitCode}}' $(docker compose config --services) |
    grep -E ' (unhealthy|starting|restarting|dead)( |$)| exited +[1-9]'
}

show_logs() { # LINES of not_ready
  printf '%s\n' "$1" | while read -r service state details; do
    echo "--- $service ($state${details:+, $details}): the last lines of its log" >&2
    docker compose logs --no-color --no-log-prefix --tail "$log_lines" "$service" >&2
  done
}

output=$(mktemp)
trap 'cat "$output" >&2; rm -f "$output"; exit 130' INT
trap 'cat "$output" >&2; rm -f "$output"; exit 143' TERM
echo "starting the containers"
docker compose --ansi never --progress quiet up -d --wait --wait-timeout "$wait_seconds" --quiet-pull --remove-orphans 2>"$output"
code=$?
cat "$output" >&2
port=$(port_in_use)
rm -f "$output"
# Compose 2.40 returns 0 after the timeout even if a service is still starting.
failed=$(not_ready)
if [ -n "$port" ]; then
  explain_port "$port"
elif [ -n "$failed" ]; then
  show_logs "$failed"
  [ "$code" -ne 0 ] || echo "error: not every service is healthy after $wait_seconds s" >&2
  code=$((code ? code : 1))
fi
exit "$code"
