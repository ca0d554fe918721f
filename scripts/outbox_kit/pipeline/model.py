"""The pipeline file: what one outbox publishes and which tables are made of it. Pure data, no network."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from outbox_kit.pipeline import header_names as headers

CANARY_AGGREGATE = "outbox-canary"
"""The aggregate type that `outbox verify` writes; its own topic and schema, never a business topic."""

# Topics beside the aggregates': a second owner would give them another clean-up policy.
RESERVED = frozenset({CANARY_AGGREGATE, "dead-letter", "transaction"})

PROTECTED = re.compile(
    r"topic\.prefix$|slot\.|publication\.|(schema|table|column)\.(include|exclude)|snapshot\.mode|errors\."
    r"|offset\.mismatch|lsn\.flush|skipped\.operations|exactly\.once|database\.(hostname|dbname)"
    r"|producer\.override\.(acks|enable\.idempotence)"
    r"|(key|value|header)\.converter|transforms|heartbeat\.|message\.prefix|producer\.override\.max\.block"
)

Compatibility = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]
PayloadFormat = Literal["json", "avro", "confluent-avro", "text"]
BINARY_FORMATS = frozenset({"avro", "confluent-avro"})
"""Formats whose payload column is bytea."""

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]
QualifiedTable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*\.[A-Za-z_]\w*$", max_length=127)]
# Kafka allows these in topic names; a slot or a subject made of them is legal too.
TopicPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)]
# PostgreSQL: "Slot names may only contain lower case letters, numbers, and the underscore character".
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=63)]
# An item of a list of the connector config, where a comma ends it and white space around it is lost.
EventType = Annotated[str, StringConstraints(pattern=r"^[^\s,]([^,]*[^\s,])?$", max_length=255)]


class Model(BaseModel):
    """Base of all models of the files: unknown keys are errors, values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Columns(Model):
    """Names of the outbox table's columns, for a table that does not use the contract's own."""

    id: Identifier = Field(default="id", description="Event id, uuid.")
    aggregate_type: Identifier = Field(default="aggregate_type", description="Routes the row to its topic.")
    aggregate_id: Identifier = Field(default="aggregate_id", description="Becomes the record key.")
    event_type: Identifier = Field(default="event_type", description="Copied into a header.")
    payload: Identifier = Field(default="payload", description="Whole state as jsonb; null: aggregate is gone.")
    headers: Identifier = Field(default="headers", description="JSON object, copied into record headers.")
    created_at: Identifier = Field(default="created_at", description="Event time.")


class Source(Model):
    """The outbox table and the two database objects that feed the connector."""

    table: QualifiedTable = Field(default="public.outbox_event", description="Outbox table, schema.table.")
    publication: Identifier = Field(description="Publication of the outbox table; made by `outbox apply`.")
    slot: SlotName = Field(description="Logical replication slot; one per connector, in the whole cluster.")
    columns: Columns = Field(default=Columns(), description="Column names, where they differ from the contract.")
    message_prefix: Identifier | None = Field(
        default=None,
        description="Events are messages of this prefix (pg_logical_emit_message) instead of rows; there is no table.",
    )
    schema_version_column: Identifier | None = Field(
        default=None,
        description="Column (text or integer) with the registry's version that the payload was written by. Null: the "
        "newest that accepts it; of `avro` the only one. Required beside `payload: avro`.",
    )
    header_columns: dict[Identifier, str] = Field(
        default={}, description="Columns that become headers: the name of the header, by column."
    )
    cloudevents_source: str | None = Field(
        default=None,
        description="Records also carry CloudEvents headers (`ce_id`, `ce_type`, ...), with this URI reference as "
        "`ce_source`.",
    )
    updated_rows: Literal["fail", "error", "warn"] = Field(
        default="fail",
        description="An update of an outbox row, where the publication lets it through: stops the task, or is skipped "
        "and logged at that level.",
    )
    deleted_rows: Literal["fail", "ignore"] = Field(
        default="fail",
        description="A delete of an outbox row, where the publication lets it through: stops the task, or nothing. "
        "A truncate does neither: Debezium skips it.",
    )

    @field_validator("header_columns")
    @classmethod
    def header_names(cls, columns: dict[str, str]) -> dict[str, str]:
        """Each header once, and none of the contract's."""
        headers.refuse_names(columns)
        return columns

    @field_validator("cloudevents_source")
    @classmethod
    def uri_reference(cls, source: str | None) -> str | None:
        """CloudEvents 1.0.2: `source` is a URI reference that is not empty."""
        if source is not None:
            headers.refuse_source(source)
        return source

    @model_validator(mode="after")
    def header_names_of_cloudevents(self) -> Source:
        """With CloudEvents some more names are taken."""
        if self.cloudevents_source is not None:
            headers.refuse_cloudevents_names(self.header_columns)
        return self

    @property
    def uses_table(self) -> bool:
        """Whether events are rows of the outbox table; else they are logical messages of `message_prefix`."""
        return self.message_prefix is None

    @property
    def further_columns(self) -> list[str]:
        """Columns beyond the contract's that every row has, each once."""
        names = [*([self.schema_version_column] if self.schema_version_column else []), *self.header_columns]
        return [name for name in dict.fromkeys(names) if name not in self.columns.model_dump().values()]


