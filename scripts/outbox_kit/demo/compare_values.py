"""Compare source rows with target rows by column value.

Target rows come from a PostgreSQL table or from the JSON export of a Delta or Iceberg table. The type of a field in the
Avro schema determines the canonical form of its values. Results contain keys and column names, but not values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg import Connection, Cursor, sql
from psycopg.rows import dict_row

from outbox_events.errors import ConfigurationError

KEY_COLUMN = "aggregate_id"
"""Target column that contains the record key. In source rows, the key is in the column `id`."""

MAX_EXAMPLES = 10
"""Maximum number of keys per kind of difference in a Comparison."""

KINDS = ("missing", "unexpected", "duplicated", "different")
"""Kinds of differences. For each kind, Comparison has a field with examples and a field KIND_count."""

Rows = Iterable[Mapping[str, Any]]
"""Rows, each of which maps column names to values. A value is a Python object or its text: a decimal, an ISO date, an
ISO time with a UTC offset, or a JSON array. Nulls must be None, because a missing column counts as different."""

Conversion = Callable[[Any], Any]


@dataclass(frozen=True)
class DifferentRow:
    """A row that exists in both source and target, and the columns whose values differ."""

    key: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Differences between source and target rows of one aggregate type. KIND_count is the number of keys of a kind.

    missing: keys in the source only. unexpected: keys in the target only. duplicated: keys that occur more than once in
    the target. different: rows whose values differ. Each tuple contains the first MAX_EXAMPLES entries, sorted by key.
    """

    aggregate: str
    target: str
    source_rows: int
    target_rows: int
    missing_count: int
    unexpected_count: int
    duplicated_count: int
    different_count: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    duplicated: tuple[str, ...]
    different: tuple[DifferentRow, ...]

    @property
    def match(self) -> bool:
        """Whether the target contains exactly the source rows."""
        return not any(self._counts().values())

    def summary(self) -> str:
        differences = ", ".join(f"{count} {kind}" for kind, count in self._counts().items() if count)
        return f"{self.target} {self.aggregate}: {self.source_rows} rows, {differences or 'all equal'}"

    def _counts(self) -> dict[str, int]:
        return {kind: getattr(self, f"{kind}_count") for kind in KINDS}


class _Unreadable:
    """A value that does not have its column's type. It does not equal any value, not even itself."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def compare(aggregate: str, target: str, *, schema: Mapping[str, Any], source: Rows, rows: Rows) -> Comparison:
    """Compare the source rows of an aggregate type with the target `rows`. `schema` is the parsed .avsc file.

    Columns that are not in the schema are ignored. All source and target rows are read into memory.
    Raises ConfigurationError if the schema contains a type that the comparison does not support.
    """
    conversions = canonical_conversions(schema)
    expected = dict(_rows_by_key(source, conversions))
    actual: dict[str, dict[str, Any]] = {}
    rows_per_key: Counter[str] = Counter()
    for key, row in _rows_by_key(rows, conversions):
        actual[key] = row
        rows_per_key[key] += 1
    missing = sorted(expected.keys() - actual.keys())
    unexpected = sorted(actual.keys() - expected.keys())
    duplicated = sorted(key for key, count in rows_per_key.items() if count > 1)
    different = [
        DifferentRow(key, columns)
        for key in sorted(expected.keys() & actual.keys())
        if (columns := _different_columns(expected[key], actual[key], conversions))
    ]
    return Comparison(
        aggregate=aggregate,
        target=target,
        source_rows=len(expected),
        target_rows=rows_per_key.total(),
        missing_count=len(missing),
        unexpected_count=len(unexpected),
        duplicated_count=len(duplicated),
        different_count=len(different),
        missing=tuple(missing[:MAX_EXAMPLES]),
        unexpected=tuple(unexpected[:MAX_EXAMPLES]),
        duplicated=tuple(duplicated[:MAX_EXAMPLES]),
        different=tuple(different[:MAX_EXAMPLES]),
    )


def table_rows(connection: Connection[Any], schema: str, table: str) -> list[dict[str, Any]]:
    """Return all rows of a PostgreSQL table, with the Python values that psycopg returns."""
    query = sql.SQL("select * from {}").format(sql.Identifier(schema, table))
    with Cursor(connection, row_factory=dict_row) as cursor:
        return cursor.execute(query).fetchall()


def json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of JSON lines, or of all `*.json` files in a folder.

    Raises ConfigurationError if the path does not exist.
    """
    if not path.exists():
        message = f"the exported rows {path} do not exist"
        raise ConfigurationError(message, "run `outbox-materialize --export FOLDER`")
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        with file.open(encoding="utf-8", newline="\n") as lines:
            # str.splitlines() is not used: it would also split at U+2028, which JSON does not escape.
            for line in lines:
                if line.strip():
                    yield json.loads(line, parse_float=Decimal)


