#!/usr/bin/env python3
"""Time and memory of one backfill into PostgreSQL, in a separate process with the launchers' settings.

run(...) starts this file as a process, which reads a job from stdin, runs it once, and prints its measurements.
OUTBOX_SPARK_MEMORY and SPARK_MASTER are passed to the process; JAVA_OPTIONS are additional options of its JVM.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.materialize.spark_bench import POSTGRES, SparkBench, job_for, targets
from tests.benchmarks.materialize.variants import quiet
from tests.benchmarks.meters import cpu_seconds
from tests.conftest import REPOSITORY

from outbox_kit.stack import StackState
from outbox_spark.jobs.model import PostgresTarget
from outbox_spark.runs import materialize_table
from outbox_spark.session.spark_session import JARS_VARIABLE, archive_file, start_session

LIMIT_SECONDS = 900
WITH_ARCHIVE, FIRST_COMPILER, ALL_COMPILERS = "first compiler, class archive", "first compiler", "all compilers"
COLD_EVENTS = int(os.environ.get("COLD_EVENTS", "10000"))
JAVA_OPTIONS = "JAVA_OPTIONS"


@dataclass(frozen=True)
class ColdRun:
    """Measurements of one run. `seconds` excludes the start of the session, `total_seconds` and CPU time include it.

    The memory is the peak resident memory in GB of the JVM and of Python.
    """

    records: int
    seconds: float
    total_seconds: float
    cpu_seconds: float
    jvm_gb: float
    python_gb: float

    @property
    def gb(self) -> float:
        return self.jvm_gb + self.python_gb


def run(state: StackState, topic: str, table: str, *, few_records: bool = False, jars: Path | None = None) -> ColdRun:
    """Run a backfill of `topic` into a new table, in a separate process. `jars` replaces the folder of the jars."""
    names = {"topic": topic, "table": table, "few_records": few_records}
    arguments = json.dumps({"state": state.model_dump(mode="json"), **names})
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": os.environ.get(JAVA_OPTIONS, "")}
    if jars is not None:
        environment[JARS_VARIABLE] = str(jars)
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
    return ColdRun(**json.loads(result.stdout.splitlines()[-1]))


def compare(bench: SparkBench, rounds: int) -> dict[str, list[ColdRun]]:
    """Run a process for few events in each round, with and without what makes it shorter. Return the runs by variant.

    ALL_COMPILERS is what Java does without the options of the command.
    """
    runs: dict[str, list[ColdRun]] = {}
    with bench.topic("bench.cold", COLD_EVENTS) as topic, tempfile.TemporaryDirectory() as folder:
        topic.send(COLD_EVENTS)
        without_archive = Path(folder) / "jars"
        without_archive.mkdir()
        for jar in (archive_file().parent / "jars").glob("*.jar"):
            (without_archive / jar.name).symlink_to(jar)
        variants: dict[str, dict[str, Any]] = {
            WITH_ARCHIVE: {"few_records": True},
            FIRST_COMPILER: {"few_records": True, "jars": without_archive},
            ALL_COMPILERS: {"jars": without_archive},
        }
        for number in range(rounds):
            shift = number % len(variants)
            for name, options in [*variants.items()][shift:] + [*variants.items()][:shift]:
                actual = run(bench.state, topic.name, "cold", **options)
                runs.setdefault(name, []).append(actual)
                print_progress(f"round {number}, {name}: {actual.total_seconds:.1f} s, CPU {actual.cpu_seconds:.1f} s")
                bench.drop_table(POSTGRES, "cold")
    return runs


def main() -> int:
    """Run the job of stdin and print a ColdRun as JSON."""
    arguments = json.load(sys.stdin)
    state = StackState.model_validate(arguments["state"])
    target = targets(state, Path())[POSTGRES]
    assert isinstance(target, PostgresTarget)
    begun = time.perf_counter()
    spark = start_session("outbox-bench-cold", few_records=arguments["few_records"])
    started = time.perf_counter()
    outcome = materialize_table.materialize(
        spark, job_for(state, target, arguments["topic"], arguments["table"]), quiet
    )
    ended = time.perf_counter()
    pids = list(_process_tree())
    cpu = sum(map(cpu_seconds, pids))
    sizes = {pid: _peak_resident_gb(pid) for pid in pids}
    jvm = sum(size for pid, size in sizes.items() if _is_java(pid))
    spark.stop()
    times = (round(seconds, 2) for seconds in (ended - started, ended - begun, cpu))
    actual = ColdRun(outcome.records, *times, round(jvm, 3), round(sum(sizes.values()) - jvm, 3))
    print(json.dumps(asdict(actual)))
    return 0


def _process_tree() -> Iterator[int]:
    """Yield the pids of this process and its descendants: the JVM, and Python workers if any."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            status = _status(int(folder.name))
            match = re.search(r"^PPid:\s+(\d+)", status, re.MULTILINE)
            if match:
                parents[int(folder.name)] = int(match[1])
    for pid in parents:
        ancestor = pid
        while ancestor > 1 and ancestor != os.getpid():
            ancestor = parents.get(ancestor, 0)
        if ancestor == os.getpid():
            yield pid


def _peak_resident_gb(pid: int) -> float:
    """Return the peak resident memory of a process. The sum over processes is an upper bound of their common peak."""
    match = re.search(r"^VmHWM:\s+(\d+) kB", _status(pid), re.MULTILINE)
    return int(match[1]) * 1024 / 1e9 if match else 0.0


def _is_java(pid: int) -> bool:
    return bool(re.search(r"^Name:\s+java$", _status(pid), re.MULTILINE))


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