class Backfill(Model):
    """Where the newest state of every aggregate stands in the business tables."""

    table: QualifiedTable = Field(description="Table with one row per aggregate; its row is locked while it is read.")
    key: Identifier = Field(description="Its unique column; as text it is the aggregate_id.")
    query: str = Field(
        min_length=1,
        description="SELECT of `aggregate_id` (text), `payload` (jsonb), and of the `partition_field` if there is one. "
        "`:keys` in it stands for the array of the keys wanted: `where id = any(:keys)`.",
    )


class Aggregate(Model):
    """One aggregate type: its topic and its schema."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"payload": {"const": "text"}}, "required": ["payload"]},
            "else": {"required": ["schema"]},
        }
    )

    payload: PayloadFormat = Field(
        default="json",
        description="What the payload column holds: JSON, encoded to Avro; bytea with an Avro body, or with "
        "Confluent's frame before it, both checked; or text that is passed on as it is, without a schema.",
    )
    schema_file: Path | None = Field(
        default=None,
        alias="schema",
        description="Avro schema (.avsc) of the payload; required unless that is text.",
    )
    unknown_fields: Literal["refuse", "ignore"] = Field(
        default="refuse",
        description="A field of the JSON payload that no schema version has: the row is a dead letter, or the field is "
        "left out.",
    )
    tombstone_event_types: list[EventType] = Field(
        default=[], description="Event types that say that the aggregate is gone, whatever the payload is."
    )
    partitions: int = Field(default=1, ge=1, description="Partitions of the topic; never change it lightly.")
    partition_field: Identifier | None = Field(
        default=None,
        description="Outbox column that decides the partition, immutable per aggregate. Default: the key.",
    )
    compatibility: Compatibility = Field(default="BACKWARD", description="Rule that new versions must keep.")
    topic: dict[str, str] = Field(default={}, description="Topic settings beyond the kit's own.")
    references: list[Path] = Field(
        default=[], description="Schemas (.avsc) of named types that this one uses, registered beside it."
    )
    backfill: Backfill | None = Field(
        default=None, description="Lets `outbox backfill` and `outbox republish` write the newest states."
    )

    @model_validator(mode="before")
    @classmethod
    def schema_looked_at(cls, data: Any) -> Any:  # noqa: ANN401 - YAML data
        """A default is validated under the field's name, a value under its key, which the file has."""
        return {"schema": None, **data} if isinstance(data, dict) else data

    @field_validator("schema_file")
    @classmethod
    def schema_of_what_is_no_text(cls, path: Path | None, info: ValidationInfo) -> Path | None:
        """A schema can be left out of text alone."""
        if path is None and info.data.get("payload") != "text":
            kind = "missing"
            raise PydanticCustomError(kind, "Field required")
        return path

    @field_validator("tombstone_event_types")
    @classmethod
    def each_once(cls, types: list[str]) -> list[str]:
        """The transform refuses a list that names a type twice."""
        twice = next((name for name in types if types.count(name) > 1), None)
        if twice is not None:
            msg = f"{twice!r} stands twice"
            raise ValueError(msg)
        return types

    @model_validator(mode="after")
    def fits_the_payload(self) -> Aggregate:
        """What only one kind of payload has."""
        if self.payload == "text" and (self.schema_file is not None or self.references):
            msg = "payload: text is passed on without a schema; leave out schema and references"
            raise ValueError(msg)
        if self.payload != "json" and self.unknown_fields != "refuse":
            msg = f"unknown_fields: {self.unknown_fields} is for payload: json, not for payload: {self.payload}"
            raise ValueError(msg)
        if self.payload in BINARY_FORMATS and self.backfill is not None:
            msg = f"backfill writes JSON, which payload: {self.payload} cannot hold; let the service write its states"
            raise ValueError(msg)
        return self

    @property
    def schema_path(self) -> Path:
        """The schema file of an aggregate that has one."""
        if self.schema_file is None:
            msg = "payload: text has no schema"
            raise ValueError(msg)
        return self.schema_file

    @property
    def is_binary(self) -> bool:
        """Whether the payload column is bytea."""
        return self.payload in BINARY_FORMATS

    @field_validator("topic")
    @classmethod
    def compacted(cls, topic: dict[str, str]) -> dict[str, str]:
        """A state topic that is not compacted grows for ever or forgets; both break the promise."""
        policy = topic.get("cleanup.policy", "compact")
        if policy != "compact":
            msg = f"cleanup.policy is {policy!r}; a topic keyed by aggregate_id must be 'compact'"
            raise ValueError(msg)
        return topic


