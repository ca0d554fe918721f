"""The newest outbox rows: proofs of delivery, rows that are not compared, and lost rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.fake_postgres import FakePostgres
from tests.unit.fake_topic import FakeTopic, Record
from tests.unit.verification.samples import live_state

from outbox_events.errors import RejectedError
from outbox_kit.dead_letters.dead_letter_topic import DeadLetterTopic
from outbox_kit.deployment import Deployment
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.results import silent
from outbox_kit.results.checks import Check, Status
from outbox_kit.verification import recent_rows
from outbox_kit.verification.live_state import LiveState, ReadResult
from outbox_kit.verification.recent_rows import RecentRows

SEQUENCE = f"0001_{0:016x}-{1:016x}"
TIME = 1000.0


def row(*event_ids: str, key: str = "k", aggregate_type: str = "book", deleted: bool = False) -> dict[str, Any]:
    """Return a row of recent_events() that is also a row of latest_events()."""
    ids = list(event_ids or ("new",))
    return {"aggregate_type": aggregate_type, "key": key, "event_ids": ids, "seconds": TIME} | {
        "deleted": deleted,
        "created_at": "2026-11-20",
    }


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    """The topic of books has an older state."""
    made = FakeTopic(monkeypatch)
    made.append(Record(b"k", b"x", SEQUENCE, "old"))
    return made


@pytest.fixture
def live(deployed: Callable[..., Deployment], lock: Lock, monkeypatch: pytest.MonkeyPatch) -> LiveState:
    """The connector runs. The slot has confirmed all rows."""
    database = FakePostgres()
    monkeypatch.setattr("psycopg.connect", database.connect)
    monkeypatch.setattr(postgres_client, "read_insert_position", lambda _: 0)
    monkeypatch.setattr(DeadLetterTopic, "read", lambda *_, **__: [])
    monkeypatch.setattr(recent_rows, "POLL_INTERVAL_S", 0)
    monkeypatch.setattr(recent_rows, "timeout_s", lambda _: 0.05)
    return live_state(deployed(), lock)


@pytest.fixture
def check(live: LiveState, topic: FakeTopic, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Check]:
    """Return a function that compares rows. `newest` are all rows of the suspects, by default the same rows."""

    def run(*rows: dict[str, Any], newest: list[dict[str, Any]] | None = None, others: tuple[Check, ...] = ()) -> Check:
        def latest_events(*_: object, keys: list[str], **__: object) -> list[dict[str, Any]]:
            return [entry for entry in (rows if newest is None else newest) if entry["key"] in keys]

        monkeypatch.setattr(recent_rows, "latest_events", latest_events)
        recent = RecentRows(list(rows), {"book": topic.latest_records(since=0, event_ids=set())})
        recent.read_topics()
        [actual] = recent_rows.check(live, ReadResult(recent), others, silent)
        return actual

    return run


def test_counts_the_compared_rows(check: Callable[..., Check]) -> None:
    actual = check(row("old"), row("old", "newer", key="l"))
    assert (actual.status, actual.seen) == (Status.PASS, "2 of 2 rows older than 60 s compared (author 0, book 2)")
    assert check().seen == "0 of 0 rows older than 60 s compared (author 0, book 0)"


def test_names_lost_rows(check: Callable[..., Check]) -> None:
    actual = check(row(), row(key="l"), row("old", key="m"))
    assert actual.status is Status.FAIL
    assert actual.seen.startswith("2 lost rows: book k (stale), book l (missing); the slot has confirmed them")
    assert actual.seen.endswith("3 of 3 rows older than 60 s compared (author 0, book 3)")


@pytest.mark.parametrize("command", ["outbox recover", "outbox stuck --resend", "outbox backfill --restart book"])
def test_refers_to_a_remedy_that_sends_the_rows(check: Callable[..., Check], command: str) -> None:
    others = [
        Check(name, Status.FAIL, "", "", remedy) for name, remedy in (("a", "`outbox apply`"), ("b", f"`{command}`"))
    ]
    assert check(row(), others=tuple(others)).remedy.startswith("see b: its remedy can also send these rows")


def test_records_behind_an_open_transaction_are_not_lost(check: Callable[..., Check]) -> None:
    """Consumers do not see these records yet."""
    actual = check(row(), others=(Check("kafka.open-transactions", Status.FAIL, "", ""),))
    assert (actual.status, "kafka.open-transactions" in actual.seen) == (Status.UNKNOWN, True)


def test_rows_outside_of_the_last_pages_can_be_newer(check: Callable[..., Check]) -> None:
    """The record of the row that is in the last pages was removed by compaction."""
    assert check(row("compacted"), newest=[row("old")]).status is Status.PASS


def test_a_deleted_aggregate_needs_no_record(check: Callable[..., Check]) -> None:
    assert check(row(key="l", deleted=True)).status is Status.PASS


def test_a_dead_letter_is_a_proof(check: Callable[..., Check], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows, "first_versions", lambda _: {"new": None})
    assert check(row()).status is Status.PASS


def test_waits_for_records(check: Callable[..., Check], topic: FakeTopic) -> None:
    topic.batches = [[Record(b"k", b"y", SEQUENCE, "new")]]
    assert check(row()).status is Status.PASS


def test_reads_the_entire_topic_if_created_at_is_later_than_the_record(
    check: Callable[..., Check], topic: FakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.append(Record(b"k", b"y", SEQUENCE, "new"))
    monkeypatch.setattr(topic, "offsets_at", lambda *_: {0: -1})
    assert check(row()).status is Status.PASS


def test_rows_that_the_slot_has_not_confirmed_are_not_lost(
    check: Callable[..., Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_client, "read_insert_position", lambda _: 2**62)
    actual = check(row(), row("old", key="l"))
    assert actual.status is Status.UNKNOWN
    assert actual.seen == "1 of 2 rows older than 60 s compared (author 0, book 1); the slot has not confirmed 1"


def test_rows_without_all_records_are_not_compared(
    check: Callable[..., Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no topic for authors, and reading the topic of books exceeds the time limit."""
    assert check(row(aggregate_type="author")).seen.startswith("0 of 1 row older than 60 s compared (author 0, book 0)")

    def read_topics(recent: RecentRows) -> None:
        recent.is_complete = False

    monkeypatch.setattr(RecentRows, "read_topics", read_topics)
    actual = check(row())
    assert (actual.status, actual.seen[:46]) == (
        Status.PASS,
        "0 of 1 row older than 60 s compared (author 0, book 0); 1 have"[:46],
    )


def test_the_time_limit_leaves_the_read_incomplete(topic: FakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_rows, "MAX_READ_S", 0.0)
    recent = RecentRows([row()], {"book": topic.latest_records(since=0, event_ids=set())})
    recent.read_topics()
    assert not recent.is_complete


def test_reports_an_error_with_its_hint(live: LiveState) -> None:
    error = RejectedError("permission denied for table outbox_event", "run `grant select`")
    [actual] = recent_rows.check(live, ReadResult(None, error), (), silent)
    assert (actual.status, actual.seen, actual.remedy) == (Status.UNKNOWN, error.message, error.hint)


def test_messages_are_not_compared(live: LiveState) -> None:
    source = live.deployment.pipeline.source.model_copy(update={"message_prefix": "outbox"})
    pipeline = live.deployment.pipeline.model_copy(update={"source": source})
    live = replace(live, deployment=replace(live.deployment, pipeline=pipeline))
    [actual] = recent_rows.check(live, recent_rows.read(live), (), silent)
    assert actual.status is Status.UNKNOWN
