"""Selection of cells, results of cells, and the promises that these results break."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import typer
from tests.unit.lab.drill.samples import deliveries_of, ledger_of, result_of
from typer.testing import CliRunner

from outbox_events.errors import ConfigurationError, OutboxError
from outbox_kit.results import Reporter
from outbox_lab.drill import run
from outbox_lab.drill.cell import Cell, CellResult, Load
from outbox_lab.drill.command import drill, parse_cost
from outbox_lab.drill.faults import FAULTS, NotApplicableError
from outbox_lab.drill.ledger import Outcome
from outbox_lab.drill.project import DrillProject
from outbox_lab.drill.receivers.effects import count_effects
from outbox_lab.drill.receivers.handlers import PLANTED_HANDLERS
from outbox_lab.drill.reporting.report import Cost
from outbox_lab.drill.run import (
    broken_promises,
    read_results,
    result_file,
    select_cells,
    undiscovered_mistakes,
    write_result,
)
from outbox_lab.drill.spark_job import SparkJob
from outbox_lab.drill.verdict import judge
from outbox_lab.drill.ways.catalogue import WAYS
from outbox_lab.drill.ways.planted import PLANTED_WAYS

LEDGER = ledger_of(("a", 1, Outcome.COMMITTED), ("b", 2, Outcome.COMMITTED))


def select(*ways: str, faults: tuple[str, ...] = (), repeat: int = 1) -> list[tuple[str, str, int]]:
    cells = select_cells(ways, faults, seed=1, injections=3, repeat=repeat, load=Load(), materialize=False)
    return [(cell.way.name, cell.fault.name, cell.injections) for cell in cells]


@pytest.mark.parametrize("options", ["--way dual-write-db-first", "--seconds 8 --fault none", "--receive"])
def test_a_report_refuses_the_options_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str) -> None:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(drill)
    refused = CliRunner().invoke(app, [*options.split(), "--report"])
    assert refused.exit_code == 2
    assert options.split(maxsplit=1)[0] in refused.output
    assert isinstance(CliRunner().invoke(app, ["--report", "--seed", "1"]).exception, ConfigurationError)


@pytest.mark.parametrize(
    ("values", "cost"),
    [
        ([], Cost(1, 7)),
        (["5"], Cost(5, 7)),
        (["kill-kafka=4", "2"], Cost(2, 7, {"kill-kafka": 4})),
    ],
)
def test_faults_per_year_are_given_by_kind(values: list[str], cost: Cost) -> None:
    assert parse_cost(values, 7) == cost
    assert cost.per_year("kill-kafka") == cost.by_fault.get("kill-kafka", cost.faults_per_year)


def test_unknown_kinds_and_numbers_of_faults_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="flood"):
        parse_cost(["flood=4"], 1)
    with pytest.raises(typer.BadParameter, match="kill-kafka=often"):
        parse_cost(["kill-kafka=often"], 1)


def test_planted_mistakes_run_only_if_requested() -> None:
    planted = select_cells([], [], seed=1, repeat=1, load=Load(), materialize=False, planted=True)
    assert {cell.way.name for cell in planted} == PLANTED_WAYS.keys()
    assert not {name for name, _, _ in select()} & PLANTED_WAYS.keys()
    assert [cell.strategies for cell in planted if cell.way.name == "planted-handlers"] == [tuple(PLANTED_HANDLERS)]


def test_every_fault_of_a_way_exists() -> None:
    assert {fault for way in WAYS.values() for fault in way.faults} <= FAULTS.keys()


def test_selects_the_faults_that_apply() -> None:
    assert select("cdc", faults=("none", "kill-connect", "kill-relay")) == [
        ("cdc", "none", 3),
        ("cdc", "kill-connect", 3),
    ]


def test_repeats_each_cell() -> None:
    assert select("cdc", faults=("none",), repeat=2) == [("cdc", "none", 3)] * 2


@pytest.mark.parametrize(("way", "fault"), [("pigeon", "none"), ("cdc", "flood"), ("cdc", "kill-relay")])
def test_rejects_an_empty_selection(way: str, fault: str) -> None:
    with pytest.raises(ConfigurationError):
        select(way, faults=(fault,))


def test_judges_only_what_missing_markers_cannot_explain() -> None:
    deliveries = deliveries_of("b", "a", "c")
    result = result_of("two-phase", "kill-kafka", LEDGER, deliveries, partitions_without_markers=("topic-0",))
    assert broken_promises([result]) == ["two-phase, kill-kafka: 1 unordered"]


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    project = DrillProject(tmp_path)
    [cell] = select_cells(["cdc"], ["none"], seed=5, repeat=1, load=Load(), materialize=False)
    result = result_of("cdc", "none", LEDGER, deliveries_of("a", "b"), seed=5)
    write_result(result_file(project, cell), result)
    assert read_results(project, 5) == [result]
    assert read_results(project, 6) == []


@pytest.mark.parametrize(
    ("deliveries", "changes", "broken"),
    [
        (deliveries_of("a", "b"), {}, []),
        (deliveries_of("a"), {}, ["lost", "stale"]),
        (deliveries_of("b"), {}, ["lost"]),
        (deliveries_of("a", "b"), {"recovery_s": [None]}, ["without recovery"]),
        (deliveries_of("c", "a", "b"), {}, ["phantom"]),
        (deliveries_of("a", "b", "b"), {}, ["duplicated"]),
        (deliveries_of("a", "b", "a"), {}, ["stale", "duplicated"]),
        (deliveries_of("b", "a"), {}, ["stale", "unordered"]),
        ([replace(delivery, key="b") for delivery in deliveries_of("a")], {}, ["lost", "wrong_key"]),
        (deliveries_of("a", "b"), {"latest_states_equal": False}, ["differing latest states"]),
        (deliveries_of("a", "b"), {"tables_equal": False}, ["differing table"]),
    ],
)
def test_names_each_broken_promise(deliveries: list, changes: dict, broken: list[str]) -> None:  # type: ignore[type-arg]
    result = result_of("cdc-exactly-once", "none", LEDGER, deliveries, **changes)
    assert [line.split(": 1 ")[1] for line in broken_promises([result])] == broken


def test_duplicates_break_no_promise_of_at_least_once() -> None:
    assert broken_promises([result_of("cdc", "none", LEDGER, deliveries_of("a", "b", "b"))]) == []


@pytest.mark.parametrize("way", ["polling-incrementing", "direct-database-first"])
def test_a_way_that_may_lose_events_promises_no_equal_tables(way: str) -> None:
    assert broken_promises([result_of(way, "none", LEDGER, deliveries_of("a"), tables_equal=False)]) == []


def test_a_phantom_can_be_the_last_record_of_a_way_that_may_invent_events() -> None:
    changes = {"tables_equal": False, "latest_states_equal": False}
    result = result_of("chained-with-store-kafka-first", "none", LEDGER, deliveries_of("a", "b"), **changes)
    assert broken_promises([result]) == []


def test_polling_below_the_horizon_promises_no_loss_but_no_order() -> None:
    assert len(broken_promises([result_of("polling-horizon", "none", LEDGER, deliveries_of("a"))])) == 1
    assert broken_promises([result_of("polling-horizon", "none", LEDGER, deliveries_of("b", "a"))]) == []


def test_results_without_detected_are_read(tmp_path: Path) -> None:
    """Earlier releases did not write `detected`."""
    project = DrillProject(tmp_path)
    [cell] = select_cells(["cdc"], ["none"], seed=5, repeat=1, load=Load(), materialize=False)
    path = result_file(project, cell)
    write_result(path, result_of("cdc", "none", LEDGER, deliveries_of("a"), seed=5))
    values = json.loads(path.read_text())
    del values["detected"]
    path.write_text(json.dumps(values))
    assert read_results(project, 5)[0].detected == ""


@pytest.mark.parametrize(
    ("way", "deliveries", "broken"),
    [
        ("cdc-exactly-once", deliveries_of("a", "b", "b"), []),
        ("cdc-exactly-once", deliveries_of("b"), ["lost"]),
        ("cdc-messages", deliveries_of("a"), []),
        ("cdc-messages", deliveries_of("a", "b", "c"), ["phantom"]),
    ],
)
def test_promises_differ_by_fault(way: str, deliveries: list, broken: list[str]) -> None:  # type: ignore[type-arg]
    """A repair may send rows twice, and messages of an invalidated slot are lost."""
    lines = broken_promises([result_of(way, "slot-invalidated", LEDGER, deliveries, detected="postgres.slot: none")])
    assert [line.split(": 1 ")[1] for line in lines] == broken


def test_unknown_outcomes_break_the_promise_that_nothing_is_lost() -> None:
    ledger = ledger_of(("a", 1, Outcome.UNKNOWN))
    assert len(broken_promises([result_of("two-phase", "none", ledger, [])])) == 1
    assert broken_promises([result_of("direct-database-first", "none", ledger, [])]) == []


def test_a_fault_that_no_check_detects_breaks_a_promise() -> None:
    result = result_of("cdc", "slot-invalidated", LEDGER, deliveries_of("a", "b"), detected="")
    assert len(broken_promises([result])) == 1


def test_commits_that_a_synchronous_failover_loses_break_the_promise_but_not_those_that_a_restore_undoes() -> None:
    ledger = ledger_of(("a", 1, Outcome.COMMITTED), ("b", 2, Outcome.UNDONE))
    detected = {"detected": "postgres.slot: none"}
    for fault, is_restore, broken in (("promote-standby", False, ["lost", "undone"]), ("restore-postgres", True, [])):
        verdict = judge(ledger, deliveries_of("b", "a"), is_restore=is_restore)
        result = result_of("cdc", fault, ledger, [], verdict=verdict, **detected)
        assert [line.split(": 1 ")[1] for line in broken_promises([result])] == broken


@pytest.mark.parametrize("mistake", [name for name in PLANTED_WAYS if PLANTED_WAYS[name].finds])
def test_a_planted_mistake_must_be_shown_by_its_count(mistake: str) -> None:
    finds = PLANTED_WAYS[mistake].finds
    verdict = judge(LEDGER, deliveries_of("a", "b"))
    hidden = result_of(mistake, "none", LEDGER, [], verdict=verdict)
    shown = result_of(mistake, "none", LEDGER, [], verdict=replace(verdict, **{finds: 1}))
    assert [undiscovered_mistakes([result]) != [] for result in (hidden, shown)] == [True, False]
    assert broken_promises([hidden, shown]) == []


def test_a_planted_mistake_of_a_handler_must_be_shown_by_its_count() -> None:
    effects = [
        count_effects("skips-events", LEDGER, deliveries_of(*ids), deliveries_of("a", "b")) for ids in ("a", "ab")
    ]
    results = [result_of("planted-handlers", "none", LEDGER, [], effects=(counts,)) for counts in effects]
    assert [len(undiscovered_mistakes([result])) for result in results] == [0, 1]


def test_results_of_different_commits_are_not_merged(tmp_path: Path) -> None:
    project = DrillProject(tmp_path)
    cells = select_cells(["cdc"], ["none"], seed=5, repeat=2, load=Load(), materialize=False)
    for cell, commit in zip(cells, ("abc", "def"), strict=True):
        write_result(result_file(project, cell), result_of("cdc", "none", LEDGER, [], seed=5, commit=commit))
    with pytest.raises(ConfigurationError, match="abc, def"):
        read_results(project, 5)


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[MagicMock]:
    """Return the stacks that a run starts, instead of which mocks are used."""
    started: list[MagicMock] = []

    @contextmanager
    def drill_stack(project: DrillProject, _: SparkJob, progress: Reporter) -> Iterator[MagicMock]:
        started.append(MagicMock(project=project, progress=progress))
        yield started[-1]

    monkeypatch.setattr(run, "drill_stack", drill_stack)
    return started


def run_with(
    outcomes: list[CellResult | OutboxError], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[CellResult], list[str]]:
    """Run one cell for each outcome. Return the results and the printed lines."""
    monkeypatch.setattr(Cell, "run", MagicMock(side_effect=outcomes))
    lines: list[str] = []
    count = len(outcomes)
    cells = select_cells(["cdc"], ["none"], seed=1, repeat=count, load=Load(), materialize=False)
    return run.run_cells(DrillProject(folder), cells, lines.append, resume=False), lines


def test_a_resumed_run_repeats_the_cells_of_other_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stacks: list[MagicMock]
) -> None:
    good = result_of("cdc", "none", LEDGER, deliveries_of("a", "b"))
    project = DrillProject(tmp_path)  # not a checkout, so its commit is empty
    cells = select_cells(["cdc"], ["none"], seed=1, repeat=2, load=Load(), materialize=False)
    for cell, commit in zip(cells, ("", "other"), strict=True):
        write_result(result_file(project, cell), replace(good, commit=commit))
    repeated = MagicMock(return_value=good)
    monkeypatch.setattr(Cell, "run", repeated)
    assert run.run_cells(project, cells, [].append, resume=True) == [good, good]
    assert (repeated.call_count, len(stacks)) == (1, 1)


def test_a_cell_that_is_not_applicable_has_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stacks: list[MagicMock]
) -> None:
    error = NotApplicableError("cannot simulate a full disk on this machine: no mount")
    results, lines = run_with([error], tmp_path, monkeypatch)
    assert (results, len(stacks)) == ([], 1)
    assert lines[-1].endswith(error.message)


def test_a_cell_that_damages_the_stack_does_not_affect_later_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stacks: list[MagicMock]
) -> None:
    good = result_of("cdc", "none", LEDGER, deliveries_of("a", "b"))
    unmarked = result_of("cdc", "none", LEDGER, [], partitions_without_markers=("connect-configs-0",))
    results, lines = run_with([good, unmarked, good, OutboxError("not ready"), good], tmp_path, monkeypatch)
    assert (len(results), len(stacks)) == (4, 3)
    assert [line for line in lines if line.startswith("cell ")][-1].startswith("cell 5 of 5")
