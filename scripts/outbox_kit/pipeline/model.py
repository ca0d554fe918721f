"""Define and validate the content of the pipeline file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from outbox_events.contract.headers import CLOUDEVENTS_HEADERS
from outbox_kit.pipeline import names
from outbox_kit.pipeline.allowed_properties import connector_problem, require_allowed
from outbox_kit.pipeline.names import (
    TABLE_SYNTAX,
    EventType,
    Identifier,
    Model,
    PublicationName,
    QualifiedTable,
    ResourceName,
    SlotName,
)

CANARY_AGGREGATE = "outbox-canary"
"""Aggregate type of the canary of `outbox verify`. The canary has its own topic and schema."""

# These aggregate types are reserved, because their topics would have the names of other topics of the pipeline.
RESERVED_TYPES = frozenset({CANARY_AGGREGATE, "dead-letter", "transaction"})
HEARTBEAT_PREFIX = "__debezium-heartbeat"
"""Default value of Debezium's `topic.heartbeat.prefix`."""

PROTECTED_OVERRIDES = re.compile(
    r"topic\.prefix$|slot\.|publication\.|(schema|table|column)\.(include|exclude)|snapshot\.mode|errors\."
    r"|offset\.mismatch|offsets\.storage|lsn\.flush|skipped\.operations|exactly\.once"
    r"|database\.(hostname|port|dbname)"
    r"|producer\.override\.(acks|enable\.idempotence)"
    r"|(key|value|header)\.converter|transforms|heartbeat\.|message\.prefix|producer\.override\.max\.block"
)

Compatibility = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
PayloadFormat = Literal["json", "avro", "confluent-avro", "text", "bytes"]
BINARY_FORMATS = frozenset({"avro", "confluent-avro", "bytes"})
"""Payload formats for which the payload column is bytea."""
SCHEMALESS_FORMATS = ("text", "bytes")
"""Payload formats without a schema. Their payloads are passed through unchanged."""


class Columns(Model):
    """Column names of the outbox table. The defaults are the names in the contract."""

    id: Identifier = Field(default="id", description="Event id (uuid).")
    aggregate_type: Identifier = Field(default="aggregate_type", description="Aggregate type; determines the topic.")
    aggregate_id: Identifier = Field(default="aggregate_id", description="Aggregate id; becomes the record key.")
    event_type: Identifier = Field(default="event_type", description="Event type; becomes the header `event_type`.")
    payload: Identifier = Field(
        default="payload", description="Complete state of the aggregate; null if the aggregate was deleted."
    )
    headers: Identifier = Field(default="headers", description="JSON object whose members become record headers.")
    created_at: Identifier = Field(default="created_at", description="Time of the event.")


class Source(Model):
    """Outbox table, publication and replication slot."""

    table: QualifiedTable = Field(default="public.outbox_event", description=f"Outbox table: {TABLE_SYNTAX}.")
    publication: PublicationName = Field(
        description="Publication of the outbox table, in lower case. `outbox apply` creates it."
    )
    slot: SlotName = Field(description="Logical replication slot; must be unique on the server.")
    columns: Columns = Field(default=Columns(), description="Column names that differ from the contract.")
    message_prefix: Identifier | None = Field(
        default=None,
        description="Prefix of logical decoding messages. If it is set, events are messages instead of table rows.",
    )
    schema_version_column: Identifier | None = Field(
        default=None,
        description="Column (text or integer) that contains the registry version of the payload's schema. If a row has "
        "null in this column, the router uses the latest version that accepts the payload. With `payload: avro`, the "
        "column is required, and null is valid only if the schema has one version.",
    )
    header_columns: names.HeaderNames = Field(
        default={}, description="Columns that become record headers, as a mapping from column name to header name."
    )
    cloudevents_source: names.UriReference | None = Field(
        default=None,
        description="URI reference for the header `ce_source`. If it is set, records have CloudEvents headers "
        "(`ce_id`, `ce_type`, ...).",
    )
    updated_rows: Literal["fail", "error", "warn"] = Field(
        default="fail",
        description="Handling of updated outbox rows if the publication includes updates: `fail` stops the task; "
        "`error` and `warn` skip the row and log a message at that level.",
    )
    deleted_rows: Literal["fail", "ignore"] = Field(
        default="fail",
        description="Handling of deleted outbox rows if the publication includes deletes: `fail` stops the task; "
        "`ignore` skips the row. Debezium always skips TRUNCATE.",
    )

    @model_validator(mode="after")
    def reject_cloudevents_names(self) -> Source:
        """Reject header names that CloudEvents uses, if `cloudevents_source` is set."""
        if self.cloudevents_source is not None:
            names.reject_reserved(self.header_columns, CLOUDEVENTS_HEADERS, "cloudevents_source sets it")
        return self

    @property
    def uses_table(self) -> bool:
        """Whether events are rows of the outbox table. Otherwise they are logical decoding messages."""
        return self.message_prefix is None

    @property
    def additional_columns(self) -> list[str]:
        """Columns for the schema version and headers that the contract does not define, without duplicates."""
        columns = [*([self.schema_version_column] if self.schema_version_column else []), *self.header_columns]
        return [name for name in dict.fromkeys(columns) if name not in self.columns.model_dump().values()]


