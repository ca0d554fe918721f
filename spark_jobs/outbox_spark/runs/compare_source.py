"""Keys of a table compared with the source table that its aggregates come from, while both live.

The rule has no false alarm, however much is on its way. Two looks, each at the table first and the source then.
Between them the connector confirms the source's log up to a position taken after the first look, and the table is
brought to the end of its topic; so everything that was committed before the first look has been applied by the second.
- missing: no row in the table at the second look, and the source row was there, unchanged, at both (its xmin is the
  same). Its insert was before the first look, and nothing has deleted it since.
- extra: the same version of the row at both looks, and no source row at either. Its delete was before the first look.
What changed between the looks is not judged; it is when the next comparison runs.
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

from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.errors import ConfigurationError, UnreachableError
from outbox_spark.jobs.model import MaterializeJob, Progress, Source
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.session.error_redaction import postgres_words
from outbox_spark.sinks import open_table
from outbox_spark.sinks.postgres.connection import jdbc_tls

CONFIRM_SECONDS = 120.0
"""How long to wait for the connector: it confirms with every heartbeat, 10 s by default."""
_LOOK_SECONDS = 1.0
_CONNECT_SECONDS = 10
_FETCHED_ROWS = 10_000

Sources = Mapping[str, Source]


@dataclass(frozen=True)
class SourceDifferences:
    """Keys on which table and source table still differ after the second look."""

    missing: int
    """In the source, not in the table."""
    extra: int
    """In the table, not in the source."""
    examples: Mapping[str, Sequence[str]]
    candidates: int
    """Keys that differed at the first look: the others were on their way."""


def against_source(
    spark: SparkSession,
    job: MaterializeJob,
    source: Source,
    tell: Progress,
    examples: int,
    catch_up: Callable[[], None] | None = None,
) -> SourceDifferences:
    """Compare keys. `catch_up` returns once everything that the source has committed before is in the table."""
    first = _look(spark, job, source, tell)
    candidates = first.count()
    if not candidates:
        return SourceDifferences(0, 0, {"missing": [], "extra": []}, 0)
    tell(f"{job}: {candidates} keys differ from {source.table}, some may be on their way; looking again")
    (catch_up or (lambda: _catch_up(spark, job, source, tell)))()
    second = _look(spark, job, source, tell)
    # Null-safe: of a missing row the version is NULL at both looks, of an extra one the xmin is.
    same = [first[name].eqNullSafe(second[name]) for name in (KEY_COLUMN, "kind", "xmin", "version")]
    return _result(first.join(second, on=same, how="left_semi"), candidates, examples)


def _look(spark: SparkSession, job: MaterializeJob, source: Source, tell: Progress) -> DataFrame:
    """Keys that differ: aggregate_id, kind, xmin (source), version (table)."""
    with open_table(spark, job, tell) as table:
        rows = table.current_versions().select(KEY_COLUMN, F.struct(*VERSION_COLUMNS).alias("version"))
        # At once, because the table is looked at first. Not persisted: Spark would answer the second look, whose
        # plan is the same, from what the first one kept.
        rows = rows.localCheckpoint()
    keys = source_keys(spark, source).withColumnRenamed(KEY_COLUMN, "source_key")
    both = rows.join(keys, F.col(KEY_COLUMN) == F.col("source_key"), how="full_outer")
    kind = F.when(F.col(KEY_COLUMN).isNull(), F.lit("missing")).when(F.col("source_key").isNull(), F.lit("extra"))
    differing = both.select(
        F.coalesce(F.col(KEY_COLUMN), F.col("source_key")).alias(KEY_COLUMN), kind.alias("kind"), "xmin", "version"
    )
    return differing.where(F.col("kind").isNotNull()).localCheckpoint()


def source_keys(spark: SparkSession, source: Source) -> DataFrame:
    """Key as text, and xmin, of every source row, in one read-only query that is fetched in chunks."""
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


def _catch_up(spark: SparkSession, job: MaterializeJob, source: Source, tell: Progress) -> None:
    wait_confirmed(source)
    materialize(spark, job, tell)


def wait_confirmed(source: Source) -> None:
    """Wait until the connector has sent what is committed now. Raises UnreachableError when it does not in time."""
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
            position = row[0] if row else ""
            while not _confirmed(connection, source, position):
                if time.monotonic() > deadline:
                    message = f"slot {source.slot} has not confirmed {position} after {CONFIRM_SECONDS:.0f} s"
                    raise UnreachableError(message, "`outbox status` shows whether the connector runs")
                time.sleep(_LOOK_SECONDS)
    except psycopg.Error as error:
        message = f"PostgreSQL at {source.host}:{source.port}/{source.database}: {postgres_words(error)}"
        raise UnreachableError(message, "check `source` in the environment file") from error


def _confirmed(connection: psycopg.Connection[TupleRow], source: Source, position: str) -> bool:
    query = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s"
    row = connection.execute(query, (position, source.slot)).fetchone()
    if row is None:
        message = f"{source.database} has no slot {source.slot}: what the connector has sent is not known"
        raise ConfigurationError(message, "compare with the environment that the connector runs in")
    return bool(row[0])


def _result(kept: DataFrame, candidates: int, examples: int) -> SourceDifferences:
    counts = {row["kind"]: int(row["count"]) for row in kept.groupBy("kind").count().collect()}
    shown = {
        kind: [
            row[0]
            for row in kept.where(F.col("kind") == kind)
            .orderBy(KEY_COLUMN)
            .select(KEY_COLUMN)
            .limit(examples)
            .collect()
        ]
        for kind in ("missing", "extra")
    }
    return SourceDifferences(counts.get("missing", 0), counts.get("extra", 0), shown, candidates)
