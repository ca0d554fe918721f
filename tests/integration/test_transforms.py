"""The transforms' options in the live worker: what a row may hold, what becomes of it, each as a consumer sees it."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import fastavro
import psycopg
import pytest
import requests
import yaml
from confluent_kafka import Message
from psycopg import sql
from tests.integration.support import Deploy, arrived, decode, headers, records
from tests.integration.test_records import book, murmur2_partition

from outbox_kit.checking import Status
from outbox_kit.connect import apply as connect_apply
from outbox_kit.connect.client import ConnectorStatus
from outbox_kit.deployment import Deployment, apply, open_deployment
from outbox_kit.linting.config import transforms
from outbox_kit.pipeline import load_files, render_connector
from outbox_kit.progress import silent
from outbox_kit.sending.values import to_json
from outbox_kit.stack import Stack, StackState
from outbox_kit.stack.layout import Layout
from outbox_kit.verification import verify
from outbox_kit.waiting import Seen, wait_for

RUNNING = "connector RUNNING, tasks: RUNNING"


def insert(
    dsn: str, table: str, kind: str, key: str, payload: str | bytes | None, *, event_type: str = "Changed", **more: str
) -> str:
    """One outbox row in a transaction of its own; returns its id. `more` are further columns."""
    event = str(uuid4())
    row = {"id": event, "aggregate_type": kind, "aggregate_id": key, "event_type": event_type, "payload": payload}
    row |= more
    statement = sql.SQL("insert into {} ({}) values ({})").format(
        sql.Identifier(*table.split(".")),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join([sql.Placeholder()] * len(row)),
    )
    with psycopg.connect(dsn) as connection:
        connection.execute(statement, list(row.values()))
    return event


def schema_id(message: Message) -> int:
    return int.from_bytes((message.value() or b"")[1:5], "big")


def ids_by_version(deployment: Deployment, aggregate: str) -> dict[int, int]:
    lock = deployment.lock()
    assert lock is not None
    return {entry.version: entry.id for entry in lock.schemas[aggregate]}


def letter(deployment: Deployment, event: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers and value of the dead letter of an event."""
    message = arrived(deployment, f"{deployment.pipeline.prefix}.dead-letter", 1, event)
    return headers(message), json.loads(message.value() or b"")


def state_of(deployment: Deployment) -> str:
    status = deployment.connect.status(deployment.pipeline.connector.name)
    return status.words if status else "absent"


# --- JSON and text in one column, a version column, header columns, CloudEvents

TYPED = "public.typed_event"
LOAN_1 = {
    "type": "record",
    "name": "Loan",
    "namespace": "io.outboxkit.typed",
    "fields": [{"name": "id", "type": "string"}, {"name": "shelf", "type": "string", "default": "none"}],
}
LOAN_2 = {
    **LOAN_1,
    "fields": [{"name": "branch", "type": "string", "default": "main"}, {"name": "id", "type": "string"}],
}


class Typed(NamedTuple):
    """The pipeline, and the events that were written under version 1 of a schema before version 2 was deployed."""

    deployment: Deployment
    backlog: list[str]


@pytest.fixture(scope="module")
def typed(deploy_once: Deploy, project: Path, source_dsn: str) -> Typed:
    schema = project / "schemas" / "typed_loan.avsc"
    schema.write_text(json.dumps(LOAN_1))
    source = {
        "table": TYPED,
        "publication": "typed_p",
        "slot": "typed_s",
        "schema_version_column": "schema_version",
        "header_columns": {"tenant": "x-tenant", "seq": "x-seq"},
        "cloudevents_source": "/library",
    }
    aggregates = {
        "book": {
            "schema": "schemas/book.avsc",
            "partitions": 4,
            "unknown_fields": "ignore",
            "tombstone_event_types": ["BookRemoved", "BookLost"],
        },
        "loan": {"schema": f"schemas/{schema.name}"},
        "note": {"payload": "text", "partitions": 2},
    }
    deployment = deploy_once("typed", source=source, aggregates=aggregates)
    connect_apply.stop(deployment.connect, "typed")
    backlog = [insert(source_dsn, TYPED, "loan", f"l{n}", f'{{"id": "l{n}", "shelf": "S{n}"}}') for n in range(50)]
    schema.write_text(json.dumps(LOAN_2))
    apply(deployment, silent)
    return Typed(deployment, backlog)


