#!/bin/sh
# Resolve the Python packages of the images, for Python 3.11 of Debian bookworm on Linux:
#   build/images/tools      outbox-kit, outbox-events and their dependencies, and cryptography for compose/secure
#   build/images/pyspark    PySpark, for the image `spark`
# The images copy these folders, so that `docker build` does not need a package index.
set -eu
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
case "$python" in
/*) ;;
*) python=$PWD/$python ;;
esac
images=build/images
wheels=$PWD/$images/wheels

case "$(uname -m)" in
arm64 | aarch64) machine=aarch64 ;;
*) machine=x86_64 ;;
esac

install() { # FOLDER OPTION...
  folder=$1
  shift
  "$python" -m pip install -q --disable-pip-version-check --no-warn-script-location --target "$folder" \
    --python-version 3.11 --implementation cp --only-binary=:all: --no-compile \
    --platform "manylinux_2_28_$machine" --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" "$@"
}

rm -rf $images/tools $images/pyspark $images/wheels
mkdir -p $images
for project in scripts/outbox_events .; do
  (cd $project && "$python" -m hatchling build -t wheel -d "$wheels") >$images/wheel.log 2>&1 || {
    cat $images/wheel.log >&2
    exit 1
  }
done
# Install the wheels together with their dependencies, so that pip reports dependencies without a hash.
for wheel in $images/wheels/outbox_*.whl; do
  echo "./$wheel $("$python" -m pip hash "$wheel" | tail -n 1)"
done >$images/wheels/outbox.txt
install $images/tools --require-hashes -r requirements/commands.txt -r requirements/tools-image.txt \
  -r $images/wheels/outbox.txt
# The first line of each script contains the path of this machine's Python. Replace it with the path in the image.
for script in $images/tools/bin/outbox*; do
  sed -i.old '1s|.*|#!/usr/bin/python3|' "$script" && rm "$script.old"
done
# PySpark is published only as a source distribution, so build a wheel.
"$python" -m pip wheel -q --disable-pip-version-check --require-hashes --no-build-isolation --use-pep517 \
  -w $images/wheels -r requirements/pyspark.txt
install $images/pyspark --no-index --no-deps $images/wheels/pyspark-*.whl $images/wheels/py4j-*.whl
# Delete what the jobs do not use.
rm -rf $images/pyspark/pyspark/examples $images/pyspark/pyspark/R $images/pyspark/pyspark/tests \
  $images/pyspark/pyspark/data $images/pyspark/share
