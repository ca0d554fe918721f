#!/bin/sh
# Writes compose/.env, readable by its owner only: compose/.env.example with a random password for each empty one.
set -eu
cd "$(dirname "$0")/../compose"
umask 077
while IFS= read -r line; do
  case "$line" in
  *_PASSWORD=) printf '%s%s\n' "$line" "$(od -An -tx1 -N18 /dev/urandom | tr -d ' \n')" ;;
  *) printf '%s\n' "$line" ;;
  esac
done <.env.example >.env.new
mv .env.new .env
echo "wrote compose/.env (ports, images, passwords)" >&2
