"""Parquet: every commit is a new snapshot, made current by one pointer file.

    <path>/<table>/_current/000000000017                  the pointer: progress, columns, where rows and ledger are
    <path>/<table>/snapshot-000000000017-3f9c…/rows/      one Parquet data set
    <path>/<table>/snapshot-000000000017-3f9c…/tombstones/
    <path>/<table>__quarantine/

The pointer with the highest number counts. It appears with all its content or not at all, and only where no other
has its number: so rows, ledger and progress become visible in one step, and of two runs that meet one is refused.
What has not changed is not written again; the new pointer names the folder of an older snapshot. Quarantine is
written before the pointer: "this record could not be read" is true whether or not the commit follows.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from pyspark import StorageLevel
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from outbox_spark.columns import DELETED_AT_COLUMN, KEY_COLUMN, METADATA_COLUMNS, Column
from outbox_spark.decode import defaults
from outbox_spark.errors import ConfigurationError, OverlapError, RefusedError, SchemaError
from outbox_spark.model import Committed, Mode, ParquetTarget, Written
from outbox_spark.parquet_reader import POINTERS, newest_pointer, pointer_name
from outbox_spark.sinks import parquet_replace, parquet_rows, parquet_upkeep
from outbox_spark.sinks.base import ANEW, QUARANTINE_SUFFIX, Batch, SendsNothingAhead
from outbox_spark.sinks.parquet_files import PENDING, Files
from outbox_spark.sinks.parquet_upkeep import SNAPSHOT_PREFIX

_METADATA_TYPES = "_sequence string, _partition_epoch int, _partition int, _offset bigint, _timestamp timestamp"
_LEDGER_TYPES = f"{KEY_COLUMN} string, {_METADATA_TYPES}"
_QUARANTINE_TYPES = (
    f"topic_id string, {_METADATA_TYPES}, {KEY_COLUMN} string, key binary, schema_id bigint, reason string, "
    "value binary, quarantined_at timestamp"
)
# Spark's own default is INT96, which has no order and which others read as nanoseconds.
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


@dataclass(frozen=True)
class Pointer:
    """One snapshot, as its pointer file says."""

    number: int
    rows: str
    """Folder, below that of the table."""
    tombstones: str
    """Folder, below that of the table."""
    columns: list[str]
    """Fields of the schema that was newest then."""
    schema: dict[str, Any]
    """Of the rows, as Spark writes a StructType."""
    progress: dict[str, Any]

    @property
    def types(self) -> StructType:
        """Schema of the rows."""
        return StructType.fromJson(self.schema)


class ParquetTable(SendsNothingAhead):
    """One table, at <path>/<table>. Runs are kept apart by the numbers of their pointers, not by a lock."""

    def __init__(self, spark: SparkSession, target: ParquetTarget, table: str, mode: Mode = Mode.HARD_DELETE) -> None:
        if mode is Mode.HISTORY:
            message = f"table {table}: Parquet snapshots hold no history"
            raise ConfigurationError(message, "materialize a history into PostgreSQL or Delta")
        self._spark, self._mode = spark, mode
        self._path = f"{target.path.rstrip('/')}/{table}"
        self._files = Files(spark, self._path)
        self._quarantine = Files(spark, self._path + QUARANTINE_SUFFIX)
        self._quarantine_path = self._path + QUARANTINE_SUFFIX
        self._pointer: Pointer | None = None
        self._entered: Pointer | None = None
        """The newest when this table was entered."""

    def __enter__(self) -> Self:
        self._load()
        self._entered = self._pointer
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Holds nothing."""

    def committed(self) -> Committed | None:
        """How far the table is: what the newest pointer says."""
        found = newest_pointer(self._spark, self._path)
        if found is None:
            self._check_ours()
            self._pointer = None
            return None
        committed = Committed.from_json(found["progress"], f"the progress of {self._path}")
        self._pointer = Pointer(**found)
        self._check_whole(self._pointer)
        return committed

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError when a column of the table has a type that the schema's does not hold."""
        live = {} if self._pointer is None else {field.name.lower(): field for field in self._pointer.types.fields}
        for column in columns:
            found, wanted = live.get(column.name.lower()), schema[column.name]
            if found is None or parquet_rows.widens(found, wanted):
                continue
            was, becomes = found.dataType.simpleString(), wanted.dataType.simpleString()
            if was != becomes:
                message = f"column {column.name} of {self._path} is {was}; the newest schema makes it {becomes}"
                raise SchemaError(message, f"undo the change of type, or {ANEW}")

    @staticmethod
    def limit(column: Column, value: Expression) -> Expression | None:  # noqa: ARG004 - of the protocol
        """Parquet holds every value that Avro has."""
        return None

    def write(self, batch: Batch) -> Written:
        """Quarantine first, then a new snapshot, then its pointer."""
        before = self._pointer if batch.previous is not None else None
        number = 1 if before is None else before.number + 1
        self._check_not_overtaken(number)
        if batch.counts.quarantined:
            self._keep_quarantine(batch)
        folder = f"{SNAPSHOT_PREFIX}{pointer_name(number)}-{secrets.token_hex(8)}"
        schema = parquet_rows.schema_of(batch, None if before is None else before.types, self._mode)
        new = Pointer(
            number=number,
            rows=f"{folder}/rows",
            tombstones=f"{folder}/tombstones",
            columns=[column.name for column in batch.columns],
            schema=schema.jsonValue(),
            progress=batch.committed.to_json(),
        )
        if before is None:
            written = self._write_first(batch, new)
        else:
            new, written = self._write_next(batch, before, new)
        self._publish(new)
        return written

    def versions(self) -> DataFrame:
        """Key and METADATA_COLUMNS of the rows that are there and not deleted."""
        rows = self._rows(self._known())
        if DELETED_AT_COLUMN in rows.columns:
            rows = rows.where(F.col(DELETED_AT_COLUMN).isNull())
        return rows.select(KEY_COLUMN, *METADATA_COLUMNS)

    def forget_deletions(self, before: datetime) -> int:
        """Remove older ledger entries, by a pointer that names a smaller ledger; returns how many."""
        self._load()
        old = self._known()
        ledger = self._ledger(old)
        kept = ledger.where(F.col("_timestamp") >= F.lit(before))
        gone = ledger.count() - kept.count()
        if gone:
            number = old.number + 1
            folder = f"{SNAPSHOT_PREFIX}{pointer_name(number)}-{secrets.token_hex(8)}/tombstones"
            self._save(kept, folder)
            self._publish(replace(old, number=number, tombstones=folder))
        return gone

    def replace_by(self, shadow: Self) -> None:
        """Move the shadow's files here and point to them."""
        parquet_replace.replace_by(self, shadow)

    def drop(self) -> None:
        """Remove the table and its ledger; the quarantine stays."""
        self._files.remove(POINTERS)
        self._files.remove()
        self._pointer = None

    def maintain(self) -> str:
        """Remove snapshots that are no longer read: neither the current nor the last one, and a day over."""
        return parquet_upkeep.maintain(self._files, datetime.now(UTC))

    def _write_first(self, batch: Batch, new: Pointer) -> Written:
        """Nothing is there to compare with: the batch is the snapshot."""
        good = batch.rows.where(F.col("_reason").isNull())
        rows = parquet_rows.projected(good, new.types)
        self._save(self._with_stale(rows, batch, new), new.rows)
        # `_deleted` first: it needs no decoding, and leaves few rows for the rest.
        dead = batch.rows.where("_deleted").where(F.col("_reason").isNull())
        self._save(dead.select(KEY_COLUMN, *METADATA_COLUMNS), new.tombstones)
        # Counted from what was written: that reads the ends of the files only.
        return Written(
            upserts=self._rows(new).count(), tombstones=self._ledger(new).count(), quarantined=batch.counts.quarantined
        )

    def _write_next(self, batch: Batch, old: Pointer, new: Pointer) -> tuple[Pointer, Written]:
        """Returns the new pointer: it keeps the folders of what has not changed."""
        rows, ledger = self._rows(old), self._ledger(old)
        good = batch.rows.where(F.col("_reason").isNull())
        changes = parquet_rows.changes_of(good, rows, ledger).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            written = _counted(changes, batch)
            if written.upserts or written.deletes or batch.counts.quarantined or new.schema != old.schema:
                current = parquet_rows.conform(rows, new.types, self._fills(batch, old))
                all_rows = parquet_rows.next_rows(current, changes, new.types)
                self._save(self._with_stale(all_rows, batch, new), new.rows)
            else:
                new = replace(new, rows=old.rows)
            if written.tombstones:
                self._save(parquet_rows.next_ledger(ledger, changes), new.tombstones)
            else:
                new = replace(new, tombstones=old.tombstones)
        finally:
            changes.unpersist()
        return new, written

    def _fills(self, batch: Batch, old: Pointer) -> DataFrame | None:
        """One row with the defaults of fields that are new; None when there are none."""
        fresh = [column for column in batch.columns if column.name not in old.columns and column.has_default]
        return defaults(self._spark, fresh, batch.reader) if fresh else None

    def _with_stale(self, rows: DataFrame, batch: Batch, new: Pointer) -> DataFrame:
        poison = None
        if self._quarantine.exists():
            kept = self._quarantined().where(F.col("topic_id") == batch.committed.topic_id)
            kept = kept.where(F.col(KEY_COLUMN).isNotNull())
            poison = kept.groupBy(KEY_COLUMN).agg(F.max(parquet_rows.version()).alias("_poison"))
        return parquet_rows.with_stale(rows, poison, new.types)

    def _keep_quarantine(self, batch: Batch) -> None:
        rows = batch.rows.where(F.col("_reason").isNotNull()).select(
            F.lit(batch.committed.topic_id).alias("topic_id"),
            *METADATA_COLUMNS,
            KEY_COLUMN,
            F.col("_key").alias("key"),
            F.col("_schema_id").alias("schema_id"),
            F.col("_reason").alias("reason"),
            F.col("_value").alias("value"),
            F.current_timestamp().alias("quarantined_at"),
        )
        self._add_quarantined(rows)

    def _add_quarantined(self, rows: DataFrame) -> None:
        """Append those that are not there yet."""
        if self._quarantine.exists():
            place = ["topic_id", "_partition", "_offset"]
            rows = rows.join(self._quarantined().select(*place), place, "left_anti")
        with self._exact_timestamps():
            rows.write.mode("append").parquet(self._quarantine_path)

    def _quarantined(self) -> DataFrame:
        return self._spark.read.schema(_QUARANTINE_TYPES).parquet(self._quarantine_path)

    def _rows(self, pointer: Pointer) -> DataFrame:
        return self._spark.read.schema(pointer.types).parquet(f"{self._path}/{pointer.rows}")

    def _ledger(self, pointer: Pointer) -> DataFrame:
        return self._spark.read.schema(_LEDGER_TYPES).parquet(f"{self._path}/{pointer.tombstones}")

    def _save(self, frame: DataFrame, folder: str) -> None:
        with self._exact_timestamps():
            frame.write.parquet(f"{self._path}/{folder}")

    def _publish(self, pointer: Pointer) -> None:
        """The commit."""
        if not self._files.create_once(f"{POINTERS}/{pointer_name(pointer.number)}", asdict(pointer)):
            raise self._overtaken()
        # A number can be free because the table went on past it, and cleaned up behind itself.
        self._check_not_overtaken(pointer.number + 1)
        self._pointer = pointer

    def _check_not_overtaken(self, number: int) -> None:
        """Raise OverlapError when there is a pointer with this number, or a higher one."""
        newest = newest_pointer(self._spark, self._path)
        if newest is not None and newest["number"] >= number:
            raise self._overtaken()

    def _overtaken(self) -> OverlapError:
        message = f"another run has committed to {self._path} meanwhile"
        return OverlapError(message, "run again; schedule one run per table at a time")

    def _check_whole(self, pointer: Pointer) -> None:
        """Raise RefusedError when a folder that the pointer names is gone."""
        for folder in (pointer.rows, pointer.tombstones):
            if not self._files.exists(folder):
                message = f"the pointer of {self._path} names {folder}, which is gone"
                raise RefusedError(message, ANEW)

    def _check_ours(self) -> None:
        """Raise RefusedError when the folder holds what no run, not even one that crashed, can have left."""
        others = [
            entry.name
            for entry in self._files.entries()
            if not entry.name.startswith(SNAPSHOT_PREFIX) and entry.name not in (POINTERS, PENDING)
        ]
        if others:
            message = f"{self._path} holds {others[0]} and no snapshot: the job did not make it"
            raise RefusedError(message, "materialize into another table, or remove the folder")

    def _load(self) -> None:
        found = newest_pointer(self._spark, self._path)
        self._pointer = None if found is None else Pointer(**found)

    def _known(self) -> Pointer:
        if self._pointer is None:
            self._load()
        if self._pointer is None:
            message = f"{self._path} holds no snapshot"
            raise RefusedError(message, "run the materialization first")
        return self._pointer

    @contextmanager
    def _exact_timestamps(self) -> Iterator[None]:
        before = str(self._spark.conf.get(_TIMESTAMPS))
        self._spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
        try:
            yield
        finally:
            self._spark.conf.set(_TIMESTAMPS, before)


def _counted(changes: DataFrame, batch: Batch) -> Written:
    counts = changes.agg(
        F.count_if(~F.col("_deleted")).alias("upserts"),
        F.count_if(F.col("_deleted") & F.col(parquet_rows.HAD_ROW)).alias("deletes"),
        F.count_if(F.col("_deleted") & ~F.col(parquet_rows.BURIED)).alias("tombstones"),
    ).collect()[0]
    return Written(counts["upserts"], counts["deletes"], counts["tombstones"], batch.counts.quarantined)
