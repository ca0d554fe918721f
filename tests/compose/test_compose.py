"""End-to-end test of compose.yaml, in the order of operation from `apply` to a stop and a restart."""

from __future__ import annotations

import re
import threading
from collections import Counter
from contextlib import closing
from decimal import Decimal
from uuid import uuid4

import psycopg
import pytest
import yaml
from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.compose.compose_stack import REPOSITORY, ComposeStack
from tests.integration.support import CommandResult, headers, records
from tests.integration.transforms.test_records import book, send

from outbox_events import emit
from outbox_events.waiting import Observation, wait_for

TOPIC, PARTITIONS = "library.book", 4
SERVICES = ("postgres", "kafka", "registry", "connect-1", "connect-2")
ARRIVE_SECONDS = 90
COMMITTED_SECONDS = 60
EVENTS, KEYS = 3000, 20
CHAIN = {
    "name": "chain",
    "prefix": "chain",
    "source": {"table": "public.chain_event", "publication": "chain_outbox", "slot": "chain_outbox"},
    "aggregates": {"book": {"schema": "schemas/book.avsc", "partitions": 1}},
    "connector": {"name": "chain-outbox", "template": "outbox-postgres-chain"},
}


@pytest.fixture(scope="module")
def stack(stack_in_containers: ComposeStack) -> ComposeStack:
    """The stack with the worked example applied."""
    done = stack_in_containers.outbox("apply", "--yes")
    assert done.code == 0, done.output
    return stack_in_containers


def wait_for_events(stack: ComposeStack, events: set[str]) -> list[Message]:
    """Wait until every event is on the topic. Return all records of the topic."""

    def poll() -> Observation[list[Message]]:
        with stack.deployment() as deployment:
            actual = records(deployment, TOPIC, PARTITIONS)
        missing = events - {headers(message)["event_id"] for message in actual}
        return Observation(None if missing else actual, f"{len(missing)} of {len(events)} events missing")

    return wait_for(f"{len(events)} events on {TOPIC}", poll, seconds=ARRIVE_SECONDS, interval=1.0)


def wait_running(stack: ComposeStack) -> CommandResult:
    """Return the output of `outbox status` once the connector and its task are RUNNING on any worker."""

    def poll() -> Observation[CommandResult]:
        result = stack.outbox("status")
        return Observation(result if result.code == 0 else None, result.output)

    return wait_for("the connector to run", poll, seconds=ARRIVE_SECONDS, interval=1.0)


def test_verify_and_plan_report_no_changes_after_apply(stack: ComposeStack) -> None:
    verified = stack.outbox("verify")
    assert verified.code == 0, verified.output
    planned = stack.outbox("plan")
    assert planned.code == 0, planned.output
    assert "no changes" in planned.stderr


def test_every_container_has_limits_and_local_ports(stack: ComposeStack) -> None:
    for service in SERVICES:
        attributes = stack.container(service).attrs
        bindings = [item for ports in attributes["HostConfig"]["PortBindings"].values() for item in ports]
        assert {item["HostIp"] for item in bindings} == {"127.0.0.1"}, service
        assert attributes["HostConfig"]["Memory"] > 0, service
        assert attributes["HostConfig"]["LogConfig"]["Config"] == {"max-size": "10m", "max-file": "3"}, service
        assert attributes["State"]["Health"]["Status"] == "healthy", service
        assert attributes["Config"]["User"] == "outbox", service


def test_materializes_the_same_table_in_and_outside_a_container(stack: ComposeStack) -> None:
    retained, changed, removed = (str(uuid4()) for _ in range(3))
    events = {
        send(stack.source_dsn, "book", key, book(key, price=Decimal("1.10"))) for key in (retained, changed, removed)
    }
    wait_for_events(stack, events)
    in_container = stack.command("run", "--rm", "spark")
    assert in_container.code == 0, in_container.output
    query = "select id::text, price from book order by id"
    assert stack.rows(query) == sorted((key, Decimal("1.10")) for key in (retained, changed, removed))

    events = {
        send(stack.source_dsn, "book", changed, book(changed, price=Decimal("2.20"))),
        send(stack.source_dsn, "book", removed, None),
    }
    wait_for_events(stack, events)
    on_host = stack.materialize()
    assert on_host.code == 0, on_host.output
    assert stack.rows(query) == sorted([(retained, Decimal("1.10")), (changed, Decimal("2.20"))])


