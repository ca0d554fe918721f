"""Compaction and snapshot expiry of an Iceberg table."""

from __future__ import annotations

import time
from typing import Any

from outbox_spark.sinks.iceberg.snapshots import latest_with_progress
from outbox_spark.sinks.iceberg.storage import IcebergStorage

_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
_DEFAULT_AGE_DAYS = 5  # the default of the property in Iceberg
_DAY_MILLIS = 86_400_000


def compact(storage: IcebergStorage, suffix: str) -> str:
    """Rewrite small files and files with deleted rows, and expire snapshots; return a text with the numbers.

    Snapshots are retained for `history.expire.max-snapshot-age-ms` of the table (default: 5 days). The latest
    snapshot with progress is always retained.
    """
    metrics = storage.spark.sql(
        f"CALL `{storage.catalog}`.system.rewrite_data_files("
        f"table => '{storage.name_in_catalog(suffix)}', options => map('min-input-files', '2'))"
    ).collect()[0]
    expired_count = _expire_snapshots(storage.load(suffix), retain_progress=not suffix)
    rewritten, added = metrics["rewritten_data_files_count"], metrics["added_data_files_count"]
    return f"{rewritten} files into {added}, expired {expired_count} snapshots"


def _expire_snapshots(table: Any, *, retain_progress: bool) -> int:  # noqa: ANN401 - org.apache.iceberg.Table
    max_age_millis = int(table.properties().get(_AGE_PROPERTY) or _DEFAULT_AGE_DAYS * _DAY_MILLIS)
    expire_before_millis = int(time.time() * 1000) - max_age_millis
    if retain_progress and (latest := latest_with_progress(table)) is not None:
        expire_before_millis = min(expire_before_millis, latest.timestampMillis())
    count_before = sum(1 for _ in table.snapshots())
    table.expireSnapshots().expireOlderThan(expire_before_millis).retainLast(1).commit()
    table.refresh()
    return count_before - sum(1 for _ in table.snapshots())
