"""`dead-letter replay`, `drop` and `list --stale` on the embedded stack, for rows and for records of consumers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Message, Producer
from tests.integration.outbox_rows import insert
from tests.integration.support import CommandResult, Deploy, decode, headers, in_process, records, wait_record
from tests.integration.transforms.test_records import book, send

from outbox_events.contract.partitioner import partition_of
from outbox_events.kafka.topic_reader import read_record
from outbox_events.waiting import Observation, wait_for
from outbox_kit.dead_letters.acknowledgements import Acknowledged, Acknowledgements
from outbox_kit.deployment import Deployment, apply
from outbox_kit.kafka.client import client_settings
from outbox_kit.results import silent

NAME, TABLE, TOPIC, LETTERS = "replays", "public.replays_event", "replays.book", "replays.dead-letter"
PARTITIONS = 2
MAIL, MAIL_LETTERS, OTHER = "replays.mail", "mailer.dead-letter", "replays-other.mail"
VALUE = b"\x00\x00\x00\x00\xffbinary"
YES = ("--yes", "--output", "json")


@dataclass
class Service:
    """The pipeline of this module, and the service that writes its events."""

    deployment: Deployment
    dsn: str
    schema: Path

    def send(self, key: str, **changes: object) -> str:
        return send(self.dsn, "book", key, book(key, **changes), table=TABLE)

    def deliver(self, key: str, **changes: object) -> str:
        event = self.send(key, **changes)
        wait_record(self.deployment, TOPIC, PARTITIONS, event)
        return event

    def fail(self, key: str, **changes: object) -> tuple[str, str]:
        """Write an invalid row. Return its event id and the place of its dead letter."""
        event = self.send(key, **(changes or {"unknown": 1}))
        message = wait_record(self.deployment, LETTERS, 1, event)
        return event, place(message)

    def dead_letters(self, event: str) -> list[str]:
        """Return the places of the dead letters of an event."""
        found = records(self.deployment, LETTERS, 1)
        return [place(message) for message in found if headers(message)["event_id"] == event]

    def arrived(self, key: str) -> list[str]:
        """Return the event ids of the records of a key, in the order of the records."""
        found = records(self.deployment, TOPIC, PARTITIONS)
        return [headers(message)["event_id"] for message in found if message.key() == key.encode()]

    def add_field(self, name: str) -> None:
        """Add a field to the schema, and apply the schema."""
        schema = json.loads(self.schema.read_text())
        schema["fields"].append({"name": name, "type": ["null", "int"], "default": None})
        self.schema.write_text(json.dumps(schema))
        apply(self.deployment, silent)

    def execute(self, statement: str, *parameters: object) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode(), parameters)

    def row(self, event: str) -> tuple[Any, ...] | None:
        """Return the outbox row of an event as text, without its number."""
        query = f"select (to_jsonb(r) - 'seq')::text, payload::text from {TABLE} as r where id = %s"
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(query.encode(), (event,)).fetchone()

    def command(self, *arguments: str, code: int = 0) -> CommandResult:
        return in_process(self.deployment)("dead-letter", *arguments, code=code)

    def listed(self, *arguments: str) -> list[str]:
        """Return the places that `dead-letter list` prints."""
        done = self.command("list", *arguments, "--output", "json")
        return [dead_letter["place"] for dead_letter in json.loads(done.stdout)["dead_letters"]]


def place(message: Message) -> str:
    return f"{message.partition()}/{message.offset()}"


def refused(done: CommandResult) -> list[str]:
    return [entry["place"] for entry in json.loads(done.stdout)["refused"]]


@pytest.fixture(scope="module")
def service(deploy_once: Deploy, source_dsn: str, project: Path) -> Iterator[Service]:
    schema = project / "schemas" / "replays.avsc"
    schema.write_text((project / "schemas" / "book.avsc").read_text())
    backfill = {
        "table": "public.replays_book",
        "key": "id",
        "query": "select id as aggregate_id, state as payload from replays_book",
    }
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table replays_book (id text primary key, state jsonb not null)")
    aggregates = {"book": {"schema": "schemas/replays.avsc", "partitions": PARTITIONS, "backfill": backfill}}
    deployment = deploy_once(NAME, aggregates=aggregates)
    service = Service(deployment, source_dsn, schema)
    service.deliver(str(uuid4()))
    yield service
    service.command("acknowledge", "--all", "--yes")


def test_refuses_an_older_state_than_the_topic_has(service: Service) -> None:
    key = str(uuid4())
    event, dead_letter = service.fail(key)
    newer = service.deliver(key)
    done = service.command("replay", dead_letter, *YES, code=1)
    assert refused(done) == [dead_letter]
    assert "the topic has a newer record of book" in done.stderr
    service.deliver(str(uuid4()))
    assert service.arrived(key) == [newer]
    assert service.dead_letters(event) == [dead_letter]
    assert dead_letter in service.listed()
    service.command("drop", dead_letter)
    assert dead_letter not in service.listed()


def test_refuses_an_older_state_than_the_outbox_has(service: Service) -> None:
    """The newer event is a dead letter, too. It may have been replayed and not have arrived yet."""
    key = str(uuid4())
    _, older = service.fail(key)
    _, newer = service.fail(key)
    done = service.command("replay", older, *YES, code=1)
    assert refused(done) == [older]
    assert "is newer, or not delivered yet" in done.stderr
    for dead_letter in (older, newer):
        service.command("drop", dead_letter)


@pytest.mark.parametrize("command", ["pause", "stop"])
def test_refuses_at_once_if_the_connector_does_not_run(service: Service, command: str) -> None:
    """The slot of such a connector does not confirm events, so the command would wait in vain."""
    _, dead_letter = service.fail(str(uuid4()))
    outbox = in_process(service.deployment)
    outbox(command)
    try:
        done = service.command("replay", dead_letter, "--yes", code=1)
    finally:
        outbox("resume")
    assert "outbox resume" in done.stderr
    assert dead_letter in service.listed()
    service.command("drop", dead_letter)


@pytest.mark.parametrize("has_row", [True, False])
def test_delivers_the_same_event_after_the_schema_was_fixed(service: Service, *, has_row: bool) -> None:
    """The row no longer exists, so the event is read from the dead letter."""
    key, name = str(uuid4()), f"shelf_{has_row}".lower()
    before = service.deliver(key)
    event, dead_letter = service.fail(key, **{name: 7})
    service.add_field(name)
    if not has_row:
        service.execute(f"delete from {TABLE} where id = %s", event)
    assert json.loads(service.command("replay", dead_letter, *YES).stdout) == {"replayed": [dead_letter], "refused": []}
    message = wait_record(service.deployment, TOPIC, PARTITIONS, event)
    assert service.arrived(key) == [before, event]
    assert decode(service.deployment, "book", message)[name] == 7
    assert headers(message)["traceparent"] == "00-1-2-01"
    assert service.listed() == []
    again = service.command("replay", dead_letter, *YES, code=1)
    assert "was already delivered" in again.stderr


def test_inserts_the_columns_of_a_deleted_row(service: Service) -> None:
    key, payload = str(uuid4()), '{"exact": 0.10000000000000000000000000001, "text": "\\"\\\\ €", "none": null}'
    service.execute(f"alter table {TABLE} add blob bytea, add placed timestamp")
    event = insert(service.dsn, TABLE, "book", key, payload, headers='{"a": "b"}', blob="\\x00ff10")
    before, dead_letter = service.row(event), place(wait_record(service.deployment, LETTERS, 1, event))
    service.execute(f"delete from {TABLE} where id = %s", event)
    service.command("replay", dead_letter, *YES)
    assert service.row(event) == before
    wait_for("another dead letter", lambda: Observation(len(service.dead_letters(event)) == 2 or None, ""), seconds=60)

    other = insert(service.dsn, TABLE, "book", key, payload, placed="2026-11-20")
    dead_letter = place(wait_record(service.deployment, LETTERS, 1, other))
    service.execute(f"delete from {TABLE} where id = any(%s)", [event, other])
    done = service.command("replay", dead_letter, *YES, code=1)
    assert "does not contain placed (timestamp without time zone)" in done.stderr
    service.execute(f"alter table {TABLE} drop blob, drop placed")
    service.command("drop", "--all", "--yes")


def test_delivers_a_row_that_was_corrected(service: Service) -> None:
    key = str(uuid4())
    event, dead_letter = service.fail(key)
    service.execute(f"update {TABLE} set payload = payload - 'unknown' where id = %s", event)
    service.command("replay", dead_letter, *YES)
    wait_record(service.deployment, TOPIC, PARTITIONS, event)


@pytest.mark.parametrize(("kind", "key"), [("book", "still-invalid"), ("nobody", "k")])
def test_a_row_that_is_still_invalid_becomes_a_dead_letter_again(service: Service, kind: str, key: str) -> None:
    event = insert(service.dsn, TABLE, kind, key, "{}")
    dead_letter = place(wait_record(service.deployment, LETTERS, 1, event))
    service.command("replay", dead_letter, *YES)

    def poll() -> Observation[list[str]]:
        dead_letters = service.dead_letters(event)
        return Observation(dead_letters if len(dead_letters) == 2 else None, str(dead_letters))

    _, again = wait_for("the second dead letter", poll, seconds=60)
    assert service.listed() == [again]
    service.command("drop", again)


def test_replays_all_events_of_an_aggregate_in_their_order(service: Service) -> None:
    key, other = str(uuid4()), str(uuid4())
    dead_letters = [service.fail(key, rank=1), service.fail(other), service.fail(key, rank=2)]
    superseding = service.deliver(other)
    service.add_field("rank")
    done = service.command("replay", "--all", *YES, code=1)
    assert refused(done) == [dead_letters[1][1]]
    wait_record(service.deployment, TOPIC, PARTITIONS, dead_letters[2][0])
    assert service.arrived(key) == [dead_letters[0][0], dead_letters[2][0]]
    assert service.arrived(other) == [superseding]
    assert service.listed() == [dead_letters[1][1]]
    service.command("drop", "--all", "--yes")


def test_an_event_that_was_replayed_is_not_newer_than_a_later_one(service: Service) -> None:
    key = str(uuid4())
    first, older = service.fail(key, weight=1)
    service.add_field("weight")
    second, newer = service.fail(key, mass=1)
    service.execute(f"delete from {TABLE} where id = %s", second)  # only its dead letter still shows the event
    service.command("replay", older, *YES)
    wait_record(service.deployment, TOPIC, PARTITIONS, first)
    assert service.listed("--stale") == [newer]
    service.add_field("mass")
    service.command("replay", newer, *YES)
    wait_record(service.deployment, TOPIC, PARTITIONS, second)
    assert service.arrived(key) == [first, second]


def test_republishes_the_latest_state(service: Service) -> None:
    key = str(uuid4())
    event, dead_letter = service.fail(key)
    unknown, other = service.fail(str(uuid4()))
    service.execute("insert into replays_book values (%s, %s)", key, json.dumps(book(key, price="1.50")))
    done = service.command("replay", "--all", "--republish", *YES, code=1)
    assert json.loads(done.stdout)["replayed"] == [dead_letter]
    assert refused(done) == [other]
    wait_for(
        "the latest state",
        lambda: Observation(service.arrived(key) or None, "no record"),
        seconds=60,
    )
    assert event not in service.arrived(key)
    assert service.listed() == [other]
    assert unknown not in service.arrived(key)
    service.command("drop", other)


def test_lists_exactly_the_stale_dead_letters(service: Service) -> None:
    stale, superseded, unknown = str(uuid4()), str(uuid4()), str(uuid4())
    service.deliver(stale)
    _, expected = service.fail(stale)
    _, healed = service.fail(superseded)
    service.deliver(superseded)
    event = send(service.dsn, "nobody", unknown, {"s3cret": 1}, table=TABLE)
    without_topic = place(wait_record(service.deployment, LETTERS, 1, event))
    assert service.listed() == [expected, healed, without_topic]
    assert service.listed("--stale") == [expected]
    assert "s3cret" not in service.command("list", "--stale").output
    service.command("acknowledge", "--to", without_topic)
    assert service.listed("--stale") == []
    assert expected in service.listed("--stale", "--all")


def test_asks_before_a_replay(service: Service) -> None:
    _, dead_letter = service.fail(str(uuid4()))
    done = service.command("replay", dead_letter, code=1)
    assert "--yes is required" in done.stderr
    assert service.listed() == [dead_letter]
    assert "exactly one of" in service.command("replay", code=2).stderr
    service.command("drop", dead_letter)


def test_purges_acknowledged_letters(service: Service) -> None:
    _, first = service.fail(str(uuid4()))
    _, second = service.fail(str(uuid4()))
    service.command("drop", second)
    service.command("drop", "--purge", "--yes")
    assert service.listed("--all") == [first, second]
    service.command("drop", first, "--purge", "--yes")
    assert service.listed("--all") == []


@dataclass
class Mailer:
    """A consumer group whose handler failed. It writes the dead letters that outbox_events.receiving writes."""

    service: Service
    producer: Producer
    letters: str = MAIL_LETTERS

    def produce(self, topic: str, key: bytes, sequence: str, partition: int = 0, **more: str) -> Message:
        """Write a record. Return it as a consumer reads it."""
        delivered: list[Message] = []
        event_headers = {"event_id": str(uuid4()), "source_sequence": sequence, "traceparent": "00-1", **more}
        self.producer.produce(
            topic,
            VALUE,
            key,
            partition,
            on_delivery=lambda _, message: delivered.append(message),
            headers=[(name, text.encode()) for name, text in event_headers.items()],
        )
        assert self.producer.flush(30) == 0
        settings = client_settings(self.service.deployment.environment.kafka)
        read = read_record(settings, topic, delivered[0].partition() or 0, delivered[0].offset() or 0)
        assert read is not None
        return read

    def fail(self, record: Message) -> str:
        """Write the dead letter of a record. Return the place of the dead letter."""
        cause = {
            "dead_letter_reason": "SMTPError",
            "dead_letter_message": "SMTPError: refused",
            "dead_letter_group": "mailer",
            "dead_letter_topic": str(record.topic()),
            "dead_letter_partition": str(record.partition()),
            "dead_letter_offset": str(record.offset()),
            "dead_letter_attempts": "3",
        }
        key = record.key()
        assert isinstance(key, bytes)
        return place(self.produce(self.letters, key, "", **{**headers(record), **cause}))

    def command(self, *arguments: str, code: int = 0) -> CommandResult:
        return self.service.command(*arguments, "--topic", self.letters, code=code)

    def listed(self, *arguments: str) -> list[str]:
        return self.service.listed("--topic", self.letters, *arguments)


@pytest.fixture(scope="module")
def mailer(service: Service) -> Mailer:
    kafka = service.deployment.kafka
    for topic, partitions in ((MAIL, 3), (MAIL_LETTERS, 1)):
        kafka.create(topic, partitions=partitions, replication_factor=1, config={"cleanup.policy": "delete"})
    return Mailer(service, Producer({**client_settings(kafka.kafka), "enable.idempotence": True}))


def sequence(number: int) -> str:
    return f"0001_{number:016x}-{number:016x}"


def test_sends_a_record_to_its_partition_with_its_headers(mailer: Mailer) -> None:
    """The partition differs from the partition of the key's hash."""
    key = next(key for key in (b"%d" % number for number in range(99)) if partition_of(key, 3) != 2)
    original = mailer.produce(MAIL, key, sequence(1), partition=2)
    mailer.produce(MAIL, key, sequence(2), partition=2)  # not a state topic, so every event matters
    dead_letter = mailer.fail(original)
    (listed,) = json.loads(mailer.command("list", "--output", "json").stdout)["dead_letters"]
    assert (listed["group"], listed["topic"], listed["reason"]) == ("mailer", MAIL, "SMTPError")
    assert "binary" not in mailer.command("list").output
    assert json.loads(mailer.command("show", dead_letter).stdout)["value_base64"] == base64.b64encode(VALUE).decode()
    mailer.command("replay", dead_letter, *YES)
    found = [message for message in records(mailer.service.deployment, MAIL, 3) if message.key() == key]
    assert len(found) == 3
    assert (found[-1].partition(), found[-1].value(), found[-1].headers()) == (
        2,
        original.value(),
        original.headers(),
    )
    assert mailer.listed() == []


