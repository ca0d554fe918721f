"""Deletion of states in wrong partitions, without a broker. tests/integration/operations/test_stuck.py has one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.fake_connect import FakeConnect
from tests.unit.fake_topic import FakeTopic, Record

from outbox_events.errors import RefusedError, UnreachableError
from outbox_events.kafka.record import Record as SentRecord
from outbox_kit.connect.state import EPOCH_KEY
from outbox_kit.deployment import Deployment
from outbox_kit.kafka import client
from outbox_kit.operations import misplaced_states as module
from outbox_kit.operations.misplaced_states import MisplacedStates, misplaced_states, refuse_unsafe, write_tombstones
from outbox_kit.operations.preconditions import DeletionLimit
from outbox_kit.operations.state_comparison import StuckAggregate

STATES = MisplacedStates("book", "library.book", (("a", 1),))


def test_lists_misplaced_states_by_type(deployed: Callable[..., Deployment]) -> None:
    aggregates = [
        StuckAggregate("author", "a", "missing"),
        StuckAggregate("book", "b", "misplaced", partitions=(1, 3)),
        StuckAggregate("book", "c", "ghost", partitions=(2,)),
    ]
    places = (("b", 1), ("b", 3), ("c", 2))
    assert misplaced_states(deployed(), aggregates) == {"book": MisplacedStates("book", "library.book", places)}


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    """Topic with the partitions of the pipeline file, in which one of ten states is in a wrong partition."""
    topic = FakeTopic(monkeypatch, partitions=4)
    topic.append(*(Record(str(number).encode(), b"x", "1") for number in range(9)), Record(b"a", b"x", "1", number=1))
    return topic


def refuse(deployment: Deployment, limit: str) -> None:
    refuse_unsafe(deployment, [STATES], DeletionLimit.parse(limit))


@pytest.mark.parametrize(("limit", "is_allowed"), [("5%", False), ("10%", True), ("0", False), ("1", True)])
def test_limits_the_tombstones(deployment: Deployment, topic: FakeTopic, limit: str, is_allowed: bool) -> None:
    assert topic.records
    if is_allowed:
        refuse(deployment, limit)
        return
    with pytest.raises(RefusedError, match=r"--max-deletions .* 1 tombstone .*\(10\.0 %"):
        refuse(deployment, limit)


def test_refuses_a_topic_with_added_partitions(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTopic(monkeypatch, partitions=5).append(Record(b"a", b"x", "1", number=1))
    with pytest.raises(RefusedError, match=r"has 5 partitions, .* 4"):
        refuse(deployment, "100%")


@pytest.mark.parametrize("state", ["STOPPED", "PAUSED"])
def test_refuses_while_the_connector_does_not_run(
    deployment: Deployment, connect: FakeConnect, topic: FakeTopic, state: str
) -> None:
    assert topic.records
    connect.states = dict.fromkeys(connect.states, state)
    with pytest.raises(RefusedError, match="not follow the tombstones"):
        refuse(deployment, "100%")


@pytest.mark.parametrize("epoch", ["0", "2"])
def test_only_a_connector_with_sequences_gives_tombstones_headers(
    deployment: Deployment, connect: FakeConnect, monkeypatch: pytest.MonkeyPatch, epoch: str
) -> None:
    written: list[SentRecord] = []
    monkeypatch.setattr(module, "send_records", lambda _, records: written.extend(records))
    connect.configs = {name: {EPOCH_KEY: epoch} for name in connect.configs}
    write_tombstones(deployment, STATES)
    [record] = written
    assert (record.topic, record.key, record.value, record.partition) == ("library.book", b"a", None, 1)
    expected = b"0000_0000000000000000-0000000000000000" if epoch == "2" else None
    assert dict(record.headers).get("source_sequence") == expected


def test_wait_for_a_full_queue_has_a_limit(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker accepts the records."""
    settings = {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 1, "log_level": 0}
    monkeypatch.setattr(client, "client_settings", lambda _: settings)
    monkeypatch.setattr(client, "SEND_TIMEOUT_S", 0.1)
    states = MisplacedStates("book", "library.book", (("a", 0), ("b", 0)))
    with pytest.raises(UnreachableError, match="the producer's queue was full"):
        write_tombstones(deployment, states)
