#!/usr/bin/env python3
"""How long a plan without changes takes, as a process of its own, against Python's start alone.

Starts an embedded stack of its own, applies the worked example, and runs `outbox plan` and `outbox --version` in turn.
Prints a table and writes build/bench/plan.json; see docs/performance.md. Seconds of the processor are given besides
those of the clock: a busy machine changes them far less.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.conftest import REPOSITORY, make_project

from outbox_kit.stack import Stack

ROUNDS = int(os.environ.get("ROUNDS", "7"))
COMMANDS = {"version": ["--version"], "plan": ["plan"], "plan_database": ["plan", "--only", "postgres"]}


def main() -> int:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        project = make_project(Path(folder) / "project")
        stack = Stack(project)
        stack.up(_say)
        try:
            _run(project, ["apply", "--yes"])
            samples = _measure(project)
        finally:
            stack.down(_say, purge=True)
    _report(samples)
    return 0


def _say(words: str) -> None:
    sys.stderr.write(words + "\n")


@dataclass(frozen=True)
class Sample:
    """Seconds that a command took: by the clock, and of the processor."""

    clock: float
    processor: float


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(project: Path, arguments: list[str]) -> Sample:
    """Run a command. Raises CalledProcessError where it fails: a pending change is exit code 3."""
    command = [sys.executable, "-c", "from outbox_kit.cli import main; main()", *arguments]
    started, used = time.perf_counter(), _processor()
    subprocess.run(command, cwd=project, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    return Sample(round(time.perf_counter() - started, 3), round(_processor() - used, 3))


def _measure(project: Path) -> dict[str, list[Sample]]:
    """Commands in turn, so that a change of the machine's load meets all of them; the first round warms up."""
    samples: dict[str, list[Sample]] = {name: [] for name in COMMANDS}
    for number in range(ROUNDS + 1):
        for name, arguments in COMMANDS.items():
            sample = _run(project, arguments)
            if number:
                samples[name].append(sample)
    return samples


def _report(samples: dict[str, list[Sample]]) -> None:
    measures = {}
    for name, values in samples.items():
        clock = [value.clock for value in values]
        processor = statistics.median(value.processor for value in values)
        measures[name] = {
            "median_s": statistics.median(clock),
            "min_s": min(clock),
            "max_s": max(clock),
            "processor_s": processor,
        }
    ratios = {
        f"{name}_vs_version": round(found["median_s"] / measures["version"]["median_s"], 2)
        for name, found in measures.items()
    }
    machine = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}
    document = {
        "machine": machine,
        "samples": {name: [asdict(value) for value in values] for name, values in samples.items()},
        "measures": measures,
        "ratios": ratios,
        "values": {"plan_s": measures["plan"]["median_s"]},
    }
    target = REPOSITORY / "build" / "bench" / "plan.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{'command':<15}{'median s':>10}{'min':>8}{'max':>8}{'ratio':>8}{'processor':>11}")
    for name, found in measures.items():
        ratio = ratios[f"{name}_vs_version"]
        seconds = f"{found['median_s']:>10.2f}{found['min_s']:>8.2f}{found['max_s']:>8.2f}"
        print(f"{name:<15}{seconds}{ratio:>8.2f}{found['processor_s']:>11.2f}")
    print(f"raw samples: {target.relative_to(REPOSITORY)}")


if __name__ == "__main__":
    sys.exit(main())
