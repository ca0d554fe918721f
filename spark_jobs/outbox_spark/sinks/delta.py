"""Delta: one commit per run holds the changed rows and, in its user metadata, how far the table now is.

Deleted keys are gone from the table; their versions are in a ledger table beside it. Ledger and quarantine
are written before the commit, because what they say ("this key was deleted at that version", "this record
could not be read") is true whether or not the commit follows. A crash between leaves the table and its
offsets as they were, and the next run writes the same entries again, to no effect.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from outbox_spark.columns import KEY_COLUMN, METADATA_COLUMNS, Column
from outbox_spark.decode import defaults
from outbox_spark.errors import OverlapError, RefusedError, SchemaError
from outbox_spark.model import Committed, DeltaTarget, Written
from outbox_spark.order import version_sql
from outbox_spark.sinks import delta_upkeep
from outbox_spark.sinks.base import QUARANTINE_SUFFIX, TOMBSTONES_SUFFIX, Batch

METADATA_KEY = "outbox"
TRANSACTION_ID = "outbox-materialize"
_RECENT_COMMITS = 20
_LEDGER_ID = "ledger_id"

_PROPERTIES = {
    # Without them one stale row in a MERGE rewrites the whole file that holds its key.
    "delta.enableDeletionVectors": "true",
    # The progress is in the log of commits, which Delta else cleans after 30 days.
    "delta.logRetentionDuration": "interval 365 days",
}
_CONFIGURATION = "spark.databricks.delta"


class DeltaTable:
    """One table, at <path>/<table>. Runs are kept apart by Delta's own conflict detection, not by a lock."""

    def __init__(self, spark: SparkSession, target: DeltaTarget, table: str) -> None:
        self._spark = spark
        self._path = f"{target.path.rstrip('/')}/{table}"
        self._ledger = self._path + TOMBSTONES_SUFFIX
        self._quarantine = self._path + QUARANTINE_SUFFIX
        self._known_columns: set[str] | None = None
        # Names the ledger entries of this table, from its first commit to its removal. A first run makes up a
        # new one: what a slow first run enters means nothing to the table of the one that won.
        self._ledger_id = secrets.token_hex(8)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Holds nothing."""

    def committed(self) -> Committed | None:
        """How far the table is: the newest progress in its history. Others (OPTIMIZE, ...) commit too."""
        if not self._exists(self._path):
            return None
        for limit in (f"LIMIT {_RECENT_COMMITS}", ""):
            for row in self._history(limit):
                if row["operation"] == "RESTORE":
                    # The rows are older than the newest progress says: going on would skip what was undone.
                    message = f"{self._path} was restored to an older version"
                    raise RefusedError(message, "remove the table so that the next run rebuilds it")
                stored = _stored(row)
                if stored is not None:
                    self._known_columns = set(stored["columns"])
                    self._ledger_id = stored.get("ledger_id", "")
                    return Committed.from_json(stored, f"the progress of {self._path}")
        message = f"the history of {self._path} holds no progress: the job did not make it, or its log was cleaned"
        raise RefusedError(message, "materialize into another table, or remove it so that the next run rebuilds it")

    def check(self, columns: Sequence[Column], schema: StructType) -> None:
        """Raise SchemaError when a column of the table has another type than the schema now asks for."""
        live = self._live_types()
        for column in columns:
            found, wanted = live.get(column.name.lower()), schema[column.name].dataType.simpleString()
            if found is not None and found != wanted:
                message = f"column {column.name} of {self._path} is {found}; the newest schema makes it {wanted}"
                raise SchemaError(message, "undo the change of type, or remove the table so that it is rebuilt")

    def limit(self, column: Column, value: Expression) -> Expression | None:  # noqa: ARG002 - of the protocol
        """Delta holds every value that Avro has."""
        return None

    def write(self, batch: Batch) -> Written:
        """Ledger and quarantine first, then rows and progress in one commit."""
        counts = batch.rows.agg(
            F.count_if(F.col("_reason").isNotNull()).alias("bad"),
            F.count_if(F.col("_reason").isNull() & F.col("_deleted")).alias("deleted"),
        ).collect()[0]
        if counts["bad"]:
            self._keep_quarantine(batch)
        tombstones = self._merge_ledger(batch, counts["deleted"])
        token = secrets.token_hex(8)
        good = self._newer_than_ledger(batch.rows.where(F.col("_reason").isNull()))
        with self._explained():
            if batch.previous is None:
                self._create(good, batch, token)
            else:
                self._merge(good, batch, token)
            metrics = self._verified(batch, token)
        self._known_columns = {column.name for column in batch.columns}
        return Written(
            upserts=_upserts(metrics, first=batch.previous is None),
            deletes=int(metrics.get("numTargetRowsDeleted", 0)),
            tombstones=tombstones,
            quarantined=counts["bad"],
        )

    def versions(self) -> DataFrame:
        """Key and METADATA_COLUMNS of the rows that are there."""
        return delta_upkeep.versions(self)

    def forget_deletions(self, before: datetime) -> int:
        """Remove older ledger entries; returns how many."""
        return delta_upkeep.forget_deletions(self, before)

    def replace_by(self, shadow: Self) -> None:
        """Make the content of `shadow` this table's, in one step for readers."""
        delta_upkeep.replace_by(self, shadow)

    def drop(self) -> None:
        """Remove the table and its ledger; the quarantine stays."""
        delta_upkeep.drop(self)

    def maintain(self) -> str:
        """Compact files, expire what is no longer needed."""
        return delta_upkeep.maintain(self)

    def _create(self, rows: DataFrame, batch: Batch, token: str) -> None:
        """The first commit makes the table and fills it: nothing is there that a MERGE could compare with."""
        first = rows.where(~F.col("_deleted")).select(*_table_columns(batch))
        self._append(first, self._metadata(batch, token), batch, _PROPERTIES)

    def _merge(self, rows: DataFrame, batch: Batch, token: str) -> None:
        filled = self._evolve(batch)
        metadata = self._metadata(batch, token)
        with self._source_view(rows) as source, self._commit_settings(metadata, batch):
            result = self._spark.sql(self._merge_sql(source, batch, filled)).collect()
        if not sum(row["num_affected_rows"] for row in result):
            # Every row was stale, and such a MERGE makes no commit; the progress needs one. If the MERGE was
            # skipped because its run number is taken, so is this append, and _verified() finds out.
            nothing = rows.where(F.lit(False)).select(*_table_columns(batch))
            self._append(nothing, metadata, batch, {})

    def _merge_sql(self, source: str, batch: Batch, filled: Mapping[str, str]) -> str:
        names = [_quoted(name) for name in _table_columns(batch)]
        gone = sorted(set(self._live_types()) - {name.lower() for name in _table_columns(batch)})
        updates = [f"{name} = s.{name}" for name in names] + [f"{_quoted(name)} = null" for name in gone]
        values = ", ".join(f"s.{name}" for name in names)
        newer = f"{version_sql('s')} > {version_sql('t')}"
        clauses = [
            f"WHEN MATCHED AND {newer} AND s._deleted THEN DELETE",
            f"WHEN MATCHED AND {newer} THEN UPDATE SET {', '.join(updates)}",
            f"WHEN NOT MATCHED AND NOT s._deleted THEN INSERT ({', '.join(names)}) VALUES ({values})",  # noqa: S608 - quoted
        ]
        if filled:
            # Rows from before these fields show the field's default, as decoding them again would.
            fill = ", ".join(f"{_quoted(name)} = {literal}" for name, literal in filled.items())
            clauses.insert(2, f"WHEN MATCHED THEN UPDATE SET {fill}")
            clauses.append(f"WHEN NOT MATCHED BY SOURCE THEN UPDATE SET {fill}")
        on = f"t.{_quoted(KEY_COLUMN)} = s.{_quoted(KEY_COLUMN)}"
        return f"MERGE INTO {_by_path(self._path)} t USING {source} s ON {on} {' '.join(clauses)}"

    def _evolve(self, batch: Batch) -> dict[str, str]:
        """Add the columns that the table lacks; returns those to be filled, with their default as SQL.

        Which columns are new is judged by the last commit of ours, not by the table: a run that crashed
        after adding them leaves the filling to the next.
        """
        live = self._live_types()
        types = batch.rows.schema
        missing = [column for column in batch.columns if column.name.lower() not in live]
        if missing:
            added = ", ".join(f"{_quoted(c.name)} {types[c.name].dataType.simpleString()}" for c in missing)
            self._spark.sql(f"ALTER TABLE {_by_path(self._path)} ADD COLUMNS ({added})").collect()
        known = self._known_columns or set()
        fresh = [column for column in batch.columns if column.name not in known and column.has_default]
        if not fresh:
            return {}
        row = defaults(self._spark, fresh, batch.reader).select(F.to_json(F.struct("*"), _JSON)).collect()[0]
        return {column.name: _default_sql(row[0], column.name, types) for column in fresh}

    def _keep_quarantine(self, batch: Batch) -> None:
        rows = batch.rows.where(F.col("_reason").isNotNull()).select(
            F.lit(batch.committed.topic_id).alias("topic_id"),
            *METADATA_COLUMNS,
            F.col("_key").alias("key"),
            F.col("_schema_id").alias("schema_id"),
            F.col("_reason").alias("reason"),
            F.col("_value").alias("value"),
            F.current_timestamp().alias("quarantined_at"),
        )
        if not self._exists(self._quarantine):
            rows.write.format("delta").mode("append").options(**_PROPERTIES).save(self._quarantine)
            return
        same = " AND ".join(f"t.{name} = s.{name}" for name in ("topic_id", "_partition", "_offset"))
        with self._source_view(rows) as source:
            self._spark.sql(
                f"MERGE INTO {_by_path(self._quarantine)} t USING {source} s ON {same} WHEN NOT MATCHED THEN INSERT *"
            ).collect()

    def _merge_ledger(self, batch: Batch, count: int) -> int:
        """Enter the tombstones; returns how many were new or moved forward."""
        exists = self._exists(self._ledger)
        rows = batch.rows.where(F.col("_reason").isNull() & F.col("_deleted"))
        rows = rows.select(KEY_COLUMN, *METADATA_COLUMNS, F.lit(self._ledger_id).alias(_LEDGER_ID))
        if exists and _LEDGER_ID not in self._spark.read.format("delta").load(self._ledger).columns:
            self._spark.sql(f"ALTER TABLE {_by_path(self._ledger)} ADD COLUMNS ({_LEDGER_ID} string)").collect()
        if not count:
            return 0
        if not exists:
            rows.write.format("delta").mode("append").options(**_PROPERTIES).save(self._ledger)
            return count
        newer = f"{version_sql('s')} > {version_sql('t')}"
        same = f"t.{KEY_COLUMN} = s.{KEY_COLUMN} AND coalesce(t.{_LEDGER_ID}, '') = s.{_LEDGER_ID}"
        with self._source_view(rows) as source:
            result = self._spark.sql(
                f"MERGE INTO {_by_path(self._ledger)} t USING {source} s ON {same} "
                f"WHEN MATCHED AND {newer} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ).collect()
        return int(result[0]["num_affected_rows"])

    def _newer_than_ledger(self, rows: DataFrame) -> DataFrame:
        """Rows without those that a tombstone in the ledger is newer than; tombstones themselves stay."""
        if not self._exists(self._ledger):
            return rows
        ledger = self._spark.read.format("delta").load(self._ledger)
        # Entries of before there was an id have none.
        ledger = ledger.where(F.coalesce(_LEDGER_ID, F.lit("")) == self._ledger_id).alias("t")
        stale = F.expr(
            f"s.{KEY_COLUMN} = t.{KEY_COLUMN} AND NOT s._deleted AND {version_sql('t')} >= {version_sql('s')}"
        )
        return rows.alias("s").join(ledger, stale, how="left_anti")

    def _append(self, rows: DataFrame, metadata: str, batch: Batch, properties: Mapping[str, str]) -> None:
        rows.write.format("delta").mode("append").options(
            **properties,
            userMetadata=metadata,
            txnAppId=TRANSACTION_ID,
            txnVersion=str(batch.committed.run),
        ).save(self._path)

    def _metadata(self, batch: Batch, token: str) -> str:
        columns = [column.name for column in batch.columns]
        ours = {"columns": columns, "ledger_id": self._ledger_id, "token": token}
        return json.dumps({METADATA_KEY: {**batch.committed.to_json(), **ours}})

    def _verified(self, batch: Batch, token: str) -> dict[str, str]:
        """Metrics of our commit. A run number that another run has used makes Delta skip a write silently."""
        for row in self._history(f"LIMIT {_RECENT_COMMITS}"):
            stored = _stored(row)
            if stored is not None and stored["token"] == token:
                return dict(row["operationMetrics"])
            if stored is not None and stored["run"] == batch.committed.run:
                break
        raise OverlapError(*self._conflict())

    def _conflict(self) -> tuple[str, str]:
        return (
            f"another run has committed to {self._path} meanwhile",
            "run again; schedule one run per table at a time",
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except RefusedError:
            raise
        except Exception as error:
            # DeltaConcurrentModificationException and its kinds; PySpark has no class for them.
            if "io.delta.exceptions" in str(error) or "DELTA_CONCURRENT" in str(error):
                raise OverlapError(*self._conflict()) from error
            raise

    @contextmanager
    def _source_view(self, rows: DataFrame) -> Iterator[str]:
        name = f"outbox_source_{secrets.token_hex(4)}"
        rows.createOrReplaceTempView(name)
        try:
            yield name
        finally:
            self._spark.catalog.dropTempView(name)

    @contextmanager
    def _commit_settings(self, metadata: str, batch: Batch) -> Iterator[None]:
        """MERGE takes these from the session only, where they would stick to every later commit."""
        settings = {
            f"{_CONFIGURATION}.commitInfo.userMetadata": metadata,
            f"{_CONFIGURATION}.write.txnAppId": TRANSACTION_ID,
            f"{_CONFIGURATION}.write.txnVersion": str(batch.committed.run),
        }
        for key, value in settings.items():
            self._spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in settings:
                self._spark.conf.unset(key)

    def _exists(self, path: str) -> bool:
        jvm: Any = self._spark._jvm
        return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(self._spark._jsparkSession, path))

    def _live_types(self) -> dict[str, str]:
        """Columns of the table as it is: lower-case name to type; empty when there is no table."""
        if not self._exists(self._path):
            return {}
        schema = self._spark.read.format("delta").load(self._path).schema
        return {field.name.lower(): field.dataType.simpleString() for field in schema.fields}

    def _history(self, limit: str) -> list[Row]:
        return self._spark.sql(f"DESCRIBE HISTORY {_by_path(self._path)} {limit}").collect()


# As JSON and back, exactly: the defaults of new fields on their way into SQL.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def _table_columns(batch: Batch) -> list[str]:
    return [KEY_COLUMN, *(column.name for column in batch.columns), *METADATA_COLUMNS]


def _default_sql(defaults_json: str, name: str, types: StructType) -> str:
    text = defaults_json.replace("\\", "\\\\").replace("'", "\\'")
    kind = f"{_quoted(name)} {types[name].dataType.simpleString()}"
    options = ", ".join(f"'{key}', \"{value}\"" for key, value in _JSON.items() if key != "ignoreNullFields")
    return f"from_json('{text}', '{kind}', map({options})).{_quoted(name)}"


def _stored(row: Row) -> dict[str, Any] | None:
    """Our part of a commit's user metadata; None in commits of others."""
    try:
        metadata = json.loads(row["userMetadata"] or "")
    except ValueError:
        return None
    found = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else None


def _upserts(metrics: Mapping[str, str], *, first: bool) -> int:
    if first:
        return int(metrics.get("numOutputRows", 0))
    return int(metrics.get("numTargetRowsInserted", 0)) + int(metrics.get("numTargetRowsUpdated", 0))


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _by_path(path: str) -> str:
    return f"delta.{_quoted(path)}"
