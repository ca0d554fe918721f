"""Options for rows: errors for invalid options, and the settings that each template renders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_events.errors import ConfigurationError
from outbox_kit.pipeline import Environment, Lock, Pipeline, load_pipeline, render_connector

AUTHOR, BOOK, SOURCE = "aggregates/author", "aggregates/book", "source"
ROUTER, CHAIN, EVENT_ROUTER, MESSAGES = (
    "outbox-postgres",
    "outbox-postgres-chain",
    "outbox-postgres-eventrouter",
    "outbox-postgres-messages",
)
NO_TABLE = {f"{BOOK}/backfill": None, f"{AUTHOR}/backfill": None, "materializations": []}
CONFLUENT_AVRO = {**NO_TABLE, f"{AUTHOR}/payload": "confluent-avro", f"{BOOK}/payload": "confluent-avro"}
AVRO = {**CONFLUENT_AVRO, f"{AUTHOR}/payload": "avro", f"{SOURCE}/schema_version_column": "version"}
BYTES = {**CONFLUENT_AVRO, f"{BOOK}/payload": "bytes", f"{BOOK}/schema": None}
TEXT = {**NO_TABLE, f"{BOOK}/payload": "text", f"{BOOK}/schema": None}


def changed(workspace: Path, changes: dict[str, Any]) -> Path:
    """Change values of the example's pipeline file by slash-separated path. None removes a value."""
    path = workspace / "connectors" / "library.yaml"
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    for location, value in changes.items():
        *parents, key = location.split("/")
        node = data
        for parent in parents:
            node = node[parent]
        node[key] = value
        if value is None:
            del node[key]
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path


INVALID: list[tuple[dict[str, Any], str, str]] = [
    (
        {f"{BOOK}/payload": "xml"},
        f"{BOOK}/payload",
        "found 'xml'; must be 'json', 'avro', 'confluent-avro', 'text' or 'bytes'",
    ),
    ({f"{BOOK}/schema": None}, f"{BOOK}/schema", "missing; Avro schema (.avsc) of the payload"),
    (
        {**NO_TABLE, f"{BOOK}/payload": "avro", f"{BOOK}/schema": None},
        f"{BOOK}/schema",
        "missing; Avro schema (.avsc)",
    ),
    (
        {**TEXT, f"{BOOK}/schema": "schemas/book.avsc"},
        BOOK,
        "payload: text has no schema; remove schema and references",
    ),
    (
        {**TEXT, "materializations": [{"aggregate": "book", "target": "lake", "table": "book"}]},
        "",
        "materialization of 'book': its payload is text and has no schema for the columns",
    ),
    (
        {**BYTES, f"{BOOK}/schema": "schemas/book.avsc"},
        BOOK,
        "payload: bytes has no schema; remove schema and references",
    ),
    (
        {**BYTES, "materializations": [{"aggregate": "book", "target": "lake", "table": "book"}]},
        "",
        "materialization of 'book': its payload is bytes and has no schema for the columns",
    ),
    (
        {**NO_TABLE, f"{BOOK}/payload": "avro"},
        "",
        "payload of 'book' is avro, and payload of 'author' is json: one column cannot be bytea and jsonb",
    ),
    (
        {**TEXT, f"{AUTHOR}/payload": "confluent-avro"},
        "",
        "payload of 'author' is confluent-avro, and payload of 'book' is text: one column cannot be bytea and text",
    ),
    ({**AVRO, "source/message_prefix": "outbox"}, "", "payload of 'author' is avro: a logical decoding message"),
    (
        {**CONFLUENT_AVRO, f"{BOOK}/payload": "avro"},
        "",
        "payload of 'book' is avro, and source.schema_version_column is not set: ",
    ),
    ({f"{BOOK}/payload": "avro"}, BOOK, "backfill does not support payload: avro"),
    ({f"{BOOK}/unknown_fields": "drop"}, f"{BOOK}/unknown_fields", "found 'drop'; must be 'refuse' or 'ignore'"),
    (
        {**AVRO, f"{BOOK}/unknown_fields": "ignore"},
        BOOK,
        "unknown_fields: ignore requires payload: json, but payload is confluent-avro",
    ),
    (
        {f"{BOOK}/tombstone_event_types": ["Lost", "Sold", "Lost"]},
        f"{BOOK}/tombstone_event_types",
        "found a list; event type 'Lost' is listed more than once",
    ),
    *(
        ({f"{BOOK}/tombstone_event_types": [kind]}, f"{BOOK}/tombstone_event_types/0", "must match ")
        for kind in ("", "Lost,Sold", " Lost", "Lost ")
    ),
    *(
        ({f"{SOURCE}/header_columns": {"tenant": name}}, f"{SOURCE}/header_columns", f"'{name}', the header of column")
        for name in ("event_id", "source_sequence", "dead_letter_reason", "", "a b", "a:b", "a,b", "${env}")
    ),
    *(
        ({f"{SOURCE}/header_columns": {"tenant": name}}, f"{SOURCE}/header_columns", "must not contain white space")
        for name in ('a"', '"},{"', "a\\", "a\0", "a\x07b", "a\x7f", "a\x85")
    ),
    (
        {f"{SOURCE}/header_columns": {"tenant": "t", "region": "t"}},
        f"{SOURCE}/header_columns",
        "columns tenant, region have the same header 't'",
    ),
    (
        {f"{SOURCE}/header_columns": {"tenant": "ce_id"}, f"{SOURCE}/cloudevents_source": "/library"},
        SOURCE,
        "'ce_id', the header of column tenant, is reserved: cloudevents_source sets it; choose another name",
    ),
    ({f"{SOURCE}/header_columns": {"no name": "t"}}, f"{SOURCE}/header_columns/no name", "must match "),
    *(
        ({f"{SOURCE}/cloudevents_source": text}, f"{SOURCE}/cloudevents_source", "must be a URI reference (RFC 3986)")
        for text in ("", "two parts", "1:x", "urn:", "%zz", "a#b#c", "http://x/{y}", "/bücher", "x[1]")
    ),
    ({f"{SOURCE}/schema_version_column": "a-b"}, f"{SOURCE}/schema_version_column", "found 'a-b'; must match "),
    ({f"{SOURCE}/updated_rows": "ignore"}, f"{SOURCE}/updated_rows", "must be 'fail', 'error' or 'warn'"),
    ({f"{SOURCE}/deleted_rows": "warn"}, f"{SOURCE}/deleted_rows", "must be 'fail' or 'ignore'"),
]


