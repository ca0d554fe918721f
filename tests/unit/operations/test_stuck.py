"""Stuck aggregates: which records confirm the latest state, and comparison with the business table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from outbox_kit.deployment import Deployment
from outbox_kit.errors import RefusedError
from outbox_kit.kafka.client import Bounds, KafkaClient
from outbox_kit.operations import stuck
from outbox_kit.operations.stuck import LatestRecord, LatestRecords, StuckAggregate, unconfirmed_aggregates
from outbox_kit.pipeline import Backfill
from outbox_kit.progress import silent

Deployed = Callable[..., Deployment]
COMMITTED_AT = datetime(2026, 11, 20, 18, 31, 38, 123456, tzinfo=UTC)
EARLIER, SAME, LATER = "2026-11-20T18:31:38.123455Z", "2026-11-20T18:31:38.123456Z", "2026-11-20T18:31:39.000000Z"


def row(key: str = "k", *events: str, deleted: bool = False) -> dict[str, Any]:
    return {"key": key, "created_at": COMMITTED_AT, "event_ids": list(events or ("new",)), "deleted": deleted}


def record(event_id: str = "old", event_time: str = EARLIER, *, has_state: bool = True) -> LatestRecord:
    return LatestRecord("0001_1", event_id, event_time, has_state)


@pytest.mark.parametrize(
    ("rows", "latest", "kinds"),
    [
        ([row()], {}, ["missing"]),
        ([row()], {"other": record("new")}, ["missing"]),
        ([row()], {"k": record("new")}, []),
        ([row("k", "first", "second")], {"k": record("second")}, []),
        ([row()], {"k": record("old", EARLIER)}, ["stale"]),
        ([row()], {"k": record("old", SAME)}, []),
        ([row()], {"k": record("old", LATER)}, []),
        ([row()], {"k": record("old", "")}, ["stale"]),
        ([row()], {"k": record("old", "yesterday")}, ["stale"]),
        ([row()], {"k": record("old", "2027-11-20T18:31:39")}, ["stale"]),
        ([row(deleted=True)], {}, []),
        ([row(deleted=True)], {"k": record("old")}, ["stale"]),
        ([row(deleted=True)], {"k": record("new", has_state=False)}, []),
        ([row("a"), row("b"), row("c")], {"b": record("new")}, ["missing", "missing"]),
    ],
    ids=[
        "no record",
        "another key's record",
        "its own event",
        "an event of the same transaction",
        "an older event",
        "an event of the same time",
        "a later event",
        "no time",
        "a time that cannot be read",
        "a time without a zone",
        "deleted, and nothing on the topic: compaction removes tombstones",
        "deleted, and an old state on the topic",
        "deleted, and its tombstone",
        "several",
    ],
)
def test_confirmation(rows: list[dict[str, Any]], latest: dict[str, LatestRecord], kinds: list[str]) -> None:
    assert [entry.kind for entry in unconfirmed_aggregates("book", rows, latest)] == kinds


def test_lists_stuck_aggregates() -> None:
    assert unconfirmed_aggregates("book", [row()], {}) == [
        StuckAggregate("book", "k", "missing", "new", COMMITTED_AT.isoformat())
    ]


class _Record:
    """A record with the methods of a consumer's message."""

    def __init__(self, key: bytes | None, value: bytes | None, sequence: str, event: str) -> None:
        self._key, self._value = key, value
        self._headers = [("source_sequence", sequence.encode()), ("event_id", event.encode()), ("event_time", b"t")]

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch, deployed: Deployed) -> Callable[[list[list[_Record]]], LatestRecords]:
    """Return a function that creates a topic of one partition, to which each read adds the next batch."""

    def set_up(batches: list[list[_Record]]) -> LatestRecords:
        end_offsets = iter([sum(len(batch) for batch in batches[: number + 1]) for number in range(len(batches))])
        remaining = iter(batches)
        starts: list[int] = []

        def read_records(
            _: object, __: str, at: dict[int, int], handle: Callable[[_Record], None], **___: object
        ) -> None:
            starts.extend(at.values())
            for actual in next(remaining):
                handle(actual)

        monkeypatch.setattr(KafkaClient, "bounds", lambda *_: {0: Bounds(0, next(end_offsets))})
        monkeypatch.setattr(stuck, "read_records", read_records)
        state = LatestRecords(deployed(), "library.book")
        state.starts = starts  # type: ignore[attr-defined]
        return state

    return set_up


def test_uses_the_latest_record_of_a_key(topic: Callable[[list[list[_Record]]], LatestRecords]) -> None:
    """After partitions were added, a key can be in two of them. source_sequence orders its records."""
    state = topic(
        [
            [
                _Record(b"a", b"x", "0001_2", "newer"),
                _Record(b"a", b"x", "0001_1", "older"),
                _Record(b"b", b"x", "0001_1", "first"),
                _Record(b"b", None, "0001_1", "same sequence, later offset"),
                _Record(None, b"x", "0001_1", "no key"),
            ]
        ]
    )
    state.read()
    assert {key: record.event_id for key, record in state.by_key.items()} == {
        "a": "newer",
        "b": "same sequence, later offset",
    }
    assert state.keys_with_state() == {"a"}