def test_a_backlog_of_version_1_arrives_whole_while_version_2_is_deployed(typed: Typed, source_dsn: str) -> None:
    after = insert(source_dsn, TYPED, "loan", "after", '{"id": "after", "branch": "west"}')
    newest = arrived(typed.deployment, "typed.loan", 1, after)
    found = records(typed.deployment, "typed.loan", 1)
    assert [headers(message)["event_id"] for message in found][: len(typed.backlog)] == typed.backlog
    old = found[: len(typed.backlog)]
    ids = ids_by_version(typed.deployment, "loan")
    assert {schema_id(message) for message in old} == {ids[1]}
    assert [decode(typed.deployment, "loan", message) for message in old] == [
        {"id": f"l{n}", "shelf": f"S{n}"} for n in range(len(old))
    ]
    assert schema_id(newest) == ids[2] != ids[1]
    assert decode(typed.deployment, "loan", newest) == {"id": "after", "branch": "west"}


@pytest.mark.parametrize(
    ("named", "version", "decoded"),
    [
        (None, 2, {"id": "x", "branch": "main"}),
        ("1", 1, {"id": "x", "shelf": "none"}),
        ("2", 2, {"id": "x", "branch": "main"}),
    ],
)
def test_the_version_column_picks_the_schema(
    typed: Typed, source_dsn: str, named: str | None, version: int, decoded: dict[str, str]
) -> None:
    """Of a payload that fits both versions; without a word the newest takes it."""
    event = insert(source_dsn, TYPED, "loan", "x", '{"id": "x"}', schema_version=named)
    message = arrived(typed.deployment, "typed.loan", 1, event)
    assert schema_id(message) == ids_by_version(typed.deployment, "loan")[version]
    assert decode(typed.deployment, "loan", message) == decoded


def test_a_version_that_does_not_exist_or_does_not_fit_is_a_dead_letter(typed: Typed, source_dsn: str) -> None:
    unknown = insert(source_dsn, TYPED, "loan", "x", '{"id": "x"}', schema_version="9")
    unfit = insert(source_dsn, TYPED, "loan", "x", '{"id": "x", "branch": "secret"}', schema_version="1")
    assert letter(typed.deployment, unknown)[0]["dead_letter_reason"] == "schema-version-unknown"
    found, row = letter(typed.deployment, unfit)
    assert found["dead_letter_reason"] == "payload-invalid"
    assert "secret" not in found["dead_letter_message"]
    assert row["schema_version"] == "1"


def test_unknown_fields_are_left_out_where_the_file_says_so_and_refused_elsewhere(
    typed: Typed, source_dsn: str
) -> None:
    key = str(uuid4())
    payload = book(key)
    known = insert(source_dsn, TYPED, "book", key, to_json(payload))
    payload |= {"colour": "blue", "sizes": {"a": [1, {"b": None}]}}
    more = insert(source_dsn, TYPED, "book", key, to_json(payload))
    refused = insert(source_dsn, TYPED, "loan", "x", '{"id": "x", "colour": "blue"}')
    first, second = (arrived(typed.deployment, "typed.book", 4, event) for event in (known, more))
    assert second.value() == first.value()
    found, _ = letter(typed.deployment, refused)
    assert found["dead_letter_reason"] == "payload-invalid"
    assert "colour" in found["dead_letter_message"]


