"""Launcher for spark-submit: spark-submit spark_jobs/maintain.py -p connectors/library.yaml -e local."""

import sys

from outbox_spark.commands.maintain import main

if __name__ == "__main__":
    sys.exit(main())