@pytest.mark.parametrize(("changes", "path", "message"), INVALID, ids=[f"{row[1]}: {row[2]}" for row in INVALID])
def test_rejects_invalid_options(workspace: Path, changes: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_pipeline(changed(workspace, changes))
    assert f": {path.replace('/', '.') or '(top level)'}: " in caught.value.message
    assert message in caught.value.message


ACCEPTED: list[tuple[dict[str, Any], str]] = [
    ({}, "jsonb"),
    ({f"{BOOK}/unknown_fields": "ignore", f"{BOOK}/tombstone_event_types": ["Lost", "Given away"]}, "jsonb"),
    (TEXT, "text"),
    ({**TEXT, "source/message_prefix": "outbox"}, "text"),
    (AVRO, "bytea"),
    (CONFLUENT_AVRO, "bytea"),
    (BYTES, "bytea"),
    ({f"{SOURCE}/header_columns": {"tenant": "ce_tenant", "region": "content-type"}}, "jsonb"),
    *(
        ({f"{SOURCE}/cloudevents_source": text}, "jsonb")
        for text in ("/library", "urn:shop:library", "https://[::1]:8080/a?b=c#d", "//shop.example", "#f", "a%20b/c:d")
    ),
]


@pytest.mark.parametrize(("changes", "column"), ACCEPTED, ids=[str(row[0]) for row in ACCEPTED])
def test_accepts_valid_options(workspace: Path, changes: dict[str, Any], column: str) -> None:
    pipeline = load_pipeline(changed(workspace, changes))
    assert pipeline.payload_type == column
    # The row of the canary must fit the column, too.
    assert pipeline.routed["outbox-canary"].payload == ("confluent-avro" if column == "bytea" else "json")
    schemaless = [name for name, entry in pipeline.aggregates.items() if entry.payload in ("text", "bytes")]
    assert set(pipeline.routed) - set(pipeline.with_schemas) == set(schemaless)


def render(
    workspace: Path, environment: Environment, lock: Lock, changes: dict[str, Any], template: str
) -> dict[str, str]:
    connector = {"connector/template": template}
    pipeline = load_pipeline(changed(workspace, {**connector, **changes}))
    return render_connector(pipeline, environment, lock, workspace / "connectors" / "templates")


OUTBOX = "transforms.outbox."
TOMBSTONE_STEP = "transforms.ended1."
CHAIN_FIELDS = "id,event_type,aggregate_type,created_at"
CHAIN_HEADERS = "event_id,event_type,aggregate_type,event_time"
PLACEMENT = (
    "id:header:event_id,event_type:header:event_type,aggregate_type:header:aggregate_type,created_at:header:event_time"
)
TOPIC_MATCHES = "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"
HEADER_COLUMNS = {f"{SOURCE}/header_columns": {"tenant": "tenant", "region": "x-region"}}
TOMBSTONE_TYPES = {f"{BOOK}/tombstone_event_types": ["Lost", "Given away"]}

# Options, and the additional settings that a template renders for them.
RENDERED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    (ROUTER, {f"{BOOK}/payload": "json", f"{BOOK}/unknown_fields": "refuse"}, {}),
    (ROUTER, {f"{SOURCE}/updated_rows": "fail", f"{SOURCE}/deleted_rows": "fail"}, {}),
    (ROUTER, {f"{SOURCE}/updated_rows": "warn"}, {f"{OUTBOX}table.op.invalid.behavior": "warn"}),
    (ROUTER, {f"{SOURCE}/updated_rows": "error"}, {f"{OUTBOX}table.op.invalid.behavior": "error"}),
    (ROUTER, {f"{SOURCE}/deleted_rows": "ignore"}, {f"{OUTBOX}deleted.rows": "ignore"}),
    (
        ROUTER,
        {f"{SOURCE}/schema_version_column": "version"},
        {f"{OUTBOX}table.field.event.schema.version": "version"},
    ),
    (
        ROUTER,
        HEADER_COLUMNS,
        {f"{OUTBOX}table.fields.additional.placement": "tenant:header:tenant,region:header:x-region"},
    ),
    *(
        (
            template,
            {f"{SOURCE}/header_columns": {"tenant": "<it's>/&é'"}},
            {f"{OUTBOX}table.fields.additional.placement": f"{before}tenant:header:<it's>/&é'"},
        )
        for template, before in ((ROUTER, ""), (EVENT_ROUTER, f"{PLACEMENT},"))
    ),
    (ROUTER, {f"{SOURCE}/cloudevents_source": "/library"}, {f"{OUTBOX}cloudevents.source": "/library"}),
    (ROUTER, {f"{BOOK}/unknown_fields": "ignore"}, {f"{OUTBOX}aggregate.book.unknown.fields": "ignore"}),
    (ROUTER, TOMBSTONE_TYPES, {f"{OUTBOX}aggregate.book.tombstone.event.types": "Lost,Given away"}),
    (
        ROUTER,
        AVRO,
        {
            f"{OUTBOX}aggregate.author.payload.format": "avro",
            f"{OUTBOX}aggregate.book.payload.format": "confluent-avro",
            f"{OUTBOX}aggregate.outbox-canary.payload.format": "confluent-avro",
            f"{OUTBOX}table.field.event.schema.version": "version",
        },
    ),
    (
        MESSAGES,
        {**HEADER_COLUMNS, f"{SOURCE}/schema_version_column": "version", f"{SOURCE}/cloudevents_source": "/library"},
        {
            f"{OUTBOX}table.fields.additional.placement": "tenant:header:tenant,region:header:x-region",
            f"{OUTBOX}table.field.additional.missing": "ignore",
            f"{OUTBOX}table.field.event.schema.version": "version",
            f"{OUTBOX}cloudevents.source": "/library",
        },
    ),
    (EVENT_ROUTER, {f"{SOURCE}/updated_rows": "warn"}, {f"{OUTBOX}table.op.invalid.behavior": "warn"}),
    (EVENT_ROUTER, {f"{SOURCE}/deleted_rows": "ignore"}, {}),
    (EVENT_ROUTER, TEXT, {}),
    (
        EVENT_ROUTER,
        HEADER_COLUMNS,
        {f"{OUTBOX}table.fields.additional.placement": f"{PLACEMENT},tenant:header:tenant,region:header:x-region"},
    ),
    (
        CHAIN,
        HEADER_COLUMNS,
        {
            "transforms.headers.fields": f"{CHAIN_FIELDS},tenant,region",
            "transforms.headers.headers": f"{CHAIN_HEADERS},tenant,x-region",
        },
    ),
    (
        CHAIN,
        TOMBSTONE_TYPES,
        {
            "predicates": "isRow,isEvent,isPlacedByKey,isHeartbeat,isEnded1",
            "predicates.isEnded1.type": TOPIC_MATCHES,
            "predicates.isEnded1.pattern": r"library\.book",
            "transforms": "unwrap,headers,key,keyText,route,partition,ended1,tombstone,payload,heartbeat",
            f"{TOMBSTONE_STEP}type": "io.outboxkit.smt.SetTombstone",
            f"{TOMBSTONE_STEP}predicate": "isEnded1",
            f"{TOMBSTONE_STEP}type.field": "header.event_type",
            f"{TOMBSTONE_STEP}types": "Lost,Given away",
        },
    ),
]