@pytest.mark.parametrize(
    "payload",
    ["plain — “text”", "{broken json", '{"a": 1.50, "a": 2}', "null", " "],
    ids=["text", "broken JSON", "JSON", "JSON null", "blank"],
)
def test_text_is_passed_on_byte_by_byte(typed: Typed, source_dsn: str, payload: str) -> None:
    message = arrived(typed.deployment, "typed.note", 2, insert(source_dsn, TYPED, "note", "n", payload))
    assert message.value() == payload.encode()
    assert message.partition() == murmur2_partition(b"n", 2)
    assert headers(message)["content-type"] == "text/plain; charset=utf-8"


def test_no_text_is_a_tombstone(typed: Typed, source_dsn: str) -> None:
    message = arrived(typed.deployment, "typed.note", 2, insert(source_dsn, TYPED, "note", "n", None))
    assert message.value() is None


@pytest.mark.parametrize("payload", [None, '{"fits": "nothing"}', "{broken"], ids=str)
@pytest.mark.parametrize("event_type", ["BookRemoved", "BookLost"])
def test_event_types_that_say_gone_are_tombstones_whatever_the_payload(
    typed: Typed, source_dsn: str, event_type: str, payload: str | None
) -> None:
    key = str(uuid4())
    event = insert(source_dsn, TYPED, "book", key, payload, event_type=event_type)
    message = arrived(typed.deployment, "typed.book", 4, event)
    assert message.value() is None
    assert (message.key(), message.partition()) == (key.encode(), murmur2_partition(key.encode(), 4))
    assert headers(message)["event_type"] == event_type


def test_a_row_over_the_limit_leaves_coordinates_and_a_hash_and_the_task_lives_on(
    typed: Typed, source_dsn: str
) -> None:
    """Under exactly-once a record that the broker refuses surfaces at commit only, and ends the task each time."""
    deployment = typed.deployment
    key, text = str(uuid4()), "secret" * 200_000
    payload = to_json(book(key, title=text))
    event = insert(source_dsn, TYPED, "book", key, payload)
    after = insert(source_dsn, TYPED, "book", key, to_json(book(key)))
    arrived(deployment, "typed.book", 4, after)
    found, row = letter(deployment, event)
    assert found["dead_letter_reason"] == "record-too-large"
    assert row["payload_sha256"] == hashlib.sha256(payload.encode()).hexdigest()
    assert row["payload_bytes"] == len(payload.encode())
    assert (row["id"], row["aggregate_type"], row["aggregate_id"]) == (event, "book", key)
    assert "secret" not in json.dumps([found, row])
    live = deployment.connect.config("typed")
    assert live is not None
    assert live["exactly.once.support"] == "required"
    assert state_of(deployment) == RUNNING


def test_headers_as_a_consumer_sees_them(typed: Typed, source_dsn: str) -> None:
    """Each once, all text; the position is that of the row in the log."""
    key = str(uuid4())
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        position = sql.SQL("select (pg_current_wal_insert_lsn() - '0/0')::bigint")
        before = connection.execute(position).fetchone()
        event = insert(
            source_dsn,
            TYPED,
            "book",
            key,
            to_json(book(key)),
            event_type="BookLent",
            tenant="Bücherei “Nord”",
            headers='{"traceparent": "00-1-2-01", "attempt": 7}',
            created_at="2026-11-20T18:31:38.1+00:00",
        )
        after = connection.execute(position).fetchone()
        seq = connection.execute(f"select seq from {TYPED} where id = %s", (event,)).fetchone()
    assert before is not None
    assert after is not None
    assert seq is not None
    message = arrived(typed.deployment, "typed.book", 4, event)
    raw = message.headers()
    assert isinstance(raw, list)
    found = headers(message)
    assert len(raw) == len(found), "each once"
    lock = typed.deployment.lock()
    assert lock is not None
    sequence = re.fullmatch(r"([0-9a-f]{4})_([0-9a-f]{16})-([0-9a-f]{16})", found.pop("source_sequence"))
    assert sequence is not None
    assert int(sequence[1], 16) == lock.source_epoch
    assert before[0] <= int(sequence[3], 16) < after[0]
    assert 0 < int(sequence[2], 16) <= int(sequence[3], 16)
    assert found == {
        "event_id": event,
        "event_type": "BookLent",
        "aggregate_type": "book",
        "event_time": "2026-11-20T18:31:38.100000Z",
        "x-tenant": "Bücherei “Nord”",
        "x-seq": str(seq[0]),
        "traceparent": "00-1-2-01",
        "attempt": "7",
        "ce_specversion": "1.0",
        "ce_id": event,
        "ce_source": "/library",
        "ce_type": "BookLent",
        "ce_time": "2026-11-20T18:31:38.100000Z",
        "ce_subject": key,
        "content-type": "application/avro",
    }


