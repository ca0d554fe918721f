"""Compares the keys of a table with the source table of its aggregates, while both change.

The comparison reports no false differences. It takes two snapshots, each of the table first and then of the source.
Between them it waits until the connector has confirmed a WAL position after the first snapshot, then materializes
the topic to its end. The second snapshot of the table has all source changes committed before the first snapshot.
- missing: the table has no row in either snapshot, and the source row has the same xmin in both. The source row was
  written before the first snapshot and has not been deleted since, so the table should have it.
- extra: the table row is the same in both snapshots, and the source has no row in either. The source row was deleted
  before the first snapshot.
Keys that changed between the snapshots are compared when the command runs again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psycopg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_common.error_text import postgres_message
from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.errors import ConfigurationError, UnreachableError
from outbox_spark.jobs.model import MaterializeJob, Reporter, SourceTable
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.session.run_session import in_run_session
from outbox_spark.sinks import open_table
from outbox_spark.sinks.postgres.connection import jdbc_tls

CONFIRM_SECONDS = 120.0
"""Time limit for the connector to confirm the WAL position; it confirms with each heartbeat, by default every 10 s."""
_POLL_SECONDS = 1.0
_CONNECT_SECONDS = 10
_FETCHED_ROWS = 10_000


@dataclass(frozen=True)
class SourceDifferences:
    """Numbers and examples of the keys that differ between table and source table in both snapshots."""

    missing_count: int
    """Keys that are in the source table, but not in the materialized table."""
    extra_count: int
    """Keys that are in the materialized table, but not in the source table."""
    examples: Mapping[str, Sequence[str]]
    candidate_count: int
    """Number of keys that differed in the first snapshot, including changes in transit."""


@in_run_session
def compare_with_source(
    spark: SparkSession,
    job: MaterializeJob,
    source: SourceTable,
    report: Reporter,
    max_examples: int,
    catch_up: Callable[[], None] | None = None,
) -> SourceDifferences:
    """Compare the keys. `catch_up` returns when the table has all changes that were committed before it was called."""
    first = _snapshot(spark, job, source, report)
    candidate_count = first.count()
    if not candidate_count:
        return SourceDifferences(0, 0, {"missing": [], "extra": []}, 0)
    report(f"{job}: {candidate_count} keys differ from {source.table}, perhaps by changes in transit; comparing again")
    (catch_up or (lambda: _catch_up(spark, job, source, report)))()
    second = _snapshot(spark, job, source, report)
    # Null-safe, because a missing row has no version and an extra row has no xmin.
    is_unchanged = [first[name].eqNullSafe(second[name]) for name in (KEY_COLUMN, "kind", "xmin", "version")]
    return _result(first.join(second, on=is_unchanged, how="left_semi"), candidate_count, max_examples)


def _snapshot(spark: SparkSession, job: MaterializeJob, source: SourceTable, report: Reporter) -> DataFrame:
    """Return the keys that differ: aggregate_id, kind, xmin (source), version (table)."""
    with open_table(spark, job, report) as table:
        rows = table.current_versions().select(KEY_COLUMN, F.struct(*VERSION_COLUMNS).alias("version"))
        # The checkpoint evaluates the rows now, so that the table is read before the source. persist() is not used: the
        # second snapshot has the same plan, so Spark would return the rows of the first one.
        rows = rows.localCheckpoint()
    keys = source_keys(spark, source).withColumnRenamed(KEY_COLUMN, "source_key")
    joined = rows.join(keys, F.col(KEY_COLUMN) == F.col("source_key"), how="full_outer")
    kind = F.when(F.col(KEY_COLUMN).isNull(), F.lit("missing")).when(F.col("source_key").isNull(), F.lit("extra"))
    differing = joined.select(
        F.coalesce(F.col(KEY_COLUMN), F.col("source_key")).alias(KEY_COLUMN), kind.alias("kind"), "xmin", "version"
    )
    return differing.where(F.col("kind").isNotNull()).localCheckpoint()


def source_keys(spark: SparkSession, source: SourceTable) -> DataFrame:
    """Return key (as text) and xmin of every source row, read by one read-only query in chunks."""
    schema, _, name = source.table.rpartition(".")
    table = Identifier(schema, name) if schema else Identifier(name)
    query = SQL("select {}::text as {}, xmin::text as xmin from {}").format(
        Identifier(source.key), Identifier(KEY_COLUMN), table
    )
    return (
        spark.read.format("jdbc")
        .options(
            url=f"jdbc:postgresql://{source.host}:{source.port}/{source.database}?readOnly=true",
            driver="org.postgresql.Driver",
            query=query.as_string(),
            user=source.user,
            password=source.password,
            fetchsize=_FETCHED_ROWS,
            **jdbc_tls(source),
        )
        .load()
    )


def _catch_up(spark: SparkSession, job: MaterializeJob, source: SourceTable, report: Reporter) -> None:
    wait_confirmed(source)
    materialize(spark, job, report)


def wait_confirmed(source: SourceTable) -> None:
    """Wait until the connector confirms the current WAL position. Raises UnreachableError after CONFIRM_SECONDS."""
    deadline = time.monotonic() + CONFIRM_SECONDS
    try:
        with psycopg.connect(
            host=source.host,
            port=source.port,
            dbname=source.database,
            user=source.user,
            password=source.password,
            sslmode=source.sslmode,
            sslrootcert=source.sslrootcert,
            connect_timeout=_CONNECT_SECONDS,
            autocommit=True,
            options="-c default_transaction_read_only=on",
        ) as connection:
            row = connection.execute("select pg_current_wal_lsn()::text").fetchone()
            lsn = row[0] if row else ""
            while not _is_confirmed(connection, source, lsn):
                if time.monotonic() > deadline:
                    message = f"replication slot {source.slot} has not confirmed {lsn} after {CONFIRM_SECONDS:.0f} s"
                    raise UnreachableError(message, "run `outbox status` to check the connector")
                time.sleep(_POLL_SECONDS)
    except psycopg.Error as error:
        message = f"PostgreSQL at {source.host}:{source.port}/{source.database}: {postgres_message(error)}"
        raise UnreachableError(message, "check `source` in the environment file") from error


def _is_confirmed(connection: psycopg.Connection[TupleRow], source: SourceTable, lsn: str) -> bool:
    query = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s"
    row = connection.execute(query, (lsn, source.slot)).fetchone()
    if row is None:
        message = f"replication slot {source.slot} does not exist in database {source.database}"
        raise ConfigurationError(message, "select the environment of the connector with --environment")
    return bool(row[0])


def _result(differences: DataFrame, candidate_count: int, max_examples: int) -> SourceDifferences:
    counts = {row["kind"]: int(row["count"]) for row in differences.groupBy("kind").count().collect()}
    example_keys = {
        kind: [
            row[0]
            for row in differences.where(F.col("kind") == kind)
            .orderBy(KEY_COLUMN)
            .select(KEY_COLUMN)
            .limit(max_examples)
            .collect()
        ]
        for kind in ("missing", "extra")
    }
    return SourceDifferences(counts.get("missing", 0), counts.get("extra", 0), example_keys, candidate_count)
