"""State comparison: the records that confirm the newest state, and the comparison with the business table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.fake_topic import FakeTopic, Record
from tests.unit.operations.samples import backfilled

from outbox_events.contract.partitioner import partition_of
from outbox_events.contract.source_sequence import WalPosition
from outbox_events.errors import RefusedError, RejectedError, WaitTimeoutError
from outbox_kit.deployment import Deployment
from outbox_kit.operations import state_comparison
from outbox_kit.operations.state_comparison import StateComparison, StuckAggregate
from outbox_kit.pipeline import Lock
from outbox_kit.postgres.replication_slot import Slot
from outbox_kit.results import silent

Deployed = Callable[..., Deployment]
POSITION = WalPosition(2, 0x100)
BEFORE, AFTER = f"0002_{0:016x}-{0x50:016x}", f"0002_{0:016x}-{0x150:016x}"


def row(key: str = "k", *events: str, deleted: bool = False, recent: bool = False) -> dict[str, Any]:
    created_at = "2099-01-01T00:00:00+00:00" if recent else "2026-11-20T18:31:38+00:00"
    ids = list(events or ("new",))
    return {"key": key, "created_at": created_at, "event_ids": ids, "deleted": deleted, "recent": recent}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    return FakeTopic(monkeypatch)


class Database:
    """Results of the queries: the outbox rows by aggregate type, and the keys of each read of the business table."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.keys: list[set[str]] = [set()]
        self.states: list[dict[str, str]] = [{}]
        self.system_identifier: str | RejectedError = "7301"
        self.timeline: int | None = 1
        self.slots: list[Slot | None] = [None]
        self.positions = [POSITION.lsn]

    def latest_events(self, *given: Any, **_: object) -> list[dict[str, Any]]:  # noqa: ANN401 - arguments of a query
        return self.rows.get(given[2], [])

    def live_keys(self, *_: object, **__: object) -> set[str]:
        return set(self.keys.pop(0) if len(self.keys) > 1 else self.keys[0])

    def read_states(self, *_: object, **__: object) -> dict[str, str]:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def read_position(self, _: object) -> int:
        return self.positions.pop(0) if len(self.positions) > 1 else self.positions[0]

    def read_slot(self, *_: object) -> Slot | None:
        return self.slots.pop(0) if len(self.slots) > 1 else self.slots[0]

    def read_system_identifier(self, _: object) -> str:
        if isinstance(self.system_identifier, RejectedError):
            raise self.system_identifier
        return self.system_identifier


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    answers = Database()

    @contextmanager
    def connected(*_: object) -> Iterator[None]:
        yield None

    @contextmanager
    def snapshot(_: object) -> Iterator[int]:
        yield answers.read_position(None)

    client = state_comparison.postgres_client
    monkeypatch.setattr(client, "snapshot", snapshot)
    monkeypatch.setattr(client, "connected", connected)
    monkeypatch.setattr(client, "read_system_identifier", answers.read_system_identifier)
    monkeypatch.setattr(client, "read_server", lambda _: {"timeline": answers.timeline})
    monkeypatch.setattr(client, "read_insert_position", answers.read_position)
    monkeypatch.setattr(state_comparison, "read_slot", answers.read_slot)
    monkeypatch.setattr(state_comparison.aggregate_queries, "latest_events", answers.latest_events)
    monkeypatch.setattr(state_comparison.aggregate_queries, "live_keys", answers.live_keys)
    monkeypatch.setattr(state_comparison.aggregate_queries, "states", answers.read_states)
    monkeypatch.setattr(state_comparison, "POLL_INTERVAL_S", 0.01)
    return answers


@pytest.fixture
def books(deployed: Deployed, lock: Lock) -> Deployment:
    """A deployed pipeline of books, with a `backfill`. The source epoch is 2."""
    deployment = backfilled(deployed(), "book")
    deployment.write_lock(lock)
    return deployment


def stuck(deployment: Deployment, *, older_than: float = 0.05) -> list[tuple[str, str]]:
    return [(entry.key, entry.kind) for entry in StateComparison(deployment, older_than).run(silent).stuck]


@pytest.mark.parametrize(
    ("rows", "keys", "expected"),
    [
        ([], [{"a"}], []),
        ([], [{"a", "silent"}], [("silent", "missing")]),
        ([], [set()], [("a", "ghost")]),
        ([], [{"a", "removed"}, {"a"}], []),
        ([], [set(), {"a"}], []),
        ([row("k")], [{"a", "k"}], [("k", "missing")]),
        ([row("a", "newer")], [{"a"}], [("a", "stale")]),
        ([row("a", "e")], [{"a"}], []),
        ([row("a", "e")], [set()], [("a", "ghost")]),
    ],
    ids=[
        "all there",
        "an aggregate without a record",
        "a record without an aggregate",
        "removed while the topic was read",
        "created while the topic was read",
        "listed once",
        "an older record",
        "outbox row and aggregate",
        "outbox row without an aggregate",
    ],
)
def test_comparison_of_tables_and_topic(
    books: Deployment,
    topic: FakeTopic,
    database: Database,
    rows: list[dict[str, Any]],
    keys: list[set[str]],
    expected: list[tuple[str, str]],
) -> None:
    topic.append(Record(b"a", b"x", BEFORE, "e"))
    database.rows, database.keys = {"book": rows}, keys
    assert stuck(books) == expected


