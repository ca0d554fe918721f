"""Delta: a table takes over the content of another, in one commit that carries the progress."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from outbox_spark.errors import RefusedError
from outbox_spark.sinks.delta import table as sink  # which imports this module: its names are looked up when used
from outbox_spark.sinks.lake.replace import take_beside
from outbox_spark.sinks.lake.table import PROGRESS_KEY
from outbox_spark.sinks.target_table import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX

if TYPE_CHECKING:
    from outbox_spark.sinks.delta.table import DeltaTable


def replace_by(table: DeltaTable, shadow: DeltaTable) -> None:
    """Give `table` rows, ledger and progress of `shadow`; the shadow's quarantine is added to the table's.

    Raises RefusedError when the table is not the job's, and when there is no shadow.
    """
    newest = _newest(table)
    found = take_beside(table, shadow)
    run = max(int(found["run"]), int(newest["run"]) if newest else 0) + 1
    progress = {**found, "run": run, "token": secrets.token_hex(8)}
    with table._explained():
        _overwrite(table, shadow, progress)
        table._verified(progress)
    table._stored, table._ledger_id = progress, shadow._ledger_id
    for suffix in ("", TOMBSTONES_SUFFIX, QUARANTINE_SUFFIX):
        remove(table, shadow._path + suffix)


def remove(table: DeltaTable, path: str) -> None:
    """Remove a table's folder; nothing when it is not there."""
    jvm: Any = table._spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    files = place.getFileSystem(table._spark._jsparkSession.sessionState().newHadoopConf())
    files.delete(place, True)


def _newest(table: DeltaTable) -> dict[str, Any] | None:
    """The newest progress, also behind a RESTORE. Refuses a table that the job did not make: it would be emptied."""
    if not table._there():
        return None
    for commit in table._commits():
        stored = sink._stored(commit)
        if stored is not None:
            return stored
    message = f"the history of {table._label} holds no progress: the job did not make it, or its log was cleaned"
    raise RefusedError(message, "materialize into another table, or remove this one")


def _overwrite(table: DeltaTable, shadow: DeltaTable, progress: dict[str, Any]) -> None:
    properties = {} if table._there() else sink._PROPERTIES
    shadow._read().write.format("delta").mode("overwrite").options(
        **properties,
        overwriteSchema="true",
        userMetadata=json.dumps({PROGRESS_KEY: progress}),
        txnAppId=sink.TRANSACTION_ID,
        txnVersion=str(progress["run"]),
    ).save(table._path)
