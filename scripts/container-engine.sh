#!/bin/sh
# Provide a container engine for compose/: use the running engine, or start one.
#   scripts/container-engine.sh up       install and start missing components: engine, `docker compose`, base image
#   scripts/container-engine.sh status   print the versions; exit 1 if a component is missing
#   scripts/container-engine.sh log      print the last warnings and errors of the engine that `up` started
#   scripts/container-engine.sh down     stop the engine that `up` started, but not an engine that was already running
# Installation requires root on Debian or Ubuntu. On other systems, the script only reports missing components. The base
# image is pulled by digest. If the image registry is not reachable, the image is built from Debian packages.
set -eu

# debian:bookworm-20260918-slim for all platforms.
default_source=debian@sha256:3783cc01769c7b2b1b83a5c5ad96c815348e28ed7da68e2e3687004faa906251
base_source=${OUTBOX_BASE_IMAGE:-$default_source}
# Base image of compose/. Engines do not look up this name in a public registry.
base_image=localhost/outbox-kit/base
built_instead="built from Debian's packages instead of $base_source"
compose_version=v2.40.3
min_compose=2.24.4 # for `!override` in three-brokers.yaml
repository=$(cd "$(dirname "$0")/.." && pwd)
work="$repository/build/engine"
pid_file="$work/dockerd.pid"
log="$work/dockerd.log"
start_seconds=60
stop_seconds=60
pull_seconds=60
install_seconds=900

progress() { echo "container engine: $*" >&2; }

fail() { # MESSAGE HINT
  echo "error: $1" >&2
  echo "hint:  $2" >&2
  exit 1
}

bounded() { # SECONDS COMMAND...: run with a time limit, except on macOS, which lacks timeout(1)
  if command -v timeout >/dev/null 2>&1; then timeout "$@"; else shift && "$@"; fi
}

engine_responds() { bounded 10 docker info >/dev/null 2>&1; }

has_compose() { docker compose version >/dev/null 2>&1; }

