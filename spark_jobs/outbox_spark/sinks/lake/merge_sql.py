"""Compose the version-checked MERGE for Delta and Iceberg, which replaces a row only with a newer version.

A source row whose READABLE is true is a record to merge, which is a tombstone if `__outbox_deleted` is true. A source
row whose READABLE is false only flags the stored row of a key that has quarantined records. `_stale` is the flag to
write. QUARANTINED exists only if there is a quarantine, and is the newest quarantined version of the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from outbox_spark.decoding.columns import (
    DELETED_AT_COLUMN,
    KEY_COLUMN,
    METADATA_COLUMNS,
    STALE_COLUMN,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
    Column,
)
from outbox_spark.decoding.json_text import JSON_OPTIONS
from outbox_spark.jobs.model import Mode
from outbox_spark.kafka.ordering import VERSION_COLUMNS, version_sql

READABLE, QUARANTINED = "__outbox_readable", "__outbox_quarantined"

STATE_TYPES: Mapping[str, str] = {
    STALE_COLUMN: "boolean",
    DELETED_AT_COLUMN: "timestamp",
    VALID_FROM_COLUMN: "timestamp",
    VALID_TO_COLUMN: "timestamp",
}
"""Spark types of the columns for the state of a row. The mode of a table determines which of these columns exist."""


def state_columns(mode: Mode) -> list[str]:
    """Return the names of those columns of STATE_TYPES that tables of a mode have."""
    columns = {Mode.SOFT_DELETE: [DELETED_AT_COLUMN], Mode.HISTORY: [VALID_FROM_COLUMN, VALID_TO_COLUMN]}
    return [STALE_COLUMN, *columns.get(mode, [])]


def table_columns(columns: Sequence[Column], mode: Mode) -> list[str]:
    """Return the names of all columns of a table, in order. `columns` contains the columns of the fields."""
    return [KEY_COLUMN, *(column.name for column in columns), *METADATA_COLUMNS, *state_columns(mode)]


@dataclass(frozen=True)
class MergeStatement:
    """The MERGE of one batch into a table."""

    mode: Mode
    names: Sequence[str]
    """Stored names of the columns that the job writes, without the columns in `removed`."""
    removed: Sequence[str] = ()
    """Columns of fields that the schema no longer has."""
    column_defaults: Mapping[str, str] = field(default_factory=dict)
    """Maps each new column to SQL for its value in existing rows."""
    has_quarantined: bool = False  # whether the source has the column `__outbox_quarantined`
    rewrites: bool = False
    """Whether the statement replaces the values of rows whose version is equal to that of a source row."""
    key_filter: str | None = None
    """SQL function that returns whether a hash may be that of a key in the source (see storage.key_filter)."""

    def sql(self, target: str, source: str) -> str:
        """Return the MERGE statement. `target` and `source` are the SQL names of tables or views."""
        is_history = self.mode is Mode.HISTORY
        identity = [KEY_COLUMN, *(VERSION_COLUMNS if is_history or self.rewrites else [])]
        conditions = [f"t.{quoted(name)} = s.{quoted(name)}" for name in identity]
        if self.key_filter is not None:
            conditions.append(f"{self.key_filter}(xxhash64(t.{quoted(KEY_COLUMN)}))")
        clauses = self._history_clauses() if is_history else self._current_clauses()
        if self.rewrites:
            clauses = self._rewrite_clauses()
        if self.column_defaults:
            clauses.append(f"WHEN NOT MATCHED BY SOURCE THEN {self._update({})}")
        return f"MERGE INTO {target} t USING {source} s ON {' AND '.join(conditions)} {' '.join(clauses)}"

    def _current_clauses(self) -> list[str]:
        """Return the clauses for one row per key. Rows that are not newer only set stale flags and new columns."""
        is_newer = f"s.{READABLE} AND {version_sql('s')} > {version_sql('t')}"
        values = {name: "null" if name == DELETED_AT_COLUMN else f"s.{quoted(name)}" for name in self.names}
        clauses = [
            f"WHEN MATCHED AND {is_newer} AND s.__outbox_deleted THEN {self._delete()}",
            f"WHEN MATCHED AND {is_newer} THEN {self._update({**values, **dict.fromkeys(self.removed, 'null')})}",
        ]
        if self.has_quarantined:
            is_newly_stale = f"s.{QUARANTINED} > {version_sql('t')} AND NOT coalesce(t.{STALE_COLUMN}, false)"
            clauses.append(f"WHEN MATCHED AND {is_newly_stale} THEN {self._update({STALE_COLUMN: 'true'})}")
        if self.column_defaults:
            # Existing rows get the default of a new field, as if their records had been decoded again.
            clauses.append(f"WHEN MATCHED THEN {self._update({})}")
        column_list = ", ".join(map(quoted, values))
        insert = f"INSERT ({column_list}) VALUES ({', '.join(values.values())})"  # noqa: S608 - quoted
        return [*clauses, f"WHEN NOT MATCHED AND s.{READABLE} AND NOT s.__outbox_deleted THEN {insert}"]

    def _delete(self) -> str:
        if self.mode is Mode.HARD_DELETE:
            return "DELETE"
        metadata_index = list(self.names).index(METADATA_COLUMNS[0])
        metadata = self.names[metadata_index : metadata_index + len(METADATA_COLUMNS)]
        values = {name: f"s.{name}" for name in [*metadata, STALE_COLUMN]}
        return self._update({**values, DELETED_AT_COLUMN: "s._timestamp"})

    def _history_clauses(self) -> list[str]:
        """Return the clauses for one row per version. Stored rows get `_valid_to`, the stale flag and new columns."""
        new_values = {name: f"s.{name}" for name in (VALID_TO_COLUMN, STALE_COLUMN)}
        column_list = ", ".join(map(quoted, self.names))
        value_list = ", ".join(f"s.{quoted(name)}" for name in self.names)
        insert = f"INSERT ({column_list}) VALUES ({value_list})"  # noqa: S608 - quoted
        return [f"WHEN MATCHED THEN {self._update(new_values)}", f"WHEN NOT MATCHED THEN {insert}"]

    def _rewrite_clauses(self) -> list[str]:
        """Return the clauses that replace all values or, for quarantined records and tombstones, only the state."""
        state = {"_timestamp": "s._timestamp", STALE_COLUMN: f"s.{STALE_COLUMN}"}
        if self.mode is Mode.SOFT_DELETE:
            is_quarantined = f"WHEN NOT s.{READABLE} THEN t.{DELETED_AT_COLUMN}"
            state[DELETED_AT_COLUMN] = f"CASE {is_quarantined} WHEN s.__outbox_deleted THEN s._timestamp END"
        if self.mode is Mode.HISTORY:
            state[VALID_FROM_COLUMN] = "s._timestamp"
        fields = {name: f"s.{quoted(name)}" for name in self.names[1 : list(self.names).index(METADATA_COLUMNS[0])]}
        has_values = f"s.{READABLE} AND NOT s.__outbox_deleted"
        return [
            f"WHEN MATCHED AND {has_values} THEN {self._update({**fields, **state})}",
            f"WHEN MATCHED THEN {self._update(state)}",
        ]

    def _update(self, values: Mapping[str, str]) -> str:
        assignments = {**self.column_defaults, **values}
        return "UPDATE SET " + ", ".join(f"{quoted(name)} = {value}" for name, value in assignments.items())


def default_sql(defaults_json: str, name: str, types: StructType) -> str:
    """Return the default of the field `name` as SQL. `defaults_json` is a JSON object of the fields' defaults."""
    definition = f"{quoted(name)} {types[name].dataType.simpleString()}"
    options = ", ".join(f"'{key}', \"{value}\"" for key, value in JSON_OPTIONS.items() if key != "ignoreNullFields")
    return f"from_json({literal(defaults_json)}, {literal(definition)}, map({options})).{quoted(name)}"


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def literal(text: str) -> str:
    """Return a SQL string literal. Dollar signs are escaped, because Spark replaces ${...} anywhere in a statement."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"
