"""The pipeline file: what one outbox publishes and which tables are made of it. Pure data, no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

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

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=63)]
QualifiedTable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*\.[A-Za-z_]\w*$", max_length=127)]
# Kafka allows these in topic names; a slot or a subject made of them is legal too.
TopicPart = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)]
# PostgreSQL: "Slot names may only contain lower case letters, numbers, and the underscore character".
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=63)]
Compatibility = Literal[
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"
]


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

    schema_file: Path = Field(alias="schema", description="Avro schema (.avsc) of the payload.")
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
            seen.add((entry.target, entry.table))
        return self

    @property
    def routed(self) -> dict[str, Aggregate]:
        """Aggregates by type, the canary's own among them."""
        return {**self.aggregates, CANARY_AGGREGATE: Aggregate(schema=CANARY_SCHEMA)}

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
