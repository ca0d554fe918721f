"""The one guarded MERGE of the lake formats, as SQL. Nothing here touches a table.

A source row is either a record to apply (`_good`; `_deleted` tells a tombstone) or only says that the quarantine
holds something of its key. `_stale` is what a row made of it gets; `_poison`, where there is one, is the newest
version of the key in quarantine.
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

GOOD, POISON = "_good", "_poison"

OWN_TYPES: Mapping[str, str] = {
    STALE_COLUMN: "boolean",
    DELETED_AT_COLUMN: "timestamp",
    VALID_FROM_COLUMN: "timestamp",
    VALID_TO_COLUMN: "timestamp",
}
"""Columns that the job adds to a table beside METADATA_COLUMNS, in the modes that have them."""


def own_columns(mode: Mode) -> list[str]:
    """Those of OWN_TYPES that tables of a mode have."""
    more = {Mode.SOFT_DELETE: [DELETED_AT_COLUMN], Mode.HISTORY: [VALID_FROM_COLUMN, VALID_TO_COLUMN]}
    return [STALE_COLUMN, *more.get(mode, [])]


def table_columns(columns: Sequence[Column], mode: Mode) -> list[str]:
    """All columns of a table of these fields, in their order."""
    return [KEY_COLUMN, *(column.name for column in columns), *METADATA_COLUMNS, *own_columns(mode)]


@dataclass(frozen=True)
class Merge:
    """One MERGE: `names` are the table's columns, `gone` those that the newest schema no longer has."""

    mode: Mode
    names: Sequence[str]
    gone: Sequence[str] = ()
    filled: Mapping[str, str] = field(default_factory=dict)
    """New columns that rows from before show a default in: SQL by name."""
    has_poison: bool = False

    def sql(self, target: str, source: str) -> str:
        """The statement. `target` and `source` are names as SQL takes them."""
        history = self.mode is Mode.HISTORY
        same = [KEY_COLUMN, *(VERSION_COLUMNS if history else [])]
        on = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in same)
        clauses = self._history() if history else self._current()
        if self.filled:
            clauses.append(f"WHEN NOT MATCHED BY SOURCE THEN {self._update({})}")
        return f"MERGE INTO {target} t USING {source} s ON {on} {' '.join(clauses)}"

    def _current(self) -> list[str]:
        """One row of a key: only a greater version changes it, but for the flag that it is stale."""
        newer = f"s.{GOOD} AND {version_sql('s')} > {version_sql('t')}"
        values = {name: f"s.{quoted(name)}" for name in self.names if name != DELETED_AT_COLUMN}
        values |= {name: "null" for name in self.names if name == DELETED_AT_COLUMN}
        clauses = [
            f"WHEN MATCHED AND {newer} AND s._deleted THEN {self._delete()}",
            f"WHEN MATCHED AND {newer} THEN {self._update({**values, **dict.fromkeys(self.gone, 'null')})}",
        ]
        if self.has_poison:
            flagged = f"s.{POISON} > {version_sql('t')} AND NOT coalesce(t.{STALE_COLUMN}, false)"
            clauses.append(f"WHEN MATCHED AND {flagged} THEN {self._update({STALE_COLUMN: 'true'})}")
        if self.filled:
            # Rows from before these fields show the field's default, as decoding them again would.
            clauses.append(f"WHEN MATCHED THEN {self._update({})}")
        names = ", ".join(map(quoted, values))
        inserted = f"INSERT ({names}) VALUES ({', '.join(values.values())})"  # noqa: S608 - quoted
        return [*clauses, f"WHEN NOT MATCHED AND s.{GOOD} AND NOT s._deleted THEN {inserted}"]

    def _delete(self) -> str:
        if self.mode is Mode.HARD_DELETE:
            return "DELETE"
        first = list(self.names).index(METADATA_COLUMNS[0])
        version = self.names[first : first + len(METADATA_COLUMNS)]
        moved = {name: f"s.{name}" for name in [*version, STALE_COLUMN]}
        return self._update({**moved, DELETED_AT_COLUMN: "s._timestamp"})

    def _history(self) -> list[str]:
        """A row of each version: only its end and its flag ever change."""
        ends = {name: f"s.{name}" for name in (VALID_TO_COLUMN, STALE_COLUMN)}
        names = ", ".join(map(quoted, self.names))
        values = ", ".join(f"s.{quoted(name)}" for name in self.names)
        inserted = f"INSERT ({names}) VALUES ({values})"  # noqa: S608 - quoted
        return [f"WHEN MATCHED THEN {self._update(ends)}", f"WHEN NOT MATCHED THEN {inserted}"]

    def _update(self, values: Mapping[str, str]) -> str:
        assigned = {**self.filled, **values}
        return "UPDATE SET " + ", ".join(f"{quoted(name)} = {value}" for name, value in assigned.items())


def default_sql(defaults_json: str, name: str, types: StructType) -> str:
    """The default of one field as SQL. `defaults_json` is a JSON object of several."""
    kind = f"{quoted(name)} {types[name].dataType.simpleString()}"
    options = ", ".join(f"'{key}', \"{value}\"" for key, value in JSON_OPTIONS.items() if key != "ignoreNullFields")
    return f"from_json({literal(defaults_json)}, {literal(kind)}, map({options})).{quoted(name)}"


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def literal(text: str) -> str:
    """A text as SQL takes it. The dollar is written as its code: Spark replaces ${...} anywhere in a statement."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"