@pytest.mark.parametrize(
    ("template", "changes", "added"), RENDERED, ids=[f"{template}: {changes}" for template, changes, _ in RENDERED]
)
def test_renders_options(
    workspace: Path,
    environment: Environment,
    lock: Lock,
    template: str,
    changes: dict[str, Any],
    added: dict[str, str],
) -> None:
    message = {"source/message_prefix": "outbox"} if template == MESSAGES else {}
    before = render(workspace, environment, lock, message, template)
    after = render(workspace, environment, lock, changes, template)
    assert {key: value for key, value in after.items() if before.get(key) != value} == added
    assert before.keys() - after.keys() == set()


@pytest.mark.parametrize(("payload", "changes"), [("text", TEXT), ("bytes", BYTES)])
def test_payload_that_is_passed_on_has_no_schema(
    workspace: Path, environment: Environment, lock: Lock, payload: str, changes: dict[str, Any]
) -> None:
    """The transform rejects schema keys for such payloads, so the config omits the schemas of the lock file."""
    config = render(workspace, environment, lock, changes, ROUTER)
    book = {key.removeprefix(f"{OUTBOX}aggregate.book."): value for key, value in config.items() if ".book." in key}
    assert book == {"topic": "library.book", "partitions": "4", "payload.format": payload}