def slot(confirmed_flush: int | None) -> Slot:
    return Slot("s", "pgoutput", "shop", True, 1, "reserved", False, confirmed_flush, 0, None, None, None)


def test_ends_when_the_slot_has_confirmed_the_position(books: Deployment, topic: FakeTopic, database: Database) -> None:
    database.keys = [{"late", "lost"}]
    database.slots = [None, slot(None), slot(POSITION.lsn - 1), slot(POSITION.lsn)]
    # The first read precedes the wait. The record appears in the read after the position has been confirmed.
    topic.batches = [[], [], [], [], [Record(b"late", b"x", AFTER)]]
    # Waiting for the whole time would raise WaitTimeoutError.
    assert stuck(books, older_than=3600) == [("lost", "missing")]


def test_describes_stuck_aggregates(books: Deployment, topic: FakeTopic, database: Database) -> None:
    topic.append(Record(b"g", b"x", BEFORE, "e"))
    database.rows = {"book": [row("k", "due", "young")]}
    result = StateComparison(books, 0.05).run(silent)
    assert result.stuck == [
        StuckAggregate("book", "g", "ghost", "e", "2099-01-01T00:00:00Z"),
        StuckAggregate("book", "k", "missing", "due", "2026-11-20T18:31:38+00:00"),
    ]


@pytest.mark.parametrize(
    ("keys", "newest", "older", "expected"),
    [
        ({"a"}, b"new", b"old", [("a", "overwritten")]),
        ({"a"}, b"new", None, [("a", "overwritten")]),
        (set(), None, b"old", [("a", "ghost")]),
    ],
    ids=["an older state", "an older tombstone", "an older state of a deleted aggregate"],
)
def test_lists_aggregates_of_which_compaction_retains_an_older_record(
    books: Deployment,
    topic: FakeTopic,
    database: Database,
    keys: set[str],
    newest: bytes | None,
    older: bytes | None,
    expected: list[tuple[str, str]],
) -> None:
    """The newest outbox row has arrived, but another producer has written an older record after it."""
    topic.append(Record(b"a", newest, AFTER, "new"), Record(b"a", older, BEFORE, "old"))
    database.rows, database.keys = {"book": [row("a")]}, [keys]
    assert stuck(books) == expected