def canonical_conversions(schema: Mapping[str, Any]) -> dict[str, Conversion]:
    """Return, for each field of a record schema, the function that converts its values to a canonical form."""
    return {field["name"]: _conversion(field["name"], field["type"]) for field in schema["fields"]}


def _rows_by_key(rows: Rows, conversions: Mapping[str, Conversion]) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in rows:
        values = {name: _to_canonical(conversions[name], row[name]) for name in row if name in conversions}
        yield str(row[KEY_COLUMN] if KEY_COLUMN in row else row["id"]), values


def _to_canonical(conversion: Conversion, value: Any) -> Any:  # noqa: ANN401
    if value is None:
        return None
    try:
        return conversion(value)
    except (TypeError, ValueError, ArithmeticError):
        return _Unreadable()


def _different_columns(expected: dict[str, Any], actual: dict[str, Any], columns: Iterable[str]) -> tuple[str, ...]:
    absent = _Unreadable()
    return tuple(name for name in columns if expected.get(name, absent) != actual.get(name, absent))


def _conversion(name: str, avro: Any) -> Conversion:  # noqa: ANN401  (parsed Avro JSON: text, list or dict)
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null"]
        if len(branches) == 1:
            return _conversion(name, branches[0])
    kind = avro if isinstance(avro, str) else None
    if isinstance(avro, dict):
        kind = avro.get("logicalType", avro["type"])
        if kind == "array":
            item = _conversion(name, avro["items"])
            return lambda value: [None if element is None else item(element) for element in _list(value)]
    conversion = _CONVERSIONS.get(kind) if isinstance(kind, str) else None
    if conversion is None:
        raise ConfigurationError(f"field {name}: the comparison does not support Avro type {kind or avro}")
    return conversion


def _list(value: Any) -> list[Any]:  # noqa: ANN401
    items = json.loads(value, parse_float=Decimal) if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise TypeError("not an array")
    return list(items)


def _text(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError("not text")


def _uuid(value: Any) -> str:  # noqa: ANN401
    return str(value if isinstance(value, UUID) else UUID(_text(value)))


def _number(convert: Conversion, *rejected_types: type) -> Conversion:
    def conversion(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, (bool, *rejected_types)):
            raise TypeError("not a number of this type")
        return convert(value)

    return conversion


def _boolean(value: Any) -> bool:  # noqa: ANN401
    if isinstance(value, bool):
        return value
    raise TypeError("not a boolean")


def _date(value: Any) -> date:  # noqa: ANN401
    if isinstance(value, datetime):
        raise TypeError("not a date")
    return value if isinstance(value, date) else date.fromisoformat(value)


def _instant(value: Any) -> datetime:  # noqa: ANN401
    timestamp = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if timestamp.utcoffset() is None:
        raise ValueError("no UTC offset")
    return timestamp.astimezone(UTC)


_CONVERSIONS: dict[str, Conversion] = {
    "string": _text,
    "enum": _text,
    "uuid": _uuid,
    "int": _number(int, float, Decimal),
    "long": _number(int, float, Decimal),
    "float": _number(float),
    "double": _number(float),
    "boolean": _boolean,
    "decimal": _number(Decimal, float),  # float is rejected because it can have lost digits
    "date": _date,
    "timestamp-millis": _instant,
    "timestamp-micros": _instant,
}
