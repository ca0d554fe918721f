"""Checks of `verify --states`: stuck aggregates, dead letters of stale aggregates, and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import Message
from tests.unit.fake_topic import FakeTopic, Record
from tests.unit.operations.samples import backfilled

from outbox_events.errors import ConfigurationError, OutboxError, RefusedError, WaitTimeoutError
from outbox_kit.dead_letters.dead_letter import DeadLetter, Place
from outbox_kit.dead_letters.dead_letter_topic import DeadLetterTopic
from outbox_kit.deployment import Deployment
from outbox_kit.kafka.client import KafkaClient
from outbox_kit.operations.state_comparison import ComparisonResult, StateComparison, StuckAggregate
from outbox_kit.postgres.aggregate_queries import UnreadableStatesError
from outbox_kit.registry.client import RegistryClient, SchemaVersion
from outbox_kit.results import silent
from outbox_kit.results.checks import Check, Status
from outbox_kit.verification import comparison_of, state_checks

Deployed = Callable[..., Deployment]
ALL_COMPARED = {"author": {"a"}, "book": {"k", "l"}}
OLD, NEW = f"0001_{0:016x}-{1:016x}", f"0001_{0:016x}-{2:016x}"


def dead_letter(key: str = "k", aggregate_type: str = "book", sequence: str = OLD) -> DeadLetter:
    time = datetime(2026, 11, 20, tzinfo=UTC)
    return DeadLetter(Place(0, 7), time, aggregate_type, key, "e", "payload-invalid", "why", sequence, record=Message())


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> FakeTopic:
    """The topic of every aggregate type."""
    return FakeTopic(monkeypatch)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, topic: FakeTopic) -> Callable[..., dict[str, Check]]:
    """Return a function that runs the checks on a result of the comparison, and on the given dead letters."""

    def run(
        deployment: Deployment, result: ComparisonResult | OutboxError, dead_letters: list[DeadLetter]
    ) -> dict[str, Check]:
        def compare(comparison: StateComparison, _: object) -> ComparisonResult:
            if isinstance(result, OutboxError):
                raise result
            for name in result.compared_keys:
                comparison.topic(name).read()
            return result

        monkeypatch.setattr(StateComparison, "run", compare)
        monkeypatch.setattr(KafkaClient, "topics", lambda _: {"library.book-v2": (1, 1), "library.book": (1, 1)})
        # All dead letters are acknowledged, so that only `list_all` returns them.
        monkeypatch.setattr(
            DeadLetterTopic,
            "read",
            lambda *_, list_all, limit, **__: dead_letters[:limit] if list_all else [],
        )
        comparison = comparison_of(deployment, seconds=5, max_records=10)
        return {item.id: item for item in state_checks.check(comparison, silent)}

    assert topic.records == []
    return run


def statuses(checks: dict[str, Check]) -> list[Status]:
    return [checks[rule.id].status for rule in state_checks.RULES]


def test_passes_if_every_state_is_confirmed(deployed: Deployed, check: Callable[..., dict[str, Check]]) -> None:
    actual = check(backfilled(deployed(), "author", "book"), ComparisonResult([], ALL_COMPARED), [])
    assert statuses(actual) == [Status.PASS, Status.PASS, Status.UNKNOWN, Status.PASS, Status.PASS, Status.PASS]
    assert actual["states.complete"].seen == "3 aggregates compared"


@pytest.mark.parametrize(
    ("different", "sampled", "status", "command"),
    [
        (["k"], set(), Status.FAIL, "`outbox stuck --resend`"),
        (["k"], {"book"}, Status.FAIL, "`outbox backfill --restart`"),
        ([], set(), Status.PASS, ""),
    ],
    ids=["all values compared", "a sample", "equal"],
)
def test_lists_aggregates_with_other_values(
    deployed: Deployed,
    check: Callable[..., dict[str, Check]],
    different: list[str],
    sampled: set[str],
    status: Status,
    command: str,
) -> None:
    entries = [StuckAggregate("book", key, "different", fields=("title",)) for key in different]
    result = ComparisonResult(entries, ALL_COMPARED, {"author": 1, "book": 2}, sampled)
    actual = check(backfilled(deployed(), "author", "book"), result, [])
    assert (actual["states.equal"].status, actual["states.complete"].status) == (status, Status.PASS)
    assert command in actual["states.equal"].remedy
    assert ("book k (title)" in actual["states.equal"].seen) is bool(different)


@pytest.mark.parametrize("error_type", [UnreadableStatesError, ConfigurationError])
def test_unreadable_business_tables_fail_the_comparison(
    deployed: Deployed, check: Callable[..., dict[str, Check]], error_type: type[OutboxError]
) -> None:
    """A comparison that is always skipped would never report a wrong state."""
    actual = check(deployed(), error_type("hidden", "run `alter role admin bypassrls`"), [])
    assert statuses(actual) == [Status.FAIL, *[Status.UNKNOWN] * 5]
    assert "`alter role admin bypassrls`" in actual["states.compared"].remedy


def test_lists_stuck_aggregates(deployed: Deployed, check: Callable[..., dict[str, Check]]) -> None:
    stuck = [StuckAggregate("book", f"k{number}", "stale") for number in range(7)]
    deployment = backfilled(deployed(), "author", "book")
    actual = check(deployment, ComparisonResult(stuck, ALL_COMPARED), [])["states.complete"]
    assert actual.status is Status.FAIL
    assert actual.seen.startswith("7 stuck aggregates: book k0 (stale), ")
    assert ", ...; 3 compared" in actual.seen
    assert "library.book-v2" in actual.seen
    assert "k5" not in actual.seen
    assert actual.remedy.endswith("run `outbox stuck --resend`")


UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("ghost", "live", "is_other_form"),
    [
        (UUID.upper(), UUID, True),
        (f'"{UUID}"', UUID, True),
        (UUID, UUID.replace("-", ""), True),
        (f"{{{UUID}}}", UUID, True),
        ("0042", "42", True),
        ("de  ", "DE", True),
        ("10-1", "101", False),
        ("a0", "a", False),
        (UUID, UUID[:-1], False),
    ],
)
def test_names_keys_in_another_form(
    deployed: Deployed, check: Callable[..., dict[str, Check]], ghost: str, live: str, is_other_form: bool
) -> None:
    """The ghost itself is one of the compared keys if it has an outbox row."""
    deployment = backfilled(deployed(), "author", "book")
    result = ComparisonResult([StuckAggregate("book", ghost, "ghost")], {"book": {ghost, live}})
    actual = check(deployment, result, [])["states.complete"].seen
    assert (f"{ghost!r}, not {live!r}" in actual) is is_other_form


@pytest.mark.parametrize(
    ("schema_name", "status"), [("Book", Status.PASS), ("Author", Status.FAIL), (None, Status.FAIL)]
)
def test_finds_states_whose_schema_id_belongs_to_another_schema(
    deployed: Deployed,
    topic: FakeTopic,
    check: Callable[..., dict[str, Check]],
    monkeypatch: pytest.MonkeyPatch,
    schema_name: str | None,
    status: Status,
) -> None:
    """This happens after a rebuild of the registry. Tombstones are not examined."""
    topic.append(Record(b"k", b"\0\0\0\0\7x", OLD), Record(b"l", None, OLD))
    text = f'{{"type": "record", "name": "io.outboxkit.library.{schema_name}", "fields": []}}'
    schema = SchemaVersion(1, 7, text) if schema_name else None
    monkeypatch.setattr(RegistryClient, "by_id", lambda _, number: schema if number == 7 else None)
    actual = check(backfilled(deployed(), "book"), ComparisonResult([], {"book": {"k"}}), [])["states.schema-ids"]
    assert actual.status is status
    assert ("1 state of book with id 7" in actual.seen) is (status is Status.FAIL)
    assert "`outbox backfill --restart book`" in actual.remedy or status is Status.PASS


@pytest.mark.parametrize(("other", "status"), [(b"\0\0\0\0\7x", Status.FAIL), (b"y", Status.PASS)])
def test_finds_states_without_a_schema_id(
    deployed: Deployed,
    topic: FakeTopic,
    check: Callable[..., dict[str, Check]],
    monkeypatch: pytest.MonkeyPatch,
    other: bytes,
    status: Status,
) -> None:
    """Another producer has written them, unless the values of all states have another format."""
    topic.append(Record(b"k", b"x", OLD), Record(b"l", other, OLD))
    text = '{"type": "record", "name": "io.outboxkit.library.Book", "fields": []}'
    monkeypatch.setattr(RegistryClient, "by_id", lambda *_: SchemaVersion(1, 7, text))
    actual = check(backfilled(deployed(), "book"), ComparisonResult([], {"book": {"k"}}), [])["states.schema-ids"]
    assert actual.status is status


def test_remedy_without_a_backfill(deployed: Deployed, check: Callable[..., dict[str, Check]]) -> None:
    """`outbox stuck --resend` refuses such a type, because it cannot read its states."""
    stuck = [StuckAggregate("book", "k", "missing")]
    actual = check(backfilled(deployed()), ComparisonResult(stuck, ALL_COMPARED), [])["states.complete"]
    assert "have the service write the states of book again" in actual.remedy


def test_warns_of_types_that_are_not_compared(deployed: Deployed, check: Callable[..., dict[str, Check]]) -> None:
    actual = check(backfilled(deployed()), ComparisonResult([], {"book": {"k"}}), [])
    assert statuses(actual) == [Status.WARN, Status.PASS, Status.UNKNOWN, Status.PASS, Status.PASS, Status.PASS]
    assert actual["states.compared"].seen == "not compared: author"
    actual = check(backfilled(deployed()), ComparisonResult([], {}), [])
    assert statuses(actual) == [Status.WARN, Status.UNKNOWN, Status.UNKNOWN, Status.PASS, Status.PASS, Status.PASS]


@pytest.mark.parametrize(
    ("records", "stuck", "dead_letters", "stale"),
    [
        ([Record(b"k", b"x", OLD)], [], [dead_letter(sequence=NEW)], True),
        ([Record(b"k", b"x", NEW)], [], [dead_letter(sequence=OLD)], False),
        ([Record(b"k", None, NEW)], [], [dead_letter(sequence=OLD)], False),
        ([Record(b"k", b"x", NEW)], ["k"], [dead_letter(sequence=OLD)], True),
        ([], ["k"], [dead_letter()], True),
        ([], [], [dead_letter()], False),
        ([], [], [dead_letter(aggregate_type="unknown")], False),
    ],
    ids=[
        "newer than the state",
        "a later state has arrived",
        "deleted later",
        "a later row has not arrived",
        "no state",
        "the aggregate was deleted: its tombstone is compacted",
        "of no topic",
    ],
)
def test_names_dead_letters_of_stale_aggregates(
    deployed: Deployed,
    topic: FakeTopic,
    check: Callable[..., dict[str, Check]],
    records: list[Record],
    stuck: list[str],
    dead_letters: list[DeadLetter],
    stale: bool,
) -> None:
    """Whether a dead letter is acknowledged makes no difference."""
    topic.append(*records)
    result = ComparisonResult([StuckAggregate("book", key, "stale") for key in stuck], ALL_COMPARED)
    actual = check(backfilled(deployed(), "author", "book"), result, dead_letters)["states.dead-letters"]
    assert actual.status is (Status.FAIL if stale else Status.PASS)
    assert ("0/7 book k (payload-invalid)" in actual.seen) is stale
    assert ("`outbox republish book --key k`" in actual.remedy) is stale


def test_reads_the_topics_of_dead_letters_that_were_not_compared(
    deployed: Deployed, topic: FakeTopic, check: Callable[..., dict[str, Check]]
) -> None:
    """The outbox rows of the type were deleted, and it has no `backfill`: the dead letter is the only evidence."""
    topic.append(Record(b"k", b"x", OLD))
    result = ComparisonResult([], {"author": {"a"}})
    dead_letters = [dead_letter(sequence=NEW), dead_letter("gone")]
    actual = check(backfilled(deployed()), result, dead_letters)["states.dead-letters"]
    assert "book k " in actual.seen
    assert "book gone " in actual.seen
    assert "have the service write the states of book again" in actual.remedy


def test_quotes_keys_in_the_remedy(deployed: Deployed, check: Callable[..., dict[str, Check]]) -> None:
    result = ComparisonResult([StuckAggregate("book", "a b", "missing")], ALL_COMPARED)
    actual = check(backfilled(deployed(), "author", "book"), result, [dead_letter("a b")])["states.dead-letters"]
    assert "--key 'a b'`" in actual.remedy


@pytest.mark.parametrize(
    "error", [WaitTimeoutError("waited 5 s for the topic"), RefusedError("too many records", "allow more")]
)
def test_is_unknown_beyond_its_limits(
    deployed: Deployed, check: Callable[..., dict[str, Check]], error: OutboxError
) -> None:
    actual = check(deployed(), error, [])
    assert set(statuses(actual)) == {Status.UNKNOWN}
    assert all(error.message in item.seen and error.hint in item.seen for item in actual.values())


def test_is_unknown_without_an_outbox_table(deployed: Deployed) -> None:
    deployment = deployed()
    source = deployment.pipeline.source.model_copy(update={"message_prefix": "outbox"})
    pipeline = deployment.pipeline.model_copy(update={"source": source})
    comparison = comparison_of(replace(deployment, pipeline=pipeline), seconds=5, max_records=10)
    actual = {item.id: item for item in state_checks.check(comparison, silent)}
    assert set(statuses(actual)) == {Status.UNKNOWN}


def test_too_many_dead_letters_leave_the_comparison(
    deployed: Deployed, check: Callable[..., dict[str, Check]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_checks, "MAX_DEAD_LETTERS", 1)
    deployment = backfilled(deployed(), "author", "book")
    actual = check(deployment, ComparisonResult([], ALL_COMPARED), [dead_letter(), dead_letter("l")])
    assert statuses(actual) == [Status.PASS, Status.PASS, Status.UNKNOWN, Status.PASS, Status.PASS, Status.UNKNOWN]


def test_names_records_without_source_sequence(
    deployed: Deployed,
    check: Callable[..., dict[str, Check]],
    topic: FakeTopic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log cleaner has removed one of the records since the topic was read."""
    topic.append(Record(b"k", b"x", OLD), Record(b"k", b"x", ""), Record(b"l", b"x", ""))
    monkeypatch.setattr(state_checks, "read_record", lambda *place: place[1:] == ("library.book", 0, 2) or None)
    actual = check(deployed(), ComparisonResult([], {"book": {"k"}}), [])["states.source-sequence"]
    assert (actual.status, actual.seen) == (Status.FAIL, "1 record without source_sequence: library.book 0/2 (l)")
