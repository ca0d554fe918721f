"""What is done to an Iceberg table beside writing batches, in its own way: rebuild, removal, maintenance."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from outbox_spark.errors import RefusedError
from outbox_spark.sinks.iceberg.progress import newest_of_ours, stored_in
from outbox_spark.sinks.lake.replace import take_beside
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

if TYPE_CHECKING:
    from outbox_spark.sinks.iceberg.table import IcebergTable

_AGE_PROPERTY = "history.expire.max-snapshot-age-ms"
_AGE_DAYS = 5  # Iceberg's own default
_DAY_MILLIS = 86_400_000


def replace_by(table: IcebergTable, shadow: IcebergTable) -> None:
    """Make the content of `shadow` this table's: one commit, after which the shadow is gone.

    Raises RefusedError for a table that the job did not make: it would be emptied. Raises OverlapError when, where no
    lease prevents it, a run has committed to the table since it was entered: the shadow may know less. (Iceberg does
    not look again when it replaces: of a run that ends while the rows are written, the next run repeats the work.)
    """
    if table._there() and newest_of_ours(table._loaded()) is None:
        message = f"the history of {table._label} holds no progress: the job did not make it, or it was cleaned"
        raise RefusedError(message, "materialize into another table, or drop it; the shadow is kept")
    if table._lease is None and newest_token(table) != table._entered:
        raise table._conflict()
    progress = take_beside(table, shadow)
    with table._carrying(progress), table._explained():
        table._replace(shadow._read())
    table._stored, table._ledger_id = progress, shadow._ledger_id
    if table._there(TOMBSTONES_SUFFIX):
        others = f"coalesce(ledger_id, '') <> '{shadow._ledger_id}'"
        table._sql(f"DELETE FROM {table._name(TOMBSTONES_SUFFIX)} WHERE {others}")  # noqa: S608 - a name of ours
    shadow.drop()
    table._sql(f"DROP TABLE IF EXISTS {shadow._name(QUARANTINE_SUFFIX)} PURGE")


def newest_token(table: IcebergTable) -> str | None:
    """Of the newest progress that is not behind a rollback; None when there is none."""
    found = newest_of_ours(table._loaded()) if table._there() else None
    stored = None if found is None else stored_in(found)
    return None if stored is None else stored.get("token")


def drop(table: IcebergTable) -> None:
    """Remove the table and its ledger; the quarantine stays."""
    for suffix in ("", TOMBSTONES_SUFFIX):
        table._sql(f"DROP TABLE IF EXISTS {table._name(suffix)} PURGE")


def maintain(table: IcebergTable) -> str:
    """Rewrite small files and deleted rows, and expire snapshots, of the table, its ledger and its quarantine.

    Snapshots are kept as long as the table's own `history.expire.max-snapshot-age-ms` says, 5 days unless set, and
    never is the newest expired that carries progress.
    """
    if table.committed() is None:
        return f"{table._label}: there is no table yet"
    parts = []
    for suffix in ("", TOMBSTONES_SUFFIX, QUARANTINE_SUFFIX):
        if table._there(suffix):
            rewritten = _rewrite(table, suffix)
            expired = _expire(table._loaded(suffix), keep_progress=not suffix)
            parts.append(f"{rewritten}, expired {expired} snapshots")
    return f"{table._label}: rewrote {parts[0]}" + (f"; beside it {'; '.join(parts[1:])}" if parts[1:] else "")


def _rewrite(table: IcebergTable, suffix: str) -> str:
    name = ".".join([*table._target.namespace.split("."), table._table + suffix])
    row = table._spark.sql(
        f"CALL `{table._catalog}`.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2'))"
    ).collect()[0]
    return f"{row['rewritten_data_files_count']} files into {row['added_data_files_count']}"


def _expire(loaded: Any, *, keep_progress: bool) -> int:  # noqa: ANN401 - of Iceberg
    age = int(loaded.properties().get(_AGE_PROPERTY) or _AGE_DAYS * _DAY_MILLIS)
    limit = int(time.time() * 1000) - age
    if keep_progress and (found := newest_of_ours(loaded)) is not None:
        limit = min(limit, found.timestampMillis())
    before = sum(1 for _ in loaded.snapshots())
    loaded.expireSnapshots().expireOlderThan(limit).retainLast(1).commit()
    loaded.refresh()
    return before - sum(1 for _ in loaded.snapshots())
