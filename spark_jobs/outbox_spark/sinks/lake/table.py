"""Base class of Delta and Iceberg tables. Each batch is one version-checked MERGE, in one commit with the progress.

The ledger and the quarantine are written before that commit. The subclasses implement the commit.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Self

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from outbox_events.errors import RefusedError
from outbox_spark.decoding.columns import (
    DELETED_AT_COLUMN,
    KEY_COLUMN,
    METADATA_COLUMNS,
    ROW_STATE_COLUMNS,
    STALE_COLUMN,
    VALID_TO_COLUMN,
    Column,
    check_reserved,
)
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.decoding.rows import defaults
from outbox_spark.errors import REBUILD_HINT, ForeignTableError, OverlapError, SchemaError
from outbox_spark.jobs.model import Mode, TableProgress, WriteCounts
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.session.persisted import checkpoint, persist
from outbox_spark.session.settings import WITHOUT_ADAPTIVE_EXECUTION, changed_settings
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
from outbox_spark.sinks.lake.quarantine import QUARANTINE_CONTENT, Quarantine
from outbox_spark.sinks.lake.storage import LakeStorage, key_filter, temporary_view, with_keys
from outbox_spark.sinks.lake.tombstone_ledger import LEDGER_CONTENT, SUPERSEDED, Ledger, SequenceBounds, sequence_bounds
from outbox_spark.sinks.lake.value_equality import differs
from outbox_spark.sinks.target_table import (
    DIFFERENT_COLUMNS,
    QUARANTINE_SUFFIX,
    STORED_VERSION,
    TOMBSTONES_SUFFIX,
    Batch,
    RetryResult,
    TargetTable,
    check_earlier_rows,
    check_stored_columns,
)

PROGRESS_KEY = "outbox"
"""Key of the progress in the user metadata of a commit (Delta) or the summary of a snapshot (Iceberg)."""

_COMPANIONS = "companions"
"""Key, in the progress, of the suffixes of the companion tables that exist."""
_REMOVED_COLUMNS = "removed_columns"
"""Key, in the progress, of the names of fields that only earlier schemas had."""
_MAX_FILTERED_KEYS = 500_000
"""Number of rows up to which the keys of a batch select the stored rows that are joined with it."""
_SMALL_ROWS = 20_000
_SMALL_SETTINGS = {**WITHOUT_ADAPTIVE_EXECUTION, "spark.sql.shuffle.partitions": "2"}
"""Settings for the statements of small batches, in which adaptive execution takes longer than it saves."""
_STORED, _EXPECTED, _IS_QUARANTINED = "__outbox_stored", "__outbox_expected", "__outbox_is_quarantined"


@dataclass(frozen=True)
class ChangeCounts:
    """Numbers of changed rows as reported by the format. `updated` includes rows that were only flagged as stale."""

    inserted: int
    updated: int
    deleted: int


class LakeTable(TargetTable, ABC):
    """One table with its ledger and quarantine. If it has a lease, the run holds the lease inside `with`."""

    kind: ClassVar[str]
    """Table format, which is the value of `kind` in the environment file."""

    def __init__(self, storage: LakeStorage, label: str, mode: Mode, lease: Lease | None) -> None:
        self._storage = storage
        self._label = label
        self._mode = mode
        self._lease = lease
        self._ledger = Ledger(storage, mode)
        self._quarantine = Quarantine(storage)
        self._progress: dict[str, Any] | None = None
        """The progress that was last read or committed, in the form of `_progress_with`."""

    def __enter__(self) -> Self:
        if self._lease is not None:
            self._lease.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lease is not None:
            self._lease.release()

    def current_time(self) -> datetime:
        """Return the time at which the store wrote the lease; the driver's time if the table has no lease."""
        written_at = None if self._lease is None else self._lease.written_at
        return written_at or datetime.now(UTC)

    def committed(self) -> TableProgress | None:
        """Return the latest progress in the table's commits. Commits of other jobs, such as compaction, lack it."""
        if not self._storage.exists():
            return None
        progress = self._read_progress()
        if progress is None:
            raise self._foreign_table_error()
        committed = TableProgress.from_json(progress, f"the progress of {self._label}")  # rejects other layouts
        self._progress = progress
        self._ledger.restore(progress)
        self._quarantine.restore(progress)
        return committed

    def written_topic(self) -> tuple[str, str] | None:
        progress = self._latest_progress()
        return None if progress is None else (progress["topic"], progress["topic_id"])

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError for a reserved name, another mode, a type other than in `schema`, or a renamed field."""
        check_reserved(columns, self._label, self.kind)
        if self._progress is not None and self._progress["mode"] != self._mode:
            mode = self._progress["mode"]
            message = f"{self._label} was created with mode {mode}, but the job has mode {self._mode}"
            raise SchemaError(message, f"set the mode back to {mode}, or {REBUILD_HINT}")
        previous = self._progress or {}
        check_earlier_rows(columns, previous.get("columns", ()), previous.get(_REMOVED_COLUMNS, ()), self._label)
        types = self._storage.column_types()
        if self._progress is not None:
            check_stored_columns(previous.get("columns", ()), types, self._label)
        for column in columns:
            actual, expected = types.get(column.name.lower()), schema[column.name].dataType.simpleString()
            if actual is not None and actual != expected and not self._storage.can_widen(actual, expected):
                message = f"column {column.name} of {self._label} has type {actual}; the schema requires {expected}"
                raise SchemaError(message, f"restore the field's type in the schema, or {REBUILD_HINT}")

    def row_states(self) -> DataFrame:
        rows = self._rows_without_older_versions()
        types = {name: STATE_TYPES[name] for name in ROW_STATE_COLUMNS if name not in rows.columns}
        rows = rows.withColumns({name: F.lit(None).cast(dtype) for name, dtype in types.items()})
        return rows.select(KEY_COLUMN, *METADATA_COLUMNS, *ROW_STATE_COLUMNS)

    def column_names(self, columns: Sequence[Column]) -> list[str]:
        # Names in lake tables are case-insensitive. If a field's name changes only in case, its column keeps its name.
        names = {column.name.lower(): column.name for column in columns}
        stored_names = self._storage.read().columns if self._storage.exists() else []
        return [names.get(name.lower(), name) for name in stored_names]

    def quarantined_versions(self, topic_id: str) -> DataFrame | None:
        versions = self._quarantine.newest_versions(topic_id)
        return None if versions is None else versions.withColumnRenamed(QUARANTINED, STORED_VERSION)

    def different_fields(self, stack: ExitStack, rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
        """Return each stored row that differs from the decoded row of the same key, with the differing columns."""
        fields = [F.col(quoted(column.name)) for column in columns]
        version = F.struct(*VERSION_COLUMNS).alias(STORED_VERSION)
        stored_rows = self._rows_without_older_versions().select(KEY_COLUMN, version, F.struct(*fields).alias(_STORED))
        is_quarantined = F.col("__outbox_reason").isNotNull()
        expected_rows = rows.where(is_quarantined | ~F.col("__outbox_deleted"))
        expected_rows = expected_rows.select(
            KEY_COLUMN, is_quarantined.alias(_IS_QUARANTINED), F.struct(*fields).alias(_EXPECTED)
        )
        names = [
            F.when(differs(F.col(_STORED)[field.name], F.col(_EXPECTED)[field.name], field.dataType), field.name)
            for field in expected_rows.select(f"{_EXPECTED}.*").schema.fields
        ]
        different_names = F.array_compact(F.array(*names).cast("array<string>"))
        different_names = F.when(F.col(_IS_QUARANTINED), F.array().cast("array<string>")).otherwise(different_names)
        joined = stored_rows.join(expected_rows, KEY_COLUMN).withColumn(DIFFERENT_COLUMNS, different_names)
        differences = joined.where(F.col(_IS_QUARANTINED) | (F.size(DIFFERENT_COLUMNS) > 0))
        differences = persist(stack, differences.select(KEY_COLUMN, STORED_VERSION, DIFFERENT_COLUMNS))
        differences.count()  # if Spark knows the size of the persisted result, it selects better joins
        return differences

    def quarantined(self, topic_id: str, reason: str) -> DataFrame:
        return self._quarantine.records(topic_id, reason)

    def update_quarantined(self, topic_id: str, results: Sequence[RetryResult]) -> None:
        self._check_lease()
        self._quarantine.update(topic_id, results)

    def expire_ledger(self, before: datetime) -> int:
        """Remove the ledger entries older than `before`, and return their number. Do nothing in history mode."""
        return self._ledger.expire(before)

    def write(self, batch: Batch) -> WriteCounts:
        """Write the ledger and the quarantine, then write the rows and the progress in one commit."""
        self._check_lease()
        companions = self._companions()
        self._refuse_missing_companions(companions)
        with self._raising_conflicts(), ExitStack() as stack:
            may_contain = self._key_filter(stack, batch)
            if batch.rewrites:
                progress = self._progress_with(batch, companions)
                upserts = self._rewrite(batch, progress, may_contain)
                self._progress = progress
                return WriteCounts(upserts)
            quarantined = self._quarantine.add(batch)
            if self._mode is Mode.HISTORY:
                tombstones = self._ledger.add_versions(batch)
                progress = self._progress_with(batch, companions)
                upserts, deletes = self._write_history(batch, progress, may_contain)
            else:
                with changed_settings(self._storage.spark, _settings_for(batch, may_contain)):
                    source, tombstones = self._written_ledger(stack, batch, may_contain)
                progress = self._progress_with(batch, companions)
                if batch.previous is None:
                    upserts, deletes = self._create(batch, source, progress), 0
                else:
                    upserts, deletes = self._merge(batch, source, progress, may_contain)
        self._progress = progress
        return WriteCounts(upserts, deletes, tombstones, quarantined)

    def drop(self) -> None:
        for suffix in ("", TOMBSTONES_SUFFIX):
            self._storage.drop(suffix)

    def maintain(self) -> str:
        """Compact the table, its ledger and its quarantine. Return one line that reports the results."""
        if self.committed() is None:
            return f"{self._label}: the table does not exist yet"
        main, *companions = map(self._storage.compact, ["", *self._companions()])
        return f"{self._label}: rewrote {main}" + (f"; companion tables: {'; '.join(companions)}" if companions else "")

    def _written_ledger(self, stack: ExitStack, batch: Batch, may_contain: str | None) -> tuple[DataFrame, int]:
        """Add the tombstones of the batch to the ledger. Return the source rows of the MERGE, and their number."""
        if not batch.counts.rows:
            return self._merge_source(batch, may_contain, reads_ledger=False, reads_quarantine=False), 0
        before, bounds = self._ledger.current_content(), SequenceBounds()
        self._quarantine.content = quarantine = self._quarantine.current_content()
        if before.version or quarantine.version or batch.counts.tombstones:
            bounds = sequence_bounds(batch.rows)
        # No entry can affect a row that is newer than all entries.
        reads_ledger = batch.previous is not None and before.version != "" and bounds.oldest <= before.newest
        has_older_rows = bounds.oldest <= quarantine.newest
        reads_quarantine = quarantine.version != "" and (batch.counts.quarantined > 0 or has_older_rows)
        source = self._merge_source(batch, may_contain, reads_ledger=reads_ledger, reads_quarantine=reads_quarantine)
        if may_contain is not None:
            source = checkpoint(stack, source)
        self._ledger.content = before
        return source, self._ledger.add(source, before, bounds) if batch.counts.tombstones else 0

    def _key_filter(self, stack: ExitStack, batch: Batch) -> str | None:
        """Return a SQL function that is false for nearly all keys that are not in the batch, until `stack` is closed.

        Return None if all rows of the table must be read, or if the filter would take longer than it saves.
        """
        if batch.previous is None or not 0 < batch.counts.rows <= _MAX_FILTERED_KEYS:
            return None
        return stack.enter_context(key_filter(batch.rows, KEY_COLUMN, batch.counts.rows))

    def _create(self, batch: Batch, source: DataFrame, progress: dict[str, Any]) -> int:
        """Create the table with the rows of the batch in one commit. Return their number."""
        rows = self._rows_of_new_table(source.where(~F.col("__outbox_deleted")), batch)
        return self._commit_creation(rows, progress).inserted

    def _merge(
        self, batch: Batch, source: DataFrame, progress: dict[str, Any], may_contain: str | None
    ) -> tuple[int, int]:
        column_defaults = self._add_columns(batch)
        if not batch.counts.rows and not column_defaults:
            self._commit_progress(progress)
            return 0, 0
        # A batch without such records makes no other row stale. The clause would read all columns of the table.
        has_quarantined = QUARANTINED in source.columns and batch.counts.quarantined > 0
        merge = self._merge_for(batch, column_defaults, may_contain, has_quarantined=has_quarantined)
        # The format's numbers can include rows that were only marked as stale or deleted, or that got a new column.
        is_exact = self._mode is Mode.HARD_DELETE and not merge.column_defaults and not merge.has_quarantined
        expected = self._count_newer(source, may_contain) if batch.may_repeat and not is_exact else None
        counts = self._execute_merge(merge, source, batch, progress)
        if is_exact:
            return counts.inserted + counts.updated, counts.deleted
        if expected is not None:
            return expected
        upserts, deletes = self._count_changed(batch)
        return upserts, deletes + counts.deleted

    def _rewrite(self, batch: Batch, progress: dict[str, Any], may_contain: str | None) -> int:
        column_defaults = self._add_columns(batch)
        rows = batch.rows.withColumn(READABLE, F.col("__outbox_reason").isNull())
        quarantined_versions = self._quarantine.newest_versions(batch.committed.topic_id)
        is_stale = F.lit(False)
        if quarantined_versions is not None:
            rows = rows.join(quarantined_versions, KEY_COLUMN, "left")
            is_stale = F.coalesce(F.col(QUARANTINED) > F.struct(*VERSION_COLUMNS), F.lit(False))
        names = table_columns(batch.columns, Mode.HARD_DELETE)[:-1]
        rows = rows.withColumn(STALE_COLUMN, is_stale).select(
            *map(quoted, names), STALE_COLUMN, READABLE, "__outbox_deleted"
        )
        merge = self._merge_for(batch, column_defaults, may_contain, has_quarantined=False)
        return self._execute_merge(replace(merge, rewrites=True), rows, batch, progress).updated

    def _rows_without_older_versions(self) -> DataFrame:
        rows = self._storage.read()
        return rows.where(F.col(VALID_TO_COLUMN).isNull()) if VALID_TO_COLUMN in rows.columns else rows

    def _write_history(self, batch: Batch, progress: dict[str, Any], may_contain: str | None) -> tuple[int, int]:
        is_first_batch = batch.previous is None
        column_defaults = {} if is_first_batch else self._add_columns(batch)
        readable_rows = batch.rows.where(F.col("__outbox_reason").isNull())
        new_rows = readable_rows.where(~F.col("__outbox_deleted")).select(
            *table_columns(batch.columns, Mode.HARD_DELETE)[:-1]
        )
        stored_rows = None if is_first_batch else with_keys(self._storage.read(), may_contain)
        if stored_rows is not None:
            new_rows = history.without_stored(new_rows, stored_rows)
        keys = batch.rows.select(KEY_COLUMN).where(F.col(KEY_COLUMN).isNotNull()).distinct()
        quarantined_versions = self._quarantine.newest_versions(batch.committed.topic_id)
        keys = (
            keys.withColumn(
                QUARANTINED, F.lit(None).cast("struct<_sequence: string, _partition_epoch: int, _offset: bigint>")
            )
            if quarantined_versions is None
            else keys.join(quarantined_versions, KEY_COLUMN, "left")
        )
        deletions = with_keys(self._ledger.entries(), may_contain) if self._ledger.exists() else None
        changes = history.timeline(new_rows, stored_rows, deletions, keys).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            ended_count = changes.where(history.ENDED_COLUMN).count()
            rows = changes.drop(history.NEW_COLUMN, history.ENDED_COLUMN)
            if is_first_batch:
                return self._commit_creation(self._rows_of_new_table(rows, batch), progress).inserted, ended_count
            merge = self._merge_for(batch, column_defaults, may_contain, has_quarantined=False)
            return self._execute_merge(merge, rows, batch, progress).inserted, ended_count
        finally:
            changes.unpersist()

    def _merge_source(
        self, batch: Batch, may_contain: str | None, *, reads_ledger: bool, reads_quarantine: bool
    ) -> DataFrame:
        """Return the source rows of the MERGE (see merge_sql.py), and the column SUPERSEDED for tombstones.

        `reads_ledger` is false if no entry of the ledger can supersede a row, and `reads_quarantine` if no quarantined
        record is newer than a row. If the batch has quarantined records, the result includes their keys, also if they
        have no readable row in the batch.
        """
        readable_rows = batch.rows.where(F.col("__outbox_reason").isNull())
        names = table_columns(batch.columns, Mode.HARD_DELETE)[:-1]
        readable_rows = readable_rows.select(*names, "__outbox_deleted").withColumn(READABLE, F.lit(True))
        if reads_ledger:
            readable_rows = self._ledger.mark_superseded(readable_rows, may_contain)
            readable_rows = readable_rows.where(F.col("__outbox_deleted") | ~F.col(SUPERSEDED))
        else:
            readable_rows = readable_rows.withColumn(SUPERSEDED, F.lit(False))
        quarantined_versions = self._quarantine.newest_versions(batch.committed.topic_id) if reads_quarantine else None
        if quarantined_versions is None:
            return readable_rows.withColumn(STALE_COLUMN, F.lit(False))
        quarantined_versions = with_keys(quarantined_versions, may_contain)
        flag_other_keys = batch.previous is not None and batch.counts.quarantined > 0
        joined = readable_rows.join(quarantined_versions, KEY_COLUMN, "full_outer" if flag_other_keys else "left")
        is_stale = F.col(QUARANTINED) > F.struct(*VERSION_COLUMNS)
        flags = {
            READABLE: F.coalesce(READABLE, F.lit(False)),
            "__outbox_deleted": F.coalesce("__outbox_deleted", F.lit(False)),
        }
        return joined.withColumns({STALE_COLUMN: F.coalesce(is_stale, F.lit(False)), **flags}).where(
            F.lit(True) if flag_other_keys else F.col(READABLE)
        )

    def _merge_for(
        self, batch: Batch, column_defaults: Mapping[str, str], may_contain: str | None, *, has_quarantined: bool
    ) -> MergeStatement:
        names = table_columns(batch.columns, self._mode)
        # All other columns of the table were added manually, and keep their values.
        earlier_names = {name.lower() for name in self._field_names()} - {name.lower() for name in names}
        removed = sorted(earlier_names.intersection(self._storage.column_types()))
        stored_names = [self._storage.stored_names.get(name, name) for name in names]
        # The defaults of new columns change all rows of the table.
        key_filter = None if column_defaults else may_contain
        return MergeStatement(
            self._mode, stored_names, removed, column_defaults, has_quarantined, key_filter=key_filter
        )

    def _rows_of_new_table(self, rows: DataFrame, batch: Batch) -> DataFrame:
        """Return `rows` with all columns of the new table. The documentation of fields becomes column comments."""
        comments = {column.name: {"comment": column.doc} for column in batch.columns if column.doc}
        missing_columns = {
            name: F.lit(None).cast(STATE_TYPES[name]) for name in state_columns(self._mode) if name not in rows.columns
        }
        names = table_columns(batch.columns, self._mode)
        return rows.withColumns(missing_columns).select(
            *[F.col(quoted(name)).alias(name, metadata=comments.get(name, {})) for name in names]
        )

    def _add_columns(self, batch: Batch) -> dict[str, str]:
        """Add the columns that the table lacks. Return a mapping from new columns to SQL for existing rows.

        A column is new if the last progress does not list it, even if the table has it. If a run crashed between
        ADD COLUMNS and the commit, this run therefore sets the values.
        """
        types, known_names = batch.rows.schema, (self._progress or {}).get("columns", [])
        expected_types = {column.name: types[column.name].dataType.simpleString() for column in batch.columns}
        expected_types |= {name: STATE_TYPES[name] for name in state_columns(self._mode)}
        self._storage.add_columns(expected_types, {column.name: column.doc for column in batch.columns if column.doc})
        new_columns = [column for column in batch.columns if column.name not in known_names and column.has_default]
        if not new_columns:
            return {}
        as_json = F.to_json(F.struct("*"), JSON_OPTIONS)
        row = defaults(self._storage.spark, new_columns, batch.reader_schema).select(as_json).collect()[0]
        return {column.name: default_sql(row[0], column.name, types) for column in new_columns}

    def _count_newer(self, rows: DataFrame, may_contain: str | None) -> tuple[int, int]:
        """Return (upserts, deletes), the numbers of source rows of a MERGE that are newer than the table's rows."""
        stored = with_keys(self._storage.read(), may_contain)
        stored = stored.select(KEY_COLUMN, F.struct(*VERSION_COLUMNS).alias("__outbox_stored"))
        is_new, is_deleted = F.col("__outbox_stored").isNull(), F.col("__outbox_deleted")
        is_newer = F.struct(*VERSION_COLUMNS) > F.col("__outbox_stored")
        row = (
            rows.where(READABLE)
            .join(stored, KEY_COLUMN, "left")
            .agg(
                F.count_if(~is_deleted & (is_new | is_newer)).alias("upserts"),
                F.count_if(is_deleted & is_newer).alias("deletes"),
            )
            .collect()[0]
        )
        return row["upserts"], row["deletes"]

    def _count_changed(self, batch: Batch) -> tuple[int, int]:
        """Return (upserts, deletes), the numbers of undeleted and deleted rows whose record is in the batch's range.

        Unlike _count_newer, this function reads only files with these offsets. However, if the batch repeats records,
        it counts rows that did not change.
        """
        start_offsets = {} if batch.previous is None else batch.previous.offsets
        ranges = [
            (F.col("_partition") == partition)
            & (F.col("_offset") >= start_offsets.get(partition, 0))
            & (F.col("_offset") < end)
            for partition, end in batch.committed.offsets.items()
        ]
        is_deleted = F.col(DELETED_AT_COLUMN).isNotNull() if self._mode is Mode.SOFT_DELETE else F.lit(False)
        rows = self._storage.read().where(reduce(or_, ranges, F.lit(False)))
        row = rows.agg(F.count_if(~is_deleted).alias("upserts"), F.count_if(is_deleted).alias("deletes")).collect()[0]
        return row["upserts"], row["deletes"]

    def _field_names(self) -> set[str]:
        """Return the names of the fields with which the table was written, including fields of earlier schemas."""
        previous = self._progress or {}
        return {*previous.get("columns", ()), *previous.get(_REMOVED_COLUMNS, ())}

    def _companions(self) -> list[str]:
        """Return the suffixes of the companion tables that exist."""
        return [suffix for suffix in (TOMBSTONES_SUFFIX, QUARANTINE_SUFFIX) if self._storage.exists(suffix)]

    def _refuse_missing_companions(self, existing: Collection[str]) -> None:
        """Raise RefusedError if a companion table was dropped. `existing` contains the suffixes of those that exist.

        Without its ledger, a table would show a deleted key again if an older record of the key is replayed.
        """
        for suffix in (self._progress or {}).get(_COMPANIONS, ()):
            if suffix not in existing:
                message = f"table {self._label}{suffix} is missing, although {self._label} has written to it"
                raise RefusedError(message, f"restore the table, or {REBUILD_HINT}")

    def _progress_with(self, batch: Batch, companions: Sequence[str]) -> dict[str, Any]:
        names = [column.name for column in batch.columns]
        added = {TOMBSTONES_SUFFIX: batch.counts.tombstones, QUARANTINE_SUFFIX: batch.counts.quarantined}
        written = [suffix for suffix, count in added.items() if count and not batch.rewrites]
        return {
            **batch.committed.to_json(),
            "columns": names,
            _REMOVED_COLUMNS: sorted(self._field_names().difference(names)),
            "mode": self._mode,
            _COMPANIONS: sorted({*companions, *written}),
            **self._ledger.progress_fields(),
            **self._quarantine.progress_fields(),
            "token": secrets.token_hex(8),
        }

    def _copy_companions(self, shadow: Self) -> dict[str, Any]:
        """Copy the shadow's ledger entries and quarantine to this table. Return the shadow's progress.

        As in every run, the ledger and the quarantine are written before the rows. The entries have the shadow's ledger
        id, so they have no effect until a progress with this id is committed. Raises RefusedError if the shadow does
        not exist, and OverlapError if the lease was lost.
        """
        self._check_lease()
        if shadow.committed() is None or shadow._progress is None:
            message = f"{shadow._label} does not exist, so it cannot replace {self._label}"
            raise RefusedError(message, "run `outbox-rebuild` again")
        self._ledger.copy_from(shadow._ledger)
        self._quarantine.copy_from(shadow._quarantine)
        return {**shadow._progress, _COMPANIONS: self._companions(), LEDGER_CONTENT: None, QUARANTINE_CONTENT: None}

    def _check_lease(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _foreign_table_error(self) -> ForeignTableError:
        message = (
            f"the commit history of {self._label} contains no offsets: either outbox-materialize did not create the "
            "table, or the commits with the offsets have expired"
        )
        hint = "materialize into another table, or drop this table so that the next run creates it"
        return ForeignTableError(message, hint)

    def _conflict_error(self) -> OverlapError:
        message = f"another run has committed to {self._label}"
        return OverlapError(message, "run the command again, and schedule only one run per table at a time")

    @contextmanager
    def _raising_conflicts(self) -> Iterator[None]:
        """Convert the errors of Delta and Iceberg for concurrent commits to OverlapError."""
        try:
            yield
        except RefusedError:
            raise
        except Exception as error:
            if self._is_conflict(error):
                raise self._conflict_error() from error
            raise

    def _execute_merge(
        self, merge: MergeStatement, rows: DataFrame, batch: Batch, progress: dict[str, Any]
    ) -> ChangeCounts:
        """Execute the MERGE of `rows` in one commit with the progress."""
        settings = changed_settings(self._storage.spark, _settings_for(batch, merge.key_filter))
        with settings, temporary_view(rows.withColumnsRenamed(dict(self._storage.stored_names))) as source:
            return self._commit_merge(merge, source, progress)

    @abstractmethod
    def _read_progress(self) -> dict[str, Any] | None:
        """Return the latest progress in the table's commits. Raises RefusedError if the table was rolled back."""

    @abstractmethod
    def _latest_progress(self) -> dict[str, Any] | None:
        """Return the latest progress, also if the table was rolled back. Raises RefusedError if there is none."""

    @abstractmethod
    def _commit_creation(self, rows: DataFrame, progress: dict[str, Any]) -> ChangeCounts:
        """Create the table with these rows, in one commit with the progress. Raises OverlapError if it exists."""

    @abstractmethod
    def _commit_merge(self, merge: MergeStatement, source: str, progress: dict[str, Any]) -> ChangeCounts:
        """Execute the MERGE in one commit with the progress. Raises OverlapError if another run has committed."""

    @abstractmethod
    def _commit_progress(self, progress: dict[str, Any]) -> None:
        """Commit the progress without rows. Raises OverlapError if another run has committed."""

    @abstractmethod
    def _is_conflict(self, error: Exception) -> bool:
        """Return whether Delta or Iceberg raised `error` because of a concurrent commit."""


def _settings_for(batch: Batch, may_contain: str | None) -> Mapping[str, str]:
    """Return the settings for statements that join only rows with the keys of a batch, if `may_contain` is set."""
    return {} if may_contain is None or batch.counts.rows > _SMALL_ROWS else _SMALL_SETTINGS