UNSUPPORTED: list[tuple[str, dict[str, Any], str]] = [
    (EVENT_ROUTER, AVRO, "EventRouter passes text through: aggregate author has payload avro"),
    (EVENT_ROUTER, {f"{BOOK}/unknown_fields": "ignore"}, "aggregate book has unknown_fields ignore"),
    (EVENT_ROUTER, TOMBSTONE_TYPES, "EventRouter does not support tombstone_event_types, which aggregate book has"),
    (
        EVENT_ROUTER,
        {f"{SOURCE}/schema_version_column": "v"},
        "EventRouter does not support source.schema_version_column",
    ),
    (EVENT_ROUTER, {f"{SOURCE}/cloudevents_source": "/x"}, "EventRouter does not support source.cloudevents_source"),
    (CHAIN, CONFLUENT_AVRO, "a chain parses only JSON: aggregate author has payload confluent-avro"),
    (CHAIN, TEXT, "a chain parses only JSON: aggregate book has payload text"),
    (CHAIN, {f"{BOOK}/unknown_fields": "ignore"}, "a chain rejects unknown fields: aggregate book"),
    (CHAIN, {f"{SOURCE}/schema_version_column": "v"}, "a chain does not support source.schema_version_column"),
    (CHAIN, {f"{SOURCE}/cloudevents_source": "/x"}, "a chain does not support source.cloudevents_source"),
    (CHAIN, {f"{SOURCE}/updated_rows": "warn"}, "so source.updated_rows must be fail"),
    (CHAIN, {f"{SOURCE}/deleted_rows": "ignore"}, "so source.deleted_rows must be fail"),
    (
        MESSAGES,
        {"source/message_prefix": "outbox", f"{SOURCE}/updated_rows": "warn"},
        "source.updated_rows is warn: messages are neither updated nor deleted",
    ),
    (
        MESSAGES,
        {"source/message_prefix": "outbox", f"{SOURCE}/deleted_rows": "ignore"},
        "source.deleted_rows is ignore: messages are neither",
    ),
]


@pytest.mark.parametrize(("template", "changes", "message"), UNSUPPORTED, ids=[message for *_, message in UNSUPPORTED])
def test_rejects_options_that_a_template_does_not_support(
    workspace: Path, environment: Environment, lock: Lock, template: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        render(workspace, environment, lock, changes, template)
    assert message in caught.value.message
    assert f"template {template}:" in caught.value.message
    assert "pipeline file" in caught.value.hint


def test_default_options_change_nothing(library: Pipeline) -> None:
    """The defaults are those of the transform."""
    source, book = library.source, library.aggregates["book"]
    assert (source.updated_rows, source.deleted_rows, source.header_columns) == ("fail", "fail", {})
    assert (source.schema_version_column, source.cloudevents_source) == (None, None)
    assert (book.payload, book.unknown_fields, book.tombstone_event_types) == ("json", "refuse", [])


@pytest.mark.parametrize(("template", "before"), [(ROUTER, ""), (EVENT_ROUTER, f"{PLACEMENT},")])
def test_template_escapes_header_names(
    workspace: Path, environment: Environment, lock: Lock, template: str, before: str
) -> None:
    """A header name cannot become another setting."""
    name = 'x", "tasks.max": "2'
    pipeline = load_pipeline(changed(workspace, {"connector/template": template}))
    source = pipeline.source.model_copy(update={"header_columns": {"tenant": name}})
    unchecked = pipeline.model_copy(update={"source": source})
    config = render_connector(unchecked, environment, lock, workspace / "connectors" / "templates")
    assert config["tasks.max"] == "1"
    assert config[f"{OUTBOX}table.fields.additional.placement"] == f"{before}tenant:header:{name}"
