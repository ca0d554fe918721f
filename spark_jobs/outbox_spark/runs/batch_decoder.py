"""Decoding of a batch: the reader schema, which defines the columns, and the writer schemas of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from outbox_spark.decoding.columns import columns_of
from outbox_spark.decoding.compatibility import check_writer
from outbox_spark.decoding.rows import decode, types_of
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import RefusedError, SchemaError
from outbox_spark.jobs.model import MaterializeJob, RecordFormat
from outbox_spark.runs.newest_per_key import SchemaReferences, schemas_are_expected
from outbox_spark.sinks import TargetTable

_MAX_LISTED = 5
Writers = Mapping[int | str, str]
"""Schemas by the id or GUID in records."""


class BatchDecoder:
    """Decoder for the records of one job; the schemas come from the registry."""

    def __init__(self, job: MaterializeJob, table: TargetTable, registry: SchemaRegistry) -> None:
        self._subject = f"{job.topic}-value"
        self._job, self._table, self._registry = job, table, registry
        self._is_avro = job.options.value_format is RecordFormat.AVRO
        pinned = job.options.schema_version
        self.reader = registry.latest(self._subject) if pinned is None else registry.version(self._subject, pinned)
        self.columns = columns_of(self.reader, self._subject)

    def check_table(self, spark: SparkSession) -> None:
        """Raise SchemaError unless the table can store the columns."""
        self._table.check(self.columns, types_of(spark, self.columns, self.reader))

    def likely_writers(self) -> Writers:
        """Return the schemas that records usually have, requested before any record is read.

        Schemas that are incompatible with the reader's are omitted: they are an error only if a record has one.
        """
        if not self._is_avro:
            return {}
        schemas = self._registry.recent(self._subject)
        return {key: schemas[key] for key in sorted(schemas, key=str) if self._is_compatible(schemas[key])}

    def likely_suffice(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether no record has a schema other than those given to newest_per_key.summary_metrics."""
        return not self._is_avro or schemas_are_expected(metrics)

    def writers(self, schemas: SchemaReferences, *, complete: bool = True) -> Writers:
        """Return the schemas of these ids and GUIDs, without those that the registry does not know.

        Unless `complete` is false (few keys), at least one schema must be known. Raises RefusedError, SchemaError.
        """
        if not self._is_avro:
            return {}
        known: dict[int | str, str] = {}
        unknown: list[int | str] = []
        keys: list[int | str] = [*sorted(schemas.ids), *sorted(schemas.guids)]
        for key in keys:
            schema = self._registry.by_id(key) if isinstance(key, int) else self._registry.by_guid(key)
            if schema is None:
                unknown.append(key)
            else:
                known[key] = schema
            if len(unknown) > self._job.options.max_quarantined:
                break  # each has at least one unreadable record, so the run will be refused
        if complete and keys and len(unknown) == len(keys):
            raise self._wrong_registry(unknown)
        for key, schema in known.items():
            check_writer(schema, self.reader, f"schema {key} of topic {self._job.topic}")
        return known

    def rows(self, latest: DataFrame, writers: Writers, extra_columns: Sequence[str] = ()) -> DataFrame:
        """Decode the result of newest_per_key, see decode(). `extra_columns` of `latest` are added to the rows."""
        value_format, unsupported = self._job.options.value_format, self._table.is_unsupported
        return decode(latest, self.columns, self.reader, writers, unsupported, value_format, tuple(extra_columns))

    def _is_compatible(self, writer: str) -> bool:
        try:
            check_writer(writer, self.reader, self._subject)
        except SchemaError:
            return False
        return True

    def _wrong_registry(self, unknown: Sequence[int | str]) -> RefusedError:
        """Return the error for ids that are all unknown: the registry is wrong or was restored from a backup."""
        ids = ", ".join(map(str, unknown[:_MAX_LISTED])) + (", ..." if len(unknown) > _MAX_LISTED else "")
        message = f"topic {self._job.topic}: the registry knows none of the schema ids of its records: {ids}"
        return RefusedError(message, "check registry.url, and whether the registry was restored from a backup")