def test_a_tombstone_has_no_content_type_and_a_null_column_no_header(typed: Typed, source_dsn: str) -> None:
    found = headers(arrived(typed.deployment, "typed.book", 4, insert(source_dsn, TYPED, "book", "gone", None)))
    assert found["ce_subject"] == "gone"
    assert found.keys().isdisjoint({"content-type", "x-tenant"})


# --- Avro in a bytea column

BODIES = "public.bodies_event"


@pytest.fixture(scope="module")
def bodies(deploy_once: Deploy, project: Path) -> Deployment:
    """Authors and books have one schema version, loans two, of which each reads the other's bytes."""
    schema = project / "schemas" / "bodies_loan.avsc"
    schema.write_text(json.dumps(LOAN_1))
    source = {"table": BODIES, "publication": "bodies_p", "slot": "bodies_s", "schema_version_column": "schema_version"}
    aggregates = {
        "author": {"schema": "schemas/author.avsc", "partitions": 4, "payload": "avro"},
        "book": {"schema": "schemas/book.avsc", "partitions": 4, "payload": "confluent-avro"},
        "loan": {"schema": f"schemas/{schema.name}", "payload": "avro"},
    }
    deployment = deploy_once("bodies", source=source, aggregates=aggregates)
    schema.write_text(json.dumps(LOAN_2))
    apply(deployment, silent)
    return deployment


def author_body(deployment: Deployment, key: str) -> bytes:
    """An Avro body as a service would write it."""
    lock = deployment.lock()
    assert lock is not None
    body = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(lock.schemas["author"][0].text))
    value = {"id": key, "name": "Umberto Eco", "updated_at": 1_764_000_000_000_000}
    fastavro.schemaless_writer(body, schema, value)
    return body.getvalue()


def book_body(deployment: Deployment, key: str) -> bytes:
    lock = deployment.lock()
    assert lock is not None
    body = io.BytesIO()
    value = book(key, published_on=4017, updated_at=1_764_000_000_000_000)
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(lock.schemas["book"][0].text)), value)
    return body.getvalue()


