"""From what newest_per_key left to rows, by the schema that decides the columns and those of the writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from outbox_spark.decoding.columns import Column, columns_of
from outbox_spark.decoding.compatibility import check_writer
from outbox_spark.decoding.rows import decode, types_of
from outbox_spark.decoding.schema_registry import SchemaRegistry
from outbox_spark.errors import RefusedError, SchemaError
from outbox_spark.jobs.model import Format, MaterializeJob, ReadRange
from outbox_spark.kafka.newest_reader import select_columns
from outbox_spark.kafka.topic import Topic
from outbox_spark.runs.newest_per_key import Schemas, are_expected, newest_of, newest_per_key
from outbox_spark.sinks import TargetTable

_NAMED_IDS = 5
Writers = Mapping[int | str, str]
"""Schemas, by the id or GUID that records carry."""


class Decoding:
    """What decoding needs: the schema that decides the columns, and the writers' as they turn up."""

    def __init__(self, job: MaterializeJob, table: TargetTable, registry: SchemaRegistry) -> None:
        self._subject = f"{job.topic}-value"
        self._job, self._table, self._registry = job, table, registry
        pinned = job.options.schema_version
        self.reader = registry.latest(self._subject) if pinned is None else registry.version(self._subject, pinned)
        self.columns = columns_of(self.reader, self._subject)

    @property
    def _is_avro(self) -> bool:
        return self._job.options.value_format is Format.AVRO

    def likely(self) -> Writers:
        """The schemas that records carry unless something is unusual: asked for before any record is read.

        What the reader's schema cannot take is left out: it is an error only where a record has it.
        """
        if not self._is_avro:
            return {}
        found = self._registry.recent(self._subject)
        return {key: found[key] for key in sorted(found, key=str) if self._fits(found[key])}

    def are_enough(self, sums: Mapping[str, Any]) -> bool:
        """Whether no other schemas occur than those that these sums (latest.summary_metrics) expected."""
        return not self._is_avro or are_expected(sums)

    def writers(self, schemas: Schemas, *, whole: bool = True) -> Writers:
        """Exactly those that occur. `whole` unless it is of a few keys, whose ids may all be unknown.

        Raises RefusedError, SchemaError.
        """
        if not self._is_avro:
            return {}
        return _writers(self._job, schemas, self.reader, self._registry, whole=whole)

    def rows(self, latest: DataFrame, writers: Writers, carried: Sequence[str] = ()) -> DataFrame:
        """Rows as decode() yields them, and the `carried` columns of `latest` as they are."""
        job, limit = self._job, self._table.is_unsupported
        return decode(latest, self.columns, self.reader, writers, limit, job.options.value_format, tuple(carried))

    def newest(self, topic: Topic, read: ReadRange, *, every_version: bool) -> DataFrame:
        """The newest record of each key, or of each version of each key."""
        if not every_version:
            return newest_of(self._job, topic, read)
        records, key_format = select_columns(topic.records(read)), self._job.options.key_format
        return newest_per_key(records, read.partition_epoch, every_version=True, key_format=key_format)

    def _fits(self, writer: str) -> bool:
        try:
            check_writer(writer, self.reader, self._subject)
        except SchemaError:
            return False
        return True


def _writers(
    job: MaterializeJob, schemas: Schemas, reader: str, registry: SchemaRegistry, *, whole: bool
) -> dict[int | str, str]:
    """The schemas behind the ids and GUIDs that occur, without those that the registry does not know.

    Of a `whole` batch it must know one.
    """
    found: dict[int | str, str] = {}
    unknown: list[int | str] = []
    keys: list[int | str] = [*sorted(schemas.ids), *sorted(schemas.guids)]
    for key in keys:
        schema = registry.by_id(key) if isinstance(key, int) else registry.by_guid(key)
        if schema is None:
            unknown.append(key)
        else:
            found[key] = schema
        if len(unknown) > job.options.max_quarantined:
            break  # each stands for at least one record that cannot be read: the run will be refused
    if whole and keys and len(unknown) == len(keys):
        # A few unknown ids are poison; nothing but unknown ids is the wrong registry, or one restored from before.
        named = ", ".join(str(key) for key in unknown[:_NAMED_IDS]) + (", ..." if len(unknown) > _NAMED_IDS else "")
        message = f"topic {job.topic}: the registry knows none of the schema ids that its records carry: {named}"
        raise RefusedError(message, "check registry.url, and whether the registry was restored from a backup")
    for key, schema in found.items():
        check_writer(schema, reader, f"schema {key} of topic {job.topic}")
    return found


def decode_newest(
    job: MaterializeJob, table: TargetTable, latest: DataFrame, schemas: Schemas, registry: SchemaRegistry
) -> tuple[DataFrame, Sequence[Column], str]:
    """Rows of what newest_per_key left, the columns and the reader schema: what a Batch takes. Writes nothing.

    `latest` may be a part of what `schemas` speaks of.
    """
    decoding = Decoding(job, table, registry)
    table.check(decoding.columns, types_of(latest.sparkSession, decoding.columns, decoding.reader))
    return decoding.rows(latest, decoding.writers(schemas)), decoding.columns, decoding.reader
