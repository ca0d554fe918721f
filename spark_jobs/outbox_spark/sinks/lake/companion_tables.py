"""The tables beside a lake table: the ledger of deleted keys, and the quarantine of records that cannot be read.

Both are written before the table's commit, because what they say ("this key was deleted at that version", "this record
could not be read") is true whether or not the commit follows. A crash between leaves the table and its offsets as they
were, and the next run finds the entries there. Batches only add entries.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.decoding.quarantine_reasons import UNNAMED
from outbox_spark.jobs.model import Mode
from outbox_spark.kafka.ordering import VERSION_COLUMNS, version_sql
from outbox_spark.sinks.lake import history
from outbox_spark.sinks.lake.merge_sql import POISON, literal, quoted
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX, Batch

LEDGER_ID = "ledger_id"


class BesideTables(ABC):
    """A lake table's ledger and quarantine. What differs between the formats is abstract."""

    def __init__(self, spark: SparkSession, mode: Mode) -> None:
        self._spark = spark
        self._mode = mode
        # Names the ledger entries of this table, from its first commit to its removal. A first run makes up a
        # new one: what a slow first run enters means nothing to the table of the one that won.
        self._ledger_id = secrets.token_hex(8)

    def _keep_quarantine(self, batch: Batch) -> None:
        rows = batch.rows.where(F.col("_reason").isNotNull()).select(
            F.lit(batch.committed.topic_id).alias("topic_id"),
            *METADATA_COLUMNS,
            F.col("_key").alias("key"),
            F.col("_schema_id").alias("schema_id"),
            F.col("_reason").alias("reason"),
            F.col("_value").alias("value"),
            F.current_timestamp().alias("quarantined_at"),
            KEY_COLUMN,
        )
        self._add_quarantined(rows)

    def _add_quarantined(self, rows: DataFrame) -> None:
        """Append those that are not there yet."""
        if self._there(QUARANTINE_SUFFIX):
            self._add_columns(QUARANTINE_SUFFIX, {KEY_COLUMN: "string"}, {})
            place = ["topic_id", "_partition", "_offset"]
            rows = rows.join(self._read(QUARANTINE_SUFFIX).select(*place), place, "left_anti").select(*rows.columns)
        self._append(QUARANTINE_SUFFIX, rows)

    def _poison(self, batch: Batch) -> DataFrame | None:
        """By key the newest version in quarantine, entries of this batch among them; None when there is none."""
        if not self._there(QUARANTINE_SUFFIX):
            return None
        entries = self._read(QUARANTINE_SUFFIX).where(F.col("topic_id") == batch.committed.topic_id)
        # An unreadable key is no row's, though its bytes may be the text of another's.
        entries = entries.where(F.col("key").isNotNull() & ~F.col("reason").isin(*UNNAMED))
        key = F.col("key").cast("string")
        if KEY_COLUMN in entries.columns:  # entries of before layout 2 have none
            key = F.coalesce(KEY_COLUMN, key)
        newest = F.max(F.struct(*VERSION_COLUMNS)).alias(POISON)
        return entries.groupBy(key.alias(KEY_COLUMN)).agg(newest)

    def _enter_tombstones(self, batch: Batch) -> int:
        """Append those that the ledger does not know yet; returns how many. An entry is never changed."""
        if not batch.counts.tombstones:  # as in most batches of most topics
            return 0
        dead = batch.rows.where(F.col("_reason").isNull() & F.col("_deleted")).select(KEY_COLUMN, *METADATA_COLUMNS)
        if self._there(TOMBSTONES_SUFFIX):
            self._add_columns(TOMBSTONES_SUFFIX, {LEDGER_ID: "string"}, {})
            entries = self._entries()
            if self._mode is Mode.HISTORY:
                dead = history.without(dead, entries)
            else:
                known = F.expr(f"s.{KEY_COLUMN} = t.{KEY_COLUMN} AND {version_sql('t')} >= {version_sql('s')}")
                dead = dead.alias("s").join(entries.alias("t"), known, "left_anti")
        return self._append(TOMBSTONES_SUFFIX, dead.withColumn(LEDGER_ID, F.lit(self._ledger_id)))

    def _entries(self) -> DataFrame:
        """What the ledger holds of this table. Entries of before there was an id have none."""
        rows = self._read(TOMBSTONES_SUFFIX)
        if LEDGER_ID not in rows.columns:
            return rows.where(F.lit(not self._ledger_id))
        return rows.where(F.coalesce(LEDGER_ID, F.lit("")) == self._ledger_id)

    def _newer_than_ledger(self, rows: DataFrame) -> DataFrame:
        """Rows without those that a tombstone in the ledger is newer than; tombstones themselves stay."""
        if not self._there(TOMBSTONES_SUFFIX):
            return rows
        stale = F.expr(
            f"s.{KEY_COLUMN} = t.{KEY_COLUMN} AND NOT s._deleted AND {version_sql('t')} >= {version_sql('s')}"
        )
        return rows.alias("s").join(self._entries().alias("t"), stale, how="left_anti")

    def forget_deletions(self, before: datetime) -> int:
        """Remove older ledger entries; returns how many. In history mode none: intervals are computed from them."""
        if self._mode is Mode.HISTORY or not self._there(TOMBSTONES_SUFFIX):
            return 0
        old = f"_timestamp < timestamp'{before.astimezone(UTC).isoformat()}'"
        # Answered from the files' statistics when nothing is due; a DELETE costs a commit's time even then.
        count = self._read(TOMBSTONES_SUFFIX).where(old).count()
        if count:
            self._sql(f"DELETE FROM {self._name(TOMBSTONES_SUFFIX)} WHERE {old}")  # noqa: S608 - a name of ours
        return count

    def _add_columns(self, suffix: str, wanted: Mapping[str, str], comments: Mapping[str, str]) -> None:
        """Columns that a table lacks, and comments that have changed."""
        live = {field.name.lower(): field for field in self._read(suffix).schema.fields}
        missing = [name for name in wanted if name.lower() not in live]
        if missing:
            added = ", ".join(
                f"{quoted(name)} {wanted[name]}" + (f" COMMENT {literal(comments[name])}" if name in comments else "")
                for name in missing
            )
            self._sql(f"ALTER TABLE {self._name(suffix)} ADD COLUMNS ({added})")
        for name, comment in comments.items():
            if name not in missing and live[name.lower()].metadata.get("comment") != comment:
                self._sql(f"ALTER TABLE {self._name(suffix)} ALTER COLUMN {quoted(name)} COMMENT {literal(comment)}")

    def _sql(self, statement: str) -> None:
        self._spark.sql(statement).collect()

    @abstractmethod
    def _name(self, suffix: str = "") -> str:
        """The table, or the one beside it, as SQL takes it."""

    @abstractmethod
    def _there(self, suffix: str = "") -> bool:
        """Whether it exists."""

    @abstractmethod
    def _read(self, suffix: str = "") -> DataFrame:
        """Its rows now."""

    @abstractmethod
    def _append(self, suffix: str, rows: DataFrame) -> int:
        """Add rows to a table beside, made when there is none; returns how many they were."""
