#!/bin/sh
# The Python parts of the images, for the Python 3.11 of Debian bookworm, whatever Python and system this machine has:
#   build/images/tools      the kit and what it needs
#   build/images/pyspark    PySpark, for the image `spark`
# Resolved here and copied, so that `docker build` needs no package index.
set -eu
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
images=build/images

case "$(uname -m)" in
arm64 | aarch64) machine=aarch64 ;;
*) machine=x86_64 ;;
esac

install() { # FOLDER REQUIREMENT...
  folder=$1
  shift
  "$python" -m pip install -q --disable-pip-version-check --no-warn-script-location --target "$folder" \
    --python-version 3.11 --implementation cp --only-binary=:all: --no-compile -c constraints.txt \
    --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
    --find-links "$images/wheels" "$@"
}

rm -rf $images/tools $images/pyspark $images/wheels
mkdir -p $images
"$python" -m hatchling build -t wheel -d $images/wheels >$images/wheel.log 2>&1 || {
  cat $images/wheel.log >&2
  exit 1
}
install $images/tools $images/wheels/outbox_kit-*.whl
# Their first line names the Python of this machine.
for command in $images/tools/bin/outbox*; do
  sed -i.old '1s|.*|#!/usr/bin/python3|' "$command" && rm "$command.old"
done
# PySpark comes as source only: a wheel is made here, as in any environment.
"$python" -m pip wheel -q --disable-pip-version-check --no-deps -c constraints.txt -w $images/wheels pyspark
install $images/pyspark pyspark
# What a job needs of Spark are its jars and its commands.
rm -rf $images/pyspark/pyspark/examples $images/pyspark/pyspark/R $images/pyspark/pyspark/tests \
  $images/pyspark/pyspark/data $images/pyspark/share
