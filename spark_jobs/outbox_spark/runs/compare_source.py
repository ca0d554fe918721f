"""Compare a table with the source table of its aggregates while both tables change.

The comparison reports no false differences. It takes two snapshots, each first of the table and then of the source.
Between the snapshots, it waits until the connector has confirmed a WAL position that is later than the first snapshot,
and then materializes the topic to its end. The second snapshot of the table therefore contains all source changes that
were committed before the first snapshot.
- missing: neither snapshot has a table row, and the source row has the same xmin in both snapshots. The source row was
  written before the first snapshot and has not been deleted since, so the table should have a row.
- extra: both snapshots have the same table row but no source row. The source row was deleted before the first snapshot.
- different: the table row, the source row and the payload are the same in both snapshots, and a field differs in both.
  The second snapshot includes the event of the newest change before the first snapshot. Because the version of the
  table row did not change, the row was written from this event or from a copy of it.
A key that changed between the snapshots is compared the next time the command runs.

The backfill query returns the payload of each aggregate. The payload is decoded as a JSON record, by the rules by which
the connector encodes it. The target compares the result with the row as it compares records of the topic.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import structs
from psycopg.sql import SQL, Identifier
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_events.errors import ConfigurationError, UnreachableError
from outbox_spark.decoding.columns import KEY_COLUMN
from outbox_spark.decoding.schema_cache import SchemaRegistry
from outbox_spark.jobs.model import MaterializeJob, RecordFormat, Reporter, SourceTable
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.runs.batch_decoder import BatchDecoder
from outbox_spark.runs.materialize_table import materialize
from outbox_spark.runs.newest_per_key import LATEST_COLUMNS
from outbox_spark.runs.row_differences import compared_fields, count_by_kind, count_columns, uncompared_names
from outbox_spark.session.run_session import in_run_session
from outbox_spark.sinks import TargetTable, open_table
from outbox_spark.sinks.postgres.connection import Connection, read_only_connection, read_query, scalar
from outbox_spark.sinks.target_table import DIFFERENT_COLUMNS, STORED_VERSION

CONFIRM_SECONDS = 120.0
"""Time limit for the connector to confirm the WAL position, which it does with each heartbeat (default: every 10 s)."""
_POLL_SECONDS = 1.0
# JDBC treats a question mark outside of quotes and comments, such as a jsonb operator, as a parameter.
_PARAMETER_SIGN = re.compile(r"""('(?:[^']|'')*'|"[^"]*"|--[^\n]*)|\?""")
_KIND, _VERSION = "kind", "version"
_UNCHANGED = (_KIND, "xmin", _VERSION, "payload_hash")
_SOURCE_KEY, _FIELDS_KEY = "source_key", "fields_key"


class SourceKind(StrEnum):
    """Kind of difference between the table and the source for one key."""

    MISSING = "missing"
    """The source table has a row, but the materialized table does not."""
    EXTRA = "extra"
    """The materialized table has a row, but the source table does not."""
    DIFFERENT = "different"
    """A field of the row differs from the payload that the backfill query returns."""
    UNREADABLE = "unreadable"
    """The payload is not valid for the schema, so it is not compared. This kind does not count as a difference."""


@dataclass(frozen=True)
class SourceDifferences:
    """Numbers and examples of the keys whose table row and source row differ in both snapshots."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of keys of each SourceKind; kinds without keys are omitted."""
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    column_counts: Mapping[str, int] = field(default_factory=dict)
    """For each column, the number of keys of the kind `different` whose rows differ in that column."""
    candidate_count: int = 0
    """Number of keys that differed in the first snapshot, including keys whose changes were in transit."""
    uncompared: Sequence[str] = ()
    """Names of the fields and columns that were not compared."""

    @property
    def is_different(self) -> bool:
        """Whether a kind other than UNREADABLE has keys."""
        return any(count for kind, count in self.counts.items() if kind != SourceKind.UNREADABLE)


