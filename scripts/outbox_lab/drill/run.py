"""Run the cells of a drill, and write each result to a file, so that a run can be resumed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from outbox_events.errors import ConfigurationError, OutboxError
from outbox_events.text import plural
from outbox_kit.results import Reporter
from outbox_kit.stack.errors import StackError
from outbox_lab.drill.cell import Cell, CellResult, CellSettings, Load
from outbox_lab.drill.faults import FAULTS, NotApplicableError, fault_named
from outbox_lab.drill.parallel import run_on_stacks
from outbox_lab.drill.project import DrillProject
from outbox_lab.drill.receivers.effects import EFFECT_COUNTS
from outbox_lab.drill.receivers.handlers import PLANTED_HANDLERS
from outbox_lab.drill.spark_job import SparkJob
from outbox_lab.drill.stack import DrillStack, drill_stack
from outbox_lab.drill.verdict import COUNTS, OTHER_COUNTS
from outbox_lab.drill.ways.catalogue import ALL_WAYS, WAYS, way_named
from outbox_lab.drill.ways.planted import PLANTED_WAYS

JUDGED_ALWAYS = frozenset({"wrong", "wrong_key", "misplaced", "unordered", "undetected"})
"""Counts that missing transaction markers cannot explain."""


def select_cells(
    ways: Sequence[str],
    faults: Sequence[str],
    *,
    seed: int,
    repeat: int,
    load: Load,
    materialize: bool,
    receive: bool = False,
    injections: int | None = None,
    planted: bool = False,
) -> list[CellSettings]:
    """Return the cells for these ways and faults. If a list is empty, use all ways or all faults.

    With `planted`, all ways are those with a planted mistake.

    Combinations in which the fault does not apply to the way are left out. If `injections` is None, each fault has its
    own number of injections. Raises ConfigurationError if a name is unknown or no cell remains.
    """
    selected_faults = [fault_named(name) for name in faults] or list(FAULTS.values())
    cells = [
        CellSettings(way.name, fault, seed, repetition, injections or fault.times, load, materialize, receive)
        for way in ([way_named(name) for name in ways] or (PLANTED_WAYS if planted else WAYS).values())
        for fault in selected_faults
        if fault.name in way.faults
        for repetition in range(1, repeat + 1)
    ]
    if not cells:
        raise ConfigurationError(
            "no selected fault applies to a selected way", "run `python -m outbox_lab.drill --list`"
        )
    return cells


def result_file(project: DrillProject, cell: CellSettings) -> Path:
    """Return the path of a cell's result file."""
    name = f"{cell.way_name}--{cell.fault.name}--{cell.repetition}.json"
    return project.results / f"seed-{cell.seed}" / name


def read_results(project: DrillProject, seed: int | None) -> list[CellResult]:
    """Return the results of a seed, or of all seeds if `seed` is None, in the order of ALL_WAYS and FAULTS.

    Raises ConfigurationError if they were measured with different commits.
    """
    files = project.results.glob(f"seed-{'*' if seed is None else seed}/*.json")
    results = [msgspec.json.decode(file.read_bytes(), type=CellResult) for file in files]
    ways, faults = list(ALL_WAYS), list(FAULTS)
    known = [result for result in results if result.way in ways and result.fault in faults]
    commits = sorted({result.commit or "unknown" for result in known})
    if len(commits) > 1:
        message = f"the results were measured with different commits: {', '.join(commits)}"
        raise ConfigurationError(message, "report one seed with --seed, or delete results and run with --resume")
    return sorted(known, key=lambda item: (ways.index(item.way), faults.index(item.fault), item.repetition))


def run_cells(
    project: DrillProject, cells: Sequence[CellSettings], progress: Reporter, *, resume: bool, stacks: int = 1
) -> list[CellResult]:
    """Run the cells, and return the results. With `resume`, skip cells that have a result of the same commit.

    With several stacks, each way runs on one of them. The cells without a fault run alone before the other cells,
    because their delays are the baseline.
    """
    pending = [cell for cell in cells if not (resume and _has_result(project, cell))]
    for cell in pending:  # otherwise a cell that fails in this run would keep the result of an earlier run
        result_file(project, cell).unlink(missing_ok=True)
    if stacks == 1:
        run_on_one_stack(project, pending, progress)
    else:
        run_on_one_stack(project, [cell for cell in pending if cell.fault.is_none], progress)
        disturbed = [cell for cell in pending if not cell.fault.is_none]
        run_on_stacks(project, disturbed, progress, run_on_one_stack, stacks=stacks)
    return [_read(result_file(project, cell)) for cell in cells if result_file(project, cell).exists()]


def run_on_one_stack(project: DrillProject, cells: Sequence[CellSettings], progress: Reporter) -> None:
    """Run the cells one after the other. Start a new stack after a cell that damaged the stack.

    Raises StackError if the first stack does not start.
    """
    remaining, durations = iter(enumerate(cells, 1)), list[float]()
    with SparkJob(project) as spark_job:
        while len(durations) < len(cells):
            try:
                with drill_stack(project, spark_job, progress) as drill:
                    _run_until_stack_is_damaged(drill, remaining, len(cells), durations)
            except StackError as error:
                if not durations:
                    raise
                progress(f"no result for the remaining cells: {error.message}")
                break


def _has_result(project: DrillProject, cell: CellSettings) -> bool:
    path = result_file(project, cell)
    return path.exists() and _read(path).commit == project.commit


