"""Read, without a table, a topic's newest states or its records as a stream. Records are decoded as in a run."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.jobs.model import MaterializeJob
from outbox_spark.kafka.offset_ranges import resolve_range
from outbox_spark.kafka.record_reader import record_columns, stream_records
from outbox_spark.kafka.topic_access import topic_of
from outbox_spark.runs.batch_decoder import BatchDecoder
from outbox_spark.runs.newest_per_key import every_record, newest_of, ordering_of, summarize


def newest_states(spark: SparkSession, job: MaterializeJob) -> DataFrame:
    """Return the newest record of each key, without tombstones; unreadable records have a `__outbox_reason`.

    This function reads the topic once to collect the schemas. Raises RefusedError if the records cannot be ordered.
    """
    topic = topic_of(spark, job)
    read_range = resolve_range(topic.describe(), None)
    newest = newest_of(job, topic, read_range)
    with topic.open_registry() as registry:
        decoder = BatchDecoder(job, None, registry)
        summary, schemas = summarize(newest, with_observation=False)
        ordering_of(job, summary, None, lambda: topic.records(read_range))
        rows = decoder.rows(newest, decoder.writer_schemas(schemas))
    names = [KEY_COLUMN, *(f"`{column.name}`" for column in decoder.columns), *METADATA_COLUMNS, "__outbox_reason"]
    return rows.where(F.col("__outbox_reason").isNotNull() | ~F.col("__outbox_deleted")).select(*names)


def changes(
    spark: SparkSession, job: MaterializeJob, starting_offsets: str, max_offsets_per_trigger: int | None
) -> DataFrame:
    """Return a stream of all records of the topic, as rows of decode()."""
    stream = stream_records(spark, job.kafka, job.topic, starting_offsets, max_offsets_per_trigger)
    records = stream.select(*record_columns())
    with topic_of(spark, job).open_registry() as registry:
        decoder = BatchDecoder(job, None, registry)
        return decoder.rows(every_record(records, job.options.key_format), decoder.all_schemas())
