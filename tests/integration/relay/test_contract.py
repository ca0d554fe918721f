"""Records of the relay's encoder, compared with those that the connector sends for the same rows."""

from __future__ import annotations

import json
from uuid import uuid4

import psycopg
from confluent_kafka import Message
from psycopg.rows import dict_row
from tests.integration.support import Deploy, headers, records
from tests.integration.transforms.test_records import book

from outbox_kit.deployment import Deployment
from outbox_kit.kafka.murmur2 import partition_of
from outbox_kit.postgres import client
from outbox_kit.records import InvalidRowError, RecordEncoder
from outbox_kit.records.dead_letter import dead_letter
from outbox_kit.relay.rows import RowReader
from outbox_kit.relay.tables import RelayTables
from outbox_kit.sending.record import Record
from outbox_kit.sending.values import to_json
from outbox_kit.waiting import Observation, wait_for

KEY = "0190f2c4-8f6d-7c3a-a1f0-3f8d4f3b2a11"
COLUMNS = "id, aggregate_type, aggregate_id, event_type, payload, headers, created_at"
HEADERS = '{"traceparent": "00-1-2-01", "n": 1.50, "o": {"b": [1e3, null, "é"]}, "t": true}'


def rows() -> list[tuple[str, str, str, str | None, str | None, str]]:
    """Return valid and invalid rows: aggregate type and id, event type, payload, headers, time."""
    now = "2026-11-20 18:31:38.1+00"
    valid = [
        ("book", KEY, "Changed", to_json(book(KEY)), HEADERS, now),
        ("book", "ключ-2", "Changed", to_json(book(KEY, subtitle="sub", tags=[], price="1e3", pages=1.0)), None, now),
        ("book", KEY, "Removed", None, '{"a": "b"}', now),
        ("book", KEY, "Removed", "null", "null", "0031-02-03 04:05:06.123456+05:30"),
    ]
    broken = [
        ("book", KEY, "Changed", to_json(book(KEY, pages="many")), HEADERS, now),
        ("book", KEY, "Changed", to_json(book(KEY, extra=1)), None, now),
        ("book", KEY, "Changed", to_json({"id": KEY}), None, now),
        ("book", KEY, "Changed", to_json(book(KEY, published_on="1980-02-30")), None, now),
        ("book", KEY, "Changed", to_json(book(KEY, price="0.001")), None, now),
        ("magazine", KEY, "Changed", "{}", None, now),
        ("book", KEY, "", "{}", None, now),
        ("book", KEY, "Changed", to_json(book(KEY)), '["x"]', now),
        ("book", KEY, "Changed", to_json(book(KEY)), '{"event_id": "1"}', now),
        ("book", KEY, "Changed", to_json(book(KEY)), None, "infinity"),
        ("book", KEY, "Changed", to_json(book(KEY, title="x" * 1_000_000)), None, now),
    ]
    return [*valid, *broken]  # type: ignore[list-item]


def insert_rows(dsn: str, table: str) -> list[str]:
    ids = [str(uuid4()) for _ in rows()]
    with psycopg.connect(dsn) as connection:
        for event, row in zip(ids, rows(), strict=True):
            connection.execute(f"insert into {table} ({COLUMNS}) values (%s, %s, %s, %s, %s, %s, %s)", (event, *row))
    return ids


def connector_records(deployment: Deployment, ids: list[str]) -> dict[str, Message]:
    """Wait for the connector's records of the events, dead letters included, by event id."""

    def poll() -> Observation[dict[str, Message]]:
        topics = {f"{deployment.pipeline.prefix}.book": 4, deployment.pipeline.dead_letter_topic: 1}
        found = [message for topic, count in topics.items() for message in records(deployment, topic, count)]
        by_id = {headers(message)["event_id"]: message for message in found}
        return Observation(by_id if by_id.keys() >= {*ids} else None, f"{len(by_id)} records")

    return wait_for("the connector's records", poll, seconds=60)


def encode(deployment: Deployment, reader: RowReader, event: str, sequence: str) -> Record:
    """Return the relay's record of a row that the table still has."""
    lock = deployment.lock()
    assert lock is not None
    encoder = RecordEncoder(deployment.pipeline, lock, partition_of)
    with client.connected(deployment.environment.source) as connection:
        connection.row_factory = dict_row
        statement = (
            b"select " + reader.columns.as_bytes(connection) + b" from " + reader.tables.outbox.as_bytes(connection)
        )
        found = connection.execute(statement + b" where id = %s", (event,)).fetchall()[0]
        row = reader.outbox_row(found)
        try:
            return encoder.encode(row, sequence)
        except InvalidRowError as error:
            return dead_letter(encoder, row, sequence, error, reader.whole_row(connection, row.id))


def test_encodes_each_row_as_the_connector_does(deploy: Deploy, source_dsn: str) -> None:
    deployment = deploy("relaycontract")
    table = deployment.pipeline.source.table
    ids = insert_rows(source_dsn, table)
    expected = connector_records(deployment, ids)
    with client.connected(deployment.environment.source) as connection:
        types = client.read_column_types(connection, table)
    reader = RowReader(RelayTables(deployment.pipeline, marks=False), types)
    for event in ids:
        message = expected[event]
        actual = encode(deployment, reader, event, headers(message)["source_sequence"])
        assert (actual.topic, actual.key) == (message.topic(), message.key()), headers(message)
        assert actual.headers == tuple(message.headers() or ()), headers(message)
        if message.topic() == deployment.pipeline.dead_letter_topic:
            assert without_lsn(actual.value) == without_lsn(message.value())  # type: ignore[arg-type]
        else:
            assert actual.value == message.value()


def without_lsn(value: bytes | None) -> dict[str, object]:
    """Return the value of a dead letter. The relay knows no LSN."""
    return {name: item for name, item in json.loads(value or b"").items() if name != "lsn"}