is_new_enough() { # VERSION: true if it is at least $min_compose
  [ "$(printf '%s\n%s\n' "$min_compose" "${1#v}" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" = "$min_compose" ]
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

is_base_image_built() { # true if the base image was built from Debian's packages, for the current digest
  [ "$(docker image inspect --format '{{.Comment}}' "$base_image" 2>/dev/null)" = "$built_instead" ]
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

install_packages() { # PACKAGE...
  progress "installing $*"
  { bounded "$install_seconds" apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive bounded "$install_seconds" apt-get install -y -qq --no-install-recommends "$@"; } \
    >"$work/apt.log" 2>&1 || fail "apt-get could not install $*" "see $work/apt.log"
}

started_here() { # true if the process of the pid file runs and is dockerd
  [ -f "$pid_file" ] && [ "$(cat "/proc/$(cat "$pid_file")/comm" 2>/dev/null)" = dockerd ]
}

start_engine() {
  engine_responds && return 0
  [ -z "${DOCKER_HOST:-}" ] || fail "no container engine responds at DOCKER_HOST=$DOCKER_HOST" "start it, or unset DOCKER_HOST"
  can_install || fail "no container engine responds (docker info)" "start Docker, or install it: https://docs.docker.com/engine/install/"
  missing=""
  command -v docker >/dev/null 2>&1 && command -v dockerd >/dev/null 2>&1 || missing="docker.io"
  command -v iptables >/dev/null 2>&1 || missing="$missing iptables"
  # shellcheck disable=SC2086
  [ -z "$missing" ] || install_packages $missing
  engine_responds && return 0 # the service of the package has started the engine
  # A second engine would replace the socket of the first.
  if ! started_here && pidof dockerd >/dev/null; then
    fail "the running engine (dockerd, pid $(pidof dockerd)) does not respond (docker info)" "check its log, then run the command again"
  fi
  if ! started_here; then
    progress "starting dockerd (log: $log)"
    rm -f "$pid_file"
    setsid dockerd --pidfile "$pid_file" >"$log" 2>&1 </dev/null &
  fi
  wait_for_engine
}

wait_for_engine() {
  waited=0
  while ! engine_responds; do
    [ "$waited" -lt "$start_seconds" ] || fail "dockerd did not respond within $start_seconds s; its last line: $(tail -n 1 "$log")" "see $log"
    sleep 1
    waited=$((waited + 1))
  done
}

provide_compose_plugin() {
  has_compose && return 0
  command -v go >/dev/null 2>&1 || fail "\`docker compose\` (version 2) is not installed" \
    "install it: https://docs.docker.com/compose/install/linux/; with Go 1.24 or later on the PATH this script builds it"
  progress "building the plugin docker compose $compose_version (about 2 minutes)"
  # `go install` rejects modules with exclude directives, so a separate module requires it.
  mkdir -p "$work/compose" && cd "$work/compose"
  cat >go.mod <<MODULE
module outbox-kit/compose

go 1.24

require github.com/docker/compose/v2 $compose_version
MODULE
  cat >tools.go <<'TOOLS'
//go:build tools

package tools

import _ "github.com/docker/compose/v2/cmd"
TOOLS
  version="github.com/docker/compose/v2/internal.Version=$compose_version"
  { bounded "$install_seconds" go mod tidy && bounded "$install_seconds" go build -ldflags "-s -w -X $version" -o docker-compose github.com/docker/compose/v2/cmd; } \
    >"$work/compose.log" 2>&1 || fail "cannot build the compose plugin" "see $work/compose.log"
  cd "$repository"
  plugins="${DOCKER_CONFIG:-$HOME/.docker}/cli-plugins"
  mkdir -p "$plugins"
  mv "$work/compose/docker-compose" "$plugins/docker-compose"
  has_compose || fail "docker does not find the plugin in $plugins" "try \`docker compose version\`"
}

provide_base_image() {
  is_base_image_built && return 0
  if has_image "$base_source" || pull_base_image; then
    docker tag "$base_source" "$base_image"
  else
    build_base_image
  fi
}

pull_base_image() {
  progress "pulling $base_source"
  bounded "$pull_seconds" docker pull -q "$base_source" >"$work/pull.log" 2>&1 && return 0
  progress "cannot pull $base_source ($(tail -n 1 "$work/pull.log"))"
  return 1
}

build_base_image() {
  if [ "$base_source" != "$default_source" ] || ! can_install; then
    fail "the base image $base_source does not exist locally" \
      "docker pull $base_source, or set OUTBOX_BASE_IMAGE to a local image of Debian bookworm"
  fi
  command -v debootstrap >/dev/null 2>&1 || install_packages debootstrap
  progress "building it from Debian packages (about 30 s)"
  tree="$work/bookworm"
  rm -rf "$tree"
  bounded "$install_seconds" debootstrap --variant=minbase bookworm "$tree" >"$work/debootstrap.log" 2>&1 ||
    fail "debootstrap failed" "see $work/debootstrap.log"
  install_updates "$tree"
  slim_down "$tree"
  tar -C "$tree" -c . | docker import --message "$built_instead" --change 'CMD ["bash"]' - "$base_image" >/dev/null
  rm -rf "$tree"
}

install_updates() { # TREE: install security updates, which debootstrap omits, from the apt sources of this machine
  list=/etc/apt/sources.list.d/debian.sources
  grep -q bookworm-security $list 2>/dev/null || return 0
  cp $list "$1/etc/apt/sources.list.d/" && rm -f "$1/etc/apt/sources.list"
  bounded "$install_seconds" chroot "$1" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get upgrade -y -qq' \
    >"$work/upgrade.log" 2>&1 || fail "cannot install security updates in the base image" "see $work/upgrade.log"
}

slim_down() { # TREE: delete the files that Debian's slim images do not contain
  rm -rf "$1"/var/cache/apt/*.bin "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/* "$1"/usr/share/doc/* "$1"/usr/share/man/* \
    "$1"/usr/share/info/* "$1"/usr/share/locale/* "$1"/var/log/*.log
  printf 'path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\npath-exclude /usr/share/locale/*\n' \
    >"$1/etc/dpkg/dpkg.cfg.d/slim"
}

up() {
  mkdir -p "$work"
  start_engine
  provide_compose_plugin
  provide_base_image
  status
}

status() {
  engine_responds || fail "no container engine responds (docker info)" "scripts/container-engine.sh up"
  has_compose || fail "\`docker compose\` (version 2) is not installed" "scripts/container-engine.sh up"
  version=$(docker compose version --short)
  is_new_enough "$version" || fail "\`docker compose\` is $version, older than $min_compose" \
    "upgrade it: https://docs.docker.com/compose/install/linux/"
  has_image "$base_image" || fail "the base image $base_image does not exist locally" "scripts/container-engine.sh up"
  progress "docker $(docker version --format '{{.Server.Version}}'), compose $version, $base_image $(docker image inspect --format '{{.Size}}' "$base_image" | awk '{printf "%.0f MB", $1/1000000}')"
}

# Omit informational messages and the two warnings that every build causes.
log() { [ ! -f "$log" ] || grep -v -e level=info -e 'only one connection allowed' -e 'unknown option' "$log" | tail -n 20; }

down() {
  if ! started_here; then
    progress "no engine was started by this script"
    return 0
  fi
  pid=$(cat "$pid_file")
  kill "$pid"
  waited=0
  while [ -d "/proc/$pid" ]; do
    [ "$waited" -lt "$stop_seconds" ] || fail "dockerd (pid $pid) did not stop within $stop_seconds s" "see $log"
    sleep 1
    waited=$((waited + 1))
  done
  rm -f "$pid_file"
  progress "stopped"
}

case "${1:-}" in
up | down | log | status) "$1" ;;
*)
  sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
