"""The version-checked MERGE of the lake formats, as SQL text: it replaces a row only by a newer version.

A source row with `_readable` is a record to merge, or a tombstone if `_deleted` is set. A source row without
`_readable` only flags the row of its key, which has quarantined records. `_stale` is the flag to write. `_quarantined`,
which the source has only if there is a quarantine, is the newest version of the key in quarantine.
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

READABLE, QUARANTINED = "_readable", "_quarantined"

STATE_TYPES: Mapping[str, str] = {
    STALE_COLUMN: "boolean",
    DELETED_AT_COLUMN: "timestamp",
    VALID_FROM_COLUMN: "timestamp",
    VALID_TO_COLUMN: "timestamp",
}
"""Types of the columns for the state of a row. Which of them a table has depends on its mode."""


def state_columns(mode: Mode) -> list[str]:
    """Return the columns of STATE_TYPES that tables of a mode have."""
    columns = {Mode.SOFT_DELETE: [DELETED_AT_COLUMN], Mode.HISTORY: [VALID_FROM_COLUMN, VALID_TO_COLUMN]}
    return [STALE_COLUMN, *columns.get(mode, [])]


def table_columns(columns: Sequence[Column], mode: Mode) -> list[str]:
    """Return all columns of a table with these fields, in order."""
    return [KEY_COLUMN, *(column.name for column in columns), *METADATA_COLUMNS, *state_columns(mode)]


@dataclass(frozen=True)
class MergeStatement:
    """The MERGE of one batch."""

    mode: Mode
    names: Sequence[str]
    """Names of the table's columns."""
    removed: Sequence[str] = ()
    """Columns of the table that the latest schema no longer has."""
    filled: Mapping[str, str] = field(default_factory=dict)
    """Defaults of new columns for existing rows: SQL by column name."""
    has_quarantined: bool = False

    def sql(self, target: str, source: str) -> str:
        """Return the statement; `target` and `source` are SQL names."""
        history = self.mode is Mode.HISTORY
        identity = [KEY_COLUMN, *(VERSION_COLUMNS if history else [])]
        on = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in identity)
        clauses = self._history_clauses() if history else self._current_clauses()
        if self.filled:
            clauses.append(f"WHEN NOT MATCHED BY SOURCE THEN {self._update({})}")
        return f"MERGE INTO {target} t USING {source} s ON {on} {' '.join(clauses)}"

    def _current_clauses(self) -> list[str]:
        """Return the clauses for one row per key. Only a newer version changes a row, except for its stale flag."""
        newer = f"s.{READABLE} AND {version_sql('s')} > {version_sql('t')}"
        values = {name: f"s.{quoted(name)}" for name in self.names if name != DELETED_AT_COLUMN}
        values |= {name: "null" for name in self.names if name == DELETED_AT_COLUMN}
        clauses = [
            f"WHEN MATCHED AND {newer} AND s._deleted THEN {self._delete()}",
            f"WHEN MATCHED AND {newer} THEN {self._update({**values, **dict.fromkeys(self.removed, 'null')})}",
        ]
        if self.has_quarantined:
            unflagged = f"s.{QUARANTINED} > {version_sql('t')} AND NOT coalesce(t.{STALE_COLUMN}, false)"
            clauses.append(f"WHEN MATCHED AND {unflagged} THEN {self._update({STALE_COLUMN: 'true'})}")
        if self.filled:
            # Existing rows get the field's default, as if their records were decoded again.
            clauses.append(f"WHEN MATCHED THEN {self._update({})}")
        names = ", ".join(map(quoted, values))
        insert = f"INSERT ({names}) VALUES ({', '.join(values.values())})"  # noqa: S608 - quoted
        return [*clauses, f"WHEN NOT MATCHED AND s.{READABLE} AND NOT s._deleted THEN {insert}"]

    def _delete(self) -> str:
        if self.mode is Mode.HARD_DELETE:
            return "DELETE"
        start = list(self.names).index(METADATA_COLUMNS[0])
        metadata = self.names[start : start + len(METADATA_COLUMNS)]
        values = {name: f"s.{name}" for name in [*metadata, STALE_COLUMN]}
        return self._update({**values, DELETED_AT_COLUMN: "s._timestamp"})

    def _history_clauses(self) -> list[str]:
        """Return the clauses for one row per version: only its `_valid_to` and its stale flag change."""
        changed = {name: f"s.{name}" for name in (VALID_TO_COLUMN, STALE_COLUMN)}
        names = ", ".join(map(quoted, self.names))
        values = ", ".join(f"s.{quoted(name)}" for name in self.names)
        insert = f"INSERT ({names}) VALUES ({values})"  # noqa: S608 - quoted
        return [f"WHEN MATCHED THEN {self._update(changed)}", f"WHEN NOT MATCHED THEN {insert}"]

    def _update(self, values: Mapping[str, str]) -> str:
        assigned = {**self.filled, **values}
        return "UPDATE SET " + ", ".join(f"{quoted(name)} = {value}" for name, value in assigned.items())


def default_sql(defaults_json: str, name: str, types: StructType) -> str:
    """Return the default of one field as SQL. `defaults_json` is a JSON object with the defaults of all fields."""
    kind = f"{quoted(name)} {types[name].dataType.simpleString()}"
    options = ", ".join(f"'{key}', \"{value}\"" for key, value in JSON_OPTIONS.items() if key != "ignoreNullFields")
    return f"from_json({literal(defaults_json)}, {literal(kind)}, map({options})).{quoted(name)}"


def quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def literal(text: str) -> str:
    """Quote a string literal. The dollar is escaped because Spark replaces ${...} anywhere in a statement."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"
