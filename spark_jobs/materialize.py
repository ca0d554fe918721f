"""Launcher for spark-submit: spark-submit spark_jobs/materialize.py -p connectors/library.yaml -e local."""

import sys

# Said here, because an older Python cannot even import what follows.
if sys.version_info < (3, 11):  # noqa: UP036 - a cluster's Python is whatever it is
    sys.exit(f"error: Python is {sys.version.split()[0]}\nhint: the driver needs Python 3.11 or newer")

from outbox_spark.commands.materialize import main

if __name__ == "__main__":
    sys.exit(main())
