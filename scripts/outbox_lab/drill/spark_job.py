"""Run the Spark job repeatedly in one JVM, because the start of a JVM and the first run take most of the time."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Self

from outbox_events.errors import OutboxError
from outbox_kit.stack.services.java import SPARK_TIMEOUT_S, job_environment
from outbox_lab.drill.project import ENVIRONMENT, DrillProject

RUNS = 3
END_S = 10
STANDARD_STREAMS = (1, 2)
SPAWN = multiprocessing.get_context("spawn")  # librdkafka does not support fork


class SparkJob:
    """Runs `outbox-materialize` in a separate process, which starts with the first run in a `with` block.

    Each run has its own Spark session, but all runs use the JVM of the process.
    """

    def __init__(self, project: DrillProject) -> None:
        self._folder = project.folder
        self._log = project.logs / "spark.log"
        self._process: SpawnProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end_process()

    def run(self, pipeline_file: Path) -> None:
        """Run the job, and run it again in a new process after a failure. Raises OutboxError after RUNS failed runs."""
        for _ in range(RUNS):
            if self._exit_code(pipeline_file) == 0:
                return
            self._end_process()
        raise OutboxError(f"{RUNS} runs of the Spark job failed", f"see {self._log}")

    def _exit_code(self, pipeline_file: Path) -> int:
        if self._process is None:
            self._start_process()
        try:
            self._connection.send(pipeline_file)
            if self._connection.poll(SPARK_TIMEOUT_S):
                return int(self._connection.recv())
        except (EOFError, OSError):  # the process has ended
            return 1
        self._end_process()
        raise OutboxError(f"the Spark job took more than {SPARK_TIMEOUT_S} s", f"see {self._log}")

    def _start_process(self) -> None:
        self._connection, other_end = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_run_jobs, args=(other_end, self._folder, self._log), daemon=True)
        self._process.start()
        other_end.close()  # otherwise the end of the process would not end a read

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join(END_S)
            self._process = None


def _run_jobs(connection: Connection, folder: Path, log: Path) -> None:
    """Run the job for each pipeline file that the drill sends, and answer with its exit code.

    Send all output, also that of the JVM, to the log.
    """
    os.chdir(folder)
    os.environ.update(job_environment())
    with log.open("ab") as output:
        for stream in STANDARD_STREAMS:
            os.dup2(output.fileno(), stream)
    # Imported only in this process, because a drill without --materialize does not need Spark.
    command = import_module("outbox_spark.commands.materialize")
    with suppress(EOFError):  # the drill has ended
        for pipeline_file in iter(connection.recv, None):
            connection.send(int(command.main(["-p", str(pipeline_file), "-e", ENVIRONMENT])))
