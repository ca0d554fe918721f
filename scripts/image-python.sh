#!/bin/sh
# Resolve the Python packages of the images, for Python 3.11 of Debian bookworm on Linux:
#   build/images/tools      outbox-kit and its dependencies, and cryptography for compose/secure
#   build/images/pyspark    PySpark, for the image `spark`
# The images copy these folders, so that `docker build` needs no package index.
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
install $images/tools $images/wheels/outbox_kit-*.whl cryptography
# The first line of each script is the path of this machine's Python: replace it by the path in the image.
for script in $images/tools/bin/outbox*; do
  sed -i.old '1s|.*|#!/usr/bin/python3|' "$script" && rm "$script.old"
done
# PySpark is published as a source distribution only, so build a wheel.
"$python" -m pip wheel -q --disable-pip-version-check --no-deps -c constraints.txt -w $images/wheels pyspark
install $images/pyspark pyspark
# Delete what the jobs do not use.
rm -rf $images/pyspark/pyspark/examples $images/pyspark/pyspark/R $images/pyspark/pyspark/tests \
  $images/pyspark/pyspark/data $images/pyspark/share