def test_refuses_a_record_of_a_state_topic_with_a_newer_one(mailer: Mailer) -> None:
    """The order is determined by source_sequence, not by the offset."""
    key = str(uuid4()).encode()
    newest = mailer.produce(TOPIC, key, sequence(3))
    older = mailer.produce(TOPIC, key, sequence(2))
    dead_letters = [mailer.fail(older), mailer.fail(newest)]
    assert mailer.listed("--stale") == [dead_letters[1]]
    done = mailer.command("replay", "--all", *YES, code=1)
    assert refused(done) == [dead_letters[0]]
    assert "is compacted and has a newer record" in done.stderr
    assert f"drop {dead_letters[0]} --topic " in done.stderr
    assert mailer.service.arrived(key.decode())[2:] == [headers(newest)["event_id"]]
    assert mailer.listed() == [dead_letters[0]]
    mailer.command("drop", dead_letters[0])


def test_refuses_a_record_without_a_topic(mailer: Mailer) -> None:
    reason = {"dead_letter_reason": "SMTPError"}
    lost: dict[str, Any] = {"dead_letter_topic": MAIL, "dead_letter_partition": "9", "dead_letter_offset": "0"}
    record = mailer.produce(MAIL_LETTERS, b"k", "", **reason, **lost)
    assert "has no partition 9" in mailer.command("replay", place(record), *YES, code=1).stderr
    mailer.command("acknowledge", "--all", "--yes")
    assert mailer.listed() == []
    record = mailer.produce(MAIL_LETTERS, b"k", "", **reason)
    assert refused(mailer.command("replay", place(record), *YES, code=1)) == [place(record)]
    for change in (("acknowledge", "--all", "--yes"), ("drop", place(record))):
        mailer.command(*change, code=1)
    assert mailer.listed() == [place(record)]