def test_lists_the_wrong_partitions_of_a_stuck_aggregate(
    books: Deployment, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = FakeTopic(monkeypatch, partitions=2)
    home = partition_of(b"a", 2)
    topic.append(Record(b"a", b"x", AFTER, "new", home), Record(b"a", b"x", BEFORE, "old", 1 - home))
    database.keys = [{"a"}]
    [entry] = StateComparison(books, 0.05).run(silent).stuck
    assert (entry.kind, entry.partitions) == ("misplaced", (1 - home,))


class _Decoder:
    """Replaces ValueDecoder. A value is the JSON of the state."""

    def __init__(self, *_: object) -> None: ...

    def different_fields(self, value: bytes, state: str) -> tuple[str, ...]:
        return ("title",) if value.decode() != state else ()


@pytest.mark.parametrize(
    ("states", "batches", "expected"),
    [
        ([{"a": "old", "b": "old"}], [], []),
        ([{"a": "new", "b": "old"}], [], [("a", "different")]),
        ([{"a": "new"}, {"a": "newer"}], [], []),
        ([{"a": "new"}], [[], [Record(b"a", b"new", AFTER)]], []),
        ([{"a": "new"}], [[], [Record(b"a", b"other", AFTER)]], []),
        ([{"a": "new"}], [[], [Record(b"a", None, AFTER)]], []),
    ],
    ids=["equal", "changed without an event", "changed again", "event arrives", "updated", "deleted"],
)
def test_comparison_of_values(
    books: Deployment,
    topic: FakeTopic,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    states: list[dict[str, str]],
    batches: list[list[Record]],
    expected: list[tuple[str, str]],
) -> None:
    """A difference that remains is listed, but not the difference of an aggregate that is being changed."""
    monkeypatch.setattr(state_comparison, "ValueDecoder", _Decoder)
    topic.append(Record(b"a", b"old", BEFORE), Record(b"b", b"old", BEFORE))
    database.keys, database.states, topic.batches = [{"a", "b"}], states, batches
    assert stuck(books) == expected


def test_waits_for_a_late_record_of_the_business_table(books: Deployment, topic: FakeTopic, database: Database) -> None:
    database.keys = [{"late"}]
    topic.batches = [[], [], [Record(b"late", b"x", BEFORE)]]
    assert stuck(books, older_than=30) == []


def test_waits_for_the_record_of_a_row_with_a_future_time(
    books: Deployment, topic: FakeTopic, database: Database
) -> None:
    """The age of such a row is unknown. It may have just been committed by a service whose clock is ahead."""
    database.rows = {"book": [row("late", recent=True)]}
    topic.batches = [[], [], [Record(b"late", b"x", BEFORE, "new")]]
    assert stuck(books, older_than=30) == []


def test_lists_a_row_with_a_future_time_that_does_not_arrive(
    books: Deployment, topic: FakeTopic, database: Database
) -> None:
    topic.append(Record(b"k", b"x", BEFORE, "old"))
    database.rows = {"book": [row("k", recent=True)]}
    assert stuck(books) == [("k", "stale")]


@pytest.mark.parametrize(
    ("system_identifier", "timeline", "expected"),
    [
        ("7301", 1, []),
        ("7302", 1, [("a", "stale")]),
        ("7301", 2, [("a", "stale")]),
        ("7301", None, [("a", "stale")]),
        (RejectedError("permission denied"), 1, [("a", "stale")]),
    ],
    ids=["the same", "another database", "promoted", "a standby", "no permission"],
)
def test_positions_are_compared_only_with_the_database_of_the_lock_file(
    books: Deployment,
    topic: FakeTopic,
    database: Database,
    system_identifier: str | RejectedError,
    timeline: int | None,
    expected: list[tuple[str, str]],
) -> None:
    topic.append(Record(b"a", b"x", AFTER, "committed after the rows were read"))
    database.rows, database.keys = {"book": [row("a")]}, [{"a"}]
    database.system_identifier, database.timeline = system_identifier, timeline
    database.positions = [POSITION.lsn, POSITION.lsn + 0x100]
    assert stuck(books) == expected


def test_a_record_that_the_source_has_not_reached_is_ahead(
    books: Deployment, topic: FakeTopic, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can have the value of the aggregate, but the next events are older. It does not confirm outbox rows."""
    topic.append(Record(b"a", b"x", AFTER), Record(b"b", b"x", f"0003_{0:016x}-{0:016x}"))
    topic.append(Record(b"c", b"x", BEFORE), Record(b"d", b"x", "malformed"), Record(b"ghost", b"x", AFTER))
    database.keys = [set("abcd")]
    result = StateComparison(books, 0.05).run(silent)
    assert [(entry.key, entry.kind) for entry in result.stuck if entry.ahead] == [
        ("a", "ahead"),
        ("b", "ahead"),
        ("ghost", "ghost"),
    ]
    assert len(result.stuck) == 3
    monkeypatch.setattr(state_comparison, "connector_epoch", lambda _: 4)
    assert stuck(books) == [("ghost", "ghost")], "an outdated lock file: LSNs of earlier epochs are not compared"


def test_repeated_runs_read_new_records_only(books: Deployment, topic: FakeTopic, database: Database) -> None:
    topic.append(Record(b"a", b"x", BEFORE, "e"))
    database.keys = [{"a"}]
    comparison = StateComparison(books, 0.05)
    assert comparison.run(silent).stuck == []
    assert comparison.run(silent).stuck == []
    assert [starts for starts in topic.starts if starts] == [{0: 0}]


def test_keys_of_the_compared_types_are_returned(deployed: Deployed, topic: FakeTopic, database: Database) -> None:
    """Books have an outbox row, authors have neither a row nor a `backfill`."""
    topic.append(Record(b"k", b"x", BEFORE, "new"))
    database.rows = {"book": [row("k")]}
    result = StateComparison(backfilled(deployed()), 0.05).run(silent)
    assert result.compared_keys == {"book": {"k"}}
    assert result.uncompared_types(["author", "book"]) == ["author"]


def test_ends_at_the_time_limit(books: Deployment, topic: FakeTopic, database: Database) -> None:
    topic.append(Record(b"a", b"x", BEFORE))
    database.keys = [{"a", "missing"}]
    with pytest.raises(WaitTimeoutError):
        StateComparison(books, older_than=60, seconds=0.05).run(silent)


def test_rejects_pipelines_with_logical_messages(deployed: Deployed) -> None:
    deployment = deployed()
    source = deployment.pipeline.source.model_copy(update={"message_prefix": "outbox"})
    pipeline = deployment.pipeline.model_copy(update={"source": source})
    with pytest.raises(RefusedError, match=r"source\.message_prefix"):
        StateComparison(replace(deployment, pipeline=pipeline), 1).run(silent)
