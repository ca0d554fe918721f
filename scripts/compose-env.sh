#!/bin/sh
# Writes compose/.env, readable by its owner only: compose/.env.example with a random password for each empty one.
#   scripts/compose-env.sh [PROFILE...]    an existing file is kept, except for the lines of the PROFILEs
#                                          (secure, three-brokers, observability; `none` for none) and new variables
set -eu
cd "$(dirname "$0")/../compose"
umask 077

files=compose.yaml
replication=1
insync=1
exporter=disable
for profile in "$@"; do
  case "$profile" in
  none) ;;
  three-brokers) replication=3 insync=2 files="$files:$profile.yaml" ;;
  secure) exporter=require files="$files:$profile.yaml" ;;
  observability) files="$files:$profile.yaml" ;;
  *)
    echo "error: unknown profile $profile" >&2
    echo "hint:  profiles: secure, three-brokers, observability, none" >&2
    exit 2
    ;;
  esac
done

if [ "$replication$exporter" = 3require ]; then
  echo "error: the profiles secure and three-brokers cannot be combined: the other brokers would have no TLS" >&2
  echo "hint:  choose one of them" >&2
  exit 2
fi

value() { # LINE: with a password where the example has none
  case "$1" in
  *_PASSWORD=) printf '%s%s\n' "$1" "$(od -An -tx1 -N18 /dev/urandom | tr -d ' \n')" ;;
  # Without a leading dash, which the storage tool would parse as an option.
  KAFKA_CLUSTER_ID=) printf '%s%s\n' "$1" "k$(od -An -tx1 -N12 /dev/urandom | tr -d ' \n' | cut -c1-20)w" ;;
  *) printf '%s\n' "$1" ;;
  esac
}

if [ ! -f .env ]; then
  while IFS= read -r line; do value "$line"; done <.env.example >.env.new
  mv .env.new .env
  echo "wrote compose/.env (ports, images, passwords)" >&2
else # add the variables of a later version of the example
  while IFS= read -r line; do
    case "$line" in
    '' | '#'*) ;;
    *) grep -q "^${line%%=*}=" .env || value "$line" >>.env ;;
    esac
  done <.env.example
fi
if [ "$#" -gt 0 ]; then
  sed -e "s|^COMPOSE_FILE=.*|COMPOSE_FILE=$files|" -e "s|^KAFKA_REPLICATION=.*|KAFKA_REPLICATION=$replication|" \
    -e "s|^KAFKA_MIN_INSYNC=.*|KAFKA_MIN_INSYNC=$insync|" -e "s|^EXPORTER_SSLMODE=.*|EXPORTER_SSLMODE=$exporter|" .env >.env.new
  mv .env.new .env
fi

wrong=$(grep -E '^[A-Z0-9_]+_PORT=' .env | grep -vE '=[0-9]{1,5}$' | head -n 1) || true
if [ -n "$wrong" ]; then
  echo "error: compose/.env: $wrong is not a port" >&2
  echo "hint:  use a number" >&2
  exit 2
fi
twice=$(sed -n 's/^[A-Z0-9_]*_PORT=//p' .env | sort | uniq -d | head -n 1)
if [ -n "$twice" ]; then
  echo "error: compose/.env: port $twice is used twice: $(sed -n "s/^\([A-Z0-9_]*_PORT\)=$twice\$/\1/p" .env | paste -s -d ' ' -)" >&2
  echo "hint:  choose different ports" >&2
  exit 2
fi
