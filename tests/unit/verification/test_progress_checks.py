"""Checks that the slot, the offset and the heartbeat advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.postgres.samples import SLOT
from tests.unit.verification.samples import RUNNING, live_state, with_error

from outbox_events.errors import UnreachableError
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Lock
from outbox_kit.postgres.replication_slot import Slot
from outbox_kit.results.checks import Check, Status, evaluate
from outbox_kit.verification import progress_checks
from outbox_kit.verification.live_state import LiveState, ReadResult
from outbox_kit.verification.progress_checks import Sample, Samples

IDS = [
    "postgres.slot-moving",
    "kafka.heartbeat",
    "connect.offsets-moving",
    "kafka.open-transactions",
    "connect.restarts",
]


def slot_at(confirmed_flush: int, active_pid: int | None = 7) -> Slot:
    return replace(SLOT, confirmed_flush=confirmed_flush, active_pid=active_pid)


FIRST = Sample(slot_at(10, 7), 5, 20, RUNNING)
LAST = Sample(slot_at(11, 7), 6, 21, RUNNING)


@pytest.fixture
def live(deployed: Callable[..., Deployment], lock: Lock) -> LiveState:
    return live_state(deployed(), lock)


def run(first: Sample, last: Sample, after_canary: Sample | None = None) -> dict[str, Check]:
    return {
        check.id: check for check in evaluate(progress_checks.RULES, Samples(first, after_canary or first, last, 2))
    }


def not_passed(checks: dict[str, Check]) -> dict[str, Status]:
    return {name: check.status for name, check in checks.items() if check.status is not Status.PASS}


def test_passes_when_everything_advances() -> None:
    assert list(run(FIRST, LAST)) == IDS
    assert not_passed(run(FIRST, LAST)) == {}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (replace(LAST, slot=slot_at(10, 7)), {"postgres.slot-moving": Status.FAIL}),
        (replace(LAST, heartbeat_offset=5), {"kafka.heartbeat": Status.FAIL}),
        (replace(LAST, heartbeat_offset=None), {"kafka.heartbeat": Status.UNKNOWN}),
        (replace(LAST, offset_lsn=20), {"connect.offsets-moving": Status.FAIL}),
        (replace(LAST, slot=slot_at(11, 8)), {"connect.restarts": Status.WARN}),
        (replace(LAST, slot=slot_at(11, None)), {"connect.restarts": Status.WARN}),
        (replace(LAST, status=None), {"connect.restarts": Status.WARN}),
        (replace(LAST, status=ConnectorStatus("RUNNING", ("FAILED",), ())), {"connect.restarts": Status.WARN}),
    ],
)
def test_each_fault_is_reported_alone(last: Sample, expected: dict[str, Status]) -> None:
    assert not_passed(run(FIRST, last)) == expected


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (LAST, {"kafka.open-transactions": Status.FAIL}),
        # The open transaction may be the connector's own transaction.
        (
            replace(LAST, offset_lsn=20),
            {"kafka.open-transactions": Status.UNKNOWN, "connect.offsets-moving": Status.FAIL},
        ),
    ],
)
def test_a_transaction_outlives_the_progress_of_the_connector(last: Sample, expected: dict[str, Status]) -> None:
    samples = Samples(FIRST, FIRST, last, 2, {("library.book", 3): 41}, "k:9092")
    checks = {check.id: check for check in evaluate(progress_checks.RULES, samples)}
    assert not_passed(checks) == expected
    if expected["kafka.open-transactions"] is Status.FAIL:
        command = "kafka-transactions --bootstrap-server k:9092 abort --topic library.book --partition 3"
        assert f"`{command} --start-offset 41`" in checks["kafka.open-transactions"].remedy


def test_connector_without_transactions_confirms_nothing() -> None:
    """Debezium searches the WAL for the first transaction. Heartbeats arrive nevertheless."""
    last = replace(LAST, slot=FIRST.slot, offset_lsn=FIRST.offset_lsn, is_seeded=True)
    assert not_passed(run(FIRST, last)) == {
        "postgres.slot-moving": Status.UNKNOWN,
        "connect.offsets-moving": Status.UNKNOWN,
    }


def test_first_row_is_not_a_restart() -> None:
    after_canary = replace(FIRST, slot=slot_at(10, 8))
    assert not_passed(run(FIRST, replace(LAST, slot=slot_at(12, 8)), after_canary)) == {}


def replace_sample(monkeypatch: pytest.MonkeyPatch, *values: Sample) -> list[Sample]:
    """Replace `sample` with a function that returns these values and repeats the last value."""
    remaining = list(values)
    samples: list[Sample] = []

    def sample(_: object, **__: object) -> Sample:
        samples.append(remaining.pop(0) if len(remaining) > 1 else remaining[0])
        return samples[-1]

    monkeypatch.setattr(progress_checks, "sample", sample)
    return samples


def test_polls_until_everything_has_advanced(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    position = 2**63
    unchanged = Sample(slot_at(position, 7), 5, position, RUNNING)
    samples = replace_sample(monkeypatch, unchanged, unchanged, replace(unchanged, heartbeat_offset=6))
    monkeypatch.setattr(progress_checks, "POLL_S", 0.001)
    assert {check.status for check in progress_checks.check(live, canary_sent=False)} == {Status.PASS}
    assert len(samples) == 3


def test_offsets_that_cannot_be_read_do_not_prevent_the_other_checks(
    live: LiveState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets are not requested again, because each request may wait until its time limit."""
    requested: list[bool] = []

    def sample(_: object, *, with_offsets: bool) -> Sample:
        requested.append(with_offsets)
        return Sample(slot_at(2**63), 6, None, RUNNING)

    monkeypatch.setattr(progress_checks, "sample", sample)
    actual = progress_checks.check(with_error(live, "offsets"), canary_sent=True)
    assert not_passed({check.id: check for check in actual}) == {
        "connect.offsets-moving": Status.UNKNOWN,
    }
    assert not any(requested)


