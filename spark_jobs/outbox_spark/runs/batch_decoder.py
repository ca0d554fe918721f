"""Decode a batch with the reader schema, which defines the columns, and the writer schemas of the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from outbox_events.errors import RefusedError
from outbox_spark.decoding.columns import columns_of
from outbox_spark.decoding.compatibility import check_writer
from outbox_spark.decoding.rows import decode, types_of
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import MaterializeJob, RecordFormat
from outbox_spark.runs.newest_per_key import SchemaReferences, schemas_are_expected
from outbox_spark.sinks import TargetTable

_MAX_LISTED_IDS = 5
WriterSchemas = Mapping[int | str, str]
"""Schemas by id or GUID. A record refers to its schema by one of these."""


class BatchDecoder:
    """Decodes the records of one job with schemas from the registry. If `table` is None, every value is supported."""

    def __init__(self, job: MaterializeJob, table: TargetTable | None, registry: SchemaRegistry) -> None:
        subject = self._subject = f"{job.topic}-value"
        self._job, self._table, self._registry = job, table, registry
        self._is_avro = job.options.value_format is RecordFormat.AVRO
        version = job.options.schema_version
        self.reader_schema = registry.latest(subject) if version is None else registry.version(subject, version)
        self.columns = columns_of(self.reader_schema, subject)

    def check_table(self) -> None:
        """Raise SchemaError if the table cannot store the columns."""
        if self._table is not None:
            self._table.check(self.columns, types_of(tuple(self.columns), self.reader_schema))

    def likely_schemas(self) -> WriterSchemas:
        """Return the schemas that records are most likely to have. They are requested before any record is read.

        Schemas that the reader schema cannot read are omitted. They cause an error only if a record has one.
        """
        return self._compatible(self._registry.recent(self._subject)) if self._is_avro else {}

    def all_schemas(self) -> WriterSchemas:
        """Return the schemas, among all versions of the subject, that the reader schema can read."""
        return self._compatible(self._registry.all_versions(self._subject)) if self._is_avro else {}

    def _compatible(self, schemas: WriterSchemas) -> WriterSchemas:
        return {key: schemas[key] for key in sorted(schemas, key=str) if self.is_compatible(schemas[key])}

    def likely_schemas_suffice(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether all records have one of the schemas that were passed to newest_per_key.summary_metrics."""
        return not self._is_avro or schemas_are_expected(metrics)

    def writer_schemas(self, schemas: SchemaReferences, *, require_known: bool = True) -> WriterSchemas:
        """Return the schemas with these ids and GUIDs, but omit schemas that the registry does not have.

        Raises SchemaError if the reader schema cannot read a schema and, with `require_known`, RefusedError if the
        registry has none of the schemas. Set `require_known` to False if the records are from only a few keys.
        """
        if not self._is_avro:
            return {}
        known: dict[int | str, str] = {}
        unknown: list[int | str] = []
        keys: list[int | str] = [*sorted(schemas.ids), *sorted(schemas.guids)]
        for key in keys:
            schema = self._registry.schema(key)
            if schema is None:
                unknown.append(key)
            else:
                known[key] = schema
            if len(unknown) > self._job.options.max_quarantined:
                break  # each unknown schema implies an unreadable record, so max_quarantined is exceeded
        if require_known and keys and len(unknown) == len(keys):
            raise self._all_unknown_error(unknown)
        for key, schema in known.items():
            check_writer(schema, self.reader_schema, f"schema {key} of topic {self._job.topic}")
        return known

    def rows(self, latest: DataFrame, writer_schemas: WriterSchemas, extra_columns: Sequence[str] = ()) -> DataFrame:
        """Decode the result of newest_per_key (see decode). The rows include the `extra_columns` of `latest`."""
        unsupported = (TargetTable if self._table is None else self._table).is_unsupported
        value_format, reader = self._job.options.value_format, self.reader_schema
        return decode(latest, self.columns, reader, writer_schemas, unsupported, value_format, tuple(extra_columns))

    def is_compatible(self, writer_schema: str) -> bool:
        """Return whether the reader schema can read records of this schema."""
        try:
            check_writer(writer_schema, self.reader_schema, self._subject)
        except SchemaError:
            return False
        return True

    def _all_unknown_error(self, unknown: Sequence[int | str]) -> RefusedError:
        """Return the error for a batch with only unknown ids. The registry is wrong or was restored from a backup."""
        ids = ", ".join(map(str, unknown[:_MAX_LISTED_IDS])) + (", ..." if len(unknown) > _MAX_LISTED_IDS else "")
        message = f"topic {self._job.topic}: the registry knows none of the schema ids in its records: {ids}"
        return RefusedError(message, "check registry.url, and whether the registry was restored from a backup")
