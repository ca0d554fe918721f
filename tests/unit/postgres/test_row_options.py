"""Columns and payload formats of the pipeline file: columns of the table, and checks of publication and slot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from psycopg import sql
from tests.unit.postgres.samples import DEPLOYED, DETAILS, LOCKED, PUBLICATION

from outbox_events.errors import RefusedError
from outbox_kit.pipeline import Aggregate, Columns, Environment, Pipeline, Source
from outbox_kit.postgres import aggregate_queries, ddl, slot_checks
from outbox_kit.postgres.checks import DatabaseState
from outbox_kit.postgres.state import COLUMN_TYPES, column_problems, refuse_unsafe
from outbox_kit.results.checks import Status, evaluate


def with_source(pipeline: Pipeline, **changes: object) -> Pipeline:
    source = Source.model_validate({"publication": "library_outbox", "slot": "library_outbox", **changes})
    return pipeline.model_copy(update={"source": source})


def with_payload(pipeline: Pipeline, payload: str) -> Pipeline:
    """Return the pipeline with this payload format for every aggregate."""
    schema = None if payload in ("text", "bytes") else "x.avsc"
    created = {name: Aggregate.model_validate({"schema": schema, "payload": payload}) for name in pipeline.aggregates}
    return pipeline.model_copy(update={"aggregates": created})


@pytest.mark.parametrize(
    ("payload", "column", "problems"),
    [
        ("json", "jsonb", []),
        ("json", "text", ["payload is text, not jsonb"]),
        ("json", "bytea", ["payload is bytea, not jsonb"]),
        ("text", "text", []),
        ("text", "json", []),
        ("text", "jsonb", []),
        ("text", "bytea", ["payload is bytea, not text or json or jsonb"]),
        ("avro", "bytea", []),
        ("avro", "jsonb", ["payload is jsonb, not bytea"]),
        ("confluent-avro", "bytea", []),
        ("confluent-avro", "text", ["payload is text, not bytea"]),
        ("bytes", "bytea", []),
        ("bytes", "text", ["payload is text, not bytea"]),
    ],
)
def test_payload_column_matches_the_formats(library: Pipeline, payload: str, column: str, problems: list[str]) -> None:
    pipeline = with_payload(library, payload)
    assert column_problems(pipeline, {**COLUMN_TYPES, "payload": column}) == problems


ADDITIONAL = {"schema_version_column": "version", "header_columns": {"tenant": "tenant", "seq": "x-seq"}}


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        ({"version": "text", "tenant": "text", "seq": "bigint"}, []),
        ({"version": "text", "tenant": "timestamp with time zone", "seq": "boolean"}, []),
        ({"version": "text", "tenant": "timestamp(3) with time zone", "seq": "time with time zone"}, []),
        *(
            (
                {"version": "text", "tenant": kind, "seq": "bigint"},
                [f"tenant, one of the header_columns, is {kind}, which is not converted to text"],
            )
            for kind in (
                "date",
                "time without time zone",
                "time(3) without time zone",
                "timestamp without time zone",
                "timestamp(3) without time zone",
                "interval",
                "interval day to second(3)",
            )
        ),
        *(
            ({"version": kind, "tenant": "mood", "seq": "uuid"}, [])
            for kind in ("smallint", "integer", "bigint", "character varying", "character varying(20)")
        ),
        (
            {"version": "jsonb", "tenant": "text", "seq": "bigint"},
            ["version, the schema_version_column, is jsonb, not text or an integer type"],
        ),
        (
            {"tenant": "text[]", "version": "text", "seq": "numeric(12,2)"},
            [
                "tenant, one of the header_columns, is text[], which is not converted to text",
                "seq, one of the header_columns, is numeric(12,2), which is not converted to text",
            ],
        ),
        (
            {},
            [
                "version, the schema_version_column, is missing",
                "tenant, one of the header_columns, is missing",
                "seq, one of the header_columns, is missing",
            ],
        ),
    ],
)
def test_checks_additional_columns(library: Pipeline, columns: dict[str, str], problems: list[str]) -> None:
    pipeline = with_source(library, **ADDITIONAL)
    assert column_problems(pipeline, {**COLUMN_TYPES, **columns}) == problems
    if problems:
        with pytest.raises(RefusedError, match="does not follow the contract"):
            refuse_unsafe(pipeline, replace(DEPLOYED, columns={**COLUMN_TYPES, **columns}), LOCKED)


def test_contract_column_can_be_a_header(library: Pipeline) -> None:
    pipeline = with_source(library, header_columns={"aggregate_id": "x-key"})
    assert column_problems(pipeline, dict(COLUMN_TYPES)) == []
    assert pipeline.source.additional_columns == []


@pytest.mark.parametrize(
    ("payload", "kind"), [("json", "jsonb"), ("text", "text"), ("avro", "bytea"), ("confluent-avro", "bytea")]
)
def test_created_table_passes_its_check(library: Pipeline, payload: str, kind: str) -> None:
    pipeline = with_payload(with_source(library, **ADDITIONAL), payload)
    created = ddl.create_table(pipeline).as_string(None)
    assert f'  "payload" {kind},\n' in created
    assert created.endswith('not null default now(),\n  "version" text,\n  "tenant" text)'), "the contract has seq"


def test_creates_a_column_with_two_uses_once(library: Pipeline) -> None:
    pipeline = with_source(library, schema_version_column="tenant", header_columns={"tenant": "x", "event_type": "y"})
    book = pipeline.aggregates["book"].model_copy(update={"partition_field": "tenant"})
    pipeline = pipeline.model_copy(update={"aggregates": {"book": book}})
    created = ddl.create_table(pipeline).as_string(None)
    assert created.count('"tenant"') == 1
    assert created.count('"event_type"') == 1


# --- verify


def failures(
    pipeline: Pipeline,
    environment: Environment,
    publication: dict[str, Any],
    **additional: Any,  # noqa: ANN401 - fields of AdditionalState
) -> dict[str, str]:
    """Return the failed checks of publication and slot, with their actual value."""
    actual = replace(DEPLOYED, publication={**PUBLICATION, **publication})
    live = DatabaseState(pipeline, environment, LOCKED, actual, replace(DETAILS, **additional))
    return {check.id: check.seen for check in evaluate(slot_checks.RULES, live) if check.status is Status.FAIL}


ALL_OPERATIONS = {"pubupdate": True, "pubdelete": True, "pubtruncate": True}
TABLE_VIA_ROOT = "of public.outbox_event, with publish_via_partition_root = true"


@pytest.mark.parametrize(
    ("policies", "publication", "operations"),
    [
        ({}, {}, ""),
        ({}, ALL_OPERATIONS, f"insert, update, delete, truncate {TABLE_VIA_ROOT}"),
        ({"updated_rows": "warn", "deleted_rows": "ignore"}, {}, ""),
        ({"updated_rows": "warn", "deleted_rows": "ignore"}, ALL_OPERATIONS, ""),
        ({"updated_rows": "error"}, {"pubupdate": True}, ""),
        ({"updated_rows": "error"}, {"pubdelete": True}, f"insert, delete {TABLE_VIA_ROOT}"),
        ({"deleted_rows": "ignore"}, {"pubdelete": True, "pubtruncate": True}, ""),
        ({"deleted_rows": "ignore"}, {"pubupdate": True}, f"insert, update {TABLE_VIA_ROOT}"),
        # If inserts are not published, nothing is delivered.
        ({"updated_rows": "warn"}, {"pubinsert": False, "pubupdate": True}, f"update {TABLE_VIA_ROOT}"),
    ],
    ids=str,
)
def test_accepts_a_wider_publication_where_the_task_does(
    library: Pipeline,
    environment: Environment,
    policies: dict[str, str],
    publication: dict[str, bool],
    operations: str,
) -> None:
    actual = failures(with_source(library, **policies), environment, publication)
    assert actual == ({"postgres.publication": operations} if operations else {})


def test_column_list_includes_additional_columns(library: Pipeline, environment: Environment) -> None:
    """The connector receives null for excluded columns."""
    pipeline = with_source(library, **ADDITIONAL)
    columns = {**COLUMN_TYPES, "version": "text", "tenant": "text", "seq": "bigint"}
    actual = replace(DEPLOYED, columns=columns)
    for published, message in (([*columns], []), ([*COLUMN_TYPES], ["a column list without seq, tenant, version"])):
        live = DatabaseState(pipeline, environment, LOCKED, actual, replace(DETAILS, published_columns=published))
        result = [check.seen for check in evaluate(slot_checks.RULES, live) if check.status is Status.FAIL]
        assert result == message


# --- tombstones


class _Connection:
    """Connection that records statements."""

    def __init__(self, payload: str) -> None:
        self.payload = payload
        self.statement = ""
        self.values: dict[str, Any] = {}

    def execute(self, statement: Any, values: Any = None) -> _Connection:  # noqa: ANN401 - text or composed
        self.statement = statement if isinstance(statement, str) else statement.as_string(None)
        self.values = values if isinstance(values, dict) else {}
        return self

    def transaction(self) -> _Connection:
        return self

    def fetchall(self) -> list[dict[str, str]]:
        return [{"name": "body", "type": self.payload}]

    def __iter__(self) -> Any:  # noqa: ANN401 - rows
        return iter(self.fetchall())

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("payload", "column", "condition"),
    [
        ("json", "jsonb", """coalesce("body" = 'null'::jsonb, true)"""),
        ("json", "text", """coalesce("body"::text ~ '^[ \t\n\r]*null[ \t\n\r]*$', true)"""),
        ("text", "text", '"body" is null'),
        ("avro", "bytea", '"body" is null'),
    ],
)
def test_detects_tombstone_rows(payload: str, column: str, condition: str) -> None:
    connection: Any = _Connection(column)
    columns = Columns(payload="body", event_type="kind")
    source = Source(publication="p", slot="s", columns=columns)
    schema = None if payload in ("text", "bytes") else "x.avsc"
    settings = {"schema": schema, "payload": payload, "tombstone_event_types": ["Lost"]}
    aggregate_queries.latest_events(connection, source, "book", Aggregate.model_validate(settings), older_than=1)
    assert f'{condition} or "kind" = any(%(tombstones)s) as deleted' in connection.statement
    assert connection.values["tombstones"] == ["Lost"]
    assert sql.Identifier("body").as_string(None) in connection.statement
