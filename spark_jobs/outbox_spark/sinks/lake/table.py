"""Base class of Delta and Iceberg tables: one version-checked MERGE per batch, in a commit with the progress.

Ledger and quarantine are written before that commit. Subclasses implement the commit.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from types import TracebackType
from typing import Any, Self

from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from outbox_spark.decoding.columns import (
    DELETED_AT_COLUMN,
    KEY_COLUMN,
    METADATA_COLUMNS,
    STALE_COLUMN,
    VALID_TO_COLUMN,
    Column,
)
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.decoding.rows import defaults
from outbox_spark.errors import OverlapError, RefusedError, SchemaError
from outbox_spark.jobs.model import Mode, TableProgress, WriteCounts
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.lake import history
from outbox_spark.sinks.lake.lease import Lease
from outbox_spark.sinks.lake.merge_sql import (
    QUARANTINED,
    READABLE,
    STATE_TYPES,
    MergeStatement,
    default_sql,
    quoted,
    state_columns,
    table_columns,
)
from outbox_spark.sinks.lake.quarantine import Quarantine
from outbox_spark.sinks.lake.storage import LakeStorage
from outbox_spark.sinks.lake.tombstone_ledger import LEDGER_ID, Ledger
from outbox_spark.sinks.target_table import REBUILD_HINT, Batch, NoEarlyStaging

PROGRESS_KEY = "outbox"
"""Key of the progress in the metadata of a commit."""


@dataclass(frozen=True)
class ChangedRows:
    """Numbers of rows that a commit changed, as the format reports. `updated` includes rows that were only flagged."""

    inserted: int
    updated: int
    deleted: int


class LakeTable(NoEarlyStaging, ABC):
    """One table with its ledger and quarantine. The lease, if any, is held inside `with`."""

    def __init__(self, storage: LakeStorage, label: str, mode: Mode, lease: Lease | None) -> None:
        self._storage = storage
        self._label = label
        self._mode = mode
        self._lease = lease
        self._ledger = Ledger(storage, mode)
        self._quarantine = Quarantine(storage)
        self._progress: dict[str, Any] | None = None
        """The progress that was last read or written, in the form of the commit metadata."""

    def __enter__(self) -> Self:
        if self._lease is not None:
            self._lease.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            self._lease.release()

    def committed(self) -> TableProgress | None:
        """Return the latest progress in the table's commits; commits of other jobs (compaction, ...) have none."""
        if not self._storage.exists():
            return None
        progress = self._read_progress()
        if progress is None:
            raise self._foreign_table_error()
        committed = TableProgress.from_json(progress, f"the progress of {self._label}")  # checks the layout first
        self._progress, self._ledger.id = progress, progress[LEDGER_ID]
        return committed

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError when the table has a different mode, or a column a different type than in `schema`."""
        if self._progress is not None and self._progress["mode"] != self._mode:
            mode = self._progress["mode"]
            message = f"{self._label} was created with mode {mode}, but the job has mode {self._mode}"
            raise SchemaError(message, f"set the mode back to {mode}, or {REBUILD_HINT}")
        types = self._storage.column_types()
        for column in columns:
            actual, expected = types.get(column.name.lower()), schema[column.name].dataType.simpleString()
            if actual is not None and actual != expected:
                message = f"column {column.name} of {self._label} is {actual}; the latest schema has {expected}"
                raise SchemaError(message, f"revert the change of the type, or {REBUILD_HINT}")

    @staticmethod
    def is_unsupported(column: Column, value: Expression) -> Expression | None:  # noqa: ARG004 - of the protocol
        """Return None: Delta and Iceberg store every Avro value."""
        return None

    def current_versions(self) -> DataFrame:
        """Return key and METADATA_COLUMNS of the current rows."""
        rows = self._storage.read()
        for name in (DELETED_AT_COLUMN, VALID_TO_COLUMN):
            if name in rows.columns:
                rows = rows.where(F.col(name).isNull())
        return rows.select(KEY_COLUMN, *METADATA_COLUMNS)

    def expire_ledger(self, before: datetime) -> int:
        """Remove ledger entries older than `before`, and return their number."""
        return self._ledger.expire(before)

    def write(self, batch: Batch) -> WriteCounts:
        """Write ledger and quarantine, then rows and progress in one commit."""
        self._check_lease()
        progress = self._progress_of(batch)
        with self._raising_conflicts():
            self._quarantine.add(batch)
            tombstones = self._ledger.add(batch)
            if self._mode is Mode.HISTORY:
                upserts, deletes = self._write_history(batch, progress)
            elif batch.previous is None:
                upserts, deletes = self._create(batch, progress)
            else:
                upserts, deletes = self._merge(batch, progress)
        self._progress = progress
        return WriteCounts(upserts, deletes, tombstones, batch.counts.quarantined)

    def _create(self, batch: Batch, progress: dict[str, Any]) -> tuple[int, int]:
        """Create and fill the table in the first commit; return (upserts, deletes)."""
        rows = self._merge_source(batch, flag_other_keys=False).where(~F.col("_deleted"))
        return self._commit_first(self._first_rows(rows, batch), progress).inserted, 0

    def _merge(self, batch: Batch, progress: dict[str, Any]) -> tuple[int, int]:
        filled = self._add_columns(batch)
        if not batch.counts.rows and not filled:
            self._commit_progress(progress)
            return 0, 0
        rows = self._merge_source(batch, flag_other_keys=bool(batch.counts.quarantined))
        merge = self._merge_for(batch, filled, has_quarantined=QUARANTINED in rows.columns)
        with self._temporary_view(rows) as source:
            changes = self._commit_merge(merge, source, progress)
        if self._mode is Mode.HARD_DELETE and not merge.filled and not merge.has_quarantined:
            return changes.inserted + changes.updated, changes.deleted
        upserts, deleted = self._count_changed(batch)
        return upserts, deleted + changes.deleted

    def _write_history(self, batch: Batch, progress: dict[str, Any]) -> tuple[int, int]:
        is_first_batch = batch.previous is None
        filled = {} if is_first_batch else self._add_columns(batch)
        readable = batch.rows.where(F.col("_reason").isNull())
        new = readable.where(~F.col("_deleted")).select(*table_columns(batch.columns, Mode.HARD_DELETE)[:-1])
        stored = None if is_first_batch else self._storage.read()
        if stored is not None:
            new = history.without_stored(new, stored)
        affected = batch.rows.select(KEY_COLUMN).where(F.col(KEY_COLUMN).isNotNull()).distinct()
        quarantined = self._quarantine.newest_versions(batch.committed.topic_id)
        affected = (
            affected.withColumn(
                QUARANTINED, F.lit(None).cast("struct<_sequence: string, _partition_epoch: int, _offset: bigint>")
            )
            if quarantined is None
            else affected.join(quarantined, KEY_COLUMN, "left")
        )
        deletions = self._ledger.entries() if self._ledger.exists() else None
        rows = history.timeline(new, stored, deletions, affected).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            ended = rows.where(history.ENDED_COLUMN).count()
            changed = rows.drop(history.NEW_COLUMN, history.ENDED_COLUMN)
            if is_first_batch:
                return self._commit_first(self._first_rows(changed, batch), progress).inserted, ended
            with self._temporary_view(changed) as source:
                merge = self._merge_for(batch, filled, has_quarantined=False)
                return self._commit_merge(merge, source, progress).inserted, ended
        finally:
            rows.unpersist()

    def _merge_source(self, batch: Batch, *, flag_other_keys: bool) -> DataFrame:
        """Return the source rows of the MERGE, see merge_sql.py.

        `flag_other_keys`: include keys of which the batch has only quarantined records.
        """
        readable = batch.rows.where(F.col("_reason").isNull())
        if batch.previous is not None:
            # The ledger of a new table has only tombstones of this batch, whose keys have no other readable row.
            readable = self._ledger.without_deleted(readable)
        names = table_columns(batch.columns, Mode.HARD_DELETE)[:-1]
        readable = readable.select(*names, "_deleted").withColumn(READABLE, F.lit(True))
        quarantined = self._quarantine.newest_versions(batch.committed.topic_id)
        if quarantined is None:
            return readable.withColumn(STALE_COLUMN, F.lit(False))
        joined = readable.join(quarantined, KEY_COLUMN, "full_outer" if flag_other_keys else "left")
        newer = F.col(QUARANTINED) > F.struct(*VERSION_COLUMNS)
        flags = {READABLE: F.coalesce(READABLE, F.lit(False)), "_deleted": F.coalesce("_deleted", F.lit(False))}
        return joined.withColumns({STALE_COLUMN: F.coalesce(newer, F.lit(False)), **flags}).where(
            F.lit(True) if flag_other_keys else F.col(READABLE)
        )

    def _merge_for(self, batch: Batch, filled: Mapping[str, str], *, has_quarantined: bool) -> MergeStatement:
        names = table_columns(batch.columns, self._mode)
        removed = sorted(set(self._storage.column_types()) - {name.lower() for name in names})
        stored = [self._storage.stored_names.get(name, name) for name in names]
        return MergeStatement(self._mode, stored, removed, filled, has_quarantined)

    def _first_rows(self, rows: DataFrame, batch: Batch) -> DataFrame:
        """Select the columns of the table, with the documentation of the fields as comments."""
        comments = {column.name: {"comment": column.doc} for column in batch.columns if column.doc}
        missing = {
            name: F.lit(None).cast(STATE_TYPES[name]) for name in state_columns(self._mode) if name not in rows.columns
        }
        names = table_columns(batch.columns, self._mode)
        return rows.withColumns(missing).select(
            *[F.col(quoted(name)).alias(name, metadata=comments.get(name, {})) for name in names]
        )

    def _add_columns(self, batch: Batch) -> dict[str, str]:
        """Add the columns that the table lacks; return the SQL defaults of new columns for existing rows.

        New columns are those that the last progress does not list, not those that the table lacks: if a run crashes
        after ADD COLUMNS, the next run fills them.
        """
        types, progress = batch.rows.schema, self._progress or {}
        expected = {column.name: types[column.name].dataType.simpleString() for column in batch.columns}
        expected |= {name: STATE_TYPES[name] for name in state_columns(self._mode)}
        self._storage.add_columns(expected, {column.name: column.doc for column in batch.columns if column.doc})
        filled = [c for c in batch.columns if c.name not in progress.get("columns", []) and c.has_default]
        if not filled:
            return {}
        spark = self._storage.spark
        row = defaults(spark, filled, batch.reader_schema).select(F.to_json(F.struct("*"), JSON_OPTIONS)).collect()[0]
        return {column.name: default_sql(row[0], column.name, types) for column in filled}

    def _count_changed(self, batch: Batch) -> tuple[int, int]:
        """Return the numbers of rows without and with `_deleted_at` whose record is in the batch's range."""
        start = {} if batch.previous is None else batch.previous.offsets
        ranges = [
            (F.col("_partition") == partition)
            & (F.col("_offset") >= start.get(partition, 0))
            & (F.col("_offset") < end)
            for partition, end in batch.committed.offsets.items()
        ]
        deleted = F.col(DELETED_AT_COLUMN).isNotNull() if self._mode is Mode.SOFT_DELETE else F.lit(False)
        rows = self._storage.read().where(reduce(lambda a, b: a | b, ranges, F.lit(False)))
        row = rows.agg(F.count_if(~deleted).alias("current"), F.count_if(deleted).alias("deleted")).collect()[0]
        return row["current"], row["deleted"]

    def _progress_of(self, batch: Batch) -> dict[str, Any]:
        return {
            **batch.committed.to_json(),
            "columns": [column.name for column in batch.columns],
            "mode": self._mode,
            LEDGER_ID: self._ledger.id,
            "token": secrets.token_hex(8),
        }

    def _copy_companions(self, shadow: Self) -> dict[str, Any]:
        """Copy the shadow's ledger entries and quarantine to this table; return the shadow's progress.

        As in every run, this precedes the commit of the rows. The entries have the shadow's ledger id, so they have no
        effect until that commit refers to it. Raises RefusedError when there is no shadow, OverlapError when the lease
        was lost.
        """
        self._check_lease()
        if shadow.committed() is None or shadow._progress is None:
            message = f"{shadow._label} does not exist, so it cannot replace {self._label}"
            raise RefusedError(message, "run `outbox-rebuild` again")
        self._ledger.copy_from(shadow._ledger)
        self._quarantine.copy_from(shadow._quarantine)
        return shadow._progress

    def _check_lease(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _foreign_table_error(self) -> RefusedError:
        message = (
            f"the commit history of {self._label} contains no offsets: either outbox-materialize did not create the "
            "table, or the commits with the offsets have expired"
        )
        return RefusedError(
            message, "materialize into another table, or drop this table so that the next run creates it"
        )

    def _conflict_error(self) -> OverlapError:
        message = f"another run has committed to {self._label}"
        return OverlapError(message, "run the command again, and schedule only one run per table at a time")

    @contextmanager
    def _raising_conflicts(self) -> Iterator[None]:
        """Convert conflict errors of Delta or Iceberg to OverlapError."""
        try:
            yield
        except RefusedError:
            raise
        except Exception as error:
            if self._is_conflict(error):
                raise self._conflict_error() from error
            raise

    @contextmanager
    def _temporary_view(self, rows: DataFrame) -> Iterator[str]:
        name = f"outbox_source_{secrets.token_hex(4)}"
        rows.withColumnsRenamed(dict(self._storage.stored_names)).createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self._storage.spark.catalog.dropTempView(name)

    @abstractmethod
    def _read_progress(self) -> dict[str, Any] | None:
        """Return the latest progress in the table's commits. Raises RefusedError when the table was rolled back."""

    @abstractmethod
    def _commit_first(self, rows: DataFrame, progress: dict[str, Any]) -> ChangedRows:
        """Create the table with these rows. Raises OverlapError when it exists."""

    @abstractmethod
    def _commit_merge(self, merge: MergeStatement, source: str, progress: dict[str, Any]) -> ChangedRows:
        """Run the MERGE in one commit with the progress. Raises OverlapError when another run has committed."""

    @abstractmethod
    def _commit_progress(self, progress: dict[str, Any]) -> None:
        """Commit the progress alone. Raises OverlapError as `_commit_merge`."""

    @abstractmethod
    def _is_conflict(self, error: Exception) -> bool:
        """Return whether Delta or Iceberg raised this because of a concurrent commit."""
