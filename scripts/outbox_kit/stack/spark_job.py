"""Command and environment of a short run of the Spark job on the embedded stack, in a separate process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from outbox_kit.stack.services.java import find_java

SPARK_TIMEOUT_S = 300
# In a run of 30 s the JVM's optimizing compiler costs more time than it saves.
FAST_START_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"


def job_command(pipeline_file: Path, environment: str, *options: str) -> list[str]:
    """Return the command that materializes the topics of a pipeline."""
    return [sys.executable, "-m", "outbox_spark", "-p", str(pipeline_file), "-e", environment, *options]


def job_environment() -> dict[str, str]:
    """Return the environment variables of the command. Raises ConfigurationError without Java."""
    java_home = find_java().resolve().parent.parent
    return {"SPARK_SUBMIT_OPTS": FAST_START_OPTIONS, **os.environ, "JAVA_HOME": str(java_home)}
