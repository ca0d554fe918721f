#!/usr/bin/env python3
"""Duration of a plan without changes, compared with the start of Python.

Starts an embedded stack, applies the worked example, and runs `outbox plan` and `outbox --version` in turn (see
docs/performance.md). ROUNDS can be set.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.benchmark_stack import print_progress
from tests.benchmarks.report import document, machine, markdown, publish, spread
from tests.conftest import make_project

from outbox_kit.stack import Stack

ROUNDS = int(os.environ.get("ROUNDS", "7"))
COMMANDS = {"version": ["--version"], "plan": ["plan"], "plan_database": ["plan", "--only", "postgres"]}


def main() -> int:
    """Run the benchmark, print the report and write the JSON file."""
    machine_info = machine()
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        project = make_project(Path(folder) / "project")
        stack = Stack(project)
        stack.up(print_progress)
        try:
            _run(project, ["apply", "--yes"])
            samples = _measure(project)
        finally:
            stack.down(print_progress, purge=True)
    _report(samples, machine_info)
    return 0


@dataclass(frozen=True)
class Sample:
    """Wall-clock and CPU seconds of a command."""

    clock: float
    processor: float


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(project: Path, arguments: list[str]) -> Sample:
    """Run a command. Raises CalledProcessError if its exit code is not 0."""
    command = [sys.executable, "-c", "from outbox_kit.cli import main; main()", *arguments]
    started, used = time.perf_counter(), _processor()
    subprocess.run(command, cwd=project, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    return Sample(round(time.perf_counter() - started, 3), round(_processor() - used, 3))


def _measure(project: Path) -> dict[str, list[Sample]]:
    """Run the commands in turn after one warm-up round, so that a change of the load affects all commands."""
    samples: dict[str, list[Sample]] = {name: [] for name in COMMANDS}
    for number in range(ROUNDS + 1):
        for name, arguments in COMMANDS.items():
            sample = _run(project, arguments)
            if number:
                samples[name].append(sample)
    return samples


def _report(samples: dict[str, list[Sample]], machine_info: dict[str, Any]) -> None:
    measures = {
        name: {
            "clock_s": spread(sample.clock for sample in rounds),
            "cpu_s": statistics.median(sample.processor for sample in rounds),
        }
        for name, rounds in samples.items()
    }
    medians = {name: measure["clock_s"]["median"] for name, measure in measures.items()}
    content = document(
        machine=machine_info,
        samples={name: [asdict(sample) for sample in rounds] for name, rounds in samples.items()},
        measures=measures,
        ratios={f"{name}_vs_version": median / medians["version"] for name, median in medians.items()},
        values={f"{name}_s": median for name, median in medians.items()},
    )
    rows = [
        [name, *(f"{measure['clock_s'][figure]:.2f}" for figure in ("median", "min", "max")), f"{measure['cpu_s']:.2f}"]
        for name, measure in measures.items()
    ]
    publish("plan", content, markdown(("command", "median s", "min", "max", "CPU s"), rows))


if __name__ == "__main__":
    sys.exit(main())
