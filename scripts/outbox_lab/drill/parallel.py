"""Run the cells of several ways of sending at the same time, on one stack in each of several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from outbox_events.errors import OutboxError
from outbox_kit.results import Reporter
from outbox_kit.stack import Options
from outbox_kit.stack.services.java import FAST_START_OPTIONS
from outbox_lab.drill.cell import CellSettings
from outbox_lab.drill.project import DrillProject
from outbox_lab.drill.spark_job import SPAWN

RunCells = Callable[[DrillProject, Sequence[CellSettings], Reporter], None]


def run_on_stacks(
    project: DrillProject, cells: Iterable[CellSettings], progress: Reporter, run: RunCells, *, stacks: int
) -> None:
    """Call `run` in up to `stacks` processes. The cells of each way run on the same stack.

    The servers run without the JVM's optimizing compiler, because the stacks share the processors.
    """
    options = Options(jvm_options=FAST_START_OPTIONS)
    processes = [
        SPAWN.Process(
            target=_run,
            args=(replace(project, stack_name=f"stack-{number}", stack_options=options), group, progress, run),
        )
        for number, group in enumerate(divide(cells, stacks), 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def divide(cells: Iterable[CellSettings], count: int) -> list[list[CellSettings]]:
    """Divide the ways into at most `count` groups with similar numbers of cells. Return the cells of each group."""
    ways: dict[str, list[CellSettings]] = {}
    for cell in cells:
        ways.setdefault(cell.way_name, []).append(cell)
    groups: list[list[CellSettings]] = [[] for _ in range(count)]
    for of_way in sorted(ways.values(), key=len, reverse=True):
        min(groups, key=len).extend(of_way)
    return [group for group in groups if group]


def _run(project: DrillProject, cells: list[CellSettings], progress: Reporter, run: RunCells) -> None:
    report = partial(_report_of, project.stack_name, progress)
    with suppress(KeyboardInterrupt):  # Ctrl-C also interrupts the main process
        try:
            run(project, cells, report)
        except OutboxError as error:
            report(f"no result for any cell: {error.message}")


def _report_of(stack: str, progress: Reporter, text: str) -> None:
    progress(f"{stack}: {text}")
