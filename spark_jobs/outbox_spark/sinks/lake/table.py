"""What the lake formats share: one guarded MERGE per batch, whose commit also says how far the table now is.

Ledger and quarantine, see beside.py, are written before that commit. What differs between the formats, how a table is
named and made and how a commit carries the progress, is in the subclasses.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from types import TracebackType
from typing import Any, Self

from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
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
from outbox_spark.jobs.model import Committed, Mode, Written
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.lake import history
from outbox_spark.sinks.lake.companion_tables import LEDGER_ID, BesideTables
from outbox_spark.sinks.lake.lease import Lease
from outbox_spark.sinks.lake.merge_sql import (
    GOOD,
    OWN_TYPES,
    POISON,
    Merge,
    default_sql,
    own_columns,
    quoted,
    table_columns,
)
from outbox_spark.sinks.target_table import ANEW, TOMBSTONES_SUFFIX, Batch, SendsNothingAhead

PROGRESS_KEY = "outbox"
"""The entry of a commit's own metadata that the progress is in."""
_FLAGGED_SINCE_LAYOUT = 2


@dataclass(frozen=True)
class Changes:
    """What a commit says of itself, in rows. `updated` counts rows that were only filled or flagged, too."""

    inserted: int
    updated: int
    deleted: int


class LakeTable(SendsNothingAhead, BesideTables):
    """One table, its ledger and its quarantine; held from `with` to its end by a lease, where there is one."""

    _renamed: Mapping[str, str] = {}
    """Columns of ours that have another name in the stored table. `_read` and `_append` see to it."""

    def __init__(self, spark: SparkSession, label: str, mode: Mode, lease: Lease | None) -> None:
        super().__init__(spark, mode)
        self._label = label
        self._lease = lease
        self._stored: dict[str, Any] | None = None
        """The progress that was read or written last, with what is stored beside it."""

    def __enter__(self) -> Self:
        if self._lease is not None:
            self._lease.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            self._lease.release()

    def committed(self) -> Committed | None:
        """How far the table is: the newest progress among its commits. Others (compaction, ...) commit too."""
        if not self._there():
            return None
        stored = self._find_progress()
        if stored is None:
            message = f"the history of {self._label} holds no progress: the job did not make it, or it was cleaned"
            raise RefusedError(message, "materialize into another table, or remove it so that the next run rebuilds it")
        self._stored, self._ledger_id = stored, stored.get(LEDGER_ID, "")
        return Committed.from_json(stored, f"the progress of {self._label}")

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError when a column of the table has another type than the schema now asks for."""
        mode = Mode.HARD_DELETE if self._stored is None else Mode(self._stored.get("mode", Mode.HARD_DELETE))
        if self._stored is not None and mode is not self._mode:
            message = f"{self._label} was made with mode {mode}; the pipeline file now says {self._mode}"
            raise SchemaError(message, f"undo that, or {ANEW}")
        live = self._live_types()
        for column in columns:
            found, wanted = live.get(column.name.lower()), schema[column.name].dataType.simpleString()
            if found is not None and found != wanted:
                message = f"column {column.name} of {self._label} is {found}; the newest schema makes it {wanted}"
                raise SchemaError(message, f"undo the change of type, or {ANEW}")

    @staticmethod
    def limit(column: Column, value: Expression) -> Expression | None:  # noqa: ARG004 - of the protocol
        """The lake formats hold every value that Avro has."""
        return None

    def versions(self) -> DataFrame:
        """Key and METADATA_COLUMNS of the current rows."""
        rows = self._read()
        for name in (DELETED_AT_COLUMN, VALID_TO_COLUMN):
            if name in rows.columns:
                rows = rows.where(F.col(name).isNull())
        return rows.select(KEY_COLUMN, *METADATA_COLUMNS)

    def write(self, batch: Batch) -> Written:
        """Ledger and quarantine first, then rows and progress in one commit."""
        if self._lease is not None:
            self._lease.check()
        progress = self._progress(batch)
        with self._explained():
            if batch.counts.quarantined:
                self._keep_quarantine(batch)
            tombstones = self._enter_tombstones(batch)
            upserts, deletes = (
                self._write_history(batch, progress)
                if self._mode is Mode.HISTORY
                else self._create(batch, progress)
                if batch.previous is None
                else self._merge(batch, progress)
            )
        self._stored = progress
        return Written(upserts, deletes, tombstones, batch.counts.quarantined)

    def _create(self, batch: Batch, progress: dict[str, Any]) -> tuple[int, int]:
        """The first commit makes the table and fills it: nothing is there that a MERGE could compare with."""
        rows = self._source(batch, flag_others=False).where(~F.col("_deleted"))
        return self._commit_first(self._first_rows(rows, batch), progress).inserted, 0

    def _merge(self, batch: Batch, progress: dict[str, Any]) -> tuple[int, int]:
        filled = self._evolve(batch)
        if not batch.counts.rows and not filled:
            self._commit_nothing(progress)
            return 0, 0
        rows = self._source(batch, flag_others=bool(batch.counts.quarantined) or STALE_COLUMN in filled)
        merge = self._merge_for(batch, filled, has_poison=POISON in rows.columns)
        with self._view(rows) as source:
            changes = self._commit_merge(merge, source, progress)
        if self._mode is Mode.HARD_DELETE and not merge.filled and not merge.has_poison:
            return changes.inserted + changes.updated, changes.deleted
        upserts, deleted = self._count_changed(batch)
        return upserts, deleted + changes.deleted

    def _write_history(self, batch: Batch, progress: dict[str, Any]) -> tuple[int, int]:
        first = batch.previous is None
        filled = {} if first else self._evolve(batch)
        good = batch.rows.where(F.col("_reason").isNull())
        new = good.where(~F.col("_deleted")).select(*table_columns(batch.columns, Mode.HARD_DELETE)[:-1])
        stored = None if first else self._read()
        if stored is not None:
            new = history.without(new, stored)
        touched = batch.rows.select(KEY_COLUMN).where(F.col(KEY_COLUMN).isNotNull()).distinct()
        poison = self._poison(batch)
        touched = (
            touched.withColumn(POISON, _no_version()) if poison is None else touched.join(poison, KEY_COLUMN, "left")
        )
        deletions = self._entries() if self._there(TOMBSTONES_SUFFIX) else None
        rows = history.timeline(new, stored, deletions, touched).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            ended = rows.where(history.ENDED).count()
            changed = rows.drop(history.NEW, history.ENDED)
            if first:
                return self._commit_first(self._first_rows(changed, batch), progress).inserted, ended
            with self._view(changed) as source:
                merge = self._merge_for(batch, filled, has_poison=False)
                return self._commit_merge(merge, source, progress).inserted, ended
        finally:
            rows.unpersist()

    def _source(self, batch: Batch, *, flag_others: bool) -> DataFrame:
        """The rows of a MERGE, see merging.py. `flag_others`: also keys of which there are only unreadable records."""
        good = batch.rows.where(F.col("_reason").isNull())
        if batch.previous is not None:
            # The ledger of a new table holds this batch's own tombstones only: of other keys than its rows.
            good = self._newer_than_ledger(good)
        good = good.select(*table_columns(batch.columns, Mode.HARD_DELETE)[:-1], "_deleted").withColumn(
            GOOD, F.lit(True)
        )
        poison = self._poison(batch)
        if poison is None:
            return good.withColumn(STALE_COLUMN, F.lit(False))
        both = good.join(poison, KEY_COLUMN, "full_outer" if flag_others else "left")
        newer = F.col(POISON) > F.struct(*VERSION_COLUMNS)
        flags = {GOOD: F.coalesce(GOOD, F.lit(False)), "_deleted": F.coalesce("_deleted", F.lit(False))}
        return both.withColumns({STALE_COLUMN: F.coalesce(newer, F.lit(False)), **flags}).where(
            F.lit(True) if flag_others else F.col(GOOD)
        )

    def _merge_for(self, batch: Batch, filled: Mapping[str, str], *, has_poison: bool) -> Merge:
        names = table_columns(batch.columns, self._mode)
        gone = sorted(set(self._live_types()) - {name.lower() for name in names})
        stored = [self._renamed.get(name, name) for name in names]
        return Merge(self._mode, stored, gone, filled, has_poison)

    def _first_rows(self, rows: DataFrame, batch: Batch) -> DataFrame:
        """The columns of the table, with the documentation of the fields as comments."""
        comments = {column.name: {"comment": column.doc} for column in batch.columns if column.doc}
        missing = {
            name: F.lit(None).cast(kind)
            for name, kind in OWN_TYPES.items()
            if name in own_columns(self._mode) and name not in rows.columns
        }
        names = table_columns(batch.columns, self._mode)
        return rows.withColumns(missing).select(
            *[F.col(quoted(name)).alias(name, metadata=comments.get(name, {})) for name in names]
        )

    def _evolve(self, batch: Batch) -> dict[str, str]:
        """Add the columns that the table lacks; returns those to be filled, with their default as SQL.

        Which columns are new is judged by the last commit of ours, not by the table: a run that crashed
        after adding them leaves the filling to the next.
        """
        types, stored = batch.rows.schema, self._stored or {}
        wanted = {column.name: types[column.name].dataType.simpleString() for column in batch.columns}
        wanted |= {name: OWN_TYPES[name] for name in own_columns(self._mode)}
        comments = {column.name: column.doc for column in batch.columns if column.doc}
        self._add_columns("", wanted, comments)
        fresh = [c for c in batch.columns if c.name not in stored.get("columns", []) and c.has_default]
        filled = {STALE_COLUMN: "false"} if int(stored.get("layout", 0)) < _FLAGGED_SINCE_LAYOUT else {}
        if not fresh:
            return filled
        row = defaults(self._spark, fresh, batch.reader).select(F.to_json(F.struct("*"), JSON_OPTIONS)).collect()[0]
        return {**filled, **{column.name: default_sql(row[0], column.name, types) for column in fresh}}

    def _count_changed(self, batch: Batch) -> tuple[int, int]:
        """Rows that this batch wrote, those with and without a `_deleted_at`: the ones whose record it read."""
        before = {} if batch.previous is None else batch.previous.offsets
        ranges = [
            (F.col("_partition") == partition)
            & (F.col("_offset") >= before.get(partition, 0))
            & (F.col("_offset") < end)
            for partition, end in batch.committed.offsets.items()
        ]
        gone = F.col(DELETED_AT_COLUMN).isNotNull() if self._mode is Mode.SOFT_DELETE else F.lit(False)
        rows = self._read().where(reduce(lambda a, b: a | b, ranges, F.lit(False)))
        row = rows.agg(F.count_if(~gone).alias("there"), F.count_if(gone).alias("gone")).collect()[0]
        return row["there"], row["gone"]

    def _progress(self, batch: Batch) -> dict[str, Any]:
        """What the commit of a batch carries."""
        return {
            **batch.committed.to_json(),
            "columns": [column.name for column in batch.columns],
            "mode": self._mode,
            LEDGER_ID: self._ledger_id,
            "token": secrets.token_hex(8),
        }

    def _live_types(self) -> dict[str, str]:
        """Columns of the table as it is: lower-case name to type; empty when there is no table."""
        if not self._there():
            return {}
        return {field.name.lower(): field.dataType.simpleString() for field in self._read().schema.fields}

    def _conflict(self) -> OverlapError:
        return OverlapError(
            f"another run has committed to {self._label} meanwhile", "run again; schedule one run per table at a time"
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except RefusedError:
            raise
        except Exception as error:
            if self._is_conflict(error):
                raise self._conflict() from error
            raise

    @contextmanager
    def _view(self, rows: DataFrame) -> Iterator[str]:
        name = f"outbox_source_{secrets.token_hex(4)}"
        rows.withColumnsRenamed(dict(self._renamed)).createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self._spark.catalog.dropTempView(name)

    @abstractmethod
    def _find_progress(self) -> dict[str, Any] | None:
        """The newest that a commit of the table carries. Raises RefusedError when the table is older than that."""

    @abstractmethod
    def _commit_first(self, rows: DataFrame, progress: dict[str, Any]) -> Changes:
        """Make the table of these rows. Raises OverlapError when it is there."""

    @abstractmethod
    def _commit_merge(self, merge: Merge, source: str, progress: dict[str, Any]) -> Changes:
        """Run the MERGE as one commit with the progress. Raises OverlapError when the table is not as it was read."""

    @abstractmethod
    def _commit_nothing(self, progress: dict[str, Any]) -> None:
        """Commit the progress alone. Raises OverlapError as `_commit_merge`."""

    @abstractmethod
    def _is_conflict(self, error: Exception) -> bool:
        """Whether this is how the format tells that somebody else has committed."""


def _no_version() -> Expression:
    return F.lit(None).cast("struct<_sequence: string, _partition_epoch: int, _offset: bigint>")