_KEYS_PLACEHOLDER = re.compile(r"(?<!:):keys\b")
"""Placeholder for the requested keys in a backfill query. A cast (`x::keys`) is not a placeholder."""


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _reject_duplicates(columns: list[str]) -> list[str]:
    if len(set(columns)) < len(columns):
        raise ValueError(f"a column is listed more than once: {', '.join(columns)}")
    return columns


KeyColumns = Annotated[
    list[Identifier],
    Field(min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=Identifier | list[Identifier]),
    AfterValidator(_reject_duplicates),
]


class Backfill(Model):
    """Query that reads the current states of aggregates from the business tables."""

    table: QualifiedTable = Field(
        description=f"Table with one row per aggregate: {TABLE_SYNTAX}. The row is locked while its state is read."
    )
    key: KeyColumns = Field(
        description="Unique column of the table, whose value, as text, is the aggregate_id. Or a list of columns that "
        "are unique together, whose values are joined as by `outbox_events.composite_id`.",
    )
    query: str = Field(
        min_length=1,
        description="SELECT that returns `aggregate_id` (text), `payload` (jsonb), and the `partition_field` if it is "
        "set. `:keys` is replaced with an array of the requested keys, as in `where id = any(:keys)`. If `key` is a "
        "list, the query returns these columns instead of `aggregate_id`, as in `where (a, b) = any(:keys)`.",
    )

    @property
    def id_columns(self) -> list[str]:
        """Columns of the query's result that contain the aggregate_id, or the values that form it."""
        return self.key if len(self.key) > 1 else ["aggregate_id"]

    def query_for(self, keys: str) -> str:
        """Return the query without its final semicolon, and with the SQL expression `keys` in place of `:keys`."""
        return _KEYS_PLACEHOLDER.sub(lambda _: keys, self.query.strip().rstrip(";"))


