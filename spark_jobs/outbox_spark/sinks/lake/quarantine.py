"""The quarantine of a lake table: the records that could not be decoded.

Like the ledger, it is written before the table's commit. Records are only added, and remain when the table is dropped.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.decoding.quarantine_reasons import REASONS_WITHOUT_ROW
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.lake.merge_sql import QUARANTINED
from outbox_spark.sinks.lake.storage import LakeStorage
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, Batch

_RECORD_ID = ["topic_id", "_partition", "_offset"]


class Quarantine:
    """Quarantined records of one table, without duplicates."""

    def __init__(self, storage: LakeStorage) -> None:
        self._storage = storage

    def add(self, batch: Batch) -> None:
        if not batch.counts.quarantined:
            return
        rows = batch.rows.where(F.col("__outbox_reason").isNotNull()).select(
            F.lit(batch.committed.topic_id).alias("topic_id"),
            *METADATA_COLUMNS,
            F.col("__outbox_key").alias("key"),
            F.col("__outbox_schema_id").alias("schema_id"),
            F.col("__outbox_reason").alias("reason"),
            F.col("__outbox_value").alias("value"),
            F.current_timestamp().alias("quarantined_at"),
            KEY_COLUMN,
        )
        self._append_missing(rows)

    def copy_from(self, source: Quarantine) -> None:
        """Add the records of another table's quarantine that this quarantine lacks."""
        if source._exists():
            self._append_missing(source._storage.read(QUARANTINE_SUFFIX))

    def newest_versions(self, topic_id: str) -> DataFrame | None:
        """Return (KEY_COLUMN, QUARANTINED): the newest quarantined version of each key; None without a quarantine."""
        if not self._exists():
            return None
        entries = self._storage.read(QUARANTINE_SUFFIX).where(F.col("topic_id") == topic_id)
        # Some records belong to no row, even if the bytes of their key are the text of another key.
        entries = entries.where(F.col("key").isNotNull() & ~F.col("reason").isin(*REASONS_WITHOUT_ROW))
        key = F.coalesce(KEY_COLUMN, F.col("key").cast("string"))
        return entries.groupBy(key.alias(KEY_COLUMN)).agg(F.max(F.struct(*VERSION_COLUMNS)).alias(QUARANTINED))

    def _append_missing(self, rows: DataFrame) -> None:
        if self._exists():
            stored_ids = self._storage.read(QUARANTINE_SUFFIX).select(*_RECORD_ID)
            rows = rows.join(stored_ids, _RECORD_ID, "left_anti").select(*rows.columns)
        self._storage.append(QUARANTINE_SUFFIX, rows)

    def _exists(self) -> bool:
        return self._storage.exists(QUARANTINE_SUFFIX)