def test_a_connector_that_cannot_be_read_is_not_called_stopped(live: LiveState) -> None:
    actual = progress_checks.check(with_error(live, "connectors"), canary_sent=False)
    assert {check.seen for check in actual} == {"the state of a system could not be read"}


def test_fails_after_two_heartbeats(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_sample(monkeypatch, Sample(slot_at(1, 7), 5, 1, RUNNING))
    monkeypatch.setattr(progress_checks, "timeout_s", lambda _: 0.05)
    monkeypatch.setattr(progress_checks, "POLL_S", 0.01)
    actual = {check.id: check for check in progress_checks.check(live, canary_sent=False)}
    assert [name for name, check in actual.items() if check.status is Status.FAIL] == IDS[:3]
    assert "within 0.05 s" in actual["kafka.heartbeat"].expected


def test_the_timeout_follows_the_live_heartbeat(live: LiveState) -> None:
    assert progress_checks.timeout_s(live) == 2 * 10 + 5


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kafka": ReadResult(None, UnreachableError("x"))}, "the state of a system could not be read"),
        ({"postgres": ReadResult(None, UnreachableError("x"))}, "the state of a system could not be read"),
    ],
)
def test_does_not_wait_where_no_progress_is_possible(live: LiveState, changes: dict[str, object], reason: str) -> None:
    actual = progress_checks.check(replace(live, **changes), canary_sent=False)  # type: ignore[arg-type]
    assert [(check.id, check.status, check.seen) for check in actual] == [
        (name, Status.UNKNOWN, reason) for name in IDS
    ]


def test_reports_a_slot_that_is_not_active(live: LiveState) -> None:
    state = live.postgres.value
    assert state is not None
    actual = replace(state.actual, slot=replace(SLOT, active_pid=None))
    result = progress_checks.check(replace(live, postgres=ReadResult(replace(state, actual=actual))), canary_sent=False)
    assert {check.seen for check in result} == {"the slot is not active"}


def test_reports_a_system_that_becomes_unreachable(live: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object, **__: object) -> Sample:
        raise UnreachableError("no response")

    monkeypatch.setattr(progress_checks, "sample", fails)
    assert {(check.status, check.seen) for check in progress_checks.check(live, canary_sent=True)} == {
        (Status.UNKNOWN, "no response")
    }
