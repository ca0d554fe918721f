"""Ways of sending that run at the same time on several stacks, and the cells without a fault."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from tests.unit.lab.drill.samples import deliveries_of, ledger_of, result_of

from outbox_kit.results import Reporter
from outbox_kit.stack.errors import StackError
from outbox_lab.drill import parallel, run
from outbox_lab.drill.cell import Cell, CellResult, CellSettings, Load
from outbox_lab.drill.ledger import Outcome
from outbox_lab.drill.parallel import divide
from outbox_lab.drill.project import DrillProject
from outbox_lab.drill.run import run_cells, select_cells
from outbox_lab.drill.spark_job import SparkJob
from outbox_lab.drill.ways.catalogue import WAYS

CELLS = select_cells(
    ["relay", "cdc"],
    ["none", "kill-connect", "kill-kafka", "kill-postgres"],
    seed=1,
    repeat=1,
    load=Load(),
    materialize=False,
)


@pytest.fixture
def cells_by_stack(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return the names of the cells that ran on each stack. Threads replace the processes, and mocks the stacks."""
    ran: dict[str, list[str]] = {}

    @contextmanager
    def drill_stack(project: DrillProject, _: SparkJob, progress: Reporter) -> Iterator[MagicMock]:
        if project.stack_name == "stack-2":
            raise StackError("the port is in use", "")
        yield MagicMock(project=project, progress=progress)

    def run_cell(cell: Cell) -> CellResult:
        settings: CellSettings = cell._settings
        ran.setdefault(cell._drill.project.stack_name, []).append(settings.name)
        ledger = ledger_of(("a", 1, Outcome.COMMITTED))
        return result_of(settings.way_name, settings.fault.name, ledger, deliveries_of("a"))

    monkeypatch.setattr(parallel, "SPAWN", SimpleNamespace(Process=Thread))
    monkeypatch.setattr(run, "drill_stack", drill_stack)
    monkeypatch.setattr(Cell, "run", run_cell)
    return ran


def test_cells_without_a_fault_run_alone_before_the_others(
    tmp_path: Path, cells_by_stack: dict[str, list[str]]
) -> None:
    cells = [cell for cell in CELLS if cell.way_name == "cdc" or cell.fault.is_none]
    results = run_cells(DrillProject(tmp_path), cells, [].append, resume=False, stacks=2)
    assert [*cells_by_stack.items()] == [
        ("", ["relay_none_1", "cdc_none_1"]),
        ("stack-1", ["cdc_kill_connect_1", "cdc_kill_kafka_1", "cdc_kill_postgres_1"]),
    ]
    assert len(results) == len(cells)


def test_a_stack_that_does_not_start_affects_only_its_ways(
    tmp_path: Path, cells_by_stack: dict[str, list[str]]
) -> None:
    lines: list[str] = []
    results = run_cells(DrillProject(tmp_path), CELLS, lines.append, resume=False, stacks=2)
    assert {result.way for result in results if result.fault != "none"} == {"cdc"}
    assert cells_by_stack.keys() == {"", "stack-1"}
    assert "stack-2: no result for any cell: the port is in use" in lines


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_the_cells_of_a_way_run_on_one_stack_and_all_stacks_have_a_similar_number(count: int) -> None:
    cells = select_cells([], [], seed=1, repeat=1, load=Load(), materialize=False)
    groups = divide(cells, count)
    assert sorted(cell.name for group in groups for cell in group) == sorted(cell.name for cell in cells)
    ways = [{cell.way_name for cell in group} for group in groups]
    assert sum(map(len, ways)) == len(WAYS)
    assert max(map(len, groups)) - min(map(len, groups)) <= max(len(way.faults) for way in WAYS.values())
    assert len(groups) == min(count, len(WAYS))


@pytest.mark.parametrize("planted", [False, True])
def test_the_cells_of_every_way_can_be_passed_to_a_process(planted: bool) -> None:
    cells = select_cells([], [], seed=1, repeat=1, load=Load(), materialize=False, planted=planted)
    assert pickle.loads(pickle.dumps(cells)) == cells  # noqa: S301 - the test's own data
