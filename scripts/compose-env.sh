#!/bin/sh
# Write compose/.env from compose/.env.example with random passwords. Only the owner can read the file.
#   scripts/compose-env.sh [PROFILE...]    PROFILE: secure, three-brokers, observability, or `none`
# If the file exists, only add missing variables and change the lines that depend on the PROFILEs.
set -eu
cd "$(dirname "$0")/../compose"
umask 077

files=compose.yaml
replication=1
min_insync=1
sslmode=disable
for profile in "$@"; do
  case "$profile" in
  none) ;;
  three-brokers) replication=3 min_insync=2 files="$files:$profile.yaml" ;;
  secure) sslmode=require files="$files:$profile.yaml" ;;
  observability) files="$files:$profile.yaml" ;;
  *)
    echo "error: unknown profile $profile" >&2
    echo "hint:  profiles: secure, three-brokers, observability, none" >&2
    exit 2
    ;;
  esac
done

if [ "$replication$sslmode" = 3require ]; then
  echo "error: the profiles secure and three-brokers cannot be combined: kafka-2 and kafka-3 would have no TLS" >&2
  echo "hint:  choose one of them" >&2
  exit 2
fi

fill_in() { # LINE: print the line, with a generated value for an empty password or cluster id
  case "$1" in
  *_PASSWORD=) printf '%s%s\n' "$1" "$(od -An -tx1 -N18 /dev/urandom | tr -d ' \n')" ;;
  # The id must not begin with a dash, because the storage tool would parse it as an option.
  KAFKA_CLUSTER_ID=) printf '%s%s\n' "$1" "k$(od -An -tx1 -N12 /dev/urandom | tr -d ' \n' | cut -c1-20)w" ;;
  *) printf '%s\n' "$1" ;;
  esac
}

if [ ! -f .env ]; then
  while IFS= read -r line; do fill_in "$line"; done <.env.example >.env.new
  mv .env.new .env
  echo "wrote compose/.env (ports, images, passwords)" >&2
else # add variables from a newer version of the example
  while IFS= read -r line; do
    case "$line" in
    '' | '#'*) ;;
    *) grep -q "^${line%%=*}=" .env || fill_in "$line" >>.env ;;
    esac
  done <.env.example
fi
if [ "$#" -gt 0 ]; then
  sed -e "s|^COMPOSE_FILE=.*|COMPOSE_FILE=$files|" -e "s|^KAFKA_REPLICATION=.*|KAFKA_REPLICATION=$replication|" \
    -e "s|^KAFKA_MIN_INSYNC=.*|KAFKA_MIN_INSYNC=$min_insync|" -e "s|^EXPORTER_SSLMODE=.*|EXPORTER_SSLMODE=$sslmode|" .env >.env.new
  mv .env.new .env
fi

invalid=$(grep -E '^[A-Z0-9_]+_PORT=' .env | grep -vE '=[0-9]{1,5}$' | head -n 1) || true
if [ -n "$invalid" ]; then
  echo "error: compose/.env: $invalid is not a port" >&2
  echo "hint:  use a number" >&2
  exit 2
fi
duplicate=$(sed -n 's/^[A-Z0-9_]*_PORT=//p' .env | sort | uniq -d | head -n 1)
if [ -n "$duplicate" ]; then
  echo "error: compose/.env: port $duplicate is used twice: $(sed -n "s/^\([A-Z0-9_]*_PORT\)=$duplicate\$/\1/p" .env | paste -s -d ' ' -)" >&2
  echo "hint:  choose different ports" >&2
  exit 2
fi