class Aggregate(Model):
    """One aggregate type, with its payload, schema and topic."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"payload": {"enum": [*SCHEMALESS_FORMATS]}}, "required": ["payload"]},
            "else": {"required": ["schema"]},
        }
    )

    payload: PayloadFormat = Field(
        default="json",
        description="Content of the payload column. `json`: JSON that the transform encodes as Avro; `avro`: an Avro "
        "body as bytea; `confluent-avro`: Confluent's wire format as bytea; `text`: text that is passed through "
        "without a schema; `bytes`: bytea that is passed through without a schema.",
    )
    schema_file: Path | None = Field(
        default=None,
        alias="schema",
        description="Avro schema (.avsc) of the payload; required unless `payload` is text or bytes.",
    )
    unknown_fields: Literal["refuse", "ignore"] = Field(
        default="refuse",
        description="Handling of a JSON payload field that no schema version defines: `refuse` makes the row a dead "
        "letter; `ignore` omits the field.",
    )
    tombstone_event_types: list[EventType] = Field(
        default=[], description="Event types whose rows become tombstones, regardless of the payload."
    )
    partitions: int = Field(
        default=1, ge=1, description="Partition count of the topic. Changing the count moves keys to other partitions."
    )
    partition_field: Identifier | None = Field(
        default=None,
        description="Outbox column that determines the partition. All rows of an aggregate must have the same value in "
        "this column. By default, the record key determines the partition.",
    )
    compatibility: Compatibility = Field(
        default="BACKWARD", description="Compatibility level of the subject in the registry."
    )
    topic: dict[str, str] = Field(
        default={}, description="Topic settings that extend or override outbox-kit's settings."
    )
    references: list[Path] = Field(
        default=[], description="Schemas (.avsc) of named types that this schema uses; registered as references."
    )
    backfill: Backfill | None = Field(default=None, description="Query for `outbox backfill` and `outbox republish`.")

    @model_validator(mode="before")
    @classmethod
    def add_schema_key(cls, data: Any) -> Any:  # noqa: ANN401 - YAML data
        """Set a missing `schema` to null, so that the error message names `schema` instead of `schema_file`."""
        return {"schema": None, **data} if isinstance(data, dict) else data

    @field_validator("schema_file")
    @classmethod
    def require_schema(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        """Require a schema unless the payload is passed through."""
        if path is None and info.data.get("payload") not in SCHEMALESS_FORMATS:
            error_type = "missing"
            raise PydanticCustomError(error_type, "Field required")
        return path

    @field_validator("tombstone_event_types")
    @classmethod
    def require_unique_types(cls, types: list[str]) -> list[str]:
        """Reject an event type that is listed more than once, as the transform does."""
        duplicate = next((name for name in types if types.count(name) > 1), None)
        if duplicate is not None:
            raise ValueError(f"event type {duplicate!r} is listed more than once")
        return types

    @model_validator(mode="after")
    def reject_settings_of_other_payloads(self) -> Aggregate:
        """Reject settings that the payload format does not support."""
        if self.payload in SCHEMALESS_FORMATS and (self.schema_file is not None or self.references):
            raise ValueError(f"an aggregate with payload: {self.payload} has no schema; remove schema and references")
        if self.payload != "json" and self.unknown_fields != "refuse":
            msg = f"unknown_fields: {self.unknown_fields} requires payload: json, but payload is {self.payload}"
            raise ValueError(msg)
        if self.payload in BINARY_FORMATS and self.backfill is not None:
            msg = f"backfill does not support payload: {self.payload}; remove backfill"
            raise ValueError(msg)
        return self

    @property
    def schema_path(self) -> Path:
        """Path of the schema file. Raises ValueError if the payload is text."""
        if self.schema_file is None:
            raise ValueError("an aggregate with payload: text has no schema file")
        return self.schema_file

    @property
    def is_binary(self) -> bool:
        """Whether the payload column is bytea."""
        return self.payload in BINARY_FORMATS

    @field_validator("topic")
    @classmethod
    def require_compaction(cls, topic: dict[str, str]) -> dict[str, str]:
        """Require compaction, because otherwise a state topic grows without limit or loses states."""
        policy = topic.get("cleanup.policy", "compact")
        if policy != "compact":
            raise ValueError(f"cleanup.policy is {policy!r}; the topic of an aggregate type must be 'compact'")
        return topic


class DeadLetter(Model):
    """Settings of the dead letter topic."""

    partitions: int = Field(default=1, ge=1, description="Number of partitions of the dead letter topic.")
    retention_days: int = Field(default=30, ge=1, description="Retention of dead letters, in days.")


class Connector(Model):
    """The Debezium connector of the pipeline."""

    name: ResourceName = Field(description="Name of the connector in Kafka Connect.")
    template: str = Field(default="outbox-postgres", description="Template in connectors/templates/.")
    transaction_metadata: bool = Field(
        default=False, description="Publish transaction boundaries to <prefix>.transaction."
    )
    overrides: dict[str, str] = Field(default={}, description="Connector settings that override the template.")

    @field_validator("overrides")
    @classmethod
    def reject_protected_overrides(cls, overrides: dict[str, str]) -> dict[str, str]:
        """Reject settings that affect the delivery guarantees or execute code, and secrets in plain text."""
        protected = sorted(key for key in overrides if PROTECTED_OVERRIDES.match(key))
        plain_text = sorted(key for key, value in overrides.items() if "password" in key and "${" not in value)
        if plain_text:
            msg = f"{plain_text[0]} must be a placeholder that the worker resolves: ${{env:NAME}}, ${{file:path:key}}"
            raise ValueError(msg)
        if protected:
            msg = f"{protected[0]} cannot be overridden, because rows could be lost; to change it, copy the template"
            raise ValueError(msg)
        require_allowed(overrides, connector_problem)
        return overrides


# Names of the tables that the Spark jobs create beside the materialized tables.
OFFSETS_TABLE = "outbox_offsets"
COMPANION_SUFFIXES = ("__tombstones", "__quarantine", "__rebuild")


class Materialization(Model):
    """One table, materialized from the topic of one aggregate type."""

    aggregate: str = Field(description="Aggregate type, a key of `aggregates`.")
    target: str = Field(description="Target, a key of `targets` in the environment file.")
    table: Identifier = Field(
        description=f"Table name in the target. It must not be {OFFSETS_TABLE}, and must not end like the names of "
        f"companion tables: {', '.join(COMPANION_SUFFIXES)}."
    )
    mode: Literal["hard-delete", "soft-delete", "history"] = Field(
        default="hard-delete",
        description="Handling of a deleted key: `hard-delete` removes the row; `soft-delete` retains the last row and "
        "sets `_deleted_at`; `history` retains every version with its validity period (PostgreSQL and Delta).",
    )
    key_format: Literal["text", "json", "json-with-schema"] = Field(
        default="text",
        description="Format of record keys. `text` also accepts Avro strings in Confluent's wire format.",
    )
    value_format: Literal["avro", "json", "json-with-schema"] = Field(
        default="avro",
        description="Format of record values. `avro` reads the schema id from the prefix or a header of each record; "
        "the JSON formats are the formats of Kafka Connect's JsonConverter.",
    )
    schema_version: int | None = Field(
        default=None, ge=1, description="Subject version whose schema determines the columns. Default: the latest."
    )
    tombstone_ttl_hours: int = Field(
        default=720,
        ge=1,
        description="Retention of deletions, in hours. During this time a replay cannot restore a deleted key.",
    )
    missed_tombstones: Literal["reconcile", "refuse"] = Field(
        default="reconcile",
        description="Handling of a table if the time since its last run exceeds the topic's delete.retention.ms: "
        "`reconcile` reconciles the table with the topic; `refuse` rejects the run.",
    )
    unsequenced_records: Literal["refuse", "quarantine"] = Field(
        default="refuse",
        description="Handling of records without the header source_sequence, which another producer wrote: "
        "`refuse` rejects the run if other records have the header; `quarantine` quarantines these records, so that "
        "they change no row.",
    )
    max_quarantined: int = Field(
        default=1000,
        ge=0,
        description="Maximum number of quarantined records per run. The batch that exceeds this number is not written, "
        "and the run fails.",
    )

    @field_validator("table")
    @classmethod
    def reject_companion_names(cls, table: str) -> str:
        """Reject the name of the table of offsets, and names that companion tables of another table can have."""
        if table == OFFSETS_TABLE:
            raise ValueError(f"table {table!r} contains the offsets of all tables; choose another name")
        if table.endswith(COMPANION_SUFFIXES):
            raise ValueError(
                f"table {table!r} must not end with {' or '.join(COMPANION_SUFFIXES)}; choose another name"
            )
        return table


class Pipeline(Model):
    """One pipeline: an outbox, its topics, its connector, and the tables materialized from the topics."""

    name: ResourceName = Field(description="Name of the pipeline. It cannot be changed after the first apply.")
    prefix: ResourceName = Field(description="Topic prefix and Debezium's topic.prefix; must be unique in the cluster.")
    source: Source = Field(description="Outbox table, publication and slot.")
    aggregates: dict[ResourceName, Aggregate] = Field(min_length=1, description="Settings of each aggregate type.")
    dead_letter: DeadLetter = Field(default=DeadLetter(), description="Topic for rows that could not be routed.")
    connector: Connector = Field(description="The Debezium connector.")
    materializations: list[Materialization] = Field(default=[], description="Tables materialized from the topics.")

    @field_validator("prefix")
    @classmethod
    def require_own_topics(cls, prefix: str) -> str:
        """Reject a prefix of another pipeline's topics, such as library.dead-letter.acknowledged."""
        first, *others = prefix.split(".")
        if first == HEARTBEAT_PREFIX or RESERVED_TYPES & set(others):
            raise ValueError(f"prefix {prefix!r} is reserved, because other pipelines can have topics with this prefix")
        return prefix

    @model_validator(mode="after")
    def require_valid_references(self) -> Pipeline:
        """Check references between sections of the file."""
        reserved = next((name for name in self.aggregates if name.split(".")[0] in RESERVED_TYPES), None)
        if reserved is not None:
            raise ValueError(f"aggregate type {reserved!r} is reserved; choose another name")
        tables: set[tuple[str, str]] = set()
        for entry in self.materializations:
            if entry.aggregate not in self.aggregates:
                names = ", ".join(sorted(self.aggregates))
                raise ValueError(f"materialization of unknown aggregate {entry.aggregate!r}; known aggregates: {names}")
            if (entry.target, entry.table) in tables:
                raise ValueError(f"two materializations write table {entry.table!r} of target {entry.target!r}")
            payload = self.aggregates[entry.aggregate].payload
            if payload in SCHEMALESS_FORMATS:
                problem = f"its payload is {payload} and has no schema for the columns"
                raise ValueError(f"materialization of {entry.aggregate!r}: {problem}")
            tables.add((entry.target, entry.table))
        return self

    @model_validator(mode="after")
    def require_one_payload_type(self) -> Pipeline:
        """Check that one column can contain the payloads of all aggregates: JSON and text, or bytea."""
        binary_aggregate = next((name for name, entry in self.aggregates.items() if entry.is_binary), None)
        text_aggregate = next((name for name, entry in self.aggregates.items() if not entry.is_binary), None)
        if binary_aggregate and text_aggregate:
            binary_payload = self.aggregates[binary_aggregate].payload
            msg = (
                f"payload of {binary_aggregate!r} is {binary_payload}, and payload of {text_aggregate!r} is "
                f"{self.aggregates[text_aggregate].payload}: one column cannot be bytea and {self._text_column_type()}"
            )
            raise ValueError(msg)
        if binary_aggregate and not self.source.uses_table:
            payload = self.aggregates[binary_aggregate].payload
            raise ValueError(
                f"payload of {binary_aggregate!r} is {payload}: a logical decoding message is JSON, not bytes"
            )
        return self

    @model_validator(mode="after")
    def require_version_column(self) -> Pipeline:
        """Require `schema_version_column` for Avro bodies, which do not contain the version of their schema."""
        aggregate = next((name for name, entry in self.aggregates.items() if entry.payload == "avro"), None)
        if aggregate is not None and self.source.schema_version_column is None:
            msg = (
                f"payload of {aggregate!r} is avro, and source.schema_version_column is not set: an Avro body does not "
                "contain its schema version; set schema_version_column to the column in which the service writes the "
                "registry version, or use confluent-avro"
            )
            raise ValueError(msg)
        return self

    def _text_column_type(self) -> Literal["text", "jsonb"]:
        return "text" if any(entry.payload == "text" for entry in self.aggregates.values()) else "jsonb"

    @property
    def payload_type(self) -> Literal["bytea", "text", "jsonb"]:
        """Type of the payload column that `apply` creates."""
        is_binary = any(entry.is_binary for entry in self.aggregates.values())
        return "bytea" if is_binary else self._text_column_type()

    @property
    def routed(self) -> dict[str, Aggregate]:
        """Aggregates by type, including the canary.

        If the payload column is bytea, the canary uses Confluent's wire format, which requires no version column.
        """
        payload: PayloadFormat = "confluent-avro" if self.payload_type == "bytea" else "json"
        return {**self.aggregates, CANARY_AGGREGATE: Aggregate(schema=CANARY_SCHEMA, payload=payload)}

    @property
    def partition_fields(self) -> dict[str, str]:
        """Columns that determine the partition, by aggregate type. The key determines it for all other types."""
        return {name: entry.partition_field for name, entry in self.aggregates.items() if entry.partition_field}

    @property
    def outbox_columns(self) -> set[str]:
        """Columns of the outbox table that the connector reads."""
        source = self.source
        return {*source.columns.model_dump().values(), *source.additional_columns, *self.partition_fields.values()}

    @property
    def with_schemas(self) -> dict[str, Aggregate]:
        """Aggregates in `routed` that have a schema."""
        return {name: entry for name, entry in self.routed.items() if entry.schema_file is not None}

    def topic_of(self, aggregate_type: str) -> str:
        return f"{self.prefix}.{aggregate_type}"

    def subject_of(self, aggregate_type: str) -> str:
        """Registry subject of an aggregate type (TopicNameStrategy)."""
        return f"{self.topic_of(aggregate_type)}-value"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.prefix}.dead-letter"

    @property
    def acknowledgement_topic(self) -> str:
        """Topic that stores which dead letters are acknowledged, also those of consumers."""
        return f"{self.dead_letter_topic}.acknowledged"

    @property
    def heartbeat_topic(self) -> str:
        """Debezium's heartbeat topic."""
        return f"{HEARTBEAT_PREFIX}.{self.prefix}"

    @property
    def transaction_topic(self) -> str:
        """Debezium's topic for transaction boundaries."""
        return f"{self.prefix}.transaction"


CANARY_SCHEMA = Path(__file__).with_name("canary.avsc")