def test_no_lost_or_duplicate_rows_after_a_killed_worker(stack: ComposeStack) -> None:
    with stack.deployment() as deployment:
        status = deployment.connect.status("library-outbox")
    assert status is not None
    worker = status.workers[1].partition(":")[0]  # the task's worker; the connector's may differ
    keys = [str(uuid4()) for _ in range(KEYS)]
    sent: list[tuple[str, str]] = []
    killable = threading.Event()

    def write() -> None:
        with psycopg.connect(stack.source_dsn) as connection:
            for number in range(EVENTS):
                key = keys[number % KEYS]
                event = emit(
                    connection,
                    aggregate_type="book",
                    aggregate_id=key,
                    event_type="book_changed",
                    payload=book(key, pages=number),
                )
                connection.commit()
                sent.append((key, str(event)))
                if number == EVENTS // 3:
                    killable.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert killable.wait(COMMITTED_SECONDS)
    stack.container(worker).kill()
    writer.join(COMMITTED_SECONDS)
    assert len(sent) == EVENTS

    actual = [message for message in wait_for_events(stack, {event for _, event in sent}) if key_of(message) in keys]
    counts = Counter(headers(message)["event_id"] for message in actual)
    assert set(counts.values()) == {1}
    for key in keys:
        events_of_key = [headers(message)["event_id"] for message in actual if key_of(message) == key]
        assert events_of_key == [event for sent_key, event in sent if sent_key == key]
    result = wait_running(stack)
    assert f"note: cannot reach Kafka Connect at {stack.connect(int(worker[-1]))}" in result.stderr
    stack.container(worker).start()
    stack.wait_worker(int(worker[-1]))
    stack.wait_healthy(worker)


def test_transform_chain_connects_to_the_registry_in_a_container(stack: ComposeStack) -> None:
    """The converter must use connector_url, because this machine's registry address is invalid inside the container."""
    path = stack.project / "connectors" / "chain.yaml"
    path.write_text(yaml.safe_dump(CHAIN))
    for command in (("apply", "--yes"), ("verify",)):
        done = stack.outbox("-p", str(path), *command)
        assert done.code == 0, done.output


def test_restarted_registry_returns_old_schemas(stack: ComposeStack) -> None:
    key = str(uuid4())
    old = send(stack.source_dsn, "book", key, book(key, title="before"))
    wait_for_events(stack, {old})
    stack.container("registry").restart()
    during = send(stack.source_dsn, "book", key, book(key, title="during"))
    stack.wait_healthy("registry")
    new = send(stack.source_dsn, "book", key, book(key, title="after"))
    actual = {headers(item)["event_id"]: item for item in wait_for_events(stack, {old, during, new})}

    context = SerializationContext(TOPIC, MessageField.VALUE)
    with closing(SchemaRegistryClient({"url": stack.registry})) as client:
        decode = AvroDeserializer(client)
        titles = [decode(actual[event].value(), context)["title"] for event in (old, during, new)]
    assert titles == ["before", "during", "after"]
    assert len({actual[event].value()[:5] for event in (old, during, new)}) == 1
    verified = stack.outbox("verify")
    assert verified.code == 0, verified.output


def test_keeps_all_rows_over_stop_and_start(stack: ComposeStack) -> None:
    key = str(uuid4())
    wait_for_events(stack, {send(stack.source_dsn, "book", key, book(key))})
    stopped = stack.command("stop")
    assert stopped.code == 0, stopped.output
    ended = {service: stack.container(service).attrs["State"]["ExitCode"] for service in SERVICES}
    # 143 means that the JVM ended after SIGTERM and its shutdown hooks; 137 would mean SIGKILL.
    assert set(ended.values()) <= {0, 143}, ended
    started = stack.command("up", "-d", "--wait", *SERVICES)
    assert started.code == 0, started.output
    event = send(stack.source_dsn, "book", key, None)
    wait_for_events(stack, {event})
    planned = stack.outbox("plan")
    assert planned.code == 0, planned.output


def key_of(message: Message) -> str:
    key = message.key()
    assert isinstance(key, bytes)
    return key.decode()


def test_images_have_the_documented_sizes_and_users(stack: ComposeStack) -> None:
    """Compare each image's user and size with docs/containers.md. Over 10 % difference indicates another base image."""
    text = (REPOSITORY / "docs" / "containers.md").read_text()
    rows = re.findall(r"^\| `(outbox-kit/\w+)` \| `(\w+)` \| (\d+) MB \|", text, re.MULTILINE)
    assert len(rows) == 7
    for name, user, size in rows:
        image = stack.engine.images.get(name)
        assert image.attrs["Config"]["User"] == user, name
        assert image.attrs["Size"] / 1e6 == pytest.approx(int(size), rel=0.1), name