def test_a_topic_is_read_once_and_then_incrementally(topic: Callable[[list[list[_Record]]], LatestRecords]) -> None:
    state = topic([[_Record(b"a", b"x", "1", "1")], [_Record(b"b", b"x", "2", "2"), _Record(b"a", None, "3", "3")]])
    state.read()
    state.read()
    assert state.keys_with_state() == {"b"}
    assert state.starts == [0, 1]  # type: ignore[attr-defined]


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets outbox rows by aggregate type, and the keys of each read of the business table."""

    @contextmanager
    def connected(_: object) -> Iterator[None]:
        yield None

    def set_up(rows: dict[str, list[dict[str, Any]]], *keys: set[str]) -> None:
        polls = list(keys)
        monkeypatch.setattr(stuck.postgres_client, "connected", connected)
        monkeypatch.setattr(stuck.aggregate_queries, "latest_events", lambda *given, **_: rows.get(given[2], []))
        monkeypatch.setattr(
            stuck.aggregate_queries, "live_keys", lambda *_: polls.pop(0) if len(polls) > 1 else polls[0]
        )
        monkeypatch.setattr(stuck, "POLL_INTERVAL_S", 0.01)

    return set_up


def with_backfill(deployment: Deployment) -> Deployment:
    """Remove all aggregates except books, which get a `backfill`."""
    source = Backfill(table="library.book", key="id", query="select id as aggregate_id, payload from library.book")
    return _loading(deployment, {"book": source})


def without_backfill(deployment: Deployment) -> Deployment:
    """Remove all aggregates except authors and books, and their `backfill`."""
    return _loading(deployment, {"author": None, "book": None})


def _loading(deployment: Deployment, sources: dict[str, Backfill | None]) -> Deployment:
    known = deployment.pipeline.aggregates
    aggregates = {name: known[name].model_copy(update={"backfill": source}) for name, source in sources.items()}
    actual = deployment.pipeline.model_copy(update={"aggregates": aggregates})
    return Deployment(actual, deployment.environment, deployment.templates, deployment.registry, deployment.connect)


@pytest.mark.parametrize(
    ("rows", "keys", "expected"),
    [
        ([], [{"a"}], []),
        ([], [{"a", "silent"}], [("silent", "missing")]),
        ([], [set()], [("a", "ghost")]),
        ([], [{"a", "removed"}, {"a"}], []),
        ([], [set(), {"a"}], []),
        ([row("k")], [{"a", "k"}], [("k", "missing")]),
        # Keys that have an outbox row are compared with that row.
        ([row("a", "e")], [set()], []),
    ],
    ids=[
        "all there",
        "an aggregate without a record",
        "a record without an aggregate",
        "removed while the topic was read",
        "created while the topic was read",
        "listed once",
        "outbox row",
    ],
)
def test_comparison_of_business_table_and_topic(
    deployed: Deployed,
    topic: Callable[[list[list[_Record]]], LatestRecords],
    database: Callable[..., None],
    rows: list[dict[str, Any]],
    keys: list[set[str]],
    expected: list[tuple[str, str]],
) -> None:
    topic([[_Record(b"a", b"x", "1", "e")], *([[]] * 100)])
    database({"book": rows}, *keys)
    observed = stuck.list_stuck(with_backfill(deployed()), silent, older_than=0.05)
    assert [(entry.key, entry.kind) for entry in observed] == expected


def test_waits_for_a_late_record(
    deployed: Deployed, topic: Callable[[list[list[_Record]]], LatestRecords], database: Callable[..., None]
) -> None:
    topic([[], [], [_Record(b"late", b"x", "1", "e")]])
    database({}, {"late"})
    assert stuck.list_stuck(with_backfill(deployed()), silent, older_than=30) == []


def test_aggregates_that_are_not_compared_are_reported(deployed: Deployed, database: Callable[..., None]) -> None:
    database({}, set())
    messages: list[str] = []
    assert stuck.list_stuck(without_backfill(deployed()), messages.append, older_than=60) == []
    assert [message for message in messages if "is not compared" in message]


def test_resend_needs_a_backfill_query(deployed: Deployed) -> None:
    with pytest.raises(RefusedError, match="aggregate type author has no `backfill`") as refused:
        stuck.resend(without_backfill(deployed()), [StuckAggregate("author", "k", "missing")], silent)
    assert "add `backfill`" in refused.value.hint


def test_resend_writes_states_and_tombstones_by_type(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[str], bool]] = []

    def republish(_: Deployment, name: str, keys: list[str], __: object, *, tombstones: bool) -> int:
        calls.append((name, keys, tombstones))
        return len(keys)

    monkeypatch.setattr(stuck.backfill, "republish", republish, raising=False)
    actual = [StuckAggregate("book", "a", "missing"), StuckAggregate("book", "b", "ghost")]
    assert stuck.resend(with_backfill(deployed()), actual, silent) == 2
    assert calls == [("book", ["a", "b"], True)]


def test_rejects_pipelines_with_logical_messages(deployed: Callable[..., Deployment]) -> None:
    deployment = deployed()
    source = deployment.pipeline.source.model_copy(update={"message_prefix": "outbox"})
    with pytest.raises(RefusedError, match=r"source\.message_prefix"):
        stuck.list_stuck(
            replace(deployment, pipeline=deployment.pipeline.model_copy(update={"source": source})),
            silent,
            older_than=1,
        )
