"""Records of the relay, compared byte by byte with the records that the connector sends for the same rows."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Message
from psycopg import sql
from tests.integration.outbox_rows import LOAN_1, LOAN_2, ids_by_version
from tests.integration.relay.conftest import relay_once
from tests.integration.relay.contract_rows import EVERY, TYPES, Row, binary_rows, json_rows, text_rows
from tests.integration.support import Deploy, headers, in_process, read_all

from outbox_events.waiting import Observation, wait_for
from outbox_kit.deployment import Deployment, apply
from outbox_kit.results import silent
from outbox_kit.results.changes import System

SOURCE = {
    "schema_version_column": "schema_version",
    "header_columns": {"tenant": "x-tenant", "seq": "x-seq"},
    "cloudevents_source": "/library",
}
COLUMNS = "id, aggregate_type, aggregate_id, event_type, payload, headers, created_at, schema_version, tenant"
COPY = "insert into {target} ({columns}) select {columns} from {table} order by seq"
EVERY_AGGREGATE = {"schema": "schemas/every.avsc", "partitions": 4}
JSON_AGGREGATES: dict[str, object] = {
    "every": EVERY_AGGREGATE,
    "loan": {"schema": "schemas/contract_loan.avsc"},
    "loose": {
        "schema": "schemas/contract_inner.avsc",
        "unknown_fields": "ignore",
        "tombstone_event_types": ["Gone"],
        "partitions": 3,
        "partition_field": "place",
    },
}
TEXT_AGGREGATES = {**JSON_AGGREGATES, "note": {"payload": "text", "partitions": 2}}
BINARY_AGGREGATES: dict[str, object] = {
    "body": {"schema": "schemas/contract_fixed.avsc", "payload": "avro", "partitions": 2},
    "versions": {"schema": "schemas/contract_loan.avsc", "payload": "avro"},
    "framed": {"schema": "schemas/contract_fixed.avsc", "payload": "confluent-avro"},
    "scan": {"payload": "bytes", "tombstone_event_types": ["Gone"], "partitions": 2},
}


@pytest.fixture
def schemas(project: Path) -> Path:
    """Write the schemas of the aggregates. Return their folder."""
    folder = project / "schemas"
    inner = {**TYPES["nested"], "namespace": "io.outboxkit.inner"}  # type: ignore[dict-item]
    for name, schema in {"every": EVERY, "contract_inner": inner, "contract_fixed": LOAN_1}.items():
        (folder / f"{name}.avsc").write_text(json.dumps(schema))
    return folder


BEFORE_CONNECT: tuple[System, ...] = ("postgres", "kafka", "registry")


@pytest.mark.parametrize(
    ("name", "aggregates"),
    [("rcjson", JSON_AGGREGATES), ("rctext", TEXT_AGGREGATES), ("rcbytes", BINARY_AGGREGATES)],
)
def test_sends_the_records_of_the_connector(
    deploy: Deploy,
    schemas: Path,
    source_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    aggregates: dict[str, object],
) -> None:
    loan = schemas / "contract_loan.avsc"
    deployments = []
    for prefix, systems in ((name, ()), (f"{name}relay", BEFORE_CONNECT)):
        loan.write_text(json.dumps(LOAN_1))
        source = {"table": f"public.{prefix}", "publication": f"{prefix}_p", "slot": f"{prefix}_s", **SOURCE}
        deployment = deploy(prefix, source=source, aggregates=aggregates, applied=False)
        apply(deployment, silent, only=BEFORE_CONNECT)
        loan.write_text(json.dumps(LOAN_2))
        apply(deployment, silent, only=systems)
        deployments.append(deployment)
    connector, relay = deployments
    rows = rows_of(connector)
    with psycopg.connect(source_dsn) as connection:
        columns = change_tables(connection, deployments, is_json=name == "rcjson")
    # Debezium reads which columns can be null when it starts.
    for command in ("stop", "resume") if name == "rctext" else ():
        in_process(connector)(command)
    with psycopg.connect(source_dsn) as connection:
        insert_rows(connection, f"public.{name}", rows)
    expected = wait_records(connector, len(rows))
    with psycopg.connect(source_dsn) as connection:
        connection.execute(COPY.format(target=f"public.{name}relay", table=f"public.{name}", columns=columns))
    monkeypatch.setenv("PGTZ", "Asia/Kolkata")
    relay_once(relay, with_connect=False)
    actual = wait_records(relay, len(rows))
    differing = [
        f"{event}: {mine!r}\n{theirs!r}"
        for event, record in expected.items()
        for mine, theirs in zip(actual[event], record, strict=True)
        if mine != theirs
    ]
    assert not differing, "\n".join(differing)
    assert order_of(actual) == order_of(expected)


def rows_of(deployment: Deployment) -> list[Row]:
    name = deployment.pipeline.name
    if name == "rcbytes":
        return binary_rows({kind: ids_by_version(deployment, kind)[1] for kind in ("body", "framed")})
    return json_rows() + (text_rows() if name == "rctext" else [])


def change_tables(connection: psycopg.Connection, deployments: Sequence[Deployment], *, is_json: bool) -> str:
    """Add columns that dead letters show. Return the columns to copy. The bytea tables have times in milliseconds."""
    for deployment in deployments:
        table = deployment.pipeline.source.table
        connection.execute(f"alter table {table} add ratio double precision, add flag boolean, add size int")
        connection.execute(f"alter table {table} drop constraint {deployment.pipeline.name}_aggregate_id_check")
        connection.execute(f"alter table {table} alter aggregate_id drop not null")
        if deployment.pipeline.payload_type == "bytea":
            connection.execute(f"alter table {table} alter created_at type timestamptz(3)")
        elif is_json:
            connection.execute(f"alter table {table} alter headers type json")
    place = "" if deployments[0].pipeline.payload_type == "bytea" else ", place"
    return f"{COLUMNS}{place}, ratio, flag, size"


def insert_rows(connection: psycopg.Connection, table: str, rows: Sequence[Row]) -> None:
    numbers = ("NaN", "Infinity", "-Infinity", None)
    for number, row in enumerate(rows):
        values = {
            "aggregate_type": row.kind,
            "aggregate_id": row.key,
            "event_type": row.event_type,
            "payload": row.payload,
            "headers": row.headers,
            "created_at": row.created_at,
            "ratio": numbers[number % 4],
            "flag": number % 2 == 0,
            "size": number,
            **row.extra,
        }
        statement = sql.SQL("insert into {} ({}) values ({})").format(
            sql.Identifier(*table.split(".")),
            sql.SQL(", ").join(map(sql.Identifier, values)),
            sql.SQL(", ").join([sql.Placeholder()] * len(values)),
        )
        connection.execute(statement, list(values.values()))


Comparable = tuple[str, bytes | None, bytes | None, list[tuple[str, bytes]], int]


def wait_records(deployment: Deployment, count: int) -> dict[str, Comparable]:
    """Wait for the records of all rows. Return topic without prefix, key, value, headers, partition by event id."""
    pipeline = deployment.pipeline
    topics = {f"{pipeline.prefix}.{kind}": entry.partitions for kind, entry in pipeline.aggregates.items()}
    topics[pipeline.dead_letter_topic] = 1

    def poll() -> Observation[dict[str, Comparable]]:
        kafka = deployment.environment.kafka
        found = [message for topic, count in topics.items() for message in read_all(kafka, topic, count)]
        by_id = {headers(message)["event_id"]: comparable(pipeline.prefix, message) for message in found}
        return Observation(by_id if len(by_id) >= count else None, f"{len(by_id)} of {count} records")

    return wait_for(f"records of {pipeline.name}", poll, seconds=60)


def comparable(prefix: str, message: Message) -> Comparable:
    """Return the record without the parts that may differ: sequence, LSN, and the position of a JSON error."""
    sequence = headers(message)["source_sequence"].encode()
    value = message.value()
    actual = [(name, b"" if name == "source_sequence" else content) for name, content in message.headers() or ()]
    if message.topic() == f"{prefix}.dead-letter":
        value = re.sub(rb'"lsn":(null|[0-9]+)', b'"lsn"', value.replace(sequence, b""))  # type: ignore[union-attr]
        actual = [(name, re.sub(rb" at line [0-9]+, column [0-9]+", b"", content)) for name, content in actual]
    topic = str(message.topic()).removeprefix(prefix)
    return topic, message.key(), value, actual, message.partition()  # type: ignore[return-value]


def order_of(records: dict[str, Comparable]) -> dict[tuple[str, bytes | None, bytes], list[str]]:
    """Return the events of each aggregate in the order of their records, by topic, key and aggregate type.

    The aggregate `loose` has other values of its `partition_field`, between which the relay keeps no order.
    """
    events: dict[tuple[str, bytes | None, bytes], list[str]] = defaultdict(list)
    for event, (topic, key, _, names, _) in records.items():
        events[topic, key, dict(names)["aggregate_type"]].append(event)
    for place, found in events.items():
        if place[2] == b"loose":
            found.sort()
    return events
