"""Compaction and snapshot expiry of an Iceberg table."""

from __future__ import annotations

import time
from typing import Any

from outbox_spark.sinks.iceberg.snapshots import latest_with_progress
from outbox_spark.sinks.iceberg.storage import IcebergStorage

_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
_AGE_DAYS = 5  # Iceberg's default
_DAY_MILLIS = 86_400_000


def compact(storage: IcebergStorage, suffix: str) -> str:
    """Rewrite small files and deleted rows, and expire snapshots; return the numbers of files and snapshots.

    Snapshots are retained for the table's `history.expire.max-snapshot-age-ms`, by default 5 days. The
    latest snapshot with progress is never expired.
    """
    row = storage.spark.sql(
        f"CALL `{storage.catalog}`.system.rewrite_data_files("
        f"table => '{storage.name_in_catalog(suffix)}', options => map('min-input-files', '2'))"
    ).collect()[0]
    expired = _expire_snapshots(storage.load(suffix), retain_progress=not suffix)
    rewritten, added = row["rewritten_data_files_count"], row["added_data_files_count"]
    return f"{rewritten} files into {added}, expired {expired} snapshots"


def _expire_snapshots(table: Any, *, retain_progress: bool) -> int:  # noqa: ANN401 - org.apache.iceberg.Table
    age = int(table.properties().get(_AGE_PROPERTY) or _AGE_DAYS * _DAY_MILLIS)
    expire_before = int(time.time() * 1000) - age
    if retain_progress and (latest := latest_with_progress(table)) is not None:
        expire_before = min(expire_before, latest.timestampMillis())
    before = sum(1 for _ in table.snapshots())
    table.expireSnapshots().expireOlderThan(expire_before).retainLast(1).commit()
    table.refresh()
    return before - sum(1 for _ in table.snapshots())