def _run_until_stack_is_damaged(
    drill: DrillStack, cells: Iterator[tuple[int, CellSettings]], total: int, durations: list[float]
) -> None:
    """Run cells, and add the duration of each. Return after a cell that can affect later cells on the same stack.

    After a skipped transaction marker, Connect may be unable to read its own topics to their end. After a cell without
    a result, the state of the stack is unknown.
    """
    for number, cell in cells:
        left = _time_left(durations, total - number + 1)
        drill.progress(f"cell {number} of {total}: {cell.way_name}, {cell.fault.name}{left}")
        started = time.monotonic()
        try:
            result = Cell(drill, cell).run()
        except NotApplicableError as error:
            drill.progress(f"  no result: {error.message}")
            continue
        except OutboxError as error:  # a cell without a result fails the run but not the other cells
            drill.progress(f"  no result: {error.message}")
            return
        finally:
            durations.append(time.monotonic() - started)
        write_result(result_file(drill.project, cell), result)
        for line in (summary(result), *effect_lines(result)):
            drill.progress(line)
        if result.partitions_without_markers:
            return


def _time_left(durations: Sequence[float], cells: int) -> str:
    if not durations:
        return ""
    return f", about {sum(durations) / len(durations) * cells / 60:.0f} min left"


def summary(result: CellResult) -> str:
    """Return one line of text with the counts of a result."""
    verdict = result.verdict
    text = ", ".join(f"{getattr(verdict, name)} {name}" for name in (*COUNTS, *OTHER_COUNTS))
    tables = {None: "", True: ", tables equal", False: ", TABLES DIFFER"}[result.tables_equal]
    detected = f", detected ({result.detected})" if result.detected else ""
    return f"  {verdict.committed} committed, {verdict.delivered} delivered: {text}{tables}{detected}{_note(result)}"


def effect_lines(result: CellResult) -> list[str]:
    """Return one line for each strategy, with the counts of its effects."""
    kills = f"{plural(result.receiver_kills, 'kill')}, {plural(result.receiver_early_kills, 'early kill')}"
    disturbances = f"{kills} and {plural(result.receiver_pauses, 'pause')}"
    return [
        f"  {counts.strategy}: {counts.effects} effects under {disturbances}: "
        + ", ".join(f"{getattr(counts, name)} {name}" for name in EFFECT_COUNTS)
        for counts in result.effects
    ]


def _note(result: CellResult) -> str:
    return f" ({result.note})" if result.note else ""


def broken_promises(results: Iterable[CellResult]) -> list[str]:
    """Return one line for each broken promise in these results.

    If the broker did not write transaction markers, only the counts in JUDGED_ALWAYS are judged. Ways with a planted
    mistake are not judged.
    """
    return [
        f"{result.way}, {result.fault}: {count} {name}"
        for result in results
        if result.way not in PLANTED_WAYS
        for name, count in _broken(result).items()
        if count > 0 and (name in JUDGED_ALWAYS or not result.partitions_without_markers)
    ]


def undiscovered_mistakes(results: Iterable[CellResult]) -> list[str]:
    """Return one line for each planted mistake that its count does not show."""
    return [
        f"the planted mistake {mistake} was not found: 0 {name}"
        for result in results
        for mistake, name, count in _planted(result)
        if count == 0
    ]


def _planted(result: CellResult) -> list[tuple[str, str, int]]:
    """Return the planted mistakes of a cell, each with the name and the value of the count that must show it."""
    finds = ALL_WAYS[result.way].finds
    of_sender = [(result.way, finds, getattr(result.verdict, finds))] if finds else []
    handlers = [counts for counts in result.effects if counts.strategy in PLANTED_HANDLERS]
    names = [(counts, PLANTED_HANDLERS[counts.strategy].finds) for counts in handlers]
    return of_sender + [(counts.strategy, name, counts.broken.get(name, 0)) for counts, name in names]


def _broken(result: CellResult) -> dict[str, int]:
    fault, verdict = fault_named(result.fault), result.verdict
    way = ALL_WAYS[result.way]
    promise = way.promise_under(fault)
    # A phantom can be the last record of its aggregate.
    is_complete = promise.no_loss and promise.in_order and way.promise.no_phantom
    return {
        "lost": verdict.lost if promise.no_loss else 0,
        "phantom": verdict.phantom if promise.no_phantom else 0,
        "stale": verdict.stale if is_complete else 0,
        "wrong": verdict.wrong,
        "wrong_key": verdict.wrong_key,
        "misplaced": verdict.misplaced,
        "undetected": int(fault.needs_repair and not result.detected),
        "undone": 0 if fault.restores_database else verdict.undone,
        "unresolved": verdict.unresolved if promise.no_loss else 0,
        "without recovery": result.recovery_s.count(None) if promise.no_loss else 0,
        "duplicated": verdict.duplicated if promise.no_duplicates else 0,
        "unordered": verdict.unordered if promise.in_order else 0,
        **{
            f"{name} effects with {counts.strategy}": count
            for counts in result.effects
            for name, count in counts.broken.items()
        },
        "differing table": int(is_complete and result.tables_equal is False),
        "differing latest states": int(is_complete and result.latest_states_equal is False),
    }


def _read(path: Path) -> CellResult:
    return msgspec.json.decode(path.read_bytes(), type=CellResult)


def write_result(path: Path, result: CellResult) -> None:
    """Write a result file. The file never exists with incomplete content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    temporary.replace(path)
