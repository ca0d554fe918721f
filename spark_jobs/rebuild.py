"""Launcher for spark-submit: spark-submit spark_jobs/rebuild.py -p connectors/library.yaml -e local."""

import sys

from outbox_spark.commands.rebuild import main

if __name__ == "__main__":
    sys.exit(main())
