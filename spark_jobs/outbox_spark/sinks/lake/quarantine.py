"""Store records that could not be decoded in the quarantine of a lake table.

Like the ledger, the quarantine is written before the table's commit. It remains when the table is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from outbox_spark.decoding.columns import KEY_COLUMN, METADATA_COLUMNS
from outbox_spark.decoding.quarantine_reasons import REASONS_WITHOUT_ROW
from outbox_spark.kafka.ordering import VERSION_COLUMNS
from outbox_spark.sinks.lake.companion_content import Content, current_content
from outbox_spark.sinks.lake.merge_sql import QUARANTINED, literal
from outbox_spark.sinks.lake.storage import LakeStorage, temporary_view
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, Batch, RetryResult

QUARANTINE_CONTENT = "quarantine_content"
"""Key, in the table's progress, of Quarantine.content."""
_RECORD_ID = ["topic_id", "_partition", "_offset"]


class Quarantine:
    """Quarantined records of one table, without duplicates."""

    def __init__(self, storage: LakeStorage) -> None:
        self._storage = storage
        self.content: Content | None = None
        """The content at the last commit of the table; None if unknown."""

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Set the content from the table's progress. Earlier versions did not store it."""
        content = progress.get(QUARANTINE_CONTENT)
        self.content = None if content is None else Content(**content)

    def progress_fields(self) -> dict[str, Any]:
        """Return the members of the table's progress for `restore`."""
        return {QUARANTINE_CONTENT: None if self.content is None else asdict(self.content)}

    def current_content(self) -> Content:
        return current_content(self._storage, QUARANTINE_SUFFIX, self.content, self._entries)

    def add(self, batch: Batch) -> int:
        """Add the quarantined rows of the batch. Return the number of rows that the quarantine did not contain yet."""
        if not batch.counts.quarantined:
            return 0
        rows = batch.rows.where(F.col("__outbox_reason").isNotNull()).select(
            F.lit(batch.committed.topic_id).alias("topic_id"),
            *METADATA_COLUMNS,
            F.col("__outbox_key").alias("key"),
            F.col("__outbox_schema_id").alias("schema_id"),
            F.col("__outbox_reason").alias("reason"),
            F.col("__outbox_value").alias("value"),
            F.current_timestamp().alias("quarantined_at"),
            KEY_COLUMN,
            F.col("__outbox_schema_header").alias("schema_header"),
        )
        added, self.content = self._append_missing(rows), None
        return added

    def copy_from(self, source: Quarantine) -> None:
        """Add those records of another table's quarantine that this quarantine lacks."""
        if source._exists():
            self._append_missing(source._storage.read(QUARANTINE_SUFFIX))

    def records(self, topic_id: str, reason: str) -> DataFrame:
        """Return the records of the topic that have this reason."""
        rows = self._entries()
        return rows.where((F.col("topic_id") == topic_id) & (F.col("reason") == reason))

    def update(self, topic_id: str, results: Sequence[RetryResult]) -> None:
        """Remove the records that can now be read, and update the reasons why the other records cannot be read."""
        partition = self._storage.stored_names.get("_partition", "_partition")
        names = (partition, "_offset", "reason")
        as_json = json.dumps([dict(zip(names, result, strict=True)) for result in results])
        # createDataFrame() would require Python on the executors.
        array = F.from_json(F.lit(as_json), f"array<struct<{partition} int, _offset bigint, reason string>>")
        rows = self._storage.spark.range(1).select(F.inline(array))
        same_record = f"t.{partition} = s.{partition} AND t._offset = s._offset AND t.topic_id = {literal(topic_id)}"
        with temporary_view(rows) as source:
            self._storage.execute(
                f"MERGE INTO {self._storage.sql_name(QUARANTINE_SUFFIX)} t USING {source} s ON {same_record} "
                "WHEN MATCHED AND s.reason IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET reason = s.reason"
            )

    def newest_versions(self, topic_id: str) -> DataFrame | None:
        """Return KEY_COLUMN and QUARANTINED, each key's newest quarantined version, or None if no quarantine exists."""
        if not self._exists():
            return None
        entries = self._entries().where(F.col("topic_id") == topic_id)
        # Some records do not belong to a row, even if the bytes of their key are the text of another key.
        entries = entries.where(F.col("key").isNotNull() & ~F.col("reason").isin(*REASONS_WITHOUT_ROW))
        key = F.coalesce(KEY_COLUMN, F.col("key").cast("string"))
        return entries.groupBy(key.alias(KEY_COLUMN)).agg(F.max(F.struct(*VERSION_COLUMNS)).alias(QUARANTINED))

    def _append_missing(self, rows: DataFrame) -> int:
        """Append those rows that the quarantine does not contain. Return their number."""
        if self._exists():
            stored_ids = self._entries().select(*_RECORD_ID)
            rows = rows.join(stored_ids, _RECORD_ID, "left_anti").select(*rows.columns)
        return self._storage.append(QUARANTINE_SUFFIX, rows)

    def _entries(self) -> DataFrame:
        return self._storage.read(QUARANTINE_SUFFIX)

    def _exists(self) -> bool:
        return self._storage.exists(QUARANTINE_SUFFIX)
