"""The entries under `materializations` of the pipeline file."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from outbox_kit.pipeline.base import Identifier, Model


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
