"""Launcher for spark-submit: spark-submit spark_jobs/reconcile.py -p connectors/library.yaml -e local."""

import sys

from outbox_spark.commands.reconcile import main

if __name__ == "__main__":
    sys.exit(main())
