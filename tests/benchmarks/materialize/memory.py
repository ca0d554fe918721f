#!/usr/bin/env python3
"""Memory of one backfill into PostgreSQL, in a process of its own with the launchers' settings.

peak(...) starts this file as a process; as a process it reads a job from stdin, runs it once, and prints what it took.
OUTBOX_SPARK_MEMORY and SPARK_MASTER go through to it; JAVA_OPTIONS are more options of its JVM.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.benchmarks.materialize.place import POSTGRES, job_for, targets
from tests.benchmarks.materialize.variants import quiet
from tests.conftest import REPOSITORY

from outbox_kit.stack import StackState
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.runs import materialize_table
from outbox_spark.session.spark_session import start_session

LIMIT_SECONDS = 900
JAVA_OPTIONS = "JAVA_OPTIONS"


@dataclass(frozen=True)
class Peak:
    """What one cold run took: seconds without the session's start, GB resident at most of the JVM, all of Python."""

    records: int
    seconds: float
    jvm_gb: float
    python_gb: float

    @property
    def gb(self) -> float:
        return self.jvm_gb + self.python_gb


def peak(state: StackState, topic: str, table: str) -> Peak:
    """Run a backfill of `topic` into a table that is not there yet."""
    arguments = json.dumps({"state": state.model_dump(mode="json"), "topic": topic, "table": table})
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": os.environ.get(JAVA_OPTIONS, "")}
    environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *filter(None, [environment.get("PYTHONPATH")])])
    result = subprocess.run(
        [sys.executable, __file__],
        input=arguments,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    )
    return Peak(**json.loads(result.stdout.splitlines()[-1]))


def main() -> int:
    """The process."""
    arguments = json.load(sys.stdin)
    state = StackState.model_validate(arguments["state"])
    target = targets(state, Path())[POSTGRES]
    assert isinstance(target, PostgresTarget)
    spark = start_session("outbox-bench-memory")
    started = time.perf_counter()
    outcome = materialize_table.materialize(
        spark, job_for(state, target, arguments["topic"], arguments["table"]), quiet
    )
    seconds = time.perf_counter() - started
    by_name = {pid: _resident(pid) for pid in _family()}
    jvm = sum(size for pid, size in by_name.items() if _is_java(pid))
    spark.stop()
    found = Peak(outcome.records, round(seconds, 2), round(jvm, 3), round(sum(by_name.values()) - jvm, 3))
    print(json.dumps(asdict(found)))
    return 0


def _family() -> Iterator[int]:
    """This process and all below it: the JVM, and Python's workers where there are some."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            status = _status(int(folder.name))
            found = re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)
            if found:
                parents[int(folder.name)] = int(found[1])
    for pid in parents:
        above = pid
        while above > 1 and above != os.getpid():
            above = parents.get(above, 0)
        if above == os.getpid():
            yield pid


def _resident(pid: int) -> float:
    """The most that was resident, in GB. Peaks of processes can be at different times: their sum is an upper bound."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", _status(pid), re.MULTILINE)
    return int(found[1]) * 1024 / 1e9 if found else 0.0


def _is_java(pid: int) -> bool:
    return bool(re.search(r"^Name:\s+java$", _status(pid), re.MULTILINE))


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
