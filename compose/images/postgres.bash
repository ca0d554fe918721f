#!/bin/bash
# PostgreSQL: POSTGRES_USER, POSTGRES_PASSWORD (or POSTGRES_PASSWORD_FILE) and POSTGRES_DB create the cluster at the
# first start, as in the official image; arguments go to the server: `postgres -c wal_level=logical`.
set -euo pipefail
[ "${1:-}" != postgres ] || shift

initialise() {
  local user=${POSTGRES_USER:-postgres} unfinished="$PGDATA.unfinished" password
  if [ -n "${POSTGRES_PASSWORD_FILE:-}" ]; then password=$(<"$POSTGRES_PASSWORD_FILE"); else password=${POSTGRES_PASSWORD:-}; fi
  [ -n "$password" ] || { echo "POSTGRES_PASSWORD is not set: the password of $user" >&2; exit 1; }
  if mountpoint -q "$PGDATA"; then
    echo "PGDATA=$PGDATA is a mount point: mount its parent folder, as for the official PostgreSQL image since version 18" >&2
    exit 1
  fi
  # In a temporary folder, so that the result of an interrupted initdb is never used.
  rm -rf "$unfinished"
  mkdir -p -m 700 "$unfinished"
  initdb --pgdata="$unfinished" --username="$user" --pwfile=<(printf '%s\n' "$password") --auth=scram-sha-256 \
    --encoding=UTF8 --locale-provider=builtin --builtin-locale=C.UTF-8 --locale=C
  printf 'host all all all scram-sha-256\nhost replication all all scram-sha-256\n' >"$unfinished/pg_hba.conf"
  if [ "${POSTGRES_DB:-postgres}" != postgres ]; then
    printf 'create database "%s";\n' "${POSTGRES_DB//\"/\"\"}" | postgres --single -D "$unfinished" postgres >/dev/null
  fi
  mv -T "$unfinished" "$PGDATA"
}

[ -s "$PGDATA/PG_VERSION" ] || initialise
unset POSTGRES_PASSWORD
# The server overwrites the postmaster.pid of a killed server, because both servers have the pid 1.
exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories='' "$@"
