"""Provide functions for programs, such as notebooks, Airflow tasks and dbt models, that have their own Spark session.

The functions raise OutboxError for expected errors. Other exceptions come from Spark and the database drivers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.jobs import job_file, pipeline_loader
from outbox_spark.jobs.model import MaterializeJob, Outcome, Reporter
from outbox_spark.kafka.offset_ranges import resolve_range
from outbox_spark.kafka.record_reader import record_columns, stream_records
from outbox_spark.kafka.topic_access import topic_of
from outbox_spark.runs import materialize_table
from outbox_spark.runs.batch_decoder import BatchDecoder
from outbox_spark.runs.newest_per_key import every_record, newest_of, ordering_of, summarize
from outbox_spark.session.requirements import check_application
from outbox_spark.session.run_session import rows_in, run_session

_logger = logging.getLogger("outbox_spark")
_WARNING = "warning: "


def _log(line: str) -> None:
    """Log a line of a Reporter: a warning at level WARNING, which is visible by default, other lines at INFO."""
    if line.startswith(_WARNING):
        _logger.warning("%s", line.removeprefix(_WARNING))
    else:
        _logger.info("%s", line)


def materialize(
    spark: SparkSession,
    job: MaterializeJob,
    *,
    report: Reporter = _log,
    batch_records: int | None = None,
) -> Outcome:
    """Apply the new records of the job's topic to its table, up to the end of the topic.

    `report` receives progress messages, and warnings that begin with `warning: `. By default, the logger `outbox_spark`
    logs them at levels INFO and WARNING. Batches that were committed before an error remain committed, and the next
    call continues after these batches. Raises ConfigurationError if the application lacks a jar.
    """
    check_application(spark, job.target)
    return materialize_table.materialize(spark, job, report, batch_records)


def read_state(spark: SparkSession, job: MaterializeJob) -> DataFrame:
    """Return the newest state of each key of the job's topic, up to the current end of the topic.

    The columns are `aggregate_id`, the fields of the schema, the metadata columns of the tables, and `__outbox_reason`.
    Keys whose newest record is a tombstone have no row. If the newest record is unreadable, `__outbox_reason` contains
    the reason that the quarantine would contain, and the fields are NULL. Each record without a readable key or with a
    malformed sequence has its own row, whose `aggregate_id` is NULL. Every action on the result reads the topic.
    """
    check_application(spark)
    with run_session(spark, job) as session:
        topic = topic_of(session, job)
        read_range = resolve_range(topic.describe(), None)
        newest = newest_of(job, topic, read_range)
        with topic.open_registry() as registry:
            decoder = BatchDecoder(job, None, registry)
            summary, schemas = summarize(newest, with_observation=False)  # reads the topic
            ordering_of(job, summary, None, lambda: topic.records(read_range))
            rows = decoder.rows(newest, decoder.writer_schemas(schemas))
        names = [KEY_COLUMN, *(f"`{column.name}`" for column in decoder.columns), *METADATA_COLUMNS, "__outbox_reason"]
        states = rows.where(F.col("__outbox_reason").isNotNull() | ~F.col("__outbox_deleted"))
        return rows_in(spark, states.select(*names))


def read_changes(
    spark: SparkSession,
    job: MaterializeJob,
    *,
    starting_offsets: str = "earliest",
    max_offsets_per_trigger: int | None = None,
) -> DataFrame:
    """Return the records of the job's topic as a streaming DataFrame, one row per record.

    The columns are those of read_state, plus `__outbox_deleted` (whether the record is a tombstone),
    `__outbox_schema_id`, and `__outbox_key` and `__outbox_value` (the bytes of an unreadable record). The schemas are
    the versions of the subject `<topic>-value` that the registry has when this function is called. A record with any
    other schema has the `__outbox_reason` `unknown-schema-id`. The parameters are options of Spark's Kafka source.
    """
    check_application(spark)
    with run_session(spark, job) as session, topic_of(session, job).open_registry() as registry:
        stream = stream_records(session, job.kafka, job.topic, starting_offsets, max_offsets_per_trigger)
        records = every_record(stream.select(*record_columns(job.requires_sequence)), job.options.key_format)
        decoder = BatchDecoder(job, None, registry)
        return rows_in(spark, decoder.rows(records, decoder.all_schemas()))


def load_jobs(
    pipeline_file: str | Path,
    environment_name: str = "local",
    *,
    aggregates: Collection[str] = (),
    targets: Collection[str] = (),
) -> list[MaterializeJob]:
    """Return the jobs of a pipeline file. An empty collection selects all. Requires the package outbox_kit.

    Raises ConfigurationError if a file is invalid, no job is selected, or outbox_kit is not installed.
    """
    return pipeline_loader()(Path(pipeline_file), environment_name, aggregates=aggregates, targets=targets)


def read_jobs(
    path: str | Path, *, aggregates: Collection[str] = (), targets: Collection[str] = ()
) -> list[MaterializeJob]:
    """Return the jobs of a job file (`outbox-materialize --write-job`). An empty collection selects all.

    Raises ConfigurationError if the file is invalid, no job is selected, or an environment variable is not set.
    """
    return job_file.read_jobs(Path(path), aggregates=aggregates, targets=targets)
