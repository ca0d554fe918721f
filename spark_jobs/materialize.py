"""Launcher for spark-submit: spark-submit spark_jobs/materialize.py -p connectors/library.yaml -e local."""

import sys

# Check the version first, because the imports below fail on an older Python.
if sys.version_info < (3, 11):  # noqa: UP036 - the Python of a cluster may be older
    sys.exit(f"error: the driver runs Python {sys.version.split()[0]}\nhint: run it with Python 3.11 or newer")

from outbox_spark.commands.materialize import main

if __name__ == "__main__":
    sys.exit(main())
