"""Delta: a table takes over the content of another, in one commit that carries the progress."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from outbox_spark.columns import KEY_COLUMN
from outbox_spark.errors import OverlapError, RefusedError
from outbox_spark.order import version_sql
from outbox_spark.sinks import delta as sink  # which imports this module: its names are looked up when used

if TYPE_CHECKING:
    from outbox_spark.sinks.delta import DeltaTable


def replace_by(table: DeltaTable, shadow: DeltaTable) -> None:
    """Give `table` rows, ledger and progress of `shadow`; the shadow's quarantine is added to the table's.

    Ledger and quarantine go in first, as in every run: the entries carry the shadow's ledger_id, which means nothing
    until the commit of the rows names it. Raises RefusedError when the table is not the job's.
    """
    progress = shadow.committed()
    if progress is None:
        message = f"{shadow._path} does not exist: there is nothing that could replace {table._path}"
        raise RefusedError(message, "run the rebuild again")
    stored = _newest(table)
    entry = f"t.{KEY_COLUMN} = s.{KEY_COLUMN} AND t.ledger_id = s.ledger_id"
    newer = f"WHEN MATCHED AND {version_sql('s')} > {version_sql('t')} THEN UPDATE SET *"
    _add(table, shadow._ledger, table._ledger, entry, newer)
    position = " AND ".join(f"t.{name} = s.{name}" for name in ("topic_id", "_partition", "_offset"))
    _add(table, shadow._quarantine, table._quarantine, position, "")
    rows = table._spark.read.format("delta").load(shadow._path)
    new = replace(progress, run=max(progress.run, stored["run"] if stored else 0) + 1)
    token = secrets.token_hex(8)
    ours = {
        "columns": sorted(shadow._known_columns or ()),
        "ledger_id": shadow._ledger_id,
        "token": token,
    }
    with table._explained():
        _overwrite(table, rows, json.dumps({sink.METADATA_KEY: {**new.to_json(), **ours}}), new.run)
    _verify(table, token)
    table._known_columns, table._ledger_id = shadow._known_columns, shadow._ledger_id
    for path in (shadow._path, shadow._ledger, shadow._quarantine):
        remove(table, path)


def by_path(path: str) -> str:
    """A table in SQL."""
    escaped = path.replace("`", "``")
    return f"delta.`{escaped}`"


def remove(table: DeltaTable, path: str) -> None:
    """Remove a table's folder; nothing when it is not there."""
    jvm: Any = table._spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    files = place.getFileSystem(table._spark._jsparkSession.sessionState().newHadoopConf())
    files.delete(place, True)


def _newest(table: DeltaTable) -> dict[str, Any] | None:
    """The newest progress, also behind a RESTORE. Refuses a table that the job did not make: it would be emptied."""
    if not table._exists(table._path):
        return None
    for row in table._history(""):
        stored = sink._stored(row)
        if stored is not None:
            return stored
    message = f"the history of {table._path} holds no progress: the job did not make it, or its log was cleaned"
    raise RefusedError(message, "materialize into another table, or remove this one")


def _overwrite(table: DeltaTable, rows: DataFrame, metadata: str, run: int) -> None:
    properties = {} if table._exists(table._path) else sink._PROPERTIES
    rows.write.format("delta").mode("overwrite").options(
        **properties,
        overwriteSchema="true",
        userMetadata=metadata,
        txnAppId=sink.TRANSACTION_ID,
        txnVersion=str(run),
    ).save(table._path)


def _verify(table: DeltaTable, token: str) -> None:
    """A run number that another run has used makes Delta skip the write silently."""
    newest = _newest(table)
    if newest is None or newest["token"] != token:
        raise OverlapError(*table._conflict())


def _add(table: DeltaTable, source: str, target: str, same: str, matched: str) -> None:
    """Enter the rows of one table beside the shadow into the table's own; entering them again changes nothing."""
    if not table._exists(source):
        return
    rows = table._spark.read.format("delta").load(source)
    if not table._exists(target):
        rows.write.format("delta").mode("append").options(**sink._PROPERTIES).save(target)
        return
    known = table._spark.read.format("delta").load(target).columns
    missing = [field for field in rows.schema if field.name not in known]
    if missing:
        added = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in missing)
        table._spark.sql(f"ALTER TABLE {by_path(target)} ADD COLUMNS ({added})").collect()
    with table._source_view(rows) as view:
        table._spark.sql(
            f"MERGE INTO {by_path(target)} t USING {view} s ON {same} {matched} WHEN NOT MATCHED THEN INSERT *"
        ).collect()