@in_run_session
def compare_with_source(
    spark: SparkSession,
    job: MaterializeJob,
    source: SourceTable,
    report: Reporter,
    max_examples: int,
    registry: SchemaRegistry | None,
) -> SourceDifferences:
    """Compare the keys. If `registry` is passed, also compare the payloads with the fields of the rows."""
    first, uncompared = _snapshot(spark, job, source, report, registry)
    candidate_count = first.count()
    if not candidate_count:
        return SourceDifferences(uncompared=uncompared)
    report(f"{job}: {candidate_count} keys differ from {source.table}, but changes may be in transit; comparing again")
    catch_up(spark, job, source, report)
    second, _ = _snapshot(spark, job, source, report, registry)
    differences = _in_both(first, second).localCheckpoint()
    counts, examples = count_by_kind(differences, _KIND, max_examples)
    return SourceDifferences(counts, examples, count_columns(differences), candidate_count, uncompared)


def _in_both(first: DataFrame, second: DataFrame) -> DataFrame:
    """Return the differences of the first snapshot that are unchanged in the second snapshot."""
    # The comparison is null-safe, because a missing row has no version and an extra row has no xmin.
    is_unchanged = [first[name].eqNullSafe(second[name]) for name in (KEY_COLUMN, *_UNCHANGED)]
    names = F.array_intersect(first[DIFFERENT_COLUMNS], second[DIFFERENT_COLUMNS]).alias(DIFFERENT_COLUMNS)
    differences = first.join(second, on=is_unchanged).select(first[KEY_COLUMN], first[_KIND], names)
    return differences.where((F.col(_KIND) != SourceKind.DIFFERENT) | (F.size(DIFFERENT_COLUMNS) > 0))


def _snapshot(
    spark: SparkSession, job: MaterializeJob, source: SourceTable, report: Reporter, registry: SchemaRegistry | None
) -> tuple[DataFrame, list[str]]:
    """Return KEY_COLUMN, _UNCHANGED and DIFFERENT_COLUMNS for keys that differ, and the names of uncompared columns.

    The table is locked until its rows have been compared with the payloads.
    """
    with open_table(spark, job, report) as table, ExitStack() as stack:
        rows = table.current_versions().select(KEY_COLUMN, F.struct(*VERSION_COLUMNS).alias(_VERSION))
        # The checkpoint evaluates the rows now, so that the table is read before the source. persist() is not used,
        # because the second snapshot has the same plan, for which Spark would return the rows of the first snapshot.
        rows = rows.localCheckpoint()
        states = source_rows(spark, source).withColumnRenamed(KEY_COLUMN, _SOURCE_KEY).localCheckpoint()
        joined = rows.join(states, F.col(KEY_COLUMN) == F.col(_SOURCE_KEY), how="full_outer")
        names, uncompared = F.lit(None).cast("array<string>"), list[str]()
        if registry is not None and source.query:
            fields, uncompared = _different_fields(stack, job, table, registry, states)
            is_same_row = (F.col(KEY_COLUMN) == F.col(_FIELDS_KEY)) & (F.col(_VERSION) == F.col(STORED_VERSION))
            joined, names = joined.join(fields, is_same_row, "left"), F.col(DIFFERENT_COLUMNS)
        # A source row without a payload has no state, so no event is expected. `outbox backfill` skips these rows, too.
        has_state = F.col("payload").isNotNull() if source.query else F.col(_SOURCE_KEY).isNotNull()
        kind = (
            F.when(F.col(KEY_COLUMN).isNull(), F.when(has_state, F.lit(SourceKind.MISSING.value)))
            .when(F.col(_SOURCE_KEY).isNull(), F.lit(SourceKind.EXTRA.value))
            .when(F.size(names) > 0, F.lit(SourceKind.DIFFERENT.value))
            .when(names.isNotNull() & has_state, F.lit(SourceKind.UNREADABLE.value))
        )
        key = F.coalesce(F.col(KEY_COLUMN), F.col(_SOURCE_KEY)).alias(KEY_COLUMN)
        payload_hash = F.xxhash64("payload").alias("payload_hash")
        differing = joined.select(
            key, kind.alias(_KIND), "xmin", _VERSION, payload_hash, names.alias(DIFFERENT_COLUMNS)
        )
        return differing.where(F.col(_KIND).isNotNull()).localCheckpoint(), uncompared


