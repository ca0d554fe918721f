#!/bin/sh
# Print MESSAGE and run COMMAND. On a terminal, also show the elapsed time until the command ends.
# usage: elapsed.sh MESSAGE COMMAND [ARGUMENT...]
echo "$1"
shift
[ -t 2 ] || exec "$@"
"$@" &
pid=$!
trap 'kill "$pid"' INT TERM
start=$(date +%s)
while kill -0 "$pid" 2>/dev/null; do
  printf '\r\033[K  %d s' $(($(date +%s) - start)) >&2
  sleep 1
done
printf '\r\033[K' >&2
wait "$pid"
