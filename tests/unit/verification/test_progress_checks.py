"""What must move, and what may stand still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.postgres.samples import DETAILS
from tests.unit.verification.samples import RUNNING
from tests.unit.verification.samples import world as deployed_world

from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.deployment import Deployment
from outbox_kit.errors import UnreachableError
from outbox_kit.pipeline import Lock
from outbox_kit.postgres.verify_queries import Position
from outbox_kit.rules import Check, Status, judge
from outbox_kit.verification import progress_checks
from outbox_kit.verification.progress_checks import Movement, Sample
from outbox_kit.verification.snapshot import Answer, World

IDS = ["postgres.slot-moving", "kafka.heartbeat", "connect.offsets-moving", "connect.restarts"]
FIRST = Sample(Position(10, 7), 5, 20, RUNNING)
LAST = Sample(Position(11, 7), 6, 21, RUNNING)


@pytest.fixture
def world(deployed: Callable[..., Deployment], lock: Lock) -> World:
    return deployed_world(deployed(), lock)


def run(first: Sample, last: Sample, settled: Sample | None = None) -> dict[str, Check]:
    return {check.id: check for check in judge(progress_checks.RULES, Movement(first, settled or first, last, 2))}


def not_well(checks: dict[str, Check]) -> dict[str, Status]:
    return {name: check.status for name, check in checks.items() if check.status is not Status.PASS}


def test_everything_moves() -> None:
    assert list(run(FIRST, LAST)) == IDS
    assert not_well(run(FIRST, LAST)) == {}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (replace(LAST, position=Position(10, 7)), {"postgres.slot-moving": Status.FAIL}),
        (replace(LAST, heartbeat=5), {"kafka.heartbeat": Status.FAIL}),
        (replace(LAST, heartbeat=None), {"kafka.heartbeat": Status.UNKNOWN}),
        (replace(LAST, offset=20), {"connect.offsets-moving": Status.FAIL}),
        (replace(LAST, position=Position(11, 8)), {"connect.restarts": Status.WARN}),
        (replace(LAST, position=Position(11, None)), {"connect.restarts": Status.WARN}),
        (replace(LAST, status=None), {"connect.restarts": Status.WARN}),
        (replace(LAST, status=ConnectorStatus("RUNNING", ("FAILED",), ())), {"connect.restarts": Status.WARN}),
    ],
)
def test_each_is_named_alone(last: Sample, expected: dict[str, Status]) -> None:
    assert not_well(run(FIRST, last)) == expected


def test_a_connector_that_has_seen_no_transaction_yet_confirms_nothing() -> None:
    """Debezium looks for its place until the first one; heartbeats come nevertheless."""
    last = replace(LAST, position=FIRST.position, offset=FIRST.offset, seeded=True)
    assert not_well(run(FIRST, last)) == {
        "postgres.slot-moving": Status.UNKNOWN,
        "connect.offsets-moving": Status.UNKNOWN,
    }


def test_the_first_row_makes_a_new_reader_which_is_no_restart() -> None:
    settled = replace(FIRST, position=Position(10, 8))
    assert not_well(run(FIRST, replace(LAST, position=Position(12, 8)), settled)) == {}


def samples(monkeypatch: pytest.MonkeyPatch, *found: Sample) -> list[Sample]:
    """Later looks; the last one is repeated."""
    waiting = list(found)
    taken: list[Sample] = []

    def sample(_: object) -> Sample:
        taken.append(waiting.pop(0) if len(waiting) > 1 else waiting[0])
        return taken[-1]

    monkeypatch.setattr(progress_checks, "sample", sample)
    return taken


def test_it_looks_until_everything_has_moved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    position = 2**63
    half = Sample(Position(position, 7), 5, position, RUNNING)
    taken = samples(monkeypatch, half, half, replace(half, heartbeat=6))
    monkeypatch.setattr(progress_checks, "LOOK_EVERY_S", 0.001)
    assert {check.status for check in progress_checks.check(world, flown=False)} == {Status.PASS}
    assert len(taken) == 3


def test_it_gives_up_after_two_heartbeats(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    samples(monkeypatch, Sample(Position(1, 7), 5, 1, RUNNING))
    monkeypatch.setattr(progress_checks, "_patience_s", lambda _: 0.05)
    monkeypatch.setattr(progress_checks, "LOOK_EVERY_S", 0.01)
    found = {check.id: check for check in progress_checks.check(world, flown=False)}
    assert [name for name, check in found.items() if check.status is Status.FAIL] == IDS[:3]
    assert "within 0.05 s" in found["kafka.heartbeat"].expected


def test_patience_goes_by_the_live_heartbeat(world: World) -> None:
    assert progress_checks._patience_s(world) == 2 * 10 + 5


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kafka": Answer(None, UnreachableError("x"))}, "a system does not answer"),
        ({"postgres": Answer(None, UnreachableError("x"))}, "a system does not answer"),
    ],
)
def test_where_nothing_can_move_nothing_is_waited_for(world: World, changes: dict[str, object], why: str) -> None:
    found = progress_checks.check(replace(world, **changes), flown=False)  # type: ignore[arg-type]
    assert [(check.id, check.status, check.seen) for check in found] == [(name, Status.UNKNOWN, why) for name in IDS]


def test_a_slot_that_nobody_reads(world: World) -> None:
    look = world.postgres.look
    assert look is not None
    details = replace(DETAILS, slot={**(DETAILS.slot or {}), "active_pid": None})
    found = progress_checks.check(replace(world, postgres=Answer(replace(look, details=details))), flown=False)
    assert {check.seen for check in found} == {"nobody reads the slot"}


def test_a_system_that_goes_down_meanwhile(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> Sample:
        raise UnreachableError("gone")

    monkeypatch.setattr(progress_checks, "sample", fails)
    assert {(check.status, check.seen) for check in progress_checks.check(world, flown=True)} == {
        (Status.UNKNOWN, "gone")
    }
