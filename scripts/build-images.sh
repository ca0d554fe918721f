#!/bin/sh
# Build the container images of compose/build.yaml one after the other. Parallel builds share stages, and under load the
# engine may close the connection of a build. BuildKit of Docker 20.10 can also crash, because it reads its cache
# outside a transaction. The engine is then restarted. `make images` prepares the files of the images.
set -eu
repository=$(cd "$(dirname "$0")/.." && pwd)
cd "$repository/compose"
output="$repository/build/images/build.log"

build() { COMPOSE_PARALLEL_LIMIT=1 docker compose -f build.yaml build -q 2>"$output"; }

lost_connection() { grep -qE "Unavailable|Cannot connect to the Docker daemon" "$output"; }

fail() {
  cat "$output" >&2
  "$repository/scripts/container-engine.sh" log >&2
  echo "error: cannot build the images of compose/build.yaml" >&2
  echo "hint:  cd compose && docker compose -f build.yaml build" >&2
  exit 1
}

build && exit 0
lost_connection || fail
cat "$output" >&2
echo "the engine closed the connection: building the remaining images" >&2
"$repository/scripts/container-engine.sh" up
build || fail
