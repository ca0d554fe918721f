#!/bin/sh
# Check the prerequisites: Python, a JDK, Maven.
# As root on Debian or Ubuntu, install missing prerequisites. Otherwise print the command that installs them.
#   scripts/prerequisites.sh             check (and install)
#   scripts/prerequisites.sh java-home   print the home of a suitable JDK
#   scripts/prerequisites.sh browser     check (and install) Chromium and ChromeDriver, for tests/browser
set -eu

python=${PYTHON:-python3}
debian="python3 python3-venv openjdk-17-jdk-headless maven"
mac="python@3.12 openjdk@17 maven"

is_suitable_jdk() { # HOME: true for a JDK 17 or 21
  [ -x "$1/bin/javac" ] && "$1/bin/javac" -version 2>&1 | grep -Eq '^javac (17|21)([. ]|$)'
}

java_home() {
  from_path=""
  if command -v javac >/dev/null 2>&1; then
    from_path=$(dirname "$(dirname "$(readlink -f "$(command -v javac)" 2>/dev/null || command -v javac)")")
  fi
  for candidate in "${JAVA_HOME:-}" "$from_path" /usr/lib/jvm/*17* /usr/lib/jvm/*21* \
    /opt/homebrew/opt/openjdk@17 /opt/homebrew/opt/openjdk@21 /usr/local/opt/openjdk@17; do
    if [ -n "$candidate" ] && is_suitable_jdk "$candidate"; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

list_missing() {
  if ! command -v "$python" >/dev/null 2>&1; then
    echo "Python 3.11 or later ($python is missing)"
  elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Python 3.11 or later ($python is $("$python" -V 2>&1)); name another with make PYTHON=..."
  elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    echo "Python's venv module"
  fi
  java_home >/dev/null || echo "a JDK 17 or 21 (JAVA_HOME or PATH)"
  command -v mvn >/dev/null 2>&1 || echo "Maven (mvn)"
}

list_missing_browser() {
  command -v chromium >/dev/null 2>&1 || echo "Chromium (chromium)"
  command -v chromedriver >/dev/null 2>&1 || echo "ChromeDriver (chromedriver)"
}

fail() { # MISSING
  echo "error: missing prerequisites:" >&2
  echo "$1" | sed 's/^/  - /' >&2
  if command -v apt-get >/dev/null 2>&1; then
    echo "hint:  sudo apt-get update && sudo apt-get install -y $debian" >&2
  elif command -v brew >/dev/null 2>&1; then
    echo "hint:  brew install $mac" >&2
  else
    echo "hint:  install them; Debian's names: $debian; Homebrew's: $mac" >&2
  fi
  exit 1
}

if [ "${1:-}" = java-home ]; then
  java_home && exit 0
  fail "a JDK 17 or 21 (JAVA_HOME or PATH)"
fi

if [ "${1:-}" = browser ]; then
  list_missing() { list_missing_browser; }
  debian="chromium chromium-driver fonts-dejavu-core"
  mac="chromium chromedriver"
fi

missing=$(list_missing)
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing missing prerequisites: $(echo "$missing" | tr '\n' ';')" >&2
  # shellcheck disable=SC2086
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $debian; } >/dev/null
  missing=$(list_missing)
fi
[ -z "$missing" ] || fail "$missing"