def test_an_avro_body_gets_its_frame_and_a_framed_one_keeps_it(bodies: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    body, framed = author_body(bodies, key), frame(ids_by_version(bodies, "book")[1]) + book_body(bodies, key)
    author = insert(source_dsn, BODIES, "author", key, body)
    kept = insert(source_dsn, BODIES, "book", key, framed)
    message = arrived(bodies, "bodies.author", 4, author)
    assert message.value() == frame(ids_by_version(bodies, "author")[1]) + body
    assert decode(bodies, "author", message)["name"] == "Umberto Eco"
    message = arrived(bodies, "bodies.book", 4, kept)
    assert message.value() == framed
    assert str(decode(bodies, "book", message)["id"]) == key
    for kind in ("author", "book"):
        gone = arrived(bodies, f"bodies.{kind}", 4, insert(source_dsn, BODIES, kind, key, None))
        assert gone.value() is None


@pytest.mark.parametrize(
    ("version", "decoded"),
    [("1", {"id": "x", "shelf": "y"}), ("2", {"branch": "x", "id": "y"})],
)
def test_a_body_that_two_versions_read_is_of_the_one_that_its_row_names(
    bodies: Deployment, source_dsn: str, version: str, decoded: dict[str, str]
) -> None:
    event = insert(source_dsn, BODIES, "loan", "x", b"\x02x\x02y", schema_version=version)
    message = arrived(bodies, "bodies.loan", 1, event)
    assert schema_id(message) == ids_by_version(bodies, "loan")[int(version)]
    assert decode(bodies, "loan", message) == decoded


def test_a_body_without_a_version_is_a_dead_letter_where_there_are_two(bodies: Deployment, source_dsn: str) -> None:
    """Of one version alone it is that one: see the authors."""
    event = insert(source_dsn, BODIES, "loan", "x", b"\x02x\x02y")
    found, row = letter(bodies, event)
    assert found["dead_letter_reason"] == "schema-version-unknown"
    assert row["schema_version"] is None


def frame(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def test_bodies_that_no_consumer_could_read_are_dead_letters(bodies: Deployment, source_dsn: str) -> None:
    key = str(uuid4())
    known = ids_by_version(bodies, "book")[1]
    broken = {
        "too short": ("author", author_body(bodies, key)[:-1]),
        "too long": ("author", author_body(bodies, key) + b"\0"),
        "empty": ("author", b""),
        "no frame": ("book", book_body(bodies, key)),
        "another schema's id": ("book", frame(ids_by_version(bodies, "author")[1]) + book_body(bodies, key)),
        "frame and half a body": ("book", frame(known) + book_body(bodies, key)[:9]),
    }
    events = {why: insert(source_dsn, BODIES, kind, key, payload) for why, (kind, payload) in broken.items()}
    last = insert(source_dsn, BODIES, "author", key, author_body(bodies, key))
    arrived(bodies, "bodies.author", 4, last)
    reasons = {why: letter(bodies, event)[0]["dead_letter_reason"] for why, event in events.items()}
    assert reasons == dict.fromkeys(broken, "payload-invalid")
    assert state_of(bodies) == RUNNING


def test_the_canary_is_avro_where_the_column_is_bytea(bodies: Deployment) -> None:
    found = verify(bodies, silent)
    # Whether another test has left dead letters is not its business.
    wrong = {check.id for check in found if check.status in (Status.FAIL, Status.WARN)}
    assert wrong <= {"kafka.dead-letters"}
    canary = {check.id: check.status for check in found if check.id.startswith("canary.")}
    assert set(canary.values()) == {Status.PASS}, canary


# --- outbox rows that are updated or deleted


def failure(deployment: Deployment) -> str:
    """Wait until the task has failed; what it says."""
    name = deployment.pipeline.connector.name

    def look() -> Seen[ConnectorStatus]:
        status = deployment.connect.status(name)
        assert status is not None
        return Seen(status if "FAILED" in status.words else None, status.words)

    return str(wait_for(f"the task of {name} to fail", look, seconds=60))


def allow(project: Path, name: str, **policies: str) -> None:
    """Change `source` of a pipeline file, and apply it."""
    path = project / "connectors" / f"{name}.yaml"
    data = yaml.safe_load(path.read_text())
    data["source"] |= policies
    path.write_text(yaml.safe_dump(data))
    with open_deployment(path, "local") as deployment:
        apply(deployment, silent)


def test_updated_and_deleted_rows_stop_the_task_until_the_file_lets_them_pass(
    deploy: Deploy, project: Path, source_dsn: str
) -> None:
    """With a publication that lets everything through. Each row before, between and after arrives, once."""
    deployment = deploy("mended")
    table = "public.mended_event"

    def row() -> str:
        key = str(uuid4())
        return insert(source_dsn, table, "book", key, to_json(book(key)))

    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("alter publication mended_p set (publish = 'insert, update, delete, truncate')")
        # A truncate that is published: Debezium skips it, so it stops nothing, and the row before it has been read.
        sent = [row()]
        connection.execute(f"truncate {table}")
        sent.append(row())
        for event in sent:
            arrived(deployment, "mended.book", 4, event)
        connection.execute(f"update {table} set payload = null where id = %s", (sent[1],))
        sent.append(row())
        words = failure(deployment)
        assert f"The outbox table {table} had a change with op=u" in words
        assert "table.op.invalid.behavior=warn" in words
        found = {headers(message)["event_id"] for message in records(deployment, "mended.book", 4)}
        assert found == set(sent[:2])

        allow(project, "mended", updated_rows="warn")
        arrived(deployment, "mended.book", 4, sent[2])
        connection.execute(f"delete from {table} where id = %s", (sent[1],))
        sent.append(row())
        assert "deleted.rows=ignore" in failure(deployment)

        allow(project, "mended", deleted_rows="ignore")
        arrived(deployment, "mended.book", 4, sent[3])
    once = [headers(message)["event_id"] for message in records(deployment, "mended.book", 4)]
    assert sorted(once) == sorted(sent)
    assert state_of(deployment) == RUNNING
    with open_deployment(project / "connectors" / "mended.yaml", "local") as now:
        checks = {check.id: check for check in verify(now, silent)}
    assert checks["postgres.publication"].status is Status.PASS
    assert checks["postgres.publication"].seen.startswith("insert, update, delete, truncate of ")


# --- SetPartition behind Debezium's EventRouter

PLACED = """\
{%- extends "outbox-postgres-eventrouter.json.j2" -%}
{%- block transforms %}
  {{- super() }},
  "predicates": "isEvent",
  "predicates.isEvent.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
  "predicates.isEvent.pattern": "placed\\\\.(book|author)",
  "transforms": "outbox,partition",
  "transforms.partition.type": "io.outboxkit.smt.SetPartition",
  "transforms.partition.predicate": "isEvent",
  "transforms.partition.field": "key",
  "transforms.partition.topic.partitions": "placed.book:4,placed.author:2"
{%- endblock %}
"""


def test_set_partition_behind_event_router(deploy: Deploy, project: Path, source_dsn: str) -> None:
    """By the key: where the producer would place it too; told of half the partitions, in that half: it is the step
    that decides. Tombstones meet their states."""
    (project / "connectors" / "templates" / "eventrouter-placed.json.j2").write_text(PLACED)
    deployment = deploy("placed", connector={"name": "placed", "template": "eventrouter-placed"})
    keys = [str(uuid4()) for _ in range(24)]
    statement = "insert into public.placed_event (aggregate_type, aggregate_id, event_type, payload)"
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        for kind in ("book", "author"):
            for payload in ("{}", None):
                rows = "select %s, key, 'Changed', %s::jsonb from unnest(%s::text[]) as key"
                connection.execute(f"{statement} {rows}", (kind, payload, keys))
            arrived(deployment, f"placed.{kind}", 4, insert(source_dsn, "public.placed_event", kind, keys[0], None))
    for kind, count in (("book", 4), ("author", 2)):
        found = records(deployment, f"placed.{kind}", 4)
        placed = {(message.key(), message.partition(), message.value() is None) for message in found}
        wanted = {(key.encode(), murmur2_partition(key.encode(), count)) for key in keys}
        assert placed == {(key, partition, gone) for key, partition in wanted for gone in (False, True)}
    # Or the half would be the whole.
    assert any(murmur2_partition(key.encode(), 4) > 1 for key in keys)
    assert state_of(deployment) == RUNNING


# --- the chain


def test_the_chain_has_header_columns_and_tombstone_event_types(deploy: Deploy, source_dsn: str) -> None:
    table = "public.chainmore_event"
    source = {"table": table, "publication": "chainmore_p", "slot": "chainmore_s"}
    source |= {"header_columns": {"tenant": "x-tenant"}}
    aggregates = {"book": {"schema": "schemas/book.avsc", "tombstone_event_types": ["BookRemoved"]}}
    connector = {"name": "chainmore", "template": "outbox-postgres-chain"}
    deployment = deploy("chainmore", source=source, aggregates=aggregates, connector=connector)
    key = str(uuid4())
    here = insert(source_dsn, table, "book", key, to_json(book(key)), tenant="north")
    gone = insert(source_dsn, table, "book", key, '{"fits": "nothing"}', event_type="BookRemoved")
    after = insert(source_dsn, table, "book", key, to_json(book(key)), event_type="BookAdded")
    first, second, third = (arrived(deployment, "chainmore.book", 1, event) for event in (here, gone, after))
    assert headers(first)["x-tenant"] == "north"
    assert str(decode(deployment, "book", first)["id"]) == key
    assert second.value() is None
    assert second.key() == first.key()
    assert third.value() is not None
    assert state_of(deployment) == RUNNING


# --- every transform in every template

OURS = "io.outboxkit.smt."
TEMPLATES = {
    # template: our transforms in it, and the module that runs it in the worker
    "outbox-postgres": (["OutboxRouter"], "test_records.py"),
    "outbox-postgres-messages": (["OutboxRouter"], "test_messages.py"),
    "outbox-postgres-chain": (["RouteByField", "SetPartition", "SetTombstone", "ParsePayload"], "test_chain.py"),
    "outbox-postgres-eventrouter": ([], "test_eventrouter.py"),
}


def test_each_transform_is_in_a_template_and_each_template_is_run(project: Path, stack: Stack) -> None:
    """What a template has is asked of its rendering, so that this table cannot go stale."""
    del stack  # the local environment has its addresses
    folder = project / "connectors"
    pipeline, environment = load_files(folder / "library.yaml", "local")
    own = {path.name.removesuffix(".json.j2") for path in (folder / "templates").glob("outbox-*.json.j2")}
    assert own == TEMPLATES.keys()
    used: set[str] = set()
    for template, (expected, module) in TEMPLATES.items():
        prefix = "outbox" if template.endswith("messages") else None
        changed = pipeline.model_copy(
            update={
                "connector": pipeline.connector.model_copy(update={"template": template}),
                "source": pipeline.source.model_copy(update={"message_prefix": prefix}),
            }
        )
        config = render_connector(changed, environment, None, folder / "templates")
        found = [step.kind for step in transforms(config) if step.kind.startswith(OURS)]
        assert list(dict.fromkeys(found)) == [f"{OURS}{name}" for name in expected]
        text = (Path(__file__).parent / module).read_text(encoding="utf-8")
        assert template == "outbox-postgres" or f'"{template}"' in text
        used |= set(found)
    assert used == set(declared(project))


def declared(project: Path) -> list[str]:
    """Transforms that the service manifest of our jar names."""
    (jar,) = (project / "smt" / "target" / "plugin" / "outbox-smt").glob("outbox-smt-*.jar")
    with zipfile.ZipFile(jar) as opened:
        text = opened.read("META-INF/services/org.apache.kafka.connect.transforms.Transformation").decode()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@dataclass(frozen=True)
class Plugin:
    """What a worker says of a plugin."""

    kind: str
    version: str


def test_a_worker_that_looks_at_manifests_only_lists_our_transforms(
    project: Path, stack: Stack, state: StackState
) -> None:
    """The stack's worker runs with plugin.discovery=service_load, which does not scan classes."""
    del stack
    settings = (Layout.of(project).configuration / "connect.properties").read_text(encoding="utf-8")
    assert re.search(r"^plugin\.discovery ?= ?service_load$", settings, re.MULTILINE)
    listing = requests.get(f"{state.connect}/connector-plugins", params={"connectorsOnly": "false"}, timeout=30)
    listing.raise_for_status()
    found = {entry["class"]: Plugin(entry["type"], entry.get("version", "")) for entry in listing.json()}
    version = re.search(r"<version>([^<]+)</version>", (Path(__file__).parents[2] / "smt" / "pom.xml").read_text())
    assert version is not None
    names = declared(project)
    assert len(names) == len(set(names)) >= 5
    assert {name: found.get(name) for name in names} == dict.fromkeys(names, Plugin("transformation", version[1]))
