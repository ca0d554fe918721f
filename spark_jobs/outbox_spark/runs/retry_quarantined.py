"""Apply quarantined records whose schema was missing from the registry when they were read, but exists now.

The progress lists the unknown schemas in the quarantine, so a run does not read the quarantine if there are none. The
rows are written with the usual version check, and then their entries are removed from the quarantine. After a crash
between these steps, the next run repeats both steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.errors import OutboxError
from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.decoding.framing import has_schema, schema_guid, schema_id
from outbox_spark.decoding.quarantine_reasons import Reason
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.errors import SchemaError
from outbox_spark.jobs.model import MaterializeJob, Mode, Reporter, TableProgress, WriteCounts
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.kafka.topic_access import Topic
from outbox_spark.runs.batch_decoder import BatchDecoder, WriterSchemas
from outbox_spark.session.persisted import count_rows, persist
from outbox_spark.sinks import Batch, TargetTable
from outbox_spark.sinks.target_table import RetryResult

MAX_SCHEMAS = 20
"""Maximum number of unknown schemas in the progress, because each run requests all of them from the registry."""
MAX_RECORDS = 10_000
"""Maximum number of records that a run retries, beginning with the newest."""


def unknown_schemas_of(rows: DataFrame, known_before: Iterable[int | str]) -> tuple[int | str, ...]:
    """Return at most MAX_SCHEMAS unknown schemas: those of the quarantined rows of decode(), then `known_before`."""
    unknown = rows.where(F.col("__outbox_reason") == Reason.UNKNOWN_SCHEMA_ID)
    guid = schema_guid(F.col("__outbox_value"), F.col("__outbox_schema_header"))
    found = unknown.select("__outbox_schema_id", guid.alias("guid")).distinct().limit(MAX_SCHEMAS).collect()
    references: list[int | str] = [row["guid"] if row["guid"] is not None else row[0] for row in found]
    return tuple(dict.fromkeys([*sorted(references, key=str), *known_before]))[:MAX_SCHEMAS]


def retry_quarantined(
    job: MaterializeJob, table: TargetTable, committed: TableProgress, topic: Topic, report: Reporter
) -> tuple[TableProgress, WriteCounts]:
    """Retry the records with unknown schemas. Return the committed progress and the counts of the write."""
    if not committed.unknown_schemas:
        return committed, WriteCounts()
    with topic.open_registry() as registry:
        try:
            known = _known_schemas(registry, committed.unknown_schemas)
        except OutboxError as error:  # the run fails later if it needs the registry
            report(f"warning: {job}: quarantined records were not retried: {error}")
            return committed, WriteCounts()
        if not known:
            return committed, WriteCounts()
        decoder = BatchDecoder(job, table, registry)
        schemas = {key: schema for key, schema in known.items() if decoder.is_compatible(schema)}
        return _apply(job, table, committed, decoder, schemas, report) if schemas else (committed, WriteCounts())


def _known_schemas(registry: SchemaRegistry, keys: Iterable[int | str]) -> dict[int | str, str]:
    """Return, by id or GUID, the Avro schemas with these keys that the registry has."""
    known: dict[int | str, str] = {}
    for key in keys:
        with suppress(SchemaError):  # not in Avro
            schema = registry.schema(key)
            if schema is not None:
                known[key] = schema
    return known


def _apply(
    job: MaterializeJob,
    table: TargetTable,
    committed: TableProgress,
    decoder: BatchDecoder,
    schemas: WriterSchemas,
    report: Reporter,
) -> tuple[TableProgress, WriteCounts]:
    with ExitStack() as stack:
        decoder.check_table()
        entries = _entries(job, table, committed, schemas)
        decoded = persist(stack, decoder.rows(entries, schemas))
        places = decoded.select("_partition", "_offset", "__outbox_reason").collect()
        results: list[RetryResult] = [(row[0], row[1], row[2]) for row in places]
        applied_count = sum(reason is None for _, _, reason in results)
        readable = decoded.where(F.col("__outbox_reason").isNull())
        rows, written = readable if job.options.mode is Mode.HISTORY else _newest(readable), WriteCounts()
        if applied_count:
            committed, written = _write(table, rows, decoder, committed, replace(committed, run=committed.run + 1))
            report(f"{job}: applied {applied_count} quarantined records, whose schemas are now in the registry")
        if results:
            table.update_quarantined(committed.topic_id, results)
        if len(results) < MAX_RECORDS:
            unknown = tuple(key for key in committed.unknown_schemas if key not in schemas)
            progress = replace(committed, run=committed.run + 1, unknown_schemas=unknown)
            committed, _ = _write(table, decoded.limit(0), decoder, committed, progress)
        return committed, written


def _entries(job: MaterializeJob, table: TargetTable, committed: TableProgress, schemas: WriterSchemas) -> DataFrame:
    """Return the newest quarantined records with these schemas, in the form of newest_per_key().

    A record is omitted if a newer deletion of its key might have been removed from the ledger.
    """
    value, header = F.col("value"), F.col("schema_header")
    records = table.quarantined(committed.topic_id, Reason.UNKNOWN_SCHEMA_ID)
    if committed.ledger_since is not None and job.options.mode is not Mode.HISTORY:
        records = records.where(F.col("_timestamp") >= F.lit(committed.ledger_since))
    latest = records.select(
        F.col(KEY_COLUMN).cast("binary").alias("key"),
        F.lit(None).cast("binary").alias("raw_key"),
        value,
        header.alias("id_header"),
        schema_id(value, header).alias("__outbox_schema_id"),
        schema_guid(value, header).alias("__outbox_schema_guid"),
        *METADATA_COLUMNS,
    )
    return latest.where(has_schema(schemas)).orderBy(*[F.desc(name) for name in VERSION_COLUMNS]).limit(MAX_RECORDS)


def _newest(rows: DataFrame) -> DataFrame:
    """Return the newest row of each key."""
    order = Window.partitionBy(KEY_COLUMN).orderBy(*[F.desc(name) for name in VERSION_COLUMNS])
    return rows.withColumn("__outbox_rank", F.row_number().over(order)).where("__outbox_rank = 1").drop("__outbox_rank")


def _write(
    table: TargetTable, rows: DataFrame, decoder: BatchDecoder, previous: TableProgress, progress: TableProgress
) -> tuple[TableProgress, WriteCounts]:
    batch = Batch(rows, count_rows(rows), decoder.columns, decoder.reader_schema, previous, progress, may_repeat=True)
    return progress, table.write(batch)
