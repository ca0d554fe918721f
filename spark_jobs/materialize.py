"""Launcher for spark-submit: spark-submit spark_jobs/materialize.py -p connectors/library.yaml -e local."""

import sys

from outbox_spark.jobs import main

if __name__ == "__main__":
    sys.exit(main())