class DeadLetter(Model):
    """The topic of rows that could not be routed."""

    partitions: int = Field(default=1, ge=1, description="Partitions of the dead letter topic.")
    retention_days: int = Field(default=30, ge=1, description="How long dead letters are kept, days.")


class Connector(Model):
    """The Debezium connector that is made of this pipeline."""

    name: TopicPart = Field(description="Name in Kafka Connect.")
    template: str = Field(default="outbox-postgres", description="Template in connectors/templates/.")
    transaction_metadata: bool = Field(
        default=False, description="Also publish transaction boundaries to <prefix>.transaction."
    )
    overrides: dict[str, str] = Field(default={}, description="Connector settings that win over the template.")

    @field_validator("overrides")
    @classmethod
    def promise_kept(cls, overrides: dict[str, str]) -> dict[str, str]:
        """Settings that the promise hangs on are the template's business, where each stands with its reason."""
        taken = sorted(key for key in overrides if PROTECTED.match(key))
        literal = sorted(key for key, value in overrides.items() if "password" in key and "${" not in value)
        if literal:
            msg = f"{literal[0]} must be a placeholder that the worker resolves: ${{env:NAME}}, ${{file:path:key}}"
            raise ValueError(msg)
        if taken:
            msg = f"{taken[0]} cannot be overridden: rows could be lost; to change it on purpose, copy the template"
            raise ValueError(msg)
        return overrides


class Materialization(Model):
    """One topic becomes one table."""

    aggregate: str = Field(description="Aggregate type, a key of `aggregates`.")
    target: str = Field(description="Target, a key of `targets` in the environment file.")
    table: Identifier = Field(description="Table name in the target.")
    mode: Literal["hard-delete", "soft-delete", "history"] = Field(
        default="hard-delete",
        description="What a deleted key leaves: nothing; its last row with `_deleted_at`; or every version with the "
        "time it was valid (PostgreSQL and Delta).",
    )
    key_format: Literal["text", "json", "json-with-schema"] = Field(
        default="text",
        description="How keys are written. `text` also takes Avro strings in Confluent wire format, by their frame.",
    )
    value_format: Literal["avro", "json", "json-with-schema"] = Field(
        default="avro",
        description="How values are written. `avro` takes the schema id from the prefix or from the header, record by "
        "record; the JSON formats are those of Kafka Connect's JsonConverter.",
    )
    schema_version: int | None = Field(
        default=None, ge=1, description="Version of the subject that decides the columns; default: the newest."
    )
    tombstone_ttl_hours: int = Field(
        default=720,
        ge=1,
        description="How long a deleted key is remembered, so that a replay cannot bring it back.",
    )
    missed_tombstones: Literal["reconcile", "refuse"] = Field(
        default="reconcile",
        description="What to do when the last run is longer ago than the topic's delete.retention.ms.",
    )
    max_quarantined: int = Field(
        default=1000, ge=0, description="A batch with more records that cannot be read stops the run, unwritten."
    )


