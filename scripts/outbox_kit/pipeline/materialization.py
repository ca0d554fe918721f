"""Model of the entries under `materializations` of the pipeline file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outbox_kit.pipeline.names import Identifier, Model


class Materialization(Model):
    """One table, materialized from the topic of one aggregate type."""

    aggregate: str = Field(description="Aggregate type, a key of `aggregates`.")
    target: str = Field(description="Target, a key of `targets` in the environment file.")
    table: Identifier = Field(description="Table name in the target.")
    mode: Literal["hard-delete", "soft-delete", "history"] = Field(
        default="hard-delete",
        description="Rows of a deleted key: `hard-delete` removes the row; `soft-delete` retains the last row with "
        "`_deleted_at`; `history` retains every version with its validity period (PostgreSQL and Delta).",
    )
    key_format: Literal["text", "json", "json-with-schema"] = Field(
        default="text",
        description="Format of record keys. `text` also accepts Avro strings in Confluent's wire format.",
    )
    value_format: Literal["avro", "json", "json-with-schema"] = Field(
        default="avro",
        description="Format of record values. `avro` reads the schema id of each record from its prefix or its header; "
        "the JSON formats are those of Kafka Connect's JsonConverter.",
    )
    schema_version: int | None = Field(
        default=None, ge=1, description="Version of the subject that determines the columns. Default: the latest."
    )
    tombstone_ttl_hours: int = Field(
        default=720,
        ge=1,
        description="Retention of deletions, in hours: until then a replay cannot restore a deleted key.",
    )
    missed_tombstones: Literal["reconcile", "refuse"] = Field(
        default="reconcile",
        description="Handling of a last run that is longer ago than the topic's delete.retention.ms: reconcile the "
        "table with the topic, or refuse to run.",
    )
    max_quarantined: int = Field(
        default=1000,
        ge=0,
        description="Maximum number of quarantined records per batch; a batch with more is not written, and the run "
        "fails.",
    )