def test_changes_no_dead_letters_of_another_pipeline(mailer: Mailer) -> None:
    """The consumer also reads topics of other pipelines, so that one dead letter topic has dead letters of all."""
    kafka, letters = mailer.service.deployment.kafka, "replays-shared.dead-letter"
    acknowledged_by_other = f"{OTHER.rpartition('.')[0]}.dead-letter.acknowledged"  # every pipeline has this topic
    for topic in (OTHER, letters, acknowledged_by_other):
        kafka.create(topic, partitions=1, replication_factor=1, config={"cleanup.policy": "delete"})
    mailer = replace(mailer, letters=letters)
    own, foreign = (mailer.fail(mailer.produce(topic, b"k", "")) for topic in (MAIL, OTHER))
    for arguments in (f"acknowledge --to {foreign}", "acknowledge --all --yes", f"drop {foreign}", "drop --all --yes"):
        done = mailer.command(*arguments.split(), code=1)
        assert f"is of topic {OTHER}" in done.stderr, done.output
    assert mailer.listed() == [own, foreign]

    done = mailer.command("replay", "--all", *YES, code=1)
    assert json.loads(done.stdout)["replayed"] == [own]
    assert refused(done) == [foreign]
    assert kafka.bounds(OTHER)[0].end == 1
    assert mailer.listed() == [foreign]
    mailer.command("drop", "--purge", "--yes")
    assert mailer.listed("--all") == [foreign]

    acknowledgements = Acknowledgements(kafka, mailer.service.deployment.pipeline.acknowledgement_topic, letters)
    acknowledgements.write({0: Acknowledged(kafka.bounds(letters)[0].end)})  # by an earlier version
    assert f"is of topic {OTHER}" in mailer.command("drop", "--purge", "--yes", code=1).stderr
    assert mailer.listed("--all") == [foreign]


@pytest.mark.parametrize("command", ["list --all", "show", "drop", "drop --all --purge", "acknowledge --all", "replay"])
def test_refuses_a_topic_of_events(mailer: Mailer, command: str) -> None:
    """--purge would delete the events."""
    record = mailer.produce(MAIL, b"k", "")
    single = [place(record)] if "--all" not in command else []
    confirmed = YES if command.startswith(("drop", "acknowledge", "replay")) else ()
    arguments = (*command.split(), *single, "--topic", MAIL, *confirmed)
    done = mailer.service.command(*arguments, code=1)
    assert f"topic {MAIL} is not a dead letter topic" in done.stderr
    bounds = mailer.service.deployment.kafka.bounds(MAIL)
    assert bounds[0].first == 0
    assert records(mailer.service.deployment, MAIL, 3)
