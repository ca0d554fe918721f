"""LatestState on topics of a real broker: order, tombstones, snapshots, and changes of the topic."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from datetime import date
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pytest
from tests.integration.receiving.latest_state.conftest import CompactedTopic, MakeTopic, sequence
from tests.integration.support import Deploy

from outbox_events import AvroValues, LatestState, StaleStateError, emit, json_value
from outbox_events.errors import ConfigurationError, RefusedError, UnreachableError, WaitTimeoutError
from outbox_events.latest_state.reader import TopicDescription, TopicReader, TopicRequests
from outbox_events.latest_state.states import States
from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment
from outbox_kit.stack import StackState

WAIT_S = 30
GUIDE = Path(__file__).parents[4] / "docs" / "latest-state.md"
AUTHOR_ID = "5e9a4d0c-5c39-4e6c-9a57-0f6f0a3c8f11"


class Open(Protocol):
    def __call__(self, topic: CompactedTopic, **options: Any) -> LatestState: ...  # noqa: ANN401


@pytest.fixture
def opened() -> Iterator[Open]:
    """Open caches that are closed after the test. The caches check their topic at each poll."""
    with ExitStack() as cleanup:

        def run(topic: CompactedTopic, **options: Any) -> LatestState:  # noqa: ANN401
            options = {"decode": json_value, "check_interval_s": 0, **options}
            cache = LatestState(topic.settings, topic.name, **options)
            cleanup.callback(cache.close)
            return cache

        yield run


def state(number: int) -> bytes:
    return json.dumps({"n": number}).encode()


def wait_value(cache: LatestState, key: str, value: object, *, polls: bool = True) -> None:
    def poll() -> Observation[bool]:
        if polls:
            cache.poll(0.1)
        try:
            found = cache.get(key)
        except StaleStateError as error:
            return Observation(None, error.message)
        return Observation((found == value) or None, repr(found))

    wait_for(f"state {value} of {key}", poll, seconds=WAIT_S, interval=0.02)


def load(cache: LatestState) -> dict[str, Any]:
    cache.load(seconds=WAIT_S)
    return dict(cache.items())


def test_loads_the_newest_states_of_all_partitions(topic: CompactedTopic, opened: Open) -> None:
    for number in range(5):
        topic.send("a", state(number), number)
        topic.send("b", state(10 + number), number, partition=1)
    topic.send("c", state(0), 1)
    topic.send("c", None, 2)
    cache = opened(topic)
    assert load(cache) == {"a": {"n": 4}, "b": {"n": 14}}
    assert (len(cache), "a" in cache, "c" in cache, cache.get("c", "none")) == (2, True, False, "none")
    assert sorted(cache.keys()) == ["a", "b"]
    status = cache.status()
    assert (status.is_loaded, status.keys, status.tombstones, status.unread) == (True, 2, 1, 0)


def test_empty_topic(topic: CompactedTopic, opened: Open) -> None:
    assert load(opened(topic)) == {}


def test_missing_topic(topic: CompactedTopic) -> None:
    with LatestState(topic.settings, f"{topic.name}-missing") as cache, pytest.raises(UnreachableError):
        cache.load(seconds=WAIT_S)


def test_settings_that_would_always_be_stale(topic: CompactedTopic) -> None:
    with pytest.raises(ConfigurationError):
        LatestState(topic.settings, topic.name, max_staleness_s=5, check_interval_s=5)
    with pytest.raises(ConfigurationError):
        LatestState({**topic.settings, "unknown.property": "x"}, topic.name)


def test_unreachable_brokers() -> None:
    with LatestState({"bootstrap.servers": "127.0.0.1:1"}, "library.author") as cache:
        with pytest.raises(UnreachableError):
            cache.load(seconds=1)
        with pytest.raises(StaleStateError):
            cache.get("a")


def test_no_state_is_returned_before_load(topic: CompactedTopic, opened: Open) -> None:
    cache = opened(topic)
    for access in (lambda: cache.get("a"), lambda: "a" in cache, lambda: len(cache), cache.keys):
        with pytest.raises(StaleStateError):
            access()


def test_wait_for_the_end_is_bounded_and_continues(topic: CompactedTopic, opened: Open) -> None:
    for number in range(20):
        topic.send(f"a-{number}", state(number), number)
    cache = opened(topic)
    with pytest.raises(WaitTimeoutError):
        cache.load(seconds=0)
    with pytest.raises(StaleStateError):
        cache.get("a-1")
    assert len(load(cache)) == 20


def test_reads_behind_markers_of_transactions_and_no_aborted_records(topic: CompactedTopic, opened: Open) -> None:
    producer = topic.transactional_producer()
    producer.begin_transaction()
    topic.send("a", state(1), 1, producer=producer)
    producer.commit_transaction(30)
    producer.begin_transaction()
    topic.send("a", state(2), 2, producer=producer)
    producer.abort_transaction(30)
    cache = opened(topic)
    assert load(cache) == {"a": {"n": 1}}
    producer.begin_transaction()
    topic.send("b", state(3), 3, producer=producer)
    producer.abort_transaction(30)
    assert load(cache) == {"a": {"n": 1}}
    assert cache.status().unread == 0


def test_open_transaction_of_another_producer_hides_no_newer_state(topic: CompactedTopic, opened: Open) -> None:
    topic.send("a", state(1), 1)
    cache = opened(topic)
    assert load(cache) == {"a": {"n": 1}}
    other = topic.transactional_producer()
    other.begin_transaction()
    topic.send("b", state(1), 1, producer=other)
    topic.send("a", state(2), 2)  # committed, but behind the open transaction
    for access in (cache, opened(topic)):
        # On a slow machine, the first record arrives later.
        for _ in range(30):
            with pytest.raises(WaitTimeoutError):
                access.load(seconds=1)
            if access.status().unread == 2:
                break
        assert access.status().unread == 2
    other.commit_transaction(30)
    assert load(cache) == {"a": {"n": 2}, "b": {"n": 1}}


def test_polling_follows_changes(topic: CompactedTopic, opened: Open) -> None:
    topic.send("a", state(1), 1)
    cache = opened(topic)
    load(cache)
    topic.send("a", state(2), 2)
    wait_value(cache, "a", {"n": 2})
    topic.send("a", None, 3)
    wait_value(cache, "a", None)


def test_background_thread_follows_changes(topic: CompactedTopic, opened: Open) -> None:
    topic.send("a", state(1), 1)
    cache = opened(topic)
    cache.follow()
    wait_value(cache, "a", {"n": 1}, polls=False)
    topic.send("a", state(2), 2)
    wait_value(cache, "a", {"n": 2}, polls=False)
    with pytest.raises(RefusedError):
        cache.poll()
    assert cache.status().is_following
    cache.stop()
    assert not cache.status().is_following
    topic.send("a", state(3), 3)
    wait_value(cache, "a", {"n": 3})


def test_older_records_and_repeated_deliveries_are_ignored(topic: CompactedTopic, opened: Open) -> None:
    cache = opened(topic)
    for order, partition in ((5, 0), (3, 0), (4, 1), (2, 1)):
        topic.send("a", state(order), order, partition=partition)
    topic.send("b", state(9), sequence(1, epoch=2))
    topic.send("b", state(1), sequence(9, epoch=1))
    topic.send("gone", state(1), 1)
    topic.send("gone", None, 3)
    topic.send("gone", state(2), 2, partition=1)
    assert load(cache) == {"a": {"n": 5}, "b": {"n": 9}}
    topic.send("gone", state(1), 1)
    topic.send("a", state(5), 5)
    topic.send("a", state(1), 1)
    assert load(cache) == {"a": {"n": 5}, "b": {"n": 9}}
    topic.send("gone", state(4), 4)
    assert load(cache) == {"a": {"n": 5}, "b": {"n": 9}, "gone": {"n": 4}}
    assert cache.status().tombstones == 0


def test_forgotten_tombstone(topic: CompactedTopic, opened: Open) -> None:
    cache = opened(topic, tombstone_ttl_s=0)
    topic.send("gone", None, 3)
    load(cache)
    cache.poll()
    assert cache.status().tombstones == 0


def test_topic_without_sequences_is_ordered_by_offset(topic: CompactedTopic, opened: Open) -> None:
    for number in range(3):
        topic.send("a", state(number), None)
    assert load(opened(topic)) == {"a": {"n": 2}}


@pytest.mark.parametrize("order", ["1", "0001_0000000000000009-000000000000000A", None])
def test_record_without_a_place_in_the_order(topic: CompactedTopic, opened: Open, tmp_path: Path, order: str) -> None:
    topic.send("a", state(1), 1)
    topic.send("a", state(2), order)
    topic.send("a", state(1), 1)  # another copy does not end the uncertainty
    topic.send("b", state(1), 1)
    cache = opened(topic, snapshot=tmp_path / "snapshot")
    cache.load(seconds=WAIT_S)
    cache.close()
    cache = opened(topic, snapshot=tmp_path / "snapshot")
    cache.load(seconds=WAIT_S)
    for access in (lambda: cache.get("a"), lambda: "a" in cache, cache.items):
        with pytest.raises(StaleStateError):
            access()
    assert (cache.get("b"), cache.status().undecodable, cache.stale_keys()) == ({"n": 1}, 1, ["a"])
    topic.send("a", state(3), 3)
    wait_value(cache, "a", {"n": 3})
    assert cache.status().undecodable == 0


def test_undecodable_record(topic: CompactedTopic, opened: Open) -> None:
    topic.send("a", state(1), 1)
    topic.send("b", state(1), 1)
    topic.send("a", b"SECRET", 2)
    cache = opened(topic)
    cache.load(seconds=WAIT_S)
    with pytest.raises(StaleStateError) as caught:
        cache.get("a")
    assert "SECRET" not in str(caught.value)
    assert (cache.stale_keys(), cache.status().undecodable, cache.get("b")) == (["a"], 1, {"n": 1})
    with pytest.raises(StaleStateError):
        dict(cache.items())
    topic.send("a", state(1), 1)  # an older record does not replace it
    cache.load(seconds=WAIT_S)
    assert cache.stale_keys() == ["a"]
    topic.send("a", state(3), 3)
    wait_value(cache, "a", {"n": 3})
    assert cache.status().undecodable == 0


# --- changes of the topic


def test_added_partition_is_read_from_its_beginning(topic: CompactedTopic, opened: Open) -> None:
    topic.send("a", state(1), 1)
    cache = opened(topic)
    load(cache)
    topic.add_partitions(3)
    topic.send("a", state(2), 2, partition=2)
    topic.send("b", state(1), 1, partition=2)
    wait_value(cache, "a", {"n": 2})
    wait_value(cache, "b", {"n": 1})


def test_recreated_topic_is_read_again(topic: CompactedTopic, opened: Open) -> None:
    topic.send("old", state(1), 5)
    cache = opened(topic)
    load(cache)
    cache.follow()
    topic.recreate(2)
    topic.send("new", state(2), 1)
    wait_value(cache, "new", {"n": 2}, polls=False)
    assert dict(cache.items()) == {"new": {"n": 2}}
    assert cache.status().rebuilds == 1


def test_deleted_topic_makes_the_states_stale(topic: CompactedTopic, opened: Open) -> None:
    topic.send("a", state(1), 1)
    cache = opened(topic, max_staleness_s=0.5)
    load(cache)
    cache.follow()
    topic.delete()

    def poll() -> Observation[StaleStateError]:
        try:
            return Observation(None, repr(cache.get("a")))
        except StaleStateError as error:
            return Observation(error if cache.status().error else None, error.message)

    wait_for("the error of the thread", poll, seconds=WAIT_S, interval=0.02)
    topic.create(2)
    wait_value(cache, "a", None, polls=False)

    def error() -> Observation[bool]:
        error = cache.status().error  # cleared at the end of the step that read the new topic
        return Observation(not error or None, error)

    wait_for("the end of the error", error, seconds=WAIT_S, interval=0.02)


def test_unexpected_error_of_the_thread_is_raised(
    topic: CompactedTopic, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = opened(topic)
    load(cache)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(cache, "_step", fail)
    cache.follow()
    wait_for("the failure", lambda: Observation(not cache.status().is_following or None, ""), seconds=WAIT_S)
    with pytest.raises(StaleStateError) as caught:
        cache.get("a")
    assert isinstance(caught.value.__cause__, RuntimeError)
    monkeypatch.undo()
    cache.stop()
    cache.follow()
    wait_value(cache, "a", None, polls=False)


def test_an_outage_in_which_tombstones_can_disappear_causes_a_rebuild(
    topic: CompactedTopic, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outbox_events.latest_state.reader.MIN_GAP_S", 1)
    cache = opened(topic, snapshot_max_age_s=0, check_interval_s=0.2)
    load(cache)

    def unreachable(_: TopicRequests) -> TopicDescription:
        raise UnreachableError("the brokers are not reachable")

    with monkeypatch.context() as outage:
        outage.setattr(TopicRequests, "describe", unreachable)

        def poll() -> Observation[bool]:
            with suppress(UnreachableError):
                cache.poll(0.02)
            behind = cache.status().seconds_behind
            return Observation(behind is None or behind > 1.5 or None, str(behind))

        wait_for("an outage", poll, seconds=WAIT_S, interval=0.02)
    cache.load(seconds=WAIT_S)
    assert cache.status().rebuilds == 1


def test_an_interrupted_poll_causes_a_rebuild(
    topic: CompactedTopic, opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = opened(topic, snapshot=tmp_path / "snapshot")
    load(cache)
    topic.send("a", state(1), 1)
    topic.send("b", state(2), 2)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(States, "apply", interrupt)
        with pytest.raises(KeyboardInterrupt):
            wait_value(cache, "a", {"n": 1})
    with pytest.raises(StaleStateError):
        cache.get("a")
    assert load(cache) == {"a": {"n": 1}, "b": {"n": 2}}


# --- snapshots


def saved(topic: CompactedTopic, opened: Open, path: Path) -> None:
    """Send two states and a deleted key, and save a snapshot of them."""
    topic.send("a", state(1), 1)
    topic.send("b", state(2), 2, partition=1)
    topic.send("gone", None, 3)
    cache = opened(topic, snapshot=path)
    load(cache)
    cache.close()


@pytest.mark.parametrize("snapshot", ["missing/snapshot", "."])
def test_snapshot_that_cannot_be_saved_is_refused(topic: CompactedTopic, tmp_path: Path, snapshot: str) -> None:
    with pytest.raises(ConfigurationError, match="snapshot"):
        LatestState(topic.settings, topic.name, snapshot=tmp_path / snapshot)


def test_snapshot_is_continued(topic: CompactedTopic, opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    saved(topic, opened, path)
    assert [file.name for file in tmp_path.iterdir()] == ["snapshot"]
    assert path.stat().st_mode & 0o777 == 0o600
    topic.delete_records(0, 2)  # only the snapshot contains the records now
    topic.send("a", state(4), 4)
    topic.send("gone", state(1), 1)
    cache = opened(topic, snapshot=path)
    assert load(cache) == {"a": {"n": 4}, "b": {"n": 2}}
    assert cache.status().tombstones == 1


def test_snapshot_is_saved_at_an_interval(topic: CompactedTopic, opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    topic.send("a", state(1), 1)
    cache = opened(topic, snapshot=path, snapshot_interval_s=0)
    load(cache)
    cache.poll()
    assert stored_keys(path) == {b"a"}


def stored_keys(path: Path) -> set[bytes]:
    with closing(sqlite3.connect(path)) as database:
        return {key for (key,) in database.execute("select key from state")}


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


def flip_a_bit_of_a_value(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(state(2)) == 1
    path.write_bytes(content.replace(state(2), b'{"n": 3}'))


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "no database": lambda path: path.write_bytes(b"no database"),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "changed value": flip_a_bit_of_a_value,
    "missing state": lambda path: execute(path, "delete from state where key = x'61'"),
    "other format": lambda path: execute(path, "update snapshot set format = 0"),
    "other topic": lambda path: execute(path, "update snapshot set content = replace(content, 'receiving', 'x')"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_snapshot_is_not_used(topic: CompactedTopic, opened: Open, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "snapshot"
    saved(topic, opened, path)
    DAMAGES[damage](path)
    cache = opened(topic, snapshot=path)
    assert load(cache) == {"a": {"n": 1}, "b": {"n": 2}}
    cache.close()
    assert stored_keys(path) == {b"a", b"b", b"gone"}


def test_snapshot_of_a_recreated_topic_is_not_used(topic: CompactedTopic, opened: Open, tmp_path: Path) -> None:
    saved(topic, opened, tmp_path / "snapshot")
    topic.recreate(2)
    for number in range(5):  # the offsets of the snapshot also exist in the new topic
        topic.send("new", state(number), number)
        topic.send("new", state(number), number, partition=1)
    assert load(opened(topic, snapshot=tmp_path / "snapshot")) == {"new": {"n": 4}}


def test_snapshot_before_deleted_records_is_not_used(topic: CompactedTopic, opened: Open, tmp_path: Path) -> None:
    saved(topic, opened, tmp_path / "snapshot")
    for number in range(4, 8):
        topic.send("a", state(number), number)
    topic.delete_records(0, 5)
    assert load(opened(topic, snapshot=tmp_path / "snapshot")) == {"a": {"n": 7}, "b": {"n": 2}}
    assert opened(topic, snapshot=tmp_path / "snapshot").status().keys == 0


@pytest.mark.parametrize(("config", "options"), [({"delete_retention_ms": "0"}, {}), ({}, {"snapshot_max_age_s": 0})])
def test_old_snapshot_is_not_used(
    make_topic: MakeTopic, opened: Open, tmp_path: Path, config: dict[str, str], options: dict[str, Any]
) -> None:
    topic = make_topic(2, **config)
    saved(topic, opened, tmp_path / "snapshot")
    topic.delete_records(0, 2)  # as if compaction had removed key a and its tombstone
    assert load(opened(topic, snapshot=tmp_path / "snapshot", **options)) == {"b": {"n": 2}}


def test_snapshot_and_added_partition(topic: CompactedTopic, opened: Open, tmp_path: Path) -> None:
    saved(topic, opened, tmp_path / "snapshot")
    topic.add_partitions(3)
    topic.send("a", state(9), 9, partition=2)
    assert load(opened(topic, snapshot=tmp_path / "snapshot")) == {"a": {"n": 9}, "b": {"n": 2}}


def test_snapshot_and_added_partition_of_a_topic_without_sequences(
    topic: CompactedTopic, opened: Open, tmp_path: Path
) -> None:
    for number in range(3):
        topic.send("a", state(number), None)
    cache = opened(topic, snapshot=tmp_path / "snapshot")
    load(cache)
    cache.close()
    topic.add_partitions(3)
    topic.send("a", state(9), None, partition=2)  # at offset 0, which is lower than the offset of the earlier state
    assert load(opened(topic, snapshot=tmp_path / "snapshot")) == {"a": {"n": 9}}


@pytest.mark.parametrize(("age_s", "restarts"), [(10, 0), (100, 1)])
def test_the_gap_after_a_snapshot_begins_at_its_end(topic: CompactedTopic, age_s: float, restarts: int) -> None:
    reader = TopicReader(topic.settings, topic.name, States(3600))
    with closing(reader):
        description = reader.requests.describe()
        reader.resume(description, description.starts, read_until=time.time() - age_s)
        reader.check()
        assert reader.restarts == restarts


def test_failure_to_save_does_not_end_the_cache(topic: CompactedTopic, opened: Open, tmp_path: Path) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    cache = opened(topic, snapshot=folder / "snapshot", snapshot_interval_s=0)
    folder.rmdir()
    topic.send("a", state(1), 1)
    assert load(cache) == {"a": {"n": 1}}
    cache.poll()
    assert cache.get("a") == {"n": 1}


# --- the pipeline


def test_states_of_the_pipeline(deploy: Deploy, state: StackState, tmp_path: Path) -> None:
    topic = deploy("latest").pipeline.topic_of("author")
    author = {"id": AUTHOR_ID, "name": "Ursula", "born": "1929-10-21", "updated_at": "2026-01-02T03:04:05+00:00"}
    settings, path = {"bootstrap.servers": state.kafka}, tmp_path / "author"
    with psycopg.connect(state.postgres) as connection:

        def change(payload: Mapping[str, Any] | None, event_type: str) -> None:
            with connection.transaction():
                place = {"aggregate_type": "author", "aggregate_id": AUTHOR_ID, "table": "public.latest_event"}
                emit(connection, **place, event_type=event_type, payload=payload)

        with LatestState(settings, topic, decode=AvroValues(state.registry), snapshot=path) as authors:
            authors.follow()
            change(author, "author_added")
            wait_name(authors, "Ursula")
            assert authors.get(AUTHOR_ID)["born"] == date(1929, 10, 21)
            change({**author, "name": "Ursula K. Le Guin"}, "author_changed")
            wait_name(authors, "Ursula K. Le Guin")
        fields = [{"name": "name", "type": "string"}, {"name": "rank", "type": "int", "default": 7}]
        decode = AvroValues(state.registry, reader_schema={"type": "record", "name": "Author", "fields": fields})
        with LatestState(settings, topic, decode=decode, snapshot=path) as authors:
            authors.load()
            assert dict(authors.items()) == {AUTHOR_ID: {"name": "Ursula K. Le Guin", "rank": 7}}
            authors.follow()
            change(None, "author_deleted")
            wait_name(authors, None)


def test_code_of_the_guide(
    library: Deployment, state: StackState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library.pipeline.topic_of("author") == "library.author"
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    variables = {"bootstrap_servers": state.kafka, "registry_url": state.registry, "__name__": "snippet"}
    # dont_inherit excludes the __future__ imports of this file.
    exec(compile(snippet, GUIDE.name, "exec", dont_inherit=True), variables)  # noqa: S102
    assert variables["author"] is None
    assert (tmp_path / "authors.snapshot").is_file()


def wait_name(authors: LatestState, name: str | None) -> None:
    """Wait until the author has this name, or is deleted if the name is None."""

    def poll() -> Observation[bool]:
        try:
            found = authors.get(AUTHOR_ID)
        except StaleStateError as error:
            return Observation(None, error.message)
        return Observation((found and found["name"]) == name or None, repr(found))

    wait_for(f"the name {name}", poll, seconds=60)
