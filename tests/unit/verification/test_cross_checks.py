"""Cross checks: the live connector config compared with topics, registry and database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest.mock import MagicMock

import pytest
from tests.remedies import commands_of
from tests.unit.fake_postgres import FakePostgres
from tests.unit.postgres.samples import DETAILS, SLOT
from tests.unit.verification.samples import REACHED, live_state, with_error, with_live

from outbox_events.errors import ConfigurationError, RejectedError, UnreachableError
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.unsequenced_records import UnsequencedRecords
from outbox_kit.pipeline import Lock
from outbox_kit.postgres import client as postgres_client
from outbox_kit.registry.client import SchemaVersion
from outbox_kit.results.checks import Check, Status, evaluate
from outbox_kit.verification import cross_checks
from outbox_kit.verification import live_state as live_states
from outbox_kit.verification.live_state import LiveState, ReadResult

PREFIX = "transforms.outbox.aggregate."
IDS = [rule.id for rule in cross_checks.RULES]


@pytest.fixture
def live(deployed: Callable[..., Deployment], lock: Lock) -> LiveState:
    return live_state(deployed(), lock)


def run(live: LiveState) -> dict[str, Check]:
    return {check.id: check for check in evaluate(cross_checks.RULES, live)}


def not_passed(live: LiveState) -> dict[str, str]:
    return {check.id: check.seen for check in run(live).values() if check.status is not Status.PASS}


def test_a_record_must_fit_into_a_segment(live: LiveState) -> None:
    state = live.kafka.value
    assert state is not None
    topic = state.actual["library.book"]
    small = replace(topic, config={**topic.config, "segment.bytes": "999999"})
    smaller = replace(state, actual={**state.actual, "library.book": small})
    assert not_passed(replace(live, kafka=ReadResult(smaller))) == {
        "path.record-size": "max.record.bytes 1000000 > segment.bytes of library.book 999999"
    }


def test_passes_for_a_deployed_pipeline(live: LiveState) -> None:
    assert list(run(live)) == IDS
    assert not_passed(live) == {}


CONFIGS: list[tuple[dict[str, str | None], str, str]] = [
    ({f"{PREFIX}book.partitions": "9"}, "path.partitions", "library.book has 4 partitions; its route has 9"),
    ({f"{PREFIX}book.partitions": None}, "path.partitions", "library.book has 4 partitions; its route has 0"),
    (
        {"transforms.outbox.max.record.bytes": "2000000"},
        "path.record-size",
        "max.record.bytes 2000000 > max.request.size 1065536; "
        "max.record.bytes 2000000 > max.message.bytes of library.author 1065536; "
        "max.record.bytes 2000000 > max.message.bytes of library.book 1065536; "
        "max.record.bytes 2000000 > max.message.bytes of library.outbox-canary 1065536",
    ),
    (
        {"producer.override.buffer.memory": "1000"},
        "path.record-size",
        "max.request.size 1065536 > buffer.memory 1000",
    ),
    (
        {f"{PREFIX}book.schema.1.id": "8"},
        "path.schema-ids",
        "library.book-value version 1 has id 7, but the router writes 8",
    ),
    ({f"{PREFIX}book.schema.1": '"string"'}, "path.schema-ids", "library.book-value version 1 differs from"),
    (
        {f"{PREFIX}book.schema.1": "no schema"},
        "path.schema-ids",
        "library.book-value version 1 differs from",
    ),
    ({f"{PREFIX}book.schema.versions": "5"}, "path.schema-ids", "library.book-value does not have version 5"),
    (
        {"status.update.interval.ms": "60000"},
        "path.wal-sender-timeout",
        "wal_sender_timeout 60000 ms, an acknowledgement every 60000 ms",
    ),
    ({"producer.override.max.block.ms": None}, "path.producer-gives-up", "max.block.ms unlimited, delivery.timeout.ms"),
    (
        {"producer.override.delivery.timeout.ms": "2147483647"},
        "path.producer-gives-up",
        "max.block.ms 60000 ms, delivery.timeout.ms 2147483647 ms",
    ),
    (
        {"producer.override.delivery.timeout.ms": None},
        "path.producer-gives-up",
        "max.block.ms 60000 ms, delivery.timeout.ms 2147483647 ms",
    ),
]


@pytest.mark.parametrize(("changes", "identifier", "seen"), CONFIGS, ids=[seen for *_, seen in CONFIGS])
def test_each_config_fault_fails_exactly_its_check(
    live: LiveState, changes: dict[str, str | None], identifier: str, seen: str
) -> None:
    actual = not_passed(with_live(live, changes))
    assert list(actual) == [identifier]
    assert actual[identifier].startswith(seen)


def test_detects_an_offset_ahead_of_the_server(live: LiveState) -> None:
    state = live.postgres.value
    assert state is not None
    behind = replace(state, actual=replace(state.actual, wal_position=REACHED - 1))
    moved = replace(live, postgres=ReadResult(behind), wal_position=REACHED - 1)
    assert not_passed(moved) == {"path.offset-not-ahead": f"connector's offset at {REACHED}, server at {REACHED - 1}"}
    assert not_passed(replace(moved, wal_position=REACHED)) == {}


def test_detects_a_slot_ahead_of_the_offset(live: LiveState) -> None:
    state = live.postgres.value
    assert state is not None
    actual = replace(state.actual, slot=replace(SLOT, confirmed_flush=REACHED + 1))
    result = not_passed(replace(live, postgres=ReadResult(replace(state, actual=actual))))
    assert result == {"path.offset-covers-slot": f"slot at {REACHED + 1}, connector's offset at {REACHED}"}


@pytest.mark.parametrize(("timeout", "passed"), [(0, True), (20_000, True), (19_999, False)])
def test_checks_the_timeout_of_the_server(live: LiveState, timeout: int, passed: bool) -> None:
    state = live.postgres.value
    assert state is not None
    actual = replace(live, postgres=ReadResult(replace(state, additional=replace(DETAILS, sender_timeout_ms=timeout))))
    assert ("path.wal-sender-timeout" not in not_passed(actual)) is passed


def test_detects_a_version_missing_in_the_registry(live: LiveState) -> None:
    removed: dict[tuple[str, int], SchemaVersion | None] = {**live.registered, ("library.author-value", 1): None}
    actual = not_passed(replace(live, registered=removed))
    assert actual == {"path.schema-ids": "library.author-value does not have version 1, which the router uses"}


@pytest.mark.parametrize("system", ["postgres", "kafka", "registry", "connect"])
def test_cross_checks_are_unknown_for_an_unreachable_system(live: LiveState, system: str) -> None:
    actual = run(replace(live, **{system: ReadResult(None, UnreachableError("down"))}))  # type: ignore[arg-type]
    assert {check.status for check in actual.values()} <= {Status.PASS, Status.UNKNOWN}
    assert Status.UNKNOWN in {check.status for check in actual.values()}
    assert list(actual) == IDS


def test_an_offset_that_cannot_be_read_is_not_compared(live: LiveState) -> None:
    """Otherwise, the missing offset would count as LSN 0, which is never ahead of the server."""
    actual = run(with_error(live, "offsets"))
    unknown = {name for name, check in actual.items() if check.status is Status.UNKNOWN}
    assert unknown == {"path.offset-not-ahead", "path.offset-covers-slot"}


def test_skips_routes_of_another_template(live: LiveState) -> None:
    template = {"connector.class": "x", "transforms": "event", "transforms.event.type": "io.debezium.EventRouter"}
    state = live.connect.value
    assert state is not None
    timeouts = {"producer.override.max.block.ms": "60000", "producer.override.delivery.timeout.ms": "120000"}
    config = {**template, **timeouts}
    observed = replace(state.observed, actual=replace(state.observed.actual, config=config))
    actual = run(replace(live, connect=ReadResult(replace(state, observed=observed))))
    assert actual["path.partitions"].seen == "no OutboxRouter"
    assert {check.status for check in actual.values()} == {Status.PASS}


def test_reports_an_empty_topic_of_a_type_with_states(live: LiveState) -> None:
    named = run(replace(live, unsent_types=ReadResult(["book"])))["path.empty-topics"]
    assert (named.status, named.seen) == (Status.FAIL, "no record: book")
    error = RejectedError("permission denied for table book", "run `grant select`")
    unread = run(replace(live, unsent_types=ReadResult(None, error)))["path.empty-topics"]
    assert (unread.status, unread.seen, unread.remedy) == (Status.UNKNOWN, error.message, error.hint)


def test_topics_that_were_not_read_are_unknown(live: LiveState) -> None:
    kafka = live.kafka.value
    assert kafka is not None
    checks = run(replace(live, kafka=ReadResult(replace(kafka, misplaced_keys=None))))
    assert {name for name, check in checks.items() if check.status is Status.UNKNOWN} == {
        "path.empty-topics",
        "kafka.source-sequence",
    }


def with_unsequenced(live: LiveState) -> LiveState:
    """Return the live state with a record of another producer on the topic of books."""
    kafka = live.kafka.value
    assert kafka is not None
    records = UnsequencedRecords(has_sequences=True, _keys={(2, 877): "k"})
    return replace(live, kafka=ReadResult(replace(kafka, unsequenced={"library.book": records})))


def test_names_records_without_source_sequence(live: LiveState) -> None:
    """Only Spark jobs reject such a topic, so the check is a warning if no job of the topic does."""
    actual = run(with_unsequenced(live))["kafka.source-sequence"]
    assert (actual.status, actual.seen) == (Status.FAIL, "1 record without source_sequence: library.book 2/877 (k)")
    republish, configure, last = commands_of(actual.remedy)
    assert republish == last == "outbox republish book --key k --tombstones"
    assert "--topic library.book --add-config segment.ms=" in configure
    entries = live.deployment.pipeline.materializations
    quarantining = [entry.model_copy(update={"unsequenced_records": "quarantine"}) for entry in entries]
    for materializations in ([], quarantining, [entry for entry in entries if entry.aggregate != "book"]):
        pipeline = live.deployment.pipeline.model_copy(update={"materializations": materializations})
        changed = replace(live, deployment=replace(live.deployment, pipeline=pipeline))
        assert run(with_unsequenced(changed))["kafka.source-sequence"].status is Status.WARN


def test_limits_the_queries_of_business_tables(
    deployed: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    monkeypatch.setattr("psycopg.connect", FakePostgres().connect)
    monkeypatch.setattr(postgres_client, "read_column_types", lambda *_: {"id": "uuid"})
    monkeypatch.setattr(live_states, "live_keys", lambda *_, seconds, **__: limits.append(seconds))
    assert live_states._read_unsent_types(replace(deployed(), read_seconds=5), ["book"]) == []
    assert limits == [5]


def test_a_failing_query_of_an_empty_topic_is_reported_unless_its_table_does_not_exist(
    deployed: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psycopg.connect", FakePostgres().connect)
    monkeypatch.setattr(live_states, "live_keys", MagicMock(side_effect=ConfigurationError("no column")))
    monkeypatch.setattr(postgres_client, "read_column_types", lambda *_: {})
    assert live_states._read_unsent_types(deployed(), ["book"]) == []
    monkeypatch.setattr(postgres_client, "read_column_types", lambda *_: {"id": "uuid"})
    with pytest.raises(ConfigurationError, match="no column"):
        live_states._read_unsent_types(deployed(), ["book"])