def _different_fields(
    stack: ExitStack, job: MaterializeJob, table: TargetTable, registry: SchemaRegistry, states: DataFrame
) -> tuple[DataFrame, list[str]]:
    """Decode the payloads. Return the result of TargetTable.different_fields(), and the names that are not compared."""
    options = structs.replace(job.options, value_format=RecordFormat.JSON)
    decoder = BatchDecoder(structs.replace(job, options=options), table, registry)
    decoder.check_table()
    values = {
        "key": F.col(_SOURCE_KEY).cast("binary"),
        "value": F.col("payload").cast("binary"),
        "_sequence": F.lit(""),
        "_partition_epoch": F.lit(0),
        "_partition": F.lit(0),
        "_offset": F.lit(0).cast("long"),
        "_timestamp": F.current_timestamp(),
    }
    missing_types = {
        "raw_key": "binary",
        "id_header": "binary",
        "__outbox_schema_id": "long",
        "__outbox_schema_guid": "string",
    }
    values |= {name: F.lit(None).cast(dtype) for name, dtype in missing_types.items()}
    records = states.where(F.col("payload").isNotNull())
    rows = decoder.rows(records.select(*[values[name].alias(name) for name in LATEST_COLUMNS]), {})
    fields = compared_fields(table, decoder.columns)
    uncompared = uncompared_names(table, decoder.columns, fields)
    return table.different_fields(stack, rows, fields).withColumnRenamed(KEY_COLUMN, _FIELDS_KEY), uncompared


def source_rows(spark: SparkSession, source: SourceTable) -> DataFrame:
    """Return the key (as text), xmin and payload (NULL if there is no state) of every source row, read by one query.

    If `source.query` is empty, `payload` is always NULL.
    """
    key, table = SQL(source.key), Identifier(*source.table.split("."))
    query = SQL("select {} as {}, t.xmin::text as xmin, {} as payload from {} t").format(
        key, Identifier(KEY_COLUMN), SQL("q.payload" if source.query else "null::text"), table
    )
    if source.query:
        # The line break after the query ends a `--` comment in the last line of the query.
        states = (
            "select aggregate_id::text as key, payload::jsonb::text as payload "  # noqa: S608 - of the pipeline file
            f"from (\n{_PARAMETER_SIGN.sub(lambda match: match[1] or '??', source.query)}\n) s"
            " where payload::jsonb <> 'null'::jsonb"
        )
        query += SQL(" left join ({}) q on q.key = {}").format(SQL(states), key)
    return read_query(spark, source.server, query.as_string())


def catch_up(spark: SparkSession, job: MaterializeJob, source: SourceTable, report: Reporter) -> None:
    """Return when the table contains all changes that were committed before the call."""
    wait_confirmed(source)
    materialize(spark, job, report)


def wait_confirmed(source: SourceTable) -> None:
    """Wait until the connector confirms the current WAL position. Raises UnreachableError after CONFIRM_SECONDS."""
    deadline = time.monotonic() + CONFIRM_SECONDS
    with read_only_connection(source.server, "check `source` in the environment file") as connection:
        lsn = scalar(connection, "select pg_current_wal_lsn()::text")
        while not _is_confirmed(connection, source, lsn):
            if time.monotonic() > deadline:
                message = f"replication slot {source.slot} has not confirmed {lsn} after {CONFIRM_SECONDS:.0f} s"
                raise UnreachableError(message, "run `outbox status` to check the connector")
            time.sleep(_POLL_SECONDS)


def _is_confirmed(connection: Connection, source: SourceTable, lsn: str) -> bool:
    query = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = %s"
    row = connection.execute(query, (lsn, source.slot)).fetchone()
    if row is None:
        message = f"replication slot {source.slot} does not exist in database {source.server.database}"
        raise ConfigurationError(message, "set --environment to the environment of the connector")
    return bool(row[0])