class Pipeline(Model):
    """One pipeline: an outbox table, its topics, its connector, the tables made of it."""

    name: TopicPart = Field(description="Name of the pipeline.")
    prefix: TopicPart = Field(description="Topic prefix; also Debezium's topic.prefix. Unique per cluster.")
    source: Source = Field(description="The outbox table, its publication and slot.")
    aggregates: dict[TopicPart, Aggregate] = Field(min_length=1, description="By aggregate type.")
    dead_letter: DeadLetter = Field(default=DeadLetter(), description="Topic of rows that fit no route.")
    connector: Connector = Field(description="The Debezium connector.")
    materializations: list[Materialization] = Field(default=[], description="Tables made of the topics.")

    @model_validator(mode="after")
    def names_agree(self) -> Pipeline:
        """What one part of the file names must exist in the other."""
        taken = sorted(RESERVED & self.aggregates.keys())
        if taken:
            msg = f"aggregate {taken[0]!r} is the kit's own; choose another name"
            raise ValueError(msg)
        seen: set[tuple[str, str]] = set()
        for entry in self.materializations:
            if entry.aggregate not in self.aggregates:
                known = ", ".join(sorted(self.aggregates))
                msg = f"materialization names aggregate {entry.aggregate!r}; this file has: {known}"
                raise ValueError(msg)
            if (entry.target, entry.table) in seen:
                msg = f"two materializations write table {entry.table!r} of target {entry.target!r}"
                raise ValueError(msg)
            if self.aggregates[entry.aggregate].payload == "text":
                msg = f"materialization of {entry.aggregate!r}: its payload is text; tables are made of Avro records"
                raise ValueError(msg)
            seen.add((entry.target, entry.table))
        return self

    @model_validator(mode="after")
    def payloads_fit_their_column(self) -> Pipeline:
        """One column holds the payloads of all aggregates: JSON and text, or bytes."""
        binary = [name for name, entry in self.aggregates.items() if entry.is_binary]
        others = [name for name, entry in self.aggregates.items() if not entry.is_binary]
        if binary and others:
            msg = (
                f"payload of {binary[0]!r} is {self.aggregates[binary[0]].payload}, of {others[0]!r} "
                f"{self.aggregates[others[0]].payload}: one column cannot be bytea and {self._text_type(others)}"
            )
            raise ValueError(msg)
        if binary and not self.source.uses_table:
            kind = self.aggregates[binary[0]].payload
            msg = f"payload of {binary[0]!r} is {kind}: a message is JSON, and holds no bytes"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def bodies_name_their_version(self) -> Pipeline:
        """Avro bytes do not say what they were written by. The second version may come any day, with rows waiting."""
        bare = next((name for name, entry in self.aggregates.items() if entry.payload == "avro"), None)
        if bare is not None and self.source.schema_version_column is None:
            msg = (
                f"payload of {bare!r} is avro, and source.schema_version_column is not set: an Avro body does not say "
                "which schema version wrote it, and another one may read something else in it; name the column in "
                "which the service writes the registry's version, or write confluent-avro"
            )
            raise ValueError(msg)
        return self

    def _text_type(self, names: Iterable[str]) -> Literal["text", "jsonb"]:
        return "text" if any(self.aggregates[name].payload == "text" for name in names) else "jsonb"

    @property
    def payload_type(self) -> Literal["bytea", "text", "jsonb"]:
        """Type of the payload column that `apply` makes."""
        binary = any(entry.is_binary for entry in self.aggregates.values())
        return "bytea" if binary else self._text_type(self.aggregates)

    @property
    def routed(self) -> dict[str, Aggregate]:
        """Aggregates by type, the canary's own among them: its payload is what the column can hold.

        Of bytes with the frame, so that its row needs no schema_version_column.
        """
        payload: PayloadFormat = "confluent-avro" if self.payload_type == "bytea" else "json"
        return {**self.aggregates, CANARY_AGGREGATE: Aggregate(schema=CANARY_SCHEMA, payload=payload)}

    @property
    def with_schemas(self) -> dict[str, Aggregate]:
        """Those of `routed` that have a schema."""
        return {name: entry for name, entry in self.routed.items() if entry.schema_file is not None}

    def topic_of(self, aggregate_type: str) -> str:
        """Topic of an aggregate type."""
        return f"{self.prefix}.{aggregate_type}"

    def subject_of(self, aggregate_type: str) -> str:
        """Registry subject of an aggregate type (TopicNameStrategy)."""
        return f"{self.topic_of(aggregate_type)}-value"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.prefix}.dead-letter"

    @property
    def heartbeat_topic(self) -> str:
        """Debezium's `topic.heartbeat.prefix` default, plus the topic prefix."""
        return f"__debezium-heartbeat.{self.prefix}"

    @property
    def transaction_topic(self) -> str:
        """Debezium's topic of transaction boundaries."""
        return f"{self.prefix}.transaction"


CANARY_SCHEMA = Path(__file__).with_name("canary.avsc")
